//! corelog client.
