//! One partition's log: a state machine over [`crate::disk`].
//!
//! The owner calls [`Log`]'s methods and hands every [`DiskReply`](crate::disk::DiskReply) whose operation belongs to this
//! partition ([`OperationIds::finish`]) to [`Log::on_disk`], which tells what came of it.
//!
//! The life of a log: [`Log::open`] → `Recovered` → [`Log::begin_epoch`] → [`Log::append`] … →
//! `DurableEnd` … → [`Log::stop`] → `Stopped`.

mod operations;
mod progress;
mod settings;

pub use operations::{DiskQueue, OperationIds};
pub use progress::{
    Appended, FoundRecord, LogFault, LogPhase, LogProgress, Pieces, ReadId, Recovered, Started,
    TimeQuery,
};
pub use settings::LogSettings;

use alloc::vec::Vec;

use bytes::Bytes;
use corelog_batch::BatchHeader;

use crate::disk::{DiskResult, OperationId};
use crate::identity::{LeaderEpoch, LogId, Offset, PartitionId};
use crate::publish::VerifiedBatches;
use crate::time::Now;

/// One partition's log.
#[derive(Debug)]
pub struct Log {
    partition: PartitionId,
    log_id: LogId,
    settings: LogSettings,
    phase: LogPhase,
    start: Offset,
    end: Offset,
    durable_end: Offset,
    last_append_ms: u64,
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
        let _ = (begun, queue);
        Self {
            partition,
            log_id,
            settings,
            phase: LogPhase::Recovering,
            start: Offset::ZERO,
            end: Offset::ZERO,
            durable_end: Offset::ZERO,
            last_append_ms: 0,
        }
    }

    /// Takes the result of one of this log's requests. `on_scanned` gets the header of every batch
    /// that recovery reads above the producer snapshot, in order, before `Recovered` is told.
    pub fn on_disk(
        &mut self,
        operation: OperationId,
        result: DiskResult,
        now: Now,
        on_scanned: &mut dyn FnMut(&BatchHeader),
        queue: &mut DiskQueue<'_>,
        progress: &mut Vec<LogProgress>,
    ) {
        let _ = (operation, result, now, on_scanned, queue, progress);
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

    /// The oldest retained offset.
    pub fn start(&self) -> Offset {
        self.start
    }

    /// One past the last record, durable or not.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// One past the last record below which everything is durable.
    pub fn durable_end(&self) -> Offset {
        self.durable_end
    }

    /// Bytes of all retained segments.
    pub fn bytes(&self) -> u64 {
        0
    }

    /// Bytes accepted and not durable yet. The owner refuses publishes above
    /// [`STAGED_BYTES_PER_PARTITION_MAX`](crate::limits::STAGED_BYTES_PER_PARTITION_MAX).
    pub fn staged_bytes(&self) -> u64 {
        0
    }

    /// Append time of the last append, in milliseconds. It never falls.
    pub fn last_append_ms(&self) -> u64 {
        self.last_append_ms
    }

    /// The epoch of the newest history entry.
    pub fn epoch(&self) -> Option<LeaderEpoch> {
        None
    }

    /// The epoch of the last record, or of the record before log start; `None` in an empty history.
    pub fn last_record_epoch(&self) -> Option<LeaderEpoch> {
        None
    }

    /// The end of the newest epoch not newer than `epoch`, with that epoch (Kafka:
    /// OffsetForLeaderEpoch). `None` if history does not reach back so far.
    pub fn end_of_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let _ = epoch;
        None
    }

    /// The highest epoch promised.
    pub fn promised(&self) -> LeaderEpoch {
        LeaderEpoch::ZERO
    }

    /// Promises `epoch` durably; `Promised` follows.
    pub fn promise(&mut self, epoch: LeaderEpoch, queue: &mut DiskQueue<'_>) {
        let _ = (epoch, queue);
    }

    /// Enters (`epoch`, end) into the history and promises the epoch. The entry is durable before any
    /// batch of the epoch is written. On a log not begun it waits in memory for the first append.
    ///
    /// # Panics
    /// If `epoch` is below one promised or entered before.
    pub fn begin_epoch(&mut self, epoch: LeaderEpoch, queue: &mut DiskQueue<'_>) {
        let _ = (epoch, queue);
    }

    /// Gives `batches` their offsets and stages them for a durable write; `DurableEnd` follows.
    ///
    /// # Panics
    /// Unless the phase is `Ready` and [`Log::epoch`] is `epoch`.
    pub fn append(
        &mut self,
        batches: VerifiedBatches,
        epoch: LeaderEpoch,
        now: Now,
        queue: &mut DiskQueue<'_>,
    ) -> Appended {
        let _ = (batches, epoch, now, queue);
        Appended {
            first_offset: self.end,
            end_offset: self.end,
            append_time_ms: self.last_append_ms,
            batches: Vec::new(),
        }
    }

    /// Reads whole batches from the one that contains `offset` on, all below `up_to`, at most
    /// `bytes_max` bytes; the first batch comes even if it is larger. Less than that may come (a
    /// read stays within a segment); nothing only for `offset` at or past `up_to`.
    ///
    /// # Panics
    /// If `offset` is below [`Log::start`] or `up_to` is above [`Log::end`].
    pub fn read(
        &mut self,
        offset: Offset,
        bytes_max: usize,
        up_to: Offset,
        queue: &mut DiskQueue<'_>,
    ) -> Started<Pieces> {
        let _ = (offset, bytes_max, up_to, queue);
        Started::Ready(Pieces::new())
    }

    /// Looks a record up by time stamp among those in [start, `up_to`); equal to a plain scan.
    ///
    /// # Panics
    /// If `up_to` is above [`Log::durable_end`].
    pub fn find_time(
        &mut self,
        query: TimeQuery,
        up_to: Offset,
        queue: &mut DiskQueue<'_>,
    ) -> Started<Option<FoundRecord>> {
        let _ = (query, up_to, queue);
        Started::Ready(None)
    }

    /// Removes everything from the batch that contains `to` on, durably; `Cut` follows, appends wait
    /// for it. The checkpoint falls to log start without a snapshot: take a new one soon.
    ///
    /// # Panics
    /// Unless the phase is `Ready`, or if `to` is below [`Log::start`].
    pub fn cut(&mut self, to: Offset, queue: &mut DiskQueue<'_>) {
        let _ = (to, queue);
    }

    /// Moves the log start to `offset` (never back, never past `durable_end`); `Start` follows, and
    /// whole segments below it go.
    pub fn delete_before(&mut self, offset: Offset, queue: &mut DiskQueue<'_>) {
        let _ = (offset, queue);
    }

    /// Deletes what the retention settings no longer keep, by append time and size.
    pub fn retain(&mut self, now: Now, queue: &mut DiskQueue<'_>) {
        let _ = (now, queue);
    }

    /// Whether enough was appended since the last checkpoint, or a segment was closed.
    pub fn checkpoint_due(&self) -> bool {
        false
    }

    /// Checkpoints at the present [`Log::end`]: `producers_snapshot` is the producer table as it stands
    /// there (empty bytes: no producers). It takes hold once everything below is durable.
    pub fn checkpoint(&mut self, producers_snapshot: Bytes, queue: &mut DiskQueue<'_>) {
        let _ = (producers_snapshot, queue);
    }

    /// Time has passed: rolls a segment that is old enough, forgets buffers of an idle log. Cheap
    /// when there is nothing to do; some seconds between calls are fine.
    pub fn tick(&mut self, now: Now, queue: &mut DiskQueue<'_>) {
        let _ = (now, queue);
    }

    /// Finishes: everything accepted becomes durable, then a checkpoint with the clean mark;
    /// `Stopped` follows. If there is nothing to do the phase is `Stopped` on return.
    pub fn stop(&mut self, producers_snapshot: Bytes, queue: &mut DiskQueue<'_>) {
        let _ = (producers_snapshot, queue);
    }

    /// Removes the log and its folder once nothing is in flight; `Removed` follows. For deleted
    /// topics; possible in every phase.
    pub fn remove(&mut self, queue: &mut DiskQueue<'_>) {
        let _ = queue;
    }
}
