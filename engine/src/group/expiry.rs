//! What goes with time: sessions, ids that were given and never used, and, much later, the
//! offsets of groups that have long been empty.
//!
//! Sessions go by the monotonic clock. How long a group has been empty must survive restarts, so
//! it goes by the wall's clock, read so that a step of it can only delay: stamps never lie before
//! where the monotonic clock says the wall should be, ages are never taken after it, and nothing
//! expires in the first while after a start.

use alloc::string::String;
use alloc::vec::Vec;

use super::outstanding::{Change, Turn};
use super::rebalance::Phase;
use super::record::Key;
use super::settings::{REMOVALS_PER_APPEND_MAX, RETRY_MS};
use super::state::Group;
use crate::identity::PartitionId;
use crate::time::{Monotonic, Now};

/// Shortest and longest pause between two looks at what may have expired, in milliseconds.
const LOOK_MS: core::ops::RangeInclusive<u64> = 1_000..=3_600_000;

/// The clock of retention.
#[derive(Debug)]
pub(super) struct ExpiryClock {
    start: Now,
}

impl ExpiryClock {
    pub(super) fn new(start: Now) -> Self {
        Self { start }
    }

    /// The wall's time if it had not been stepped since the start.
    fn unstepped_ms(&self, now: Now) -> u64 {
        let elapsed_ms = now.monotonic.ms_since(self.start.monotonic);
        self.start.wall.0.saturating_add(elapsed_ms)
    }

    /// The time to stamp what happens now.
    pub(super) fn stamp_ms(&self, now: Now) -> u64 {
        now.wall.0.max(self.unstepped_ms(now))
    }

    /// How long ago a stamp was made, at least.
    fn age_ms(&self, stamp_ms: u64, now: Now) -> u64 {
        now.wall
            .0
            .min(self.unstepped_ms(now))
            .saturating_sub(stamp_ms)
    }

    /// How much longer ages are not judged, in milliseconds.
    fn unsettled_ms(&self, turn: &Turn<'_>) -> u64 {
        let elapsed_ms = turn.now.monotonic.ms_since(self.start.monotonic);
        turn.settings.first_expiry_ms.saturating_sub(elapsed_ms)
    }
}

impl Group {
    /// Serves whatever is due. Runs before anything else is decided about the group, so that no
    /// decision rests on a timer having been served in time.
    pub(super) fn wake(&mut self, turn: &mut Turn<'_>) {
        self.expire_members(turn);
        self.expire_given_ids(turn);
        self.end_join_phase_if_due(turn);
        self.end_sync_phase_if_due(turn);
        if self.empty_unrecorded {
            self.record_empty(turn);
        }
        self.expire_offsets(turn);
        self.plan_wakes(turn);
    }

    /// Removes members whose sessions have ended.
    fn expire_members(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let ended: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| !member.is_waiting() && member.session_ends <= now)
            .map(|(id, _)| id.clone())
            .collect();
        if ended.is_empty() {
            return;
        }
        for id in &ended {
            self.remove_member(id, turn);
        }
        self.members_changed(turn);
    }

    /// Removes given member ids that nobody came back with.
    fn expire_given_ids(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let given = self.given_ids.iter();
        let ended: Vec<String> = given
            .filter(|(_, ends)| **ends <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &ended {
            self.take_given_id(id);
        }
        if !ended.is_empty() {
            self.complete_join_if_all_came(turn);
        }
    }

    /// Removes offsets of a group that has long been empty, and the group when none are left.
    fn expire_offsets(&mut self, turn: &mut Turn<'_>) {
        if self.phase != Phase::Empty
            || self.is_busy()
            || !self.given_ids.is_empty()
            || turn.clock.unsettled_ms(turn) > 0
        {
            return;
        }
        let due = self.offsets_due(turn);
        if due.len() == self.offsets.len() {
            let emptied_long_ago = self.empty_since_ms.is_none_or(|since| {
                turn.clock.age_ms(since, turn.now) >= turn.settings.empty_group_ms
            });
            if emptied_long_ago && (self.is_on_record() || !due.is_empty()) {
                self.delete(None, turn);
            }
        } else if !due.is_empty() {
            let records = due
                .iter()
                .map(|partition| Key::Offset(String::from(&*self.id), *partition).alone())
                .collect();
            let change = Change::OffsetsRemoved {
                id: None,
                partitions: due,
                answer: Vec::new(),
            };
            let _retried_later = self.append(records, None, change, turn);
        }
    }

    /// Offsets whose time is over, at most as many as one append removes unless it is all.
    fn offsets_due(&self, turn: &Turn<'_>) -> Vec<PartitionId> {
        let is_due = |commit_time_ms: u64| {
            let last_used_ms = commit_time_ms.max(self.empty_since_ms.unwrap_or(0));
            turn.clock.age_ms(last_used_ms, turn.now) >= turn.settings.offsets_retention_ms
        };
        let mut due: Vec<PartitionId> = self
            .offsets
            .iter()
            .filter(|(_, stored)| is_due(stored.commit_time_ms))
            .map(|(partition, _)| *partition)
            .collect();
        if due.len() < self.offsets.len() {
            due.truncate(REMOVALS_PER_APPEND_MAX);
        }
        due
    }

    /// How long until something of an empty group may expire, in milliseconds.
    fn next_expiry_ms(&self, turn: &Turn<'_>) -> u64 {
        let since = self.empty_since_ms.unwrap_or(0);
        let oldest = self
            .offsets
            .values()
            .map(|stored| stored.commit_time_ms)
            .min();
        let (stamp, keep_ms) = match oldest {
            Some(commit) => (commit.max(since), turn.settings.offsets_retention_ms),
            None => (since, turn.settings.empty_group_ms),
        };
        let rest = keep_ms.saturating_sub(turn.clock.age_ms(stamp, turn.now));
        let unsettled = turn.clock.unsettled_ms(turn);
        rest.max(unsettled).clamp(*LOOK_MS.start(), *LOOK_MS.end())
    }

    /// Works out anew when the group must be looked at next.
    pub(super) fn plan_wakes(&mut self, turn: &Turn<'_>) {
        let now = turn.now.monotonic;
        let sessions = self
            .members
            .values()
            .filter(|member| !member.is_waiting())
            .map(|member| member.session_ends);
        let mut next: Option<Monotonic> = sessions.chain(self.given_ids.values().copied()).min();
        let mut consider = |at: Monotonic| next = Some(next.map_or(at, |next| next.min(at)));
        match self.phase {
            Phase::Empty => consider(now.plus_ms(self.next_expiry_ms(turn))),
            Phase::PreparingRebalance { deadline, .. } => consider(deadline),
            Phase::CompletingRebalance | Phase::Stable => {}
        }
        if let Some(deadline) = self.sync_deadline {
            consider(deadline);
        }
        if self.empty_unrecorded {
            consider(now.plus_ms(RETRY_MS));
        }
        self.wanted_wake = next;
    }
}
