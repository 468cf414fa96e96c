//! What the cluster is: Metadata, DescribeCluster, FindCoordinator.

use corelog_engine::identity::BrokerId;
use corelog_engine::metadata::{Image, Partition, Topic};
use corelog_engine::rejection::Rejection;
use corelog_wire::{
    Coordinator, DescribeClusterBroker, DescribeClusterResponse, FindCoordinatorResponse,
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic, Uuid, WireString,
};

use super::{Node, error_code, node_id};

/// What everyone may do to a topic while no access rules exist, as bits by Kafka's numbering:
/// read, write, create, delete, alter, describe, describe and alter configurations.
pub const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// The same for the cluster: create, alter, describe, describe and alter configurations, idempotent
/// writes.
pub const CLUSTER_OPERATIONS: i32 = 0b1_1101_1010_0000;
/// The same for a group: read, delete, describe.
pub const GROUP_OPERATIONS: i32 = 0b1_0100_1000;

/// All brokers that clients reach.
pub fn nodes(image: &Image) -> Vec<Node> {
    image
        .brokers()
        .filter_map(|(id, _)| Node::of(image, id))
        .collect()
}

/// All brokers, for Metadata.
pub fn metadata_brokers(image: &Image) -> Vec<MetadataResponseBroker> {
    let broker = |node: Node| MetadataResponseBroker {
        node_id: node.id,
        host: node.host,
        port: node.port,
        rack: Some(node.rack),
    };
    nodes(image).into_iter().map(broker).collect()
}

/// A topic, for Metadata.
pub fn metadata_topic(topic: &Topic, with_operations: bool) -> MetadataResponseTopic {
    let mut described = MetadataResponseTopic {
        name: Some(WireString::from(topic.name.as_str())),
        topic_id: Uuid(*topic.id.bytes()),
        is_internal: topic.internal,
        partitions: topic
            .partitions
            .iter()
            .zip(0..)
            .map(metadata_partition)
            .collect(),
        ..MetadataResponseTopic::default()
    };
    if with_operations {
        described.topic_authorized_operations = TOPIC_OPERATIONS;
    }
    described
}

fn metadata_partition(
    (partition, partition_index): (&Partition, i32),
) -> MetadataResponsePartition {
    let replicas = || {
        partition
            .replicas
            .iter()
            .map(|replica| node_id(replica.broker))
    };
    MetadataResponsePartition {
        partition_index,
        leader_id: node_id(partition.leader),
        leader_epoch: partition.leader_epoch.to_wire(),
        replica_nodes: replicas().collect(),
        isr_nodes: replicas().collect(),
        ..MetadataResponsePartition::default()
    }
}

/// A topic that is not described, for Metadata.
pub fn metadata_refused(
    name: Option<WireString>,
    topic_id: Uuid,
    rejection: Rejection,
) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: error_code(rejection),
        name,
        topic_id,
        ..MetadataResponseTopic::default()
    }
}

/// The brokers and the controller.
pub fn describe_cluster(
    image: &Image,
    cluster: &str,
    controller: BrokerId,
    with_operations: bool,
) -> DescribeClusterResponse {
    let broker = |node: Node| DescribeClusterBroker {
        broker_id: node.id,
        host: node.host,
        port: node.port,
        rack: Some(node.rack),
        is_fenced: false,
    };
    let mut described = DescribeClusterResponse {
        cluster_id: WireString::from(cluster),
        controller_id: node_id(controller),
        brokers: nodes(image).into_iter().map(broker).collect(),
        ..DescribeClusterResponse::default()
    };
    if with_operations {
        described.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    described
}

/// What a coordinator is looked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorKind {
    /// A consumer group.
    Group,
    /// A transactional id.
    Transaction,
    /// Anything else.
    Other,
}

impl CoordinatorKind {
    /// By its number on the wire.
    pub const fn from_code(code: i8) -> Self {
        match code {
            0 => Self::Group,
            1 => Self::Transaction,
            _ => Self::Other,
        }
    }
}

/// The broker that coordinates a group.
///
/// # Errors
/// [`Rejection::CoordinatorUnavailable`] before the internal topic exists;
/// [`Rejection::TransactionalIdAuthorizationFailed`] for transactions, which are not built;
/// [`Rejection::InvalidRequest`] for any other kind.
pub fn find_coordinator(
    image: &Image,
    kind: CoordinatorKind,
    key: &str,
) -> Result<Node, Rejection> {
    match kind {
        CoordinatorKind::Group => {
            let partition = image
                .group_coordinator(key)
                .and_then(|id| image.partition(id));
            partition
                .and_then(|partition| Node::of(image, partition.leader))
                .ok_or(Rejection::CoordinatorUnavailable)
        }
        CoordinatorKind::Transaction => Err(Rejection::TransactionalIdAuthorizationFailed),
        CoordinatorKind::Other => Err(Rejection::InvalidRequest),
    }
}

/// The answer for one key: a list entry from version 4 on.
pub fn coordinator(key: WireString, found: Result<Node, Rejection>) -> Coordinator {
    match found {
        Ok(node) => Coordinator {
            key,
            node_id: node.id,
            host: node.host,
            port: node.port,
            ..Coordinator::default()
        },
        Err(rejection) => Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code: error_code(rejection),
            error_message: Some(WireString::from_static(rejection.text())),
            ..Coordinator::default()
        },
    }
}

/// The answer up to version 3, which has one key.
pub fn single_coordinator(found: Coordinator) -> FindCoordinatorResponse {
    FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: found.error_message,
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..FindCoordinatorResponse::default()
    }
}
