//! The Kafka face: what Kafka's messages ask the engine, and how the engine's answers read as
//! Kafka's messages. `docs/KAFKA.md` says what clients need of them.
//!
//! Nothing here waits, sends or stores; the shard does. One module for each family of calls.
//!
//! Invariants:
//! 1. Text and blobs that leave here for the engine are copies: no engine state keeps a frame alive.
//!    Record batches alone are slices of their frame.
//! 2. Answers come in the order of what was asked, whatever order the engine answered in.

pub mod cluster;
pub mod configs;
pub mod fetch;
pub mod fetch_session;
pub mod group_offsets;
pub mod groups;
pub mod offsets;
pub mod produce;
#[cfg(test)]
mod tests;
mod topic_key;
pub mod topics;

use corelog_engine::identity::BrokerId;
use corelog_engine::metadata::Image;
use corelog_engine::rejection::Rejection;
use corelog_wire::{ErrorCode, WireString};

pub use topic_key::{TopicKey, partition_of};

/// The listener that Kafka clients are told of.
pub const LISTENER: &str = "kafka";

/// The code of a refusal.
pub fn error_code(rejection: Rejection) -> ErrorCode {
    ErrorCode(rejection.kafka_code())
}

/// The code of an outcome.
pub fn outcome_code<T>(outcome: &Result<T, Rejection>) -> ErrorCode {
    match outcome {
        Ok(_) => ErrorCode::NONE,
        Err(rejection) => error_code(*rejection),
    }
}

/// A broker as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: i32,
    /// Host name or address.
    pub host: WireString,
    /// Port.
    pub port: i32,
    /// Its zone.
    pub rack: WireString,
}

impl Node {
    /// The broker of that id, if the cluster knows where clients reach it.
    pub fn of(image: &Image, id: BrokerId) -> Option<Self> {
        let broker = image.broker(id)?;
        let address = broker.address(LISTENER)?;
        Some(Self {
            id: node_id(id),
            host: WireString::from(address.host.as_str()),
            port: i32::from(address.port),
            rack: WireString::from(broker.zone.as_str()),
        })
    }
}

/// A broker's id on the wire.
pub fn node_id(broker: BrokerId) -> i32 {
    i32::try_from(broker.get()).unwrap_or(i32::MAX)
}
