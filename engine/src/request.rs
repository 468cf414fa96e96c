//! Requests to one core, and its answers. One request concerns what one core owns: whoever accepts
//! a client's request splits it by owner and joins the answers.

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::identity::{Generation, LeaderEpoch, Offset, PartitionId};
use crate::publish::VerifiedBatches;
use crate::rejection::Rejection;
use crate::time::Monotonic;

/// Pairs a request with its answer; chosen by the asker, unique on the core that it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request to the core that owns the partition or coordinates the group.
#[derive(Clone, Debug)]
pub enum Request {
    /// Append to a partition; answered when the topic's durability contract is met.
    Publish(Publish),
    /// Read from partitions of this core, waiting for data if asked.
    Fetch(Fetch),
    /// Look up an offset by time or by name.
    FindOffset(FindOffset),
    /// Find where an epoch ends.
    FindEpochEnd(FindEpochEnd),
    /// Log start, end, size of a partition.
    DescribePartition(PartitionId),
    /// Everything about groups that this core coordinates.
    Group(GroupRequest),
}

/// One answer, or one refusal of the whole request.
pub type Answer = Result<Response, Rejection>;

/// The answers to [`Request`]s, variant by variant.
#[derive(Clone, Debug)]
pub enum Response {
    /// To [`Request::Publish`].
    Published(Published),
    /// To [`Request::Fetch`].
    Fetched(Vec<FetchedPartition>),
    /// To [`Request::FindOffset`].
    OffsetFound(FoundOffset),
    /// To [`Request::FindEpochEnd`]; `None` where history does not tell.
    EpochEnd(Option<EpochEnd>),
    /// To [`Request::DescribePartition`].
    Partition(PartitionDescription),
    /// To [`Request::Group`].
    Group(GroupResponse),
}

/// One partition's part of a publish.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Where to.
    pub partition: PartitionId,
    /// What, as the producer built it, checked on the core that accepted it.
    pub batches: VerifiedBatches,
    /// The epoch the client believes in, if it said.
    pub leader_epoch: Option<LeaderEpoch>,
    /// When the asker gives up; the outcome is then unknown.
    pub deadline: Monotonic,
}

/// The durability that an answered publish has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage of one broker.
    OneDisk,
    /// On stable storage in two zones.
    TwoZones,
}

impl Durability {
    /// The name in topic configuration and in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneDisk => "one-disk",
            Self::TwoZones => "two-zones",
        }
    }
}

/// A publish that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Offset of the first record; for a repeat the original one.
    pub first_offset: Offset,
    /// The oldest retained offset.
    pub log_start: Offset,
    /// When the log has its own append time, that; else `None`.
    pub append_time_ms: Option<u64>,
    /// The epoch in which it was appended.
    pub leader_epoch: LeaderEpoch,
    /// What the acknowledgement means.
    pub durability: Durability,
    /// Whether this was a repeat of a batch stored before.
    pub repeat: bool,
}

/// A read over partitions of one core.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// In the order in which they are served; the asker rotates it between requests.
    pub partitions: Vec<FetchPartition>,
    /// Answer as soon as this much is there; 0 and 1 both mean "anything".
    pub bytes_min: usize,
    /// At most this much in all; the first batch goes out even when it is larger.
    pub bytes_max: usize,
    /// Answer by then in any case.
    pub wait_until: Monotonic,
}

/// One partition of a [`Fetch`].
#[derive(Clone, Copy, Debug)]
pub struct FetchPartition {
    /// Which.
    pub partition: PartitionId,
    /// From where; the batch that contains it is served whole.
    pub offset: Offset,
    /// At most this much from it.
    pub bytes_max: usize,
    /// The epoch the client believes in, if it said (KIP-320).
    pub leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the last record that the asker has, if it wants to be told where its log leaves
    /// this one (KIP-595).
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

/// One partition's part of a fetch answer.
#[derive(Clone, Debug)]
pub struct FetchedPartition {
    /// Which.
    pub partition: PartitionId,
    /// Records or refusal.
    pub result: Result<Fetched, FetchRefusal>,
}

/// Records of one partition.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The commit watermark: the first offset not yet readable.
    pub watermark: Offset,
    /// The oldest retained offset.
    pub log_start: Offset,
    /// Whole batches, in order, by reference.
    pub batches: Vec<Bytes>,
    /// Where what the asker has leaves this log; nothing was read then.
    pub diverging: Option<EpochEnd>,
}

/// Why a partition was not read, and what is there.
#[derive(Clone, Copy, Debug)]
pub struct FetchRefusal {
    /// Why.
    pub rejection: Rejection,
    /// The oldest retained offset, where known.
    pub log_start: Option<Offset>,
    /// The first offset not yet readable, where known.
    pub watermark: Option<Offset>,
}

/// Looks up one offset of one partition.
#[derive(Clone, Copy, Debug)]
pub struct FindOffset {
    /// Which.
    pub partition: PartitionId,
    /// By what.
    pub by: OffsetQuery,
    /// The epoch the client believes in, if it said.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What an offset is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQuery {
    /// The oldest retained record (Kafka: -2).
    Earliest,
    /// The commit watermark (Kafka: -1).
    Latest,
    /// The record with the highest time stamp (Kafka: -3).
    MaxTimestamp,
    /// The first record with a time stamp at or past this.
    AtOrAfterMs(u64),
}

/// The answer to [`FindOffset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// `None` where no record has such a time stamp.
    pub offset: Option<Offset>,
    /// The found record's time stamp, where a record was looked for.
    pub timestamp_ms: Option<u64>,
    /// The epoch of the found record.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// Looks up where an epoch of one partition ends (KIP-101, KIP-320).
#[derive(Clone, Copy, Debug)]
pub struct FindEpochEnd {
    /// Which.
    pub partition: PartitionId,
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// The epoch the client believes in, if it said.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// An epoch and the first offset behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The newest epoch that is not newer than the one asked about.
    pub epoch: LeaderEpoch,
    /// Where it ends.
    pub end: Offset,
}

/// What a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Its leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// The oldest retained offset.
    pub log_start: Offset,
    /// The first offset not yet readable.
    pub watermark: Offset,
    /// Where the log ends, committed or not.
    pub log_end: Offset,
    /// What the retained log takes, in bytes, without space written ahead.
    pub log_bytes: u64,
}

/// A request about a group, to the core that owns its partition of the offsets topic.
#[derive(Clone, Debug)]
pub struct GroupRequest {
    /// The partition of the offsets topic that keeps the group.
    pub coordinator: PartitionId,
    /// The group; empty only where an action is about no single group.
    pub group: String,
    /// What to do.
    pub action: GroupAction,
}

/// What to do with a group. The classic protocol of Kafka (join, sync, heartbeat, leave).
#[derive(Clone, Debug)]
pub enum GroupAction {
    /// Become a member, or stay one in the next generation. Waits for the others.
    Join(Join),
    /// Give (as leader) or take the assignment. Waits for the leader.
    Sync(Sync),
    /// Stay a member.
    Heartbeat(MemberFence),
    /// Stop being members. Each with its static id, if it has one.
    Leave(Vec<LeavingMember>),
    /// Store offsets.
    Commit(Commit),
    /// Read stored offsets.
    Committed(OffsetsWanted),
    /// State and members.
    Describe,
    /// All groups of this coordinator partition.
    List,
    /// Remove an empty group and its offsets.
    Delete,
    /// Remove stored offsets of partitions that no member is subscribed to.
    DeleteOffsets(Vec<PartitionId>),
}

/// Joins a group.
#[derive(Clone, Debug)]
pub struct Join {
    /// Empty for a member that has no id yet.
    pub member_id: String,
    /// The id a new member gets, if one is needed: random, made by the asker.
    pub new_member_id: String,
    /// Static members (KIP-345) keep this over restarts.
    pub instance_id: Option<String>,
    /// Whether the asker must come back with its id first (KIP-394; Kafka from version 4 on).
    pub member_id_required: bool,
    /// Gone without a heartbeat for this long, the member is removed.
    pub session_timeout_ms: u32,
    /// A rebalance waits this long for members to join again.
    pub rebalance_timeout_ms: u32,
    /// "consumer", or what else the client uses.
    pub protocol_type: String,
    /// What the member can do, in its order of preference, with its metadata.
    pub protocols: Vec<(String, Bytes)>,
    /// For descriptions.
    pub client_id: String,
    /// For descriptions.
    pub client_host: String,
}

/// Gives or takes an assignment.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Who asks.
    pub fence: MemberFence,
    /// If given, must match the group's.
    pub protocol_type: Option<String>,
    /// If given, must match the group's.
    pub protocol: Option<String>,
    /// From the leader: an assignment for each member.
    pub assignments: Vec<(String, Bytes)>,
}

/// Names a member of one generation; an older one is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFence {
    /// The generation.
    pub generation: Generation,
    /// The member.
    pub member_id: String,
    /// Its static id, if it has one.
    pub instance_id: Option<String>,
}

/// A member that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavingMember {
    /// Its id; may be empty for a static member.
    pub member_id: String,
    /// Its static id, if it has one.
    pub instance_id: Option<String>,
}

/// Stores offsets.
#[derive(Clone, Debug)]
pub struct Commit {
    /// `None`: an administrator or a consumer without a group session; accepted only while the
    /// group has no members.
    pub fence: Option<MemberFence>,
    /// What to store.
    pub offsets: Vec<OffsetToCommit>,
}

/// One partition's offset to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetToCommit {
    /// Which.
    pub partition: PartitionId,
    /// The next offset to process.
    pub offset: Offset,
    /// The epoch of the last processed record, if known.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The client's own note.
    pub metadata: String,
}

/// Which stored offsets to read.
#[derive(Clone, Debug)]
pub struct OffsetsWanted {
    /// A member's fence, if it named one.
    pub fence: Option<MemberFence>,
    /// `None`: all of the group.
    pub partitions: Option<Vec<PartitionId>>,
}

/// The answers to [`GroupAction`]s.
#[derive(Clone, Debug)]
pub enum GroupResponse {
    /// To a join.
    Joined(Joined),
    /// A join that must come back with this member id ([`Rejection::MemberIdRequired`]).
    MemberIdRequired(String),
    /// To a sync.
    Synced {
        /// The member's part.
        assignment: Bytes,
        /// The group's protocol type.
        protocol_type: String,
        /// The chosen protocol.
        protocol: String,
    },
    /// To a heartbeat.
    Alive,
    /// To a leave, member by member.
    Left(Vec<Result<(), Rejection>>),
    /// To a commit, partition by partition.
    Committed(Vec<(PartitionId, Result<(), Rejection>)>),
    /// To a question for offsets: stored ones only.
    Offsets(Vec<CommittedOffset>),
    /// To a description. A group that was never seen is `Dead` with no members.
    Described(GroupDescription),
    /// To a listing.
    Listed(Vec<GroupListing>),
    /// To a removal.
    Deleted,
    /// To a removal of offsets, partition by partition.
    OffsetsDeleted(Vec<(PartitionId, Result<(), Rejection>)>),
}

/// A finished join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The new generation.
    pub generation: Generation,
    /// The group's protocol type.
    pub protocol_type: String,
    /// The chosen protocol.
    pub protocol: String,
    /// The member that assigns.
    pub leader: String,
    /// The asker's own id.
    pub member_id: String,
    /// For the leader only: everyone, with metadata.
    pub members: Vec<JoinedMember>,
    /// The leader is a returned static one and must not assign again (KIP-814).
    pub skip_assignment: bool,
}

/// A member as the leader of its group sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: String,
    /// Its static id, if it has one.
    pub instance_id: Option<String>,
    /// Its metadata for the chosen protocol.
    pub metadata: Bytes,
}

/// A stored offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Of which partition.
    pub partition: PartitionId,
    /// The next offset to process.
    pub offset: Offset,
    /// As given with it.
    pub leader_epoch: Option<LeaderEpoch>,
    /// As given with it.
    pub metadata: String,
    /// When it was stored.
    pub commit_time_ms: u64,
}

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// No members.
    Empty,
    /// Waiting for members to join.
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    /// Everyone has an assignment.
    Stable,
    /// No such group.
    Dead,
}

impl GroupState {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// A group, as described to administrators.
#[derive(Clone, Debug)]
pub struct GroupDescription {
    /// Where it stands.
    pub state: GroupState,
    /// Its generation.
    pub generation: Generation,
    /// Its protocol type, empty if it has none.
    pub protocol_type: String,
    /// Its chosen protocol, empty if it has none.
    pub protocol: String,
    /// Its members.
    pub members: Vec<MemberDescription>,
}

/// A member, as described to administrators.
#[derive(Clone, Debug)]
pub struct MemberDescription {
    /// Its id.
    pub member_id: String,
    /// Its static id, if it has one.
    pub instance_id: Option<String>,
    /// As it gave it.
    pub client_id: String,
    /// Where it connected from.
    pub client_host: String,
    /// Its metadata for the chosen protocol.
    pub metadata: Bytes,
    /// What it was given.
    pub assignment: Bytes,
}

/// A group in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// Its id.
    pub group: String,
    /// Its protocol type.
    pub protocol_type: String,
    /// Where it stands.
    pub state: GroupState,
}
