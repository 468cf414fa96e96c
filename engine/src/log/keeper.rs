//! When the state file is written, and what waits for it.
//!
//! Invariants:
//! 1. One write of the state file is in flight at a time.
//! 2. Any change takes the clean mark away; only [`StateKeeper::mark_clean`] sets it.
//! 3. The log's files are changed only while [`StateKeeper::allows_changes`]: the state on disk is not
//!    clean, and the version that the change depends on is durable.

use alloc::vec::Vec;

use super::state::{DurableState, SLOT_BYTES};
use crate::identity::{LeaderEpoch, Offset};

/// What of the state is known to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DurableFacts {
    pub clean: bool,
    pub promised: LeaderEpoch,
    pub start: Offset,
    pub checkpoint: Offset,
    pub checkpoint_segment: Offset,
}

impl DurableFacts {
    fn of(state: &DurableState) -> Self {
        Self {
            clean: state.clean,
            promised: state.promised,
            start: state.start,
            checkpoint: state.checkpoint.offset,
            checkpoint_segment: state.checkpoint.segment,
        }
    }
}

#[derive(Debug)]
struct Flight {
    version: u64,
    facts: DurableFacts,
}

/// A write of one slot.
#[derive(Debug)]
pub(super) struct SlotWrite {
    pub position: u64,
    pub bytes: Vec<u8>,
    /// Only the second copy of what is durable already.
    pub is_echo: bool,
}

/// The state in memory, and how far the disk has followed.
#[derive(Debug)]
pub(super) struct StateKeeper {
    state: DurableState,
    version: u64,
    durable_version: u64,
    echoed_version: u64,
    gate: u64,
    in_flight: Option<Flight>,
    durable: DurableFacts,
    sequence: u64,
    slot: usize,
    /// Whether the file is there.
    pub exists: bool,
}

impl StateKeeper {
    /// The state of a log that has no file yet.
    pub fn fresh(state: DurableState) -> Self {
        Self {
            state,
            version: 1,
            durable_version: 0,
            echoed_version: 0,
            gate: 1,
            in_flight: None,
            durable: DurableFacts::default(),
            sequence: 0,
            slot: 1,
            exists: false,
        }
    }

    /// The state as it was read from `slot`.
    pub fn read(state: DurableState, sequence: u64, slot: usize) -> Self {
        Self {
            durable: DurableFacts::of(&state),
            version: 1,
            durable_version: 1,
            // A clean log was left with both slots alike; of another nobody knows.
            echoed_version: u64::from(state.clean),
            state,
            gate: 0,
            in_flight: None,
            sequence,
            slot,
            exists: true,
        }
    }

    /// The state as it is to be.
    pub fn state(&self) -> &DurableState {
        &self.state
    }

    /// What of it is durable.
    pub fn durable(&self) -> &DurableFacts {
        &self.durable
    }

    /// Changes the state and returns the version that carries the change.
    pub fn change(&mut self, change: impl FnOnce(&mut DurableState)) -> u64 {
        self.state.clean = false;
        change(&mut self.state);
        self.version += 1;
        self.version
    }

    /// Sets the clean mark, as the last change before a stop.
    pub fn mark_clean(&mut self) -> u64 {
        self.state.clean = true;
        self.version += 1;
        self.version
    }

    /// Nothing of the log is changed on disk before this version is durable.
    pub fn gate(&mut self, version: u64) {
        self.gate = self.gate.max(version);
    }

    /// Takes the clean mark away, if it is there, before anything else changes.
    pub fn begin_changes(&mut self) {
        if self.state.clean {
            let version = self.change(|_| {});
            self.gate(version);
        }
    }

    /// Whether the log's files may be changed now.
    pub fn allows_changes(&self) -> bool {
        self.exists && self.durable_version >= self.gate && !self.durable.clean && !self.state.clean
    }

    /// Whether `version` is durable.
    pub fn is_durable(&self, version: u64) -> bool {
        self.durable_version >= version
    }

    /// Whether nothing is to be written.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none()
            && self.durable_version == self.version
            && self.echoed_version == self.version
    }

    /// The next write of a slot, if one is due. It carries the durable end of this moment.
    pub fn plan(&mut self, durable_end: Offset) -> Option<SlotWrite> {
        if !self.exists || self.in_flight.is_some() {
            return None;
        }
        let is_echo = self.durable_version == self.version;
        if is_echo && self.echoed_version == self.version {
            return None;
        }
        self.state.durable_end = durable_end;
        self.sequence += 1;
        self.slot = 1 - self.slot;
        self.in_flight = Some(Flight {
            version: self.version,
            facts: DurableFacts::of(&self.state),
        });
        Some(SlotWrite {
            position: (self.slot * SLOT_BYTES) as u64,
            bytes: self.state.encode(self.sequence),
            is_echo,
        })
    }

    /// The write in flight is durable.
    pub fn written(&mut self) {
        if let Some(flight) = self.in_flight.take() {
            if self.durable_version == flight.version {
                self.echoed_version = flight.version;
            }
            self.durable_version = flight.version;
            self.durable = flight.facts;
        }
    }
}
