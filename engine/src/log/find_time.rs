//! Look-ups by time stamp: the index says which stretches of log may hold the record, and those are
//! scanned, compressed batches opened where their largest stamp says so. Equal to a plain scan of all
//! records from log start on.

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use corelog_batch::BatchHeader;

use super::Log;
use super::batch_check::{Checked, check_batch, next_offset};
use super::index::{SparseIndex, Stretch};
use super::operations::DiskQueue;
use super::progress::{FoundRecord, LogFault, LogProgress, ReadId, Started, TimeQuery};
use super::segment::Index;
use super::task::{Planned, Task};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::{LeaderEpoch, Offset, Position};
use crate::limits::BATCH_OPENED_BYTES_MAX;

/// A look-up on its way.
#[derive(Debug)]
pub(super) struct LookUp {
    id: ReadId,
    query: TimeQuery,
    start: Offset,
    up_to: Offset,
    base: Offset,
    best: Option<FoundRecord>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// Waits for the index of `base`.
    Index,
    /// Stretches still to be scanned, the next one last. `is_read`: the index came from a file.
    Stretches { left: Vec<Stretch>, is_read: bool },
    /// One of them is being read.
    Reading {
        left: Vec<Stretch>,
        is_read: bool,
        stretch: Stretch,
    },
}

impl LookUp {
    pub(super) fn holds(&self, base: Offset) -> bool {
        // It goes on to later segments and never back.
        self.base <= base
    }

    pub(super) fn waits_for_index(&self) -> Option<Offset> {
        matches!(self.step, Step::Index).then_some(self.base)
    }

    /// Whether what begins at `offset` and has no larger stamp than this can still hold the answer.
    fn may_hold(&self, offset: Offset, max_timestamp_ms: i64) -> bool {
        match (self.query, &self.best) {
            (TimeQuery::AtOrAfterMs(stamp), _) => max_timestamp_ms >= stamp,
            (TimeQuery::Largest, None) => true,
            (TimeQuery::Largest, Some(best)) if offset < best.offset => {
                max_timestamp_ms >= best.timestamp_ms
            }
            (TimeQuery::Largest, Some(best)) => max_timestamp_ms > best.timestamp_ms,
        }
    }

    fn is_better(&self, record: &FoundRecord) -> bool {
        match (self.query, &self.best) {
            (TimeQuery::AtOrAfterMs(stamp), None) => record.timestamp_ms >= stamp,
            (TimeQuery::AtOrAfterMs(_), Some(_)) => false,
            (TimeQuery::Largest, None) => true,
            (TimeQuery::Largest, Some(best)) => {
                record.timestamp_ms > best.timestamp_ms
                    || (record.timestamp_ms == best.timestamp_ms && record.offset < best.offset)
            }
        }
    }

    /// The stretches of the segment that may hold the answer, the first to be scanned last.
    fn candidates(&self, index: &SparseIndex) -> Vec<Stretch> {
        let first = index.floor(self.start).map_or(0, |first| first.position);
        let mut found: Vec<Stretch> = index
            .stretches()
            .filter(|stretch| {
                stretch.position >= first
                    && stretch.offset < self.up_to
                    && self.may_hold(stretch.offset, stretch.max_timestamp_ms)
            })
            .collect();
        if self.query == TimeQuery::Largest {
            // Stable: of equal stamps the lower offset first.
            found.sort_by_key(|stretch| core::cmp::Reverse(stretch.max_timestamp_ms));
        }
        found.reverse();
        found
    }

    /// Looks at the records of one batch.
    fn look_at(&mut self, header: &BatchHeader, batch: &Bytes) -> Result<(), String> {
        let base_offset = Offset::from_wire(header.base_offset).unwrap_or_default();
        if !self.may_hold(base_offset, header.max_timestamp_ms) {
            return Ok(());
        }
        let opened = corelog_batch::open(batch, BATCH_OPENED_BYTES_MAX)
            .map_err(|error| alloc::format!("a batch that cannot be opened: {error}"))?;
        let leader_epoch = LeaderEpoch::from_wire(header.leader_epoch).unwrap_or_default();
        for record in corelog_batch::record_refs(header, &opened) {
            let record =
                record.map_err(|error| alloc::format!("a record that cannot be read: {error}"))?;
            let found = FoundRecord {
                offset: Offset::from_wire(record.offset(header)).unwrap_or_default(),
                timestamp_ms: record.timestamp_ms(header),
                leader_epoch,
            };
            let is_inside = found.offset >= self.start && found.offset < self.up_to;
            if is_inside && self.is_better(&found) {
                self.best = Some(found);
                if self.query != TimeQuery::Largest {
                    break;
                }
            }
        }
        Ok(())
    }

    fn is_answered(&self) -> bool {
        self.best.is_some() && self.query != TimeQuery::Largest
    }
}

impl Log {
    /// Looks a record up by time stamp among those in [start, `up_to`); equal to a plain scan. A stamp
    /// of -1 means that a record has none, and is never found as the largest of all.
    ///
    /// # Panics
    /// If `up_to` is above [`Log::durable_end`].
    pub fn find_time(
        &mut self,
        query: TimeQuery,
        up_to: Offset,
        queue: &mut DiskQueue<'_>,
    ) -> Started<Option<FoundRecord>> {
        assert!(
            up_to <= self.durable_end(),
            "a look-up past the durable end"
        );
        let start = self.start();
        let Some(base) = self.segment_of(start).filter(|_| start < up_to) else {
            return Started::Ready(None);
        };
        self.next_read += 1;
        let id = ReadId(self.next_read);
        self.look_ups.push(LookUp {
            id,
            query,
            start,
            up_to,
            base,
            best: None,
            step: Step::Index,
        });
        self.advance(queue);
        Started::Pending(id)
    }

    /// Takes every look-up as far as it gets without the disk.
    pub(super) fn advance_look_ups(&mut self, queue: &mut DiskQueue<'_>) {
        let mut at = 0;
        while at < self.look_ups.len() {
            let mut look_up = self.look_ups.swap_remove(at);
            if self.advance_look_up(&mut look_up, queue) {
                let best = look_up
                    .best
                    .filter(|best| look_up.query != TimeQuery::Largest || best.timestamp_ms >= 0);
                self.outbox.push(LogProgress::Found(look_up.id, Ok(best)));
            } else {
                self.look_ups.push(look_up);
                let last = self.look_ups.len() - 1;
                self.look_ups.swap(at, last);
                at += 1;
            }
        }
        // Whoever needs an index now asks for it.
        self.load_index(queue);
    }

    /// Whether the look-up is done.
    fn advance_look_up(&mut self, look_up: &mut LookUp, queue: &mut DiskQueue<'_>) -> bool {
        loop {
            match &mut look_up.step {
                Step::Reading { .. } => return false,
                Step::Index => {
                    let Some(segment) = self.segment(look_up.base) else {
                        return true;
                    };
                    let is_needless = segment
                        .max_timestamp_ms
                        .is_some_and(|stamp| !look_up.may_hold(look_up.base, stamp));
                    let (left, is_read) = match &segment.index {
                        _ if is_needless => (Vec::new(), false),
                        Index::Whole { index, is_read } => (look_up.candidates(index), *is_read),
                        _ => return false,
                    };
                    look_up.step = Step::Stretches { left, is_read };
                }
                Step::Stretches { left, is_read } => {
                    let is_read = *is_read;
                    let mut left = core::mem::take(left);
                    while left
                        .last()
                        .is_some_and(|next| !look_up.may_hold(next.offset, next.max_timestamp_ms))
                    {
                        left.pop();
                    }
                    let Some(stretch) = left.pop() else {
                        match self.segment_after(look_up.base, look_up.up_to) {
                            Some(base) if !look_up.is_answered() => {
                                look_up.base = base;
                                look_up.step = Step::Index;
                                continue;
                            }
                            _ => return true,
                        }
                    };
                    let end = self.durable_end_of(look_up.base).0;
                    let end = stretch.end_position.unwrap_or(end).min(end);
                    let length = end.saturating_sub(stretch.position) as usize;
                    let request = DiskRequest::Read {
                        file: self.file(LogFile::Segment(look_up.base)),
                        position: Position(stretch.position),
                        length_bytes: length,
                    };
                    let id = look_up.id;
                    self.submit(
                        queue,
                        Planned::foreground(Task::LookUp { id, length }, request),
                    );
                    look_up.step = Step::Reading {
                        left,
                        is_read,
                        stretch,
                    };
                }
            }
        }
    }

    fn segment_after(&self, base: Offset, up_to: Offset) -> Option<Offset> {
        let at = self.segment_at(base)?;
        let next = self.segments.get(at + 1)?.base;
        (next < up_to).then_some(next)
    }

    /// A stretch for a look-up.
    pub(super) fn on_look_up(
        &mut self,
        id: ReadId,
        bytes: Result<Bytes, DiskError>,
        length: usize,
    ) {
        let Some(at) = self.look_ups.iter().position(|one| one.id == id) else {
            return;
        };
        let mut look_up = self.look_ups.swap_remove(at);
        let step = core::mem::replace(&mut look_up.step, Step::Index);
        let Step::Reading {
            left,
            is_read,
            stretch,
        } = step
        else {
            self.look_ups.push(look_up);
            return;
        };
        let base = look_up.base;
        let fault = match bytes {
            Err(DiskError::Missing) => {
                Some(self.corruption(LogFile::Segment(base), 0, "the segment is missing"))
            }
            Err(error) => Some(LogFault::Disk(error)),
            Ok(bytes) => match self.look_through(&mut look_up, stretch, &bytes, length) {
                Ok(()) => None,
                Err((0, _)) if is_read => {
                    // The index file lied; the segment itself is asked, from its start.
                    if let Some(segment) = self.segment_mut(base) {
                        segment.index = Index::OnDisk;
                        segment.rebuild = true;
                    }
                    self.look_ups.push(look_up);
                    return;
                }
                Err((at, what)) => Some(self.corruption(
                    LogFile::Segment(base),
                    stretch.position + at as u64,
                    what,
                )),
            },
        };
        if let Some(fault) = fault {
            self.outbox.push(LogProgress::Found(id, Err(fault)));
            return;
        }
        let left = if look_up.is_answered() {
            Vec::new()
        } else {
            left
        };
        look_up.step = Step::Stretches { left, is_read };
        self.look_ups.push(look_up);
    }

    /// Looks at every batch of a stretch; an error says where in it.
    fn look_through(
        &self,
        look_up: &mut LookUp,
        stretch: Stretch,
        bytes: &Bytes,
        length: usize,
    ) -> Result<(), (usize, String)> {
        let mut at = 0;
        let mut expected = stretch.offset;
        while at < length && expected < look_up.up_to && !look_up.is_answered() {
            let rest = bytes.slice(at.min(bytes.len())..);
            match check_batch(&rest, expected) {
                Checked::Batch(header, batch_bytes) => {
                    look_up
                        .look_at(&header, &rest.slice(..batch_bytes))
                        .map_err(|what| (at, what))?;
                    expected = next_offset(&header);
                    at += batch_bytes;
                }
                Checked::Short(_) => {
                    return Err((at, String::from("the segment ends within a batch")));
                }
                Checked::Bad(what) => return Err((at, what)),
            }
        }
        Ok(())
    }

    /// Every look-up that waits for the segment's index ends with this fault.
    pub(super) fn fail_look_ups_of(&mut self, base: Offset, fault: &LogFault) {
        let mut at = 0;
        while let Some(look_up) = self.look_ups.get(at) {
            if look_up.waits_for_index() == Some(base) {
                let look_up = self.look_ups.swap_remove(at);
                self.outbox
                    .push(LogProgress::Found(look_up.id, Err(fault.clone())));
            } else {
                at += 1;
            }
        }
    }
}
