//! Administration of topics: CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords,
//! DescribeConfigs.

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::primitives::{Uuid, WireString};

structures! {
    /// Topics to create.
    CreateTopicsRequest {
        topics: Vec<CreatableTopic> [0..];
        timeout_ms: i32 [0..] default [60_000];
        validate_only: bool [1..] or refuse;
    }

    /// A topic to create.
    CreatableTopic {
        name: WireString [0..];
        /// -1 for the broker's default, or where `assignments` say it.
        num_partitions: i32 [0..];
        /// -1 for the broker's default, or where `assignments` say it.
        replication_factor: i16 [0..];
        assignments: Vec<CreatableReplicaAssignment> [0..];
        configs: Vec<CreatableTopicConfig> [0..];
    }

    /// Brokers for the replicas of one partition.
    CreatableReplicaAssignment {
        partition_index: i32 [0..];
        broker_ids: Vec<i32> [0..];
    }

    /// A setting of the new topic.
    CreatableTopicConfig {
        name: WireString [0..];
        value: Option<WireString> [0..] null [0..];
    }

    /// The outcome for each topic.
    CreateTopicsResponse {
        throttle_time_ms: i32 [2..];
        topics: Vec<CreatableTopicResult> [0..];
    }

    /// The outcome for one topic.
    CreatableTopicResult {
        name: WireString [0..];
        topic_id: Uuid [7..];
        error_code: ErrorCode [0..];
        error_message: Option<WireString> [1..] null [1..];
        topic_config_error_code: ErrorCode [5..] tag [0];
        num_partitions: i32 [5..] default [-1];
        replication_factor: i16 [5..] default [-1];
        /// Never sent as null, on which the Java admin client throws; null from others is empty.
        configs: Vec<CreatableTopicConfigs> [5..] null [5..];
    }

    /// A setting of the created topic (KIP-525).
    CreatableTopicConfigs {
        name: WireString [5..];
        value: Option<WireString> [5..] null [5..];
        read_only: bool [5..];
        config_source: i8 [5..] default [-1];
        is_sensitive: bool [5..];
    }

    /// Topics to delete.
    DeleteTopicsRequest {
        topics: Vec<DeleteTopicState> [6..] or refuse;
        topic_names: Vec<WireString> [0..=5] or refuse;
        timeout_ms: i32 [0..];
    }

    /// A topic by name, or by id where the name is null.
    DeleteTopicState {
        name: Option<WireString> [6..] null [6..];
        topic_id: Uuid [6..];
    }

    /// The outcome for each topic.
    DeleteTopicsResponse {
        throttle_time_ms: i32 [1..];
        responses: Vec<DeletableTopicResult> [0..];
    }

    /// The outcome for one topic.
    DeletableTopicResult {
        name: Option<WireString> [0..] null [6..];
        topic_id: Uuid [6..];
        error_code: ErrorCode [0..];
        error_message: Option<WireString> [5..] null [5..];
    }

    /// Topics that get more partitions.
    CreatePartitionsRequest {
        topics: Vec<CreatePartitionsTopic> [0..];
        timeout_ms: i32 [0..];
        validate_only: bool [0..];
    }

    /// The new count of partitions of one topic.
    CreatePartitionsTopic {
        name: WireString [0..];
        count: i32 [0..];
        assignments: Option<Vec<CreatePartitionsAssignment>> [0..] null [0..];
    }

    /// Brokers for the replicas of one new partition.
    CreatePartitionsAssignment {
        broker_ids: Vec<i32> [0..];
    }

    /// The outcome for each topic.
    CreatePartitionsResponse {
        throttle_time_ms: i32 [0..];
        results: Vec<CreatePartitionsTopicResult> [0..];
    }

    /// The outcome for one topic.
    CreatePartitionsTopicResult {
        name: WireString [0..];
        error_code: ErrorCode [0..];
        error_message: Option<WireString> [0..] null [0..];
    }

    /// Records to delete from the start of partitions.
    DeleteRecordsRequest {
        topics: Vec<DeleteRecordsTopic> [0..];
        timeout_ms: i32 [0..];
    }

    /// The partitions of one topic.
    DeleteRecordsTopic {
        name: WireString [0..];
        partitions: Vec<DeleteRecordsPartition> [0..];
    }

    /// The new first offset; -1 for the high watermark.
    DeleteRecordsPartition {
        partition_index: i32 [0..];
        offset: i64 [0..];
    }

    /// The outcome for each partition.
    DeleteRecordsResponse {
        throttle_time_ms: i32 [0..];
        topics: Vec<DeleteRecordsTopicResult> [0..];
    }

    /// The partitions of one topic.
    DeleteRecordsTopicResult {
        name: WireString [0..];
        partitions: Vec<DeleteRecordsPartitionResult> [0..];
    }

    /// The outcome for one partition.
    DeleteRecordsPartitionResult {
        partition_index: i32 [0..];
        low_watermark: i64 [0..];
        error_code: ErrorCode [0..];
    }

    /// Asks for settings.
    DescribeConfigsRequest {
        resources: Vec<DescribeConfigsResource> [0..];
        include_synonyms: bool [1..] or refuse;
        include_documentation: bool [3..];
    }

    /// A thing that has settings: 2 is a topic, 4 a broker.
    DescribeConfigsResource {
        resource_type: i8 [0..];
        resource_name: WireString [0..];
        /// `None` asks for all.
        configuration_keys: Option<Vec<WireString>> [0..] null [0..];
    }

    /// The settings of each resource.
    DescribeConfigsResponse {
        throttle_time_ms: i32 [0..];
        results: Vec<DescribeConfigsResult> [0..];
    }

    /// The settings of one resource.
    DescribeConfigsResult {
        error_code: ErrorCode [0..];
        error_message: Option<WireString> [0..] null [0..];
        resource_type: i8 [0..];
        resource_name: WireString [0..];
        configs: Vec<DescribeConfigsResourceResult> [0..];
    }

    /// One setting.
    DescribeConfigsResourceResult {
        name: WireString [0..];
        value: Option<WireString> [0..] null [0..];
        read_only: bool [0..];
        /// 1 topic, 2 dynamic broker, 3 dynamic default, 4 static broker, 5 default.
        config_source: i8 [1..] default [-1];
        is_sensitive: bool [0..];
        synonyms: Vec<DescribeConfigsSynonym> [1..];
        /// 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
        config_type: i8 [3..];
        documentation: Option<WireString> [3..] null [3..];
    }

    /// Another place that would give the setting.
    DescribeConfigsSynonym {
        name: WireString [1..];
        value: Option<WireString> [1..] null [1..];
        source: i8 [1..];
    }
}
