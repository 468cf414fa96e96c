//! A log over files in memory.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use corelog_batch::BatchHeader;
use corelog_engine::disk::{
    DiskError, DiskReply, DiskRequest, DiskResult, FileId, LogFile, OperationId,
};
use corelog_engine::effect::{Effect, Effects};
use corelog_engine::identity::{LogId, PartitionId, PartitionIndex, TopicId};
use corelog_engine::limits::BLOCK_BYTES;
use corelog_engine::log::{
    DiskQueue, Log, LogFault, LogProgress, LogSettings, OperationIds, Pieces, ReadId, Started,
};
use corelog_engine::time::{Monotonic, Now, Wall};

pub(super) const PARTITION: PartitionId = PartitionId {
    topic: TopicId([7; 16]),
    partition: PartitionIndex(3),
};
pub(super) const LOG_ID: LogId = LogId([9; 16]);
/// Requests after which a log is held to be running in circles.
const REQUESTS_MAX: usize = 20_000;
/// A file that a request would make larger than this is a fault of the log.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The files of a partition; `None`: there is no folder.
pub(super) type Files = Option<BTreeMap<LogFile, Vec<u8>>>;

/// Small segments and frequent checkpoints, so that little data has everything.
pub(super) fn settings() -> LogSettings {
    LogSettings {
        segment_bytes_max: 6_000,
        checkpoint_bytes: 4_000,
        retention_ms: None,
        extend_bytes: (64 << 10, 64 << 10),
        reserve_bytes: (64 << 10, 64 << 10),
        ..LogSettings::default()
    }
}

/// A log, its files, and what it has told.
pub(super) struct LogOnDisk {
    pub files: Files,
    pub log: Log,
    pub progress: Vec<LogProgress>,
    ids: OperationIds,
    waiting: VecDeque<(OperationId, DiskRequest)>,
    seconds: u64,
}

impl LogOnDisk {
    /// Opens a log and lets it find out what there is.
    pub fn open(files: Files, begun: bool) -> Self {
        let mut ids = OperationIds::new();
        let mut effects = Effects::new();
        let mut queue = DiskQueue {
            operations: &mut ids,
            effects: &mut effects,
        };
        let log = Log::open(PARTITION, LOG_ID, begun, settings(), &mut queue);
        let mut on_disk = Self {
            files,
            log,
            progress: Vec::new(),
            ids,
            waiting: VecDeque::new(),
            seconds: 1_000,
        };
        on_disk.take(effects);
        on_disk.run();
        on_disk
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Monotonic(self.seconds * 1_000_000),
            wall: Wall(self.seconds * 1_000),
        }
    }

    /// Calls the log; what it asks of the disk waits.
    pub fn call<T>(&mut self, call: impl FnOnce(&mut Log, Now, &mut DiskQueue<'_>) -> T) -> T {
        let now = self.now();
        let mut effects = Effects::new();
        let mut queue = DiskQueue {
            operations: &mut self.ids,
            effects: &mut effects,
        };
        let result = call(&mut self.log, now, &mut queue);
        self.log.drain_progress(&mut self.progress);
        self.take(effects);
        result
    }

    fn take(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Disk {
                    operation, request, ..
                } => self.waiting.push_back((operation, request)),
                other => unreachable!("a log asks for nothing but its disk: {other:?}"),
            }
        }
    }

    /// Performs requests until none waits.
    pub fn run(&mut self) {
        let performed = self.run_at_most(REQUESTS_MAX);
        assert!(performed < REQUESTS_MAX, "a log that never rests");
    }

    /// Performs so many requests at most.
    pub fn run_at_most(&mut self, requests_max: usize) -> usize {
        for performed in 0..requests_max {
            let Some((operation, request)) = self.waiting.pop_front() else {
                return performed;
            };
            let result = perform(&mut self.files, &request);
            assert_eq!(self.ids.finish(operation), Some(PARTITION));
            let mut progress = Vec::new();
            self.seconds += 1;
            self.call(|log, now, queue| {
                let mut on_scanned = |_: &BatchHeader| {};
                log.on_disk(
                    operation,
                    result,
                    now,
                    &mut on_scanned,
                    queue,
                    &mut progress,
                );
            });
            self.progress.extend(progress);
        }
        requests_max
    }

    /// The result of a read, once it is there.
    pub fn read_result(&mut self, started: Started<Pieces>) -> Result<Pieces, LogFault> {
        let wanted = match started {
            Started::Ready(pieces) => return Ok(pieces),
            Started::Pending(id) => id,
        };
        self.run();
        let found = self.progress.iter().find_map(|one| match one {
            LogProgress::Read(id, result) if *id == wanted => Some(result.clone()),
            _ => None,
        });
        assert!(found.is_some(), "a read without a result: {wanted:?}");
        found.unwrap_or(Ok(Pieces::new()))
    }

    /// Whether a look-up has had its result.
    pub fn is_found(&self, wanted: ReadId) -> bool {
        let is_it = |one: &LogProgress| matches!(one, LogProgress::Found(id, _) if *id == wanted);
        self.progress.iter().any(is_it)
    }
}

fn perform(files: &mut Files, request: &DiskRequest) -> DiskResult {
    match request {
        DiskRequest::List { .. } => {
            let list = files.as_ref().map(|files| {
                let sizes = files
                    .iter()
                    .map(|(name, bytes)| (*name, bytes.len() as u64));
                sizes.collect()
            });
            return Ok(DiskReply::Files(list));
        }
        DiskRequest::Create {
            file,
            written_bytes,
        } => {
            let there = files.get_or_insert_default();
            if there.contains_key(&file.file) {
                return Err(DiskError::Failed("exists".to_owned()));
            }
            there.insert(file.file, vec![0; bounded(*written_bytes)]);
        }
        DiskRequest::Read {
            file,
            position,
            length_bytes,
        } => {
            let bytes = open(files, file)?;
            let start = usize::try_from(position.get())
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let end = start.saturating_add(*length_bytes).min(bytes.len());
            return Ok(DiskReply::Bytes(Bytes::copy_from_slice(&bytes[start..end])));
        }
        DiskRequest::Write {
            file,
            position,
            parts,
        } => {
            let mut content = parts.concat();
            content.resize(content.len().next_multiple_of(BLOCK_BYTES), 0);
            let start = bounded(position.get());
            write(open(files, file)?, start, &content);
        }
        DiskRequest::Extend { file, from, to, .. } => {
            let (from, to) = (bounded(from.get()), bounded(to.get()));
            write(open(files, file)?, from, &vec![0; to - from]);
        }
        DiskRequest::Sync { file } => drop(open(files, file)?),
        DiskRequest::Truncate { file, length_bytes } => {
            open(files, file)?.resize(bounded(*length_bytes), 0);
        }
        DiskRequest::Replace { file, content } => {
            let there = files.as_mut().ok_or(DiskError::Missing)?;
            there.insert(file.file, content.to_vec());
        }
        DiskRequest::Remove { files: gone, .. } => {
            if let Some(there) = files {
                there.retain(|name, _| !gone.contains(name));
            }
        }
        DiskRequest::RemoveFolder { .. } => *files = None,
        DiskRequest::Turn { .. } => {}
    }
    Ok(DiskReply::Done)
}

fn open<'f>(files: &'f mut Files, file: &FileId) -> Result<&'f mut Vec<u8>, DiskError> {
    let there = files.as_mut().and_then(|files| files.get_mut(&file.file));
    there.ok_or(DiskError::Missing)
}

fn bounded(bytes: u64) -> usize {
    assert!(
        bytes <= FILE_BYTES_MAX,
        "a request at byte {bytes} of a small log"
    );
    bytes as usize
}

fn write(bytes: &mut Vec<u8>, start: usize, content: &[u8]) {
    let end = start + content.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(content);
}
