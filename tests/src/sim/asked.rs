//! What a request that is not answered yet was about.

use std::collections::BTreeMap;

use corelog_engine::identity::PartitionId;
use corelog_engine::request::FetchPartition;

use super::group_ledger::MustRefuse;
use super::ledger::SentIndex;
use super::reading::PlainScan;

/// A request, as far as its answer is judged by it.
#[derive(Debug)]
pub(super) enum Asked {
    /// A publish.
    Publish {
        client: usize,
        partition: PartitionId,
        batches: Vec<SentIndex>,
        /// By a producer that knows it has been fenced.
        is_fenced: bool,
    },
    /// A fetch.
    Fetch {
        client: usize,
        partitions: Vec<FetchPartition>,
        /// Those of topics that the core knew to be gone before it was asked.
        gone: Vec<PartitionId>,
    },
    /// A look-up by time. What a plain scan finds, if everything was known.
    LookUp {
        partition: PartitionId,
        found: Option<PlainScan>,
    },
    /// Ends of a partition.
    Describe { partition: PartitionId },
    /// A member's request about its membership.
    Membership { client: usize },
    /// A commit of one offset.
    Commit {
        client: usize,
        partition: PartitionId,
        number: u64,
        must: MustRefuse,
    },
    /// A question for stored offsets.
    Committed {
        client: usize,
        floors: BTreeMap<PartitionId, u64>,
    },
}

impl Asked {
    pub(super) fn is_fetch(&self) -> bool {
        matches!(self, Self::Fetch { .. })
    }
}
