//! What a log tells its owner.

use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::corruption::Corruption;
use crate::disk::DiskError;
use crate::identity::{LeaderEpoch, Offset};

/// Pairs a read or look-up with its result. Unique within one log's life in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// How a log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPhase {
    /// Finding out what is on the disk. Nothing may be asked of it but to wait.
    Recovering,
    /// Reads and appends.
    Ready,
    /// Reads; a cut is under way, so appends wait.
    Cutting,
    /// Finishing what was accepted; reads still.
    Stopping,
    /// Checkpointed and marked clean; nothing more happens.
    Stopped,
    /// A durable write failed. What was durable can be read; nothing is ever written again.
    Failed,
    /// What must be there is not, or is damaged. Neither reads nor appends.
    Corrupt,
    /// The folder is gone.
    Removed,
}

/// Why a log stopped for good, or a read found nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFault {
    /// Bad bytes where good ones were written.
    Corruption(Corruption),
    /// The device or file system refused.
    Disk(DiskError),
}

impl fmt::Display for LogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corruption(corruption) => write!(f, "{corruption}"),
            Self::Disk(DiskError::Missing) => f.write_str("a file is missing"),
            Self::Disk(DiskError::Full) => f.write_str("the disk is full"),
            Self::Disk(DiskError::Failed(what)) => write!(f, "the disk failed: {what}"),
        }
    }
}

/// What recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The oldest retained offset.
    pub start: Offset,
    /// Where the log ends; everything below it is durable.
    pub end: Offset,
    /// The epoch of the newest history entry.
    pub epoch: Option<LeaderEpoch>,
    /// The highest epoch promised.
    pub promised: LeaderEpoch,
    /// The producer table as it stood at `snapshot_offset`, as given to [`super::Log::checkpoint`];
    /// `None`: it was empty there. The headers of all batches from that offset on have gone to
    /// `on_scanned`.
    pub producers_snapshot: Option<Bytes>,
    /// See `producers_snapshot`.
    pub snapshot_offset: Offset,
    /// The snapshot was lost, and how: there is none, and `snapshot_offset` is where the oldest
    /// retained segment begins.
    pub snapshot_lost: Option<Corruption>,
    /// Bytes read above the checkpoint.
    pub scanned_bytes: u64,
    /// Bytes of a torn or stale tail that were cut.
    pub cut_bytes: u64,
    /// Whether the log had been stopped cleanly.
    pub clean: bool,
}

/// Batches that were given their offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub first_offset: Offset,
    /// One past the last record.
    pub end_offset: Offset,
    /// Append time in milliseconds; it never falls.
    pub append_time_ms: u64,
    /// The stamped batches, each in one piece, for the tail cache.
    pub batches: Vec<Bytes>,
}

/// Whole batches from the disk or from memory.
///
/// Each piece holds one or more whole batches, in order. The first may start below the offset that
/// was asked for: the batch that contains it is served whole.
pub type Pieces = Vec<Bytes>;

/// How a read or look-up began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started<T> {
    /// It is done.
    Ready(T),
    /// The result comes as [`LogProgress`] under this id.
    Pending(ReadId),
}

/// A record found by its time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// Its offset.
    pub offset: Offset,
    /// Its time stamp.
    pub timestamp_ms: i64,
    /// The epoch of its batch.
    pub leader_epoch: LeaderEpoch,
}

/// What a record is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeQuery {
    /// The first record, by offset, with a stamp at or past this many milliseconds.
    AtOrAfterMs(i64),
    /// The first record, by offset, with the largest stamp of all.
    Largest,
}

/// Something that came of a disk request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogProgress {
    /// The log is ready.
    Recovered(Recovered),
    /// The folder and its state are durable: the log has begun. Precedes the first
    /// [`LogProgress::DurableEnd`] of a new log.
    Begun,
    /// Every batch below this offset is on stable storage.
    DurableEnd(Offset),
    /// This promise, and the history entries of [`super::Log::begin_epoch`] so far, are durable.
    Promised(LeaderEpoch),
    /// The log start is durably here.
    Start(Offset),
    /// The checkpoint is durably at this offset.
    Checkpointed(Offset),
    /// The cut is durable; the log ends here.
    Cut(Offset),
    /// A read is done.
    Read(ReadId, Result<Pieces, LogFault>),
    /// A look-up by time is done.
    Found(ReadId, Result<Option<FoundRecord>, LogFault>),
    /// There was no room to write space ahead. The log works on; publishes should be refused until
    /// there is room.
    NoRoom,
    /// The log is stopped cleanly.
    Stopped,
    /// The folder is gone.
    Removed,
    /// The log is stopped by a fault, for good. Comes once.
    Failed(LogFault),
}
