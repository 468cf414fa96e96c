//! The types that consensus is told to work with.

use std::fmt;
use std::io::Cursor;

use openraft::BasicNode;
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// Metadata records in, refusals out.
    pub(crate) Group:
        D = Proposal,
        R = Outcome,
        NodeId = u64,
        Node = BasicNode,
        Entry = openraft::Entry<Group>,
        SnapshotData = Cursor<Vec<u8>>,
);

pub(crate) type Entry = openraft::Entry<Group>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Membership = openraft::StoredMembership<u64, BasicNode>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, BasicNode>;
pub(crate) type Snapshot = openraft::Snapshot<Group>;
pub(crate) type StorageError = openraft::StorageError<u64>;
pub(crate) type StorageIoError = openraft::StorageIOError<u64>;
pub(crate) type Vote = openraft::Vote<u64>;

/// Encoded metadata records, one behind the other: one entry of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proposal {
    pub(crate) records: Vec<u8>,
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of metadata records", self.records.len())
    }
}

/// Which records of an entry the image refused, by their number in it, and why. The others have
/// been applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) refused: Vec<(u32, String)>,
}
