//! Which wishes become records, and which refusal the others get.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{BROKER, apply_all, config, counting, create, image_with_broker, plan, request, start};
use crate::disk::DiskLevel;
use crate::identity::{BrokerId, ProducerId, TopicId};
use crate::limits::{OFFSETS_TOPIC_PARTITIONS, TOPIC_PARTITIONS_MAX};
use crate::metadata::decisions::{
    BrokerSettings, TopicDefaults, add_partitions, begin_log, change_topic_settings, create_topic,
    delete_topic, describe_broker, ensure_offsets_topic, grant_producer_ids, start_broker,
};
use crate::metadata::settings::{RETENTION_MS_DEFAULT, TimestampType};
use crate::metadata::{DEFAULT_TENANT, Image, OFFSETS_TOPIC, Partitioner};
use crate::rejection::Rejection;
use crate::request::Durability;

fn refused(image: &Image, request: &crate::metadata::decisions::TopicRequest) -> Rejection {
    plan(image, request, &mut counting()).unwrap_err().rejection
}

#[test]
fn names_outside_kafkas_rules_are_invalid_topics() {
    let image = image_with_broker(1);
    let long = "a".repeat(250);
    for name in [
        "",
        ".",
        "..",
        "a b",
        "a/b",
        "größe",
        "a\0",
        OFFSETS_TOPIC,
        &long,
    ] {
        assert_eq!(
            refused(&image, &request(name, 1)),
            Rejection::InvalidTopic,
            "{name:?}"
        );
    }
    let longest = "a".repeat(249);
    for name in ["a", "...", "A-b_c.9", &longest] {
        assert!(
            plan(&image, &request(name, 1), &mut counting()).is_ok(),
            "{name:?}"
        );
    }
}

#[test]
fn names_that_differ_in_dot_and_underscore_alone_collide() {
    let mut image = image_with_broker(1);
    let mut ids = counting();
    create(&mut image, &request("a.b_c", 1), &mut ids);
    assert_eq!(
        refused(&image, &request("a_b.c", 1)),
        Rejection::InvalidTopic
    );
    assert_eq!(
        refused(&image, &request("a.b_c", 1)),
        Rejection::TopicAlreadyExists
    );
    let id = image.topics().next().unwrap().id;
    let records = delete_topic(&image, id).unwrap();
    apply_all(&mut image, &records);
    assert!(plan(&image, &request("a_b.c", 1), &mut ids).is_ok());
}

#[test]
fn tenants_share_no_names() {
    let mut image = image_with_broker(1);
    let mut ids = counting();
    create(&mut image, &request("orders", 1), &mut ids);
    let mut other = request("orders", 1);
    other.tenant = "other".to_string();
    create(&mut image, &other, &mut ids);
    assert_eq!(image.topics_of("other").count(), 1);
    assert_eq!(image.topics_of(DEFAULT_TENANT).count(), 1);
}

#[test]
fn partitions_are_counted_and_spread_evenly_over_the_cores() {
    let mut image = image_with_broker(3);
    let mut ids = counting();
    create(&mut image, &request("one", 4), &mut ids);
    create(&mut image, &request("two", 3), &mut ids);
    create(&mut image, &request("three", 2), &mut ids);
    let counts = image.broker(BROKER).unwrap().replicas_per_core();
    assert_eq!(counts, [3, 3, 3]);
    for (wanted, count) in [(-1, Some(1)), (1, Some(1)), (0, None), (-2, None)] {
        let planned = plan(&image, &request("four", wanted), &mut ids);
        match count {
            Some(count) => assert_eq!(planned.unwrap().partitions, count),
            None => assert_eq!(planned.unwrap_err().rejection, Rejection::InvalidPartitions),
        }
    }
    let many = TOPIC_PARTITIONS_MAX as i32 + 1;
    assert_eq!(
        refused(&image, &request("four", many)),
        Rejection::InvalidPartitions
    );
}

#[test]
fn one_broker_takes_one_replica() {
    let image = image_with_broker(1);
    for (factor, taken) in [(-1, true), (1, true), (0, false), (2, false), (-2, false)] {
        let mut wanted = request("orders", 1);
        wanted.replication_factor = factor;
        match taken {
            true => {
                let planned = plan(&image, &wanted, &mut counting()).unwrap();
                assert_eq!(planned.replication_factor, 1);
                assert_eq!(planned.settings.durability, Durability::OneDisk);
            }
            false => assert_eq!(
                refused(&image, &wanted),
                Rejection::InvalidReplicationFactor
            ),
        }
    }
}

#[test]
fn three_zones_take_three_replicas_in_different_zones_with_leaders_spread() {
    let mut image = image_with_broker(2);
    for broker in 2..=3 {
        let records = start_broker(&image, &start(BrokerId(broker), 1, 2)).unwrap();
        apply_all(&mut image, &records);
    }
    let mut ids = counting();
    create(&mut image, &request("orders", 6), &mut ids);
    let topic = image.topics().next().unwrap();
    assert_eq!(topic.settings.durability, Durability::TwoZones);
    for broker in 1..=3 {
        let led = topic
            .partitions
            .iter()
            .filter(|p| p.leader == BrokerId(broker));
        assert_eq!(led.count(), 2, "broker {broker}");
    }
    assert!(
        topic
            .partitions
            .iter()
            .all(|partition| partition.replicas.len() == 3)
    );
}

#[test]
fn assignments_are_taken_as_given_or_refused() {
    let mut image = image_with_broker(1);
    let records = start_broker(&image, &start(BrokerId(2), 1, 1)).unwrap();
    apply_all(&mut image, &records);
    let assigned = |assignments: &[(i32, &[i32])]| {
        let mut wanted = request("orders", -1);
        let own = |(partition, brokers): &(i32, &[i32])| (*partition, brokers.to_vec());
        wanted.assignments = assignments.iter().map(own).collect();
        wanted
    };
    let planned = plan(
        &image,
        &assigned(&[(1, &[2, 1]), (0, &[1, 2])]),
        &mut counting(),
    );
    let planned = planned.unwrap();
    assert_eq!((planned.partitions, planned.replication_factor), (2, 2));
    apply_all(&mut image, &planned.records);
    let topic = image.topics().next().unwrap();
    assert_eq!(topic.partitions[1].leader, BrokerId(2));
    image = image_with_broker(1);
    let impossible: [&[(i32, &[i32])]; 6] = [
        &[(0, &[7])],
        &[(0, &[-1])],
        &[(0, &[])],
        &[(0, &[1, 1])],
        &[(0, &[1]), (2, &[1])],
        &[(0, &[1]), (0, &[1])],
    ];
    for assignments in impossible {
        let rejection = refused(&image, &assigned(assignments));
        assert_eq!(
            rejection,
            Rejection::InvalidReplicaAssignment,
            "{assignments:?}"
        );
    }
    let mut both = assigned(&[(0, &[1])]);
    both.partitions = 1;
    assert_eq!(refused(&image, &both), Rejection::InvalidRequest);
}

#[test]
fn settings_are_taken_and_wrong_ones_name_their_key() {
    let image = image_with_broker(1);
    let mut wanted = request("orders", 1);
    wanted.configs = alloc::vec![
        config("retention.ms", "-1"),
        config("retention.bytes", "1000000"),
        config("segment.bytes", "1048576"),
        config("message.timestamp.type", "LogAppendTime"),
        config("cleanup.policy", "delete"),
        config("corelog.partitioner", "murmur2"),
    ];
    let planned = plan(&image, &wanted, &mut counting()).unwrap();
    assert_eq!(planned.settings.retention_ms, None);
    assert_eq!(planned.settings.retention_bytes, Some(1_000_000));
    assert_eq!(planned.settings.segment_bytes, 1 << 20);
    assert_eq!(
        planned.settings.timestamp_type,
        TimestampType::LogAppendTime
    );
    assert_eq!(planned.partitioner, Partitioner::Murmur2);
    let wrong = [
        ("retention.ms", "-2"),
        ("retention.ms", "week"),
        ("retention.bytes", ""),
        ("segment.bytes", "1"),
        ("segment.bytes", "99999999999"),
        ("segment.ms", "0"),
        ("max.message.bytes", "0"),
        ("max.message.bytes", "999999999"),
        ("message.timestamp.type", "createtime"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("corelog.partitioner", "random"),
        // Nothing routes by it yet.
        ("corelog.partitioner", "routed"),
        ("corelog.durability", "none"),
        ("corelog.durability", "two-zones"),
        ("corelog.key_order", "maybe"),
        ("min.insync.replicas", "1"),
    ];
    for (key, value) in wrong {
        wanted.configs = alloc::vec![config(key, value)];
        let refusal = plan(&image, &wanted, &mut counting()).unwrap_err();
        assert_eq!(refusal.rejection, Rejection::InvalidConfig, "{key}={value}");
        assert!(refusal.detail.contains(key), "{}", refusal.detail);
    }
    wanted.configs = alloc::vec![("retention.ms".to_string(), None)];
    assert_eq!(refused(&image, &wanted), Rejection::InvalidConfig);
    wanted.configs = alloc::vec![config("retention.ms", "1"), config("retention.ms", "2")];
    assert_eq!(refused(&image, &wanted), Rejection::InvalidConfig);
}

#[test]
fn descriptions_say_what_was_asked_for_and_what_is_default() {
    let image = image_with_broker(1);
    let mut wanted = request("orders", 1);
    wanted.configs = alloc::vec![config("retention.ms", &RETENTION_MS_DEFAULT.to_string())];
    let planned = plan(&image, &wanted, &mut counting()).unwrap();
    let described = planned.settings.describe(planned.partitioner);
    let named = |name| {
        described
            .iter()
            .find(|setting| setting.name == name)
            .unwrap()
    };
    assert!(!named("retention.ms").is_default);
    assert_eq!(named("retention.ms").value, "604800000");
    assert!(named("retention.bytes").is_default);
    assert_eq!(named("retention.bytes").value, "-1");
    assert_eq!(named("corelog.partitioner").value, "murmur2");
    let names: Vec<&str> = described.iter().map(|setting| setting.name).collect();
    assert!(names.is_sorted());
    let broker = describe_broker(&BrokerSettings {
        broker: BROKER,
        zone: "a".to_string(),
        defaults: TopicDefaults::default(),
        auto_create_topics: false,
    });
    assert!(broker.iter().map(|setting| setting.name).is_sorted());
}

#[test]
fn a_low_disk_takes_no_new_topics_or_partitions_but_the_offsets_topic() {
    let mut image = image_with_broker(1);
    let mut ids = counting();
    create(&mut image, &request("orders", 1), &mut ids);
    let id = image.topics().next().unwrap().id;
    let defaults = TopicDefaults::default();
    for level in [DiskLevel::Low, DiskLevel::Full] {
        let created = create_topic(&image, &request("more", 1), &defaults, level, &mut ids);
        assert_eq!(created.unwrap_err().rejection, Rejection::PolicyViolation);
        let added = add_partitions(&image, id, 2, level, &mut ids);
        assert_eq!(added.unwrap_err().rejection, Rejection::PolicyViolation);
    }
    assert_eq!(
        ensure_offsets_topic(&image, &defaults, &mut ids)
            .unwrap()
            .len(),
        1
    );
    assert!(delete_topic(&image, id).is_ok());
}

#[test]
fn validate_only_checks_everything_and_changes_nothing() {
    let image = image_with_broker(1);
    let mut wanted = request("orders", 5);
    wanted.validate_only = true;
    let planned = plan(&image, &wanted, &mut counting()).unwrap();
    assert!(planned.records.is_empty());
    assert_eq!(planned.partitions, 5);
    wanted.partitions = 0;
    assert_eq!(refused(&image, &wanted), Rejection::InvalidPartitions);
}

#[test]
fn the_offsets_topic_is_made_once_and_kept_from_clients() {
    let mut image = image_with_broker(2);
    let mut ids = counting();
    let defaults = TopicDefaults::default();
    assert_eq!(image.group_coordinator("g"), None);
    let records = ensure_offsets_topic(&image, &defaults, &mut ids).unwrap();
    apply_all(&mut image, &records);
    let topic = image.offsets_topic().unwrap().clone();
    assert!(topic.internal);
    assert_eq!(topic.partition_count(), OFFSETS_TOPIC_PARTITIONS);
    assert_eq!(topic.settings.retention_ms, None);
    assert!(
        ensure_offsets_topic(&image, &defaults, &mut ids)
            .unwrap()
            .is_empty()
    );
    let refusal = delete_topic(&image, topic.id).unwrap_err();
    assert_eq!(refusal.rejection, Rejection::InvalidTopic);
    assert_eq!(
        refused(&image, &request(OFFSETS_TOPIC, 1)),
        Rejection::TopicAlreadyExists
    );
    let coordinator = image.group_coordinator("g").unwrap();
    assert_eq!(coordinator.topic, topic.id);
    assert_eq!(coordinator.partition, crate::metadata::group_partition("g"));
}

#[test]
fn adding_partitions_keeps_the_choice_of_kafka_clients_and_strict_key_order_refuses_it() {
    let mut image = image_with_broker(2);
    let mut ids = counting();
    create(&mut image, &request("orders", 2), &mut ids);
    let id = image.topics().next().unwrap().id;
    let normal = DiskLevel::Normal;
    let records = add_partitions(&image, id, 5, normal, &mut ids).unwrap();
    apply_all(&mut image, &records);
    let topic = image.topic(id).unwrap();
    assert_eq!(topic.partition_count(), 5);
    // A hash's slot lies in the partition that the hash itself gives.
    for hash in [0_u32, 1, 319, 320, 0x7fff_ffff] {
        assert_eq!((hash % topic.slots) % 5, hash % 5);
    }
    let fewer = add_partitions(&image, id, 5, normal, &mut ids).unwrap_err();
    assert_eq!(fewer.rejection, Rejection::InvalidPartitions);
    let strict = [config("corelog.key_order", "strict")];
    let records = change_topic_settings(&image, id, &strict).unwrap();
    apply_all(&mut image, &records);
    let refusal = add_partitions(&image, id, 6, normal, &mut ids).unwrap_err();
    assert_eq!(refusal.rejection, Rejection::InvalidPartitions);
}

#[test]
fn what_is_fixed_at_creation_is_not_changed_later() {
    let mut image = image_with_broker(1);
    let mut ids = counting();
    create(&mut image, &request("orders", 1), &mut ids);
    let id = image.topics().next().unwrap().id;
    for (key, value) in [
        ("corelog.partitioner", "routed"),
        ("corelog.durability", "two-zones"),
    ] {
        let refusal = change_topic_settings(&image, id, &[config(key, value)]).unwrap_err();
        assert_eq!(refusal.rejection, Rejection::InvalidConfig);
        assert!(refusal.detail.contains(key));
    }
    let unknown = change_topic_settings(&image, TopicId([8; 16]), &[]).unwrap_err();
    assert_eq!(unknown.rejection, Rejection::UnknownTopicId);
}

#[test]
fn producer_ids_follow_one_another_and_run_out_at_the_wires_end() {
    let mut image = image_with_broker(1);
    for first in [0, 1_000, 2_000] {
        assert_eq!(image.next_producer_id(), ProducerId(first));
        let records = grant_producer_ids(&image, BROKER, 1_000).unwrap();
        apply_all(&mut image, &records);
    }
    assert!(grant_producer_ids(&image, BROKER, i64::MAX as u64).is_err());
    assert!(grant_producer_ids(&image, BROKER, 0).is_err());
    assert!(grant_producer_ids(&image, BrokerId(9), 1).is_err());
}

#[test]
fn a_first_append_is_recorded_once() {
    let mut image = image_with_broker(1);
    let mut ids = counting();
    create(&mut image, &request("orders", 1), &mut ids);
    let (partition, state) = image.partitions().next().unwrap();
    let log_id = state.replicas[0].log_id;
    let records = begin_log(&image, partition, log_id).unwrap();
    apply_all(&mut image, &records);
    assert!(begin_log(&image, partition, log_id).unwrap().is_empty());
    let foreign = begin_log(&image, partition, crate::identity::LogId([9; 16]));
    assert_eq!(
        foreign.unwrap_err().rejection,
        Rejection::UnknownTopicOrPartition
    );
}

#[test]
fn a_topic_before_the_first_broker_is_refused() {
    let image = Image::new();
    assert_eq!(
        refused(&image, &request("a", 1)),
        Rejection::InvalidReplicationFactor
    );
}
