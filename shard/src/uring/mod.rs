//! The I/O edge: the only place that names the reactor library.
//!
//! Everything a core does to the world outside goes through here: threads pinned to CPUs, tasks,
//! timers and clocks ([`core`], [`clock`], [`placement`]), direct disk I/O ([`mod@file`],
//! [`directory`], [`buffer`]), messages between cores and to the support thread ([`channel`]) and
//! TCP ([`tcp`], [`stream`], [`http`]). No type of the reactor library leaves this folder, so that another
//! reactor can replace it here and nowhere else.
//!
//! Invariants:
//! 1. A disk operation that was once submitted runs to its end with its buffer and its file alive,
//!    also when the task that asked for it is dropped ([`core::run_to_end`]).
//! 2. A core thread ends only after the last such operation ended.
//! 3. No task stays runnable for ever: streams and receivers that never have to wait give the
//!    reactor a turn after a bounded amount of work ([`core::next_turn`]), since the reactor looks
//!    for wake-ups from other cores only when its run queue is empty or its preempt timer fires.
//! 4. A core that has work in flight is woken from outside at least once in each tick, so that a
//!    wake-up missed by the reactor costs one tick at most ([`tick`]).

pub mod buffer;
pub mod channel;
pub mod clock;
pub mod core;
pub mod directory;
pub mod file;
pub mod http;
mod interrupts;
pub mod placement;
pub mod stream;
pub mod tcp;
pub mod tick;
#[cfg(test)]
mod tests;

pub use buffer::{BLOCK_BYTES, DirectBuffer, ReadBuffer};
pub use core::{
    CoreHandle, CoreOptions, Task, next_turn, run_core, sleep, spawn_background, spawn_local,
    timeout, yield_if_needed,
};
pub use file::{DirectFile, WriteOrder};
pub use placement::{CorePlacement, check_locked_memory, place_cores};
pub use stream::Stream;
pub use tcp::{Accepted, Connector, Listener, SocketOptions};
