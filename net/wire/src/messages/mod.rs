//! The messages, in the notation of the module `definition`. Field names, order and version ranges
//! follow Apache Kafka's public protocol description; each structure says what it is for.

mod cluster;
mod fetch;
mod group;
mod group_administration;
mod group_offsets;
mod offsets;
mod produce;
mod sasl;
mod topics;

pub use cluster::*;
pub use fetch::*;
pub use group::*;
pub use group_administration::*;
pub use group_offsets::*;
pub use offsets::*;
pub use produce::*;
pub use sasl::*;
pub use topics::*;
