//! A stand-in for the control plane: records in order, durable at once, heard late by the core.

use corelog_engine::identity::{BrokerId, CoreIndex, LogId, PartitionId, ProcessId, TopicId};
use corelog_engine::metadata::decisions::{BrokerStart, begin_log, start_broker};
use corelog_engine::metadata::{
    DEFAULT_TENANT, Image, MetadataRecord, OFFSETS_TOPIC, PartitionAssignment, Partitioner,
    ReplicaAssignment, TopicCreated, TopicSettings,
};

use super::chance::Chance;

/// The one broker.
pub const BROKER: BrokerId = BrokerId(1);
/// Its one core.
pub const CORE: CoreIndex = CoreIndex(0);

/// See the module.
#[derive(Debug, Default)]
pub struct ControlPlane {
    /// What all records together say.
    pub image: Image,
    records: Vec<MetadataRecord>,
}

impl ControlPlane {
    /// Orders a record. A record that does not fit is dropped, as everywhere. True if it is in.
    pub fn commit(&mut self, record: MetadataRecord) -> bool {
        let fits = self.image.apply(&record).is_ok();
        if fits {
            self.records.push(record);
        }
        fits
    }

    /// The record at that place.
    pub fn record(&self, at: usize) -> Option<&MetadataRecord> {
        self.records.get(at)
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The broker's process has started.
    pub fn start_broker(&mut self, chance: &mut Chance) {
        let start = BrokerStart {
            broker: BROKER,
            process: ProcessId(chance.id()),
            zone: String::from("a"),
            cores: 1,
            addresses: Vec::new(),
        };
        let records = start_broker(&self.image, &start);
        assert!(records.is_ok(), "a broker's start is refused: {records:?}");
        for record in records.unwrap_or_default() {
            self.commit(record);
        }
    }

    /// What a proposal of the core's becomes.
    pub fn decide(&self, proposal: MetadataRecord) -> Vec<MetadataRecord> {
        match proposal {
            MetadataRecord::LogBegun { partition, log_id } => {
                begin_log(&self.image, partition, log_id).unwrap_or_default()
            }
            other => vec![other],
        }
    }

    /// The record of a new topic.
    pub fn topic(
        &self,
        name: &str,
        partitions: u32,
        settings: TopicSettings,
        chance: &mut Chance,
    ) -> MetadataRecord {
        MetadataRecord::TopicCreated(TopicCreated {
            topic: TopicId(chance.id()),
            tenant: String::from(DEFAULT_TENANT),
            name: String::from(name),
            partitioner: Partitioner::Murmur2,
            slots: 64,
            internal: name == OFFSETS_TOPIC,
            settings,
            partitions: (0..partitions).map(|_| assignment(chance)).collect(),
        })
    }

    /// The record of more partitions of a topic.
    pub fn more_partitions(
        &self,
        topic: TopicId,
        partitions: u32,
        chance: &mut Chance,
    ) -> MetadataRecord {
        MetadataRecord::PartitionsAdded {
            topic,
            partitions: (0..partitions).map(|_| assignment(chance)).collect(),
            slots: 64,
        }
    }

    /// The partition of that number of the topic that has this name now.
    pub fn partition(&self, name: &str, number: u32) -> Option<PartitionId> {
        let topic = self.image.topic_named(DEFAULT_TENANT, name)?;
        let mut partitions = topic.iter().map(|(id, _)| id);
        partitions.find(|id| id.partition.0 == number)
    }
}

fn assignment(chance: &mut Chance) -> PartitionAssignment {
    PartitionAssignment {
        leader: BROKER,
        replicas: vec![ReplicaAssignment {
            broker: BROKER,
            log_id: LogId(chance.id()),
            core: CORE,
        }],
    }
}
