//! Seeds that have found something, each with what it was. A seed stands for what it found only as long
//! as the plan made from it ([`super::plan`]) stays as it is.

/// A seed and what it found.
pub const KNOWN_SEEDS: &[(u64, &str)] = &[
    (
        610,
        "readers were told a log start that was not durable: after a crash it went back",
    ),
    (
        4940,
        "a stop took a file of the checkpoint it replaced for its own, and named a producer snapshot \
         that a crash then left unwritten",
    ),
];
