#![allow(clippy::unwrap_used, clippy::panic)]

use corelog_wire::{
    JoinGroupResponseMember, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};

use super::*;

fn metadata(partitions: i32) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.apply(&MetadataResponse {
        topics: vec![MetadataResponseTopic {
            name: Some("t".into()),
            partitions: (0..partitions)
                .map(|partition_index| MetadataResponsePartition {
                    partition_index,
                    ..MetadataResponsePartition::default()
                })
                .collect(),
            ..MetadataResponseTopic::default()
        }],
        ..MetadataResponse::default()
    });
    metadata
}

/// A member that has found its coordinator.
fn found() -> GroupMember {
    let mut member = GroupMember::new(GroupSettings::new("g", &["t"]));
    let action = member.next_action(&metadata(4), 0).unwrap();
    assert!(matches!(action, GroupAction::FindCoordinator(request) if request.key == *"g"));
    let response = FindCoordinatorResponse {
        host: "h".into(),
        port: 9092,
        ..FindCoordinatorResponse::default()
    };
    member.on_coordinator(&response, 0).unwrap();
    assert_eq!(member.coordinator().unwrap().host_port(), "h:9092");
    member
}

fn join_request(member: &mut GroupMember) -> JoinGroupRequest {
    match member.next_action(&metadata(4), 0).unwrap() {
        GroupAction::Join(request) => request,
        other => panic!("{other:?}"),
    }
}

fn joined(leader: &str, members: &[&str], generation_id: i32) -> JoinGroupResponse {
    let metadata = Subscription {
        topics: vec!["t".into()],
    };
    JoinGroupResponse {
        generation_id,
        protocol_name: Some("range".into()),
        leader: leader.into(),
        member_id: "me".into(),
        members: members
            .iter()
            .map(|id| JoinGroupResponseMember {
                member_id: (*id).into(),
                metadata: metadata.encode().unwrap(),
                ..JoinGroupResponseMember::default()
            })
            .collect(),
        ..JoinGroupResponse::default()
    }
}

/// A member in generation 7 with partitions 2 and 3.
fn stable() -> GroupMember {
    let mut member = found();
    member.on_join(joined("other", &[], 7), 0).unwrap();
    let assignment = Assignment {
        topics: vec![TopicPartitions {
            topic: "t".into(),
            partitions: vec![2, 3],
        }],
    };
    let response = SyncGroupResponse {
        assignment: assignment.encode().unwrap(),
        ..SyncGroupResponse::default()
    };
    member.on_sync(response, 0).unwrap();
    assert_eq!(member.take_assignment(), Some(assignment));
    assert_eq!(member.take_assignment(), None, "told once");
    member
}

#[test]
fn a_member_takes_the_id_that_it_is_given_and_joins_again() {
    let mut member = found();
    assert!(join_request(&mut member).member_id.is_empty());
    let response = JoinGroupResponse {
        error_code: ErrorCode::MEMBER_ID_REQUIRED,
        member_id: "me".into(),
        ..JoinGroupResponse::default()
    };
    member.on_join(response, 0).unwrap();
    assert_eq!(join_request(&mut member).member_id, *"me");
}

#[test]
fn the_leader_brings_everybodys_assignment() {
    let mut member = found();
    member
        .on_join(joined("me", &["me", "other"], 7), 0)
        .unwrap();
    let action = member.next_action(&metadata(4), 0).unwrap();
    let GroupAction::Sync(request) = action else {
        panic!("{action:?}")
    };
    assert_eq!(request.generation_id, 7);
    let assigned: Vec<(String, Vec<i32>)> = request
        .assignments
        .into_iter()
        .map(|one| {
            let assignment = Assignment::decode(one.assignment).unwrap();
            (
                one.member_id.to_string(),
                assignment.topics[0].partitions.clone(),
            )
        })
        .collect();
    assert_eq!(
        assigned,
        [("me".into(), vec![0, 1]), ("other".into(), vec![2, 3])]
    );
}

#[test]
fn a_leader_that_lacks_a_topic_asks_once_and_then_goes_on_without_it() {
    let mut member = found();
    member.on_join(joined("me", &["me"], 7), 0).unwrap();
    let nothing = Metadata::default();
    let action = member.next_action(&nothing, 0).unwrap();
    assert_eq!(action, GroupAction::NeedMetadata(vec!["t".into()]));
    let action = member.next_action(&nothing, 0).unwrap();
    assert!(matches!(action, GroupAction::Sync(_)));
}

#[test]
fn a_follower_brings_nothing() {
    let mut member = found();
    member.on_join(joined("other", &[], 7), 0).unwrap();
    let action = member.next_action(&metadata(4), 0).unwrap();
    assert!(matches!(action, GroupAction::Sync(request) if request.assignments.is_empty()));
}

#[test]
fn heartbeats_go_out_at_their_interval() {
    let mut member = stable();
    let next = |member: &mut GroupMember, now_ms| member.next_action(&metadata(4), now_ms).unwrap();
    assert_eq!(next(&mut member, 2_999), GroupAction::WaitUntil(3_000));
    assert!(
        matches!(next(&mut member, 3_000), GroupAction::Heartbeat(request)
        if request.generation_id == 7 && request.member_id == *"me")
    );
    member.on_heartbeat(ErrorCode::NONE, 3_100).unwrap();
    assert_eq!(next(&mut member, 3_100), GroupAction::WaitUntil(6_100));
}

#[test]
fn a_rebalance_makes_the_member_join_again_under_its_id() {
    let mut member = stable();
    member
        .on_heartbeat(ErrorCode::REBALANCE_IN_PROGRESS, 0)
        .unwrap();
    assert_eq!(join_request(&mut member).member_id, *"me");
}

#[test]
fn an_expired_member_joins_as_a_new_one() {
    let mut member = stable();
    member
        .on_heartbeat(ErrorCode::UNKNOWN_MEMBER_ID, 0)
        .unwrap();
    assert!(join_request(&mut member).member_id.is_empty());
    assert_eq!(member.generation(), -1);
}

#[test]
fn a_commit_carries_its_generation_and_one_left_behind_is_told() {
    let mut member = stable();
    let positions = [("t", 2, 10), ("t", 3, 11)];
    let request = member.commit_request(positions.into_iter());
    assert_eq!(request.generation_id_or_member_epoch, 7);
    assert_eq!(request.member_id, *"me");
    assert_eq!(request.topics.len(), 1);
    assert_eq!(request.topics[0].partitions[1].committed_offset, 11);
    let error = member
        .on_commit(ErrorCode::ILLEGAL_GENERATION, 0)
        .unwrap_err();
    assert!(matches!(error, GroupError::LeftBehind { .. }));
    assert!(!member.is_stable());
}

#[test]
fn a_moved_coordinator_is_looked_up_again_after_a_rest() {
    let mut member = stable();
    member
        .on_heartbeat(ErrorCode::NOT_COORDINATOR, 1_000)
        .unwrap();
    assert!(member.coordinator().is_none());
    let action = member.next_action(&metadata(4), 1_000).unwrap();
    assert_eq!(action, GroupAction::WaitUntil(1_100));
    let action = member.next_action(&metadata(4), 1_100).unwrap();
    assert!(matches!(action, GroupAction::FindCoordinator(_)));
}

#[test]
fn a_refusal_that_does_not_pass_is_an_error() {
    let mut member = found();
    let response = JoinGroupResponse {
        error_code: ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        ..JoinGroupResponse::default()
    };
    assert_eq!(
        member.on_join(response, 0).unwrap_err(),
        GroupError::Refused {
            request: "JoinGroup",
            code: ErrorCode::INCONSISTENT_GROUP_PROTOCOL
        }
    );
}

#[test]
fn only_a_member_that_joined_leaves() {
    assert!(
        GroupMember::new(GroupSettings::new("g", &["t"]))
            .leave_request()
            .is_none()
    );
    assert_eq!(stable().leave_request().unwrap().member_id, *"me");
}
