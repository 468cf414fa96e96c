//! Frames and their headers: a 4-byte length, a header, a body.

use core::fmt;

use bytes::{Buf, Bytes, BytesMut};

use crate::api::{API_VERSIONS, AnyResponse, ApiKey, Message, Request, Response};
use crate::error::{DecodeError, EncodeError};
use crate::error_code::ErrorCode;
use crate::limits::DecodeLimits;
use crate::messages::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use crate::primitives::{EncodedBytes, FRAME_LENGTH_BYTES, Reader, WireString, Writer};

/// Why a frame length was refused. The connection has lost its place and must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A length below zero.
    NegativeLength(i32),
    /// A length above the caller's limit.
    TooLong {
        /// Bytes claimed.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NegativeLength(length) => write!(f, "frame length {length} is negative"),
            Self::TooLong { bytes, bytes_max } => {
                write!(f, "frame of {bytes} bytes, limit {bytes_max}")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// The length of the frame that follows `prefix`, checked before anything is reserved for it.
///
/// # Errors
/// A length that is negative or above `frame_bytes_max`.
pub fn frame_length(
    prefix: [u8; FRAME_LENGTH_BYTES],
    frame_bytes_max: usize,
) -> Result<usize, FrameError> {
    let length = i32::from_be_bytes(prefix);
    let bytes = usize::try_from(length).map_err(|_| FrameError::NegativeLength(length))?;
    if bytes > frame_bytes_max {
        return Err(FrameError::TooLong {
            bytes,
            bytes_max: frame_bytes_max,
        });
    }
    Ok(bytes)
}

/// Takes the first whole frame, without its length, off `received`; `None` until it has arrived.
///
/// # Errors
/// As [`frame_length`].
pub fn take_frame(
    received: &mut BytesMut,
    frame_bytes_max: usize,
) -> Result<Option<Bytes>, FrameError> {
    let Some(&prefix) = received.first_chunk::<FRAME_LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = frame_length(prefix, frame_bytes_max)?;
    if received.len() - FRAME_LENGTH_BYTES < length {
        return Ok(None);
    }
    received.advance(FRAME_LENGTH_BYTES);
    Ok(Some(received.split_to(length).freeze()))
}

/// Who asks for what, in which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API.
    pub api: ApiKey,
    /// Its version; always one that is built.
    pub version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<WireString>,
}

/// Why a request header was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// Bytes that are no header.
    Malformed(DecodeError),
    /// An API that is not built. It has no answer: the connection is closed.
    UnknownApiKey {
        /// Numeric API key.
        api_key: i16,
        /// From the header.
        correlation_id: i32,
    },
    /// A version that is not built. ApiVersions is answered by
    /// [`encode_unsupported_api_versions`]; for others the connection is closed.
    UnsupportedVersion {
        /// The API.
        api: ApiKey,
        /// The version asked for.
        version: i16,
        /// From the header.
        correlation_id: i32,
    },
}

impl From<DecodeError> for HeaderError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "request header: {error}"),
            Self::UnknownApiKey { api_key, .. } => write!(f, "api {api_key} is not known"),
            Self::UnsupportedVersion { api, version, .. } => {
                write!(f, "{} version {version} is not supported", api.name())
            }
        }
    }
}

impl std::error::Error for HeaderError {}

impl RequestHeader {
    /// Reads the header and leaves `reader` at the body. What lies behind the fixed fields of an
    /// unsupported version is not looked at.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn decode(reader: &mut Reader) -> Result<Self, HeaderError> {
        let api_key = reader.read_i16()?;
        let version = reader.read_i16()?;
        let correlation_id = reader.read_i32()?;
        let api = ApiKey::from_code(api_key).ok_or(HeaderError::UnknownApiKey {
            api_key,
            correlation_id,
        })?;
        if !api.is_built(version) {
            return Err(HeaderError::UnsupportedVersion {
                api,
                version,
                correlation_id,
            });
        }
        // The client id keeps its 16-bit length in header version 2, so that any broker can read
        // the header of an ApiVersions request.
        let client_id = reader.read_nullable_string(false)?;
        if api.request_header_version(version) >= 2 {
            reader.read_tagged_fields(|_, _| Ok(false))?;
        }
        Ok(Self {
            api,
            version,
            correlation_id,
            client_id,
        })
    }

    /// Writes the header.
    pub fn encode(&self, writer: &mut Writer) {
        writer.write_i16(self.api.code());
        writer.write_i16(self.version);
        writer.write_i32(self.correlation_id);
        let client_id = self.client_id.as_ref().map(|id| &id.as_bytes()[..]);
        writer.write_nullable_string(client_id, false);
        if self.api.request_header_version(self.version) >= 2 {
            writer.write_uvarint(0);
        }
    }
}

/// Splits a frame into the header and the body.
///
/// # Errors
/// See [`HeaderError`].
pub fn decode_request_header(
    frame: Bytes,
    limits: DecodeLimits,
) -> Result<(RequestHeader, Bytes), HeaderError> {
    let mut reader = Reader::new(frame, limits);
    let header = RequestHeader::decode(&mut reader)?;
    Ok((header, reader.into_rest()))
}

/// A whole request frame with its length, ready to be sent.
///
/// # Errors
/// A version that is not built, or a request that this version cannot carry.
pub fn encode_request<R: Request>(
    correlation_id: i32,
    client_id: Option<WireString>,
    version: i16,
    request: &R,
) -> Result<EncodedBytes, EncodeError> {
    let mut writer = Writer::frame();
    let header = RequestHeader {
        api: R::API,
        version,
        correlation_id,
        client_id,
    };
    header.encode(&mut writer);
    request.write_body(&mut writer, version);
    writer.finish()
}

/// A whole response frame with its length, ready to be sent. Record batches are chunks of their own
/// and are not copied.
///
/// # Errors
/// A version that is not built, or a response that this version cannot carry.
pub fn encode_response<R: Response>(
    correlation_id: i32,
    version: i16,
    response: &R,
) -> Result<EncodedBytes, EncodeError> {
    let mut writer = Writer::frame();
    write_response_header(&mut writer, correlation_id, R::API, version);
    response.write_body(&mut writer, version);
    writer.finish()
}

/// As [`encode_response`], for a response of any kind.
///
/// # Errors
/// As [`encode_response`].
pub fn encode_any_response(
    correlation_id: i32,
    version: i16,
    response: &AnyResponse,
) -> Result<EncodedBytes, EncodeError> {
    let mut writer = Writer::frame();
    write_response_header(&mut writer, correlation_id, response.api(), version);
    response.write_body(&mut writer, version);
    writer.finish()
}

/// Writes the header of a response.
pub fn write_response_header(writer: &mut Writer, correlation_id: i32, api: ApiKey, version: i16) {
    writer.write_i32(correlation_id);
    if api.response_header_version(version) >= 1 {
        writer.write_uvarint(0);
    }
}

/// The correlation id of a response frame, which says to which request, and so to which version,
/// it belongs.
///
/// # Errors
/// A frame shorter than its header.
pub fn response_correlation_id(frame: &Bytes) -> Result<i32, DecodeError> {
    Reader::new(frame.clone(), DecodeLimits::RESPONSE).read_i32()
}

/// Reads a response frame to a request of type `R` sent in `version`.
///
/// # Errors
/// As [`Message::decode`].
pub fn decode_response<R: Request>(
    frame: Bytes,
    version: i16,
    limits: DecodeLimits,
) -> Result<(i32, R::Response), DecodeError> {
    let mut reader = Reader::new(frame, limits);
    let correlation_id = reader.read_i32()?;
    if R::API.response_header_version(version) >= 1 {
        reader.read_tagged_fields(|_, _| Ok(false))?;
    }
    let response = R::Response::read_body(&mut reader, version)?;
    reader.finish()?;
    Ok((correlation_id, response))
}

/// Reads the answer to an ApiVersions request sent in `version`. A broker that does not serve that
/// version answers in version 0 with UNSUPPORTED_VERSION and the range that it serves (KIP-511).
///
/// # Errors
/// As [`Message::decode`].
pub fn decode_api_versions_response(
    frame: Bytes,
    version: i16,
    limits: DecodeLimits,
) -> Result<(i32, ApiVersionsResponse), DecodeError> {
    let mut start = Reader::new(frame.clone(), limits);
    start.read_i32()?;
    let answered = match ErrorCode(start.read_i16()?) {
        ErrorCode::UNSUPPORTED_VERSION => 0,
        _ => version,
    };
    decode_response::<ApiVersionsRequest>(frame, answered, limits)
}

/// The answer to an ApiVersions request of a version that is not built: version 0 with
/// UNSUPPORTED_VERSION and the range of ApiVersions itself (KIP-511).
///
/// # Errors
/// None in practice; the type is that of all encoding.
pub fn encode_unsupported_api_versions(correlation_id: i32) -> Result<EncodedBytes, EncodeError> {
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION,
        ..ApiVersionsResponse::advertising(|api| api == ApiKey::ApiVersions)
    };
    encode_response(correlation_id, 0, &response)
}

impl ApiVersionsResponse {
    /// An answer that lists the APIs for which `is_served` holds. A broker that has not built what
    /// stands behind an API leaves it out.
    pub fn advertising(is_served: impl Fn(ApiKey) -> bool) -> Self {
        let api_keys = API_VERSIONS
            .iter()
            .filter(|range| is_served(range.api))
            .map(|range| ApiVersion {
                api_key: range.api.code(),
                min_version: range.advertised_min,
                max_version: range.max,
            })
            .collect();
        Self {
            api_keys,
            ..Self::default()
        }
    }
}
