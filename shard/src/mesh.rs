//! What travels between the cores of a broker, and between cores and the support thread. All of it
//! over bounded channels.

use std::collections::HashMap;

use corelog_engine::core_state::Counters;
use corelog_engine::disk::DiskLevel;
use corelog_engine::identity::{LogId, PartitionId, Producer, TopicId};
use corelog_engine::metadata::decisions::{TopicPlan, TopicRequest};
use corelog_engine::metadata::{MetadataRecord, Refusal};
use corelog_engine::request::{Answer, PartitionDescription, Request, RequestId};

use crate::counts::Counted;
use crate::uring::Accepted;
use crate::uring::channel::{Receiver, Reply, Sender};

/// Messages that one core may have waiting. A full inbox refuses requests with `Overloaded`.
pub const INBOX_MESSAGES_MAX: usize = 16_384;

/// Wishes that may wait for the support thread.
pub const SUPPORT_MESSAGES_MAX: usize = 65_536;

/// Which protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// Kafka's.
    Kafka,
    /// HTTP/1.1.
    Http,
}

/// To one core.
#[derive(Debug)]
pub enum ToCore {
    /// A request about what this core owns.
    Request {
        /// Chosen by the asking core; its index stands in the upper bits.
        id: RequestId,
        /// What is asked.
        request: Request,
        /// Where the answer goes.
        reply: Reply<Answer>,
    },
    /// The asker of a waiting fetch needs its answer now, or is gone.
    Hurry(RequestId),
    /// A connection to serve.
    Accepted(Accepted, Face),
    /// The next record of the metadata log.
    Metadata(MetadataRecord),
    /// Answered once everything before it in the inbox is done and every log is open.
    Barrier(Reply<()>),
    /// There is more or less room on the disk.
    DiskLevel(DiskLevel),
    /// Whether the core has nothing more of a deleted topic, on disk or in work.
    HasLetGo(TopicId, Reply<bool>),
    /// How the core stands.
    Report(Reply<CoreReport>),
    /// Finish and end.
    Stop,
}

/// How one core stands, for metrics, health and descriptions.
#[derive(Clone, Debug)]
pub struct CoreReport {
    /// Whether every log is open and every coordinator has loaded.
    pub is_ready: bool,
    /// Logs open, and logs in all.
    pub opened: (usize, usize),
    /// What was counted.
    pub counters: Counters,
    /// What its faces counted.
    pub counted: Counted,
    /// Bytes taken of the core's budget, and the budget.
    pub budget_bytes: (usize, usize),
    /// Bytes of the tail cache.
    pub tail_cache_bytes: usize,
    /// Connections open on each face: Kafka, HTTP.
    pub connections: (usize, usize),
    /// What each partition holds.
    pub partitions: HashMap<PartitionId, PartitionDescription>,
    /// Disk operations under way, and those that wait for one to end.
    pub disk_operations: (usize, usize),
    /// Room on the disk.
    pub disk_level: DiskLevel,
}

/// A new topic, or why not.
pub type TopicAnswer = Result<TopicPlan, Refusal>;

/// To the support thread.
#[derive(Debug)]
pub enum ToSupport {
    /// A log has its first append; no answer but the record itself, in its turn.
    LogBegins {
        /// The partition.
        partition: PartitionId,
        /// The log.
        log_id: LogId,
    },
    /// Make a topic. Answered once every core knows it.
    CreateTopic(TopicRequest, Reply<TopicAnswer>),
    /// Delete a topic. Answered once every core knows it.
    DeleteTopic(TopicId, Reply<Result<(), Refusal>>),
    /// A producer identity: a new one, or the next epoch of this one.
    GrantProducer(Option<Producer>, Reply<Result<Producer, Refusal>>),
    /// Finish and end.
    Stop,
}

/// The sending ends to every core of the broker, by core index.
pub type CoreSenders = Vec<Sender<ToCore>>;

/// One core's inbox.
pub type Inbox = Receiver<ToCore>;
