//! One reply in, and everything that can be done next: the log's one place of branching.

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use corelog_batch::BatchHeader;

use super::operations::DiskQueue;
use super::progress::{LogFault, LogPhase, LogProgress};
use super::task::{OnError, Planned, Task};
use super::{Log, keeper::SlotWrite};
use crate::corruption::Corruption;
use crate::disk::{DiskError, DiskReply, DiskRequest, DiskResult, LogFile, OperationId};
use crate::identity::Position;
use crate::limits::EXTEND_BYTES_MIN;
use crate::time::Now;

impl Log {
    /// Takes the result of one of this log's requests. `on_scanned` gets the header of every batch
    /// that recovery reads above the producer snapshot, in order, before [`LogProgress::Recovered`] is
    /// told.
    pub fn on_disk(
        &mut self,
        operation: OperationId,
        result: DiskResult,
        now: Now,
        on_scanned: &mut dyn FnMut(&BatchHeader),
        queue: &mut DiskQueue<'_>,
        progress: &mut Vec<LogProgress>,
    ) {
        let Some(at) = self.tasks.iter().position(|(id, _)| *id == operation) else {
            return;
        };
        let (_, task) = self.tasks.swap_remove(at);
        match result {
            Ok(reply) => self.on_reply(task, operation, reply, now, on_scanned, queue),
            Err(error) => self.on_error(task, error, now, queue),
        }
        self.advance(queue);
        self.drain_progress(progress);
    }

    fn on_reply(
        &mut self,
        task: Task,
        operation: OperationId,
        reply: DiskReply,
        now: Now,
        on_scanned: &mut dyn FnMut(&BatchHeader),
        queue: &mut DiskQueue<'_>,
    ) {
        if self.is_writing_over() && !matches!(task, Task::RemoveFolder) && !task.is_read() {
            return;
        }
        let bytes = match reply {
            DiskReply::Bytes(bytes) => bytes,
            DiskReply::Files(files) => {
                if task == Task::List {
                    self.on_listed(files, queue);
                }
                return;
            }
            DiskReply::Done => Bytes::new(),
        };
        match task {
            Task::List => {}
            Task::ReadState => self.on_state(&bytes, queue),
            Task::RemoveBlank => self.recovered_blank(),
            Task::ReadProducers => self.on_producers(&bytes, queue),
            Task::Rebuild { length } => self.on_rebuild(&bytes, length, on_scanned, queue),
            Task::Scan { length } => self.on_scan(&bytes, length, now, on_scanned, queue),
            Task::RepairTail => self.on_tail_repaired(queue),
            Task::Repair => self.on_repaired(now),
            Task::CreateState => self.keeper.exists = true,
            Task::WriteState => {
                self.keeper.written();
                self.tell_durable_state();
            }
            Task::CreateSegment { base } => {
                if let Some(tail) = self.tail_mut(base) {
                    tail.created_with(EXTEND_BYTES_MIN);
                }
                if !core::mem::replace(&mut self.has_begun, true) {
                    self.outbox.push(LogProgress::Begun);
                }
            }
            Task::ReadHead { base } => {
                let is_whole = self
                    .tail_mut(base)
                    .is_none_or(|tail| tail.head_read(&bytes));
                if !is_whole {
                    self.stop_corrupt(LogFile::Segment(base), 0, "the file ends before the log");
                }
            }
            Task::WriteData { base } => {
                if let Some(tail) = self.tail_mut(base) {
                    tail.written(operation);
                }
                self.tell_durable_end();
            }
            Task::Extend { base } => {
                if let Some(tail) = self.tail_mut(base) {
                    tail.extended(true);
                }
            }
            Task::Close => self.on_closed(),
            Task::CheckpointFile => self.on_checkpoint_file(),
            Task::Remove { .. } => self.is_removing_files = false,
            Task::ReadSeal { base } => self.on_seal(base, Ok(&bytes), now),
            Task::LoadIndex { length } => self.on_index_bytes(Ok(bytes), length),
            Task::Read { id, length } => self.on_read(id, Ok(bytes), length),
            Task::LookUp { id, length } => self.on_look_up(id, Ok(bytes), length),
            Task::LookUpTurn { id } => self.on_look_up_turn(id),
            Task::CutRemove | Task::CutTruncate => self.on_cut_step(),
            Task::RemoveFolder => {
                self.phase = LogPhase::Removed;
                self.outbox.push(LogProgress::Removed);
            }
        }
    }

    fn on_error(&mut self, task: Task, error: DiskError, now: Now, queue: &mut DiskQueue<'_>) {
        match task.on_error(&error) {
            OnError::Told => match task {
                Task::ReadProducers => self.on_producers_unread(error, queue),
                Task::ReadSeal { base } => self.on_seal(base, Err(error), now),
                Task::LoadIndex { length } => self.on_index_bytes(Err(error), length),
                Task::Read { id, length } => self.on_read(id, Err(error), length),
                Task::LookUp { id, length } => self.on_look_up(id, Err(error), length),
                // Nothing of the disk was asked.
                Task::LookUpTurn { id } => self.on_look_up_turn(id),
                _ => {}
            },
            OnError::Later => {
                self.waits_for_room = true;
                match task {
                    Task::Extend { base } => {
                        if let Some(tail) = self.tail_mut(base) {
                            tail.extended(false);
                        }
                        self.outbox.push(LogProgress::NoRoom);
                    }
                    Task::Close => self.closing = None,
                    Task::CheckpointFile => self.on_checkpoint_refused(),
                    Task::Remove { files } => {
                        self.is_removing_files = false;
                        self.dead_files.extend(files);
                    }
                    _ => {}
                }
            }
            OnError::Final => {
                let fault = match (&task, error) {
                    (Task::ReadState, DiskError::Missing) => {
                        self.corruption(LogFile::State, 0, "missing")
                    }
                    (_, error) => LogFault::Disk(error),
                };
                self.fail(fault);
            }
        }
    }

    /// Does everything that can be done now. Each child decides for itself whether that is anything.
    pub(super) fn advance(&mut self, queue: &mut DiskQueue<'_>) {
        if self.is_removing_all {
            return self.remove_folder(queue);
        }
        if matches!(self.phase, LogPhase::Recovering | LogPhase::Stopped) {
            return;
        }
        if !self.is_writing_over() {
            self.create_state(queue);
            self.write_state(queue);
            self.advance_cut(queue);
            self.write_batches(queue);
            self.close_segments(queue);
            self.advance_checkpoint(queue);
            self.remove_segments(queue);
        }
        self.load_index(queue);
        self.advance_reads(queue);
        self.advance_look_ups(queue);
        self.finish_stop();
    }

    /// Whether nothing is written any more.
    pub(super) fn is_writing_over(&self) -> bool {
        matches!(
            self.phase,
            LogPhase::Failed | LogPhase::Corrupt | LogPhase::Stopped | LogPhase::Removed
        )
    }

    /// Puts a request on its way.
    pub(super) fn submit(&mut self, queue: &mut DiskQueue<'_>, planned: Planned) -> OperationId {
        let operation = queue.push(self.partition, planned.request, planned.background);
        self.tasks.push((operation, planned.task));
        operation
    }

    pub(super) fn has_task(&self, wanted: impl Fn(&Task) -> bool) -> bool {
        self.tasks.iter().any(|(_, task)| wanted(task))
    }

    fn create_state(&mut self, queue: &mut DiskQueue<'_>) {
        let is_due = !self.keeper.exists
            && (self.state_wanted || !self.tails.is_empty())
            && !self.has_task(|task| *task == Task::CreateState);
        if is_due {
            let request = DiskRequest::Create {
                file: self.file(LogFile::State),
                // Both slots, so that a disk without a free byte can still take a promise.
                written_bytes: super::state::STATE_FILE_BYTES as u64,
            };
            self.submit(queue, Planned::foreground(Task::CreateState, request));
        }
    }

    pub(super) fn write_state(&mut self, queue: &mut DiskQueue<'_>) {
        let durable_end = self.durable_end();
        let Some(SlotWrite {
            position,
            bytes,
            is_echo,
        }) = self.keeper.plan(durable_end)
        else {
            return;
        };
        let request = DiskRequest::Write {
            file: self.file(LogFile::State),
            position: Position(position),
            parts: alloc::vec![Bytes::from(bytes)],
        };
        self.submit(
            queue,
            Planned {
                request,
                task: Task::WriteState,
                background: is_echo,
            },
        );
    }

    fn remove_folder(&mut self, queue: &mut DiskQueue<'_>) {
        if !self.tasks.is_empty() || self.phase == LogPhase::Removed || self.waits_for_room {
            return;
        }
        let request = DiskRequest::RemoveFolder {
            partition: self.partition,
        };
        self.submit(queue, Planned::background(Task::RemoveFolder, request));
    }

    /// Tells the durable end if it has moved.
    pub(super) fn tell_durable_end(&mut self) {
        let end = self.durable_end();
        if end > self.told_durable_end {
            self.told_durable_end = end;
            self.outbox.push(LogProgress::DurableEnd(end));
        }
    }

    pub(super) fn tell_durable_state(&mut self) {
        let facts = *self.keeper.durable();
        if facts.promised > self.told_promised {
            self.told_promised = facts.promised;
            self.outbox.push(LogProgress::Promised(facts.promised));
        }
        if facts.start > self.told_start {
            self.told_start = facts.start;
            self.outbox.push(LogProgress::Start(facts.start));
        }
    }

    pub(super) fn corruption(
        &self,
        file: LogFile,
        position: u64,
        what: impl Into<String>,
    ) -> LogFault {
        LogFault::Corruption(Corruption {
            file: self.file(file),
            position: Position(position),
            what: what.into(),
        })
    }

    pub(super) fn stop_corrupt(&mut self, file: LogFile, position: u64, what: impl Into<String>) {
        let fault = self.corruption(file, position, what);
        self.fail(fault);
    }

    /// Ends all writing, for good.
    pub(super) fn fail(&mut self, fault: LogFault) {
        if self.is_writing_over() {
            return;
        }
        let is_unknown = matches!(fault, LogFault::Corruption(_)) || self.recovery.is_some();
        self.phase = if is_unknown {
            LogPhase::Corrupt
        } else {
            LogPhase::Failed
        };
        self.recovery = None;
        self.outbox.push(LogProgress::Failed(fault));
    }
}

impl Task {
    fn is_read(&self) -> bool {
        matches!(
            self,
            Self::LoadIndex { .. }
                | Self::Read { .. }
                | Self::LookUp { .. }
                | Self::LookUpTurn { .. }
        )
    }
}
