//! One request as its handler sees it, and what a handler gives back.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;

use corelog_engine::admission::{Action, Load, Principal, admit, authorize};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Answer, Response};
use corelog_wire::frame::{FrameError, HeaderError, encode_response};
use corelog_wire::{DecodeError, EncodedBytes};

use crate::counts::EndReason;
use crate::shard::{Reservation, Shard};

/// A request: who asks, in which version, and the core that serves it.
#[derive(Clone)]
pub(super) struct Call {
    /// The core that reads the connection.
    pub shard: Rc<Shard>,
    /// On whose behalf.
    pub principal: Rc<Principal>,
    /// Where from.
    pub peer: SocketAddr,
    /// Version of the request.
    pub version: i16,
    /// Comes back with the answer.
    pub correlation_id: i32,
}

/// What becomes of a request.
pub(super) enum Answered {
    /// This is sent. Bytes of it that are held by reference may be reserved.
    Frame(EncodedBytes, Option<Reservation>),
    /// Nothing is sent.
    Nothing,
    /// The connection ends.
    End(End),
}

/// An answer that is there or still to come. What came before it on its connection goes first.
pub(super) enum Pending {
    /// There.
    Ready(Answered),
    /// Still to come.
    Later(Pin<Box<dyn Future<Output = Answered>>>),
}

impl Pending {
    /// An answer still to come.
    pub fn later(answer: impl Future<Output = Answered> + 'static) -> Self {
        Self::Later(Box::pin(answer))
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it.
    Closed,
    /// It was silent for too long.
    Idle,
    /// A frame, once begun, did not come in time.
    SlowSender,
    /// The stream failed, or its reader was too slow.
    Stream(std::io::Error),
    /// A length that no frame may have.
    Frame(FrameError),
    /// A header that cannot be read or that nothing serves.
    Header(HeaderError),
    /// A body that is not what its header says.
    Body(DecodeError),
    /// An API that is not served.
    NotServed(&'static str),
    /// A frame larger than all memory that the core may use.
    TooLarge(usize),
    /// A publish without acknowledgement was refused: Kafka's only way to tell.
    RefusedWithoutAnswer(Rejection),
    /// An answer could not be written down.
    Unwritable(corelog_wire::EncodeError),
    /// The broker stops.
    Stopping,
}

impl End {
    /// Under which reason it is counted, if the client is to blame.
    pub fn reason(&self) -> Option<EndReason> {
        Some(match self {
            Self::Frame(_) | Self::TooLarge(_) => EndReason::TooLarge,
            Self::Header(HeaderError::Malformed(_)) => EndReason::Header,
            Self::Header(_) | Self::NotServed(_) => EndReason::Unsupported,
            Self::Body(_) => EndReason::Body,
            Self::SlowSender => EndReason::SlowSender,
            Self::RefusedWithoutAnswer(_) => EndReason::RefusedWithoutAnswer,
            Self::Closed | Self::Idle | Self::Stream(_) | Self::Unwritable(_) | Self::Stopping => {
                return None;
            }
        })
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Stream(error),
        }
    }
}

impl From<DecodeError> for End {
    fn from(error: DecodeError) -> Self {
        Self::Body(error)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the client closed it"),
            Self::Idle => f.write_str("it was idle for too long"),
            Self::SlowSender => f.write_str("a frame did not arrive in time"),
            Self::Stream(error) => write!(f, "the stream failed: {error}"),
            Self::Frame(error) => write!(f, "malformed: {error}"),
            Self::Header(error) => write!(f, "malformed or not supported: {error}"),
            Self::Body(error) => write!(f, "malformed: {error}"),
            Self::NotServed(api) => write!(f, "{api} is not served"),
            Self::TooLarge(bytes) => {
                write!(f, "a frame of {bytes} bytes is more than a core may hold")
            }
            Self::RefusedWithoutAnswer(rejection) => write!(
                f,
                "a publish without acknowledgement was refused: {rejection}"
            ),
            Self::Unwritable(error) => write!(f, "an answer could not be written down: {error}"),
            Self::Stopping => f.write_str("the broker stops"),
        }
    }
}

impl Call {
    /// The answer, written in the version of the request.
    pub fn answer<R: corelog_wire::Response>(&self, response: &R) -> Answered {
        self.answer_holding(response, None)
    }

    /// The same, holding a reservation until it is sent.
    pub fn answer_holding<R: corelog_wire::Response>(
        &self,
        response: &R,
        held: Option<Reservation>,
    ) -> Answered {
        match encode_response(self.correlation_id, self.version, response) {
            Ok(encoded) => Answered::Frame(encoded, held),
            Err(error) => {
                tracing::warn!(%error, version = self.version, "an answer could not be written down");
                Answered::End(End::Unwritable(error))
            }
        }
    }

    /// An answer that is there already.
    pub fn ready<R: corelog_wire::Response>(&self, response: &R) -> Pending {
        Pending::Ready(self.answer(response))
    }

    /// The tenant of whoever asks.
    pub fn tenant(&self) -> &str {
        &self.principal.tenant
    }

    /// Whether whoever asks may do this.
    ///
    /// # Errors
    /// The refusal.
    pub fn authorize(&self, action: Action<'_>) -> Result<(), Rejection> {
        authorize(&self.principal, action)
    }

    /// Whether there is room for this now.
    ///
    /// # Errors
    /// The refusal.
    pub fn admit(&self, load: Load) -> Result<(), Rejection> {
        admit(self.shard.disk_level(), load)
    }
}

/// An answer of the kind that was asked for. One of another kind would be a fault of the engine;
/// the asker finds the owner anew.
pub(super) fn expect<T>(
    answer: Answer,
    read: impl FnOnce(Response) -> Option<T>,
) -> Result<T, Rejection> {
    answer.and_then(|response| read(response).ok_or(Rejection::NotLeader))
}
