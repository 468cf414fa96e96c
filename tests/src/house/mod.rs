//! The rules of the house, as tables and functions from files to violations.
//!
//! `docs/DESIGN.md` says why each rule is there. A rule that must change is changed there and in its table here.

mod documents;
mod faults;
mod manifests;
pub mod rules;
pub mod source;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use source::SourceFile;

pub use documents::{dependencies_are_explained, paths_in_documents_exist};
pub use faults::faults_are_named_tests;
pub use manifests::{crates_know_only_those_below, lints_are_inherited, versions_are_pinned};

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl Violation {
    fn new(path: &str, line: usize, reason: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.reason)
    }
}

/// Every text file of the repository below `root`, in order of path.
///
/// # Errors
/// Whatever reading the tree answers. Files that are not UTF-8 are passed over.
pub fn read_repository(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    read_directory(root, "", &mut files)?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn read_directory(root: &Path, within: &str, files: &mut Vec<SourceFile>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(within))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if within.is_empty() {
            name.clone()
        } else {
            format!("{within}/{name}")
        };
        if entry.file_type()?.is_dir() {
            if !matches!(name.as_str(), ".git" | "target" | "__pycache__") {
                read_directory(root, &path, files)?;
            }
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(SourceFile { path, text });
        }
    }
    Ok(())
}
