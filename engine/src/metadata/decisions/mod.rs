//! Which records a wish becomes: pure functions over the image, all checks before any record.
//!
//! The control plane runs them one after another on the newest image; `apply` checks again what
//! another decision may have changed meanwhile.

mod brokers;
mod placement;
mod topics;

pub use brokers::{
    BrokerSettings, BrokerStart, begin_log, describe_broker, grant_producer_ids, start_broker,
};
pub use topics::{
    TopicDefaults, TopicPlan, TopicRequest, add_partitions, change_topic_settings, create_topic,
    delete_topic, ensure_offsets_topic,
};

/// Sixteen bytes that nobody else has: from the operating system where the broker runs, from the
/// seed where it is simulated.
pub type RandomId<'a> = &'a mut dyn FnMut() -> [u8; 16];
