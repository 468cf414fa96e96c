//! What a broker offers and where everything lives: ApiVersions, Metadata, DescribeCluster.

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::primitives::{Uuid, WireString};

/// Value of an `authorized operations` field when they were not asked for.
pub const AUTHORIZED_OPERATIONS_UNKNOWN: i32 = i32::MIN;

structures! {
    /// Asks which versions the broker serves (KIP-35, KIP-511).
    ApiVersionsRequest {
        client_software_name: WireString [3..];
        client_software_version: WireString [3..];
    }

    /// The versions that the broker serves, and its features (KIP-584).
    ApiVersionsResponse {
        error_code: ErrorCode [0..];
        api_keys: Vec<ApiVersion> [0..];
        throttle_time_ms: i32 [1..];
        supported_features: Vec<SupportedFeatureKey> [3..] tag [0];
        finalized_features_epoch: i64 [3..] tag [1] default [-1];
        finalized_features: Vec<FinalizedFeatureKey> [3..] tag [2];
        zk_migration_ready: bool [3..] tag [3];
    }

    /// The versions of one API; both ends are inclusive.
    ApiVersion {
        api_key: i16 [0..];
        min_version: i16 [0..];
        max_version: i16 [0..];
    }

    /// A feature and the levels that this broker could run.
    SupportedFeatureKey {
        name: WireString [3..];
        min_version: i16 [3..];
        max_version: i16 [3..];
    }

    /// A feature and the level at which the cluster runs it.
    FinalizedFeatureKey {
        name: WireString [3..];
        max_version_level: i16 [3..];
        min_version_level: i16 [3..];
    }

    /// Asks for brokers, topics and leaders.
    MetadataRequest {
        /// `None` asks for all topics; an empty list for none, except in version 0, where it asks
        /// for all.
        topics: Option<Vec<MetadataRequestTopic>> [0..] null [1..];
        allow_auto_topic_creation: bool [4..] default [true] or refuse;
        include_cluster_authorized_operations: bool [8..=10];
        include_topic_authorized_operations: bool [8..];
    }

    /// A topic by name, or by id where the name is null.
    MetadataRequestTopic {
        topic_id: Uuid [10..] or refuse;
        name: Option<WireString> [0..] null [10..];
    }

    /// Brokers, topics and leaders.
    MetadataResponse {
        throttle_time_ms: i32 [3..];
        brokers: Vec<MetadataResponseBroker> [0..];
        cluster_id: Option<WireString> [2..] null [2..];
        controller_id: i32 [1..] default [-1];
        topics: Vec<MetadataResponseTopic> [0..];
        cluster_authorized_operations: i32 [8..=10] default [AUTHORIZED_OPERATIONS_UNKNOWN];
        error_code: ErrorCode [13..];
    }

    /// A broker and its address on the listener that was asked.
    MetadataResponseBroker {
        node_id: i32 [0..];
        host: WireString [0..];
        port: i32 [0..];
        rack: Option<WireString> [1..] null [1..];
    }

    /// A topic and its partitions.
    MetadataResponseTopic {
        error_code: ErrorCode [0..];
        name: Option<WireString> [0..] null [12..];
        topic_id: Uuid [10..];
        is_internal: bool [1..];
        partitions: Vec<MetadataResponsePartition> [0..];
        topic_authorized_operations: i32 [8..] default [AUTHORIZED_OPERATIONS_UNKNOWN];
    }

    /// A partition, its leader and its replicas.
    MetadataResponsePartition {
        error_code: ErrorCode [0..];
        partition_index: i32 [0..];
        leader_id: i32 [0..];
        leader_epoch: i32 [7..] default [-1];
        replica_nodes: Vec<i32> [0..];
        isr_nodes: Vec<i32> [0..];
        offline_replicas: Vec<i32> [5..];
    }

    /// Asks for the brokers alone (KIP-700).
    DescribeClusterRequest {
        include_cluster_authorized_operations: bool [0..];
        /// 1 for brokers, 2 for controllers.
        endpoint_type: i8 [1..] default [1] or refuse;
        include_fenced_brokers: bool [2..];
    }

    /// The brokers and the controller.
    DescribeClusterResponse {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<WireString> [0..] null [0..];
        endpoint_type: i8 [1..] default [1];
        cluster_id: WireString [0..];
        controller_id: i32 [0..] default [-1];
        brokers: Vec<DescribeClusterBroker> [0..];
        cluster_authorized_operations: i32 [0..] default [AUTHORIZED_OPERATIONS_UNKNOWN];
    }

    /// A broker and its address.
    DescribeClusterBroker {
        broker_id: i32 [0..];
        host: WireString [0..];
        port: i32 [0..];
        rack: Option<WireString> [0..] null [0..];
        is_fenced: bool [2..];
    }
}

impl MetadataRequest {
    /// Whether all topics are asked for: null, or in version 0 an empty list.
    pub fn asks_for_all_topics(&self, version: i16) -> bool {
        match &self.topics {
            None => true,
            Some(topics) => version == 0 && topics.is_empty(),
        }
    }
}
