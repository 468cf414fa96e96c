use bytes::Bytes;
use corelog_engine::identity::{
    Generation, LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicId,
};
use corelog_engine::metadata::DEFAULT_TENANT;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    CommittedOffset, GroupResponse, Joined, JoinedMember, LeavingMember,
};
use corelog_wire::{
    ErrorCode, JoinGroupRequest, LeaveGroupRequest, MemberIdentity, OffsetCommitRequest,
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetFetchRequest,
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics, Uuid,
};

use super::{Cluster, text};
use crate::kafka::cluster::{CoordinatorKind, coordinator, find_coordinator};
use crate::kafka::group_offsets::{CommitPlan, offsets_plans, offsets_response};
use crate::kafka::groups::{Joiner, fence, join, joined, leaving, left};

fn joiner() -> Joiner {
    Joiner {
        new_member_id: "new".into(),
        client_id: "c".into(),
        client_host: "/h".into(),
    }
}

#[test]
fn a_new_member_must_come_back_with_its_id_from_version_4_on() {
    let request = JoinGroupRequest {
        session_timeout_ms: 9_000,
        ..JoinGroupRequest::default()
    };
    assert!(!join(&request, 3, joiner()).unwrap().member_id_required);
    assert!(join(&request, 4, joiner()).unwrap().member_id_required);
    let answer = joined(
        "".into(),
        4,
        Ok(GroupResponse::MemberIdRequired("new".into())),
    );
    assert_eq!(
        (answer.error_code, answer.member_id.as_str()),
        (ErrorCode::MEMBER_ID_REQUIRED, "new")
    );
}

#[test]
fn a_returned_static_leader_is_told_to_skip_or_not_told_that_it_leads() {
    let returned = || {
        Ok(GroupResponse::Joined(Joined {
            generation: Generation(3),
            protocol_type: "consumer".into(),
            protocol: "range".into(),
            leader: "me".into(),
            member_id: "me".into(),
            members: vec![JoinedMember {
                member_id: "me".into(),
                instance_id: Some("i".into()),
                metadata: Bytes::new(),
            }],
            skip_assignment: true,
        }))
    };
    let told = joined(String::new(), 9, returned());
    assert_eq!((told.leader.as_str(), told.members.len()), ("me", 1));
    assert!(told.skip_assignment);
    let older = joined(String::new(), 8, returned());
    assert_eq!((older.leader.as_str(), older.members.len()), ("", 0));
    assert_eq!(older.member_id.as_str(), "me");
}

#[test]
fn version_0_rebalances_within_the_session_timeout() {
    let request = JoinGroupRequest {
        session_timeout_ms: 9_000,
        ..JoinGroupRequest::default()
    };
    assert_eq!(request.rebalance_timeout_ms, -1);
    assert_eq!(
        join(&request, 0, joiner()).unwrap().rebalance_timeout_ms,
        9_000
    );
    let negative = JoinGroupRequest {
        session_timeout_ms: -1,
        ..JoinGroupRequest::default()
    };
    assert_eq!(
        join(&negative, 0, joiner()).unwrap_err(),
        Rejection::InvalidSessionTimeout
    );
}

#[test]
fn one_member_leaves_with_a_code_and_several_with_one_each() {
    let single = LeaveGroupRequest {
        member_id: text("m"),
        ..LeaveGroupRequest::default()
    };
    let members = leaving(&single, 2);
    assert_eq!(
        members,
        [LeavingMember {
            member_id: "m".into(),
            instance_id: None
        }]
    );
    let unknown = || Ok(GroupResponse::Left(vec![Err(Rejection::UnknownMember)]));
    assert_eq!(
        left(members, 2, unknown()).error_code,
        ErrorCode::UNKNOWN_MEMBER_ID
    );

    let member = MemberIdentity {
        member_id: text("m"),
        group_instance_id: Some(text("i")),
        ..MemberIdentity::default()
    };
    let list = LeaveGroupRequest {
        members: vec![member],
        ..LeaveGroupRequest::default()
    };
    let answer = left(leaving(&list, 3), 3, unknown());
    assert_eq!(answer.error_code, ErrorCode::NONE);
    assert_eq!(answer.members[0].error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(answer.members[0].group_instance_id, Some(text("i")));
}

#[test]
fn a_generation_below_zero_is_no_generation() {
    assert_eq!(
        fence(-1, &text("m"), &None).unwrap_err(),
        Rejection::IllegalGeneration
    );
}

fn commit(generation: i32, member: &str, topics: &[(&str, i32, i64)]) -> OffsetCommitRequest {
    let topic =
        |(name, partition_index, committed_offset): &(&str, i32, i64)| OffsetCommitRequestTopic {
            name: text(name),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: *partition_index,
                committed_offset: *committed_offset,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        };
    OffsetCommitRequest {
        group_id: text("g"),
        generation_id_or_member_epoch: generation,
        member_id: text(member),
        topics: topics.iter().map(topic).collect(),
        ..OffsetCommitRequest::default()
    }
}

#[test]
fn each_partition_of_a_commit_has_its_own_outcome() {
    let mut cluster = Cluster::new();
    let topic = cluster.create("t", 2).topic;
    let request = commit(
        -1,
        "",
        &[("t", 0, 5), ("t", 9, 5), ("nowhere", 0, 5), ("t", 1, -3)],
    );
    let mut plan =
        CommitPlan::read(&request, 7, &cluster.image, DEFAULT_TENANT, |_| Ok(())).unwrap();
    let wanted = plan.take_commit();
    assert_eq!(wanted.fence, None);
    let [only] = <[_; 1]>::try_from(wanted.offsets).unwrap();
    assert_eq!(
        (only.partition, only.offset),
        (
            PartitionId {
                topic,
                partition: PartitionIndex(0)
            },
            Offset(5)
        )
    );
    let answer = Ok(GroupResponse::Committed(vec![(only.partition, Ok(()))]));
    let response = plan.response(&answer);
    let codes: Vec<_> = response
        .topics
        .iter()
        .map(|topic| topic.partitions[0].error_code)
        .collect();
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(
        codes,
        [
            ErrorCode::NONE,
            unknown,
            unknown,
            ErrorCode::OFFSET_OUT_OF_RANGE
        ]
    );
}

#[test]
fn a_refused_commit_refuses_each_partition() {
    let mut cluster = Cluster::new();
    cluster.create("t", 1);
    let request = commit(4, "m", &[("t", 0, 5)]);
    let mut plan =
        CommitPlan::read(&request, 7, &cluster.image, DEFAULT_TENANT, |_| Ok(())).unwrap();
    assert_eq!(plan.take_commit().fence.unwrap().member_id, "m");
    let response = plan.response(&Err(Rejection::IllegalGeneration));
    assert_eq!(
        response.topics[0].partitions[0].error_code,
        ErrorCode::ILLEGAL_GENERATION
    );
    let half = CommitPlan::read(
        &commit(-1, "m", &[("t", 0, 5)]),
        7,
        &cluster.image,
        DEFAULT_TENANT,
        |_| Ok(()),
    );
    assert_eq!(half.unwrap_err(), Rejection::IllegalGeneration);
}

#[test]
fn topics_that_the_asker_may_not_read_are_refused_alone() {
    let mut cluster = Cluster::new();
    cluster.create("t", 1);
    cluster.create("u", 1);
    let readable = |name: &str| {
        if name == "u" {
            Ok(())
        } else {
            Err(Rejection::TopicAuthorizationFailed)
        }
    };
    let request = commit(-1, "", &[("t", 0, 5), ("u", 0, 5)]);
    let plan = CommitPlan::read(&request, 7, &cluster.image, DEFAULT_TENANT, readable).unwrap();
    assert_eq!(plan.commit.offsets.len(), 1);
}

fn stored(topic: TopicId, partition: u32, offset: u64) -> CommittedOffset {
    CommittedOffset {
        partition: PartitionId {
            topic,
            partition: PartitionIndex(partition),
        },
        offset: Offset(offset),
        leader_epoch: Some(LeaderEpoch(2)),
        metadata: "note".into(),
        commit_time_ms: 1,
    }
}

#[test]
fn an_unknown_group_has_offset_minus_one_and_no_error() {
    let mut cluster = Cluster::new();
    cluster.create("t", 1);
    for version in [1, 2, 7] {
        let topics = vec![OffsetFetchRequestTopic {
            name: text("t"),
            partition_indexes: vec![0, 5],
        }];
        let request = OffsetFetchRequest {
            group_id: text("g"),
            topics: Some(topics),
            ..OffsetFetchRequest::default()
        };
        let [plan] = <[_; 1]>::try_from(offsets_plans(&request, version)).unwrap();
        assert_eq!(
            plan.partitions(&cluster.image, DEFAULT_TENANT)
                .unwrap()
                .len(),
            1
        );
        let group = plan.response(
            &cluster.image,
            DEFAULT_TENANT,
            Ok(GroupResponse::Offsets(Vec::new())),
        );
        let response = offsets_response(vec![group], &[], version);
        for partition in &response.topics[0].partitions {
            assert_eq!(
                (partition.committed_offset, partition.error_code),
                (-1, ErrorCode::NONE)
            );
        }
    }
}

#[test]
fn version_1_tells_a_refusal_in_each_partition() {
    let topics = vec![OffsetFetchRequestTopic {
        name: text("t"),
        partition_indexes: vec![0, 5],
    }];
    let request = OffsetFetchRequest {
        group_id: text("g"),
        topics: Some(topics),
        ..OffsetFetchRequest::default()
    };
    let cluster = Cluster::new();
    let [plan] = <[_; 1]>::try_from(offsets_plans(&request, 1)).unwrap();
    let shapes = [plan.shape()];
    let group = plan.response(
        &cluster.image,
        DEFAULT_TENANT,
        Err(Rejection::CoordinatorLoading),
    );
    let response = offsets_response(vec![group], &shapes, 1);
    let codes: Vec<_> = response.topics[0]
        .partitions
        .iter()
        .map(|partition| partition.error_code)
        .collect();
    assert_eq!(codes, [ErrorCode::COORDINATOR_LOAD_IN_PROGRESS; 2]);
}

#[test]
fn all_offsets_of_a_group_come_by_name_and_those_of_deleted_topics_do_not() {
    let mut cluster = Cluster::new();
    let (kept, gone) = (
        cluster.create("kept", 2).topic,
        cluster.create("gone", 1).topic,
    );
    cluster.delete(gone);
    let group = OffsetFetchRequestGroup {
        group_id: text("g"),
        ..OffsetFetchRequestGroup::default()
    };
    let request = OffsetFetchRequest {
        groups: vec![group],
        ..OffsetFetchRequest::default()
    };
    let [plan] = <[_; 1]>::try_from(offsets_plans(&request, 9)).unwrap();
    assert_eq!(plan.partitions(&cluster.image, DEFAULT_TENANT), None);
    let answer = Ok(GroupResponse::Offsets(vec![
        stored(kept, 1, 8),
        stored(gone, 0, 3),
    ]));
    let response = plan.response(&cluster.image, DEFAULT_TENANT, answer);
    let [topic] = <[_; 1]>::try_from(response.topics).unwrap();
    assert_eq!(topic.name, text("kept"));
    let partition = &topic.partitions[0];
    assert_eq!(
        (
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch
        ),
        (1, 8, 2)
    );
}

#[test]
fn an_unknown_topic_id_is_an_error_where_an_unknown_name_is_none() {
    let cluster = Cluster::new();
    let topic = OffsetFetchRequestTopics {
        topic_id: Uuid([9; 16]),
        partition_indexes: vec![0],
        ..OffsetFetchRequestTopics::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: text("g"),
        topics: Some(vec![topic]),
        ..OffsetFetchRequestGroup::default()
    };
    let request = OffsetFetchRequest {
        groups: vec![group],
        ..OffsetFetchRequest::default()
    };
    let code = |version| {
        let [plan] = <[_; 1]>::try_from(offsets_plans(&request, version)).unwrap();
        let response = plan.response(
            &cluster.image,
            DEFAULT_TENANT,
            Ok(GroupResponse::Offsets(Vec::new())),
        );
        response.topics[0].partitions[0].error_code
    };
    assert_eq!(code(10), ErrorCode::UNKNOWN_TOPIC_ID);
    assert_eq!(code(9), ErrorCode::NONE);
}

#[test]
fn a_group_is_coordinated_by_a_node_of_metadata_and_transactions_by_none() {
    let cluster = Cluster::new();
    let node = find_coordinator(&cluster.image, CoordinatorKind::Group, "g").unwrap();
    assert_eq!(
        (node.id, node.host.as_str(), node.port),
        (3, "broker.example", 9092)
    );
    let refused = find_coordinator(&cluster.image, CoordinatorKind::Transaction, "t");
    let answer = coordinator(text("t"), refused);
    assert_eq!(
        answer.error_code,
        ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    );
    assert!(!answer.error_code.is_retriable());
    assert_eq!(answer.node_id, -1);
}
