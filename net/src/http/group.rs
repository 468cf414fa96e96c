//! Groups: join, heartbeat, leave, describe, list.
//!
//! An HTTP member is a member of Kafka's classic protocol like any other: protocol type `consumer`,
//! protocols `range` and `roundrobin`, a subscription as its metadata. One `members:join` does what a
//! Kafka client does with JoinGroup and SyncGroup: the shard sends [`JoinBody::check`]'s join, then a sync,
//! with [`assign_as_leader`]'s assignments if the group elected this member. It waits for the other members
//! at most as long as a rebalance may take.
//!
//! The lease is the session timeout: heartbeats and fetches renew it, and when it ends the member is
//! removed and its partitions go to others. A heartbeat answered `rebalance_in_progress` means: join again
//! with the same `member_id`.

use std::collections::BTreeSet;

use bytes::Bytes;
use corelog_engine::identity::Offset;
use corelog_engine::limits::{MEMBER_BLOB_BYTES_MAX, SESSION_TIMEOUT_MS, TOPIC_NAME_BYTES_MAX};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    GroupDescription, GroupListing, Join, Joined, LeavingMember, MemberFence,
};
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::body::bounded;
use super::consumer_protocol::{
    Assignment, Assignor, Subscriber, decode_assignment, decode_subscription, encode_assignment,
    encode_subscription,
};
use super::fetch::member_fence;
use super::limits::{LEASE_MS_DEFAULT, TOPICS_MAX};
use super::problem::{PartProblem, Problem};

/// The protocol type of members that share out partitions.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// The body of `members:join`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinBody {
    #[serde(deserialize_with = "bounded::<_, _, TOPICS_MAX>")]
    topics: Vec<String>,
    session_timeout_ms: Option<u32>,
    rebalance_timeout_ms: Option<u32>,
    member_id: Option<String>,
    instance_id: Option<String>,
}

/// What the connection knows of a joining client, for descriptions, and the id it gets if it is new.
#[derive(Clone, Debug)]
pub struct JoiningClient {
    /// Random, made by the shard.
    pub new_member_id: String,
    /// Its `user-agent`, or empty.
    pub client_id: String,
    /// Where it connected from.
    pub client_host: String,
}

impl JoinBody {
    /// The join to ask the group for. The rebalance timeout is the session timeout unless named.
    ///
    /// # Errors
    ///
    /// 400 for no topics or a name longer than any topic's, and for a timeout outside its limits.
    pub fn check(self, client: JoiningClient) -> Result<Join, Problem> {
        let topics: BTreeSet<String> = self.topics.into_iter().collect();
        if topics.is_empty() {
            return Err(Problem::invalid("topics must name at least one topic"));
        }
        if topics
            .iter()
            .any(|topic| topic.is_empty() || topic.len() > TOPIC_NAME_BYTES_MAX)
        {
            return Err(Rejection::InvalidTopic.into());
        }
        let session_timeout_ms = self.session_timeout_ms.unwrap_or(LEASE_MS_DEFAULT);
        let rebalance_timeout_ms = self.rebalance_timeout_ms.unwrap_or(session_timeout_ms);
        for timeout_ms in [session_timeout_ms, rebalance_timeout_ms] {
            if !SESSION_TIMEOUT_MS.contains(&timeout_ms) {
                return Err(Rejection::InvalidSessionTimeout.into());
            }
        }
        let subscription = encode_subscription(topics.iter().map(String::as_str));
        Ok(Join {
            member_id: self.member_id.unwrap_or_default(),
            new_member_id: client.new_member_id,
            instance_id: self.instance_id,
            member_id_required: false,
            session_timeout_ms,
            rebalance_timeout_ms,
            protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
            protocols: Assignor::ALL
                .map(|assignor| (assignor.name().to_owned(), subscription.clone()))
                .to_vec(),
            client_id: client.client_id,
            client_host: client.client_host,
        })
    }
}

/// Names a member that its group has elected to assign: the assignment of every member, for its sync.
/// Empty where this member is not the leader, or is a returned static one that must not assign again.
///
/// # Errors
///
/// [`Rejection::InconsistentGroupProtocol`] if the chosen protocol or a member's metadata is not of the
/// consumer protocol; [`Rejection::RecordListTooLarge`] if an assignment is above
/// `MEMBER_BLOB_BYTES_MAX`.
pub fn assign_as_leader(
    joined: &Joined,
    partition_count: impl Fn(&str) -> Option<u32>,
) -> Result<Vec<(String, Bytes)>, Rejection> {
    if joined.leader != joined.member_id || joined.skip_assignment {
        return Ok(Vec::new());
    }
    let inconsistent = Rejection::InconsistentGroupProtocol;
    let assignor = Assignor::named(&joined.protocol).ok_or(inconsistent)?;
    let mut members = Vec::with_capacity(joined.members.len());
    for member in &joined.members {
        members.push(Subscriber {
            member_id: member.member_id.clone(),
            instance_id: member.instance_id.clone(),
            topics: decode_subscription(&member.metadata).map_err(|_| inconsistent)?,
        });
    }
    let assignments = assignor.assign(&members, partition_count);
    let mut encoded = Vec::with_capacity(members.len());
    for (member, assignment) in members.into_iter().zip(&assignments) {
        let bytes = encode_assignment(assignment);
        if bytes.len() > MEMBER_BLOB_BYTES_MAX {
            return Err(Rejection::RecordListTooLarge);
        }
        encoded.push((member.member_id, bytes));
    }
    Ok(encoded)
}

#[derive(Serialize)]
struct AssignedView<'a> {
    topic: &'a str,
    partitions: &'a [u32],
}

fn assigned_views(assignment: &Assignment) -> Vec<AssignedView<'_>> {
    assignment
        .iter()
        .map(|(topic, partitions)| AssignedView { topic, partitions })
        .collect()
}

/// 200 with the member's id, generation, lease and assignment.
pub fn join_answer(joined: &Joined, assignment: &Assignment, lease_ms: u32) -> Answer {
    #[derive(Serialize)]
    struct JoinedView<'a> {
        member_id: &'a str,
        generation: u32,
        lease_ms: u32,
        assignment: Vec<AssignedView<'a>>,
    }
    Answer::json(
        200,
        &JoinedView {
            member_id: &joined.member_id,
            generation: joined.generation.get(),
            lease_ms,
            assignment: assigned_views(assignment),
        },
    )
}

/// The body of `members:heartbeat`; its answer is [`Answer::done`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatBody {
    member_id: String,
    generation: u32,
    instance_id: Option<String>,
}

impl HeartbeatBody {
    /// Whose lease to renew.
    ///
    /// # Errors
    ///
    /// 400 for an empty id.
    pub fn fence(self) -> Result<MemberFence, Problem> {
        member_fence(
            Some(self.member_id),
            Some(self.generation),
            self.instance_id,
        )?
        .ok_or_else(|| Problem::invalid("member_id must not be empty"))
    }
}

/// The body of `members:leave`; its answer is [`Answer::done`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaveBody {
    member_id: Option<String>,
    instance_id: Option<String>,
}

impl LeaveBody {
    /// Who leaves.
    ///
    /// # Errors
    ///
    /// 400 if neither id is named.
    pub fn member(self) -> Result<LeavingMember, Problem> {
        let member = LeavingMember {
            member_id: self.member_id.unwrap_or_default(),
            instance_id: self.instance_id,
        };
        if member.member_id.is_empty() && member.instance_id.is_none() {
            return Err(Problem::invalid("name the member_id or the instance_id"));
        }
        Ok(member)
    }
}

/// How far a group is behind on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionLag {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// What the group committed; `None` on an assigned partition without a commit.
    pub committed: Option<Offset>,
    /// What the partition holds, or why that is not known now.
    pub held: Result<HeldRange, Rejection>,
}

/// What a lag is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRange {
    /// The oldest retained offset.
    pub log_start: Offset,
    /// The first offset not yet readable.
    pub watermark: Offset,
    /// Bytes of the retained log.
    pub log_bytes: u64,
    /// Time stamp of the oldest record not yet processed, where there is one and it is known.
    pub oldest_unread_ms: Option<u64>,
}

impl PartitionLag {
    /// Where reading goes on: what was committed, or the log's start if that has moved past it.
    fn next(&self, held: &HeldRange) -> Offset {
        self.committed
            .map_or(held.log_start, |committed| committed.max(held.log_start))
    }

    fn records(&self, held: &HeldRange) -> u64 {
        held.watermark.get().saturating_sub(self.next(held).get())
    }

    /// The unread share of the log's bytes: exact at both ends, an estimate between, as records differ in
    /// size.
    fn bytes(&self, held: &HeldRange) -> u64 {
        let retained = held.watermark.get().saturating_sub(held.log_start.get());
        let unread = u128::from(self.records(held)) * u128::from(held.log_bytes);
        unread
            .checked_div(u128::from(retained))
            .map_or(0, |bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Records past the commit that retention has removed before they were processed.
    fn expired(&self, held: &HeldRange) -> u64 {
        self.committed.map_or(0, |committed| {
            held.log_start.get().saturating_sub(committed.get())
        })
    }
}

#[derive(Serialize)]
struct LagView<'a> {
    topic: &'a str,
    partition: u32,
    committed_offset: Option<u64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    lag: Option<LagNumbers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<PartProblem>,
}

#[derive(Clone, Copy, Default, Serialize)]
struct LagNumbers {
    log_start: u64,
    watermark: u64,
    lag_records: u64,
    lag_bytes: u64,
    lag_ms: Option<u64>,
    expired_records: u64,
}

impl LagNumbers {
    fn new(lag: &PartitionLag, held: &HeldRange, now_ms: u64) -> Self {
        let records = lag.records(held);
        let age_ms = held
            .oldest_unread_ms
            .map(|oldest_ms| now_ms.saturating_sub(oldest_ms));
        Self {
            log_start: held.log_start.get(),
            watermark: held.watermark.get(),
            lag_records: records,
            lag_bytes: lag.bytes(held),
            lag_ms: if records == 0 { Some(0) } else { age_ms },
            expired_records: lag.expired(held),
        }
    }
}

#[derive(Serialize)]
struct MemberView<'a> {
    member_id: &'a str,
    instance_id: Option<&'a str>,
    client_id: &'a str,
    client_host: &'a str,
    /// Null where the member is not of the consumer protocol.
    assignment: Option<serde_json::Value>,
}

/// 200 with state, members, and per partition how far the group is behind.
pub fn group_answer(
    group: &str,
    description: &GroupDescription,
    lags: &[PartitionLag],
    now_ms: u64,
) -> Answer {
    #[derive(Serialize)]
    struct GroupView<'a> {
        group: &'a str,
        state: &'static str,
        generation: u32,
        protocol_type: &'a str,
        protocol: &'a str,
        members: Vec<MemberView<'a>>,
        lag_records: u64,
        lag_bytes: u64,
        lag_ms: Option<u64>,
        partitions: Vec<LagView<'a>>,
    }
    let members = description.members.iter().map(|member| MemberView {
        member_id: &member.member_id,
        instance_id: member.instance_id.as_deref(),
        client_id: &member.client_id,
        client_host: &member.client_host,
        assignment: decode_assignment(&member.assignment)
            .ok()
            .and_then(|assignment| serde_json::to_value(assigned_views(&assignment)).ok()),
    });
    let partitions: Vec<LagView<'_>> = lags
        .iter()
        .map(|lag| LagView {
            topic: &lag.topic,
            partition: lag.partition,
            committed_offset: lag.committed.map(Offset::get),
            lag: lag
                .held
                .as_ref()
                .ok()
                .map(|held| LagNumbers::new(lag, held, now_ms)),
            error: lag
                .held
                .err()
                .map(|rejection| PartProblem::new(rejection, None)),
        })
        .collect();
    let numbers = || partitions.iter().filter_map(|partition| partition.lag);
    let view = GroupView {
        group,
        state: description.state.name(),
        generation: description.generation.get(),
        protocol_type: &description.protocol_type,
        protocol: &description.protocol,
        members: members.collect(),
        lag_records: numbers()
            .map(|lag| lag.lag_records)
            .fold(0, u64::saturating_add),
        lag_bytes: numbers()
            .map(|lag| lag.lag_bytes)
            .fold(0, u64::saturating_add),
        lag_ms: numbers().filter_map(|lag| lag.lag_ms).max(),
        partitions,
    };
    Answer::json(200, &view)
}

/// 200 with one page of groups, in the order of names, and `next_after` while there are more.
pub fn groups_answer(groups: &[GroupListing], more: bool) -> Answer {
    #[derive(Serialize)]
    struct Listing<'a> {
        groups: Vec<ListedView<'a>>,
        next_after: Option<&'a str>,
    }
    #[derive(Serialize)]
    struct ListedView<'a> {
        group: &'a str,
        state: &'static str,
        protocol_type: &'a str,
    }
    let last = groups.last().map(|listing| listing.group.as_str());
    let listed = groups.iter().map(|listing| ListedView {
        group: &listing.group,
        state: listing.state.name(),
        protocol_type: &listing.protocol_type,
    });
    let listing = Listing {
        groups: listed.collect(),
        next_after: last.filter(|_| more),
    };
    Answer::json(200, &listing)
}
