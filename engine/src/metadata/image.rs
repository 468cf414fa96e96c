//! What is known: brokers, topics, partitions, and how to look them up.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::record::Address;
use super::settings::{Partitioner, TopicSettings};
use super::topic_name::folded;
use super::{DEFAULT_TENANT, OFFSETS_TOPIC};
use crate::identity::{
    BrokerId, CoreIndex, LeaderEpoch, LogId, PartitionId, PartitionIndex, ProcessId, ProducerId,
    TopicId,
};
use crate::limits::OFFSETS_TOPIC_PARTITIONS;

/// Everything the cluster knows, after some record of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub(super) feature_level: u16,
    pub(super) next_producer_id: ProducerId,
    pub(super) brokers: BTreeMap<BrokerId, Broker>,
    pub(super) topics: BTreeMap<TopicId, Topic>,
    pub(super) tenants: BTreeMap<String, Names>,
}

/// A tenant's topics by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) by_name: BTreeMap<String, TopicId>,
    /// By name with `.` as `_`, of those names that have either: metrics would mix up two topics
    /// that share one.
    by_folded: BTreeMap<String, TopicId>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Where it stands.
    pub zone: String,
    /// Where it is reached.
    pub addresses: Vec<Address>,
    /// Its newest start; `None` before the first.
    pub process: Option<ProcessId>,
    /// How many replicas each of its cores owns.
    pub(super) replicas_per_core: Vec<u32>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its incarnation.
    pub id: TopicId,
    /// Whose it is.
    pub tenant: String,
    /// Its name within the tenant.
    pub name: String,
    /// How keys find partitions.
    pub partitioner: Partitioner,
    /// How many slots keys map to; slot s lies in partition s mod partitions.
    pub slots: u32,
    /// Kept by the broker itself; clients do not write to it.
    pub internal: bool,
    /// Its settings.
    pub settings: TopicSettings,
    /// Its partitions, from zero.
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Who leads.
    pub leader: BrokerId,
    /// In which epoch.
    pub leader_epoch: LeaderEpoch,
    /// Who keeps it.
    pub replicas: Box<[Replica]>,
}

/// A replica of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// On which broker.
    pub broker: BrokerId,
    /// The id its log was made with.
    pub log_id: LogId,
    /// Which core of the broker owns it.
    pub core: CoreIndex,
    /// Whether it has had a first append; if so, a missing log is a loss, never new.
    pub begun: bool,
}

impl Broker {
    /// How many cores it has.
    pub fn cores(&self) -> u16 {
        self.replicas_per_core.len() as u16
    }

    /// How many replicas it keeps.
    pub fn replica_count(&self) -> u32 {
        self.replicas_per_core.iter().sum()
    }

    /// How many replicas each of its cores owns.
    pub fn replicas_per_core(&self) -> &[u32] {
        &self.replicas_per_core
    }

    /// Where this listener is reached.
    pub fn address(&self, listener: &str) -> Option<&Address> {
        self.addresses
            .iter()
            .find(|address| address.listener == listener)
    }
}

impl Topic {
    /// The partition of that number.
    pub fn partition(&self, index: PartitionIndex) -> Option<&Partition> {
        self.partitions.get(index.0 as usize)
    }

    /// How many partitions it has.
    pub fn partition_count(&self) -> u32 {
        self.partitions.len() as u32
    }

    /// Its partitions with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.iter().zip(0..).map(|(partition, index)| {
            let id = PartitionId {
                topic: self.id,
                partition: PartitionIndex(index),
            };
            (id, partition)
        })
    }
}

impl Partition {
    /// The replica on that broker.
    pub fn replica_on(&self, broker: BrokerId) -> Option<&Replica> {
        self.replicas
            .iter()
            .find(|replica| replica.broker == broker)
    }

    /// The leader's replica.
    ///
    /// # Panics
    /// Never, by invariant 5.
    pub fn leader_replica(&self) -> &Replica {
        match self.replica_on(self.leader) {
            Some(replica) => replica,
            None => leader_keeps_no_replica(),
        }
    }
}

#[allow(clippy::panic)]
fn leader_keeps_no_replica() -> ! {
    panic!("the leader is one of the replicas")
}

impl Image {
    /// An image of nothing, before the first record.
    pub fn new() -> Self {
        Self::default()
    }

    /// The cluster's feature level; zero before the first.
    pub fn feature_level(&self) -> u16 {
        self.feature_level
    }

    /// The first producer id not granted yet.
    pub fn next_producer_id(&self) -> ProducerId {
        self.next_producer_id
    }

    /// All brokers, by id.
    pub fn brokers(&self) -> impl Iterator<Item = (BrokerId, &Broker)> {
        self.brokers.iter().map(|(&id, broker)| (id, broker))
    }

    /// One broker.
    pub fn broker(&self, id: BrokerId) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// All topics, by id.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.values()
    }

    /// One topic.
    pub fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.topics.get(&id)
    }

    /// The topic of that name.
    pub fn topic_named(&self, tenant: &str, name: &str) -> Option<&Topic> {
        let id = self.tenants.get(tenant)?.by_name.get(name)?;
        self.topics.get(id)
    }

    /// A tenant's topics, by name.
    pub fn topics_of(&self, tenant: &str) -> impl Iterator<Item = &Topic> {
        let names = self.tenants.get(tenant);
        names
            .into_iter()
            .flat_map(|names| names.by_name.values())
            .filter_map(|id| self.topics.get(id))
    }

    /// The topic whose name metrics could not tell from this one, or that has it: names that differ
    /// in `.` and `_` alone.
    pub fn topic_colliding(&self, tenant: &str, name: &str) -> Option<&Topic> {
        let names = self.tenants.get(tenant)?;
        let id = names.by_folded.get(folded(name)?.as_str())?;
        self.topics.get(id)
    }

    /// One partition.
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.topics.get(&id.topic)?.partition(id.partition)
    }

    /// The replica of a partition on a broker: log id, owning core, whether it has begun.
    pub fn replica(&self, id: PartitionId, broker: BrokerId) -> Option<&Replica> {
        self.partition(id)?.replica_on(broker)
    }

    /// All partitions, by topic id and number.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.topics.values().flat_map(Topic::iter)
    }

    /// What a broker keeps, by topic id and number.
    pub fn replicas_on(
        &self,
        broker: BrokerId,
    ) -> impl Iterator<Item = (PartitionId, &Partition, &Replica)> {
        self.partitions().filter_map(move |(id, partition)| {
            let replica = partition.replica_on(broker)?;
            Some((id, partition, replica))
        })
    }

    /// What one core of a broker owns, by topic id and number.
    pub fn replicas_on_core(
        &self,
        broker: BrokerId,
        core: CoreIndex,
    ) -> impl Iterator<Item = (PartitionId, &Partition, &Replica)> {
        self.replicas_on(broker)
            .filter(move |(_, _, replica)| replica.core == core)
    }

    /// The internal topic of groups and offsets, once it is made.
    pub fn offsets_topic(&self) -> Option<&Topic> {
        self.topic_named(DEFAULT_TENANT, OFFSETS_TOPIC)
    }

    /// The partition of the offsets topic that keeps a group; `None` before that topic is made.
    pub fn group_coordinator(&self, group: &str) -> Option<PartitionId> {
        let topic = self.offsets_topic()?;
        Some(PartitionId {
            topic: topic.id,
            partition: group_partition_of(group, topic.partition_count()),
        })
    }
}

impl Names {
    pub(super) fn insert(&mut self, name: &str, id: TopicId) {
        self.by_name.insert(name.into(), id);
        if let Some(folded) = folded(name) {
            self.by_folded.insert(folded, id);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        if let Some(folded) = folded(name) {
            self.by_folded.remove(&folded);
        }
    }
}

/// The partition of the offsets topic that keeps a group, by the hash that Kafka's brokers use, so
/// that tools which compute it themselves agree.
pub fn group_partition(group: &str) -> PartitionIndex {
    group_partition_of(group, OFFSETS_TOPIC_PARTITIONS)
}

/// Java's `String.hashCode` without its sign, modulo the partitions.
fn group_partition_of(group: &str, partitions: u32) -> PartitionIndex {
    let hash = group.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    });
    PartitionIndex((hash & 0x7fff_ffff) % partitions.max(1))
}
