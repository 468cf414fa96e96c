//! What records do to the image.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::generators::history;
use super::{BROKER, apply_all, counting, create, image_with_broker, request, start};
use crate::identity::{
    BrokerId, CoreIndex, LogId, PartitionId, PartitionIndex, ProcessId, ProducerId, TopicId,
};
use crate::metadata::decisions::{delete_topic, start_broker};
use crate::metadata::{
    Applied, ApplyError, DEFAULT_TENANT, Image, MetadataRecord, group_partition,
};

/// What must hold of any image.
fn check_invariants(image: &Image) {
    for (id, broker) in image.brokers() {
        for (core, count) in (0..).zip(broker.replicas_per_core()) {
            let owned = image.replicas_on_core(id, CoreIndex(core)).count();
            assert_eq!(owned, *count as usize, "replicas on core {core} of {id}");
        }
        assert_eq!(
            image.replicas_on(id).count(),
            broker.replica_count() as usize
        );
    }
    for (id, partition) in image.partitions() {
        assert_eq!(partition.leader_replica().broker, partition.leader);
        for replica in &partition.replicas {
            let cores = image.broker(replica.broker).unwrap().cores();
            assert!(replica.core.0 < cores, "{id} has a core that is not there");
        }
    }
    for topic in image.topics() {
        let named = image.topic_named(&topic.tenant, &topic.name).unwrap();
        assert_eq!(named.id, topic.id);
    }
}

proptest! {
    #[test]
    fn invariants_hold_after_every_record_and_a_refused_one_changes_nothing(records in history()) {
        let mut image = Image::new();
        for record in &records {
            let before = image.clone();
            if image.apply(record).is_err() {
                prop_assert_eq!(&before, &image);
            }
            check_invariants(&image);
        }
    }

    #[test]
    fn a_leader_epoch_never_falls(records in history()) {
        let mut image = Image::new();
        for record in &records {
            let before = image.clone();
            let _ = image.apply(record);
            for (id, partition) in image.partitions() {
                if let Some(earlier) = before.partition(id) {
                    prop_assert!(partition.leader_epoch >= earlier.leader_epoch);
                }
            }
        }
    }

    #[test]
    fn a_producer_id_is_granted_once(records in history()) {
        let mut image = Image::new();
        let mut end = 0;
        for record in &records {
            if let Ok(Applied::ProducerIds { first, count, .. }) = image.apply(record) {
                prop_assert_eq!(first.0, end);
                end += count;
            }
        }
        prop_assert_eq!(image.next_producer_id(), ProducerId(end));
    }
}

#[test]
fn each_start_raises_the_epoch_of_what_the_broker_leads_and_of_nothing_else() {
    let mut image = image_with_broker(2);
    let other = start(BrokerId(2), 9, 1);
    let records = start_broker(&image, &other).unwrap();
    apply_all(&mut image, &records);
    let mut ids = counting();
    let mut wanted = request("orders", -1);
    wanted.assignments = alloc::vec![(0, alloc::vec![1]), (1, alloc::vec![2])];
    create(&mut image, &wanted, &mut ids);
    let epochs = |image: &Image| -> Vec<u32> {
        let epoch = |(_, partition): (_, &crate::metadata::Partition)| partition.leader_epoch.0;
        image.partitions().map(epoch).collect()
    };
    assert_eq!(epochs(&image), [0, 0]);
    let again = start_broker(&image, &start(BROKER, 2, 2)).unwrap();
    apply_all(&mut image, &again);
    assert_eq!(epochs(&image), [1, 0]);
    // The same start told twice is one start.
    apply_all(&mut image, &again);
    assert_eq!(epochs(&image), [1, 0]);
    assert_eq!(
        image.broker(BROKER).unwrap().process,
        Some(ProcessId([2; 16]))
    );
}

#[test]
fn a_topic_made_again_under_its_name_shares_nothing_with_the_old_one() {
    let mut image = image_with_broker(1);
    let mut ids = counting();
    create(&mut image, &request("orders", 1), &mut ids);
    let old = image.topic_named(DEFAULT_TENANT, "orders").unwrap().clone();
    let records = delete_topic(&image, old.id).unwrap();
    let deleted = image.apply(&records[0]).unwrap();
    assert_eq!(
        deleted,
        Applied::TopicDeleted(alloc::boxed::Box::new(old.clone()))
    );
    create(&mut image, &request("orders", 1), &mut ids);
    let new = image.topic_named(DEFAULT_TENANT, "orders").unwrap();
    assert_ne!(new.id, old.id);
    let log_id = |topic: &crate::metadata::Topic| topic.partitions[0].replicas[0].log_id;
    assert_ne!(log_id(new), log_id(&old));
    assert!(image.topic(old.id).is_none());
}

#[test]
fn a_log_has_begun_once_and_only_under_its_own_id() {
    let mut image = image_with_broker(1);
    let mut ids = counting();
    create(&mut image, &request("orders", 1), &mut ids);
    let (partition, state) = image.partitions().next().unwrap();
    let log_id = state.replicas[0].log_id;
    assert!(!state.replicas[0].begun);
    let begun = |log_id| MetadataRecord::LogBegun { partition, log_id };
    let foreign = LogId([0xee; 16]);
    assert_eq!(
        image.apply(&begun(foreign)),
        Err(ApplyError::LogUnknown(partition, foreign))
    );
    assert_eq!(
        image.apply(&begun(log_id)),
        Ok(Applied::LogBegun(partition))
    );
    assert_eq!(image.apply(&begun(log_id)), Ok(Applied::Nothing));
    assert!(image.replica(partition, BROKER).unwrap().begun);
}

#[test]
fn a_second_topic_of_the_name_is_refused_where_it_is_applied() {
    let mut image = image_with_broker(1);
    let mut ids = counting();
    // Two decisions on the same image: one wins.
    let first = super::plan(&image, &request("a.b", 1), &mut ids).unwrap();
    let second = super::plan(&image, &request("a_b", 1), &mut ids).unwrap();
    apply_all(&mut image, &first.records);
    let lost = image.apply(&second.records[0]);
    assert_eq!(lost, Err(ApplyError::TopicNameTaken("a_b".into())));
}

#[test]
fn another_number_of_cores_deals_the_replicas_anew() {
    let mut image = image_with_broker(4);
    let mut ids = counting();
    create(&mut image, &request("orders", 10), &mut ids);
    let logs = |image: &Image| -> Vec<LogId> {
        let log = |(_, _, replica): (_, _, &crate::metadata::Replica)| replica.log_id;
        image.replicas_on(BROKER).map(log).collect()
    };
    let before = logs(&image);
    for cores in [1, 3, 8] {
        let records = start_broker(&image, &start(BROKER, cores as u8 + 10, cores)).unwrap();
        apply_all(&mut image, &records);
        check_invariants(&image);
        let counts = image.broker(BROKER).unwrap().replicas_per_core();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1, "{counts:?}");
        assert_eq!(logs(&image), before);
    }
}

#[test]
fn a_broker_cannot_lose_the_core_of_a_replica() {
    let mut image = image_with_broker(4);
    let mut ids = counting();
    create(&mut image, &request("orders", 4), &mut ids);
    let record = MetadataRecord::CoresChanged {
        broker: BROKER,
        cores: 2,
        placements: Vec::new(),
    };
    assert_eq!(image.apply(&record), Err(ApplyError::CoreMissing(BROKER)));
}

#[test]
fn a_group_lies_where_javas_hash_of_its_name_says() {
    let hash = |text: &str| {
        text.encode_utf16().fold(0_i32, |hash, unit| {
            hash.wrapping_mul(31).wrapping_add(i32::from(unit))
        })
    };
    for group in ["", "my-group", "größe", "😀", "console-consumer-12345"] {
        let expected = (hash(group) & i32::MAX) % 16;
        assert_eq!(group_partition(group), PartitionIndex(expected as u32));
    }
    // Known from the Java language: "hello".hashCode() is 99162322.
    assert_eq!(hash("hello"), 99_162_322);
    assert_eq!(group_partition("hello"), PartitionIndex(99_162_322 % 16));
}

#[test]
fn records_about_what_is_not_there_are_refused() {
    let mut image = image_with_broker(1);
    let topic = TopicId([9; 16]);
    let partition = PartitionId {
        topic,
        partition: PartitionIndex(0),
    };
    let log_id = LogId([1; 16]);
    let begun = MetadataRecord::LogBegun { partition, log_id };
    assert_eq!(
        image.apply(&begun),
        Err(ApplyError::PartitionUnknown(partition))
    );
    let deleted = MetadataRecord::TopicDeleted { topic };
    assert_eq!(image.apply(&deleted), Err(ApplyError::TopicUnknown(topic)));
    let started = MetadataRecord::BrokerStarted {
        broker: BrokerId(77),
        process: ProcessId([1; 16]),
    };
    assert_eq!(
        image.apply(&started),
        Err(ApplyError::BrokerUnknown(BrokerId(77)))
    );
}
