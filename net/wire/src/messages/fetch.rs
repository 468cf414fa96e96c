//! Fetch.

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::messages::{LeaderIdAndEpoch, NodeEndpoint};
use crate::primitives::{Records, Uuid, WireString};

structures! {
    /// Asks for records from given offsets on.
    FetchRequest {
        cluster_id: Option<WireString> [12..] null [12..] tag [0];
        replica_id: i32 [0..=14] default [-1];
        replica_state: ReplicaState [15..] tag [1];
        max_wait_ms: i32 [0..];
        min_bytes: i32 [0..];
        max_bytes: i32 [3..] default [i32::MAX];
        /// 0 reads everything below the high watermark, 1 only what is committed.
        isolation_level: i8 [4..];
        session_id: i32 [7..];
        /// 0 opens a session, -1 does without (KIP-227).
        session_epoch: i32 [7..] default [-1];
        topics: Vec<FetchTopic> [0..];
        forgotten_topics_data: Vec<ForgottenTopic> [7..] or refuse;
        rack_id: WireString [11..];
    }

    /// Who fetches, when it is a replica (KIP-903).
    ReplicaState {
        replica_id: i32 [15..] default [-1];
        replica_epoch: i64 [15..] default [-1];
    }

    /// The partitions of one topic.
    FetchTopic {
        topic: WireString [0..=12] or refuse;
        topic_id: Uuid [13..] or refuse;
        partitions: Vec<FetchPartition> [0..];
    }

    /// From where and how much to read of one partition.
    FetchPartition {
        partition: i32 [0..];
        current_leader_epoch: i32 [9..] default [-1];
        fetch_offset: i64 [0..];
        last_fetched_epoch: i32 [12..] default [-1];
        log_start_offset: i64 [5..] default [-1];
        partition_max_bytes: i32 [0..];
        replica_directory_id: Uuid [17..] tag [0];
        high_watermark: i64 [18..] tag [1] default [i64::MAX];
    }

    /// Partitions that leave the session.
    ForgottenTopic {
        topic: WireString [7..=12];
        topic_id: Uuid [13..];
        partitions: Vec<i32> [7..];
    }

    /// Record batches, by reference.
    FetchResponse {
        throttle_time_ms: i32 [1..];
        error_code: ErrorCode [7..];
        session_id: i32 [7..];
        responses: Vec<FetchableTopicResponse> [0..];
        /// Addresses of the leaders named in `current_leader` (KIP-951).
        node_endpoints: Vec<NodeEndpoint> [16..] tag [0];
    }

    /// The partitions of one topic.
    FetchableTopicResponse {
        topic: WireString [0..=12];
        topic_id: Uuid [13..];
        partitions: Vec<FetchPartitionData> [0..];
    }

    /// What was read of one partition.
    FetchPartitionData {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
        high_watermark: i64 [0..];
        last_stable_offset: i64 [4..] default [-1];
        log_start_offset: i64 [5..] default [-1];
        /// Where the fetcher's log leaves the leader's (KIP-595).
        diverging_epoch: EpochAndEndOffset [12..] tag [0];
        current_leader: LeaderIdAndEpoch [12..] tag [1];
        snapshot_id: SnapshotId [12..] tag [2];
        aborted_transactions: Option<Vec<AbortedTransaction>> [4..] null [4..];
        preferred_read_replica: i32 [11..] default [-1];
        records: Records [0..] null [0..];
    }

    /// The end of an epoch.
    EpochAndEndOffset {
        epoch: i32 [12..] default [-1];
        end_offset: i64 [12..] default [-1];
    }

    /// A snapshot; used between controllers only.
    SnapshotId {
        end_offset: i64 [12..] default [-1];
        epoch: i32 [12..] default [-1];
    }

    /// An aborted transaction that overlaps what was read.
    AbortedTransaction {
        producer_id: i64 [4..];
        first_offset: i64 [4..];
    }
}
