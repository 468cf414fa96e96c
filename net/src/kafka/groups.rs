//! Membership of consumer groups, and their administration.

use bytes::Bytes;
use corelog_engine::identity::Generation;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    GroupDescription, GroupListing, GroupResponse, GroupState, Join, LeavingMember, MemberFence,
    Sync,
};
use corelog_wire::{
    DescribedGroup, DescribedGroupMember, ErrorCode, JoinGroupRequest, JoinGroupResponse,
    JoinGroupResponseMember, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest, ListedGroup,
    MemberResponse, SyncGroupRequest, SyncGroupResponse, WireString,
};

use super::cluster::GROUP_OPERATIONS;
use super::error_code;

/// First version in which a member without id gets one and must come back with it (KIP-394).
const MEMBER_ID_REQUIRED_FROM: i16 = 4;
/// First version that takes several members out of a group (KIP-345).
const LEAVE_LIST_FROM: i16 = 3;
/// First version that tells a returned static leader not to assign (KIP-814).
const SKIP_ASSIGNMENT_FROM: i16 = 9;
/// The one kind of group that is built, by Kafka's name for it.
const CLASSIC: &str = "classic";

/// The answer of a coordinator.
pub type GroupAnswer = Result<GroupResponse, Rejection>;

/// An answer that belongs to another request: the asker learns that something is wrong here.
const MISMATCH: Rejection = Rejection::CoordinatorUnavailable;

/// Who joins, as the connection knows it.
#[derive(Clone, Debug)]
pub struct Joiner {
    /// The id that a new member gets.
    pub new_member_id: String,
    /// The client's name for itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
}

fn text(wire: &WireString) -> String {
    wire.as_str().to_owned()
}

fn optional_text(wire: &Option<WireString>) -> Option<String> {
    wire.as_ref().map(text)
}

fn wire(text: String) -> WireString {
    WireString::from(text)
}

/// A member's fence.
///
/// # Errors
/// [`Rejection::IllegalGeneration`] for a generation below zero, which no group has.
pub fn fence(
    generation: i32,
    member_id: &WireString,
    instance_id: &Option<WireString>,
) -> Result<MemberFence, Rejection> {
    let generation = u32::try_from(generation).map_err(|_| Rejection::IllegalGeneration)?;
    Ok(MemberFence {
        generation: Generation(generation),
        member_id: text(member_id),
        instance_id: optional_text(instance_id),
    })
}

/// What a JoinGroup asks.
///
/// # Errors
/// [`Rejection::InvalidSessionTimeout`] for one below zero.
pub fn join(request: &JoinGroupRequest, version: i16, joiner: Joiner) -> Result<Join, Rejection> {
    let session_timeout_ms =
        u32::try_from(request.session_timeout_ms).map_err(|_| Rejection::InvalidSessionTimeout)?;
    let protocol = |protocol: &corelog_wire::JoinGroupRequestProtocol| {
        (
            text(&protocol.name),
            Bytes::copy_from_slice(&protocol.metadata),
        )
    };
    Ok(Join {
        member_id: text(&request.member_id),
        new_member_id: joiner.new_member_id,
        instance_id: optional_text(&request.group_instance_id),
        member_id_required: version >= MEMBER_ID_REQUIRED_FROM,
        session_timeout_ms,
        rebalance_timeout_ms: u32::try_from(request.rebalance_timeout_ms)
            .unwrap_or(session_timeout_ms),
        protocol_type: text(&request.protocol_type),
        protocols: request.protocols.iter().map(protocol).collect(),
        client_id: joiner.client_id,
        client_host: joiner.client_host,
    })
}

/// The answer to a JoinGroup by `member_id`. A client that cannot be told to skip the assignment is not
/// told that it leads, as Kafka does: its assignment would be passed over.
pub fn joined(member_id: String, version: i16, answer: GroupAnswer) -> JoinGroupResponse {
    let mut joined = match answer {
        Ok(GroupResponse::Joined(joined)) => joined,
        Ok(GroupResponse::MemberIdRequired(given)) => {
            return not_joined(given, Rejection::MemberIdRequired);
        }
        Ok(_) => return not_joined(member_id, MISMATCH),
        Err(rejection) => return not_joined(member_id, rejection),
    };
    if joined.skip_assignment && version < SKIP_ASSIGNMENT_FROM {
        joined.leader.clear();
        joined.members.clear();
    }
    let member = |member: corelog_engine::request::JoinedMember| JoinGroupResponseMember {
        member_id: wire(member.member_id),
        group_instance_id: member.instance_id.map(wire),
        metadata: member.metadata,
    };
    JoinGroupResponse {
        generation_id: generation_id(joined.generation),
        protocol_type: Some(wire(joined.protocol_type)),
        protocol_name: Some(wire(joined.protocol)),
        leader: wire(joined.leader),
        skip_assignment: joined.skip_assignment,
        member_id: wire(joined.member_id),
        members: joined.members.into_iter().map(member).collect(),
        ..JoinGroupResponse::default()
    }
}

fn not_joined(member_id: String, rejection: Rejection) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: error_code(rejection),
        member_id: wire(member_id),
        ..JoinGroupResponse::default()
    }
}

fn generation_id(generation: Generation) -> i32 {
    i32::try_from(generation.get()).unwrap_or(i32::MAX)
}

/// What a SyncGroup asks.
///
/// # Errors
/// As [`fence`].
pub fn sync(request: &SyncGroupRequest) -> Result<Sync, Rejection> {
    let assignment = |given: &corelog_wire::SyncGroupRequestAssignment| {
        (
            text(&given.member_id),
            Bytes::copy_from_slice(&given.assignment),
        )
    };
    Ok(Sync {
        fence: fence(
            request.generation_id,
            &request.member_id,
            &request.group_instance_id,
        )?,
        protocol_type: optional_text(&request.protocol_type),
        protocol: optional_text(&request.protocol_name),
        assignments: request.assignments.iter().map(assignment).collect(),
    })
}

/// The answer to a SyncGroup.
pub fn synced(answer: GroupAnswer) -> SyncGroupResponse {
    match answer {
        Ok(GroupResponse::Synced {
            assignment,
            protocol_type,
            protocol,
        }) => SyncGroupResponse {
            protocol_type: Some(wire(protocol_type)),
            protocol_name: Some(wire(protocol)),
            assignment,
            ..SyncGroupResponse::default()
        },
        Ok(_) => not_synced(MISMATCH),
        Err(rejection) => not_synced(rejection),
    }
}

fn not_synced(rejection: Rejection) -> SyncGroupResponse {
    SyncGroupResponse {
        error_code: error_code(rejection),
        ..SyncGroupResponse::default()
    }
}

/// The members that leave: one up to version 2, a list from then on.
pub fn leaving(request: &LeaveGroupRequest, version: i16) -> Vec<LeavingMember> {
    if version < LEAVE_LIST_FROM {
        return vec![LeavingMember {
            member_id: text(&request.member_id),
            instance_id: None,
        }];
    }
    let member = |member: &corelog_wire::MemberIdentity| LeavingMember {
        member_id: text(&member.member_id),
        instance_id: optional_text(&member.group_instance_id),
    };
    request.members.iter().map(member).collect()
}

/// The answer to a LeaveGroup by these members.
pub fn left(members: Vec<LeavingMember>, version: i16, answer: GroupAnswer) -> LeaveGroupResponse {
    let outcomes = match answer {
        Ok(GroupResponse::Left(outcomes)) if outcomes.len() == members.len() => outcomes,
        Ok(_) => return not_left(MISMATCH),
        Err(rejection) => return not_left(rejection),
    };
    if version < LEAVE_LIST_FROM {
        let refusal = outcomes.into_iter().find_map(Result::err);
        return refusal.map_or_else(LeaveGroupResponse::default, not_left);
    }
    let member = |(member, outcome): (LeavingMember, Result<(), Rejection>)| MemberResponse {
        member_id: wire(member.member_id),
        group_instance_id: member.instance_id.map(wire),
        error_code: super::outcome_code(&outcome),
    };
    LeaveGroupResponse {
        members: members.into_iter().zip(outcomes).map(member).collect(),
        ..LeaveGroupResponse::default()
    }
}

fn not_left(rejection: Rejection) -> LeaveGroupResponse {
    LeaveGroupResponse {
        error_code: error_code(rejection),
        ..LeaveGroupResponse::default()
    }
}

/// The code of an answer that has nothing else to say.
pub fn bare_code(answer: &GroupAnswer) -> ErrorCode {
    super::outcome_code(answer)
}

/// First version of DescribeGroups that has an error for a group that does not exist (KIP-1043).
const GROUP_NOT_FOUND_FROM: i16 = 6;

/// A group, described.
pub fn described(
    group: WireString,
    version: i16,
    answer: GroupAnswer,
    with_operations: bool,
) -> DescribedGroup {
    let description = match answer {
        Ok(GroupResponse::Described(description)) => description,
        Ok(_) => return not_described(group, MISMATCH),
        Err(rejection) => return not_described(group, rejection),
    };
    if version >= GROUP_NOT_FOUND_FROM && description.state == GroupState::Dead {
        let text = WireString::from_static(Rejection::GroupIdNotFound.text());
        return DescribedGroup {
            error_message: Some(text),
            group_state: WireString::from_static(GroupState::Dead.name()),
            ..not_described(group, Rejection::GroupIdNotFound)
        };
    }
    let mut described = described_group(group, description);
    if with_operations {
        described.authorized_operations = GROUP_OPERATIONS;
    }
    described
}

fn described_group(group_id: WireString, description: GroupDescription) -> DescribedGroup {
    let member = |member: corelog_engine::request::MemberDescription| DescribedGroupMember {
        member_id: wire(member.member_id),
        group_instance_id: member.instance_id.map(wire),
        client_id: wire(member.client_id),
        client_host: wire(member.client_host),
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    };
    DescribedGroup {
        group_id,
        group_state: WireString::from_static(description.state.name()),
        protocol_type: wire(description.protocol_type),
        protocol_data: wire(description.protocol),
        members: description.members.into_iter().map(member).collect(),
        ..DescribedGroup::default()
    }
}

fn not_described(group_id: WireString, rejection: Rejection) -> DescribedGroup {
    DescribedGroup {
        error_code: error_code(rejection),
        group_id,
        ..DescribedGroup::default()
    }
}

/// Whether a ListGroups wants this group.
pub fn is_listed(request: &ListGroupsRequest, group: &GroupListing) -> bool {
    let any = |filter: &[WireString], name: &str| {
        filter.is_empty()
            || filter
                .iter()
                .any(|wanted| wanted.eq_ignore_ascii_case(name))
    };
    any(&request.states_filter, group.state.name()) && any(&request.types_filter, CLASSIC)
}

/// A group in a listing.
pub fn listed(group: GroupListing) -> ListedGroup {
    ListedGroup {
        group_id: wire(group.group),
        protocol_type: wire(group.protocol_type),
        group_state: WireString::from_static(group.state.name()),
        group_type: WireString::from_static(CLASSIC),
    }
}
