//! Records of every kind, and histories in which most records fit.

use alloc::string::String;
use alloc::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::identity::{
    BrokerId, CoreIndex, LogId, PartitionId, PartitionIndex, ProcessId, ProducerId, TopicId,
};
use crate::metadata::record::{
    Address, BrokerRegistered, MetadataRecord, PartitionAssignment, ReplicaAssignment, TopicCreated,
};
use crate::metadata::settings::{KeyOrder, Partitioner, TimestampType, TopicSettings};
use crate::request::Durability;

/// Few distinct ids, so that records meet.
fn id() -> impl Strategy<Value = [u8; 16]> {
    (0_u8..6).prop_map(|byte| [byte; 16])
}

fn broker() -> impl Strategy<Value = BrokerId> {
    (0_u32..3).prop_map(BrokerId)
}

fn partition_id() -> impl Strategy<Value = PartitionId> {
    (id(), 0_u32..4).prop_map(|(topic, partition)| PartitionId {
        topic: TopicId(topic),
        partition: PartitionIndex(partition),
    })
}

fn assignment() -> impl Strategy<Value = PartitionAssignment> {
    let replica = (broker(), id(), 0_u16..3).prop_map(|(broker, log, core)| ReplicaAssignment {
        broker,
        log_id: LogId(log),
        core: CoreIndex(core),
    });
    (broker(), vec(replica, 1..3)).prop_map(|(leader, replicas)| PartitionAssignment {
        leader: replicas.first().map_or(leader, |replica| replica.broker),
        replicas,
    })
}

fn settings() -> impl Strategy<Value = TopicSettings> {
    let numbers = (
        any::<Option<u64>>(),
        any::<Option<u64>>(),
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
    );
    (numbers, any::<[bool; 3]>()).prop_map(|(numbers, choices)| TopicSettings {
        retention_ms: numbers.0,
        retention_bytes: numbers.1,
        segment_bytes: numbers.2,
        segment_ms: numbers.3,
        max_message_bytes: numbers.4,
        timestamp_type: [TimestampType::CreateTime, TimestampType::LogAppendTime]
            [usize::from(choices[0])],
        durability: [Durability::OneDisk, Durability::TwoZones][usize::from(choices[1])],
        key_order: [KeyOrder::Relaxed, KeyOrder::Strict][usize::from(choices[2])],
        ..TopicSettings::default()
    })
}

fn topic_created() -> impl Strategy<Value = TopicCreated> {
    let names = (id(), "[ab._]{1,3}", "[xy]");
    let choices = (any::<[bool; 2]>(), 1_u32..1_000);
    (names, choices, settings(), vec(assignment(), 1..4)).prop_map(
        |((topic, name, tenant), ([routed, internal], slots), settings, partitions)| TopicCreated {
            topic: TopicId(topic),
            tenant,
            name,
            partitioner: [Partitioner::Murmur2, Partitioner::Routed][usize::from(routed)],
            slots,
            internal,
            settings,
            partitions,
        },
    )
}

fn broker_registered() -> impl Strategy<Value = BrokerRegistered> {
    let text = || -> proptest::string::RegexGeneratorStrategy<String> {
        proptest::string::string_regex("[a-zäß0-9:.]{0,12}").unwrap()
    };
    let address = (text(), text(), any::<u16>()).prop_map(|(listener, host, port)| Address {
        listener,
        host,
        port,
    });
    (broker(), text(), 1_u16..4, vec(address, 0..3)).prop_map(|(broker, zone, cores, addresses)| {
        BrokerRegistered {
            broker,
            zone,
            cores,
            addresses,
        }
    })
}

/// Any record.
pub(super) fn record() -> impl Strategy<Value = MetadataRecord> {
    let placement = (partition_id(), (0_u16..3).prop_map(CoreIndex));
    prop_oneof![
        1 => (0_u16..=1).prop_map(|level| MetadataRecord::FeatureLevel { level }),
        4 => broker_registered().prop_map(MetadataRecord::BrokerRegistered),
        3 => (broker(), id()).prop_map(|(broker, process)| MetadataRecord::BrokerStarted {
            broker,
            process: ProcessId(process),
        }),
        2 => (broker(), 1_u16..4, vec(placement, 0..3)).prop_map(|(broker, cores, placements)| {
            MetadataRecord::CoresChanged { broker, cores, placements }
        }),
        6 => topic_created().prop_map(MetadataRecord::TopicCreated),
        2 => id().prop_map(|topic| MetadataRecord::TopicDeleted { topic: TopicId(topic) }),
        1 => (id(), settings()).prop_map(|(topic, settings)| MetadataRecord::TopicSettingsChanged {
            topic: TopicId(topic),
            settings,
        }),
        2 => (id(), vec(assignment(), 1..3), 1_u32..1_000).prop_map(|(topic, partitions, slots)| {
            MetadataRecord::PartitionsAdded { topic: TopicId(topic), partitions, slots }
        }),
        3 => (partition_id(), id()).prop_map(|(partition, log)| MetadataRecord::LogBegun {
            partition,
            log_id: LogId(log),
        }),
        1 => (broker(), 0_u64..3, 1_u64..3).prop_map(|(broker, first, count)| {
            MetadataRecord::ProducerIdBlockGranted { broker, first: ProducerId(first), count }
        }),
    ]
}

/// Records that begin with known brokers.
pub(super) fn history() -> impl Strategy<Value = Vec<MetadataRecord>> {
    let broker = |id: u32| {
        MetadataRecord::BrokerRegistered(BrokerRegistered {
            broker: BrokerId(id),
            zone: alloc::format!("zone-{id}"),
            cores: 3,
            addresses: Vec::new(),
        })
    };
    vec(record(), 0..60).prop_map(move |mut records| {
        records.splice(0..0, (0..3).map(broker));
        records
    })
}
