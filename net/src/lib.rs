//! corelog net.
