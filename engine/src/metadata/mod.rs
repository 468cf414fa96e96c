//! The metadata image: what the cluster knows, as a pure `apply` of ordered records.
//!
//! [`record`] says what can change, [`image`] what is known,
//! [`apply`] how a record changes it, [`decisions`] which records a
//! wish becomes. The control plane orders and stores records; every core keeps its own [`Image`],
//! fed by the same records in the same order.
//!
//! Invariants:
//!
//! 1. `apply` looks at the image and the record only, so equal records in equal order give equal
//!    images everywhere.
//! 2. A record that `apply` refuses has changed nothing.
//! 3. A topic's id, and a replica's log id, are never given twice; a topic made again under an old
//!    name shares nothing with its predecessor.
//! 4. A partition's leader epoch never falls, and rises whenever the process that leads changes.
//! 5. The leader is one of the replicas, and each replica's core exists on its broker.
//! 6. A producer id is granted once.

pub mod apply;
mod codec;
pub mod decisions;
pub mod identity_file;
pub mod image;
pub mod record;
mod refusal;
pub mod settings;
pub mod snapshot;
pub mod topic_name;

#[cfg(test)]
mod tests;

pub use apply::{Applied, ApplyError};
pub use codec::{DecodeError, STRING_BYTES_MAX};
pub use image::{Broker, Image, Partition, Replica, Topic, group_partition};
pub use record::{
    Address, BrokerRegistered, MetadataRecord, PartitionAssignment, ReplicaAssignment, TopicCreated,
};
pub use refusal::Refusal;
pub use settings::{
    KeyOrder, Partitioner, SettingDescription, SettingKind, TimestampType, TopicSettings,
};

/// The tenant of everybody, until credentials name others.
pub const DEFAULT_TENANT: &str = "default";

/// The internal topic that keeps groups and their offsets, under Kafka's name for it.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The newest cluster feature level that this build knows.
pub const FEATURE_LEVEL_SUPPORTED: u16 = 1;

/// Most replicas of one partition.
pub const REPLICAS_MAX: usize = 7;

/// Most cores of one broker.
pub const CORES_MAX: u16 = 1_024;

/// Most brokers of one cluster.
pub const BROKERS_MAX: usize = 1_000;

/// Most addresses of one broker.
pub const BROKER_ADDRESSES_MAX: usize = 16;
