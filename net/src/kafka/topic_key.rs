//! Topics by name or by id.

use corelog_engine::identity::{PartitionId, PartitionIndex, TopicId};
use corelog_engine::metadata::{Image, Topic};
use corelog_engine::rejection::Rejection;
use corelog_wire::{Uuid, WireString};

/// How a request names a topic. Older versions name it, newer ones give its id (KIP-516).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicKey {
    /// By name.
    Name(WireString),
    /// By id.
    Id(TopicId),
}

impl TopicKey {
    /// What a request says: the id in versions that carry one, else a copy of the name.
    pub fn new(name: &WireString, id: Uuid, is_by_id: bool) -> Self {
        if is_by_id {
            Self::Id(TopicId(id.0))
        } else {
            Self::Name(name.detached())
        }
    }

    /// The topic, among those of the tenant.
    ///
    /// # Errors
    /// [`Rejection::UnknownTopicOrPartition`] or [`Rejection::UnknownTopicId`].
    pub fn find<'a>(&self, image: &'a Image, tenant: &str) -> Result<&'a Topic, Rejection> {
        match self {
            Self::Name(name) => image
                .topic_named(tenant, name)
                .ok_or(Rejection::UnknownTopicOrPartition),
            Self::Id(id) => image
                .topic(*id)
                .filter(|topic| topic.tenant == tenant)
                .ok_or(Rejection::UnknownTopicId),
        }
    }

    /// The name as it was given; empty for a topic by id, as the versions with ids have no name.
    pub fn name(&self) -> WireString {
        match self {
            Self::Name(name) => name.clone(),
            Self::Id(_) => WireString::default(),
        }
    }

    /// The id as it was given; zero for a topic by name.
    pub fn id(&self) -> Uuid {
        match self {
            Self::Name(_) => Uuid::ZERO,
            Self::Id(id) => Uuid(*id.bytes()),
        }
    }
}

/// The partition of that number.
///
/// # Errors
/// [`Rejection::UnknownTopicOrPartition`] if the topic has none.
pub fn partition_of(topic: &Topic, index: i32) -> Result<PartitionId, Rejection> {
    let index = u32::try_from(index).map_err(|_| Rejection::UnknownTopicOrPartition)?;
    let partition = PartitionIndex(index);
    match topic.partition(partition) {
        Some(_) => Ok(PartitionId {
            topic: topic.id,
            partition,
        }),
        None => Err(Rejection::UnknownTopicOrPartition),
    }
}
