//! Bytes to requests and back: Kafka messages, HTTP routes and bodies, configured sockets.
//!
//! Nothing here decides or runs anything: no task, no clock, no randomness. The shard reads and
//! writes; the engine decides.

pub mod http;
pub mod kafka;
pub mod socket;
