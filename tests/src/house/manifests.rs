//! Rules over the manifests: who may know whom, pinned versions, lints.

use toml::{Table, Value};

use super::Violation;
use super::source::SourceFile;

/// Which of our crates each crate may know. `corelog-tests` may know all.
const DIRECTION: &[(&str, &[&str])] = &[
    ("corelog-batch", &[]),
    ("corelog-wire", &[]),
    ("corelog-engine", &["corelog-batch"]),
    (
        "corelog-net",
        &["corelog-batch", "corelog-wire", "corelog-engine"],
    ),
    ("corelog-control", &["corelog-engine"]),
    ("corelog-tuning", &["corelog-engine"]),
    ("corelog-client", &["corelog-batch", "corelog-wire"]),
    (
        "corelog-shard",
        &[
            "corelog-batch",
            "corelog-wire",
            "corelog-engine",
            "corelog-net",
            "corelog-control",
            "corelog-tuning",
        ],
    ),
    ("corelog", ALL),
    ("corelog-tests", ALL),
    ("corelog-fuzz", &["corelog-tests"]),
];

const ALL: &[&str] = &[
    "corelog-batch",
    "corelog-wire",
    "corelog-engine",
    "corelog-net",
    "corelog-control",
    "corelog-tuning",
    "corelog-client",
    "corelog-shard",
];

const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

fn manifests(files: &[SourceFile]) -> impl Iterator<Item = (&SourceFile, Table)> {
    files
        .iter()
        .filter(|file| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml"))
        .map(|file| (file, file.text.parse().unwrap_or_default()))
}

/// The line on which a key is set, 1 when it cannot be found.
fn line_of(text: &str, key: &str) -> usize {
    text.lines()
        .position(|line| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with([' ', '.', '=']))
        })
        .map_or(1, |index| index + 1)
}

/// Crates that know one which they may not know, and crates that the table does not have.
pub fn crates_know_only_those_below(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, manifest) in manifests(files) {
        let Some(name) = manifest
            .get("package")
            .and_then(|package| package.get("name"))
            .and_then(Value::as_str)
        else {
            continue;
        };
        let Some((_, known)) = DIRECTION.iter().find(|(one, _)| *one == name) else {
            let reason = format!("the crate `{name}` has no row in the table of directions");
            violations.push(Violation::new(&file.path, 1, reason));
            continue;
        };
        for section in SECTIONS {
            let table = manifest.get(section).and_then(Value::as_table);
            for dependency in table.into_iter().flat_map(Table::keys) {
                if dependency.starts_with("corelog") && !known.contains(&dependency.as_str()) {
                    let line = line_of(&file.text, dependency);
                    let reason = format!("`{name}` may not know `{dependency}`");
                    violations.push(Violation::new(&file.path, line, reason));
                }
            }
        }
    }
    violations
}

/// Names and values of the workspace's dependencies on other people's crates.
pub(super) fn foreign_dependencies(files: &[SourceFile]) -> Vec<(String, Value, usize)> {
    manifests(files)
        .filter(|(file, _)| file.path == "Cargo.toml")
        .flat_map(|(file, manifest)| {
            let table = manifest
                .get("workspace")
                .and_then(|workspace| workspace.get("dependencies"))
                .and_then(Value::as_table)
                .cloned()
                .unwrap_or_default();
            let text = file.text.clone();
            table
                .into_iter()
                .filter(|(_, value)| value.get("path").is_none())
                .map(move |(name, value)| {
                    let line = line_of(&text, &name);
                    (name, value, line)
                })
        })
        .collect()
}

/// Dependencies whose version is not pinned as `=x.y.z`.
pub fn versions_are_pinned(files: &[SourceFile]) -> Vec<Violation> {
    foreign_dependencies(files)
        .into_iter()
        .filter_map(|(name, value, line)| {
            let version = value
                .as_str()
                .or_else(|| value.get("version").and_then(Value::as_str))
                .unwrap_or_default();
            let pinned = version
                .strip_prefix('=')
                .is_some_and(|rest| rest.split('.').count() == 3);
            let reason = format!("`{name}` is not pinned as `=x.y.z` but \"{version}\"");
            (!pinned).then(|| Violation::new("Cargo.toml", line, reason))
        })
        .collect()
}

/// Crates that do not take the workspace's lints.
pub fn lints_are_inherited(files: &[SourceFile]) -> Vec<Violation> {
    manifests(files)
        .filter(|(_, manifest)| manifest.contains_key("package"))
        // One that is a workspace by itself has nobody to inherit from.
        .filter(|(file, manifest)| file.path == "Cargo.toml" || !manifest.contains_key("workspace"))
        .filter(|(_, manifest)| {
            let inherited = manifest
                .get("lints")
                .and_then(|lints| lints.get("workspace"))
                .and_then(Value::as_bool);
            inherited != Some(true)
        })
        .map(|(file, _)| Violation::new(&file.path, 1, "`[lints] workspace = true` is missing"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, rest: &str) -> [SourceFile; 1] {
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        [SourceFile::new("one/Cargo.toml", &text)]
    }

    #[test]
    fn upward_knowledge_is_caught_in_every_section() {
        for section in SECTIONS {
            let rest = format!("[{section}]\ncorelog-shard.workspace = true\n");
            let found = crates_know_only_those_below(&package("corelog-engine", &rest));
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].line, 4);
        }
        let down = "[dependencies]\ncorelog-batch.workspace = true\nbytes = \"1\"\n";
        assert!(crates_know_only_those_below(&package("corelog-engine", down)).is_empty());
        assert_eq!(
            crates_know_only_those_below(&package("corelog-new", "")).len(),
            1
        );
    }

    #[test]
    fn loose_version_is_caught() {
        let text = "[workspace.dependencies]\nloose = \"1\"\ntight = { version = \"=1.2.3\" }\nown = { path = \"x\" }\n";
        let found = versions_are_pinned(&[SourceFile::new("Cargo.toml", text)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn crate_without_the_lints_is_caught() {
        assert_eq!(lints_are_inherited(&package("corelog", "")).len(), 1);
        let good = package("corelog", "[lints]\nworkspace = true\n");
        assert!(lints_are_inherited(&good).is_empty());
    }
}
