//! corelog tests.
