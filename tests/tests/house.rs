//! The repository keeps the rules of the house.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use corelog_tests::house::rules::{
    WORD_RULES, engine_is_no_std, files_are_short, names_say_what_they_do,
    unsafe_code_has_its_reason, words_stay_in_their_place,
};
use corelog_tests::house::source::SourceFile;
use corelog_tests::house::{
    Violation, crates_know_only_those_below, dependencies_are_explained, faults_are_named_tests,
    lints_are_inherited, paths_in_documents_exist, read_repository, versions_are_pinned,
};

/// A rule: its name, and the function that finds what breaks it.
type Rule = (&'static str, fn(&[SourceFile]) -> Vec<Violation>);

const RULES: &[Rule] = &[
    ("crates know only those below", crates_know_only_those_below),
    ("versions are pinned", versions_are_pinned),
    ("lints are inherited", lints_are_inherited),
    ("the engine is no_std", engine_is_no_std),
    ("words stay in their place", |files| {
        words_stay_in_their_place(files, WORD_RULES)
    }),
    ("names say what they do", names_say_what_they_do),
    ("files are short", files_are_short),
    ("unsafe code has its reason", unsafe_code_has_its_reason),
    ("paths in documents exist", paths_in_documents_exist),
    ("dependencies are explained", dependencies_are_explained),
    ("faults are named tests", faults_are_named_tests),
];

#[test]
fn the_rules_of_the_house_are_kept() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = read_repository(root).unwrap();
    assert!(files.len() > 10, "the repository was not found at {root:?}");
    let mut broken = 0;
    for (name, rule) in RULES {
        for violation in rule(&files) {
            eprintln!("{violation} [{name}]");
            broken += 1;
        }
    }
    assert_eq!(broken, 0, "{broken} places break the rules of the house");
}
