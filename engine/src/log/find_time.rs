//! Look-ups by time stamp: the index says which stretches of log may hold the record, and those are
//! scanned, compressed batches opened where their largest stamp says so. Equal to a plain scan of all
//! records from log start on. The scan of one stretch, in turns, is in `look_through`.

use alloc::vec::Vec;

use bytes::Bytes;

use super::Log;
use super::index::{SparseIndex, Stretch};
use super::look_through::{LookThrough, Needs};
use super::operations::DiskQueue;
use super::progress::{FoundRecord, LogFault, LogProgress, ReadId, Started, TimeQuery};
use super::segment::Index;
use super::task::{Planned, Task};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::{Offset, Position};

/// A look-up on its way.
#[derive(Debug)]
pub(super) struct LookUp {
    id: ReadId,
    search: Search,
    base: Offset,
    step: Step,
}

/// What is looked for, and the best so far.
#[derive(Debug)]
pub(super) struct Search {
    query: TimeQuery,
    start: Offset,
    pub up_to: Offset,
    best: Option<FoundRecord>,
}

#[derive(Debug)]
enum Step {
    /// Waits for the index of `base`.
    Index,
    /// Stretches still to be scanned, the next one last. `is_read`: the index came from a file.
    Stretches { left: Vec<Stretch>, is_read: bool },
    /// One of them is being scanned.
    Stretch(LookThrough),
    /// It waits for bytes or for its next turn.
    Waiting(LookThrough),
}

impl LookUp {
    pub(super) fn holds(&self, base: Offset) -> bool {
        // It goes on to later segments and never back.
        self.base <= base
    }

    /// What it waited for is there.
    fn go_on(&mut self, take: impl FnOnce(&mut LookThrough)) {
        match core::mem::replace(&mut self.step, Step::Index) {
            Step::Waiting(mut through) => {
                take(&mut through);
                self.step = Step::Stretch(through);
            }
            other => self.step = other,
        }
    }

    pub(super) fn waits_for_index(&self) -> Option<Offset> {
        matches!(self.step, Step::Index).then_some(self.base)
    }
}

impl Search {
    /// Whether what begins at `offset` and has no larger stamp than this can still hold the answer.
    pub fn may_hold(&self, offset: Offset, max_timestamp_ms: i64) -> bool {
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

    /// Takes a record if it is inside and better than what there was.
    pub fn offer(&mut self, record: FoundRecord) {
        let is_inside = record.offset >= self.start && record.offset < self.up_to;
        if is_inside && self.is_better(&record) {
            self.best = Some(record);
        }
    }

    /// Whether nothing later can be better.
    pub fn is_answered(&self) -> bool {
        self.best.is_some() && self.query != TimeQuery::Largest
    }

    /// The answer, once everything was looked at.
    fn answer(&self) -> Option<FoundRecord> {
        self.best
            .filter(|best| self.query != TimeQuery::Largest || best.timestamp_ms >= 0)
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
            search: Search {
                query,
                start,
                up_to,
                best: None,
            },
            base,
            step: Step::Index,
        });
        self.advance(queue);
        Started::Pending(id)
    }

    /// Takes every look-up as far as it gets without the disk, and no further than its turn goes.
    pub(super) fn advance_look_ups(&mut self, queue: &mut DiskQueue<'_>) {
        let mut at = 0;
        while at < self.look_ups.len() {
            let mut look_up = self.look_ups.swap_remove(at);
            if let Some(result) = self.advance_look_up(&mut look_up, queue) {
                self.outbox.push(LogProgress::Found(look_up.id, result));
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

    /// What the look-up came to, if it is done.
    fn advance_look_up(
        &mut self,
        look_up: &mut LookUp,
        queue: &mut DiskQueue<'_>,
    ) -> Option<Result<Option<FoundRecord>, LogFault>> {
        loop {
            let LookUp {
                id,
                search,
                base,
                step,
            } = look_up;
            match core::mem::replace(step, Step::Index) {
                Step::Waiting(through) => {
                    *step = Step::Waiting(through);
                    return None;
                }
                Step::Index => {
                    let Some(segment) = self.segment(*base) else {
                        return Some(Ok(search.answer()));
                    };
                    let is_needless = segment
                        .max_timestamp_ms
                        .is_some_and(|stamp| !search.may_hold(*base, stamp));
                    let (left, is_read) = match &segment.index {
                        _ if is_needless => (Vec::new(), false),
                        Index::Whole { index, is_read } => (search.candidates(index), *is_read),
                        _ => return None,
                    };
                    *step = Step::Stretches { left, is_read };
                }
                Step::Stretches { mut left, is_read } => {
                    while left
                        .last()
                        .is_some_and(|next| !search.may_hold(next.offset, next.max_timestamp_ms))
                    {
                        left.pop();
                    }
                    match left.pop().filter(|_| !search.is_answered()) {
                        Some(stretch) => {
                            let end = self.durable_end_of(*base).0;
                            *step = Step::Stretch(LookThrough::new(left, is_read, stretch, end));
                        }
                        None => match self.segment_after(*base, search.up_to) {
                            Some(next) if !search.is_answered() => *base = next,
                            _ => return Some(Ok(search.answer())),
                        },
                    }
                }
                Step::Stretch(mut through) => {
                    let (task, request) = match through.turn(search) {
                        Needs::Nothing => {
                            *step = Step::Stretches {
                                left: through.left,
                                is_read: through.is_read,
                            };
                            continue;
                        }
                        Needs::Fault { position, .. }
                            if through.is_read && position == through.stretch.position =>
                        {
                            // The index file lied; the segment itself is asked, from its start.
                            if let Some(segment) = self.segment_mut(*base) {
                                segment.index = Index::OnDisk;
                                segment.rebuild = true;
                            }
                            continue;
                        }
                        Needs::Fault { position, what } => {
                            let file = LogFile::Segment(*base);
                            return Some(Err(self.corruption(file, position, what)));
                        }
                        Needs::Bytes { position, length } => {
                            let request = DiskRequest::Read {
                                file: self.file(LogFile::Segment(*base)),
                                position: Position(position),
                                length_bytes: length,
                            };
                            (Task::LookUp { id: *id, length }, request)
                        }
                        Needs::Turn => {
                            let partition = self.partition;
                            (
                                Task::LookUpTurn { id: *id },
                                DiskRequest::Turn { partition },
                            )
                        }
                    };
                    let background = matches!(task, Task::LookUpTurn { .. });
                    self.submit(
                        queue,
                        Planned {
                            request,
                            task,
                            background,
                        },
                    );
                    *step = Step::Waiting(through);
                    return None;
                }
            }
        }
    }

    fn segment_after(&self, base: Offset, up_to: Offset) -> Option<Offset> {
        let at = self.segment_at(base)?;
        let next = self.segments.get(at + 1)?.base;
        (next < up_to).then_some(next)
    }

    /// Bytes of a stretch for a look-up.
    pub(super) fn on_look_up(
        &mut self,
        id: ReadId,
        bytes: Result<Bytes, DiskError>,
        length: usize,
    ) {
        let Some(at) = self.look_ups.iter().position(|one| one.id == id) else {
            return;
        };
        let base = self.look_ups[at].base;
        let fault = match bytes {
            Ok(bytes) => return self.look_ups[at].go_on(|through| through.take(bytes, length)),
            Err(DiskError::Missing) => {
                self.corruption(LogFile::Segment(base), 0, "the segment is missing")
            }
            Err(error) => LogFault::Disk(error),
        };
        self.look_ups.swap_remove(at);
        self.outbox.push(LogProgress::Found(id, Err(fault)));
    }

    /// It is a look-up's turn again.
    pub(super) fn on_look_up_turn(&mut self, id: ReadId) {
        if let Some(look_up) = self.look_ups.iter_mut().find(|one| one.id == id) {
            look_up.go_on(|_| {});
        }
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
