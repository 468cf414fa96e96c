//! corelog batches.
