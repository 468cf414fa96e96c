//! Where the replicas of new partitions go: brokers of different zones, and on each of them the core
//! that owns the fewest replicas. Ties go to the smaller number, so equal images place equally.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::RandomId;
use crate::identity::{BrokerId, CoreIndex, LogId};
use crate::limits::BROKER_PARTITIONS_MAX;
use crate::metadata::record::{PartitionAssignment, ReplicaAssignment};
use crate::metadata::{Image, Refusal};
use crate::rejection::Rejection;

/// The replicas that each core of each broker owns, as placements are added.
pub(super) struct Loads<'a> {
    brokers: BTreeMap<BrokerId, BrokerLoad<'a>>,
}

struct BrokerLoad<'a> {
    zone: &'a str,
    cores: Vec<u32>,
    replicas: u32,
    leads: u32,
}

impl<'a> Loads<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        let load = |broker: &'a crate::metadata::Broker| BrokerLoad {
            zone: &broker.zone,
            cores: broker.replicas_per_core().to_vec(),
            replicas: broker.replica_count(),
            leads: 0,
        };
        let brokers = image.brokers().filter(|(_, broker)| broker.cores() > 0);
        Self {
            brokers: brokers.map(|(id, broker)| (id, load(broker))).collect(),
        }
    }

    /// How many zones have brokers: the most replicas that a partition can have.
    pub(super) fn zone_count(&self) -> usize {
        let mut zones: Vec<&str> = self.brokers.values().map(|load| load.zone).collect();
        zones.sort_unstable();
        zones.dedup();
        zones.len()
    }

    /// Chooses brokers for one more partition: the least loaded ones, in different zones; of these
    /// the one that leads least leads.
    pub(super) fn choose(&mut self, replication_factor: usize) -> Vec<BrokerId> {
        let mut by_load: Vec<(u32, BrokerId)> = self
            .brokers
            .iter()
            .map(|(&id, load)| (load.replicas, id))
            .collect();
        by_load.sort_unstable();
        let mut zones: Vec<&str> = Vec::new();
        let mut chosen: Vec<(u32, BrokerId)> = Vec::new();
        for (_, id) in by_load {
            let Some(load) = self.brokers.get(&id) else {
                continue;
            };
            if chosen.len() < replication_factor && !zones.contains(&load.zone) {
                zones.push(load.zone);
                chosen.push((load.leads, id));
            }
        }
        chosen.sort_unstable();
        chosen.into_iter().map(|(_, id)| id).collect()
    }

    /// Places a partition on these brokers, led by the first.
    pub(super) fn place(
        &mut self,
        brokers: &[BrokerId],
        random_id: RandomId<'_>,
    ) -> Result<PartitionAssignment, Refusal> {
        let Some(&leader) = brokers.first() else {
            return Err(Refusal::new(
                Rejection::InvalidReplicaAssignment,
                "a partition needs a replica",
            ));
        };
        let mut replicas = Vec::with_capacity(brokers.len());
        for &broker in brokers {
            replicas.push(ReplicaAssignment {
                broker,
                log_id: LogId(random_id()),
                core: self.take_core(broker)?,
            });
        }
        if let Some(load) = self.brokers.get_mut(&leader) {
            load.leads += 1;
        }
        Ok(PartitionAssignment { leader, replicas })
    }

    fn take_core(&mut self, broker: BrokerId) -> Result<CoreIndex, Refusal> {
        let Some(load) = self.brokers.get_mut(&broker) else {
            return Err(Refusal::new(
                Rejection::InvalidReplicaAssignment,
                format!("broker {broker} is unknown"),
            ));
        };
        if load.replicas >= BROKER_PARTITIONS_MAX {
            return Err(Refusal::new(
                Rejection::InvalidPartitions,
                format!("broker {broker} would hold more than {BROKER_PARTITIONS_MAX} partitions"),
            ));
        }
        let least = load
            .cores
            .iter_mut()
            .zip(0..)
            .min_by_key(|(count, _)| **count);
        let Some((count, core)) = least else {
            return Err(Refusal::new(
                Rejection::InvalidReplicaAssignment,
                format!("broker {broker} has no core"),
            ));
        };
        *count += 1;
        load.replicas += 1;
        Ok(CoreIndex(core))
    }
}
