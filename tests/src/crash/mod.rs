//! Load on a broker that dies, and the check of what it kept.
//!
//! [`load::Load`] publishes, reads and commits on threads of its own, through both faces, over any number of
//! restarts; [`ledger::Ledger`] remembers what the broker acknowledged and showed; [`check::check`] reads
//! everything back and names what is missing, changed, doubled or halved.

pub mod check;
pub mod ledger;
pub mod load;

/// The topic of the load.
pub const TOPIC: &str = "crashes";
/// Its partitions.
pub const PARTITIONS: i32 = 4;
/// The group that commits.
pub const GROUP: &str = "committer";
