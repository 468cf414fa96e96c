//! Every target of `corelog_tests::fuzz`: each program is this file, and its name says which target it runs.
#![no_main]

use std::sync::LazyLock;

use corelog_tests::fuzz::{Target, target_named};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Option<Target>> = LazyLock::new(|| target_named(env!("CARGO_BIN_NAME")));

fuzz_target!(|bytes: &[u8]| {
    match &*TARGET {
        Some(target) => (target.run)(bytes),
        None => unreachable!("each program is named after a target"),
    }
});
