//! The core on tokio's sockets.
//!
//! Nothing is spawned: a [`Producer`] or [`Consumer`] works while one of its futures is polled, on whatever
//! tokio runtime polls it. There is no channel and no lock, and every buffer is bounded by the settings of
//! the core beneath.

mod administration;
mod client;
mod clock;
mod connection;
mod consumer;
mod error;
mod producer;

pub use administration::{NewTopic, PartitionOffsets};
pub use client::{Client, ClientSettings};
pub use clock::{Clock, wall_ms};
pub use connection::BrokerConnection;
pub use consumer::Consumer;
pub use error::ClientError;
pub use producer::Producer;
