//! What is known in memory of one segment.

use alloc::vec::Vec;

use super::index::SparseIndex;
use crate::disk::LogFile;
use crate::identity::Offset;

/// How much of a segment's index is in memory.
#[derive(Debug)]
pub(super) enum Index {
    /// Nothing.
    OnDisk,
    /// What lies from this position on; the rest is on disk.
    From { position: u64, index: SparseIndex },
    /// Everything. `is_read`: it came from a file, so a mismatch is the file's fault first.
    Whole { index: SparseIndex, is_read: bool },
}

impl Index {
    /// The entries in memory.
    pub fn entries(&self) -> Option<&SparseIndex> {
        match self {
            Self::OnDisk => None,
            Self::From { index, .. } | Self::Whole { index, .. } => Some(index),
        }
    }

    /// The entries in memory, to add to.
    pub fn entries_mut(&mut self) -> Option<&mut SparseIndex> {
        match self {
            Self::OnDisk => None,
            Self::From { index, .. } | Self::Whole { index, .. } => Some(index),
        }
    }

    /// All entries, if they are in memory.
    pub fn whole(&self) -> Option<&SparseIndex> {
        match self {
            Self::Whole { index, .. } => Some(index),
            _ => None,
        }
    }
}

/// One segment.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its first offset.
    pub base: Offset,
    /// Bytes of its batches, durable or not.
    pub bytes: u64,
    pub index: Index,
    /// A number that rises with each use of the index.
    pub index_used: u64,
    /// The index file proved wrong or is not there: scan.
    pub rebuild: bool,
    /// Nothing is added to it any more, and it is not sealed yet.
    pub is_closing: bool,
    /// CRC-32C of all of it, if known; of a segment that grows its tail knows.
    pub crc: Option<u32>,
    /// Append time of its last batch in milliseconds; `None`: its seal says.
    pub last_append_ms: Option<u64>,
    /// No record has a larger stamp; `None`: its index says.
    pub max_timestamp_ms: Option<i64>,
}

impl Segment {
    /// A segment of `bytes` bytes that is only known by its name.
    pub fn on_disk(base: Offset, bytes: u64) -> Self {
        Self {
            base,
            bytes,
            index: Index::OnDisk,
            index_used: 0,
            rebuild: false,
            is_closing: false,
            crc: None,
            last_append_ms: None,
            max_timestamp_ms: None,
        }
    }

    /// A segment without batches.
    pub fn empty(base: Offset) -> Self {
        Self {
            index: Index::Whole {
                index: SparseIndex::new(base),
                is_read: false,
            },
            crc: Some(0),
            ..Self::on_disk(base, 0)
        }
    }

    /// Every file of the segment that begins at `base`. The segment goes first: what is left of the
    /// others then belongs to nothing.
    pub fn files(base: Offset) -> Vec<LogFile> {
        alloc::vec![
            LogFile::Segment(base),
            LogFile::OffsetIndex(base),
            LogFile::TimeIndex(base),
            LogFile::Seal(base),
        ]
    }
}
