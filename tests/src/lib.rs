//! What proves corelog, from outside of it: the tools that its tests stand on.

pub mod broker;
pub mod house;
pub mod http;
pub mod message_api;
pub mod package_index;
pub mod power_cut;
pub mod scratch;
