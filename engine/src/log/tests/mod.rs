//! The log on a disk in memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod crashes;
mod disk;
mod harness;
mod random;
