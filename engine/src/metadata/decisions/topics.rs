//! Making, changing and deleting topics.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::RandomId;
use super::placement::Loads;
use crate::disk::DiskLevel;
use crate::identity::{BrokerId, TopicId};
use crate::limits::{OFFSETS_TOPIC_PARTITIONS, SLOTS_PER_PARTITION, TOPIC_PARTITIONS_MAX};
use crate::metadata::record::{MetadataRecord, PartitionAssignment, TopicCreated};
use crate::metadata::settings::{KeyOrder, Partitioner, TopicSettings};
use crate::metadata::topic_name::{check_topic_name, is_reserved};
use crate::metadata::{
    DEFAULT_TENANT, Image, OFFSETS_TOPIC, REPLICAS_MAX, Refusal, STRING_BYTES_MAX,
};
use crate::rejection::Rejection;
use crate::request::Durability;

/// What topics get that do not say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDefaults {
    /// How many partitions.
    pub partitions: u32,
    /// How many replicas of each; `None`: three, or as many as there are zones.
    pub replication_factor: Option<u16>,
    /// The settings.
    pub topic: TopicSettings,
}

impl Default for TopicDefaults {
    fn default() -> Self {
        Self {
            partitions: 1,
            replication_factor: None,
            topic: TopicSettings::default(),
        }
    }
}

/// A topic that somebody wants, as the wire says it.
#[derive(Clone, Debug, Default)]
pub struct TopicRequest {
    /// Whose it will be.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// How many partitions; -1 for the default, or where `assignments` say it.
    pub partitions: i32,
    /// How many replicas; -1 for the default, or where `assignments` say it.
    pub replication_factor: i16,
    /// The brokers of each partition, the leader first; empty: the controller chooses.
    pub assignments: Vec<(i32, Vec<i32>)>,
    /// Settings by name.
    pub configs: Vec<(String, Option<String>)>,
    /// Check everything, change nothing.
    pub validate_only: bool,
}

/// A topic as it will be.
#[derive(Clone, Debug)]
pub struct TopicPlan {
    /// What to commit; nothing if the request was to validate only.
    pub records: Vec<MetadataRecord>,
    /// Its incarnation.
    pub topic: TopicId,
    /// How many partitions.
    pub partitions: u32,
    /// How many replicas of each.
    pub replication_factor: u16,
    /// How keys find partitions.
    pub partitioner: Partitioner,
    /// Its settings.
    pub settings: TopicSettings,
}

/// Makes a topic: name, configuration, disk, counts and replicas are checked in that order.
///
/// # Errors
/// - [`Rejection::InvalidTopic`]: a name outside the rules, kept for the broker, or one that metrics
///   could not tell from that of another topic;
/// - [`Rejection::TopicAlreadyExists`];
/// - [`Rejection::InvalidConfig`], with the key in the detail;
/// - [`Rejection::PolicyViolation`] while the disk is low;
/// - [`Rejection::InvalidRequest`] if counts and assignments are both given;
/// - [`Rejection::InvalidPartitions`], [`Rejection::InvalidReplicationFactor`],
///   [`Rejection::InvalidReplicaAssignment`].
pub fn create_topic(
    image: &Image,
    request: &TopicRequest,
    defaults: &TopicDefaults,
    disk: DiskLevel,
    random_id: RandomId<'_>,
) -> Result<TopicPlan, Refusal> {
    check_new_name(image, &request.tenant, &request.name)?;
    let (mut settings, partitioner) = defaults.topic.with_configs(&request.configs)?;
    let partitioner = partitioner.unwrap_or_default();
    check_disk(disk)?;
    let mut loads = Loads::new(image);
    let brokers = if request.assignments.is_empty() {
        let partitions = partition_count(request.partitions, defaults)?;
        let replicas = replication_factor(request.replication_factor, defaults, &loads)?;
        Wanted::Counts {
            partitions,
            replicas,
        }
    } else {
        Wanted::Assignments(check_assignments(image, request)?)
    };
    let replication_factor = brokers.replication_factor();
    settings.durability = durability(&settings, replication_factor)?;
    let topic = TopicId(random_id());
    let partitions = brokers.place(&mut loads, random_id)?;
    let plan = TopicPlan {
        records: Vec::new(),
        topic,
        partitions: partitions.len() as u32,
        replication_factor: replication_factor as u16,
        partitioner,
        settings: settings.clone(),
    };
    if request.validate_only {
        return Ok(plan);
    }
    let created = MetadataRecord::TopicCreated(TopicCreated {
        topic,
        tenant: request.tenant.clone(),
        name: request.name.clone(),
        partitioner,
        slots: slots(plan.partitions),
        internal: false,
        settings,
        partitions,
    });
    Ok(TopicPlan {
        records: alloc::vec![created],
        ..plan
    })
}

/// Deletes a topic.
///
/// # Errors
/// [`Rejection::UnknownTopicId`]; [`Rejection::InvalidTopic`] for one the broker keeps for itself.
pub fn delete_topic(image: &Image, topic: TopicId) -> Result<Vec<MetadataRecord>, Refusal> {
    let known = known_topic(image, topic)?;
    if known.internal {
        return Err(internal(&known.name));
    }
    Ok(alloc::vec![MetadataRecord::TopicDeleted { topic }])
}

/// Adds partitions, up to `total`. Keys move with it: slot s lies in partition s mod partitions.
///
/// # Errors
/// [`Rejection::InvalidPartitions`] if `total` is not more than there are, above the limit, or the
/// topic keeps its key order strictly; [`Rejection::PolicyViolation`] while the disk is low; and as
/// [`delete_topic`].
pub fn add_partitions(
    image: &Image,
    topic: TopicId,
    total: u32,
    disk: DiskLevel,
    random_id: RandomId<'_>,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let refuse = |what: String| Err(Refusal::new(Rejection::InvalidPartitions, what));
    let known = known_topic(image, topic)?;
    if known.internal {
        return Err(internal(&known.name));
    }
    let present = known.partition_count();
    if total <= present {
        return refuse(format!("the topic has {present} partitions already"));
    }
    if total > TOPIC_PARTITIONS_MAX {
        return refuse(format!(
            "a topic has at most {TOPIC_PARTITIONS_MAX} partitions"
        ));
    }
    if known.settings.key_order == KeyOrder::Strict {
        return refuse("corelog.key_order is strict, and more partitions would move keys".into());
    }
    check_disk(disk)?;
    let mut loads = Loads::new(image);
    let wanted = Wanted::Counts {
        partitions: total - present,
        replicas: known.partitions.first().map_or(1, |p| p.replicas.len()),
    };
    Ok(alloc::vec![MetadataRecord::PartitionsAdded {
        topic,
        partitions: wanted.place(&mut loads, random_id)?,
        slots: slots(total),
    }])
}

/// Changes settings of a topic; those not named stay.
///
/// # Errors
/// [`Rejection::InvalidConfig`] with the key in the detail, also for one that is fixed at creation;
/// and as [`delete_topic`].
pub fn change_topic_settings(
    image: &Image,
    topic: TopicId,
    configs: &[(String, Option<String>)],
) -> Result<Vec<MetadataRecord>, Refusal> {
    let known = known_topic(image, topic)?;
    if known.internal {
        return Err(internal(&known.name));
    }
    let (settings, partitioner) = known.settings.with_configs(configs)?;
    let fixed = |key: &str| {
        let detail = format!("{key} is fixed when a topic is made");
        Err(Refusal::new(Rejection::InvalidConfig, detail))
    };
    if partitioner.is_some_and(|wanted| wanted != known.partitioner) {
        return fixed("corelog.partitioner");
    }
    if settings.durability != known.settings.durability {
        return fixed("corelog.durability");
    }
    if settings == known.settings {
        return Ok(Vec::new());
    }
    Ok(alloc::vec![MetadataRecord::TopicSettingsChanged {
        topic,
        settings,
    }])
}

/// Makes the internal topic of groups and offsets unless it exists; also while the disk is low,
/// since no group works without it. Nothing in it goes by age or size.
///
/// # Errors
/// [`Rejection::InvalidReplicationFactor`] before the first broker has started.
pub fn ensure_offsets_topic(
    image: &Image,
    defaults: &TopicDefaults,
    random_id: RandomId<'_>,
) -> Result<Vec<MetadataRecord>, Refusal> {
    if image.offsets_topic().is_some() {
        return Ok(Vec::new());
    }
    let mut loads = Loads::new(image);
    let replicas = replication_factor(-1, defaults, &loads)?;
    let wanted = Wanted::Counts {
        partitions: OFFSETS_TOPIC_PARTITIONS,
        replicas,
    };
    let mut settings = TopicSettings {
        retention_ms: None,
        retention_bytes: None,
        segment_bytes: OFFSETS_SEGMENT_BYTES,
        ..TopicSettings::default()
    };
    settings.durability = durability(&settings, replicas)?;
    Ok(alloc::vec![MetadataRecord::TopicCreated(TopicCreated {
        topic: TopicId(random_id()),
        tenant: DEFAULT_TENANT.to_string(),
        name: OFFSETS_TOPIC.to_string(),
        partitioner: Partitioner::Murmur2,
        slots: slots(OFFSETS_TOPIC_PARTITIONS),
        internal: true,
        settings,
        partitions: wanted.place(&mut loads, random_id)?,
    })])
}

/// Segments of the offsets topic are small, since they are read whole when a coordinator loads.
const OFFSETS_SEGMENT_BYTES: u64 = 64 << 20;

/// What replicas a request wants.
enum Wanted {
    Counts { partitions: u32, replicas: usize },
    Assignments(Vec<Vec<BrokerId>>),
}

impl Wanted {
    fn replication_factor(&self) -> usize {
        match self {
            Self::Counts { replicas, .. } => *replicas,
            Self::Assignments(partitions) => partitions.first().map_or(0, Vec::len),
        }
    }

    fn place(
        &self,
        loads: &mut Loads<'_>,
        random_id: RandomId<'_>,
    ) -> Result<Vec<PartitionAssignment>, Refusal> {
        let mut placed = Vec::new();
        match self {
            Self::Counts {
                partitions,
                replicas,
            } => {
                placed.reserve_exact(*partitions as usize);
                for _ in 0..*partitions {
                    let brokers = loads.choose(*replicas);
                    placed.push(loads.place(&brokers, random_id)?);
                }
            }
            Self::Assignments(partitions) => {
                for brokers in partitions {
                    placed.push(loads.place(brokers, random_id)?);
                }
            }
        }
        Ok(placed)
    }
}

fn check_new_name(image: &Image, tenant: &str, name: &str) -> Result<(), Refusal> {
    check_topic_name(name)?;
    if tenant.is_empty() || tenant.len() > STRING_BYTES_MAX {
        return Err(Refusal::new(
            Rejection::InvalidRequest,
            "a tenant's name is empty or too long",
        ));
    }
    if image.topic_named(tenant, name).is_some() {
        return Err(Refusal::new(
            Rejection::TopicAlreadyExists,
            format!("a topic {name} exists"),
        ));
    }
    if is_reserved(name) {
        return Err(internal(name));
    }
    if let Some(other) = image.topic_colliding(tenant, name) {
        return Err(Refusal::new(
            Rejection::InvalidTopic,
            format!(
                "topic {name} collides with {}: . and _ are the same in metric names",
                other.name
            ),
        ));
    }
    Ok(())
}

fn check_disk(disk: DiskLevel) -> Result<(), Refusal> {
    if disk >= DiskLevel::Low {
        return Err(Refusal::new(
            Rejection::PolicyViolation,
            "the broker is short of disk and takes no new topics or partitions: free space, delete \
             topics or lower their retention",
        ));
    }
    Ok(())
}

fn partition_count(wanted: i32, defaults: &TopicDefaults) -> Result<u32, Refusal> {
    let count = match wanted {
        -1 => defaults.partitions,
        _ => u32::try_from(wanted).unwrap_or(0),
    };
    if (1..=TOPIC_PARTITIONS_MAX).contains(&count) {
        return Ok(count);
    }
    Err(Refusal::new(
        Rejection::InvalidPartitions,
        format!("a topic has 1 to {TOPIC_PARTITIONS_MAX} partitions, or -1 for the default"),
    ))
}

fn replication_factor(
    wanted: i16,
    defaults: &TopicDefaults,
    loads: &Loads<'_>,
) -> Result<usize, Refusal> {
    let zones = loads.zone_count();
    let factor = match (wanted, defaults.replication_factor) {
        (-1, None) => zones.min(3),
        (-1, Some(factor)) => usize::from(factor),
        _ => usize::try_from(wanted).unwrap_or(0),
    };
    if factor >= 1 && factor <= zones && factor <= REPLICAS_MAX {
        return Ok(factor);
    }
    Err(Refusal::new(
        Rejection::InvalidReplicationFactor,
        format!(
            "replicas stand in different zones: with brokers in {zones} the replication factor is \
             1 to {}, or -1 for the default",
            zones.min(REPLICAS_MAX)
        ),
    ))
}

fn check_assignments(image: &Image, request: &TopicRequest) -> Result<Vec<Vec<BrokerId>>, Refusal> {
    if request.partitions != -1 || request.replication_factor != -1 {
        return Err(Refusal::new(
            Rejection::InvalidRequest,
            "where replicas are assigned, partitions and replication factor must be -1",
        ));
    }
    let refuse = |what: String| Err(Refusal::new(Rejection::InvalidReplicaAssignment, what));
    let count = request.assignments.len();
    if count > TOPIC_PARTITIONS_MAX as usize {
        return Err(Refusal::new(
            Rejection::InvalidPartitions,
            format!("a topic has at most {TOPIC_PARTITIONS_MAX} partitions"),
        ));
    }
    let mut partitions = BTreeMap::new();
    for (partition, brokers) in &request.assignments {
        let known = |&broker: &i32| {
            let id = BrokerId(u32::try_from(broker).ok()?);
            image.broker(id).map(|known| (id, known.zone.as_str()))
        };
        let Some(placed) = brokers.iter().map(known).collect::<Option<Vec<_>>>() else {
            return refuse(format!("partition {partition} names an unknown broker"));
        };
        let zones: BTreeSet<&str> = placed.iter().map(|(_, zone)| *zone).collect();
        if placed.is_empty() || placed.len() > REPLICAS_MAX || zones.len() != placed.len() {
            return refuse(format!(
                "partition {partition} needs 1 to {REPLICAS_MAX} brokers in different zones"
            ));
        }
        let placed: Vec<BrokerId> = placed.into_iter().map(|(id, _)| id).collect();
        if partitions.insert(*partition, placed).is_some() {
            return refuse(format!("partition {partition} is assigned twice"));
        }
    }
    if !partitions.keys().copied().eq(0..count as i32) {
        return refuse("partitions are numbered from zero without a gap".into());
    }
    let partitions: Vec<Vec<BrokerId>> = partitions.into_values().collect();
    let factor = partitions.first().map_or(0, Vec::len);
    if partitions.iter().any(|brokers| brokers.len() != factor) {
        return refuse("all partitions of a topic have the same number of replicas".into());
    }
    Ok(partitions)
}

/// What an acknowledgement will mean: as asked, if the replicas can give it; else the most they can.
fn durability(settings: &TopicSettings, replicas: usize) -> Result<Durability, Refusal> {
    let asked = settings
        .explicit
        .contains(crate::metadata::settings::Setting::Durability);
    match (asked, settings.durability) {
        (true, Durability::TwoZones) if replicas < 2 => Err(Refusal::new(
            Rejection::InvalidConfig,
            "corelog.durability two-zones needs a replication factor of 2 or more",
        )),
        (true, durability) => Ok(durability),
        (false, _) if replicas < 2 => Ok(Durability::OneDisk),
        (false, _) => Ok(Durability::TwoZones),
    }
}

fn slots(partitions: u32) -> u32 {
    partitions * SLOTS_PER_PARTITION
}

fn known_topic(image: &Image, topic: TopicId) -> Result<&crate::metadata::Topic, Refusal> {
    image.topic(topic).ok_or_else(|| {
        Refusal::new(
            Rejection::UnknownTopicId,
            format!("no topic has the id {topic}"),
        )
    })
}

fn internal(name: &str) -> Refusal {
    Refusal::new(
        Rejection::InvalidTopic,
        format!("the broker keeps topic {name} for itself"),
    )
}
