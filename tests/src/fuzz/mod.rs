//! Hostile bytes: an in-process fuzzer for every decoder and for the recovery of logs.
//!
//! A [`Target`] is a plain function of bytes that panics when a rule is broken, with valid samples to start from.
//! The fuzzer needs no special compiler: it changes samples in the ways that break decoders (flipped bits, lengths
//! of 0, -1 and 2^31-1, cuts, splices, repeats), makes checksums right again where the target knows how, and keeps
//! an input that led to an outcome not seen before ([`note`]). `tests/fuzz` gives the same targets to libFuzzer, for
//! long runs by hand.
//!
//! Rules that hold for every target:
//! 1. It returns: no panic, whatever the bytes.
//! 2. No allocation is larger than its input explains, and no execution holds more than a fixed amount of memory
//!    ([`Allowance`]).

// The repairs of all targets share one type, which some need to grow the bytes.
#![allow(clippy::ptr_arg)]

pub mod allocation;
mod batches;
mod consumer_groups;
mod http;
mod kafka;
mod log_disk;
mod log_scenarios;
mod metadata;
pub mod mutate;
mod recovery;
pub mod run;

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// What is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// For the command line.
    pub name: &'static str,
    /// Panics when a rule is broken.
    pub run: fn(&[u8]),
    /// Valid inputs.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Pieces that valid inputs are made of.
    pub dictionary: &'static [&'static [u8]],
    /// Makes lengths and checksums right again after a change, so that what lies behind them is reached.
    pub repair: Option<fn(&mut Vec<u8>)>,
    /// What an execution may take.
    pub allowance: Allowance,
}

/// How much memory an execution may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Most bytes held at once.
    pub held_bytes_max: usize,
    /// Largest allocation, apart from the share of the input.
    pub allocation_bytes_max: usize,
    /// That share: so many bytes for each byte of input.
    pub allocation_per_input_byte: usize,
}

impl Allowance {
    /// Unless a target says why it needs more.
    pub const DEFAULT: Self = Self {
        held_bytes_max: 64 << 20,
        allocation_bytes_max: 1 << 20,
        allocation_per_input_byte: 16,
    };

    /// The largest allocation for an input of this length.
    pub fn allocation_bytes_for(&self, input_bytes: usize) -> usize {
        let share = input_bytes.saturating_mul(self.allocation_per_input_byte);
        self.allocation_bytes_max.saturating_add(share)
    }
}

/// All targets, in the order in which they run.
pub fn targets() -> Vec<Target> {
    let groups: [&[Target]; 6] = [
        batches::TARGETS,
        kafka::TARGETS,
        http::TARGETS,
        metadata::TARGETS,
        consumer_groups::TARGETS,
        recovery::TARGETS,
    ];
    groups.concat()
}

/// The target of a name.
pub fn target_named(name: &str) -> Option<Target> {
    targets().into_iter().find(|target| target.name == name)
}

thread_local! {
    static OUTCOME: Cell<u64> = const { Cell::new(0) };
}

/// Tells the fuzzer how far the present execution came; inputs with a new combination of notes are kept and changed
/// further. Without a compiler's help this is what guides it, so targets note kinds of errors and depths, not values.
pub fn note(what: impl Hash) {
    let mut hasher = DefaultHasher::new();
    OUTCOME.get().hash(&mut hasher);
    what.hash(&mut hasher);
    OUTCOME.set(hasher.finish());
}

/// Notes the kind of a result's error, or that there is none.
fn note_result<T, E>(result: &Result<T, E>) {
    note(result.as_ref().err().map(std::mem::discriminant));
}

/// The notes since the last call.
fn take_outcome() -> u64 {
    OUTCOME.replace(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_every_sample_passes() {
        let mut names = BTreeSet::new();
        for target in targets() {
            assert!(names.insert(target.name), "{} stands twice", target.name);
            let samples = (target.samples)();
            assert!(!samples.is_empty(), "{} has no sample", target.name);
            for mut sample in samples {
                (target.run)(&sample);
                if let Some(repair) = target.repair {
                    let before = sample.clone();
                    repair(&mut sample);
                    assert_eq!(sample, before, "{}: a sample was not whole", target.name);
                }
            }
        }
    }
}
