//! A log on a [`Disk`], and what its owner remembers of it.

use std::collections::BTreeMap;
use std::vec::Vec;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchHeader, BatchOptions, Codec};

use super::disk::Disk;
use crate::disk::{DiskRequest, LogFile};
use crate::effect::Effects;
use crate::identity::{LeaderEpoch, LogId, Offset, PartitionId, PartitionIndex, TopicId};
use crate::log::{
    Appended, DiskQueue, FoundRecord, Log, LogFault, LogPhase, LogProgress, LogSettings,
    OperationIds, Pieces, ReadId, Recovered, Started, TimeQuery,
};
use crate::publish::VerifiedBatches;
use crate::time::{Monotonic, Now, Wall};

pub const PARTITION: PartitionId = PartitionId {
    topic: TopicId([7; 16]),
    partition: PartitionIndex(3),
};
pub const LOG_ID: LogId = LogId([9; 16]);

pub fn settings() -> LogSettings {
    LogSettings {
        retention_ms: None,
        ..LogSettings::default()
    }
}

/// A batch with one record for each stamp.
pub fn batch_of(codec: Codec, stamps: &[i64], value: &[u8]) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        batch_bytes_max: 8 << 20,
        ..BatchOptions::default()
    });
    for stamp in stamps {
        builder.append(*stamp, None, Some(value), &[]).unwrap();
    }
    builder.build().unwrap().freeze()
}

/// A batch of one record whose value has so many bytes.
pub fn batch(value_bytes: usize, fill: u8) -> Bytes {
    batch_of(Codec::None, &[1_000], &std::vec![fill; value_bytes])
}

pub struct Harness {
    pub disk: Disk,
    pub log: Log,
    pub ids: OperationIds,
    pub now_ms: u64,
    pub settings: LogSettings,
    /// What the metadata knows.
    pub begun: bool,
    pub progress: Vec<LogProgress>,
    pub scanned: Vec<BatchHeader>,
    /// Batches by base offset, as stamped.
    pub appended: BTreeMap<u64, Bytes>,
    /// Everything below this was reported durable.
    pub durable: Offset,
}

impl Harness {
    pub fn new(settings: LogSettings) -> Self {
        let mut harness = Self::opening(Disk::default(), settings, false);
        harness.run();
        harness
    }

    pub fn opening(mut disk: Disk, settings: LogSettings, begun: bool) -> Self {
        let mut ids = OperationIds::new();
        let mut effects = Effects::new();
        let mut queue = DiskQueue {
            operations: &mut ids,
            effects: &mut effects,
        };
        let log = Log::open(PARTITION, LOG_ID, begun, settings, &mut queue);
        disk.take(&mut effects);
        Self {
            disk,
            log,
            ids,
            now_ms: 1_000_000,
            settings,
            begun,
            progress: Vec::new(),
            scanned: Vec::new(),
            appended: BTreeMap::new(),
            durable: Offset::ZERO,
        }
    }

    pub fn now(&self) -> Now {
        Now {
            monotonic: Monotonic(self.now_ms * 1_000),
            wall: Wall(self.now_ms),
        }
    }

    /// Calls the log, then takes what it asks of the disk.
    pub fn call<T>(&mut self, call: impl FnOnce(&mut Log, Now, &mut DiskQueue<'_>) -> T) -> T {
        let now = self.now();
        let mut effects = Effects::new();
        let mut queue = DiskQueue {
            operations: &mut self.ids,
            effects: &mut effects,
        };
        let result = call(&mut self.log, now, &mut queue);
        self.disk.take(&mut effects);
        let mut progress = Vec::new();
        self.log.drain_progress(&mut progress);
        self.note(progress);
        result
    }

    /// Completes one waiting request.
    pub fn complete(&mut self, at: usize) {
        let (operation, result) = self.disk.complete(at);
        assert_eq!(self.ids.finish(operation), Some(PARTITION));
        let mut progress = Vec::new();
        let mut scanned = Vec::new();
        self.call(|log, now, queue| {
            let mut on_scanned = |header: &BatchHeader| scanned.push(*header);
            log.on_disk(
                operation,
                result,
                now,
                &mut on_scanned,
                queue,
                &mut progress,
            );
        });
        self.scanned.extend(scanned);
        self.note(progress);
    }

    fn note(&mut self, progress: Vec<LogProgress>) {
        for one in progress {
            match &one {
                LogProgress::DurableEnd(end) => {
                    assert!(*end > self.durable, "a durable end that does not rise");
                    self.durable = *end;
                }
                LogProgress::Begun => self.begun = true,
                _ => {}
            }
            self.progress.push(one);
        }
    }

    /// Completes everything, oldest first, until nothing is asked for.
    pub fn run(&mut self) {
        for _ in 0..1_000_000 {
            if self.disk.waiting.is_empty() {
                return;
            }
            self.complete(0);
        }
        panic!("a log that never rests");
    }

    pub fn complete_where(&mut self, is_it: impl Fn(&DiskRequest) -> bool) {
        let at = self
            .disk
            .waiting
            .iter()
            .position(|(_, request)| is_it(request));
        self.complete(at.unwrap());
    }

    pub fn append(&mut self, batches: &[Bytes]) -> Appended {
        let mut all: Option<Appended> = None;
        for batch in batches {
            let appended = self.append_verified(VerifiedBatches::own(batch.clone()));
            all = Some(match all {
                None => appended,
                Some(mut all) => {
                    all.end_offset = appended.end_offset;
                    all.batches.extend(appended.batches);
                    all
                }
            });
        }
        all.unwrap()
    }

    pub fn append_verified(&mut self, batches: VerifiedBatches) -> Appended {
        if self.log.epoch().is_none() {
            self.begin_epoch(1);
        }
        let epoch = self.log.epoch().unwrap();
        let appended = self.call(|log, now, queue| log.append(batches, epoch, now, queue));
        for batch in &appended.batches {
            let header = corelog_batch::verify_stored_batch(batch).unwrap();
            self.appended
                .insert(header.base_offset as u64, batch.clone());
        }
        appended
    }

    pub fn begin_epoch(&mut self, epoch: u32) {
        self.call(|log, _, queue| log.begin_epoch(LeaderEpoch(epoch), queue));
    }

    pub fn stop(&mut self, snapshot: &'static [u8]) {
        self.call(|log, _, queue| log.stop(Bytes::from_static(snapshot), queue));
        self.run();
        assert_eq!(self.log.phase(), LogPhase::Stopped);
    }

    pub fn checkpoint(&mut self, snapshot: &'static [u8]) {
        self.call(|log, _, queue| log.checkpoint(Bytes::from_static(snapshot), queue));
        self.run();
    }

    /// The process ends and the log is opened again on the same disk.
    pub fn reopen(mut self) -> Self {
        self.disk.waiting.clear();
        let disk = std::mem::take(&mut self.disk);
        let mut next = Self::opening(disk, self.settings, self.begun);
        next.now_ms = self.now_ms;
        next.appended = self.appended;
        next.durable = self.durable;
        next
    }

    pub fn reopen_and_run(self) -> Self {
        let mut next = self.reopen();
        next.run();
        next
    }

    pub fn recovered(&self) -> Recovered {
        let recovered = self.progress.iter().find_map(|one| match one {
            LogProgress::Recovered(recovered) => Some(recovered.clone()),
            _ => None,
        });
        recovered.unwrap_or_else(|| panic!("not recovered: {:?}", self.progress))
    }

    pub fn fault(&self) -> LogFault {
        let fault = self.progress.iter().find_map(|one| match one {
            LogProgress::Failed(fault) => Some(fault.clone()),
            _ => None,
        });
        fault.unwrap_or_else(|| panic!("no fault: {:?}", self.progress))
    }

    pub fn is_corrupt(&self) -> bool {
        matches!(self.fault(), LogFault::Corruption(_)) && self.log.phase() == LogPhase::Corrupt
    }

    pub fn result_of(&mut self, started: Started<Pieces>) -> Result<Pieces, LogFault> {
        match started {
            Started::Ready(pieces) => Ok(pieces),
            Started::Pending(id) => {
                self.run();
                self.read_result(id).unwrap()
            }
        }
    }

    pub fn read_result(&self, wanted: ReadId) -> Option<Result<Pieces, LogFault>> {
        self.progress.iter().find_map(|one| match one {
            LogProgress::Read(id, result) if *id == wanted => Some(result.clone()),
            _ => None,
        })
    }

    pub fn read(&mut self, offset: u64, bytes_max: usize) -> Result<Pieces, LogFault> {
        let up_to = self.log.durable_end();
        let started = self.call(|log, _, queue| log.read(Offset(offset), bytes_max, up_to, queue));
        self.result_of(started)
    }

    /// Every batch from `offset` to the durable end.
    pub fn read_all(&mut self, offset: u64) -> Result<Vec<Bytes>, LogFault> {
        let mut batches = Vec::new();
        let mut offset = offset;
        while Offset(offset) < self.log.durable_end() {
            let pieces = self.read(offset, 100_000)?;
            assert!(!pieces.is_empty(), "a read that gives nothing at {offset}");
            for piece in pieces {
                for one in corelog_batch::batches(piece) {
                    let (header, batch) = one.unwrap();
                    offset = header.next_offset() as u64;
                    batches.push(batch);
                }
            }
        }
        Ok(batches)
    }

    pub fn find(&mut self, query: TimeQuery) -> Result<Option<FoundRecord>, LogFault> {
        let up_to = self.log.durable_end();
        match self.call(|log, _, queue| log.find_time(query, up_to, queue)) {
            Started::Ready(found) => Ok(found),
            Started::Pending(wanted) => {
                self.run();
                let result = self.progress.iter().find_map(|one| match one {
                    LogProgress::Found(id, result) if *id == wanted => Some(result.clone()),
                    _ => None,
                });
                result.unwrap()
            }
        }
    }

    /// The log holds what was appended, from `offset` on, byte for byte.
    pub fn assert_holds_all(&mut self, offset: u64) {
        let batches = self.read_all(offset).unwrap();
        let wanted: Vec<Bytes> = self
            .appended
            .range(offset..self.log.durable_end().get())
            .map(|(_, batch)| batch.clone())
            .collect();
        assert!(batches == wanted, "not what was appended");
    }

    pub fn segments(&self) -> Vec<u64> {
        let files = self.disk.files.as_ref().unwrap();
        files
            .keys()
            .filter_map(|file| match file {
                LogFile::Segment(base) => Some(base.get()),
                _ => None,
            })
            .collect()
    }
}
