//! What each request in flight is for.

use super::progress::ReadId;
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::Offset;

/// The purpose of one request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Recovery: the folder's files.
    List,
    /// Recovery: the state file.
    ReadState,
    /// Recovery: a folder in which nothing was ever written goes.
    RemoveBlank,
    /// Recovery: the producer snapshot.
    ReadProducers,
    /// Recovery: batches below the checkpoint, for a producer table whose snapshot is lost.
    Rebuild { length: usize },
    /// Recovery: batches above the checkpoint; so many bytes were asked for.
    Scan { length: usize },
    /// Recovery: the stale tail goes.
    RepairTail,
    /// Recovery: what was found is made durable anew.
    Repair,
    /// The state file is made.
    CreateState,
    /// A slot of it is written.
    WriteState,
    /// A segment is made.
    CreateSegment { base: Offset },
    /// The block that the tail goes on in.
    ReadHead { base: Offset },
    /// Batches.
    WriteData { base: Offset },
    /// Zeros ahead.
    Extend { base: Offset },
    /// One step of closing a segment.
    Close,
    /// One of a checkpoint's files.
    CheckpointFile,
    /// Files that nothing needs any more.
    Remove { files: alloc::vec::Vec<LogFile> },
    /// A segment's seal.
    ReadSeal { base: Offset },
    /// A segment's index.
    LoadIndex { length: usize },
    /// Batches for a read.
    Read { id: ReadId, length: usize },
    /// Batches for a look-up by time.
    LookUp { id: ReadId, length: usize },
    /// The next turn of a look-up by time.
    LookUpTurn { id: ReadId },
    /// A cut's files.
    CutRemove,
    /// A cut's tail.
    CutTruncate,
    /// The whole folder.
    RemoveFolder,
}

/// What an error of a request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnError {
    /// The log stops.
    Final,
    /// The request's own answer says so.
    Told,
    /// It is tried again later.
    Later,
}

impl Task {
    /// What `error` means for this task.
    pub fn on_error(&self, error: &DiskError) -> OnError {
        match self {
            // The log says the same as the snapshot.
            Self::ReadProducers => OnError::Told,
            Self::LoadIndex { .. }
            | Self::Read { .. }
            | Self::LookUp { .. }
            | Self::LookUpTurn { .. }
            | Self::ReadSeal { .. } => OnError::Told,
            Self::Extend { .. } if *error == DiskError::Full => OnError::Later,
            // A small file is written aside: what stood before still stands.
            Self::Close | Self::CheckpointFile if *error == DiskError::Full => OnError::Later,
            Self::Remove { .. } | Self::RemoveFolder => OnError::Later,
            _ => OnError::Final,
        }
    }
}

/// A request together with its purpose and whether it is background work.
pub(super) struct Planned {
    pub request: DiskRequest,
    pub task: Task,
    pub background: bool,
}

impl Planned {
    /// Something that somebody waits for.
    pub fn foreground(task: Task, request: DiskRequest) -> Self {
        Self {
            request,
            task,
            background: false,
        }
    }

    /// Something that runs in paced turns.
    pub fn background(task: Task, request: DiskRequest) -> Self {
        Self {
            background: true,
            ..Self::foreground(task, request)
        }
    }
}
