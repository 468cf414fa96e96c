//! Whether one batch may be appended, or is what was once appended.
//!
//! Neither check opens the body. A compressed body may therefore still be unreadable or hold another number
//! of records than the header says; [`crate::open()`] and [`crate::scan_records`] find that out.

use crate::error::BatchError;
use crate::header::{BatchHeader, CRC_COVERS_FROM, Codec, NO_PRODUCER_ID, NO_TIMESTAMP};
use crate::varint::RECORD_BYTES_MIN;

/// What a producer's batch may not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Largest batch in bytes, header included.
    pub batch_bytes_max: usize,
    /// Most records in a batch. Offsets advance by the count, and the count of a compressed batch cannot be
    /// bounded by its size, so this keeps a few bytes from using up billions of offsets.
    pub records_max: i32,
}

impl Default for BatchLimits {
    /// Kafka's default `max.message.bytes` (1 MiB and a 12-byte prefix), and 2^20 records.
    fn default() -> Self {
        BatchLimits {
            batch_bytes_max: 1024 * 1024 + 12,
            records_max: 1 << 20,
        }
    }
}

/// Checks a batch that a producer sent, which must be all of `bytes`: size, length, CRC, then the rules that
/// Kafka's `LogValidator` applies to batches from clients.
///
/// Timestamps are only checked against values below -1: neither Kafka nor this function demands that the base
/// timestamp be at most the maximum, since some clients send a maximum of -1. Producer epoch and sequence
/// without a producer id are ignored, because clients differ in what they put there (-1 or 0).
///
/// # Errors
///
/// The first rule that is broken; [`BatchError::kind`] gives the answer for the producer.
pub fn verify_producer_batch(
    bytes: &[u8],
    limits: &BatchLimits,
) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let batch_bytes = header.batch_bytes();
    if batch_bytes > limits.batch_bytes_max {
        return Err(BatchError::TooLarge {
            batch_bytes,
            batch_bytes_max: limits.batch_bytes_max,
        });
    }
    verify_length_and_checksum(&header, bytes)?;
    let codec = header.codec()?;
    let attributes = header.attributes;
    if attributes.is_control() {
        return Err(BatchError::ControlFromProducer);
    }
    if attributes.is_log_append_time() {
        return Err(BatchError::LogAppendTimeFromProducer);
    }
    if attributes.has_delete_horizon() {
        return Err(BatchError::DeleteHorizonFromProducer);
    }
    if header.record_count <= 0 || header.last_offset_delta != header.record_count - 1 {
        return Err(count_error(&header));
    }
    if header.record_count > limits.records_max {
        return Err(BatchError::TooManyRecords {
            record_count: header.record_count,
            records_max: limits.records_max,
        });
    }
    verify_count_fits(&header, codec)?;
    for timestamp_ms in [header.base_timestamp_ms, header.max_timestamp_ms] {
        if timestamp_ms < NO_TIMESTAMP {
            return Err(BatchError::Timestamp { timestamp_ms });
        }
    }
    verify_producer(&header)?;
    Ok(header)
}

/// Checks a batch that was appended once, which must be all of `bytes`: length, CRC, and what holds for every
/// batch of a log. Compacted batches (fewer records than offsets, also none) and control batches pass.
///
/// That the batch stands at the right offset and epoch is not known here: neither is covered by the CRC, so
/// the reader of a log checks continuity.
///
/// # Errors
///
/// The first rule that is broken.
pub fn verify_stored_batch(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    verify_length_and_checksum(&header, bytes)?;
    let codec = header.codec()?;
    if header.record_count < 0
        || header.last_offset_delta < 0
        || header.record_count - 1 > header.last_offset_delta
    {
        return Err(count_error(&header));
    }
    let next_offset = header
        .base_offset
        .checked_add(i64::from(header.last_offset_delta) + 1);
    if header.base_offset < 0 || next_offset.is_none() {
        return Err(BatchError::Offsets {
            base_offset: header.base_offset,
            last_offset_delta: header.last_offset_delta,
        });
    }
    verify_count_fits(&header, codec)?;
    if header.producer_id < NO_PRODUCER_ID {
        return Err(producer_error(&header));
    }
    Ok(header)
}

fn verify_length_and_checksum(header: &BatchHeader, bytes: &[u8]) -> Result<(), BatchError> {
    let batch_bytes = header.batch_bytes();
    if bytes.len() < batch_bytes {
        return Err(BatchError::Incomplete {
            needed_bytes: batch_bytes,
            present_bytes: bytes.len(),
        });
    }
    if bytes.len() > batch_bytes {
        return Err(BatchError::BytesAfterBatch {
            batch_bytes,
            present_bytes: bytes.len(),
        });
    }
    let computed = crc32c::crc32c(bytes.get(CRC_COVERS_FROM..).unwrap_or_default());
    if computed != header.crc {
        return Err(BatchError::Checksum {
            stored: header.crc,
            computed,
        });
    }
    Ok(())
}

/// Each record takes at least [`RECORD_BYTES_MIN`] bytes, which bounds the count of an uncompressed batch.
fn verify_count_fits(header: &BatchHeader, codec: Codec) -> Result<(), BatchError> {
    let records = usize::try_from(header.record_count).unwrap_or(0);
    if codec == Codec::None && records > header.body_bytes() / RECORD_BYTES_MIN {
        return Err(BatchError::CountExceedsBody {
            record_count: header.record_count,
            body_bytes: header.body_bytes(),
        });
    }
    Ok(())
}

fn verify_producer(header: &BatchHeader) -> Result<(), BatchError> {
    let complete = header.producer_epoch >= 0 && header.base_sequence >= 0;
    if header.producer_id < NO_PRODUCER_ID || (header.has_producer_id() && !complete) {
        return Err(producer_error(header));
    }
    if header.attributes.is_transactional() && !header.has_producer_id() {
        return Err(BatchError::TransactionWithoutProducer);
    }
    Ok(())
}

fn count_error(header: &BatchHeader) -> BatchError {
    BatchError::Count {
        record_count: header.record_count,
        last_offset_delta: header.last_offset_delta,
    }
}

fn producer_error(header: &BatchHeader) -> BatchError {
    BatchError::Producer {
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
    }
}
