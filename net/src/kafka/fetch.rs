//! Fetch: offsets in, batches out.

use bytes::Bytes;
use corelog_engine::identity::{LeaderEpoch, Offset};
use corelog_engine::limits::{FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{EpochEnd, Fetched};
use corelog_wire::{
    EpochAndEndOffset, ErrorCode, FetchPartitionData, FetchRequest, FetchResponse,
    FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, Records,
};

use super::{Node, TopicKey, error_code};

/// First version that names topics by id.
pub const TOPIC_IDS_FROM: i16 = 13;
/// First version whose reader knows zstd (KIP-110).
const ZSTD_FROM: i16 = 10;
const ATTRIBUTES_AT: usize = 22;
const CODEC_BITS: u8 = 0b111;
const ZSTD: u8 = 4;

/// One partition that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPartition {
    /// Its topic.
    pub topic: TopicKey,
    /// Its number.
    pub index: i32,
    /// From where; `None` if the request said nonsense.
    pub offset: Option<Offset>,
    /// At most this much.
    pub bytes_max: usize,
    /// The epoch the client believes in.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the last record that it has, if it wants to hear where its log leaves ours.
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

/// What holds for a fetch as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchTerms {
    /// Wait at most this long, in milliseconds.
    pub wait_ms: u64,
    /// Answer as soon as this much is there.
    pub bytes_min: usize,
    /// At most this much.
    pub bytes_max: usize,
    /// Whether only committed transactions are read.
    pub is_read_committed: bool,
}

impl FetchTerms {
    /// The terms of a request, within the limits.
    pub fn of(request: &FetchRequest) -> Self {
        let bytes_min = usize::try_from(request.min_bytes).unwrap_or(0);
        let wait_ms = u64::try_from(request.max_wait_ms).unwrap_or(0);
        Self {
            // Whoever is content with nothing does not wait for something.
            wait_ms: if bytes_min == 0 {
                0
            } else {
                wait_ms.min(FETCH_WAIT_MS_MAX)
            },
            bytes_min: bytes_min.min(FETCH_BYTES_MAX),
            bytes_max: usize::try_from(request.max_bytes)
                .unwrap_or(0)
                .clamp(1, FETCH_BYTES_MAX),
            is_read_committed: request.isolation_level == 1,
        }
    }
}

/// All partitions that a request names, in its order.
pub fn wanted_partitions(request: &FetchRequest, version: i16) -> Vec<WantedPartition> {
    let mut wanted = Vec::with_capacity(request.topics.iter().map(|t| t.partitions.len()).sum());
    for topic in &request.topics {
        let key = TopicKey::new(&topic.topic, topic.topic_id, version >= TOPIC_IDS_FROM);
        wanted.extend(topic.partitions.iter().map(|partition| WantedPartition {
            topic: key.clone(),
            index: partition.partition,
            offset: Offset::from_wire(partition.fetch_offset),
            bytes_max: usize::try_from(partition.partition_max_bytes).unwrap_or(0),
            leader_epoch: LeaderEpoch::from_wire(partition.current_leader_epoch),
            last_fetched_epoch: LeaderEpoch::from_wire(partition.last_fetched_epoch),
        }));
    }
    wanted
}

/// The answer for a partition that was read. Without transactions the last stable offset is the
/// watermark, and none was aborted.
pub fn partition_data(
    index: i32,
    fetched: Fetched,
    terms: &FetchTerms,
    version: i16,
) -> FetchPartitionData {
    if version < ZSTD_FROM && fetched.batches.iter().any(has_zstd) {
        return refused(index, Rejection::UnsupportedCompressionType);
    }
    let watermark = fetched.watermark.to_wire();
    FetchPartitionData {
        partition_index: index,
        high_watermark: watermark,
        last_stable_offset: watermark,
        log_start_offset: fetched.log_start.to_wire(),
        diverging_epoch: fetched.diverging.map(diverging_epoch).unwrap_or_default(),
        aborted_transactions: terms.is_read_committed.then(Vec::new),
        records: records(fetched.batches),
        ..FetchPartitionData::default()
    }
}

fn diverging_epoch(diverging: EpochEnd) -> EpochAndEndOffset {
    EpochAndEndOffset {
        epoch: diverging.epoch.to_wire(),
        end_offset: diverging.end.to_wire(),
    }
}

fn records(mut batches: Vec<Bytes>) -> Records {
    match batches.len() {
        0 => Records::Empty,
        1 => batches.pop().map_or(Records::Empty, Records::from),
        _ => Records::Pieces(batches),
    }
}

fn has_zstd(piece: &Bytes) -> bool {
    let mut rest = &piece[..];
    while let Some(attributes) = rest.get(ATTRIBUTES_AT) {
        if attributes & CODEC_BITS == ZSTD {
            return true;
        }
        match corelog_batch::peek_batch_bytes(rest) {
            Some(bytes) if bytes > 0 && bytes < rest.len() => rest = &rest[bytes..],
            _ => return false,
        }
    }
    false
}

/// The answer for a partition that was not read.
pub fn refused(index: i32, rejection: Rejection) -> FetchPartitionData {
    FetchPartitionData {
        partition_index: index,
        error_code: error_code(rejection),
        high_watermark: -1,
        ..FetchPartitionData::default()
    }
}

/// The answer to a request whose session is not to be used.
pub fn session_refused(error_code: ErrorCode) -> FetchResponse {
    FetchResponse {
        error_code,
        ..FetchResponse::default()
    }
}

/// A whole answer that is put together partition by partition, in the order of the request.
#[derive(Debug, Default)]
pub struct FetchAnswer {
    response: FetchResponse,
    last: Option<TopicKey>,
}

impl FetchAnswer {
    /// An answer in that session; 0 for none.
    pub fn new(session_id: i32) -> Self {
        let response = FetchResponse {
            session_id,
            ..FetchResponse::default()
        };
        Self {
            response,
            last: None,
        }
    }

    /// Adds a partition, with the leader that the asker should turn to if it asked the wrong one
    /// (KIP-951).
    pub fn add(
        &mut self,
        topic: &TopicKey,
        mut data: FetchPartitionData,
        leader: Option<(Node, i32)>,
    ) {
        if let Some((node, leader_epoch)) = leader {
            data.current_leader = LeaderIdAndEpoch {
                leader_id: node.id,
                leader_epoch,
            };
            add_endpoint(&mut self.response.node_endpoints, node);
        }
        if self.last.as_ref() != Some(topic) {
            self.last = Some(topic.clone());
            self.response.responses.push(FetchableTopicResponse {
                topic: topic.name(),
                topic_id: topic.id(),
                partitions: Vec::new(),
            });
        }
        if let Some(last) = self.response.responses.last_mut() {
            last.partitions.push(data);
        }
    }

    /// The message.
    pub fn finish(self) -> FetchResponse {
        self.response
    }
}

/// Adds where a node is reached, once.
pub(super) fn add_endpoint(endpoints: &mut Vec<NodeEndpoint>, node: Node) {
    if endpoints.iter().all(|known| known.node_id != node.id) {
        endpoints.push(NodeEndpoint {
            node_id: node.id,
            host: node.host,
            port: node.port,
            rack: Some(node.rack),
        });
    }
}
