//! The pure core: bytes in, bytes out, time as an argument.
//!
//! Nothing here opens a socket, reads a clock, spawns or waits. A transport feeds each state machine with
//! what happened and does what it asks for; tests feed the same machines from a script.

mod connection;
mod consumer;
mod group;
mod metadata;
mod prepared;
mod producer;
mod versions;

pub use connection::{
    Answer, Connection, ConnectionError, ConnectionSettings, FRAME_BYTES_MAX, RequestId,
};
pub use consumer::{
    ConsumedBatch, ConsumedRecords, ConsumerCore, ConsumerSettings, FetchError, FetchId,
    FetchToSend, StartAt,
};
pub use group::{
    Assignment, GroupAction, GroupError, GroupMember, GroupSettings, Subscription, TopicPartitions,
    assign_ranges,
};
pub use metadata::{BrokerAddress, Metadata, PartitionMetadata, TopicMetadata};
pub use prepared::{PreparedBatch, Stamp};
pub use producer::{
    BatchOutcome, Outcome, ProduceToSend, ProducerCore, ProducerSettings, PublishFailure,
    PublishId, PublishRefusal, RecordToPublish, SendId,
};
pub use versions::ServedVersions;
