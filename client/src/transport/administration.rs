//! Topics, offsets and groups, as an operator sees them.

use corelog_wire::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, DescribeConfigsResource, DescribeGroupsRequest, DescribedGroup,
    ErrorCode, FindCoordinatorRequest, ListGroupsRequest, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsTopic, ListedGroup, OffsetFetchRequest,
};

use super::client::Client;
use super::error::ClientError;

/// How long the broker may take for a change, in milliseconds.
const CHANGE_TIMEOUT_MS: i32 = 30_000;
/// Kafka's number for topics among things that have settings.
const RESOURCE_TOPIC: i8 = 2;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; -1 leaves it to the broker.
    pub partitions: i32,
    /// How many replicas of each; -1 leaves it to the broker.
    pub replication_factor: i16,
    /// Settings by their Kafka names.
    pub configs: Vec<(String, String)>,
}

impl NewTopic {
    /// A topic with this many partitions; all else is left to the broker.
    pub fn new(name: &str, partitions: i32) -> Self {
        Self {
            name: name.to_owned(),
            partitions,
            replication_factor: -1,
            configs: Vec::new(),
        }
    }
}

/// What a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// The partition.
    pub partition: i32,
    /// The oldest offset.
    pub earliest: i64,
    /// One past the last record.
    pub latest: i64,
}

impl Client {
    /// Creates a topic.
    ///
    /// # Errors
    /// [`ClientError::Refused`], or what the call met.
    pub async fn create_topic(&mut self, topic: &NewTopic) -> Result<(), ClientError> {
        let configs = topic
            .configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: name.as_str().into(),
                value: Some(value.as_str().into()),
            });
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic.name.as_str().into(),
                num_partitions: topic.partitions,
                replication_factor: topic.replication_factor,
                configs: configs.collect(),
                ..CreatableTopic::default()
            }],
            timeout_ms: CHANGE_TIMEOUT_MS,
            ..CreateTopicsRequest::default()
        };
        let response = self.call(&request).await?;
        let what = || format!("creating topic {}", topic.name);
        match response.topics.first() {
            Some(result) if result.error_code.is_none() => Ok(()),
            Some(result) => Err(ClientError::Refused {
                what: what(),
                code: result.error_code,
                message: result.error_message.as_ref().map(ToString::to_string),
            }),
            None => ClientError::check(what, ErrorCode::UNKNOWN_SERVER_ERROR),
        }
    }

    /// Deletes a topic and all its records.
    ///
    /// # Errors
    /// [`ClientError::Refused`], or what the call met.
    pub async fn delete_topic(&mut self, name: &str) -> Result<(), ClientError> {
        let request = DeleteTopicsRequest {
            topic_names: vec![name.into()],
            timeout_ms: CHANGE_TIMEOUT_MS,
            ..DeleteTopicsRequest::default()
        };
        let response = self.call(&request).await?;
        let what = || format!("deleting topic {name}");
        match response.responses.first() {
            Some(result) if result.error_code.is_none() => Ok(()),
            Some(result) => Err(ClientError::Refused {
                what: what(),
                code: result.error_code,
                message: result.error_message.as_ref().map(ToString::to_string),
            }),
            None => ClientError::check(what, ErrorCode::UNKNOWN_SERVER_ERROR),
        }
    }

    /// Oldest and next offset of each partition of a topic.
    ///
    /// # Errors
    /// [`ClientError::Refused`], or what the calls met.
    pub async fn partition_offsets(
        &mut self,
        name: &str,
    ) -> Result<Vec<PartitionOffsets>, ClientError> {
        let partitions: Vec<i32> = self.topic(name).await?.partitions.keys().copied().collect();
        let mut offsets = Vec::with_capacity(partitions.len());
        let earliest = self.list_offsets(name, &partitions, EARLIEST).await?;
        let latest = self.list_offsets(name, &partitions, LATEST).await?;
        for (partition, (earliest, latest)) in
            partitions.into_iter().zip(earliest.into_iter().zip(latest))
        {
            offsets.push(PartitionOffsets {
                partition,
                earliest,
                latest,
            });
        }
        Ok(offsets)
    }

    /// Settings of a topic, by name.
    ///
    /// # Errors
    /// [`ClientError::Refused`], or what the call met.
    pub async fn topic_settings(
        &mut self,
        name: &str,
    ) -> Result<Vec<(String, Option<String>)>, ClientError> {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: RESOURCE_TOPIC,
                resource_name: name.into(),
                configuration_keys: None,
            }],
            ..DescribeConfigsRequest::default()
        };
        let response = self.call(&request).await?;
        let mut settings = Vec::new();
        for result in response.results {
            ClientError::check(|| format!("settings of topic {name}"), result.error_code)?;
            settings.extend(result.configs.into_iter().map(|config| {
                let value = config.value.map(|value| value.to_string());
                (config.name.to_string(), value)
            }));
        }
        Ok(settings)
    }

    /// The groups of all brokers.
    ///
    /// # Errors
    /// [`ClientError::Refused`], or what the calls met.
    pub async fn groups(&mut self) -> Result<Vec<ListedGroup>, ClientError> {
        self.refresh(Some(&[])).await?;
        let brokers: Vec<i32> = self.metadata().brokers().keys().copied().collect();
        let mut groups = Vec::new();
        for broker in brokers {
            let request = ListGroupsRequest::default();
            let response = self.call_broker(broker, &request).await?;
            ClientError::check(|| "listing groups".to_owned(), response.error_code)?;
            groups.extend(response.groups);
        }
        groups.sort_by(|one, other| one.group_id.cmp(&other.group_id));
        Ok(groups)
    }

    /// The state of a group and the positions that are stored for it: topic, partition and offset.
    ///
    /// # Errors
    /// [`ClientError::Refused`], or what the calls met.
    pub async fn describe_group(
        &mut self,
        group: &str,
    ) -> Result<(DescribedGroup, Vec<(String, i32, i64)>), ClientError> {
        let find = FindCoordinatorRequest {
            key: group.into(),
            ..FindCoordinatorRequest::default()
        };
        let found = self.call(&find).await?;
        ClientError::check(|| format!("coordinator of group {group}"), found.error_code)?;
        let host = if found.host.contains(':') {
            format!("[{}]:{}", found.host, found.port)
        } else {
            format!("{}:{}", found.host, found.port)
        };
        let timeout_ms = self.settings.request_timeout_ms;
        let mut coordinator = self.connect_address(&host).await?;
        let describe = DescribeGroupsRequest {
            groups: vec![group.into()],
            ..DescribeGroupsRequest::default()
        };
        let described = coordinator.call(&describe, timeout_ms).await?;
        let described = described.groups.into_iter().next().unwrap_or_default();
        ClientError::check(|| format!("group {group}"), described.error_code)?;
        let fetch = OffsetFetchRequest {
            group_id: group.into(),
            topics: None,
            ..OffsetFetchRequest::default()
        };
        let fetched = coordinator.call(&fetch, timeout_ms).await?;
        ClientError::check(|| format!("positions of group {group}"), fetched.error_code)?;
        let mut positions = Vec::new();
        for topic in fetched.topics {
            for partition in topic.partitions {
                positions.push((
                    topic.name.to_string(),
                    partition.partition_index,
                    partition.committed_offset,
                ));
            }
        }
        Ok((described, positions))
    }

    /// The offset at `timestamp` (or its special values) for each of `partitions`, in their order.
    async fn list_offsets(
        &mut self,
        name: &str,
        partitions: &[i32],
        timestamp: i64,
    ) -> Result<Vec<i64>, ClientError> {
        let mut offsets = vec![0; partitions.len()];
        let mut leaders: Vec<i32> = partitions
            .iter()
            .filter_map(|partition| self.metadata().leader(name, *partition))
            .collect();
        leaders.sort_unstable();
        leaders.dedup();
        for leader in leaders {
            let led = partitions
                .iter()
                .filter(|partition| self.metadata().leader(name, **partition) == Some(leader));
            let asked = led.map(|partition| ListOffsetsPartition {
                partition_index: *partition,
                timestamp,
                ..ListOffsetsPartition::default()
            });
            let request = ListOffsetsRequest {
                topics: vec![ListOffsetsTopic {
                    name: name.into(),
                    partitions: asked.collect(),
                }],
                timeout_ms: CHANGE_TIMEOUT_MS,
                ..ListOffsetsRequest::default()
            };
            let response = self.call_broker(leader, &request).await?;
            for answer in response.topics.iter().flat_map(|topic| &topic.partitions) {
                let partition = answer.partition_index;
                ClientError::check(
                    || format!("offsets of {name}/{partition}"),
                    answer.error_code,
                )?;
                let index = partitions.iter().position(|asked| *asked == partition);
                if let Some(offset) = index.and_then(|index| offsets.get_mut(index)) {
                    *offset = answer.offset;
                }
            }
        }
        Ok(offsets)
    }
}
