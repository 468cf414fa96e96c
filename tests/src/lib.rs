//! What proves corelog, from outside of it: the tools that its tests stand on.

pub mod broker;
pub mod crash;
pub mod fuzz;
pub mod house;
pub mod http;
pub mod kafka;
pub mod message_api;
pub mod package_index;
pub mod power_cut;
pub mod scratch;
pub mod sim;
