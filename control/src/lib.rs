//! corelog control.
