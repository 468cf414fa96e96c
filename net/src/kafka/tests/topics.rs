use corelog_engine::identity::{LeaderEpoch, Offset, Producer, ProducerEpoch, ProducerId};
use corelog_engine::metadata::DEFAULT_TENANT;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{EpochEnd, FoundOffset, OffsetQuery};
use corelog_wire::{
    CreatableTopic, DescribeConfigsResource, ErrorCode, InitProducerIdRequest,
    ListOffsetsPartition, OffsetForLeaderPartition, Uuid,
};

use super::{Cluster, text};
use crate::kafka::cluster::{metadata_brokers, metadata_topic};
use crate::kafka::configs::{ConfigDetail, RESOURCE_TOPIC, topic_configs};
use crate::kafka::offsets::{OffsetWish, epoch_end, epoch_wish, found, previous_producer};
use crate::kafka::topics::{created, repeated_names, topic_request};
use crate::kafka::{TopicKey, partition_of};

#[test]
fn leaders_are_nodes_of_the_same_answer() {
    let mut cluster = Cluster::new();
    cluster.create("t", 3);
    let brokers = metadata_brokers(&cluster.image);
    let topic = metadata_topic(
        cluster.image.topic_named(DEFAULT_TENANT, "t").unwrap(),
        false,
    );
    assert_eq!(topic.partitions.len(), 3);
    for (partition, index) in topic.partitions.iter().zip(0..) {
        assert_eq!(partition.partition_index, index);
        assert!(
            brokers
                .iter()
                .any(|broker| broker.node_id == partition.leader_id)
        );
        assert_eq!(
            (&partition.replica_nodes, &partition.isr_nodes),
            (&vec![3], &vec![3])
        );
    }
    let internal = metadata_topic(cluster.image.offsets_topic().unwrap(), false);
    assert!(internal.is_internal && !topic.is_internal);
}

#[test]
fn a_topic_is_found_by_its_id_until_it_is_deleted() {
    let mut cluster = Cluster::new();
    let id = cluster.create("t", 1).topic;
    let by_id = TopicKey::new(&text(""), Uuid(*id.bytes()), true);
    let by_name = TopicKey::new(&text("t"), Uuid::ZERO, false);
    let topic = by_id.find(&cluster.image, DEFAULT_TENANT).unwrap();
    assert_eq!(
        partition_of(topic, 1),
        Err(Rejection::UnknownTopicOrPartition)
    );
    assert_eq!(
        partition_of(topic, -1),
        Err(Rejection::UnknownTopicOrPartition)
    );
    assert!(by_name.find(&cluster.image, DEFAULT_TENANT).is_ok());
    assert!(by_id.find(&cluster.image, "another tenant").is_err());
    cluster.delete(id);
    assert_eq!(
        by_id.find(&cluster.image, DEFAULT_TENANT).unwrap_err(),
        Rejection::UnknownTopicId
    );
    assert_eq!(
        by_name.find(&cluster.image, DEFAULT_TENANT).unwrap_err(),
        Rejection::UnknownTopicOrPartition
    );
}

#[test]
fn a_created_topic_is_answered_with_its_settings() {
    let mut cluster = Cluster::new();
    let plan = cluster.create("t", 2);
    let result = created(text("t"), &plan, false);
    assert_eq!((result.num_partitions, result.replication_factor), (2, 1));
    assert_eq!(result.topic_id, Uuid(*plan.topic.bytes()));
    let asked = result
        .configs
        .iter()
        .find(|config| config.name == "retention.ms")
        .unwrap();
    assert_eq!(
        (asked.value.clone(), asked.config_source),
        (Some(text("5")), 1)
    );
    assert!(
        result
            .configs
            .iter()
            .any(|config| config.config_source == 5)
    );
    assert!(created(text("t"), &plan, true).topic_id.is_zero());
}

#[test]
fn a_name_given_twice_is_repeated_once() {
    let topic = |name| CreatableTopic {
        name: text(name),
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopic::default()
    };
    let repeated = repeated_names(&[topic("a"), topic("b"), topic("a"), topic("a")]);
    assert_eq!(repeated.into_iter().collect::<Vec<_>>(), [text("a")]);
    let request = topic_request(&topic("a"), DEFAULT_TENANT, true);
    assert!(request.validate_only && request.partitions == -1);
}

#[test]
fn only_the_settings_asked_for_are_described() {
    let mut cluster = Cluster::new();
    cluster.create("t", 1);
    let topic = cluster.image.topic_named(DEFAULT_TENANT, "t").unwrap();
    let mut resource = DescribeConfigsResource {
        resource_type: RESOURCE_TOPIC,
        resource_name: text("t"),
        configuration_keys: None,
    };
    let all = topic_configs(&resource, topic, ConfigDetail::default());
    assert!(
        all.configs.len() > 5
            && all
                .configs
                .iter()
                .all(|config| config.documentation.is_none() && config.synonyms.is_empty())
    );
    resource.configuration_keys = Some(vec![text("retention.ms"), text("no.such.key")]);
    let some = topic_configs(
        &resource,
        topic,
        ConfigDetail {
            synonyms: true,
            documentation: true,
        },
    );
    let [only] = <[_; 1]>::try_from(some.configs).unwrap();
    assert_eq!(
        (only.value, only.config_source, only.config_type),
        (Some(text("5")), 1, 5)
    );
    assert!(only.documentation.is_some() && only.synonyms.len() == 1);
}

#[test]
fn times_below_zero_have_a_meaning_of_their_own_or_none() {
    let wish = |timestamp| {
        OffsetWish::of(&ListOffsetsPartition {
            timestamp,
            ..ListOffsetsPartition::default()
        })
    };
    assert_eq!(wish(-1), Ok(OffsetWish::Query(OffsetQuery::Latest)));
    assert_eq!(wish(-2), Ok(OffsetWish::Query(OffsetQuery::Earliest)));
    assert_eq!(wish(-3), Ok(OffsetWish::Query(OffsetQuery::MaxTimestamp)));
    assert_eq!(wish(-5), Ok(OffsetWish::Nothing));
    assert_eq!(wish(7), Ok(OffsetWish::Query(OffsetQuery::AtOrAfterMs(7))));
    assert_eq!(wish(-99), Err(Rejection::UnsupportedVersion));
}

#[test]
fn no_such_offset_is_minus_one_without_error() {
    let none = FoundOffset {
        offset: None,
        timestamp_ms: None,
        leader_epoch: Some(LeaderEpoch(3)),
    };
    let answer = found(1, Ok(Some(none)));
    assert_eq!(
        (
            answer.offset,
            answer.timestamp,
            answer.leader_epoch,
            answer.error_code
        ),
        (-1, -1, -1, ErrorCode::NONE)
    );
    let some = FoundOffset {
        offset: Some(Offset(9)),
        timestamp_ms: Some(8),
        leader_epoch: Some(LeaderEpoch(3)),
    };
    let answer = found(1, Ok(Some(some)));
    assert_eq!(
        (answer.offset, answer.timestamp, answer.leader_epoch),
        (9, 8, 3)
    );
}

#[test]
fn an_end_that_is_not_known_is_minus_one_without_error() {
    let end = |outcome| {
        let answer = epoch_end(4, outcome);
        assert_eq!(answer.partition, 4);
        (answer.leader_epoch, answer.end_offset, answer.error_code)
    };
    assert_eq!(end(Ok(None)), (-1, -1, ErrorCode::NONE));
    let known = EpochEnd {
        epoch: LeaderEpoch(3),
        end: Offset(9),
    };
    assert_eq!(end(Ok(Some(known))), (3, 9, ErrorCode::NONE));
    assert_eq!(
        end(Err(Rejection::FencedLeaderEpoch)),
        (-1, -1, ErrorCode::FENCED_LEADER_EPOCH)
    );
    assert_eq!(
        end(Err(Rejection::UnknownLeaderEpoch)).2,
        ErrorCode::UNKNOWN_LEADER_EPOCH
    );
}

#[test]
fn an_epoch_below_zero_is_not_asked_for() {
    let mut cluster = Cluster::new();
    cluster.create("t", 1);
    let topic = cluster.image.topic_named(DEFAULT_TENANT, "t").unwrap();
    let id = partition_of(topic, 0).unwrap();
    let mut partition = OffsetForLeaderPartition {
        leader_epoch: -1,
        ..OffsetForLeaderPartition::default()
    };
    assert_eq!(
        epoch_wish(id, &partition).err(),
        Some(Rejection::InvalidRequest)
    );
    partition.leader_epoch = 2;
    let wish = epoch_wish(id, &partition).unwrap();
    assert_eq!((wish.epoch, wish.leader_epoch), (LeaderEpoch(2), None));
}

#[test]
fn a_producer_comes_whole_or_not_at_all() {
    let request = |producer_id, producer_epoch| InitProducerIdRequest {
        producer_id,
        producer_epoch,
        ..InitProducerIdRequest::default()
    };
    assert_eq!(previous_producer(&request(-1, -1)), Ok(None));
    let known = Producer {
        id: ProducerId(4),
        epoch: ProducerEpoch(2),
    };
    assert_eq!(previous_producer(&request(4, 2)), Ok(Some(known)));
    assert_eq!(
        previous_producer(&request(4, -1)),
        Err(Rejection::InvalidRequest)
    );
    let transactional = InitProducerIdRequest {
        transactional_id: Some(text("t")),
        ..request(-1, -1)
    };
    assert_eq!(
        previous_producer(&transactional),
        Err(Rejection::TransactionalIdAuthorizationFailed)
    );
}
