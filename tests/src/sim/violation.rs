//! A rule that did not hold.

use std::fmt;

/// Which rule, and how it was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule, in the words of the checker that keeps it.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
}

impl Violation {
    /// `rule` did not hold: `what` was seen.
    pub fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

impl std::error::Error for Violation {}

/// The outcome of a check.
pub type Checked = Result<(), Violation>;

/// Holds `rule` against what was seen.
///
/// # Errors
/// If it does not hold.
pub fn hold(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(Violation::new(rule, what()))
    }
}
