//! The log on a disk in memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod crashes;
mod cutting;
pub(crate) mod disk;
mod faults;
mod formats;
mod harness;
pub(crate) mod random;
mod reading;
mod retention;
mod segments;
mod state_file;
mod time_queries;
mod writing;
