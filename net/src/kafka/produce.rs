//! Produce: publishes in, offsets out.

use bytes::Bytes;
use corelog_engine::publish::PublishRefusal;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::Published;
use corelog_wire::{
    BatchIndexAndErrorMessage, DecodeError, DecodeLimits, ErrorCode, LeaderIdAndEpoch,
    PartitionProduceResponse, ProduceResponse, ProduceWalk, TopicProduceResponse, WireString,
};

use super::{Node, TopicKey, error_code};

/// First version that names topics by id.
const TOPIC_IDS_FROM: i16 = 13;
/// First version whose batches may be compressed with zstd (KIP-110).
const ZSTD_FROM: i16 = 7;
/// Where a batch, and a message of the older formats, says its format.
const MAGIC_AT: usize = 16;
/// Where the low byte of a batch's attributes stands, with the codec in its low three bits.
const ATTRIBUTES_AT: usize = 22;
const CODEC_BITS: u8 = 0b111;
const ZSTD: u8 = 4;
/// Waits that do not ask for the replicas have no time of their own in Kafka; here every publish
/// waits for its durability, so they get this long, in milliseconds.
const WAIT_MS_WITHOUT_ACKS: u64 = 30_000;

/// A Produce request, ready to be carried out. It holds no slice of its frame but the records, so
/// that the records of a request for one partition are alone in their frame and the log may stamp
/// them in place.
#[derive(Debug)]
pub struct ProducePlan {
    /// -1, 0 or 1 in a valid request.
    pub acks: i16,
    /// How long the asker waits, in milliseconds.
    pub wait_ms: u64,
    /// Whether the request belongs to a transaction.
    pub is_transactional: bool,
    /// The topics, in order.
    pub topics: Vec<TopicKey>,
    /// The partitions, in order.
    pub partitions: Vec<PlannedPartition>,
}

/// The batches for one partition.
#[derive(Debug)]
pub struct PlannedPartition {
    /// Its topic's place in [`ProducePlan::topics`].
    pub topic: usize,
    /// Its number.
    pub index: i32,
    /// What to append.
    pub records: Bytes,
}

impl ProducePlan {
    /// Reads a request.
    ///
    /// # Errors
    /// Bytes that are no such request.
    pub fn read(body: Bytes, version: i16) -> Result<Self, DecodeError> {
        let walk = ProduceWalk::decode(body, version, DecodeLimits::REQUEST)?;
        let mut plan = Self {
            acks: walk.acks,
            wait_ms: wait_ms(walk.acks, walk.timeout_ms),
            is_transactional: walk.transactional_id.is_some(),
            topics: Vec::with_capacity(1),
            partitions: Vec::with_capacity(walk.partitions_len()),
        };
        let is_by_id = version >= TOPIC_IDS_FROM;
        for partition in walk.partitions() {
            let is_same = plan
                .topics
                .last()
                .is_some_and(|last| says(last, &partition, is_by_id));
            if !is_same {
                let key = TopicKey::new(&partition.topic_name, partition.topic_id, is_by_id);
                plan.topics.push(key);
            }
            plan.partitions.push(PlannedPartition {
                topic: plan.topics.len() - 1,
                index: partition.index,
                records: partition.records,
            });
        }
        Ok(plan)
    }
}

fn says(key: &TopicKey, partition: &corelog_wire::ProducePartition, is_by_id: bool) -> bool {
    match key {
        TopicKey::Name(name) => !is_by_id && *name == partition.topic_name,
        TopicKey::Id(id) => is_by_id && *id.bytes() == partition.topic_id.0,
    }
}

fn wait_ms(acks: i16, timeout_ms: i32) -> u64 {
    let asked_ms = u64::try_from(timeout_ms).unwrap_or(0);
    if acks == -1 {
        asked_ms.max(1)
    } else {
        asked_ms.max(WAIT_MS_WITHOUT_ACKS)
    }
}

/// What the version of a request forbids its records, before they are looked at more closely.
///
/// # Errors
/// - [`Rejection::UnsupportedForMessageFormat`]: message sets older than format 2;
/// - [`Rejection::UnsupportedCompressionType`]: zstd below version 7.
pub fn check_records(records: &[u8], version: i16) -> Result<(), Rejection> {
    if records.get(MAGIC_AT).is_some_and(|magic| *magic < 2) {
        return Err(Rejection::UnsupportedForMessageFormat);
    }
    let codec = records.get(ATTRIBUTES_AT).map(|byte| byte & CODEC_BITS);
    if version < ZSTD_FROM && codec == Some(ZSTD) {
        return Err(Rejection::UnsupportedCompressionType);
    }
    Ok(())
}

/// The answer for a partition that keeps the batch.
pub fn published(index: i32, published: &Published) -> PartitionProduceResponse {
    let append_time_ms = published.append_time_ms.map(i64::try_from);
    PartitionProduceResponse {
        index,
        base_offset: published.first_offset.to_wire(),
        log_append_time_ms: append_time_ms.and_then(Result::ok).unwrap_or(-1),
        log_start_offset: published.log_start.to_wire(),
        ..PartitionProduceResponse::default()
    }
}

/// The answer for a partition that refused the batch.
pub fn refused(index: i32, refusal: &PublishRefusal) -> PartitionProduceResponse {
    let text = match &refusal.fault {
        Some(fault) => WireString::from(fault.to_string()),
        None => WireString::from_static(refusal.rejection.text()),
    };
    let record_errors = match &refusal.fault {
        Some(corelog_batch::BatchError::Record { index, .. }) => vec![BatchIndexAndErrorMessage {
            batch_index: i32::try_from(*index).unwrap_or(i32::MAX),
            batch_index_error_message: Some(text.clone()),
        }],
        _ => Vec::new(),
    };
    PartitionProduceResponse {
        index,
        error_code: produce_code(refusal.rejection),
        base_offset: -1,
        record_errors,
        error_message: Some(text),
        ..PartitionProduceResponse::default()
    }
}

/// Clients drop a message that is refused with THROTTLING_QUOTA_EXCEEDED, which no broker of
/// Kafka's answers here. This one they send again, knowing that nothing was stored.
fn produce_code(rejection: Rejection) -> ErrorCode {
    match rejection {
        Rejection::Overloaded => ErrorCode::NOT_ENOUGH_REPLICAS,
        other => error_code(other),
    }
}

/// A partition's answer with its place.
#[derive(Debug)]
pub struct AnsweredPartition {
    /// Its topic's place in the plan.
    pub topic: usize,
    /// The answer.
    pub response: PartitionProduceResponse,
    /// The leader that the asker should turn to, where it asked the wrong one (KIP-951).
    pub leader: Option<(Node, i32)>,
}

/// The whole answer; partitions must come in the order of the plan.
pub fn response(topics: &[TopicKey], partitions: Vec<AnsweredPartition>) -> ProduceResponse {
    let mut answer = ProduceResponse::default();
    let topic_response = |key: &TopicKey| TopicProduceResponse {
        name: key.name(),
        topic_id: key.id(),
        partition_responses: Vec::new(),
    };
    answer.responses = topics.iter().map(topic_response).collect();
    for mut partition in partitions {
        if let Some((node, leader_epoch)) = partition.leader {
            partition.response.current_leader = LeaderIdAndEpoch {
                leader_id: node.id,
                leader_epoch,
            };
            super::fetch::add_endpoint(&mut answer.node_endpoints, node);
        }
        if let Some(topic) = answer.responses.get_mut(partition.topic) {
            topic.partition_responses.push(partition.response);
        }
    }
    answer
}
