//! corelog engine.
