//! Events that reach a core, and effects that leave it: both small closed enums.

use alloc::vec::Vec;

use crate::disk::{DiskLevel, DiskRequest, DiskResult, OperationId};
use crate::identity::PartitionId;
use crate::metadata::MetadataRecord;
use crate::request::{Answer, Request, RequestId};

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A client's request, or its part for this core.
    Request {
        /// Chosen by the asker.
        id: RequestId,
        /// What is asked.
        request: Request,
    },
    /// The asker needs an answer to its waiting fetch now, or is gone. Other requests ignore it.
    Hurry(RequestId),
    /// A disk request came back.
    Disk {
        /// Which.
        operation: OperationId,
        /// With what.
        result: DiskResult,
    },
    /// The next record of the metadata log, in order, none left out.
    Metadata(MetadataRecord),
    /// There is more or less room on the disk.
    DiskLevel(DiskLevel),
    /// Time has passed; see `CoreState::next_wake`.
    Tick,
    /// Finish: refuse new publishes, write checkpoints, mark logs clean. `CoreState::is_stopped`
    /// says when.
    Stop,
}

/// What to do.
#[derive(Debug)]
pub enum Effect {
    /// Perform a disk request and report [`Event::Disk`].
    Disk {
        /// Goes back with the result.
        operation: OperationId,
        /// What to do.
        request: DiskRequest,
        /// Foreground work goes first; background work runs in paced turns.
        background: bool,
    },
    /// Answer a request, exactly once.
    Reply {
        /// Which.
        id: RequestId,
        /// With what.
        answer: Answer,
    },
    /// Ask the control plane for a metadata record; it comes back as [`Event::Metadata`].
    Propose(MetadataRecord),
    /// Tell the operator.
    Report(Report),
}

/// Something an operator should hear of.
#[derive(Clone, Debug)]
pub enum Report {
    /// A partition's log is stopped.
    LogStopped(PartitionId, alloc::string::String),
    /// A partition's producer snapshot was lost, as is said, and its table made from the log.
    ProducersRebuilt(PartitionId, alloc::string::String),
    /// Recovery of a partition is done.
    Recovered {
        /// Which.
        partition: PartitionId,
        /// Bytes read above the checkpoint.
        scanned_bytes: u64,
        /// Bytes cut from the tail.
        cut_bytes: u64,
    },
}

/// Effects of one step, in the order in which they were decided.
pub type Effects = Vec<Effect>;
