//! Cutting the log back, durably.
//!
//! Order: the batch is located; writes in flight land; the state says, durably, where the cut goes, with
//! the checkpoint and history cut; the segments above go; the segment of the cut is truncated; the state
//! says that the cut is over. A crash in between leaves the intent, which recovery finishes.

use alloc::vec::Vec;

use super::Log;
use super::index::SparseIndex;
use super::operations::DiskQueue;
use super::progress::{LogPhase, LogProgress};
use super::read::Cursor;
use super::segment::{Index, Segment};
use super::state::Checkpoint;
use super::tail::Tail;
use super::task::{Planned, Task};
use crate::disk::{DiskRequest, LogFile};
use crate::identity::Offset;

/// A cut under way.
#[derive(Debug)]
pub(super) struct Cut {
    to: Offset,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// Where the batch begins is being read.
    Locating,
    /// Waits for what is in flight.
    Landing(Cursor),
    /// Waits for the state with the intent; then these files go.
    Intent {
        version: u64,
        dead: Vec<LogFile>,
    },
    Removing,
    Truncating,
    /// Waits for the state without it.
    Over(u64),
}

impl Log {
    /// Removes everything from the batch that contains `to` on, durably; `Cut` follows, and the phase is
    /// `Cutting` until then. If the checkpoint lay above, it falls to the first segment without a
    /// snapshot: take a new one soon.
    ///
    /// # Panics
    /// Unless the phase is `Ready`, or if `to` is below [`Log::start`].
    pub fn cut(&mut self, to: Offset, queue: &mut DiskQueue<'_>) {
        assert!(self.phase == LogPhase::Ready, "a cut of a log not ready");
        assert!(to >= self.start(), "a cut below the log start");
        if to >= self.end() {
            self.outbox.push(LogProgress::Cut(self.end()));
            return;
        }
        self.phase = LogPhase::Cutting;
        self.pending_checkpoint = None;
        let staged = self.tails.iter().find_map(|tail| {
            let batch = tail.staged().iter().find(|batch| to < batch.end_offset)?;
            Some(Cursor {
                base: tail.base,
                offset: batch.base_offset,
                position: batch.position,
            })
        });
        let step = match staged {
            Some(at) if to >= self.durable_end() => Step::Landing(at),
            _ => {
                self.locate(to);
                Step::Locating
            }
        };
        self.cut = Some(Cut { to, step });
        self.advance(queue);
    }

    /// Where the batch of the cut begins.
    pub(super) fn on_located(&mut self, at: Cursor) {
        if let Some(cut) = &mut self.cut {
            cut.step = Step::Landing(at);
        }
    }

    /// One of the cut's requests is done.
    pub(super) fn on_cut_step(&mut self) {
        let Some(Cut { to, step }) = self.cut.take() else {
            return;
        };
        let step = match step {
            Step::Removing => Step::Truncating,
            Step::Truncating => self.end_intent(),
            other => other,
        };
        self.cut = Some(Cut { to, step });
    }

    fn end_intent(&mut self) -> Step {
        let version = self.keeper.change(|state| state.cut_to = None);
        self.keeper.gate(version);
        Step::Over(version)
    }

    /// Takes the cut one step on.
    pub(super) fn advance_cut(&mut self, queue: &mut DiskQueue<'_>) {
        let is_busy = self.has_task(|task| {
            matches!(
                task,
                Task::CutRemove
                    | Task::CutTruncate
                    | Task::Close
                    | Task::CheckpointFile
                    | Task::Remove { .. }
                    | Task::CreateSegment { .. }
                    | Task::CreateState
                    | Task::WriteData { .. }
                    | Task::Extend { .. }
                    | Task::ReadHead { .. }
            )
        });
        if is_busy {
            return;
        }
        let Some(Cut { to, step }) = self.cut.take() else {
            return;
        };
        let step = match step {
            Step::Locating => Step::Locating,
            Step::Landing(at) => self.intend(at),
            Step::Intent { version, dead } if self.keeper.is_durable(version) => {
                let request = DiskRequest::Remove {
                    partition: self.partition,
                    files: dead,
                };
                self.submit(queue, Planned::foreground(Task::CutRemove, request));
                Step::Removing
            }
            Step::Truncating => match self.tails.front() {
                Some(tail) if tail.created => {
                    let request = DiskRequest::Truncate {
                        file: self.file(LogFile::Segment(tail.base)),
                        length_bytes: tail.end(),
                    };
                    self.submit(queue, Planned::foreground(Task::CutTruncate, request));
                    Step::Truncating
                }
                _ => self.end_intent(),
            },
            Step::Over(version) if self.keeper.is_durable(version) => {
                if self.phase == LogPhase::Cutting {
                    self.phase = LogPhase::Ready;
                }
                self.outbox.push(LogProgress::Cut(self.end()));
                return;
            }
            waiting => waiting,
        };
        self.cut = Some(Cut { to, step });
        self.write_state(queue);
    }

    /// Cuts the log in memory and the state with it.
    fn intend(&mut self, at: Cursor) -> Step {
        let mut dead = Vec::new();
        self.closing = None;
        self.cursors.clear();
        // Its answer, if it is on its way, then finds no taker.
        self.index_job = self.index_job.take().filter(|job| job.base < at.base);
        while let Some(last) = self.segments.back()
            && last.base > at.base
        {
            // Newest first, so that what is left is always a prefix.
            dead.extend(Segment::files(last.base));
            self.segments.pop_back();
        }
        // What is left of a closed segment is one that grows.
        dead.extend(Segment::files(at.base).into_iter().skip(1));
        let is_new = self
            .tails
            .iter()
            .any(|tail| tail.base == at.base && !tail.created);
        let tails = core::mem::take(&mut self.tails);
        if let Some(mut tail) = tails.into_iter().find(|tail| tail.base == at.base) {
            tail.cut(at.position, at.offset);
            self.tails.push_back(tail);
        } else {
            let mut tail = Tail::new(at.base, at.position, at.offset, at.position);
            tail.first_append_ms = Some(self.last_append_ms);
            self.tails.push_back(tail);
        }
        assert!(!is_new || at.position == 0, "bytes in a segment not made");
        let last_append_ms = self.last_append_ms;
        if let Some(segment) = self.segment_mut(at.base) {
            segment.bytes = at.position;
            segment.is_closing = false;
            segment.max_timestamp_ms = None;
            segment.last_append_ms = Some(last_append_ms);
            segment.rebuild = true;
            segment.index = match core::mem::replace(&mut segment.index, Index::OnDisk) {
                _ if at.position == 0 => Segment::empty(at.base).index,
                Index::OnDisk => Index::From {
                    position: at.position,
                    index: SparseIndex::new(at.base),
                },
                Index::From {
                    position,
                    mut index,
                } => {
                    index.cut(at.position);
                    Index::From {
                        position: position.min(at.position),
                        index,
                    }
                }
                Index::Whole { mut index, is_read } => {
                    index.cut(at.position);
                    Index::Whole { index, is_read }
                }
            };
        }
        self.told_durable_end = self.told_durable_end.min(self.durable_end());
        let first = self.segments.front().map_or(at.base, |first| first.base);
        let version = self.keeper.change(|state| {
            state.cut_to = Some(at.offset);
            state.cut_history(at.offset);
            if state.checkpoint.offset > at.offset {
                state.checkpoint = Checkpoint {
                    offset: first,
                    segment: first,
                    last_append_ms,
                    crc: Some(0),
                    ..Checkpoint::default()
                };
            }
        });
        self.keeper.gate(version);
        Step::Intent { version, dead }
    }
}
