//! One partition's replica on this core: its log, its producers, what waits for its watermark, and
//! the newest batches in memory.
//!
//! Invariants:
//! 1. The watermark never passes the durable end, and is zero-based at log start until the
//!    metadata says that the log has begun.
//! 2. Waiting publishes stand in order of their end; each is answered once, when the watermark
//!    passes its own end, or when the log can no longer keep that promise.
//! 3. The tail holds the newest batches without a gap, up to the log's end.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use crate::effect::Effects;
use crate::identity::{LeaderEpoch, Offset, PartitionId};
use crate::limits::{PUBLISHES_WAITING_PER_PARTITION_MAX, STAGED_BYTES_PER_PARTITION_MAX};
use crate::log::{
    DiskQueue, Log, LogFault, LogPhase, LogSettings, OperationIds, Pieces, Recovered,
};
use crate::metadata::{TimestampType, TopicSettings};
use crate::producer::{ProducerTable, RememberedBatch, SnapshotError, Verdict};
use crate::publish::VerifiedBatches;
use crate::rejection::Rejection;
use crate::request::{Durability, PartitionDescription, Published, RequestId};
use crate::time::{Monotonic, Now};

/// Who hears of a publish's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// A client's request.
    Request(RequestId),
    /// The group coordinator of this partition, which gave this token.
    Coordinator(u64),
}

/// A publish that is appended, or a repeat of one, and not committed yet.
#[derive(Clone, Copy, Debug)]
pub struct WaitingPublish {
    /// The watermark must reach this.
    pub end: Offset,
    /// Then the outcome is unknown to the asker.
    pub deadline: Monotonic,
    /// Who waits.
    pub waiter: Waiter,
    /// The answer.
    pub published: Published,
}

#[derive(Clone, Debug)]
struct TailBatch {
    first: Offset,
    end: Offset,
    bytes: Bytes,
}

/// See the module.
#[derive(Debug)]
pub struct Replica {
    partition: PartitionId,
    /// The log.
    pub log: Log,
    producers: ProducerTable,
    scanned: ProducerTable,
    epoch: LeaderEpoch,
    begun: bool,
    timestamp_type: TimestampType,
    durability: Durability,
    tail: VecDeque<TailBatch>,
    publishes: VecDeque<WaitingPublish>,
    /// Fetches that wait for the watermark to move.
    pub fetches: BTreeSet<RequestId>,
    /// Publishes by producers without state here, until the core counts them.
    pub unknown_producers: u64,
}

/// What becomes of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Appended; this many bytes went to the tail.
    Appended {
        /// Bytes put into the tail.
        tail_bytes: usize,
    },
    /// A repeat that waits for its original to be committed, or of one that is.
    Repeat,
}

/// The log settings that a topic's settings ask for.
pub fn log_settings(settings: &TopicSettings, internal: bool, base: &LogSettings) -> LogSettings {
    LogSettings {
        segment_bytes_max: settings.segment_bytes,
        segment_ms: settings.segment_ms,
        retention_ms: if internal {
            None
        } else {
            settings.retention_ms
        },
        retention_bytes: if internal {
            None
        } else {
            settings.retention_bytes
        },
        ..*base
    }
}

impl Replica {
    /// A replica led in `epoch` by this process; its log begins to recover.
    pub fn open(
        partition: PartitionId,
        replica: &crate::metadata::Replica,
        epoch: LeaderEpoch,
        topic: &crate::metadata::Topic,
        base: &LogSettings,
        queue: &mut DiskQueue<'_>,
    ) -> Self {
        let settings = log_settings(&topic.settings, topic.internal, base);
        Self {
            partition,
            log: Log::open(partition, replica.log_id, replica.begun, settings, queue),
            producers: ProducerTable::default(),
            scanned: ProducerTable::default(),
            epoch,
            begun: replica.begun,
            timestamp_type: topic.settings.timestamp_type,
            durability: topic.settings.durability,
            tail: VecDeque::new(),
            publishes: VecDeque::new(),
            fetches: BTreeSet::new(),
            unknown_producers: 0,
        }
    }

    /// Which partition.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// The epoch in which this process leads.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Whether its metadata knows that the log has begun.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// The metadata knows now that the log has begun.
    pub fn set_begun(&mut self) {
        self.begun = true;
    }

    /// Takes a topic's changed settings.
    pub fn set_topic(&mut self, topic: &crate::metadata::Topic, base: &LogSettings) {
        self.log
            .set_settings(log_settings(&topic.settings, topic.internal, base));
        self.timestamp_type = topic.settings.timestamp_type;
        self.durability = topic.settings.durability;
    }

    /// The offset below which every record is committed; with one voter, what its own disk holds.
    pub fn watermark(&self) -> Offset {
        if self.begun {
            self.log.durable_end()
        } else {
            self.log.start()
        }
    }

    /// Takes note of a batch that recovery found above the producer snapshot.
    ///
    /// Scanned batches come before the snapshot is known, so they gather in a table of their own.
    pub fn scanned_table(&mut self) -> (&mut Log, &mut ProducerTable) {
        (&mut self.log, &mut self.scanned)
    }

    /// The log is recovered: the producer table is its snapshot and what was scanned above it.
    ///
    /// Returns whether the metadata must still hear that the log has begun.
    ///
    /// # Errors
    /// If the snapshot, whose checksum holds, is none that this build reads. The log is stopped then:
    /// it says why, and refuses whoever asks.
    pub fn recovered(&mut self, recovered: &Recovered) -> Result<bool, SnapshotError> {
        let snapshot = recovered.producers_snapshot.clone().unwrap_or_default();
        let restored = if snapshot.is_empty() {
            Ok(ProducerTable::default())
        } else {
            ProducerTable::restore(&snapshot)
        };
        let mut table = match restored {
            Ok(table) => table,
            Err(error) => {
                self.log.condemn_snapshot(recovered.snapshot_offset, &error);
                return Err(error);
            }
        };
        table.absorb(core::mem::take(&mut self.scanned));
        table.cut(recovered.end);
        self.producers = table;
        let begins = !self.begun && self.log.has_begun();
        Ok(begins)
    }

    /// Whether the replica takes publishes in the epoch the client believes in.
    ///
    /// # Errors
    /// The refusal.
    pub fn check_epoch(&self, believed: Option<LeaderEpoch>) -> Result<(), Rejection> {
        match believed {
            Some(epoch) if epoch < self.epoch => Err(Rejection::FencedLeaderEpoch),
            Some(epoch) if epoch > self.epoch => Err(Rejection::UnknownLeaderEpoch),
            _ => Ok(()),
        }
    }

    /// Whether the log can be read.
    ///
    /// # Errors
    /// The refusal.
    pub fn check_readable(&self) -> Result<(), Rejection> {
        match self.log.phase() {
            LogPhase::Ready | LogPhase::Cutting | LogPhase::Stopping | LogPhase::Failed => Ok(()),
            LogPhase::Recovering | LogPhase::Stopped => Err(Rejection::NotLeader),
            LogPhase::Corrupt => Err(Rejection::StorageError),
            LogPhase::Removed => Err(Rejection::UnknownTopicOrPartition),
        }
    }

    fn check_appendable(&self) -> Result<(), Rejection> {
        match self.log.phase() {
            // The leader of an epoch appends only as long as that is its own promised epoch.
            LogPhase::Ready
                if self.log.promised() > self.epoch || self.log.epoch() > Some(self.epoch) =>
            {
                Err(Rejection::NotLeader)
            }
            LogPhase::Ready => Ok(()),
            LogPhase::Failed | LogPhase::Corrupt => Err(Rejection::StorageError),
            LogPhase::Removed => Err(Rejection::UnknownTopicOrPartition),
            LogPhase::Recovering | LogPhase::Cutting | LogPhase::Stopping | LogPhase::Stopped => {
                Err(Rejection::NotLeader)
            }
        }
    }

    fn check_room(&self, bytes: usize) -> Result<(), Rejection> {
        let staged = self.log.staged_bytes() + bytes as u64;
        let full = staged > STAGED_BYTES_PER_PARTITION_MAX as u64
            || self.publishes.len() >= PUBLISHES_WAITING_PER_PARTITION_MAX;
        if full {
            Err(Rejection::Overloaded)
        } else {
            Ok(())
        }
    }

    /// Appends `batches`, or recognizes them as a repeat; `waiter` is answered when the watermark
    /// passes them.
    ///
    /// # Errors
    /// The refusal; nothing has changed then.
    pub fn place(
        &mut self,
        batches: VerifiedBatches,
        waiter: Waiter,
        deadline: Monotonic,
        now: Now,
        queue: &mut DiskQueue<'_>,
    ) -> Result<Placed, Rejection> {
        self.check_appendable()?;
        match self.judge(&batches)? {
            Some(original) => {
                self.wait_for_original(original, waiter, deadline);
                Ok(Placed::Repeat)
            }
            None => {
                self.check_room(batches.bytes().len())?;
                Ok(self.append(batches, waiter, deadline, now, queue))
            }
        }
    }

    /// `Some`: a repeat of this. A producer's batches come one in each publish, so that a refusal
    /// or a repeat concerns the whole of it.
    fn judge(&mut self, batches: &VerifiedBatches) -> Result<Option<RememberedBatch>, Rejection> {
        let [only] = batches.batches() else {
            let anonymous = |header| self.producers.check(header) == Verdict::Anonymous;
            let all_anonymous = batches
                .batches()
                .iter()
                .all(|batch| anonymous(&batch.header));
            return if all_anonymous {
                Ok(None)
            } else {
                Err(Rejection::InvalidRecord)
            };
        };
        match self.producers.check(&only.header) {
            Verdict::Anonymous | Verdict::Next => Ok(None),
            Verdict::Unknown => {
                self.unknown_producers += 1;
                Ok(None)
            }
            Verdict::Repeat(original) => Ok(Some(original)),
            Verdict::OldRepeat => Err(Rejection::DuplicateSequence),
            Verdict::Gap => Err(Rejection::OutOfOrderSequence),
            Verdict::Fenced => Err(Rejection::InvalidProducerEpoch),
        }
    }

    fn append(
        &mut self,
        batches: VerifiedBatches,
        waiter: Waiter,
        deadline: Monotonic,
        now: Now,
        queue: &mut DiskQueue<'_>,
    ) -> Placed {
        if self.log.epoch() != Some(self.epoch) {
            self.log.begin_epoch(self.epoch, queue);
        }
        let append_time_ms = self.log.last_append_ms().max(now.wall.0);
        let stamped = self.timestamp_type == TimestampType::LogAppendTime;
        let batches = if stamped {
            batches.with_append_time(append_time_ms)
        } else {
            batches
        };
        let mut first = self.log.end();
        for batch in batches.batches() {
            self.producers
                .record(&batch.header, first, self.epoch, append_time_ms);
            first = first.plus(u64::from(batch.header.last_offset_delta.unsigned_abs()) + 1);
        }
        let appended = self.log.append(batches, self.epoch, now, queue);
        assert_eq!(
            appended.end_offset, first,
            "the log counts its offsets otherwise"
        );
        let tail_bytes = self.remember_tail(appended.first_offset, appended.batches);
        self.wait(WaitingPublish {
            end: appended.end_offset,
            deadline,
            waiter,
            published: Published {
                first_offset: appended.first_offset,
                log_start: self.log.start(),
                append_time_ms: stamped.then_some(append_time_ms),
                leader_epoch: self.epoch,
                durability: self.durability,
                repeat: false,
            },
        });
        Placed::Appended { tail_bytes }
    }

    fn wait_for_original(
        &mut self,
        original: RememberedBatch,
        waiter: Waiter,
        deadline: Monotonic,
    ) {
        self.wait(WaitingPublish {
            end: original.end_offset(),
            deadline,
            waiter,
            published: Published {
                first_offset: original.first_offset,
                log_start: self.log.start(),
                append_time_ms: None,
                leader_epoch: original.leader_epoch,
                durability: self.durability,
                repeat: true,
            },
        });
    }

    fn wait(&mut self, publish: WaitingPublish) {
        let place = self
            .publishes
            .partition_point(|waiting| waiting.end <= publish.end);
        self.publishes.insert(place, publish);
    }

    fn remember_tail(&mut self, mut first: Offset, batches: Vec<Bytes>) -> usize {
        let mut tail_bytes = 0;
        for bytes in batches {
            let Ok(header) = corelog_batch::BatchHeader::parse(&bytes) else {
                continue;
            };
            let end = first.plus(u64::from(header.last_offset_delta.unsigned_abs()) + 1);
            tail_bytes += bytes.len();
            self.tail.push_back(TailBatch { first, end, bytes });
            first = end;
        }
        assert_eq!(
            first,
            self.log.end(),
            "the tail does not end where the log ends"
        );
        tail_bytes
    }

    /// Forgets the oldest batch in memory and says how large it was.
    pub fn forget_oldest_tail(&mut self) -> Option<usize> {
        self.tail.pop_front().map(|batch| batch.bytes.len())
    }

    /// The next publish whose wait is over because the watermark has passed it.
    pub fn next_committed(&mut self) -> Option<WaitingPublish> {
        let watermark = self.watermark();
        let front = self.publishes.front()?;
        if front.end > watermark {
            None
        } else {
            self.publishes.pop_front()
        }
    }

    /// Takes out the publishes whose deadline has passed.
    pub fn take_overdue(&mut self, now: Monotonic) -> Vec<WaitingPublish> {
        if self.publishes.iter().all(|waiting| waiting.deadline > now) {
            return Vec::new();
        }
        let (overdue, rest) = core::mem::take(&mut self.publishes)
            .into_iter()
            .partition(|waiting| waiting.deadline <= now);
        self.publishes = rest;
        let overdue: VecDeque<WaitingPublish> = overdue;
        overdue.into()
    }

    /// Takes out every waiting publish: the log can no longer keep its promise.
    pub fn take_all_waiting(&mut self) -> Vec<WaitingPublish> {
        core::mem::take(&mut self.publishes).into()
    }

    /// How many publishes wait.
    pub fn waiting(&self) -> usize {
        self.publishes.len()
    }

    /// Whole batches from memory, from the one that contains `offset`, below `up_to`; the first
    /// even if it is larger than `bytes_max`. `None`: memory does not reach back so far.
    pub fn read_tail(&self, offset: Offset, bytes_max: usize, up_to: Offset) -> Option<Pieces> {
        if self.tail.front()?.first > offset {
            return None;
        }
        let begin = self.tail.partition_point(|batch| batch.end <= offset);
        let mut pieces = Pieces::new();
        let mut bytes = 0_usize;
        for batch in self.tail.range(begin..) {
            let fits = pieces.is_empty() || bytes + batch.bytes.len() <= bytes_max;
            if batch.end > up_to || !fits {
                break;
            }
            bytes += batch.bytes.len();
            pieces.push(batch.bytes.clone());
        }
        Some(pieces)
    }

    /// The producer table for a checkpoint at the log's end; empty bytes for an empty table.
    pub fn producers_snapshot(&mut self, expiry_ms: u64) -> Bytes {
        self.producers.expire(self.log.last_append_ms(), expiry_ms);
        if self.producers.is_empty() {
            Bytes::new()
        } else {
            self.producers.snapshot()
        }
    }

    /// What it holds.
    pub fn describe(&self) -> PartitionDescription {
        PartitionDescription {
            leader_epoch: self.epoch,
            log_start: self.log.start(),
            watermark: self.watermark(),
            log_end: self.log.end(),
            log_bytes: self.log.bytes(),
        }
    }
}

/// Pairs the core's operation ids with the effects of one step.
pub fn queue<'a>(operations: &'a mut OperationIds, effects: &'a mut Effects) -> DiskQueue<'a> {
    DiskQueue {
        operations,
        effects,
    }
}

/// The refusal that a reader or writer gets for a fault of the log.
pub fn rejection_of(fault: &LogFault) -> Rejection {
    match fault {
        LogFault::Disk(crate::disk::DiskError::Full) => Rejection::StorageFull,
        _ => Rejection::StorageError,
    }
}
