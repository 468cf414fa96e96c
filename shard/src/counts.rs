//! What the faces of one core count, beside what its state counts.
//!
//! Invariant: what is counted apart is one of a fixed set: nothing that a client sends makes a new
//! line of `/metrics`.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// One thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// A Kafka connection that the broker ended for what the client did.
    KafkaEnded(EndReason),
    /// An HTTP connection, likewise.
    HttpEnded(EndReason),
    /// An HTTP request: the label of its route, and the hundreds of its status.
    Answered(&'static str, u8),
    /// Something that the shard refused before any state was asked.
    Refused(ShardRefusal),
    /// A frame, body or answer that waited for room in the budget.
    BudgetWait,
    /// An offset past the end of its log that was to be committed.
    CommitPastEnd(PastEnd),
}

/// Why a connection was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndReason {
    /// A length that no frame may have, or a head above its limits.
    TooLarge,
    /// The header of a request, or an HTTP head, that cannot be read.
    Header,
    /// A body that is not what its header says.
    Body,
    /// An API or version that is not served.
    Unsupported,
    /// A frame or head that was begun and did not come in time.
    SlowSender,
    /// A publish without acknowledgement was refused: the only way to tell.
    RefusedWithoutAnswer,
}

impl EndReason {
    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Header => "malformed_header",
            Self::Body => "malformed_body",
            Self::Unsupported => "unsupported",
            Self::SlowSender => "slow_sender",
            Self::RefusedWithoutAnswer => "refused_without_answer",
        }
    }
}

/// What the shard refuses by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardRefusal {
    /// The inbox of the core that was to be asked is full.
    CoreQueueFull,
    /// Too many changes of metadata wait.
    MetadataQueueFull,
    /// It would take more than the core's whole budget.
    AboveBudget,
    /// The core has as many connections as it may, or no room to hear of another one.
    Connection,
}

impl ShardRefusal {
    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::CoreQueueFull => "core_queue_full",
            Self::MetadataQueueFull => "metadata_queue_full",
            Self::AboveBudget => "above_budget",
            Self::Connection => "connection",
        }
    }
}

/// What became of a commit past the end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PastEnd {
    /// Stored, as Kafka's clients expect.
    Stored,
    /// Refused, as HTTP promises.
    Refused,
}

impl PastEnd {
    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Refused => "refused",
        }
    }
}

/// How often each was counted.
pub type Counted = BTreeMap<Count, u64>;

/// The counters of one core.
#[derive(Debug, Default)]
pub struct Counts(RefCell<Counted>);

impl Counts {
    /// Counts one.
    pub fn count(&self, what: Count) {
        *self.0.borrow_mut().entry(what).or_default() += 1;
    }

    /// Counts what the shard refuses.
    pub fn refuse(&self, what: ShardRefusal) {
        self.count(Count::Refused(what));
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        self.0.borrow().clone()
    }
}
