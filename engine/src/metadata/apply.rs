//! The rules by which records change the image.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

use super::image::{Broker, Image, Partition, Replica, Topic};
use super::record::{
    BrokerRegistered, MetadataRecord, PartitionAssignment, ReplicaAssignment, TopicCreated,
};
use super::{BROKERS_MAX, REPLICAS_MAX};
use crate::identity::{
    BrokerId, CoreIndex, LeaderEpoch, LogId, PartitionId, PartitionIndex, ProcessId, ProducerId,
    TopicId,
};
use crate::limits::TOPIC_PARTITIONS_MAX;

/// What a record has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing: it said what was known.
    Nothing,
    /// The cluster's feature level.
    FeatureLevel(u16),
    /// A broker's addresses or zone.
    Broker(BrokerId),
    /// The epochs of all partitions that this broker leads.
    BrokerStarted(BrokerId),
    /// The owning cores of this broker's replicas.
    CoresChanged(BrokerId),
    /// A topic is there.
    TopicCreated(TopicId),
    /// A topic is gone; this is what it was, so that its logs can go.
    TopicDeleted(Box<Topic>),
    /// A topic's settings.
    TopicSettings(TopicId),
    /// A topic has more partitions, from this one on.
    PartitionsAdded(PartitionId),
    /// A replica's log has begun.
    LogBegun(PartitionId),
    /// Producer ids were granted.
    ProducerIds {
        /// To whom.
        broker: BrokerId,
        /// The first.
        first: ProducerId,
        /// How many.
        count: u64,
    },
}

/// Why a record does not fit what is known; it has changed nothing. Records are decided on an image
/// that may be older than the one they meet: this is where a lost race shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The cluster has as many brokers as it may.
    TooManyBrokers,
    /// No such broker.
    BrokerUnknown(BrokerId),
    /// No such topic.
    TopicUnknown(TopicId),
    /// The topic's name is taken.
    TopicNameTaken(String),
    /// The topic's id is taken.
    TopicIdTaken(TopicId),
    /// No such partition.
    PartitionUnknown(PartitionId),
    /// The partition has no replica with this log.
    LogUnknown(PartitionId, LogId),
    /// Replicas that cannot be: none or too many, twice on one broker, a leader that is none of
    /// them, a core that is not there.
    AssignmentImpossible(TopicId),
    /// A broker's number of cores changes by `CoresChanged` alone.
    CoreCountDiffers(BrokerId),
    /// A replica of this broker would be left without a core.
    CoreMissing(BrokerId),
    /// The producer ids are not the next ones.
    ProducerIdsTaken {
        /// What is next.
        next: ProducerId,
    },
    /// A feature level never falls.
    FeatureLevelFalls,
    /// The leader epoch of a partition is at its end.
    EpochsExhausted(PartitionId),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyBrokers => write!(f, "a cluster has at most {BROKERS_MAX} brokers"),
            Self::BrokerUnknown(broker) => write!(f, "broker {broker} is unknown"),
            Self::TopicUnknown(topic) => write!(f, "no topic has the id {topic}"),
            Self::TopicNameTaken(name) => write!(f, "a topic {name} exists"),
            Self::TopicIdTaken(topic) => write!(f, "a topic with the id {topic} exists"),
            Self::PartitionUnknown(partition) => write!(f, "there is no partition {partition}"),
            Self::LogUnknown(partition, log) => {
                write!(f, "log {log} is none of partition {partition}")
            }
            Self::AssignmentImpossible(topic) => {
                write!(f, "the replicas of topic {topic} cannot be placed so")
            }
            Self::CoreCountDiffers(broker) => {
                write!(f, "broker {broker} has another number of cores")
            }
            Self::CoreMissing(broker) => {
                write!(f, "a replica on broker {broker} would have no core")
            }
            Self::ProducerIdsTaken { next } => {
                write!(f, "the next producer id to grant is {next}")
            }
            Self::FeatureLevelFalls => f.write_str("the feature level never falls"),
            Self::EpochsExhausted(partition) => {
                write!(f, "partition {partition} has no leader epoch left")
            }
        }
    }
}

impl core::error::Error for ApplyError {}

impl Image {
    /// Takes the next record.
    ///
    /// # Errors
    /// [`ApplyError`], with nothing changed, if the record does not fit what is known.
    pub fn apply(&mut self, record: &MetadataRecord) -> Result<Applied, ApplyError> {
        match record {
            MetadataRecord::FeatureLevel { level } => self.raise_feature_level(*level),
            MetadataRecord::BrokerRegistered(registered) => self.register_broker(registered),
            MetadataRecord::BrokerStarted { broker, process } => {
                self.start_broker(*broker, *process)
            }
            MetadataRecord::CoresChanged {
                broker,
                cores,
                placements,
            } => self.change_cores(*broker, *cores, placements),
            MetadataRecord::TopicCreated(created) => self.create_topic(created),
            MetadataRecord::TopicDeleted { topic } => self.delete_topic(*topic),
            MetadataRecord::TopicSettingsChanged { topic, settings } => {
                let known = self.topics.get_mut(topic);
                let known = known.ok_or(ApplyError::TopicUnknown(*topic))?;
                known.settings = settings.clone();
                Ok(Applied::TopicSettings(*topic))
            }
            MetadataRecord::PartitionsAdded {
                topic,
                partitions,
                slots,
            } => self.add_partitions(*topic, partitions, *slots),
            MetadataRecord::LogBegun { partition, log_id } => self.begin_log(*partition, *log_id),
            MetadataRecord::ProducerIdBlockGranted {
                broker,
                first,
                count,
            } => self.grant_producer_ids(*broker, *first, *count),
        }
    }

    fn raise_feature_level(&mut self, level: u16) -> Result<Applied, ApplyError> {
        if level < self.feature_level {
            return Err(ApplyError::FeatureLevelFalls);
        }
        self.feature_level = level;
        Ok(Applied::FeatureLevel(level))
    }

    fn register_broker(&mut self, registered: &BrokerRegistered) -> Result<Applied, ApplyError> {
        let id = registered.broker;
        let full = self.brokers.len() >= BROKERS_MAX;
        match self.brokers.get_mut(&id) {
            Some(broker) if broker.cores() != registered.cores => {
                return Err(ApplyError::CoreCountDiffers(id));
            }
            Some(broker) => {
                broker.zone.clone_from(&registered.zone);
                broker.addresses.clone_from(&registered.addresses);
            }
            None if full => return Err(ApplyError::TooManyBrokers),
            None => {
                let broker = Broker {
                    zone: registered.zone.clone(),
                    addresses: registered.addresses.clone(),
                    process: None,
                    replicas_per_core: alloc::vec![0; usize::from(registered.cores)],
                };
                self.brokers.insert(id, broker);
            }
        }
        Ok(Applied::Broker(id))
    }

    fn start_broker(&mut self, id: BrokerId, process: ProcessId) -> Result<Applied, ApplyError> {
        let broker = self.brokers.get_mut(&id);
        let broker = broker.ok_or(ApplyError::BrokerUnknown(id))?;
        if broker.process == Some(process) {
            return Ok(Applied::Nothing);
        }
        let exhausted = self
            .topics
            .values()
            .flat_map(Topic::iter)
            .find(|(_, led)| led.leader == id && led.leader_epoch.0 >= i32::MAX as u32);
        if let Some((partition, _)) = exhausted {
            return Err(ApplyError::EpochsExhausted(partition));
        }
        broker.process = Some(process);
        let partitions = self.topics.values_mut().flat_map(|t| &mut t.partitions);
        for partition in partitions.filter(|partition| partition.leader == id) {
            partition.leader_epoch = LeaderEpoch(partition.leader_epoch.0 + 1);
        }
        Ok(Applied::BrokerStarted(id))
    }

    fn change_cores(
        &mut self,
        id: BrokerId,
        cores: u16,
        placements: &[(PartitionId, CoreIndex)],
    ) -> Result<Applied, ApplyError> {
        if !self.brokers.contains_key(&id) {
            return Err(ApplyError::BrokerUnknown(id));
        }
        let moved: BTreeMap<PartitionId, CoreIndex> = placements.iter().copied().collect();
        let mut replicas_per_core = alloc::vec![0_u32; usize::from(cores)];
        let mut found = 0;
        for (partition, _, replica) in self.replicas_on(id) {
            let core = match moved.get(&partition) {
                Some(&core) => {
                    found += 1;
                    core
                }
                None => replica.core,
            };
            match replicas_per_core.get_mut(usize::from(core.0)) {
                Some(count) => *count += 1,
                None => return Err(ApplyError::CoreMissing(id)),
            }
        }
        if found != placements.len() {
            let unknown = placements
                .iter()
                .find(|(partition, _)| self.replica(*partition, id).is_none());
            let (partition, _) = unknown
                .or(placements.first())
                .ok_or(ApplyError::CoreMissing(id))?;
            return Err(ApplyError::PartitionUnknown(*partition));
        }
        for (partition, core) in moved {
            if let Some(replica) = self.replica_mut(partition, |replica| replica.broker == id) {
                replica.core = core;
            }
        }
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.replicas_per_core = replicas_per_core;
        }
        Ok(Applied::CoresChanged(id))
    }

    fn create_topic(&mut self, created: &TopicCreated) -> Result<Applied, ApplyError> {
        let id = created.topic;
        if self.topics.contains_key(&id) {
            return Err(ApplyError::TopicIdTaken(id));
        }
        if self.topic_named(&created.tenant, &created.name).is_some()
            || self
                .topic_colliding(&created.tenant, &created.name)
                .is_some()
        {
            return Err(ApplyError::TopicNameTaken(created.name.clone()));
        }
        if created.slots == 0 || !self.can_place(&created.partitions, 0) {
            return Err(ApplyError::AssignmentImpossible(id));
        }
        self.count_replicas(&created.partitions);
        let names = self.tenants.entry(created.tenant.clone()).or_default();
        names.insert(&created.name, id);
        let topic = Topic {
            id,
            tenant: created.tenant.clone(),
            name: created.name.clone(),
            partitioner: created.partitioner,
            slots: created.slots,
            internal: created.internal,
            settings: created.settings.clone(),
            partitions: created.partitions.iter().map(Partition::new).collect(),
        };
        self.topics.insert(id, topic);
        Ok(Applied::TopicCreated(id))
    }

    fn delete_topic(&mut self, id: TopicId) -> Result<Applied, ApplyError> {
        let topic = self.topics.remove(&id);
        let topic = topic.ok_or(ApplyError::TopicUnknown(id))?;
        for replica in topic.partitions.iter().flat_map(|p| &p.replicas) {
            if let Some(count) = self.core_count_mut(replica.broker, replica.core) {
                *count -= 1;
            }
        }
        if let Some(names) = self.tenants.get_mut(&topic.tenant) {
            names.remove(&topic.name);
            if names.by_name.is_empty() {
                self.tenants.remove(&topic.tenant);
            }
        }
        Ok(Applied::TopicDeleted(Box::new(topic)))
    }

    fn add_partitions(
        &mut self,
        id: TopicId,
        added: &[PartitionAssignment],
        slots: u32,
    ) -> Result<Applied, ApplyError> {
        let topic = self.topics.get(&id).ok_or(ApplyError::TopicUnknown(id))?;
        let present = topic.partition_count();
        if slots == 0 || !self.can_place(added, present) {
            return Err(ApplyError::AssignmentImpossible(id));
        }
        self.count_replicas(added);
        if let Some(topic) = self.topics.get_mut(&id) {
            topic.slots = slots;
            topic.partitions.extend(added.iter().map(Partition::new));
        }
        Ok(Applied::PartitionsAdded(PartitionId {
            topic: id,
            partition: PartitionIndex(present),
        }))
    }

    fn begin_log(&mut self, id: PartitionId, log_id: LogId) -> Result<Applied, ApplyError> {
        if self.partition(id).is_none() {
            return Err(ApplyError::PartitionUnknown(id));
        }
        match self.replica_mut(id, |replica| replica.log_id == log_id) {
            None => Err(ApplyError::LogUnknown(id, log_id)),
            Some(replica) if replica.begun => Ok(Applied::Nothing),
            Some(replica) => {
                replica.begun = true;
                Ok(Applied::LogBegun(id))
            }
        }
    }

    fn grant_producer_ids(
        &mut self,
        broker: BrokerId,
        first: ProducerId,
        count: u64,
    ) -> Result<Applied, ApplyError> {
        if !self.brokers.contains_key(&broker) {
            return Err(ApplyError::BrokerUnknown(broker));
        }
        let next = self.next_producer_id;
        let end = first.0.checked_add(count);
        match end {
            Some(end) if first == next && count > 0 && end <= i64::MAX as u64 => {
                self.next_producer_id = ProducerId(end);
                Ok(Applied::ProducerIds {
                    broker,
                    first,
                    count,
                })
            }
            _ => Err(ApplyError::ProducerIdsTaken { next }),
        }
    }

    /// Whether these partitions can follow `present` ones: bounded, each with distinct brokers
    /// that are known, cores that exist and a leader among them.
    fn can_place(&self, added: &[PartitionAssignment], present: u32) -> bool {
        let room = TOPIC_PARTITIONS_MAX.saturating_sub(present) as usize;
        let fits = |partition: &PartitionAssignment| {
            let replicas = &partition.replicas;
            let distinct = |at: usize, broker: BrokerId| {
                replicas.iter().take(at).all(|other| other.broker != broker)
            };
            (1..=REPLICAS_MAX).contains(&replicas.len())
                && replicas.iter().any(|r| r.broker == partition.leader)
                && replicas.iter().enumerate().all(|(at, replica)| {
                    let broker = self.brokers.get(&replica.broker);
                    broker.is_some_and(|broker| replica.core.0 < broker.cores())
                        && distinct(at, replica.broker)
                })
        };
        !added.is_empty() && added.len() <= room && added.iter().all(fits)
    }

    fn count_replicas(&mut self, added: &[PartitionAssignment]) {
        for replica in added.iter().flat_map(|partition| &partition.replicas) {
            if let Some(count) = self.core_count_mut(replica.broker, replica.core) {
                *count += 1;
            }
        }
    }

    pub(super) fn core_count_mut(&mut self, broker: BrokerId, core: CoreIndex) -> Option<&mut u32> {
        let broker = self.brokers.get_mut(&broker)?;
        broker.replicas_per_core.get_mut(usize::from(core.0))
    }

    fn replica_mut(
        &mut self,
        id: PartitionId,
        wanted: impl Fn(&Replica) -> bool,
    ) -> Option<&mut Replica> {
        let topic = self.topics.get_mut(&id.topic)?;
        let partition = topic.partitions.get_mut(id.partition.0 as usize)?;
        partition
            .replicas
            .iter_mut()
            .find(|replica| wanted(replica))
    }
}

impl Partition {
    fn new(assignment: &PartitionAssignment) -> Self {
        let replica = |assigned: &ReplicaAssignment| Replica {
            broker: assigned.broker,
            log_id: assigned.log_id,
            core: assigned.core,
            begun: false,
        };
        Self {
            leader: assignment.leader,
            leader_epoch: LeaderEpoch::ZERO,
            replicas: assignment.replicas.iter().map(replica).collect(),
        }
    }
}
