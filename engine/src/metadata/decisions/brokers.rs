//! Starts of brokers, producer ids, first appends.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::TopicDefaults;
use crate::identity::{BrokerId, CoreIndex, LogId, PartitionId, ProcessId};
use crate::metadata::record::{Address, BrokerRegistered, MetadataRecord};
use crate::metadata::settings::{SettingDescription, SettingKind, TopicSettings};
use crate::metadata::{
    BROKER_ADDRESSES_MAX, CORES_MAX, FEATURE_LEVEL_SUPPORTED, Image, Refusal, STRING_BYTES_MAX,
};
use crate::rejection::Rejection;

/// A broker that starts.
#[derive(Clone, Debug)]
pub struct BrokerStart {
    /// Which.
    pub broker: BrokerId,
    /// This start: random, made at each.
    pub process: ProcessId,
    /// Where it stands.
    pub zone: String,
    /// How many cores it runs on.
    pub cores: u16,
    /// Where its listeners are reached.
    pub addresses: Vec<Address>,
}

/// Makes a broker known, gives its replicas cores if it has another number of them, and begins a
/// new epoch of every partition that it leads.
///
/// # Errors
/// [`Rejection::InvalidRequest`] for a start without cores, or with too many or too long addresses.
pub fn start_broker(image: &Image, start: &BrokerStart) -> Result<Vec<MetadataRecord>, Refusal> {
    check_start(start)?;
    let mut records = Vec::new();
    if image.feature_level() == 0 {
        records.push(MetadataRecord::FeatureLevel {
            level: FEATURE_LEVEL_SUPPORTED,
        });
    }
    let known = image.broker(start.broker);
    if known.is_some_and(|broker| broker.cores() != start.cores) {
        records.push(spread_over_cores(image, start.broker, start.cores));
    }
    let as_known = known
        .is_some_and(|broker| broker.zone == start.zone && broker.addresses == start.addresses);
    if !as_known {
        records.push(MetadataRecord::BrokerRegistered(BrokerRegistered {
            broker: start.broker,
            zone: start.zone.clone(),
            cores: start.cores,
            addresses: start.addresses.clone(),
        }));
    }
    records.push(MetadataRecord::BrokerStarted {
        broker: start.broker,
        process: start.process,
    });
    Ok(records)
}

fn check_start(start: &BrokerStart) -> Result<(), Refusal> {
    let long = |text: &str| text.len() > STRING_BYTES_MAX;
    let long_address = |address: &Address| long(&address.listener) || long(&address.host);
    let what = if start.cores == 0 {
        "a broker needs a core"
    } else if start.cores > CORES_MAX {
        "a broker has at most 1024 cores"
    } else if start.addresses.len() > BROKER_ADDRESSES_MAX {
        "a broker has too many addresses"
    } else if long(&start.zone) || start.addresses.iter().any(long_address) {
        "a zone, listener or host name is too long"
    } else {
        return Ok(());
    };
    Err(Refusal::new(Rejection::InvalidRequest, what))
}

/// All replicas of a broker in order, dealt to its cores one by one. A core names no path, so this
/// moves no data.
fn spread_over_cores(image: &Image, broker: BrokerId, cores: u16) -> MetadataRecord {
    let placements = image
        .replicas_on(broker)
        .zip((0..cores).cycle())
        .map(|((partition, _, _), core)| (partition, CoreIndex(core)))
        .collect();
    MetadataRecord::CoresChanged {
        broker,
        cores,
        placements,
    }
}

/// Grants the next `count` producer ids to a broker.
///
/// # Errors
/// [`Rejection::InvalidRequest`] if the broker is unknown, `count` is zero, or ids have run out.
pub fn grant_producer_ids(
    image: &Image,
    broker: BrokerId,
    count: u64,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let refuse = |what: String| Err(Refusal::new(Rejection::InvalidRequest, what));
    if image.broker(broker).is_none() {
        return refuse(format!("broker {broker} is unknown"));
    }
    let first = image.next_producer_id();
    match first.0.checked_add(count) {
        Some(end) if count > 0 && end <= i64::MAX as u64 => {}
        _ => return refuse("there are no such producer ids left".to_string()),
    }
    Ok(alloc::vec![MetadataRecord::ProducerIdBlockGranted {
        broker,
        first,
        count,
    }])
}

/// Notes that a replica's log has its first append. No record if that is known.
///
/// # Errors
/// [`Rejection::UnknownTopicOrPartition`] if the partition has no such log.
pub fn begin_log(
    image: &Image,
    partition: PartitionId,
    log_id: LogId,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let known = image.partition(partition).and_then(|known| {
        let mut replicas = known.replicas.iter();
        replicas.find(|replica| replica.log_id == log_id)
    });
    match known {
        None => Err(Refusal::new(
            Rejection::UnknownTopicOrPartition,
            format!("log {log_id} is none of partition {partition}"),
        )),
        Some(replica) if replica.begun => Ok(Vec::new()),
        Some(_) => Ok(alloc::vec![MetadataRecord::LogBegun { partition, log_id }]),
    }
}

/// What a broker is configured with, as far as clients are told.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// Its number.
    pub broker: BrokerId,
    /// Where it stands.
    pub zone: String,
    /// What topics get that do not say otherwise.
    pub defaults: TopicDefaults,
    /// Whether a topic is made when a client first names it.
    pub auto_create_topics: bool,
}

/// The settings of a broker for DescribeConfigs, by name, under Kafka's names. All are read only.
pub fn describe_broker(settings: &BrokerSettings) -> Vec<SettingDescription> {
    let factory = TopicDefaults::default();
    let TopicDefaults {
        partitions,
        replication_factor,
        topic,
    } = &settings.defaults;
    let never = |value: Option<u64>| value.map_or("-1".to_string(), |value| value.to_string());
    let of_topic = |read: &dyn Fn(&TopicSettings) -> String| {
        (read(topic), read(topic) == read(&factory.topic))
    };
    let describe = |name, kind, (value, is_default), documentation| SettingDescription {
        name,
        value,
        is_default,
        read_only: true,
        kind,
        documentation,
    };
    alloc::vec![
        describe(
            "auto.create.topics.enable",
            SettingKind::Boolean,
            (settings.auto_create_topics.to_string(), false),
            "Whether a topic is made when a client first names it.",
        ),
        describe(
            "broker.id",
            SettingKind::Int,
            (settings.broker.to_string(), false),
            "The broker's number within its cluster.",
        ),
        describe(
            "broker.rack",
            SettingKind::String,
            (settings.zone.clone(), false),
            "The zone that the broker stands in.",
        ),
        describe(
            "default.replication.factor",
            SettingKind::Int,
            (
                replication_factor.map_or("-1".to_string(), |n| n.to_string()),
                *replication_factor == factory.replication_factor,
            ),
            "Replicas of a topic that does not say otherwise.",
        ),
        describe(
            "log.message.timestamp.type",
            SettingKind::String,
            of_topic(&|topic| topic.timestamp_type.name().to_string()),
            "message.timestamp.type of a topic that does not say otherwise.",
        ),
        describe(
            "log.retention.bytes",
            SettingKind::Long,
            of_topic(&|topic| never(topic.retention_bytes)),
            "retention.bytes of a topic that does not say otherwise.",
        ),
        describe(
            "log.retention.ms",
            SettingKind::Long,
            of_topic(&|topic| never(topic.retention_ms)),
            "retention.ms of a topic that does not say otherwise.",
        ),
        describe(
            "log.roll.ms",
            SettingKind::Long,
            of_topic(&|topic| topic.segment_ms.to_string()),
            "segment.ms of a topic that does not say otherwise.",
        ),
        describe(
            "log.segment.bytes",
            SettingKind::Int,
            of_topic(&|topic| topic.segment_bytes.to_string()),
            "segment.bytes of a topic that does not say otherwise.",
        ),
        describe(
            "message.max.bytes",
            SettingKind::Int,
            of_topic(&|topic| topic.max_message_bytes.to_string()),
            "max.message.bytes of a topic that does not say otherwise.",
        ),
        describe(
            "num.partitions",
            SettingKind::Int,
            (partitions.to_string(), *partitions == factory.partitions),
            "Partitions of a topic that does not say otherwise.",
        ),
        describe(
            "offsets.topic.num.partitions",
            SettingKind::Int,
            (crate::limits::OFFSETS_TOPIC_PARTITIONS.to_string(), true),
            "Partitions of the internal topic of group offsets.",
        ),
    ]
}
