//! The native client: publish to and consume from corelog, or any broker that speaks Kafka's wire.
//!
//! - [`core`] is pure: requests to bytes, bytes to answers, records to batches, positions to fetches, with
//!   time as an argument. It can stand on any transport.
//! - [`transport`] (feature `tokio`) puts it on sockets: [`transport::Client`], [`transport::Producer`] and
//!   [`transport::Consumer`].
//!
//! A record's outcome is never guessed: it is [`Yes`](core::Outcome::Yes), [`No`](core::Outcome::No) or
//! [`Unknown`](core::Outcome::Unknown). Memory is bounded: a full producer refuses or lets wait.

pub mod core;
#[cfg(feature = "tokio")]
pub mod transport;

/// Record batches, for those who read or build them themselves.
pub use corelog_batch as batch;
/// The wire protocol, for requests that this client has no name for.
pub use corelog_wire as wire;
