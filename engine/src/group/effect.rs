//! What a coordinator asks its caller to do.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::identity::Offset;
use crate::rejection::Rejection;
use crate::request::{GroupResponse, RequestId};

/// Names one append of a coordinator. Tokens rise in the order in which the appends must reach
/// the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppendToken(pub u64);

/// A record of the coordinator's own partition of the offsets topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// What it is about.
    pub key: Bytes,
    /// What holds from now on; `None` removes.
    pub value: Option<Bytes>,
}

impl GroupRecord {
    /// Length of key and value, in bytes.
    pub fn bytes_len(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// What to do.
#[derive(Clone, Debug)]
pub enum GroupEffect {
    /// Answer a request; each is answered at most once, and exactly once unless cancelled.
    Reply {
        /// Which.
        id: RequestId,
        /// With what.
        answer: Result<GroupResponse, Rejection>,
    },
    /// Append these records as one batch (all or nothing) to the coordinator's own partition, in
    /// the order of the tokens, and report with [`super::Coordinator::appended`].
    Append {
        /// Goes back with the outcome.
        token: AppendToken,
        /// The batch's records.
        records: Vec<GroupRecord>,
    },
    /// A snapshot is complete and committed: everything below this offset may go.
    MoveLogStart(Offset),
}

/// Effects of one call, in the order in which they were decided.
pub type GroupEffects = Vec<GroupEffect>;
