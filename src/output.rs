//! What a command prints: text for people, JSON for programs, progress only on a terminal.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

/// Where a command's results go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    /// Text, or JSON.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether programs read it.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Prints one result: the object on a line of its own, or the text.
    pub fn result<T: Serialize>(
        self,
        object: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        if self.json {
            let line = serde_json::to_string(object)
                .map_err(|error| Failure::new(format!("result cannot be written: {error}")))?;
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{}", text(object))?;
        }
        out.flush()?;
        Ok(())
    }

    /// Says something beside the results, on the standard error.
    pub fn note(self, text: &str) {
        if !self.json {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Prints why the command failed and gives its exit code.
    pub fn failure(self, failure: &Failure) -> ExitCode {
        if failure.code != 0 {
            let line = if self.json {
                serde_json::json!({ "error": failure.message }).to_string()
            } else {
                format!("corelog: {}", failure.message)
            };
            let _ = writeln!(io::stderr(), "{line}");
        }
        ExitCode::from(failure.code)
    }

    /// A bar that shows how much of `total` is done, or a spinner without one. Hidden unless the standard
    /// error is a terminal and people read the results.
    pub fn progress(self, total: Option<u64>, unit: Unit) -> ProgressBar {
        if self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let template = match (total, unit) {
            (Some(_), Unit::Bytes) => {
                "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}"
            }
            (Some(_), Unit::Steps) => "{wide_bar} {pos}/{len} {eta} {msg}",
            (None, Unit::Bytes) => "{spinner} {bytes} {bytes_per_sec} {msg}",
            (None, Unit::Steps) => "{spinner} {human_pos} {per_sec} {msg}",
        };
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar
    }
}

/// What a progress bar counts.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    Bytes,
    Steps,
}
