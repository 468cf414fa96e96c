//! What the engine asks of a disk, and what it hears back.
//!
//! The engine names files and positions and decides what must be durable before what; whoever
//! performs the requests (the shard's reactor, or the simulator's virtual disk) chooses nothing.
//!
//! Invariants:
//! 1. A [`DiskRequest::Write`] starts at a multiple of [`BLOCK_BYTES`], and is
//!    padded with zeros to a multiple of it by the performer.
//! 2. At most one write in flight covers a block.
//! 3. A request is answered once, and only after what it promises holds on stable storage.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::identity::{Offset, PartitionId, Position};
use crate::limits::BLOCK_BYTES;

/// A file of one partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogFile {
    /// The two-slot file of log id, promise, checkpoint, history and log start.
    State,
    /// A segment, named by its first offset.
    Segment(Offset),
    /// A closed segment's sparse offset index.
    OffsetIndex(Offset),
    /// A closed segment's time index.
    TimeIndex(Offset),
    /// A closed segment's checksum, length and last append time.
    Seal(Offset),
    /// The producer table as it stood at this offset.
    Producers(Offset),
}

/// A file below the data directory. The path names topic id and partition, never a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The partition whose folder holds the file.
    pub partition: PartitionId,
    /// Which file of it.
    pub file: LogFile,
}

impl LogFile {
    /// The file's name within its partition's folder.
    pub fn name(&self) -> String {
        match self {
            Self::State => String::from("state"),
            Self::Segment(offset) => alloc::format!("{:020}.log", offset.get()),
            Self::OffsetIndex(offset) => alloc::format!("{:020}.index", offset.get()),
            Self::TimeIndex(offset) => alloc::format!("{:020}.timeindex", offset.get()),
            Self::Seal(offset) => alloc::format!("{:020}.seal", offset.get()),
            Self::Producers(offset) => alloc::format!("{:020}.producers", offset.get()),
        }
    }

    /// The file of this name, or `None` for a name that is none of ours.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "state" {
            return Some(Self::State);
        }
        let (digits, ending) = name.split_once('.')?;
        if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let offset = Offset(
            digits
                .parse()
                .ok()
                .filter(|offset| *offset <= i64::MAX as u64)?,
        );
        match ending {
            "log" => Some(Self::Segment(offset)),
            "index" => Some(Self::OffsetIndex(offset)),
            "timeindex" => Some(Self::TimeIndex(offset)),
            "seal" => Some(Self::Seal(offset)),
            "producers" => Some(Self::Producers(offset)),
            _ => None,
        }
    }
}

/// A partition's folder, relative to the data directory.
pub fn folder_path(partition: &PartitionId) -> String {
    alloc::format!("topics/{}/{}", partition.topic, partition.partition)
}

impl FileId {
    /// The path, relative to the data directory.
    pub fn path(&self) -> String {
        alloc::format!("{}/{}", folder_path(&self.partition), self.file.name())
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

/// Pairs a request with its answer. Unique within one core's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// What blocks ahead of the log's end are (docs/performance.md, "How a file grows").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Written with zeros: a durable write into them changes nothing but their bytes. As dear as
    /// data, and worth it below small writes.
    Written,
    /// Reserved and not written: costs next to nothing, and saves a large write the search for room.
    Reserved,
}

/// What to do on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskRequest {
    /// List the files of a partition's folder with their sizes. Answer: [`DiskReply::Files`].
    List {
        /// The partition.
        partition: PartitionId,
    },
    /// Make the partition's folder if it is missing, and this empty file in it; write the first
    /// `written_bytes` bytes of it with zeros; then make file, folder and every new parent
    /// durable. An existing file is an error. Answer: [`DiskReply::Done`].
    Create {
        /// The file to make.
        file: FileId,
        /// How much of it to write with zeros; a multiple of [`BLOCK_BYTES`].
        written_bytes: u64,
    },
    /// Read past every cache. Short only at the end of the file. Answer: [`DiskReply::Bytes`].
    Read {
        /// The file.
        file: FileId,
        /// Any position; the performer aligns.
        position: Position,
        /// How many bytes.
        length_bytes: usize,
    },
    /// Write, and answer once it is on stable storage. Answer: [`DiskReply::Done`].
    Write {
        /// The file.
        file: FileId,
        /// A multiple of [`BLOCK_BYTES`].
        position: Position,
        /// Written one behind the other, then zeros up to a whole block.
        parts: Vec<Bytes>,
    },
    /// Have blocks at hand from `from` to `to` that read as zeros. Need not be durable: recovery
    /// takes zeros and absent bytes alike. Answer: [`DiskReply::Done`], also where the file system
    /// cannot reserve.
    Extend {
        /// The file.
        file: FileId,
        /// A multiple of [`BLOCK_BYTES`], at or above the end of every write issued so far.
        from: Position,
        /// A multiple of [`BLOCK_BYTES`].
        to: Position,
        /// What the blocks are to be.
        space: Space,
    },
    /// Make what the file holds durable (data and size). Answer: [`DiskReply::Done`].
    Sync {
        /// The file.
        file: FileId,
    },
    /// Cut the file to this length, durably. Answer: [`DiskReply::Done`].
    Truncate {
        /// The file.
        file: FileId,
        /// Its new length.
        length_bytes: u64,
    },
    /// Write a small file whole: aside, synced, renamed over, folder synced. Answer:
    /// [`DiskReply::Done`].
    Replace {
        /// The file.
        file: FileId,
        /// Its whole content.
        content: Bytes,
    },
    /// Remove files (missing ones are no error), then sync the folder. Answer: [`DiskReply::Done`].
    Remove {
        /// The partition.
        partition: PartitionId,
        /// Its files to remove, in this order.
        files: Vec<LogFile>,
    },
    /// Remove the partition's whole folder, durably. Answer: [`DiskReply::Done`].
    RemoveFolder {
        /// The partition.
        partition: PartitionId,
    },
    /// Nothing of the disk: come back in a later turn. Long computing is cut with it, so that others
    /// get on in between. Answer: [`DiskReply::Done`].
    Turn {
        /// The partition.
        partition: PartitionId,
    },
}

impl DiskRequest {
    /// Whose files it asks for.
    pub fn partition(&self) -> PartitionId {
        match self {
            Self::List { partition }
            | Self::Remove { partition, .. }
            | Self::Turn { partition }
            | Self::RemoveFolder { partition } => *partition,
            Self::Create { file, .. }
            | Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Extend { file, .. }
            | Self::Sync { file }
            | Self::Truncate { file, .. }
            | Self::Replace { file, .. } => file.partition,
        }
    }
}

impl DiskRequest {
    /// The bytes a write carries, without padding; zero for the others.
    pub fn write_bytes(&self) -> usize {
        match self {
            Self::Write { parts, .. } => parts.iter().map(Bytes::len).sum(),
            _ => 0,
        }
    }

    /// Asserts invariant 1, where the request is made and where it is performed.
    ///
    /// # Panics
    /// If a position or length is not aligned.
    pub fn assert_aligned(&self) {
        let block = BLOCK_BYTES as u64;
        match self {
            Self::Write { position, .. } => {
                assert_eq!(position.get() % block, 0, "unaligned write")
            }
            Self::Extend { from, to, .. } => {
                assert!(
                    from.get() % block == 0 && to.get() % block == 0,
                    "unaligned extension"
                );
                assert!(from < to, "empty extension");
            }
            Self::Create { written_bytes, .. } => {
                assert_eq!(written_bytes % block, 0, "unaligned creation")
            }
            _ => {}
        }
    }
}

/// What a request brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskReply {
    /// It is done, and durable where that was asked.
    Done,
    /// The bytes read; fewer than asked only at the file's end.
    Bytes(Bytes),
    /// The folder's files with their sizes, sorted; `None` if there is no such folder. Names that
    /// are none of ours are left out (and left alone).
    Files(Option<Vec<(LogFile, u64)>>),
}

/// Why a request failed. Unreadable is never taken for empty: only [`DiskError::Missing`] says that
/// a file is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// There is no such file.
    Missing,
    /// No room. For a write this is as final as [`DiskError::Failed`]: what of it stands is unknown.
    Full,
    /// The device or file system refused; for writes and syncs final for that log.
    Failed(String),
}

/// The result of one request.
pub type DiskResult = Result<DiskReply, DiskError>;

/// How much room there is, by the thresholds of the configuration. Reads and deletion always go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskLevel {
    /// Enough.
    #[default]
    Normal,
    /// No new topics or partitions.
    Low,
    /// No publishes either (retryable).
    Full,
}
