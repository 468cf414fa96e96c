//! Positions of consumer groups: OffsetCommit, OffsetFetch.

use std::collections::BTreeMap;

use corelog_engine::identity::{LeaderEpoch, Offset, PartitionId};
use corelog_engine::metadata::Image;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Commit, CommittedOffset, GroupResponse, OffsetToCommit};
use corelog_wire::{
    ErrorCode, OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic, OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics, Uuid, WireString,
};

use super::groups::{GroupAnswer, fence};
use super::{TopicKey, error_code, partition_of};

/// First version of both requests that names topics by id.
const TOPIC_IDS_FROM: i16 = 10;
/// First version of OffsetFetch that asks about several groups (KIP-709).
const GROUP_LIST_FROM: i16 = 8;

/// A partition's number as it was given, and which partition that is.
type Place = (i32, Result<PartitionId, Rejection>);

/// A commit: what the coordinator is asked, and how its answer finds its places.
#[derive(Debug)]
pub struct CommitPlan {
    /// For the coordinator.
    pub commit: Commit,
    topics: Vec<(TopicKey, Vec<Place>)>,
}

impl CommitPlan {
    /// Reads a request. `authorize` says whether the asker may read a topic of that name.
    ///
    /// # Errors
    /// [`Rejection::IllegalGeneration`] for a generation that no group has.
    pub fn read(
        request: &OffsetCommitRequest,
        version: i16,
        image: &Image,
        tenant: &str,
        authorize: impl Fn(&str) -> Result<(), Rejection>,
    ) -> Result<Self, Rejection> {
        let is_member = request.generation_id_or_member_epoch >= 0 || !request.member_id.is_empty();
        let fence = is_member.then(|| {
            fence(
                request.generation_id_or_member_epoch,
                &request.member_id,
                &request.group_instance_id,
            )
        });
        let mut plan = Self {
            commit: Commit {
                fence: fence.transpose()?,
                offsets: Vec::new(),
            },
            topics: Vec::with_capacity(request.topics.len()),
        };
        for topic in &request.topics {
            let key = TopicKey::new(&topic.name, topic.topic_id, version >= TOPIC_IDS_FROM);
            let found = key.find(image, tenant);
            let found = found.and_then(|topic| authorize(&topic.name).map(|()| topic));
            let mut places = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let place = found
                    .and_then(|topic| partition_of(topic, partition.partition_index))
                    .and_then(|id| offset_to_commit(id, partition));
                let id = place
                    .as_ref()
                    .map(|offset| offset.partition)
                    .map_err(|rejection| *rejection);
                places.push((partition.partition_index, id));
                plan.commit.offsets.extend(place.ok());
            }
            plan.topics.push((key, places));
        }
        Ok(plan)
    }

    /// Takes out what the coordinator is asked.
    pub fn take_commit(&mut self) -> Commit {
        Commit {
            fence: self.commit.fence.take(),
            offsets: std::mem::take(&mut self.commit.offsets),
        }
    }

    /// The answer.
    pub fn response(self, answer: &GroupAnswer) -> OffsetCommitResponse {
        let outcomes: BTreeMap<PartitionId, Result<(), Rejection>> = match answer {
            Ok(GroupResponse::Committed(outcomes)) => outcomes.iter().copied().collect(),
            _ => BTreeMap::new(),
        };
        let refusal = answer
            .as_ref()
            .err()
            .copied()
            .unwrap_or(Rejection::CoordinatorUnavailable);
        let outcome = |id: &PartitionId| outcomes.get(id).copied().unwrap_or(Err(refusal));
        let partition = |(partition_index, place): Place| {
            let outcome = place.and_then(|id| outcome(&id));
            OffsetCommitResponsePartition {
                partition_index,
                error_code: super::outcome_code(&outcome),
            }
        };
        let topic = |(key, places): (TopicKey, Vec<Place>)| OffsetCommitResponseTopic {
            name: key.name(),
            topic_id: key.id(),
            partitions: places.into_iter().map(partition).collect(),
        };
        OffsetCommitResponse {
            topics: self.topics.into_iter().map(topic).collect(),
            ..OffsetCommitResponse::default()
        }
    }
}

/// The answer to a request that is refused as a whole.
pub fn commit_refused(request: &OffsetCommitRequest, rejection: Rejection) -> OffsetCommitResponse {
    let partition =
        |partition: &corelog_wire::OffsetCommitRequestPartition| OffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: error_code(rejection),
        };
    let topic = |topic: &corelog_wire::OffsetCommitRequestTopic| OffsetCommitResponseTopic {
        name: topic.name.detached(),
        topic_id: topic.topic_id,
        partitions: topic.partitions.iter().map(partition).collect(),
    };
    OffsetCommitResponse {
        topics: request.topics.iter().map(topic).collect(),
        ..OffsetCommitResponse::default()
    }
}

fn offset_to_commit(
    partition: PartitionId,
    request: &corelog_wire::OffsetCommitRequestPartition,
) -> Result<OffsetToCommit, Rejection> {
    let metadata = request.committed_metadata.as_ref();
    Ok(OffsetToCommit {
        partition,
        offset: Offset::from_wire(request.committed_offset).ok_or(Rejection::OffsetOutOfRange)?,
        leader_epoch: LeaderEpoch::from_wire(request.committed_leader_epoch),
        metadata: metadata.map(|text| text.to_string()).unwrap_or_default(),
    })
}

/// One group of an OffsetFetch.
#[derive(Debug)]
pub struct OffsetsPlan {
    /// The group.
    pub group: WireString,
    /// What is asked of it, topic by topic; `None` for everything.
    topics: Option<Vec<(TopicKey, Vec<i32>)>>,
    is_by_id: bool,
}

/// The groups of an OffsetFetch: one up to version 7, a list from then on.
pub fn offsets_plans(request: &OffsetFetchRequest, version: i16) -> Vec<OffsetsPlan> {
    let is_by_id = version >= TOPIC_IDS_FROM;
    if version < GROUP_LIST_FROM {
        let topic = |topic: &corelog_wire::OffsetFetchRequestTopic| {
            (
                TopicKey::Name(topic.name.detached()),
                topic.partition_indexes.clone(),
            )
        };
        let topics = request.topics.as_ref();
        return vec![OffsetsPlan {
            group: request.group_id.detached(),
            topics: topics.map(|topics| topics.iter().map(topic).collect()),
            is_by_id,
        }];
    }
    let topic = |topic: &corelog_wire::OffsetFetchRequestTopics| {
        let key = TopicKey::new(&topic.name, topic.topic_id, is_by_id);
        (key, topic.partition_indexes.clone())
    };
    let group = |group: &corelog_wire::OffsetFetchRequestGroup| OffsetsPlan {
        group: group.group_id.detached(),
        topics: group
            .topics
            .as_ref()
            .map(|topics| topics.iter().map(topic).collect()),
        is_by_id,
    };
    request.groups.iter().map(group).collect()
}

impl OffsetsPlan {
    /// The partitions to ask the coordinator for; `None` for all. Topics that do not exist are left
    /// out: nothing is stored for them, which is no error.
    pub fn partitions(&self, image: &Image, tenant: &str) -> Option<Vec<PartitionId>> {
        let topics = self.topics.as_ref()?;
        let known = topics.iter().filter_map(|(key, indexes)| {
            let topic = key.find(image, tenant).ok()?;
            Some(
                indexes
                    .iter()
                    .filter_map(|index| partition_of(topic, *index).ok()),
            )
        });
        Some(known.flatten().collect())
    }

    /// The answer for this group, in the form of version 8 and later.
    pub fn response(
        self,
        image: &Image,
        tenant: &str,
        answer: GroupAnswer,
    ) -> OffsetFetchResponseGroup {
        let mut response = OffsetFetchResponseGroup {
            group_id: self.group,
            ..OffsetFetchResponseGroup::default()
        };
        let stored = match answer {
            Ok(GroupResponse::Offsets(stored)) => stored,
            Ok(_) => {
                response.error_code = error_code(Rejection::CoordinatorUnavailable);
                return response;
            }
            Err(rejection) => {
                response.error_code = error_code(rejection);
                return response;
            }
        };
        response.topics = match self.topics {
            Some(topics) => asked_offsets(topics, image, tenant, stored),
            None => all_offsets(image, tenant, stored, self.is_by_id),
        };
        response
    }
}

fn asked_offsets(
    topics: Vec<(TopicKey, Vec<i32>)>,
    image: &Image,
    tenant: &str,
    stored: Vec<CommittedOffset>,
) -> Vec<OffsetFetchResponseTopics> {
    let mut by_partition: BTreeMap<PartitionId, CommittedOffset> = stored
        .into_iter()
        .map(|offset| (offset.partition, offset))
        .collect();
    let topic = |(key, indexes): (TopicKey, Vec<i32>)| {
        let found = key.find(image, tenant);
        let partition = |index: i32| {
            let id = found.and_then(|topic| partition_of(topic, index)).ok();
            let mut partition = offset_partition(index, id.and_then(|id| by_partition.remove(&id)));
            if let (TopicKey::Id(_), Err(rejection)) = (&key, &found) {
                partition.error_code = error_code(*rejection);
            }
            partition
        };
        OffsetFetchResponseTopics {
            name: key.name(),
            topic_id: key.id(),
            partitions: indexes.into_iter().map(partition).collect(),
        }
    };
    topics.into_iter().map(topic).collect()
}

fn all_offsets(
    image: &Image,
    tenant: &str,
    stored: Vec<CommittedOffset>,
    is_by_id: bool,
) -> Vec<OffsetFetchResponseTopics> {
    let mut topics = BTreeMap::new();
    for offset in stored {
        topics
            .entry(offset.partition.topic)
            .or_insert_with(Vec::new)
            .push(offset);
    }
    let named = topics.into_iter().filter_map(|(id, stored)| {
        // A topic that is gone has no name to answer with; its offsets are about to go too.
        let topic = image.topic(id).filter(|topic| topic.tenant == tenant)?;
        let partition = |offset: CommittedOffset| {
            let index = i32::try_from(offset.partition.partition.0).unwrap_or(i32::MAX);
            offset_partition(index, Some(offset))
        };
        Some(OffsetFetchResponseTopics {
            name: if is_by_id {
                WireString::default()
            } else {
                WireString::from(topic.name.as_str())
            },
            topic_id: if is_by_id {
                Uuid(*id.bytes())
            } else {
                Uuid::ZERO
            },
            partitions: stored.into_iter().map(partition).collect(),
        })
    });
    named.collect()
}

fn offset_partition(
    partition_index: i32,
    stored: Option<CommittedOffset>,
) -> OffsetFetchResponsePartitions {
    let mut partition = OffsetFetchResponsePartitions {
        partition_index,
        metadata: Some(WireString::default()),
        ..OffsetFetchResponsePartitions::default()
    };
    if let Some(stored) = stored {
        partition.committed_offset = stored.offset.to_wire();
        partition.committed_leader_epoch = stored.leader_epoch.map_or(-1, LeaderEpoch::to_wire);
        partition.metadata = Some(WireString::from(stored.metadata));
    }
    partition
}

/// The whole answer, in the form of the version.
pub fn offsets_response(
    groups: Vec<OffsetFetchResponseGroup>,
    plans: &[OffsetsShape],
    version: i16,
) -> OffsetFetchResponse {
    if version >= GROUP_LIST_FROM {
        return OffsetFetchResponse {
            groups,
            ..OffsetFetchResponse::default()
        };
    }
    let Some(group) = groups.into_iter().next() else {
        return OffsetFetchResponse::default();
    };
    let mut topics: Vec<OffsetFetchResponseTopic> =
        group.topics.into_iter().map(older_topic).collect();
    // Version 1 has no place for a refusal of the whole but its partitions.
    if version < 2 && !group.error_code.is_none() {
        topics = plans
            .iter()
            .flat_map(|shape| shape.refused(group.error_code))
            .collect();
    }
    OffsetFetchResponse {
        topics,
        error_code: group.error_code,
        ..OffsetFetchResponse::default()
    }
}

fn older_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    let partition = |partition: OffsetFetchResponsePartitions| OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
    };
    OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    }
}

/// What one group was asked for, kept for an answer that refuses it partition by partition.
#[derive(Clone, Debug)]
pub struct OffsetsShape(Vec<(WireString, Vec<i32>)>);

impl OffsetsPlan {
    /// What was asked.
    pub fn shape(&self) -> OffsetsShape {
        let topics = self.topics.iter().flatten();
        OffsetsShape(
            topics
                .map(|(key, indexes)| (key.name(), indexes.clone()))
                .collect(),
        )
    }
}

impl OffsetsShape {
    fn refused(&self, error_code: ErrorCode) -> Vec<OffsetFetchResponseTopic> {
        let topic = |(name, indexes): &(WireString, Vec<i32>)| OffsetFetchResponseTopic {
            name: name.clone(),
            partitions: indexes
                .iter()
                .map(|&partition_index| OffsetFetchResponsePartition {
                    partition_index,
                    error_code,
                    ..OffsetFetchResponsePartition::default()
                })
                .collect(),
        };
        self.0.iter().map(topic).collect()
    }
}
