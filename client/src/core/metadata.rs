//! What is known of brokers, topics and leaders.
//!
//! Invariant: only topics that were asked for are kept, so the size follows the caller's own interest.

use std::collections::BTreeMap;

use corelog_wire::{ErrorCode, MetadataRequest, MetadataRequestTopic, MetadataResponse, Uuid};

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Rack or zone, where the broker tells it.
    pub rack: Option<String>,
}

impl BrokerAddress {
    /// `host:port`, with brackets around an IPv6 address.
    pub fn host_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// The broker that leads it, if one does.
    pub leader: Option<i32>,
    /// The leader's epoch; -1 if unknown.
    pub leader_epoch: i32,
    /// Brokers that hold a replica.
    pub replicas: Vec<i32>,
    /// Those of them that are in sync.
    pub in_sync_replicas: Vec<i32>,
    /// What the broker says of it.
    pub error: ErrorCode,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Its unique id; zero from brokers that have none.
    pub id: Uuid,
    /// What the broker says of it.
    pub error: ErrorCode,
    /// Whether it belongs to the broker.
    pub is_internal: bool,
    /// Its partitions.
    pub partitions: BTreeMap<i32, PartitionMetadata>,
}

/// Brokers, topics and leaders as last told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    brokers: BTreeMap<i32, BrokerAddress>,
    topics: BTreeMap<String, TopicMetadata>,
    controller: Option<i32>,
    cluster_id: Option<String>,
}

impl Metadata {
    /// The request for these topics; `None` asks for all.
    pub fn request(topics: Option<&[&str]>, allow_auto_topic_creation: bool) -> MetadataRequest {
        let topics = topics.map(|names| {
            let topic = |name: &&str| MetadataRequestTopic {
                name: Some((*name).into()),
                ..MetadataRequestTopic::default()
            };
            names.iter().map(topic).collect()
        });
        MetadataRequest {
            topics,
            allow_auto_topic_creation,
            ..MetadataRequest::default()
        }
    }

    /// Takes an answer: brokers are replaced, and the topics that it names. One that does not exist is
    /// forgotten.
    pub fn apply(&mut self, response: &MetadataResponse) {
        if !response.brokers.is_empty() {
            self.brokers = response
                .brokers
                .iter()
                .filter_map(|broker| {
                    let address = BrokerAddress {
                        host: broker.host.to_string(),
                        port: u16::try_from(broker.port).ok()?,
                        rack: broker.rack.as_ref().map(ToString::to_string),
                    };
                    Some((broker.node_id, address))
                })
                .collect();
        }
        self.controller = Some(response.controller_id).filter(|id| *id >= 0);
        self.cluster_id = response.cluster_id.as_ref().map(ToString::to_string);
        for topic in &response.topics {
            let Some(name) = &topic.name else { continue };
            if topic.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
                self.topics.remove(name.as_str());
                continue;
            }
            let partitions = topic
                .partitions
                .iter()
                .map(|partition| {
                    let metadata = PartitionMetadata {
                        leader: Some(partition.leader_id).filter(|id| *id >= 0),
                        leader_epoch: partition.leader_epoch,
                        replicas: partition.replica_nodes.clone(),
                        in_sync_replicas: partition.isr_nodes.clone(),
                        error: partition.error_code,
                    };
                    (partition.partition_index, metadata)
                })
                .collect();
            let metadata = TopicMetadata {
                id: topic.topic_id,
                error: topic.error_code,
                is_internal: topic.is_internal,
                partitions,
            };
            self.topics.insert(name.to_string(), metadata);
        }
    }

    /// The brokers by id.
    pub fn brokers(&self) -> &BTreeMap<i32, BrokerAddress> {
        &self.brokers
    }

    /// Where this broker listens.
    pub fn broker(&self, id: i32) -> Option<&BrokerAddress> {
        self.brokers.get(&id)
    }

    /// The broker that administration goes to, if the answer named one.
    pub fn controller(&self) -> Option<i32> {
        self.controller
    }

    /// The cluster's name for itself.
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// The topics by name.
    pub fn topics(&self) -> &BTreeMap<String, TopicMetadata> {
        &self.topics
    }

    /// A topic, if it is known.
    pub fn topic(&self, name: &str) -> Option<&TopicMetadata> {
        self.topics.get(name)
    }

    /// How many partitions a topic has, if it is known and has any.
    pub fn partition_count(&self, topic: &str) -> Option<std::num::NonZeroU32> {
        let partitions = self.topics.get(topic)?.partitions.len();
        std::num::NonZeroU32::new(u32::try_from(partitions).ok()?)
    }

    /// The leader of a partition, if it is known and its address too.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        let partition = self.topics.get(topic)?.partitions.get(&partition)?;
        partition.leader.filter(|id| self.brokers.contains_key(id))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use corelog_wire::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};

    use super::*;

    fn response(error_code: ErrorCode, leader_id: i32) -> MetadataResponse {
        MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: 1,
                host: "h".into(),
                port: 9092,
                rack: None,
            }],
            topics: vec![MetadataResponseTopic {
                error_code,
                name: Some("t".into()),
                partitions: vec![MetadataResponsePartition {
                    leader_id,
                    ..MetadataResponsePartition::default()
                }],
                ..MetadataResponseTopic::default()
            }],
            ..MetadataResponse::default()
        }
    }

    #[test]
    fn a_leader_counts_only_when_its_address_is_known() {
        let mut metadata = Metadata::default();
        metadata.apply(&response(ErrorCode::NONE, 1));
        assert_eq!(metadata.leader("t", 0), Some(1));
        metadata.apply(&response(ErrorCode::NONE, 2));
        assert_eq!(metadata.leader("t", 0), None);
        metadata.apply(&response(ErrorCode::NONE, -1));
        assert_eq!(metadata.leader("t", 0), None);
    }

    #[test]
    fn a_deleted_topic_is_forgotten() {
        let mut metadata = Metadata::default();
        metadata.apply(&response(ErrorCode::NONE, 1));
        metadata.apply(&response(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1));
        assert!(metadata.topic("t").is_none());
    }

    #[test]
    fn an_ipv6_host_gets_brackets() {
        let address = BrokerAddress {
            host: "::1".into(),
            port: 9092,
            rack: None,
        };
        assert_eq!(address.host_port(), "[::1]:9092");
    }
}
