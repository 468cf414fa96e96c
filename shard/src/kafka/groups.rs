//! Consumer groups: membership and administration. The broker's own partition of the offsets topic
//! that keeps a group is asked through whichever core owns it.

use corelog_engine::admission::Action;
use corelog_engine::identity::PartitionId;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{GroupAction, GroupRequest, GroupResponse, Request, Response};
use corelog_net::kafka::groups::{self, GroupAnswer, Joiner, bare_code};
use corelog_wire::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest,
    LeaveGroupRequest, ListGroupsRequest, ListGroupsResponse, SyncGroupRequest, WireString,
};

use super::call::{Call, Pending, expect};
use crate::randomness::random_id;
use crate::shard::Asked;

/// Asks the coordinator of a group.
///
/// # Errors
/// The refusal, if there is nobody to ask or the asker may not.
pub(super) fn ask(call: &Call, group: &str, action: GroupAction) -> Result<Asked, Rejection> {
    call.authorize(Action::UseGroup(group))?;
    if group.is_empty() {
        return Err(Rejection::InvalidGroupId);
    }
    let coordinator = call
        .shard
        .image(|image| image.group_coordinator(group))
        .ok_or(Rejection::CoordinatorUnavailable)?;
    Ok(ask_coordinator(call, coordinator, group, action))
}

fn ask_coordinator(
    call: &Call,
    coordinator: PartitionId,
    group: &str,
    action: GroupAction,
) -> Asked {
    let request = GroupRequest {
        coordinator,
        group: group.to_owned(),
        action,
    };
    call.shard.ask(coordinator, Request::Group(request))
}

/// The coordinator's answer. A core that does not know the partition is no place to find a group.
pub(super) async fn answer(asked: Result<Asked, Rejection>) -> GroupAnswer {
    let answer = expect(asked?.await, |response| match response {
        Response::Group(response) => Some(response),
        _ => None,
    });
    answer.map_err(|rejection| match rejection {
        Rejection::NotLeader | Rejection::UnknownTopicOrPartition => Rejection::NotCoordinator,
        // 89 makes consumers give up; this one they try again in every call of a group.
        Rejection::Overloaded => Rejection::CoordinatorUnavailable,
        other => other,
    })
}

/// JoinGroup: answered when the group's members have joined.
pub(super) fn join(
    call: Call,
    client_id: Option<WireString>,
    request: JoinGroupRequest,
) -> Pending {
    let client_id = client_id.map(|id| id.to_string()).unwrap_or_default();
    let joiner = Joiner {
        new_member_id: new_member_id(&client_id),
        client_id,
        client_host: format!("/{}", call.peer.ip()),
    };
    let asked = groups::join(&request, call.version, joiner)
        .and_then(|join| ask(&call, &request.group_id, GroupAction::Join(join)));
    let member_id = request.member_id.to_string();
    Pending::later(async move {
        let joined = groups::joined(member_id, call.version, answer(asked).await);
        call.answer(&joined)
    })
}

/// A member's id, as clients expect them: their own name and something nobody else has.
fn new_member_id(client_id: &str) -> String {
    let id = u128::from_be_bytes(random_id());
    // A client's name may be as long as a frame; its beginning tells whose member it is.
    let client: String = client_id.chars().take(100).collect();
    format!(
        "{client}-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        id >> 96,
        id >> 80 & 0xffff,
        id >> 64 & 0xffff,
        id >> 48 & 0xffff,
        id & 0xffff_ffff_ffff
    )
}

/// SyncGroup: answered when the leader has assigned.
pub(super) fn sync(call: Call, request: SyncGroupRequest) -> Pending {
    let asked = groups::sync(&request)
        .and_then(|sync| ask(&call, &request.group_id, GroupAction::Sync(sync)));
    Pending::later(async move { call.answer(&groups::synced(answer(asked).await)) })
}

/// Heartbeat.
pub(super) fn heartbeat(call: Call, request: HeartbeatRequest) -> Pending {
    let fence = groups::fence(
        request.generation_id,
        &request.member_id,
        &request.group_instance_id,
    );
    let asked =
        fence.and_then(|fence| ask(&call, &request.group_id, GroupAction::Heartbeat(fence)));
    Pending::later(async move {
        let error_code = bare_code(&answer(asked).await);
        call.answer(&HeartbeatResponse {
            error_code,
            ..HeartbeatResponse::default()
        })
    })
}

/// LeaveGroup.
pub(super) fn leave(call: Call, request: LeaveGroupRequest) -> Pending {
    let members = groups::leaving(&request, call.version);
    let asked = ask(
        &call,
        &request.group_id,
        GroupAction::Leave(members.clone()),
    );
    Pending::later(
        async move { call.answer(&groups::left(members, call.version, answer(asked).await)) },
    )
}

/// DescribeGroups.
pub(super) fn describe(call: Call, request: DescribeGroupsRequest) -> Pending {
    let asked: Vec<_> = request
        .groups
        .iter()
        .map(|group| (group.detached(), ask(&call, group, GroupAction::Describe)))
        .collect();
    Pending::later(async move {
        let mut response = DescribeGroupsResponse::default();
        for (group, asked) in asked {
            let described = groups::described(
                group,
                call.version,
                answer(asked).await,
                request.include_authorized_operations,
            );
            response.groups.push(described);
        }
        call.answer(&response)
    })
}

/// ListGroups: every coordinator of this broker is asked.
pub(super) fn list(call: Call, request: ListGroupsRequest) -> Pending {
    let broker = call.shard.settings().broker;
    let coordinators: Vec<PartitionId> = call.shard.image(|image| {
        let partitions = image
            .offsets_topic()
            .into_iter()
            .flat_map(|topic| topic.iter());
        partitions
            .filter(|(_, partition)| partition.leader == broker)
            .map(|(id, _)| id)
            .collect()
    });
    let asked: Vec<Asked> = coordinators
        .into_iter()
        .map(|coordinator| ask_coordinator(&call, coordinator, "", GroupAction::List))
        .collect();
    Pending::later(async move {
        let mut response = ListGroupsResponse::default();
        for asked in asked {
            match answer(Ok(asked)).await {
                Ok(GroupResponse::Listed(groups)) => {
                    let visible = groups.into_iter().filter(|group| {
                        groups::is_listed(&request, group)
                            && call.authorize(Action::UseGroup(&group.group)).is_ok()
                    });
                    response.groups.extend(visible.map(groups::listed));
                }
                other => response.error_code = bare_code(&other),
            }
        }
        call.answer(&response)
    })
}

/// DeleteGroups.
pub(super) fn delete(call: Call, request: DeleteGroupsRequest) -> Pending {
    let names = request.groups_names.iter();
    let asked: Vec<_> = names
        .map(|group| (group.detached(), ask(&call, group, GroupAction::Delete)))
        .collect();
    Pending::later(async move {
        let mut response = DeleteGroupsResponse::default();
        for (group_id, asked) in asked {
            let error_code = bare_code(&answer(asked).await);
            response.results.push(DeletableGroupResult {
                group_id,
                error_code,
            });
        }
        call.answer(&response)
    })
}
