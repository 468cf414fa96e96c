//! What a consumer is told and what it tells.

use std::fmt;

use bytes::Bytes;
use corelog_batch::{BatchError, BatchHeader, Record};
use corelog_wire::{ErrorCode, WireString};

/// How a consumer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// How long the broker may wait for records, in milliseconds.
    pub max_wait_ms: i32,
    /// How many bytes the broker waits for.
    pub min_bytes: i32,
    /// Most bytes in one answer; one batch comes even if it is larger.
    pub fetch_bytes_max: i32,
    /// Most bytes of one partition in one answer.
    pub partition_bytes_max: i32,
    /// Most bytes that may wait to be handed out before fetching pauses.
    pub buffered_bytes_max: usize,
    /// Largest size that a compressed batch may open to, in bytes.
    pub opened_bytes_max: usize,
    /// Whether the checksum of each batch is verified.
    pub verify_checksums: bool,
    /// Where to go on when the position is not in the log any more; `None` hands out the error.
    pub reset_to: Option<StartAt>,
    /// How long a partition rests after a refusal that may pass, in milliseconds.
    pub retry_backoff_ms: u64,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            max_wait_ms: 500,
            min_bytes: 1,
            fetch_bytes_max: 16 << 20,
            partition_bytes_max: 4 << 20,
            buffered_bytes_max: 32 << 20,
            opened_bytes_max: 64 << 20,
            verify_checksums: true,
            reset_to: None,
            retry_backoff_ms: 100,
        }
    }
}

/// Where to begin reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// The oldest record there is.
    Earliest,
    /// The end: records that come from now on.
    Latest,
    /// This offset.
    Offset(i64),
    /// The first record with this timestamp or a later one, in milliseconds since 1970; the end if there is
    /// none.
    Time(i64),
}

/// Names a request of one consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// A request that is to go out now.
#[derive(Debug)]
pub struct FetchToSend<R> {
    /// Its name, for the answer.
    pub id: FetchId,
    /// The broker that it goes to.
    pub broker: i32,
    /// The request.
    pub request: R,
}

/// Why a partition cannot be read on. It is not fetched again until it is assigned anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// The position is not in the log.
    OutOfRange {
        /// The topic.
        topic: WireString,
        /// The partition.
        partition: i32,
        /// The position.
        offset: i64,
        /// The oldest offset there is, if the broker told it.
        log_start: Option<i64>,
        /// The end, if the broker told it.
        end: Option<i64>,
    },
    /// What came cannot be read.
    Batch {
        /// The topic.
        topic: WireString,
        /// The partition.
        partition: i32,
        /// Where reading stopped.
        offset: i64,
        /// Why.
        error: BatchError,
    },
    /// The broker refused for good.
    Refused {
        /// The topic.
        topic: WireString,
        /// The partition.
        partition: i32,
        /// Its code.
        code: ErrorCode,
    },
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange {
                topic,
                partition,
                offset,
                log_start,
                end,
            } => {
                write!(f, "{topic}/{partition} has no offset {offset}")?;
                if let (Some(log_start), Some(end)) = (log_start, end) {
                    write!(f, "; it holds {log_start} up to {end}")?;
                }
                f.write_str("; start from an offset that is there, from earliest or from latest")
            }
            Self::Batch {
                topic,
                partition,
                offset,
                error,
            } => write!(
                f,
                "{topic}/{partition} at offset {offset} cannot be read: {error}; check the broker's log, \
                 or start behind it"
            ),
            Self::Refused {
                topic,
                partition,
                code,
            } => write!(f, "the broker refuses {topic}/{partition}: {code}"),
        }
    }
}

impl std::error::Error for FetchError {}

/// Records of one batch.
#[derive(Clone, Debug)]
pub struct ConsumedRecords {
    /// The topic.
    pub topic: WireString,
    /// The partition.
    pub partition: i32,
    /// The batch that they came in.
    pub header: BatchHeader,
    /// The records, oldest first; they share the batch's memory.
    pub records: Vec<Record>,
    /// Where reading goes on behind them; what to commit once they are processed.
    pub next_offset: i64,
}

/// One batch as it came, not opened.
#[derive(Clone, Debug)]
pub struct ConsumedBatch {
    /// The topic.
    pub topic: WireString,
    /// The partition.
    pub partition: i32,
    /// Its header.
    pub header: BatchHeader,
    /// All of it.
    pub batch: Bytes,
    /// The position: records of the batch that lie below it are not the reader's.
    pub from: i64,
}
