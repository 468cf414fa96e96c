//! Why a call did not succeed, and what to do.

use std::fmt;
use std::io;

use corelog_wire::ErrorCode;

use crate::core::{ConnectionError, FetchError, GroupError, PublishRefusal};

/// Why a call did not succeed.
#[derive(Debug)]
pub enum ClientError {
    /// No connection could be opened.
    Connect {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// A connection broke.
    Broken {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// A connection was refused or closed for what was said on it.
    Protocol {
        /// The address.
        address: String,
        /// Why.
        error: ConnectionError,
    },
    /// No answer came in time.
    Timeout {
        /// The address.
        address: String,
        /// What was waited for.
        what: &'static str,
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// The broker refused.
    Refused {
        /// What was asked, with the name of its object.
        what: String,
        /// The broker's code.
        code: ErrorCode,
        /// The broker's words.
        message: Option<String>,
    },
    /// A partition has no leader, or none whose address is known, for longer than the timeout.
    NoLeader {
        /// The topic.
        topic: String,
    },
    /// The topic does not exist.
    NoTopic {
        /// The topic.
        topic: String,
    },
    /// A record was not taken.
    Publish(PublishRefusal),
    /// A partition cannot be read on.
    Fetch(FetchError),
    /// The group cannot be read on.
    Group(GroupError),
}

impl ClientError {
    /// A refusal, unless the code says that all is well.
    ///
    /// # Errors
    /// [`ClientError::Refused`].
    pub fn check(what: impl FnOnce() -> String, code: ErrorCode) -> Result<(), Self> {
        if code.is_none() {
            return Ok(());
        }
        Err(Self::Refused {
            what: what(),
            code,
            message: None,
        })
    }

    /// Whether another connection may fare better.
    pub fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. } | Self::Broken { .. } | Self::Timeout { .. }
        )
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { address, error } => write!(
                f,
                "no connection to {address}: {error}; is a broker running there? `corelog dev` starts one"
            ),
            Self::Broken { address, error } => write!(
                f,
                "the connection to {address} broke: {error}; look into the broker's log, then try again"
            ),
            Self::Protocol { address, error } => write!(f, "{address}: {error}"),
            Self::Timeout {
                address,
                what,
                waited_ms,
            } => write!(
                f,
                "no answer to {what} from {address} in {waited_ms} ms; is the broker overloaded or stopped?"
            ),
            Self::Refused {
                what,
                code,
                message,
            } => {
                write!(f, "{what}: {code}")?;
                if let Some(message) = message {
                    write!(f, ": {message}")?;
                }
                if let Some(remedy) = remedy(*code) {
                    write!(f, "; {remedy}")?;
                }
                Ok(())
            }
            Self::NoLeader { topic } => write!(
                f,
                "topic {topic} has no reachable leader; wait for its broker, or look at `topic describe`"
            ),
            Self::NoTopic { topic } => write!(
                f,
                "there is no topic {topic}; make it with `corelog topic create {topic}`"
            ),
            Self::Publish(error) => fmt::Display::fmt(error, f),
            Self::Fetch(error) => fmt::Display::fmt(error, f),
            Self::Group(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<PublishRefusal> for ClientError {
    fn from(error: PublishRefusal) -> Self {
        Self::Publish(error)
    }
}

impl From<FetchError> for ClientError {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}

impl From<GroupError> for ClientError {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

/// What to do about a code, where it does not say so by itself.
fn remedy(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::TOPIC_ALREADY_EXISTS => "choose another name, or use the topic that is there",
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => "`corelog topic list` shows what there is",
        ErrorCode::INVALID_TOPIC_EXCEPTION => {
            "names have 1 to 249 of the characters a-z A-Z 0-9 . _ -"
        }
        ErrorCode::INVALID_PARTITIONS => "give 1 or more partitions, within the broker's limit",
        ErrorCode::INVALID_REPLICATION_FACTOR => {
            "leave the replication factor to the broker, or start more brokers"
        }
        ErrorCode::NON_EMPTY_GROUP => "stop its members first",
        ErrorCode::GROUP_ID_NOT_FOUND => "`corelog group list` shows what there is",
        code if code.is_retriable() => "try again in a moment",
        _ => return None,
    })
}
