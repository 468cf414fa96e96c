//! corelog wire.
