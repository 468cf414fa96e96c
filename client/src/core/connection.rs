//! One connection to a broker: requests to bytes, bytes to answers.
//!
//! Invariants:
//! 1. Answers come in the order of their requests; one out of order ends the connection, since nothing that
//!    follows can be trusted.
//! 2. At most [`ConnectionSettings::requests_in_flight_max`] requests wait for their answers.
//! 3. The length of a frame is checked against [`ConnectionSettings::frame_bytes_max`] before memory is
//!    reserved for it.

use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};
use corelog_wire::frame::{
    FrameError, decode_api_versions_response, decode_response, encode_request, frame_length,
    response_correlation_id, take_frame,
};
use corelog_wire::{
    ApiKey, ApiVersionsRequest, DecodeError, DecodeLimits, EncodeError, EncodedBytes, ErrorCode,
    Request, WireString,
};

use super::versions::ServedVersions;

/// Default for the largest frame accepted, in bytes: a fetch answer of 64 MiB and what stands around it.
pub const FRAME_BYTES_MAX: usize = (64 << 20) + (1 << 20);

/// Room offered to one read, in bytes.
const READ_BYTES: usize = 64 << 10;
/// The version of ApiVersions that is tried first; every broker answers it, older ones in version 0.
const API_VERSIONS_VERSION: i16 = 3;
const FRAME_PREFIX_BYTES: usize = 4;

/// How a connection behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// The client's name for itself, for the broker's logs and quotas.
    pub client_id: WireString,
    /// Most requests that wait for their answers.
    pub requests_in_flight_max: usize,
    /// Largest answer accepted, in bytes.
    pub frame_bytes_max: usize,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            client_id: WireString::from_static("corelog"),
            requests_in_flight_max: 64,
            frame_bytes_max: FRAME_BYTES_MAX,
        }
    }
}

/// Why a connection refused a request or must be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// Too many requests wait for their answers: take answers first. The connection is as before.
    Full {
        /// The limit.
        requests_in_flight_max: usize,
    },
    /// The versions are not known yet: [`Connection::hello`] comes first.
    NoVersions,
    /// The broker does not serve the request in a version that this client writes.
    NotServed {
        /// The request.
        api: ApiKey,
        /// Lowest and highest version that the broker serves, if any.
        served: Option<(i16, i16)>,
    },
    /// The request cannot be written.
    Encode {
        /// The request.
        api: ApiKey,
        /// Why.
        error: EncodeError,
    },
    /// A frame length out of bounds. The connection must be closed.
    Frame(FrameError),
    /// An answer that cannot be read. The connection must be closed.
    Decode {
        /// What it answers.
        api: ApiKey,
        /// Why.
        error: DecodeError,
    },
    /// An answer to nothing that was asked, or out of order. The connection must be closed.
    OutOfOrder {
        /// The correlation id that the answer carries.
        received: i32,
        /// The one that is due.
        expected: Option<i32>,
    },
    /// The broker refused to tell its versions.
    VersionsRefused(ErrorCode),
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full {
                requests_in_flight_max,
            } => write!(
                f,
                "{requests_in_flight_max} requests wait for their answers already; take answers first"
            ),
            Self::NoVersions => {
                f.write_str("the broker's versions are not known yet; say hello first")
            }
            Self::NotServed { api, served: None } => write!(
                f,
                "the broker does not serve {}; use a broker that does",
                api.name()
            ),
            Self::NotServed {
                api,
                served: Some((min, max)),
            } => write!(
                f,
                "the broker serves {} in versions {min} to {max} and this client writes {} to {}; \
                 bring both to releases that overlap",
                api.name(),
                api.versions().built_min,
                api.versions().max
            ),
            Self::Encode { api, error } => write!(f, "{} cannot be written: {error}", api.name()),
            Self::Frame(error) => write!(
                f,
                "{error}; is this the port of a Kafka listener, without TLS?"
            ),
            Self::Decode { api, error } => {
                write!(f, "the answer to {} cannot be read: {error}", api.name())
            }
            Self::OutOfOrder { received, expected } => match expected {
                Some(expected) => write!(f, "answer {received} came where {expected} was due"),
                None => write!(f, "answer {received} came to nothing that was asked"),
            },
            Self::VersionsRefused(code) => {
                write!(f, "the broker did not tell its versions: {code}")
            }
        }
    }
}

impl std::error::Error for ConnectionError {}

/// Names a request of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub i32);

#[derive(Clone, Copy, Debug)]
struct InFlight {
    id: RequestId,
    api: ApiKey,
    version: i16,
}

/// An answer, not read yet.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What it answers.
    pub request: RequestId,
    /// The API.
    pub api: ApiKey,
    /// The version that was asked in.
    pub version: i16,
    frame: Bytes,
}

impl Answer {
    /// Reads it as the answer to an `R`.
    ///
    /// # Errors
    /// [`ConnectionError::Decode`].
    ///
    /// # Panics
    /// If the request was not an `R`.
    pub fn decode<R: Request>(self) -> Result<R::Response, ConnectionError> {
        assert_eq!(self.api, R::API, "an answer is read as what was asked");
        decode_response::<R>(self.frame, self.version, DecodeLimits::RESPONSE)
            .map(|(_, response)| response)
            .map_err(|error| ConnectionError::Decode { api: R::API, error })
    }
}

/// One connection.
///
/// ```no_run
/// use corelog_client::core::{Connection, ConnectionSettings};
/// use corelog_client::wire::MetadataRequest;
/// # fn write(_: &corelog_client::wire::EncodedBytes) {}
/// # fn read(_: &mut bytes::BytesMut) {}
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut connection = Connection::new(ConnectionSettings::default());
/// write(&connection.hello()?);
/// loop {
///     read(connection.room());
///     if let Some(answer) = connection.next_answer()? {
///         match connection.take_versions(answer)? {
///             None => break,
///             Some(again) => write(&again),
///         }
///     }
/// }
/// let (id, bytes) = connection.request(&MetadataRequest::default())?;
/// write(&bytes);
/// # let _ = id;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Connection {
    settings: ConnectionSettings,
    versions: Option<ServedVersions>,
    correlation_id_next: i32,
    in_flight: VecDeque<InFlight>,
    received: BytesMut,
}

impl Connection {
    /// A connection on which nothing has been said.
    pub fn new(settings: ConnectionSettings) -> Self {
        Self {
            settings,
            versions: None,
            correlation_id_next: 0,
            in_flight: VecDeque::new(),
            received: BytesMut::new(),
        }
    }

    /// The first request: which versions does the broker serve?
    ///
    /// # Errors
    /// [`ConnectionError::Full`] or [`ConnectionError::Encode`].
    pub fn hello(&mut self) -> Result<EncodedBytes, ConnectionError> {
        self.ask_versions(API_VERSIONS_VERSION)
    }

    /// Takes the answer to [`Connection::hello`]. `Some`: the broker is older; this goes out, and its answer
    /// comes here again.
    ///
    /// # Errors
    /// An answer that cannot be read, or a refusal.
    pub fn take_versions(
        &mut self,
        answer: Answer,
    ) -> Result<Option<EncodedBytes>, ConnectionError> {
        let api = ApiKey::ApiVersions;
        let asked = answer.version;
        let (_, response) =
            decode_api_versions_response(answer.frame, asked, DecodeLimits::RESPONSE)
                .map_err(|error| ConnectionError::Decode { api, error })?;
        match response.error_code {
            ErrorCode::NONE => {
                self.versions = Some(ServedVersions::from_response(&response));
                Ok(None)
            }
            ErrorCode::UNSUPPORTED_VERSION if asked > 0 => self.ask_versions(0).map(Some),
            code => Err(ConnectionError::VersionsRefused(code)),
        }
    }

    /// What the broker serves, once it is known.
    pub fn versions(&self) -> Option<&ServedVersions> {
        self.versions.as_ref()
    }

    /// Whether another request may go out.
    pub fn can_send(&self) -> bool {
        self.in_flight.len() < self.settings.requests_in_flight_max
    }

    /// Requests that wait for their answers.
    pub fn requests_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Writes a request in the highest version that both sides have. Record bytes are not copied.
    ///
    /// # Errors
    /// See [`ConnectionError`]; the connection is then as before.
    pub fn request<R: Request>(
        &mut self,
        request: &R,
    ) -> Result<(RequestId, EncodedBytes), ConnectionError> {
        let versions = self.versions.as_ref().ok_or(ConnectionError::NoVersions)?;
        let version = versions.choose(R::API)?;
        self.write(version, request)
    }

    /// Where received bytes go: append to it, then call [`Connection::next_answer`]. It has room for what the
    /// first frame still lacks, or for a read of the usual size.
    pub fn room(&mut self) -> &mut BytesMut {
        let missing_bytes = self
            .received
            .first_chunk::<FRAME_PREFIX_BYTES>()
            .and_then(|prefix| frame_length(*prefix, self.settings.frame_bytes_max).ok())
            .map_or(0, |length| {
                (length + FRAME_PREFIX_BYTES).saturating_sub(self.received.len())
            });
        let spare_bytes = self.received.capacity() - self.received.len();
        if spare_bytes < missing_bytes.max(FRAME_PREFIX_BYTES) {
            self.received.reserve(missing_bytes.max(READ_BYTES));
        }
        &mut self.received
    }

    /// The next whole answer, if it has arrived.
    ///
    /// # Errors
    /// [`ConnectionError::Frame`], [`ConnectionError::Decode`] or [`ConnectionError::OutOfOrder`]; the
    /// connection must then be closed.
    pub fn next_answer(&mut self) -> Result<Option<Answer>, ConnectionError> {
        let frame = take_frame(&mut self.received, self.settings.frame_bytes_max)
            .map_err(ConnectionError::Frame)?;
        let Some(frame) = frame else {
            return Ok(None);
        };
        let due = self.in_flight.pop_front();
        let received =
            response_correlation_id(&frame).map_err(|error| ConnectionError::Decode {
                api: due.map_or(ApiKey::ApiVersions, |due| due.api),
                error,
            })?;
        match due {
            Some(due) if due.id.0 == received => Ok(Some(Answer {
                request: due.id,
                api: due.api,
                version: due.version,
                frame,
            })),
            due => Err(ConnectionError::OutOfOrder {
                received,
                expected: due.map(|due| due.id.0),
            }),
        }
    }

    fn ask_versions(&mut self, version: i16) -> Result<EncodedBytes, ConnectionError> {
        let request = ApiVersionsRequest {
            client_software_name: WireString::from_static("corelog"),
            client_software_version: WireString::from_static(env!("CARGO_PKG_VERSION")),
        };
        self.write(version, &request).map(|(_, bytes)| bytes)
    }

    fn write<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<(RequestId, EncodedBytes), ConnectionError> {
        if !self.can_send() {
            return Err(ConnectionError::Full {
                requests_in_flight_max: self.settings.requests_in_flight_max,
            });
        }
        let id = RequestId(self.correlation_id_next);
        let client_id = Some(self.settings.client_id.clone());
        let bytes = encode_request(id.0, client_id, version, request)
            .map_err(|error| ConnectionError::Encode { api: R::API, error })?;
        self.correlation_id_next = self.correlation_id_next.wrapping_add(1) & i32::MAX;
        self.in_flight.push_back(InFlight {
            id,
            api: R::API,
            version,
        });
        Ok((id, bytes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use corelog_wire::frame::{encode_response, encode_unsupported_api_versions};
    use corelog_wire::{ApiVersionsResponse, MetadataRequest, MetadataResponse};

    use super::*;

    fn connected() -> Connection {
        let mut connection = Connection::new(ConnectionSettings {
            requests_in_flight_max: 2,
            frame_bytes_max: 10_000,
            ..ConnectionSettings::default()
        });
        connection.hello().unwrap();
        let all = ApiVersionsResponse::advertising(|_| true);
        receive(&mut connection, encode_response(0, 3, &all).unwrap());
        let answer = connection.next_answer().unwrap().unwrap();
        assert!(connection.take_versions(answer).unwrap().is_none());
        connection
    }

    fn receive(connection: &mut Connection, bytes: EncodedBytes) {
        connection.room().extend_from_slice(&bytes.into_bytes());
    }

    #[test]
    fn an_older_broker_is_asked_again_in_version_0() {
        let mut connection = Connection::new(ConnectionSettings::default());
        connection.hello().unwrap();
        receive(&mut connection, encode_unsupported_api_versions(0).unwrap());
        let answer = connection.next_answer().unwrap().unwrap();
        assert!(connection.take_versions(answer).unwrap().is_some());
        let all = ApiVersionsResponse::advertising(|_| true);
        receive(&mut connection, encode_response(1, 0, &all).unwrap());
        let answer = connection.next_answer().unwrap().unwrap();
        assert!(connection.take_versions(answer).unwrap().is_none());
        assert!(connection.versions().unwrap().serves(ApiKey::Produce));
    }

    #[test]
    fn requests_before_the_versions_are_known_are_refused() {
        let mut connection = Connection::new(ConnectionSettings::default());
        let refused = connection.request(&MetadataRequest::default());
        assert_eq!(refused.unwrap_err(), ConnectionError::NoVersions);
    }

    #[test]
    fn requests_beyond_the_bound_are_refused_until_an_answer_is_taken() {
        let mut connection = connected();
        let (first, _) = connection.request(&MetadataRequest::default()).unwrap();
        connection.request(&MetadataRequest::default()).unwrap();
        assert!(!connection.can_send());
        let refused = connection.request(&MetadataRequest::default());
        assert!(matches!(refused.unwrap_err(), ConnectionError::Full { .. }));
        let response = MetadataResponse::default();
        receive(
            &mut connection,
            encode_response(first.0, 13, &response).unwrap(),
        );
        let answer = connection.next_answer().unwrap().unwrap();
        assert_eq!(answer.request, first);
        assert_eq!(answer.decode::<MetadataRequest>().unwrap(), response);
        assert!(connection.can_send());
    }

    #[test]
    fn an_answer_out_of_order_ends_the_connection() {
        let mut connection = connected();
        connection.request(&MetadataRequest::default()).unwrap();
        let (second, _) = connection.request(&MetadataRequest::default()).unwrap();
        let response = MetadataResponse::default();
        receive(
            &mut connection,
            encode_response(second.0, 13, &response).unwrap(),
        );
        assert_eq!(
            connection.next_answer().unwrap_err(),
            ConnectionError::OutOfOrder {
                received: second.0,
                expected: Some(second.0 - 1)
            }
        );
    }

    #[test]
    fn an_answer_to_nothing_ends_the_connection() {
        let mut connection = connected();
        receive(
            &mut connection,
            encode_response(9, 13, &MetadataResponse::default()).unwrap(),
        );
        assert!(matches!(
            connection.next_answer().unwrap_err(),
            ConnectionError::OutOfOrder { expected: None, .. }
        ));
    }

    #[test]
    fn a_frame_above_the_limit_is_refused_and_nothing_is_reserved_for_it() {
        let mut connection = connected();
        connection.room().extend_from_slice(&i32::MAX.to_be_bytes());
        assert!(connection.room().capacity() < 1 << 20);
        assert!(matches!(
            connection.next_answer().unwrap_err(),
            ConnectionError::Frame(FrameError::TooLong { .. })
        ));
    }

    #[test]
    fn answers_arrive_whole_however_they_are_cut() {
        let mut connection = connected();
        let response = MetadataResponse::default();
        let mut stream = Vec::new();
        for _ in 0..2 {
            let (id, _) = connection.request(&MetadataRequest::default()).unwrap();
            stream.extend(encode_response(id.0, 13, &response).unwrap().into_bytes());
        }
        let mut answers = 0;
        for byte in stream {
            connection.room().extend_from_slice(&[byte]);
            answers += usize::from(connection.next_answer().unwrap().is_some());
        }
        assert_eq!(answers, 2);
    }
}
