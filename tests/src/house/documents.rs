//! Rules over the documents: paths that they name exist, and each dependency has its reason.

use std::collections::BTreeSet;

use super::Violation;
use super::manifests::foreign_dependencies;
use super::source::{SourceFile, has_word};

/// Where each dependency has its reason.
const DEPENDENCIES: &str = "docs/dependencies.md";

fn is_document(path: &str) -> bool {
    path == "README.md" || (path.starts_with("docs/") && path.ends_with(".md"))
}

/// Paths in backticks that start with a folder of the repository and do not exist.
pub fn paths_in_documents_exist(files: &[SourceFile]) -> Vec<Violation> {
    let mut known = BTreeSet::new();
    let mut top = BTreeSet::new();
    for file in files {
        known.insert(file.path.as_str());
        for (at, _) in file.path.match_indices('/') {
            known.insert(&file.path[..at]);
        }
        if let Some((folder, _)) = file.path.split_once('/') {
            top.insert(folder);
        }
    }
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| is_document(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            for span in line.split('`').skip(1).step_by(2) {
                let path = path_of(span);
                let folder = path.split('/').next().unwrap_or_default();
                let is_path = span.contains('/') && top.contains(folder);
                if is_path && !known.contains(path) {
                    let reason = format!("`{span}` does not exist");
                    violations.push(Violation::new(&file.path, index + 1, reason));
                }
            }
        }
    }
    violations
}

/// The path in a span, without what marks it as a folder, a line or the root.
fn path_of(span: &str) -> &str {
    if span.contains([' ', '*', '{', '<']) {
        return "";
    }
    let span = span.strip_prefix("./").unwrap_or(span);
    let span = span.split(':').next().unwrap_or(span);
    span.trim_end_matches('/')
}

/// Dependencies of the workspace that the document of dependencies does not name.
pub fn dependencies_are_explained(files: &[SourceFile]) -> Vec<Violation> {
    let document = files.iter().find(|file| file.path == DEPENDENCIES);
    let text = document.map_or("", |file| &file.text);
    foreign_dependencies(files)
        .into_iter()
        .filter(|(name, _, _)| !text.lines().any(|line| has_word(line, name)))
        .map(|(name, _, line)| {
            let reason = format!("{DEPENDENCIES} does not say why `{name}` is here");
            Violation::new("Cargo.toml", line, reason)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_path_in_a_document_is_caught() {
        let files = [
            SourceFile::new("engine/src/lib.rs", ""),
            SourceFile::new(
                "docs/a.md",
                "`engine/src/` and `engine/src/lib.rs:3` are,\n`engine/gone.rs` is not; `/v1/topics` and `a/b` are none\n",
            ),
        ];
        let found = paths_in_documents_exist(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].path.as_str(), found[0].line), ("docs/a.md", 2));
    }

    #[test]
    fn dependency_without_a_reason_is_caught() {
        let manifest = SourceFile::new(
            "Cargo.toml",
            "[workspace.dependencies]\ntold = \"=1.0.0\"\nuntold = \"=1.0.0\"\n",
        );
        let document = SourceFile::new(DEPENDENCIES, "- told: a reason\n");
        let found = dependencies_are_explained(&[manifest, document]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }
}
