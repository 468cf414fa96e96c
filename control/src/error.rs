//! What can go wrong with the control plane.

use std::fmt;
use std::path::PathBuf;

use corelog_engine::metadata::{ApplyError, DecodeError, Refusal};

/// Why a proposal was not applied, or the control plane not opened.
#[derive(Debug)]
pub enum ControlError {
    /// The decision refused; nothing has changed.
    Refused(Refusal),
    /// The record does not fit the image; it has changed nothing.
    NotApplied(ApplyError),
    /// Another member's record came between: the record was refused where it was applied.
    Overtaken(String),
    /// Too many proposals are waiting already.
    Overloaded,
    /// A proposal is larger than one log entry may be, in bytes.
    TooLarge(usize),
    /// The control plane has stopped; what was proposed may or may not have been stored.
    Stopped(String),
    /// Another process has the metadata open.
    InUse(PathBuf),
    /// The metadata belongs to another broker.
    OtherBroker {
        /// The broker that opened it.
        broker: u64,
        /// The brokers it belongs to.
        members: Vec<u64>,
    },
    /// Stored bytes are not what they should be.
    Decode(DecodeError),
    /// The metadata store cannot be read or written.
    Storage(String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NotApplied(error) => error.fmt(f),
            Self::Overtaken(why) => write!(f, "overtaken by another change: {why}"),
            Self::Overloaded => f.write_str("too many metadata changes are waiting; try again"),
            Self::TooLarge(bytes) => {
                write!(f, "a metadata change of {bytes} bytes is above the limit")
            }
            Self::Stopped(why) => write!(f, "the control plane has stopped: {why}"),
            Self::InUse(path) => write!(
                f,
                "{} is open in another process: stop that broker first",
                path.display()
            ),
            Self::OtherBroker { broker, members } => write!(
                f,
                "the metadata belongs to broker {members:?}, this is broker {broker}: start it with \
                 its own data directory"
            ),
            Self::Decode(error) => error.fmt(f),
            Self::Storage(why) => write!(f, "the metadata store failed: {why}"),
        }
    }
}

impl std::error::Error for ControlError {}

impl From<DecodeError> for ControlError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}
