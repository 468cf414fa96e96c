//! What a producer is told and what it tells.

use std::fmt;

use corelog_batch::{Codec, HeaderRef};
use corelog_wire::{ErrorCode, ProduceRequest, WireString};

/// How a producer behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSettings {
    /// Largest batch in bytes, header included and before compression.
    pub batch_bytes_max: usize,
    /// How long a batch that is not full waits for more records, in milliseconds.
    pub linger_ms: u64,
    /// Most bytes of records whose outcome is not known yet; beyond it publishes are refused.
    pub buffered_bytes_max: usize,
    /// Largest request in bytes of batches; one batch goes out even if it is larger.
    pub request_bytes_max: usize,
    /// Most requests to one broker that wait for their answers.
    pub requests_in_flight_per_broker_max: usize,
    /// Most batches of one partition that wait for their answers. At most 5 with `idempotent`, which is
    /// what brokers remember; 1 keeps order without it.
    pub batches_in_flight_per_partition_max: usize,
    /// How long a batch rests after a refusal that may pass, in milliseconds.
    pub retry_backoff_ms: u64,
    /// How long after its first record a batch is given up, in milliseconds.
    pub delivery_timeout_ms: u64,
    /// How long the broker may wait for replicas, in milliseconds.
    pub request_timeout_ms: i32,
    /// Whether the broker recognises repeats (KIP-98): each record is then stored once and in order.
    pub idempotent: bool,
    /// How batches are compressed.
    pub codec: Codec,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self {
            batch_bytes_max: 256 << 10,
            linger_ms: 5,
            buffered_bytes_max: 32 << 20,
            request_bytes_max: 1 << 20,
            requests_in_flight_per_broker_max: 5,
            batches_in_flight_per_partition_max: 5,
            retry_backoff_ms: 100,
            delivery_timeout_ms: 120_000,
            request_timeout_ms: 30_000,
            idempotent: true,
            codec: Codec::None,
        }
    }
}

/// Batches of one producer and partition that a broker recognises as repeats (KIP-98).
pub(super) const IDEMPOTENT_BATCHES_IN_FLIGHT_MAX: usize = 5;

/// A record to publish. Its bytes are copied into the batch.
#[derive(Clone, Copy, Debug)]
pub struct RecordToPublish<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition; `None` leaves it to the key, and without a key to the producer.
    pub partition: Option<i32>,
    /// The key: records of one key keep their order.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// Headers.
    pub headers: &'a [HeaderRef<'a>],
    /// When it was made, in milliseconds since 1970.
    pub timestamp_ms: i64,
}

/// Names a publish of one producer; rises from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublishId(pub u64);

/// Names a request of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendId(pub u64);

/// Why a record was not taken. Nothing of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishRefusal {
    /// Too many bytes wait for their outcome: wait for some, then try again.
    Full {
        /// The limit.
        buffered_bytes_max: usize,
    },
    /// The topic's partitions are not known yet: tell them with [`super::ProducerCore::set_topic`].
    TopicUnknown,
    /// The topic has no such partition.
    PartitionUnknown {
        /// The partition asked for.
        partition: i32,
        /// Partitions that there are.
        partitions: u32,
    },
    /// The record alone is larger than a batch may be.
    TooLarge {
        /// Size of a batch with only this record.
        batch_bytes: usize,
        /// The limit.
        batch_bytes_max: usize,
    },
    /// The timestamp is below -1 or too far from others.
    Timestamp {
        /// The timestamp.
        timestamp_ms: i64,
    },
    /// The producer was fenced or closed; make a new one.
    Ended,
}

impl fmt::Display for PublishRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { buffered_bytes_max } => write!(
                f,
                "{buffered_bytes_max} bytes wait for their outcome already; wait for some"
            ),
            Self::TopicUnknown => f.write_str("the topic is not known; create it first"),
            Self::PartitionUnknown {
                partition,
                partitions,
            } => write!(
                f,
                "there is no partition {partition}; the topic has {partitions}"
            ),
            Self::TooLarge {
                batch_bytes,
                batch_bytes_max,
            } => write!(
                f,
                "the record needs a batch of {batch_bytes} bytes and at most {batch_bytes_max} are \
                 allowed; raise batch_bytes_max or store large bodies elsewhere"
            ),
            Self::Timestamp { timestamp_ms } => {
                write!(
                    f,
                    "timestamp {timestamp_ms} is out of range; give milliseconds since 1970"
                )
            }
            Self::Ended => f.write_str("the producer was fenced or closed; make a new one"),
        }
    }
}

impl std::error::Error for PublishRefusal {}

/// Why records were not stored, or perhaps not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishFailure {
    /// The broker refused.
    Refused {
        /// Its code.
        code: ErrorCode,
        /// Its words.
        message: Option<String>,
    },
    /// The delivery timeout passed.
    TimedOut {
        /// The last refusal, if there was one.
        last: Option<ErrorCode>,
    },
    /// The broker lost what it knew of this producer, so a repeat could not be told from a new record.
    ProducerStateLost,
    /// Another producer took over, or this one was closed.
    Ended,
}

impl fmt::Display for PublishFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused {
                code,
                message: Some(message),
            } => write!(f, "the broker refused: {code}: {message}"),
            Self::Refused {
                code,
                message: None,
            } => write!(f, "the broker refused: {code}"),
            Self::TimedOut { last: Some(code) } => {
                write!(
                    f,
                    "not stored before the delivery timeout; last answer: {code}"
                )
            }
            Self::TimedOut { last: None } => {
                f.write_str("not stored before the delivery timeout; is the leader reachable?")
            }
            Self::ProducerStateLost => f.write_str(
                "the broker no longer knows this producer; check before publishing again",
            ),
            Self::Ended => f.write_str("the producer was fenced or closed"),
        }
    }
}

/// What came of records: stored, not stored, or not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Stored, as durably as the topic promises.
    Yes {
        /// Offset of the batch's first record. `None`: the broker recognised a repeat and no longer knew
        /// where it stands.
        base_offset: Option<i64>,
    },
    /// Not stored, and it will not be.
    No(PublishFailure),
    /// An attempt may have been stored and its answer was lost.
    Unknown(PublishFailure),
}

/// What came of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOutcome {
    /// The topic.
    pub topic: WireString,
    /// The partition.
    pub partition: i32,
    /// The records, in the order of their offsets.
    pub publishes: Vec<PublishId>,
    /// What came of all of them.
    pub outcome: Outcome,
}

/// A request that is to go out now.
#[derive(Debug)]
pub struct ProduceToSend {
    /// Its name, for the answer.
    pub id: SendId,
    /// The broker that it goes to.
    pub broker: i32,
    /// The request.
    pub request: ProduceRequest,
}
