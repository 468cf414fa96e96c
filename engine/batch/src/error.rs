//! Why a batch was refused, in enough detail for a broker to choose its answer.

use std::error::Error;
use std::fmt;

use crate::header::Codec;

/// What a broker answers a producer whose batch was refused.
///
/// Everything that is wrong under a CRC that matches is final, because the same bytes would be refused
/// again; only damage on the way is worth a retry, and `CORRUPT_MESSAGE` is the one that clients retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchErrorKind {
    /// `CORRUPT_MESSAGE` (2): length or CRC do not hold; on disk, the log ends or is damaged here.
    CorruptMessage,
    /// `MESSAGE_TOO_LARGE` (10): a batch, or what it opens to, exceeds a limit.
    MessageTooLarge,
    /// `INVALID_TIMESTAMP` (32): a timestamp or timestamp type that a producer may not send.
    InvalidTimestamp,
    /// `UNSUPPORTED_COMPRESSION_TYPE` (76): codec bits that no codec is known for.
    UnsupportedCompression,
    /// `INVALID_RECORD` (87): intact bytes that break a rule of the format.
    InvalidRecord,
}

/// Why a batch, its body or one of its records was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// The bytes end before the batch does. At the end of a fetch answer or of a log this is a torn tail
    /// and not yet damage.
    Incomplete {
        /// Bytes the batch (or, if that is unknown still, its header) needs.
        needed_bytes: usize,
        /// Bytes that are there.
        present_bytes: usize,
    },
    /// The length field is below what a header needs.
    Length {
        /// The field as read.
        length: i32,
    },
    /// Bytes follow a batch where exactly one was expected.
    BytesAfterBatch {
        /// Size of the batch.
        batch_bytes: usize,
        /// Bytes that are there.
        present_bytes: usize,
    },
    /// The magic byte is not 2.
    Magic {
        /// The byte as read.
        magic: i8,
    },
    /// The CRC-32C does not match.
    Checksum {
        /// CRC in the header.
        stored: u32,
        /// CRC of the bytes.
        computed: u32,
    },
    /// The batch is larger than the limit.
    TooLarge {
        /// Size of the batch.
        batch_bytes: usize,
        /// The limit.
        batch_bytes_max: usize,
    },
    /// The batch claims more records than the limit.
    TooManyRecords {
        /// Records claimed.
        record_count: i32,
        /// The limit.
        records_max: i32,
    },
    /// The codec bits name no codec.
    UnknownCodec {
        /// The three bits.
        code: u8,
    },
    /// Record count and last offset delta contradict each other, or one of them is out of range.
    Count {
        /// Records claimed.
        record_count: i32,
        /// Last offset delta claimed.
        last_offset_delta: i32,
    },
    /// The body is too short for the records that the header claims.
    CountExceedsBody {
        /// Records claimed.
        record_count: i32,
        /// Bytes of the uncompressed body.
        body_bytes: usize,
    },
    /// A stored batch whose offsets are negative or pass the largest offset.
    Offsets {
        /// First offset.
        base_offset: i64,
        /// Last offset delta claimed.
        last_offset_delta: i32,
    },
    /// Producer id, epoch and sequence do not go together.
    Producer {
        /// Producer id.
        producer_id: i64,
        /// Producer epoch.
        producer_epoch: i16,
        /// First sequence.
        base_sequence: i32,
    },
    /// A transactional batch without a producer id.
    TransactionWithoutProducer,
    /// A producer sent a control batch.
    ControlFromProducer,
    /// A producer set the log-append-time bit.
    LogAppendTimeFromProducer,
    /// A producer set the delete-horizon bit.
    DeleteHorizonFromProducer,
    /// A timestamp below -1.
    Timestamp {
        /// The timestamp in milliseconds.
        timestamp_ms: i64,
    },
    /// Opening the body would give more bytes than allowed.
    OutputLimit {
        /// The limit.
        output_bytes_max: usize,
    },
    /// The compressed body cannot be read.
    Body {
        /// The codec the header names.
        codec: Codec,
        /// What is wrong with it.
        fault: BodyFault,
    },
    /// A record cannot be read.
    Record {
        /// Index of the record in the batch, from 0.
        index: u32,
        /// What is wrong with it.
        fault: RecordFault,
    },
}

/// What is wrong with a compressed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The stream ends early.
    Truncated,
    /// Bytes follow the end of the stream. Readers differ in what they make of them, so none are allowed.
    BytesAfterStream,
    /// The stream breaks the rules of its format.
    Malformed(&'static str),
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// The body ends inside the record, or before the last record.
    Truncated,
    /// A variable-length integer is too long or out of range.
    Varint,
    /// A length is negative (other than -1 for null) or passes the end of the record.
    Length,
    /// The header count is negative or more than the rest of the record can hold.
    HeaderCount,
    /// A header without a key.
    HeaderKey,
    /// The record's fields end before its stated length does.
    BytesAfterFields,
    /// Bytes follow the last record.
    BytesAfterLastRecord,
    /// Offset deltas do not rise, or pass the batch's last offset delta.
    OffsetDelta,
}

impl BatchError {
    /// The answer that fits.
    pub fn kind(&self) -> BatchErrorKind {
        match self {
            Self::Incomplete { .. } | Self::Length { .. } | Self::Checksum { .. } => {
                BatchErrorKind::CorruptMessage
            }
            Self::TooLarge { .. } | Self::TooManyRecords { .. } | Self::OutputLimit { .. } => {
                BatchErrorKind::MessageTooLarge
            }
            Self::UnknownCodec { .. } => BatchErrorKind::UnsupportedCompression,
            Self::LogAppendTimeFromProducer | Self::Timestamp { .. } => {
                BatchErrorKind::InvalidTimestamp
            }
            Self::BytesAfterBatch { .. }
            | Self::Magic { .. }
            | Self::Count { .. }
            | Self::CountExceedsBody { .. }
            | Self::Offsets { .. }
            | Self::Producer { .. }
            | Self::TransactionWithoutProducer
            | Self::ControlFromProducer
            | Self::DeleteHorizonFromProducer
            | Self::Body { .. }
            | Self::Record { .. } => BatchErrorKind::InvalidRecord,
        }
    }

    /// Whether the bytes merely end too early, as at the end of a fetch answer or of a log.
    pub fn is_incomplete(&self) -> bool {
        matches!(self, Self::Incomplete { .. })
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete {
                needed_bytes,
                present_bytes,
            } => write!(
                f,
                "the batch needs {needed_bytes} bytes and {present_bytes} are there"
            ),
            Self::Length { length } => write!(
                f,
                "the length field says {length}, less than a batch header needs"
            ),
            Self::BytesAfterBatch {
                batch_bytes,
                present_bytes,
            } => write!(
                f,
                "exactly one batch of {batch_bytes} bytes was expected and {present_bytes} bytes came"
            ),
            Self::Magic { magic } => write!(
                f,
                "magic is {magic}; only record batches with magic 2 are accepted (clients from Kafka 0.11 on)"
            ),
            Self::Checksum { stored, computed } => write!(
                f,
                "the header says CRC-32C {stored:#010x} and the bytes give {computed:#010x}"
            ),
            Self::TooLarge {
                batch_bytes,
                batch_bytes_max,
            } => write!(
                f,
                "the batch has {batch_bytes} bytes and at most {batch_bytes_max} are allowed; send smaller batches"
            ),
            Self::TooManyRecords {
                record_count,
                records_max,
            } => write!(
                f,
                "the batch claims {record_count} records and at most {records_max} are allowed"
            ),
            Self::UnknownCodec { code } => {
                write!(
                    f,
                    "codec {code} is unknown; use none, gzip, snappy, lz4 or zstd"
                )
            }
            Self::Count {
                record_count,
                last_offset_delta,
            } => write!(
                f,
                "{record_count} records and a last offset delta of {last_offset_delta} do not go together"
            ),
            Self::CountExceedsBody {
                record_count,
                body_bytes,
            } => write!(
                f,
                "{record_count} records are claimed and {body_bytes} bytes cannot hold them"
            ),
            Self::Offsets {
                base_offset,
                last_offset_delta,
            } => write!(
                f,
                "offsets from {base_offset} on, last delta {last_offset_delta}, are out of range"
            ),
            Self::Producer {
                producer_id,
                producer_epoch,
                base_sequence,
            } => write!(
                f,
                "producer id {producer_id}, epoch {producer_epoch} and sequence {base_sequence} do not go together"
            ),
            Self::TransactionWithoutProducer => {
                f.write_str("a transactional batch must carry a producer id")
            }
            Self::ControlFromProducer => f.write_str("only brokers write control batches"),
            Self::LogAppendTimeFromProducer => {
                f.write_str("only brokers set the timestamp type to log-append time")
            }
            Self::DeleteHorizonFromProducer => f.write_str("only brokers set a delete horizon"),
            Self::Timestamp { timestamp_ms } => {
                write!(f, "timestamp {timestamp_ms} is below -1 (none)")
            }
            Self::OutputLimit { output_bytes_max } => write!(
                f,
                "the batch opens to more than {output_bytes_max} bytes; send smaller batches"
            ),
            Self::Body { codec, fault } => write!(f, "the {codec} body {fault}"),
            Self::Record { index, fault } => write!(f, "record {index} of the batch: {fault}"),
        }
    }
}

impl Error for BatchError {}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("ends early"),
            Self::BytesAfterStream => f.write_str("is followed by more bytes"),
            Self::Malformed(reason) => write!(f, "cannot be decoded: {reason}"),
        }
    }
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the body ends too early",
            Self::Varint => "a variable-length integer is out of range",
            Self::Length => "a length is out of range",
            Self::HeaderCount => "the header count is out of range",
            Self::HeaderKey => "a header has no key",
            Self::BytesAfterFields => "its stated length is longer than its fields",
            Self::BytesAfterLastRecord => "bytes follow the last record",
            Self::OffsetDelta => "offset deltas do not rise within the batch",
        })
    }
}
