//! One core of a broker, many times: the reactor loop, the disk, the connections, the channels
//! between cores. It performs what the engine decides and chooses nothing.
//!
//! Modules stand in the order of their dependencies.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod uring;
pub mod randomness;
pub mod data_directory;
pub mod disk;
pub mod disk_queue;
pub mod counts;
pub mod mesh;
pub mod support;
pub mod stop_signal;
pub mod shard;
pub mod kafka;
pub mod http;
pub mod broker;

pub mod tune_disk;

pub use broker::{Broker, BrokerError, BrokerOptions};
pub use tune_disk::tune_disk;
