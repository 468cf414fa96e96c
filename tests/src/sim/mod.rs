//! The simulator of one broker: the engine's own core state on a virtual clock, a virtual disk and a
//! stand-in for the control plane, with clients, crashes and faults that a seed decides.
//!
//! A run has two phases. In the first one things go wrong: the process is killed between any two
//! effects, writes are torn and reordered, requests fail, the disk fills up, clocks step, topics go and
//! come back; in the media mode stored bits turn over and writes are lost or land elsewhere. In the
//! second nothing goes wrong any more, and everything must come right in bounded time.
//!
//! The rules stand at the head of [`ledger`] and [`group_ledger`]. A partition that a media fault has
//! touched may lose, refuse or stop; it never serves what was not published to it. All others keep
//! every promise.
//!
//! A seed replays exactly: the same seed gives the same [`Outcome::trace_hash`].

mod asked;
pub mod batches;
pub mod chance;
mod clients;
pub mod control_plane;
mod describe;
pub mod disk;
mod ending;
pub mod faults;
pub mod group_ledger;
pub mod known_seeds;
pub mod ledger;
mod membership;
pub mod plan;
mod producing;
mod reading;
pub mod teeth;
pub mod trace;
pub mod violation;
pub mod world;

use chance::Chance;
use plan::{Options, Plan};
use trace::Trace;
use violation::Violation;
use world::World;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Steps of the core.
    pub events: u64,
    /// Equal for equal runs.
    pub trace_hash: u64,
    /// The rule that did not hold.
    pub violation: Option<Violation>,
    /// What happened, line by line, if that was asked for.
    pub trace: Vec<String>,
}

/// Runs one seed.
///
/// # Panics
/// If the engine does: an assertion of its own is a rule like any other.
pub fn run(seed: u64, options: &Options) -> Outcome {
    let mut chance = Chance::new(seed);
    let plan = Plan::new(options, &mut chance);
    let mut world = World::new(plan, chance, Trace::new(options.keeps_trace));
    let violation = world.run().and_then(|()| world.end()).err();
    Outcome {
        events: world.trace.events(),
        trace_hash: world.trace.hash(),
        violation,
        trace: world.trace.lines().to_vec(),
    }
}
