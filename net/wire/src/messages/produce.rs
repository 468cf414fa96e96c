//! Produce.

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::primitives::{Records, Uuid, WireString};

structures! {
    /// Record batches to append. Versions 0 to 2 carry older batch formats and are not built.
    ProduceRequest {
        transactional_id: Option<WireString> [3..] null [3..] or refuse;
        /// 0 for no answer, 1 and -1 for an answer; others are INVALID_REQUIRED_ACKS.
        acks: i16 [0..];
        timeout_ms: i32 [0..];
        topic_data: Vec<TopicProduceData> [0..];
    }

    /// The partitions of one topic.
    TopicProduceData {
        name: WireString [0..=12] or refuse;
        topic_id: Uuid [13..] or refuse;
        partition_data: Vec<PartitionProduceData> [0..];
    }

    /// The batches for one partition.
    PartitionProduceData {
        index: i32 [0..];
        records: Records [0..] null [0..];
    }

    /// The outcome for each partition.
    ProduceResponse {
        responses: Vec<TopicProduceResponse> [0..];
        throttle_time_ms: i32 [1..];
        /// Addresses of the leaders named in `current_leader` (KIP-951).
        node_endpoints: Vec<NodeEndpoint> [10..] tag [0];
    }

    /// The partitions of one topic.
    TopicProduceResponse {
        name: WireString [0..=12];
        topic_id: Uuid [13..];
        partition_responses: Vec<PartitionProduceResponse> [0..];
    }

    /// The outcome for one partition.
    PartitionProduceResponse {
        index: i32 [0..];
        error_code: ErrorCode [0..];
        base_offset: i64 [0..];
        /// -1 unless the topic stamps its own time.
        log_append_time_ms: i64 [2..] default [-1];
        log_start_offset: i64 [5..] default [-1];
        record_errors: Vec<BatchIndexAndErrorMessage> [8..];
        error_message: Option<WireString> [8..] null [8..];
        current_leader: LeaderIdAndEpoch [10..] tag [0];
    }

    /// A record that caused its batch to be refused (KIP-467).
    BatchIndexAndErrorMessage {
        batch_index: i32 [8..];
        batch_index_error_message: Option<WireString> [8..] null [8..];
    }

    /// The leader that the broker knows (KIP-951, in Fetch KIP-595).
    LeaderIdAndEpoch {
        leader_id: i32 [0..] default [-1];
        leader_epoch: i32 [0..] default [-1];
    }

    /// The address of a node that leads a partition of this answer (KIP-951).
    NodeEndpoint {
        node_id: i32 [10..];
        host: WireString [10..];
        port: i32 [10..];
        rack: Option<WireString> [10..] null [10..];
    }
}
