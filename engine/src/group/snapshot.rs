//! Snapshots keep the offsets topic short: the state is written anew, in parts, and the log may
//! then begin where that began.
//!
//! The parts go out one at a time, each with what is on record when it is made, and ordinary
//! records fall between them. So a part may carry less than what the log already holds before it:
//! replay takes a copy only of what no ordinary record has touched since the snapshot began. Such
//! a copy is right, as nothing has changed since then; whatever was touched has a newer record.
//! What lies before the newest complete snapshot may be there in full, in part (segments go whole)
//! or not at all: the outcome is the same.
//!
//! Invariants:
//! 1. Parts are made after the opening record is committed, so each append that was asked for
//!    before it has had its outcome, and counts or does not.
//! 2. The log start moves only when the closing record is committed; until then, and after a
//!    restart in between, the log still begins at an earlier snapshot.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;

use super::outstanding::{Change, Turn};
use super::record::{Key, encode_generation};
use super::settings::RETRY_MS;
use super::state::Group;
use super::{GroupEffect, GroupRecord, Settings};
use crate::identity::{Generation, Offset, PartitionId};
use crate::rejection::Rejection;
use crate::time::Monotonic;

/// Where a snapshot stands.
#[derive(Debug, Default)]
enum Progress {
    #[default]
    Idle,
    /// The opening record has no outcome yet.
    Opening,
    /// Parts are being written.
    Writing { opened: Offset, cursor: Cursor },
    /// The closing record has no outcome yet.
    Closing { opened: Offset },
}

/// What the next part begins with.
#[derive(Clone, Debug)]
enum Cursor {
    /// This group (or the next after it), from its record on.
    Group(Bound<Arc<str>>),
    /// This group, with its offsets after this one.
    Offsets(Arc<str>, PartitionId),
    /// Nothing is left.
    End,
}

/// When snapshots are due, and how the one being written stands.
#[derive(Debug, Default)]
pub(super) struct SnapshotSchedule {
    progress: Progress,
    /// Bytes of ordinary records since the newest complete snapshot began.
    bytes_since: u64,
    /// The part of these that came before the newest opening record.
    bytes_before: u64,
    /// Bytes of copies since then.
    size: u64,
    last_size: u64,
    not_before: Monotonic,
}

impl SnapshotSchedule {
    /// Bytes of records since the newest complete snapshot began.
    pub(super) fn bytes_since(&self) -> u64 {
        self.bytes_since
    }

    /// Whether no snapshot is being written.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.progress, Progress::Idle)
    }

    /// When to begin a snapshot, if one is due and none is being written.
    pub(super) fn due(&self, settings: &Settings) -> Option<Monotonic> {
        let enough = settings.snapshot_interval_bytes.max(2 * self.last_size);
        let is_due = self.is_idle() && self.bytes_since >= enough;
        is_due.then_some(self.not_before)
    }

    fn opened(&mut self) {
        self.bytes_before = self.bytes_since;
        self.size = 0;
    }

    fn closed(&mut self) {
        self.bytes_since -= self.bytes_before.min(self.bytes_since);
        self.bytes_before = 0;
        self.last_size = self.size;
    }

    /// Counts a record of the log at a start.
    pub(super) fn replayed(&mut self, key: &Key, is_copy: bool, bytes: u64) {
        match key {
            Key::SnapshotBegin => self.opened(),
            Key::SnapshotEnd => self.closed(),
            _ if is_copy => self.size += bytes,
            _ => self.bytes_since += bytes,
        }
    }

    /// Counts ordinary records that were committed.
    pub(super) fn committed(&mut self, bytes: usize) {
        self.bytes_since += bytes as u64;
    }

    /// Opens a snapshot.
    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        let records = vec![Key::SnapshotBegin.alone()];
        match turn.append(None, records, None, Change::SnapshotBegin) {
            Ok(_) => self.progress = Progress::Opening,
            Err(_) => self.give_up(turn),
        }
    }

    /// The snapshot is not completed. Another begins later.
    fn give_up(&mut self, turn: &Turn<'_>) {
        self.progress = Progress::Idle;
        self.not_before = turn.now.monotonic.plus_ms(RETRY_MS);
    }

    /// The log's word on a record of the snapshot: goes on with it.
    pub(super) fn advance(
        &mut self,
        result: Result<Offset, Rejection>,
        bytes: usize,
        groups: &BTreeMap<Arc<str>, Group>,
        turn: &mut Turn<'_>,
    ) {
        let Ok(offset) = result else {
            return self.give_up(turn);
        };
        match core::mem::take(&mut self.progress) {
            Progress::Idle => {}
            Progress::Opening => {
                self.opened();
                let cursor = Cursor::Group(Bound::Unbounded);
                self.write(offset, cursor, groups, turn);
            }
            Progress::Writing { opened, cursor } => {
                self.size += bytes as u64;
                self.write(opened, cursor, groups, turn);
            }
            Progress::Closing { opened } => {
                self.closed();
                turn.out.push(GroupEffect::MoveLogStart(opened));
            }
        }
    }

    /// Writes the next part, or the closing record.
    fn write(
        &mut self,
        opened: Offset,
        cursor: Cursor,
        groups: &BTreeMap<Arc<str>, Group>,
        turn: &mut Turn<'_>,
    ) {
        let (records, cursor) = part(groups, cursor, turn.settings.snapshot_part_bytes);
        let result = if records.is_empty() {
            self.progress = Progress::Closing { opened };
            let closing = vec![Key::SnapshotEnd.alone()];
            turn.append(None, closing, None, Change::SnapshotEnd)
        } else {
            self.progress = Progress::Writing { opened, cursor };
            turn.append(None, records, None, Change::SnapshotPart)
        };
        if result.is_err() {
            self.give_up(turn);
        }
    }
}

/// The next part, of at least one record unless nothing is left, and where the one after begins.
fn part(
    groups: &BTreeMap<Arc<str>, Group>,
    cursor: Cursor,
    bytes_max: usize,
) -> (Vec<GroupRecord>, Cursor) {
    let mut part = Part {
        records: Vec::new(),
        bytes: 0,
        bytes_max,
    };
    let mut next = match cursor {
        Cursor::End => return (part.records, Cursor::End),
        Cursor::Group(from) => from,
        Cursor::Offsets(id, after) => {
            let group = groups.get(&id);
            if let Some(last) = group.and_then(|group| part.offsets(group, Bound::Excluded(after)))
            {
                return (part.records, Cursor::Offsets(id, last));
            }
            Bound::Excluded(id)
        }
    };
    loop {
        let from = next.as_ref().map(|id| &**id);
        let found = groups.range::<str, _>((from, Bound::Unbounded)).next();
        let Some((id, group)) = found else {
            return (part.records, Cursor::End);
        };
        let fits = part.group(group);
        if !fits {
            return (part.records, Cursor::Group(Bound::Included(id.clone())));
        }
        if let Some(last) = part.offsets(group, Bound::Unbounded) {
            return (part.records, Cursor::Offsets(id.clone(), last));
        }
        next = Bound::Excluded(id.clone());
    }
}

/// A part being filled.
struct Part {
    records: Vec<GroupRecord>,
    bytes: usize,
    bytes_max: usize,
}

impl Part {
    fn push(&mut self, record: GroupRecord) {
        self.bytes += record.bytes_len();
        self.records.push(record);
    }

    /// Adds a group's record and reserved generations, if they fit or nothing is there yet.
    fn group(&mut self, group: &Group) -> bool {
        let more = group.recorded.as_ref().map_or(0, bytes::Bytes::len) + 2 * group.id.len() + 64;
        if !self.records.is_empty() && self.bytes + more > self.bytes_max {
            return false;
        }
        let name = String::from(&*group.id);
        if let Some(recorded) = &group.recorded {
            self.push(Key::Group(name.clone()).copied(recorded.clone()));
        }
        if group.reserved > Generation::ZERO {
            self.push(Key::Generation(name).copied(encode_generation(group.reserved)));
        }
        true
    }

    /// Adds offsets of a group; the last one added, if they do not all fit.
    fn offsets(&mut self, group: &Group, from: Bound<PartitionId>) -> Option<PartitionId> {
        let mut last = None;
        for (partition, stored) in group.offsets.range((from, Bound::Unbounded)) {
            if last.is_some() && self.bytes >= self.bytes_max {
                return last;
            }
            let key = Key::Offset(String::from(&*group.id), *partition);
            self.push(key.copied(stored.encode()));
            last = Some(*partition);
        }
        None
    }
}
