#![allow(clippy::unwrap_used, clippy::panic)]

mod fetch;
mod groups;
mod produce;
mod topics;

use bytes::Bytes;
use corelog_engine::disk::DiskLevel;
use corelog_engine::identity::{BrokerId, ProcessId, TopicId};
use corelog_engine::metadata::decisions::{
    self, BrokerStart, TopicDefaults, TopicPlan, TopicRequest,
};
use corelog_engine::metadata::{Address, DEFAULT_TENANT, Image};
use corelog_wire::WireString;

/// A cluster of one broker with an offsets topic.
pub struct Cluster {
    pub image: Image,
    random: u128,
}

impl Cluster {
    pub fn new() -> Self {
        let mut cluster = Self {
            image: Image::new(),
            random: 1,
        };
        let start = BrokerStart {
            broker: BrokerId(3),
            process: ProcessId([7; 16]),
            zone: "a".into(),
            cores: 2,
            addresses: vec![Address {
                listener: super::LISTENER.into(),
                host: "broker.example".into(),
                port: 9092,
            }],
        };
        let records = decisions::start_broker(&cluster.image, &start).unwrap();
        cluster.apply(records);
        let mut random = cluster.random;
        let records =
            decisions::ensure_offsets_topic(&cluster.image, &TopicDefaults::default(), &mut || {
                next(&mut random)
            })
            .unwrap();
        cluster.random = random;
        cluster.apply(records);
        cluster
    }

    pub fn create(&mut self, name: &str, partitions: i32) -> TopicPlan {
        let request = TopicRequest {
            tenant: DEFAULT_TENANT.into(),
            name: name.into(),
            partitions,
            replication_factor: 1,
            configs: vec![("retention.ms".into(), Some("5".into()))],
            ..TopicRequest::default()
        };
        let mut random = self.random;
        let plan = decisions::create_topic(
            &self.image,
            &request,
            &TopicDefaults::default(),
            DiskLevel::Normal,
            &mut || next(&mut random),
        )
        .unwrap();
        self.random = random;
        self.apply(plan.records.clone());
        plan
    }

    pub fn delete(&mut self, topic: TopicId) {
        let records = decisions::delete_topic(&self.image, topic).unwrap();
        self.apply(records);
    }

    fn apply(&mut self, records: Vec<corelog_engine::metadata::MetadataRecord>) {
        for record in records {
            self.image.apply(&record).unwrap();
        }
    }
}

fn next(random: &mut u128) -> [u8; 16] {
    *random += 1;
    random.to_be_bytes()
}

pub fn text(text: &str) -> WireString {
    WireString::from(text)
}

/// One batch of the producer's, with this value in its one record.
pub fn batch(codec: corelog_batch::Codec, value: &[u8]) -> Bytes {
    let options = corelog_batch::BatchOptions {
        codec,
        ..corelog_batch::BatchOptions::default()
    };
    let mut builder = corelog_batch::BatchBuilder::new(options);
    builder.append(1, None, Some(value), &[]).unwrap();
    builder.build().unwrap().freeze()
}
