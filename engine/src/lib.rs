//! Every decision of a corelog broker, as pure synchronous state.
//!
//! The crate is `no_std`: it has no clock, no file, no socket, no thread, no randomness and no
//! runtime. Time, random ids and byte buffers come in as arguments; what is to be done leaves as
//! [`effect::Effect`]s. The simulator drives exactly the structs that run in production.
//!
//! Modules stand in the order of their dependencies.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod limits;
pub mod identity;
pub mod time;
pub mod disk;
pub mod corruption;
pub mod rejection;
pub mod admission;
pub mod publish;
pub mod metadata;
pub mod producer;
pub mod log;
pub mod request;
pub mod group;
pub mod effect;
pub mod replica;
pub mod core_state;
