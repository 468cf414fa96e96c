//! Offsets of a log and ids of producers: ListOffsets, OffsetForLeaderEpoch, InitProducerId.

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::primitives::WireString;

structures! {
    /// Asks for the offset at a time.
    ListOffsetsRequest {
        replica_id: i32 [0..] default [-1];
        isolation_level: i8 [2..];
        topics: Vec<ListOffsetsTopic> [0..];
        timeout_ms: i32 [10..];
    }

    /// The partitions of one topic.
    ListOffsetsTopic {
        name: WireString [0..];
        partitions: Vec<ListOffsetsPartition> [0..];
    }

    /// One partition. Below zero the time has a meaning of its own: -1 the end, -2 the start, -3
    /// the largest timestamp (version 7), -4 the local start (8), -5 the end of the tiered part (9).
    ListOffsetsPartition {
        partition_index: i32 [0..];
        current_leader_epoch: i32 [4..] default [-1];
        timestamp: i64 [0..];
    }

    /// The offset found in each partition.
    ListOffsetsResponse {
        throttle_time_ms: i32 [2..];
        topics: Vec<ListOffsetsTopicResponse> [0..];
    }

    /// The partitions of one topic.
    ListOffsetsTopicResponse {
        name: WireString [0..];
        partitions: Vec<ListOffsetsPartitionResponse> [0..];
    }

    /// The offset found in one partition.
    ListOffsetsPartitionResponse {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
        timestamp: i64 [1..] default [-1];
        offset: i64 [1..] default [-1];
        leader_epoch: i32 [4..] default [-1];
    }

    /// Asks where epochs end (KIP-101, KIP-320).
    OffsetForLeaderEpochRequest {
        /// -1 for a consumer, -2 for unknown.
        replica_id: i32 [3..] default [-2];
        topics: Vec<OffsetForLeaderTopic> [0..];
    }

    /// The partitions of one topic.
    OffsetForLeaderTopic {
        topic: WireString [0..];
        partitions: Vec<OffsetForLeaderPartition> [0..];
    }

    /// One partition and the epoch asked about.
    OffsetForLeaderPartition {
        partition: i32 [0..];
        current_leader_epoch: i32 [2..] default [-1];
        leader_epoch: i32 [0..];
    }

    /// Where epochs end.
    OffsetForLeaderEpochResponse {
        throttle_time_ms: i32 [2..];
        topics: Vec<OffsetForLeaderTopicResult> [0..];
    }

    /// The partitions of one topic.
    OffsetForLeaderTopicResult {
        topic: WireString [0..];
        partitions: Vec<LeaderEpochEndOffset> [0..];
    }

    /// The end of the largest epoch not above the one asked about.
    LeaderEpochEndOffset {
        error_code: ErrorCode [0..];
        partition: i32 [0..];
        leader_epoch: i32 [1..] default [-1];
        end_offset: i64 [0..] default [-1];
    }

    /// Asks for a producer id, or for a higher epoch of one (KIP-98, KIP-360).
    InitProducerIdRequest {
        transactional_id: Option<WireString> [0..] null [0..];
        transaction_timeout_ms: i32 [0..];
        producer_id: i64 [3..] default [-1] or refuse;
        producer_epoch: i16 [3..] default [-1] or refuse;
    }

    /// The producer id and its epoch.
    InitProducerIdResponse {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        producer_id: i64 [0..] default [-1];
        producer_epoch: i16 [0..];
    }
}
