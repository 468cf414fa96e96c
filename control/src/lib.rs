//! The consensus group: puts metadata records in one order, keeps them durably, and hands them to
//! whoever follows.
//!
//! It decides nothing: what a record means stands in `corelog_engine::metadata`, and decisions are
//! functions from there that [`Control::decide`] runs one after another on the newest image. It runs
//! on the tokio runtime of a broker's support thread. Today the group has one member; the way of a
//! record is the one of a larger group: proposed, appended, durable, committed, applied.
//!
//! Invariants:
//!
//! 1. A record is answered once it is on stable storage and applied, not before.
//! 2. Decisions see every record that was proposed before them.
//! 3. A follower gets the records after its image in order, none twice and none left out; a slow one
//!    holds applying back.
//! 4. Log entries and votes are durable before consensus hears that they are stored.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod control;
mod database;
mod entry_bytes;
mod error;
mod log_storage;
mod network;
mod proposer;
mod state_machine;
mod types;

pub use control::{Control, ControlOptions, METADATA_FILE_NAME};
pub use error::ControlError;
pub use state_machine::{AppliedIndex, AppliedRecord, Following};
