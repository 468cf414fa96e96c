//! One partition's log: a state machine over [`crate::disk`].
//!
//! The owner calls [`Log`]'s methods and hands every reply whose operation belongs to this partition
//! ([`OperationIds::finish`]) to [`Log::on_disk`], which tells what came of it as [`LogProgress`].
//! What a call other than `on_disk` brought about at once is told by the next [`Log::drain_progress`].
//!
//! The life of a log: [`Log::open`] → `Recovered` → [`Log::begin_epoch`] → [`Log::append`] … →
//! `DurableEnd` … → [`Log::stop`] → `Stopped`.
//!
//! The life of an append: `append` gives offsets, stamps, stages (`tail`) → the first one of a log
//! makes state file and segment, each durably → a state change that it depends on becomes durable
//! (`keeper`) → durable writes of whole blocks → the contiguous durable prefix moves → `DurableEnd`.
//!
//! Invariants:
//! 1. An offset is given once: the end never falls but by a cut, and a cut is durable before the next
//!    append is written.
//! 2. Nothing of the log is changed on disk while the state there is marked clean.
//! 3. `DurableEnd` is told only for a contiguous prefix of batches whose every byte was reported to be
//!    on stable storage, in files whose directory entries are, too.
//! 4. The end of a log is found from batches: magic, length, CRC, continuing offsets and the epoch by
//!    history. What lies behind it is removed durably before anything is appended.
//! 5. A checkpoint is at a durable offset, and every segment below its own is closed and sealed.
//! 6. A failed durable write ends all writing.
//! 7. A segment that a read or look-up holds is not removed.

mod append;
mod batch_check;
mod checkpoint;
mod close;
mod cut;
mod find_time;
mod frame;
mod index;
mod index_load;
mod keeper;
mod look_through;
mod operations;
mod progress;
mod read;
mod rebuild;
mod recovery;
mod retention;
mod seal;
mod segment;
mod settings;
mod state;
mod step;
mod tail;
mod task;
#[cfg(test)]
pub(crate) mod tests;

pub use operations::{DiskQueue, OperationIds};
pub use progress::{
    Appended, FoundRecord, LogFault, LogPhase, LogProgress, Pieces, ReadId, Recovered, Started,
    TimeQuery,
};
pub use settings::LogSettings;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::disk::{DiskRequest, FileId, LogFile, OperationId};
use crate::identity::{LeaderEpoch, LogId, Offset, PartitionId};
use crate::time::Now;

use checkpoint::PendingCheckpoint;
use close::Closing;
use cut::Cut;
use find_time::LookUp;
use index_load::IndexJob;
use keeper::StateKeeper;
use read::{Cursor, PendingRead};
use recovery::Recovery;
use segment::Segment;
use state::DurableState;
use tail::Tail;
use task::Task;

/// One partition's log.
#[derive(Debug)]
pub struct Log {
    partition: PartitionId,
    log_id: LogId,
    settings: LogSettings,
    phase: LogPhase,
    tasks: Vec<(OperationId, Task)>,
    outbox: Vec<LogProgress>,
    keeper: StateKeeper,
    recovery: Option<Box<Recovery>>,
    /// All retained segments, by base. Those of `tails` are the last ones.
    segments: VecDeque<Segment>,
    /// Segments that still grow or are to be made: the first takes writes, the last takes appends.
    tails: VecDeque<Tail>,
    /// Somebody needs the state file, even without an append.
    state_wanted: bool,
    has_begun: bool,
    told_durable_end: Offset,
    told_promised: LeaderEpoch,
    told_start: Offset,
    last_append_ms: u64,
    bytes_since_checkpoint: u64,
    has_closed_since_checkpoint: bool,
    /// The checkpoint's producer snapshot is damaged or gone: the next checkpoint writes it anew.
    is_snapshot_lost: bool,
    closing: Option<Closing>,
    pending_checkpoint: Option<PendingCheckpoint>,
    /// A background step found no room; [`Log::tick`] tries again.
    waits_for_room: bool,
    index_job: Option<IndexJob>,
    index_uses: u64,
    reads: Vec<PendingRead>,
    look_ups: Vec<LookUp>,
    cursors: Vec<Cursor>,
    next_read: u64,
    cut: Option<Cut>,
    /// Files to remove, and whether a removal is in flight.
    dead_files: Vec<LogFile>,
    is_removing_files: bool,
    is_removing_all: bool,
    was_active: bool,
}

impl Log {
    /// Starts to find out what is on the disk; `Recovered` or `Failed` follows.
    ///
    /// `begun`: the metadata says that the log has had its first append. Then a missing or unreadable
    /// folder or state is corruption. Otherwise no folder is expected, and nothing is made before the
    /// first append (or [`Log::promise`]).
    pub fn open(
        partition: PartitionId,
        log_id: LogId,
        begun: bool,
        settings: LogSettings,
        queue: &mut DiskQueue<'_>,
    ) -> Self {
        let mut log = Self {
            partition,
            log_id,
            settings,
            phase: LogPhase::Recovering,
            tasks: Vec::new(),
            outbox: Vec::new(),
            keeper: StateKeeper::fresh(DurableState::new(partition, log_id)),
            recovery: Some(Box::new(Recovery::new(begun))),
            segments: VecDeque::new(),
            tails: VecDeque::new(),
            state_wanted: false,
            has_begun: false,
            told_durable_end: Offset::ZERO,
            told_promised: LeaderEpoch::ZERO,
            told_start: Offset::ZERO,
            last_append_ms: 0,
            bytes_since_checkpoint: 0,
            has_closed_since_checkpoint: false,
            is_snapshot_lost: false,
            closing: None,
            pending_checkpoint: None,
            waits_for_room: false,
            index_job: None,
            index_uses: 0,
            reads: Vec::new(),
            look_ups: Vec::new(),
            cursors: Vec::new(),
            next_read: 0,
            cut: None,
            dead_files: Vec::new(),
            is_removing_files: false,
            is_removing_all: false,
            was_active: false,
        };
        log.submit(
            queue,
            task::Planned::foreground(Task::List, DiskRequest::List { partition }),
        );
        log
    }

    /// The partition.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// The log id.
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// How it stands.
    pub fn phase(&self) -> LogPhase {
        self.phase
    }

    /// The settings.
    pub fn settings(&self) -> &LogSettings {
        &self.settings
    }

    /// Takes new settings; they hold from the next decision on.
    pub fn set_settings(&mut self, settings: LogSettings) {
        self.settings = settings;
    }

    /// The oldest retained offset. It moves once that is durable, so that it never goes back.
    pub fn start(&self) -> Offset {
        self.keeper.durable().start
    }

    /// One past the last record, durable or not.
    pub fn end(&self) -> Offset {
        self.tails
            .back()
            .map_or(self.keeper.state().checkpoint.offset, Tail::end_offset)
    }

    /// The offset below which everything is durable.
    pub fn durable_end(&self) -> Offset {
        self.tails
            .front()
            .map_or(self.keeper.state().checkpoint.offset, Tail::durable_offset)
    }

    /// Whether folder, state and a segment are durable on the disk.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Bytes of all retained segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes accepted and not durable yet. The owner refuses publishes above
    /// [`STAGED_BYTES_PER_PARTITION_MAX`](crate::limits::STAGED_BYTES_PER_PARTITION_MAX).
    pub fn staged_bytes(&self) -> u64 {
        self.tails.iter().map(Tail::staged_bytes).sum()
    }

    /// Append time of the last append, in milliseconds. It never falls; after a crash it may be
    /// later than true.
    pub fn last_append_ms(&self) -> u64 {
        self.last_append_ms
    }

    /// The epoch of the newest history entry.
    pub fn epoch(&self) -> Option<LeaderEpoch> {
        self.keeper.state().history.last().map(|entry| entry.epoch)
    }

    /// The epoch of the last record, or of the record before log start; `None` if there never was
    /// one.
    pub fn last_record_epoch(&self) -> Option<LeaderEpoch> {
        self.epoch_of(Offset(self.end().get().checked_sub(1)?))
    }

    /// The epoch of the record at `offset`, as far as history tells.
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let state = self.keeper.state();
        if offset.plus(1) == state.start {
            return state.start_epoch;
        }
        state.epoch_at(offset)
    }

    /// The newest epoch not newer than `epoch`, and where it ends (Kafka: OffsetForLeaderEpoch).
    /// `None` if history does not reach back so far.
    pub fn end_of_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let history = &self.keeper.state().history;
        let after = history.partition_point(|entry| entry.epoch <= epoch);
        let found = history.get(after.checked_sub(1)?)?;
        let end = history
            .get(after)
            .map_or(self.end(), |next| next.first_offset);
        Some((found.epoch, end))
    }

    /// The highest epoch promised.
    pub fn promised(&self) -> LeaderEpoch {
        self.keeper.state().promised
    }

    /// Promises `epoch` durably; `Promised` follows. A lower one than promised before changes nothing.
    pub fn promise(&mut self, epoch: LeaderEpoch, queue: &mut DiskQueue<'_>) {
        self.state_wanted = true;
        if epoch > self.promised() {
            let version = self.keeper.change(|state| state.promised = epoch);
            self.keeper.gate(version);
        } else {
            self.told_promised = LeaderEpoch::ZERO;
        }
        self.advance(queue);
    }

    /// Enters (`epoch`, end) into the history and promises the epoch. The entry is durable before any
    /// batch of the epoch is written. On a log not begun it waits in memory for the first append.
    ///
    /// # Panics
    /// If `epoch` is below one promised or entered before, or while recovering.
    pub fn begin_epoch(&mut self, epoch: LeaderEpoch, queue: &mut DiskQueue<'_>) {
        assert!(
            self.phase != LogPhase::Recovering,
            "an epoch before recovery"
        );
        assert!(epoch >= self.promised(), "an epoch below the promise");
        if self.epoch() == Some(epoch) && self.promised() == epoch {
            return;
        }
        let end = self.end();
        let version = self.keeper.change(|state| {
            state.promised = epoch;
            state.begin_epoch(epoch, end);
        });
        self.keeper.gate(version);
        self.advance(queue);
    }

    /// Time has passed: rolls a segment that is old enough, tries again what found no room, forgets
    /// buffers of an idle log. Cheap when there is nothing to do; some seconds between calls are fine.
    pub fn tick(&mut self, now: Now, queue: &mut DiskQueue<'_>) {
        self.waits_for_room = false;
        if self.phase == LogPhase::Ready {
            self.roll_if_old(now);
            if !core::mem::take(&mut self.was_active)
                && let Some(tail) = self.tails.front_mut()
            {
                tail.forget_head();
            }
        }
        self.advance(queue);
    }

    /// Moves what was brought about since the last call into `progress`.
    pub fn drain_progress(&mut self, progress: &mut Vec<LogProgress>) {
        progress.append(&mut self.outbox);
    }

    /// Removes the log and its folder once nothing is in flight; `Removed` follows. For deleted
    /// topics; possible in every phase. Nothing else may be asked of it any more.
    pub fn remove(&mut self, queue: &mut DiskQueue<'_>) {
        self.is_removing_all = true;
        self.recovery = None;
        self.advance(queue);
    }

    fn file(&self, file: LogFile) -> FileId {
        FileId {
            partition: self.partition,
            file,
        }
    }

    fn segment_at(&self, base: Offset) -> Option<usize> {
        self.segments
            .binary_search_by_key(&base, |segment| segment.base)
            .ok()
    }

    fn segment(&self, base: Offset) -> Option<&Segment> {
        self.segments.get(self.segment_at(base)?)
    }

    fn segment_mut(&mut self, base: Offset) -> Option<&mut Segment> {
        let at = self.segment_at(base)?;
        self.segments.get_mut(at)
    }

    fn tail(&self, base: Offset) -> Option<&Tail> {
        self.tails.iter().find(|tail| tail.base == base)
    }

    fn tail_mut(&mut self, base: Offset) -> Option<&mut Tail> {
        self.tails.iter_mut().find(|tail| tail.base == base)
    }

    /// The segment that holds `offset`, or would hold it.
    fn segment_of(&self, offset: Offset) -> Option<Offset> {
        let after = self
            .segments
            .partition_point(|segment| segment.base <= offset);
        Some(self.segments.get(after.checked_sub(1)?)?.base)
    }

    /// Where the durable batches of a segment end: position and offset.
    fn durable_end_of(&self, base: Offset) -> (u64, Offset) {
        if let Some(tail) = self.tail(base) {
            return (tail.durable(), tail.durable_offset());
        }
        let at = self.segment_at(base);
        let bytes = at
            .and_then(|at| self.segments.get(at))
            .map_or(0, |segment| segment.bytes);
        let end = at
            .and_then(|at| self.segments.get(at + 1))
            .map_or(self.durable_end(), |next| next.base);
        (bytes, end)
    }
}
