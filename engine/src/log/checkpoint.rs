//! Checkpoints and the clean stop.
//!
//! Order: everything below is durable and every segment below is closed; then producer snapshot and
//! index files; then the state slot that names them; then the older snapshot goes.

use bytes::Bytes;

use super::Log;
use super::operations::DiskQueue;
use super::progress::{LogPhase, LogProgress};
use super::seal::encode_producers;
use super::state::Checkpoint;
use super::tail::Tail;
use super::task::{Planned, Task};
use crate::disk::{DiskRequest, LogFile};
use crate::identity::Offset;
use crate::limits::SCAN_READ_BYTES;

/// A checkpoint that is to be taken.
#[derive(Debug)]
pub(super) struct PendingCheckpoint {
    checkpoint: Checkpoint,
    snapshot: Bytes,
    is_stop: bool,
    /// The snapshot that this checkpoint makes needless.
    older_producers: Option<Offset>,
    step: Step,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Waiting,
    Files(usize),
    FilesDone,
    State(u64),
}

impl Log {
    /// Whether enough was appended since the last checkpoint, or a segment was closed.
    pub fn checkpoint_due(&self) -> bool {
        self.phase == LogPhase::Ready
            && self.pending_checkpoint.is_none()
            && (self.bytes_since_checkpoint >= self.settings.checkpoint_bytes
                || self.has_closed_since_checkpoint
                || self.is_snapshot_lost)
    }

    /// Checkpoints at the present [`Log::end`]: `producers_snapshot` is the producer table as it stands
    /// there (empty bytes: no producers). It takes hold once everything below is durable;
    /// `Checkpointed` follows. Does nothing while another one is under way, or without any append.
    pub fn checkpoint(&mut self, producers_snapshot: Bytes, queue: &mut DiskQueue<'_>) {
        if self.phase == LogPhase::Ready && self.pending_checkpoint.is_none() {
            if self.is_snapshot_lost {
                self.keeper.begin_changes();
            }
            self.plan_checkpoint(producers_snapshot, false);
            self.advance(queue);
        }
    }

    /// Finishes: everything accepted becomes durable, then a checkpoint with the clean mark;
    /// `Stopped` follows. If there is nothing to do the phase is `Stopped` on return.
    ///
    /// A log that is recovering stops as it is; one that has failed stays failed.
    pub fn stop(&mut self, producers_snapshot: Bytes, queue: &mut DiskQueue<'_>) {
        match self.phase {
            LogPhase::Recovering => {
                self.recovery = None;
                self.phase = LogPhase::Stopped;
                self.outbox.push(LogProgress::Stopped);
            }
            LogPhase::Ready | LogPhase::Cutting => {
                self.phase = LogPhase::Stopping;
                self.pending_checkpoint = None;
                if self.is_snapshot_lost {
                    self.keeper.begin_changes();
                }
                if !self.keeper.state().clean {
                    self.plan_checkpoint(producers_snapshot, true);
                }
                self.advance(queue);
            }
            _ => {}
        }
    }

    fn plan_checkpoint(&mut self, snapshot: Bytes, is_stop: bool) {
        let Some(tail) = self.tails.back() else {
            return;
        };
        let checkpoint = Checkpoint {
            offset: tail.end_offset(),
            segment: tail.base,
            position: tail.end(),
            crc: tail.crc,
            last_append_ms: self.last_append_ms,
            first_append_ms: tail.first_append_ms.unwrap_or(0),
            producers: !snapshot.is_empty(),
        };
        self.bytes_since_checkpoint = 0;
        self.has_closed_since_checkpoint = false;
        self.pending_checkpoint = Some(PendingCheckpoint {
            checkpoint,
            snapshot,
            is_stop,
            older_producers: None,
            step: Step::Waiting,
        });
    }

    /// Takes the pending checkpoint one step on.
    pub(super) fn advance_checkpoint(&mut self, queue: &mut DiskQueue<'_>) {
        let Some(pending) = &self.pending_checkpoint else {
            return;
        };
        match pending.step {
            // Without room for the seals below it there is no checkpoint, and a stop is not clean.
            Step::Waiting if pending.is_stop && self.waits_for_room => {
                self.pending_checkpoint = None;
            }
            Step::Waiting => {
                if self.may_write_checkpoint(pending) {
                    self.write_checkpoint_files(queue);
                }
            }
            Step::Files(_) => {}
            Step::FilesDone => self.write_checkpoint_state(queue),
            Step::State(version) => {
                if self.keeper.is_durable(version) {
                    self.finish_checkpoint();
                }
            }
        }
    }

    fn may_write_checkpoint(&self, pending: &PendingCheckpoint) -> bool {
        let checkpoint = &pending.checkpoint;
        let is_durable = self.durable_end() >= checkpoint.offset;
        let is_closed = !self
            .segments
            .iter()
            .any(|segment| segment.is_closing && segment.base < checkpoint.segment);
        let is_there = self
            .tail(checkpoint.segment)
            .is_none_or(|tail| tail.created);
        let is_quiet = !pending.is_stop
            || (self.cut.is_none()
                && self.tails.len() == 1
                && self.tails.iter().all(|tail| tail.created && tail.is_idle())
                && self.closing.is_none()
                && !self.is_removing_files);
        // Files of an earlier one that this one has replaced must not be taken for its own.
        let snapshot = LogFile::Producers(checkpoint.offset);
        let has_files = self.has_task(|task| match task {
            Task::CheckpointFile => true,
            Task::Remove { files } => files.contains(&snapshot),
            _ => false,
        });
        self.keeper.allows_changes()
            && !has_files
            && is_durable
            && is_closed
            && is_there
            && is_quiet
            && (!self.wants_index_file(checkpoint)
                || self
                    .segment(checkpoint.segment)
                    .is_none_or(|segment| segment.index.whole().is_some()))
    }

    /// Whether a restart would have to read more than one piece to make the index anew.
    fn wants_index_file(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.position > SCAN_READ_BYTES as u64
            && checkpoint.offset != self.keeper.state().checkpoint.offset
            && self.tail(checkpoint.segment).is_some()
    }

    /// The segment that a checkpoint's index file waits for.
    pub(super) fn checkpoint_index_wanted(&self) -> Option<Offset> {
        let pending = self.pending_checkpoint.as_ref()?;
        let is_wanted = pending.step == Step::Waiting && self.wants_index_file(&pending.checkpoint);
        is_wanted.then_some(pending.checkpoint.segment)
    }

    fn write_checkpoint_files(&mut self, queue: &mut DiskQueue<'_>) {
        let Some(pending) = &self.pending_checkpoint else {
            return;
        };
        let checkpoint = pending.checkpoint;
        let snapshot = pending.snapshot.clone();
        let mut files = 0;
        let mut replace = |log: &mut Self, file: LogFile, content: Bytes| {
            let file = log.file(file);
            let request = DiskRequest::Replace { file, content };
            log.submit(queue, Planned::background(Task::CheckpointFile, request));
            files += 1;
        };
        let is_new = checkpoint.offset != self.keeper.state().checkpoint.offset;
        if checkpoint.producers && (is_new || self.is_snapshot_lost) {
            let content = encode_producers(checkpoint.offset, &snapshot);
            let file = LogFile::Producers(checkpoint.offset);
            // An earlier one of this offset, refused for want of room, was still to be removed.
            self.dead_files.retain(|dead| *dead != file);
            replace(self, file, content);
        }
        if self.wants_index_file(&checkpoint) {
            let encoded = self
                .segment(checkpoint.segment)
                .and_then(|segment| segment.index.whole())
                .map(|index| index.encode(checkpoint.position));
            if let Some((offsets, times)) = encoded {
                replace(self, LogFile::OffsetIndex(checkpoint.segment), offsets);
                replace(self, LogFile::TimeIndex(checkpoint.segment), times);
            }
        }
        if let Some(pending) = &mut self.pending_checkpoint {
            pending.step = if files == 0 {
                Step::FilesDone
            } else {
                Step::Files(files)
            };
        }
        if files == 0 {
            self.write_checkpoint_state(queue);
        }
    }

    /// One of the files is there.
    pub(super) fn on_checkpoint_file(&mut self) {
        if let Some(pending) = &mut self.pending_checkpoint
            && let Step::Files(files) = pending.step
        {
            pending.step = match files - 1 {
                0 => Step::FilesDone,
                left => Step::Files(left),
            };
        }
    }

    /// There was no room for one of the files: the old checkpoint stays. A stop goes on without the
    /// clean mark.
    pub(super) fn on_checkpoint_refused(&mut self) {
        // That of the old checkpoint's own offset is the old one's.
        if let Some(pending) = self.pending_checkpoint.take()
            && pending.checkpoint.producers
            && pending.checkpoint.offset != self.keeper.state().checkpoint.offset
        {
            self.dead_files
                .push(LogFile::Producers(pending.checkpoint.offset));
        }
        self.has_closed_since_checkpoint = true;
    }

    fn write_checkpoint_state(&mut self, queue: &mut DiskQueue<'_>) {
        let Some(pending) = &mut self.pending_checkpoint else {
            return;
        };
        let old = self.keeper.state().checkpoint;
        let new = Checkpoint {
            // The snapshot of an offset is written once, unless it is lost.
            producers: if old.offset == pending.checkpoint.offset && !self.is_snapshot_lost {
                old.producers
            } else {
                pending.checkpoint.producers
            },
            ..pending.checkpoint
        };
        if old.producers && old.offset != new.offset {
            pending.older_producers = Some(old.offset);
        }
        let mut version = self.keeper.change(|state| state.checkpoint = new);
        if pending.is_stop {
            version = self.keeper.mark_clean();
        }
        pending.step = Step::State(version);
        self.write_state(queue);
    }

    fn finish_checkpoint(&mut self) {
        if let Some(pending) = self.pending_checkpoint.take() {
            self.is_snapshot_lost = false;
            self.dead_files
                .extend(pending.older_producers.map(LogFile::Producers));
            self.outbox
                .push(LogProgress::Checkpointed(pending.checkpoint.offset));
        }
    }

    /// The stop is over once nothing is in flight.
    pub(super) fn finish_stop(&mut self) {
        let is_over = self.phase == LogPhase::Stopping
            && self.pending_checkpoint.is_none()
            && self.cut.is_none()
            && self.tasks.is_empty()
            && self.tails.iter().all(Tail::is_idle)
            && (self.keeper.is_idle() || !self.keeper.exists);
        if is_over {
            self.phase = LogPhase::Stopped;
            self.outbox.push(LogProgress::Stopped);
        }
    }
}
