//! Seeds that have found something, each with what it was.

/// A seed and what it found.
pub const KNOWN_SEEDS: &[(u64, &str)] = &[];
