//! A member of a consumer group, by the classic protocol: join, sync, heartbeat, commit.
//!
//! The life of a member: [`GroupMember::next_action`] asks for the coordinator → for a join, which the
//! coordinator holds back until all members have come → for a sync, to which the leader brings everyone's
//! assignment → [`GroupMember::take_assignment`] gives this member's → heartbeats, until one says that
//! the group forms anew, and so on from the join.
//!
//! Invariants:
//! 1. One request is asked for at a time; the next one comes after its answer or its loss.
//! 2. A commit carries the member and generation of the assignment that it belongs to, so a member that was
//!    left behind cannot move positions of others.

mod assignment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use corelog_wire::{
    ErrorCode, FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, JoinGroupRequest,
    JoinGroupRequestProtocol, JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest,
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetFetchRequest,
    OffsetFetchRequestTopic, SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse,
    WireString,
};

pub use self::assignment::{Assignment, Subscription, TopicPartitions, assign_ranges};
use super::metadata::{BrokerAddress, Metadata};

const PROTOCOL_TYPE: WireString = WireString::from_static("consumer");
const RANGE: WireString = WireString::from_static("range");
const COORDINATOR_OF_GROUP: i8 = 0;

/// How a member behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// The group.
    pub group: String,
    /// The topics that the member wants to read.
    pub topics: Vec<String>,
    /// After how long without a heartbeat the member counts as gone, in milliseconds.
    pub session_timeout_ms: i32,
    /// How long the group waits for its members when it forms anew, in milliseconds.
    pub rebalance_timeout_ms: i32,
    /// How often a heartbeat goes out, in milliseconds.
    pub heartbeat_interval_ms: u64,
    /// How long the member rests after a refusal that may pass, in milliseconds.
    pub retry_backoff_ms: u64,
}

impl GroupSettings {
    /// Kafka's own defaults.
    pub fn new(group: &str, topics: &[&str]) -> Self {
        Self {
            group: group.to_owned(),
            topics: topics.iter().map(ToString::to_string).collect(),
            session_timeout_ms: 45_000,
            rebalance_timeout_ms: 60_000,
            heartbeat_interval_ms: 3_000,
            retry_backoff_ms: 100,
        }
    }
}

/// Why a member cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// The coordinator refuses for good.
    Refused {
        /// What was asked.
        request: &'static str,
        /// Its code.
        code: ErrorCode,
    },
    /// The member is no longer in the generation that it commits for: what it read since the last commit is
    /// read again by others.
    LeftBehind {
        /// The coordinator's code.
        code: ErrorCode,
    },
    /// Another member's blob, or the assignment, cannot be read.
    Malformed,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { request, code } => {
                write!(f, "the group's coordinator refuses {request}: {code}")
            }
            Self::LeftBehind { code } => write!(
                f,
                "this member is no longer in the group's generation ({code}); poll again to rejoin, \
                 and process faster than the session timeout"
            ),
            Self::Malformed => f.write_str(
                "what members of the group say to each other cannot be read; do all use the range assignor?",
            ),
        }
    }
}

impl std::error::Error for GroupError {}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupAction {
    /// Ask any broker, then [`GroupMember::on_coordinator`].
    FindCoordinator(FindCoordinatorRequest),
    /// Ask the coordinator, then [`GroupMember::on_join`]. The answer may take as long as the rebalance
    /// timeout.
    Join(JoinGroupRequest),
    /// This member leads and needs these topics' partitions: refresh the metadata, then ask again.
    NeedMetadata(Vec<String>),
    /// Ask the coordinator, then [`GroupMember::on_sync`].
    Sync(SyncGroupRequest),
    /// Ask the coordinator, then [`GroupMember::on_heartbeat`].
    Heartbeat(HeartbeatRequest),
    /// Nothing until then.
    WaitUntil(u64),
}

#[derive(Debug)]
enum State {
    /// The coordinator is not known.
    Lost { rests_until_ms: u64 },
    /// To join.
    Joining { rests_until_ms: u64 },
    /// Joined; a leader has the members' subscriptions.
    Syncing {
        members: Option<BTreeMap<String, Subscription>>,
        metadata_asked: bool,
    },
    /// In a generation with an assignment.
    Stable { heartbeat_at_ms: u64 },
}

/// One member.
///
/// ```no_run
/// use corelog_client::core::{GroupAction, GroupMember, GroupSettings, Metadata};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let metadata = Metadata::default();
/// let mut member = GroupMember::new(GroupSettings::new("billing", &["orders"]));
/// match member.next_action(&metadata, 0)? {
///     GroupAction::FindCoordinator(request) => { /* ask, then `on_coordinator` */ }
///     GroupAction::WaitUntil(at_ms) => { /* read and process records */ }
///     _ => { /* likewise */ }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GroupMember {
    settings: GroupSettings,
    state: State,
    coordinator: Option<BrokerAddress>,
    member_id: WireString,
    generation: i32,
    protocol: WireString,
    assignment: Option<Assignment>,
}

impl GroupMember {
    /// A member that has not joined.
    pub fn new(settings: GroupSettings) -> Self {
        Self {
            settings,
            state: State::Lost { rests_until_ms: 0 },
            coordinator: None,
            member_id: WireString::default(),
            generation: -1,
            protocol: RANGE,
            assignment: None,
        }
    }

    /// Where the coordinator listens, once it is known.
    pub fn coordinator(&self) -> Option<&BrokerAddress> {
        self.coordinator.as_ref()
    }

    /// The generation, or -1 outside of one.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Whether this member is in a generation with an assignment.
    pub fn is_stable(&self) -> bool {
        matches!(self.state, State::Stable { .. })
    }

    /// The next thing to do.
    ///
    /// # Errors
    /// [`GroupError::Refused`] if the assignment cannot be written, which topic names that brokers accept
    /// never cause.
    pub fn next_action(
        &mut self,
        metadata: &Metadata,
        now_ms: u64,
    ) -> Result<GroupAction, GroupError> {
        let group_id = WireString::from(self.settings.group.as_str());
        match &mut self.state {
            State::Lost { rests_until_ms } | State::Joining { rests_until_ms }
                if *rests_until_ms > now_ms =>
            {
                Ok(GroupAction::WaitUntil(*rests_until_ms))
            }
            State::Lost { .. } => Ok(GroupAction::FindCoordinator(FindCoordinatorRequest {
                key: group_id,
                key_type: COORDINATOR_OF_GROUP,
                ..FindCoordinatorRequest::default()
            })),
            State::Joining { .. } => self.join_request().map(GroupAction::Join),
            State::Syncing {
                members,
                metadata_asked,
            } => {
                let unknown: Vec<String> = members
                    .iter()
                    .flat_map(BTreeMap::values)
                    .flat_map(|subscription| &subscription.topics)
                    .filter(|topic| metadata.topic(topic).is_none())
                    .cloned()
                    .collect();
                if !unknown.is_empty() && !*metadata_asked {
                    *metadata_asked = true;
                    return Ok(GroupAction::NeedMetadata(unknown));
                }
                let assignments = members.as_ref().map_or_else(BTreeMap::new, |members| {
                    assign_ranges(members, |topic| {
                        metadata.partition_count(topic).map(u32::from)
                    })
                });
                self.sync_request(&assignments).map(GroupAction::Sync)
            }
            State::Stable { heartbeat_at_ms } if *heartbeat_at_ms > now_ms => {
                Ok(GroupAction::WaitUntil(*heartbeat_at_ms))
            }
            State::Stable { .. } => Ok(GroupAction::Heartbeat(HeartbeatRequest {
                group_id,
                generation_id: self.generation,
                member_id: self.member_id.clone(),
                ..HeartbeatRequest::default()
            })),
        }
    }

    /// The coordinator was looked up.
    ///
    /// # Errors
    /// A refusal that does not pass.
    pub fn on_coordinator(
        &mut self,
        response: &FindCoordinatorResponse,
        now_ms: u64,
    ) -> Result<(), GroupError> {
        if !response.error_code.is_none() {
            return self.on_refusal("FindCoordinator", response.error_code, now_ms);
        }
        self.coordinator = Some(BrokerAddress {
            host: response.host.to_string(),
            port: u16::try_from(response.port).unwrap_or(0),
            rack: None,
        });
        self.state = State::Joining { rests_until_ms: 0 };
        Ok(())
    }

    /// The join was answered.
    ///
    /// # Errors
    /// A refusal that does not pass, or another member's blob that cannot be read.
    pub fn on_join(&mut self, response: JoinGroupResponse, now_ms: u64) -> Result<(), GroupError> {
        match response.error_code {
            ErrorCode::NONE => {}
            // The coordinator gives the id first, so that a lost answer leaves no ghost (KIP-394).
            ErrorCode::MEMBER_ID_REQUIRED => {
                self.member_id = response.member_id.detached();
                return Ok(());
            }
            code => return self.on_refusal("JoinGroup", code, now_ms),
        }
        self.member_id = response.member_id.detached();
        self.generation = response.generation_id;
        self.protocol = response.protocol_name.map_or(RANGE, |name| name.detached());
        let leads = response.leader == self.member_id;
        let members = if leads {
            let mut members = BTreeMap::new();
            for member in response.members {
                let subscription =
                    Subscription::decode(member.metadata).map_err(|_| GroupError::Malformed)?;
                members.insert(member.member_id.to_string(), subscription);
            }
            Some(members)
        } else {
            None
        };
        self.state = State::Syncing {
            members,
            metadata_asked: false,
        };
        Ok(())
    }

    /// The sync was answered.
    ///
    /// # Errors
    /// A refusal that does not pass, or an assignment that cannot be read.
    pub fn on_sync(&mut self, response: SyncGroupResponse, now_ms: u64) -> Result<(), GroupError> {
        if !response.error_code.is_none() {
            return self.on_refusal("SyncGroup", response.error_code, now_ms);
        }
        let assignment =
            Assignment::decode(response.assignment).map_err(|_| GroupError::Malformed)?;
        self.assignment = Some(assignment);
        self.state = State::Stable {
            heartbeat_at_ms: now_ms + self.settings.heartbeat_interval_ms,
        };
        Ok(())
    }

    /// A heartbeat was answered.
    ///
    /// # Errors
    /// A refusal that does not pass.
    pub fn on_heartbeat(&mut self, code: ErrorCode, now_ms: u64) -> Result<(), GroupError> {
        if !code.is_none() {
            return self.on_refusal("Heartbeat", code, now_ms);
        }
        if let State::Stable { heartbeat_at_ms } = &mut self.state {
            *heartbeat_at_ms = now_ms + self.settings.heartbeat_interval_ms;
        }
        Ok(())
    }

    /// A commit was answered with this code for one of its partitions.
    ///
    /// # Errors
    /// [`GroupError::LeftBehind`] when the positions were not stored because the group has moved on;
    /// [`GroupError::Refused`] for anything else.
    pub fn on_commit(&mut self, code: ErrorCode, now_ms: u64) -> Result<(), GroupError> {
        match code {
            ErrorCode::NONE => Ok(()),
            ErrorCode::UNKNOWN_MEMBER_ID
            | ErrorCode::ILLEGAL_GENERATION
            | ErrorCode::REBALANCE_IN_PROGRESS => {
                self.on_refusal("OffsetCommit", code, now_ms)?;
                Err(GroupError::LeftBehind { code })
            }
            code => {
                self.on_refusal("OffsetCommit", code, now_ms)?;
                Err(GroupError::Refused {
                    request: "OffsetCommit",
                    code,
                })
            }
        }
    }

    /// The coordinator's connection ended: it is looked up again.
    pub fn on_connection_lost(&mut self, now_ms: u64) {
        self.coordinator = None;
        self.state = State::Lost {
            rests_until_ms: now_ms + self.settings.retry_backoff_ms,
        };
    }

    /// The assignment of a new generation, once.
    pub fn take_assignment(&mut self) -> Option<Assignment> {
        self.assignment.take()
    }

    /// The request for the positions that are stored for these partitions.
    pub fn offset_fetch_request(&self, assignment: &Assignment) -> OffsetFetchRequest {
        let topics = assignment
            .topics
            .iter()
            .map(|topic| OffsetFetchRequestTopic {
                name: topic.topic.as_str().into(),
                partition_indexes: topic.partitions.clone(),
            });
        OffsetFetchRequest {
            group_id: self.settings.group.as_str().into(),
            topics: Some(topics.collect()),
            ..OffsetFetchRequest::default()
        }
    }

    /// The request that stores positions: the offset behind the last record that was processed.
    pub fn commit_request<'a>(
        &self,
        positions: impl Iterator<Item = (&'a str, i32, i64)>,
    ) -> OffsetCommitRequest {
        let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
        for (topic, partition_index, committed_offset) in positions {
            let partition = OffsetCommitRequestPartition {
                partition_index,
                committed_offset,
                ..OffsetCommitRequestPartition::default()
            };
            match topics.last_mut() {
                Some(last) if last.name == *topic => last.partitions.push(partition),
                _ => topics.push(OffsetCommitRequestTopic {
                    name: topic.into(),
                    partitions: vec![partition],
                    ..OffsetCommitRequestTopic::default()
                }),
            }
        }
        OffsetCommitRequest {
            group_id: self.settings.group.as_str().into(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.member_id.clone(),
            topics,
            ..OffsetCommitRequest::default()
        }
    }

    /// The request to leave, if the member ever joined: its partitions then pass on at once.
    pub fn leave_request(&self) -> Option<LeaveGroupRequest> {
        if self.member_id.is_empty() {
            return None;
        }
        Some(LeaveGroupRequest {
            group_id: self.settings.group.as_str().into(),
            member_id: self.member_id.clone(),
            ..LeaveGroupRequest::default()
        })
    }

    fn join_request(&self) -> Result<JoinGroupRequest, GroupError> {
        let subscription = Subscription {
            topics: self.settings.topics.clone(),
        };
        let metadata = subscription.encode().map_err(|_| GroupError::Refused {
            request: "JoinGroup",
            code: ErrorCode::INVALID_TOPIC_EXCEPTION,
        })?;
        Ok(JoinGroupRequest {
            group_id: self.settings.group.as_str().into(),
            session_timeout_ms: self.settings.session_timeout_ms,
            rebalance_timeout_ms: self.settings.rebalance_timeout_ms,
            member_id: self.member_id.clone(),
            protocol_type: PROTOCOL_TYPE,
            protocols: vec![JoinGroupRequestProtocol {
                name: RANGE,
                metadata,
            }],
            ..JoinGroupRequest::default()
        })
    }

    fn sync_request(
        &self,
        assignments: &BTreeMap<String, Assignment>,
    ) -> Result<SyncGroupRequest, GroupError> {
        let mut encoded = Vec::new();
        for (member, assignment) in assignments {
            let assignment = assignment.encode().map_err(|_| GroupError::Malformed)?;
            encoded.push(SyncGroupRequestAssignment {
                member_id: member.as_str().into(),
                assignment,
            });
        }
        Ok(SyncGroupRequest {
            group_id: self.settings.group.as_str().into(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            protocol_type: Some(PROTOCOL_TYPE),
            protocol_name: Some(self.protocol.clone()),
            assignments: encoded,
            ..SyncGroupRequest::default()
        })
    }

    fn on_refusal(
        &mut self,
        request: &'static str,
        code: ErrorCode,
        now_ms: u64,
    ) -> Result<(), GroupError> {
        let rests_until_ms = now_ms + self.settings.retry_backoff_ms;
        match code {
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.coordinator = None;
                self.state = State::Lost { rests_until_ms };
            }
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS if self.coordinator.is_some() => {
                self.state = State::Joining { rests_until_ms };
            }
            ErrorCode::UNKNOWN_MEMBER_ID => {
                self.member_id = WireString::default();
                self.generation = -1;
                self.state = State::Joining { rests_until_ms: 0 };
            }
            ErrorCode::ILLEGAL_GENERATION | ErrorCode::REBALANCE_IN_PROGRESS => {
                self.state = State::Joining { rests_until_ms: 0 };
            }
            code if code.is_retriable() => self.state = State::Lost { rests_until_ms },
            code => return Err(GroupError::Refused { request, code }),
        }
        Ok(())
    }
}
