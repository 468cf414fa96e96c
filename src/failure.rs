//! Why a command did not succeed.

use std::fmt;
use std::io;

use corelog_client::transport::ClientError;

/// Exit code of a command that failed.
const CODE_FAILED: u8 = 1;
/// Exit code of a command line that makes no sense; clap's own.
const CODE_USAGE: u8 = 2;

/// What went wrong and what to do, in one line, and the exit code.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub code: u8,
}

impl Failure {
    /// The command failed.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: CODE_FAILED,
        }
    }

    /// The command line or the configuration makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: CODE_USAGE,
        }
    }

    /// Reading or writing `what` failed.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("{what}: {error}"))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::new(error.to_string())
    }
}

/// A pipe whose reader has gone ends the command quietly.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self {
                message: String::new(),
                code: 0,
            };
        }
        Self::io("standard output", &error)
    }
}
