//! What a broker writes into a batch that it has accepted.

use crate::header::{
    ATTRIBUTES_AT, Attributes, CRC_AT, CRC_COVERS_FROM, HEADER_BYTES, LEADER_EPOCH_AT,
    MAX_TIMESTAMP_AT,
};

/// Gives a batch its base offset and its leader epoch. Both lie outside the CRC, so nothing is recomputed.
///
/// # Panics
///
/// If `batch` is shorter than a header: only verified batches are stamped.
pub fn stamp(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    assert!(
        batch.len() >= HEADER_BYTES,
        "only verified batches are stamped"
    );
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Gives all records of a batch the time of its append: sets the log-append-time bit and the max timestamp,
/// and recomputes the CRC. `batch` must be exactly one batch.
///
/// # Panics
///
/// If `batch` is shorter than a header: only verified batches are stamped.
pub fn stamp_log_append_time(batch: &mut [u8], timestamp_ms: i64) {
    assert!(
        batch.len() >= HEADER_BYTES,
        "only verified batches are stamped"
    );
    batch[ATTRIBUTES_AT + 1] |= Attributes::LOG_APPEND_TIME as u8;
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&timestamp_ms.to_be_bytes());
    let crc = crc32c::crc32c(&batch[CRC_COVERS_FROM..]);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}
