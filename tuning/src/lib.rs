//! corelog tuning.
