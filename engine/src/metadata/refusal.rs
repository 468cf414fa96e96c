//! A refusal with what exactly was wrong.

use alloc::string::String;
use core::fmt;

use crate::rejection::Rejection;

/// Why a decision was not taken, for the one who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Code, status and label.
    pub rejection: Rejection,
    /// What exactly was wrong, naming the key, topic or number.
    pub detail: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(rejection: Rejection, detail: impl Into<String>) -> Self {
        Self {
            rejection,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl core::error::Error for Refusal {}
