//! Every kind of fault that one broker can have is a named test: rows of `docs/FAULTS.md` name tests that
//! are there.

use super::Violation;
use super::source::{SourceFile, code_only};

const FAULTS: &str = "docs/FAULTS.md";

/// The sections whose rows name their tests.
const SECTIONS: [&str; 3] = [
    "Log and disk",
    "Offsets, time, retention",
    "Producers, groups, input",
];

/// Starts of a cell that names no test: what needs several brokers, and what is built later, with the reason.
const EXCUSES: [&str; 2] = ["cluster", "later: "];

/// Rows that name no test, or one that does not exist.
///
/// The last cell of a row is a list of `path` `name` pairs in backticks, or begins with one of [`EXCUSES`].
pub fn faults_are_named_tests(files: &[SourceFile]) -> Vec<Violation> {
    let Some(document) = files.iter().find(|file| file.path == FAULTS) else {
        return vec![Violation::new(FAULTS, 1, "the list of faults is missing")];
    };
    let mut violations = Vec::new();
    let mut seen = 0;
    let mut is_inside = false;
    for (index, line) in document.text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            is_inside = SECTIONS.contains(&title.trim());
            seen += usize::from(is_inside);
        }
        if !is_inside || !line.starts_with('|') {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let is_head = cells[0] == "kind" || cells[0].starts_with("---");
        if is_head {
            continue;
        }
        let found = match cells[..] {
            [_, _, _, tests] => wrong_with(tests, files),
            _ => Some(format!("{} cells where 4 belong", cells.len())),
        };
        if let Some(reason) = found {
            let reason = format!("\"{}\": {reason}", cells[0]);
            violations.push(Violation::new(FAULTS, index + 1, reason));
        }
    }
    if seen < SECTIONS.len() {
        let reason = format!("{seen} of the sections {SECTIONS:?}");
        violations.push(Violation::new(FAULTS, 1, reason));
    }
    violations
}

/// What is wrong with a cell of tests.
fn wrong_with(tests: &str, files: &[SourceFile]) -> Option<String> {
    if EXCUSES.iter().any(|excuse| tests.starts_with(excuse)) {
        return None;
    }
    let spans: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
    if spans.is_empty() || !spans.len().is_multiple_of(2) {
        return Some("names no test as `path` `name`".to_owned());
    }
    spans.chunks(2).find_map(|pair| {
        let (path, name) = (pair[0], pair[1]);
        let Some(file) = files.iter().find(|file| file.path == path) else {
            return Some(format!("`{path}` does not exist"));
        };
        (!has_test(&file.text, name)).then(|| format!("`{path}` has no test `{name}`"))
    })
}

/// Whether a function of that name stands there under `#[test]`.
fn has_test(text: &str, name: &str) -> bool {
    let code = code_only(text);
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let declares = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        let above = lines[..at].iter().rev();
        line.starts_with(&declares)
            && above
                .take_while(|line| line.starts_with("#[") || line.is_empty())
                .any(|line| *line == "#[test]")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(rows: &str) -> [SourceFile; 2] {
        let head = "| kind | smallest case | right outcome | tests |\n|---|---|---|---|\n";
        let sections = SECTIONS.map(|title| format!("## {title}\n\n{head}"));
        let text = format!(
            "{}## Replication\n\n| a | b | c |\n",
            sections.concat() + rows
        );
        let source = "#[test]\n#[ignore = \"slow\"]\nfn it_holds() {}\nfn no_test() {}\n";
        [
            SourceFile::new(FAULTS, &text),
            SourceFile::new("tests/tests/it.rs", source),
        ]
    }

    #[test]
    fn a_named_test_must_be_there_and_be_a_test() {
        let rows = "| a | b | c | `tests/tests/it.rs` `it_holds` |\n| a | b | c | cluster |\n\
                    | a | b | c | later: with the cluster's calibration |\n";
        assert_eq!(faults_are_named_tests(&files(rows)), []);
        for cell in [
            "",
            "none yet",
            "later",
            "`tests/tests/it.rs`",
            "`tests/tests/it.rs` `no_test`",
            "`tests/tests/it.rs` `it_hold`",
            "`tests/tests/gone.rs` `it_holds`",
            "`tests/tests/it.rs` `it_holds`, `tests/tests/it.rs` `gone`",
        ] {
            let found = faults_are_named_tests(&files(&format!("| a | b | c | {cell} |\n")));
            assert_eq!(found.len(), 1, "{cell}: {found:?}");
        }
        assert_eq!(
            faults_are_named_tests(&files("| a | b | c |\n")).len(),
            1,
            "a row without the cell"
        );
    }

    #[test]
    fn a_section_that_is_gone_is_caught() {
        assert!(!faults_are_named_tests(&[]).is_empty());
        assert!(
            !faults_are_named_tests(&[SourceFile::new(FAULTS, "## Log and disk\n")]).is_empty()
        );
    }
}
