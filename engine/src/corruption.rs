//! Bad bytes found where good ones were written.

use alloc::string::String;
use core::fmt;

use crate::disk::FileId;
use crate::identity::Position;

/// Bytes that are not what they should be. It stops the replica they belong to, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub file: FileId,
    /// Where in it.
    pub position: Position,
    /// What was wrong, for the operator.
    pub what: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.file, self.position, self.what)
    }
}
