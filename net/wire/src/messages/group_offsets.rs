//! Positions of consumer groups: OffsetCommit, OffsetFetch.

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::primitives::{Uuid, WireString};

structures! {
    /// Positions to store.
    OffsetCommitRequest {
        group_id: WireString [0..];
        generation_id_or_member_epoch: i32 [1..] default [-1];
        member_id: WireString [1..];
        group_instance_id: Option<WireString> [7..] null [7..] or refuse;
        retention_time_ms: i64 [2..=4] default [-1];
        topics: Vec<OffsetCommitRequestTopic> [0..];
    }

    /// The partitions of one topic.
    OffsetCommitRequestTopic {
        name: WireString [0..=9] or refuse;
        topic_id: Uuid [10..] or refuse;
        partitions: Vec<OffsetCommitRequestPartition> [0..];
    }

    /// The position in one partition.
    OffsetCommitRequestPartition {
        partition_index: i32 [0..];
        committed_offset: i64 [0..];
        committed_leader_epoch: i32 [6..] default [-1];
        committed_metadata: Option<WireString> [0..] null [0..];
    }

    /// The outcome for each partition.
    OffsetCommitResponse {
        throttle_time_ms: i32 [3..];
        topics: Vec<OffsetCommitResponseTopic> [0..];
    }

    /// The partitions of one topic.
    OffsetCommitResponseTopic {
        name: WireString [0..=9];
        topic_id: Uuid [10..];
        partitions: Vec<OffsetCommitResponsePartition> [0..];
    }

    /// The outcome for one partition.
    OffsetCommitResponsePartition {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
    }

    /// Asks for stored positions: of one group up to version 7, of several from 8 on (KIP-709).
    OffsetFetchRequest {
        group_id: WireString [0..=7] or refuse;
        /// `None` asks for all, from version 2 on.
        topics: Option<Vec<OffsetFetchRequestTopic>> [0..=7] null [2..=7];
        groups: Vec<OffsetFetchRequestGroup> [8..] or refuse;
        require_stable: bool [7..] or refuse;
    }

    /// The partitions of one topic, up to version 7.
    OffsetFetchRequestTopic {
        name: WireString [0..=7];
        partition_indexes: Vec<i32> [0..=7];
    }

    /// One group, from version 8 on.
    OffsetFetchRequestGroup {
        group_id: WireString [8..];
        member_id: Option<WireString> [9..] null [9..];
        member_epoch: i32 [9..] default [-1];
        /// `None` asks for all.
        topics: Option<Vec<OffsetFetchRequestTopics>> [8..] null [8..];
    }

    /// The partitions of one topic, from version 8 on.
    OffsetFetchRequestTopics {
        name: WireString [8..=9] or refuse;
        topic_id: Uuid [10..] or refuse;
        partition_indexes: Vec<i32> [8..];
    }

    /// Stored positions.
    OffsetFetchResponse {
        throttle_time_ms: i32 [3..];
        topics: Vec<OffsetFetchResponseTopic> [0..=7];
        error_code: ErrorCode [2..=7];
        groups: Vec<OffsetFetchResponseGroup> [8..];
    }

    /// The partitions of one topic, up to version 7.
    OffsetFetchResponseTopic {
        name: WireString [0..=7];
        partitions: Vec<OffsetFetchResponsePartition> [0..=7];
    }

    /// The position in one partition, up to version 7. Offset -1 without an error says that none
    /// is stored, also for an unknown group.
    OffsetFetchResponsePartition {
        partition_index: i32 [0..=7];
        committed_offset: i64 [0..=7] default [-1];
        committed_leader_epoch: i32 [5..=7] default [-1];
        metadata: Option<WireString> [0..=7] null [0..=7];
        error_code: ErrorCode [0..=7];
    }

    /// One group, from version 8 on.
    OffsetFetchResponseGroup {
        group_id: WireString [8..];
        topics: Vec<OffsetFetchResponseTopics> [8..];
        error_code: ErrorCode [8..];
    }

    /// The partitions of one topic, from version 8 on.
    OffsetFetchResponseTopics {
        name: WireString [8..=9];
        topic_id: Uuid [10..];
        partitions: Vec<OffsetFetchResponsePartitions> [8..];
    }

    /// The position in one partition, from version 8 on. Offset -1 without an error says that none
    /// is stored, also for an unknown group.
    OffsetFetchResponsePartitions {
        partition_index: i32 [8..];
        committed_offset: i64 [8..] default [-1];
        committed_leader_epoch: i32 [8..] default [-1];
        metadata: Option<WireString> [8..] null [8..];
        error_code: ErrorCode [8..];
    }
}
