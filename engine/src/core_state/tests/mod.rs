//! One core on disks in memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage;
mod groups;
mod harness;
mod look_ups;
mod producers;
