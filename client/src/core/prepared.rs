//! A batch that is built once and sent many times, each time with another header.
//!
//! The CRC-32C of a batch covers part of its header and all of its body. It is linear, so the checksum of
//! the whole follows from that of the header, moved by the length of the body, and that of the body. The
//! move is one multiplication, by a factor that the length alone decides: a new header costs tens of
//! nanoseconds, whatever the size of the body.

use bytes::Bytes;
use corelog_batch::{BatchError, BatchHeader, CRC_COVERS_FROM, CrcShift, HEADER_BYTES};
use corelog_wire::Records;

/// What a new header says. The rest of it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Producer id; -1 for none.
    pub producer_id: i64,
    /// Producer epoch; -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record; -1 for none.
    pub base_sequence: i32,
    /// Timestamp of the first record in milliseconds; the others keep their distance.
    pub base_timestamp_ms: i64,
}

/// A finished batch and what is needed to give it new headers.
#[derive(Clone, Debug)]
pub struct PreparedBatch {
    header: BatchHeader,
    body: Bytes,
    body_crc: u32,
    /// What the length of the body does to the CRC of a header.
    body_shift: CrcShift,
}

impl PreparedBatch {
    /// Prepares one whole batch, as [`corelog_batch::BatchBuilder::build`] gives it.
    ///
    /// # Errors
    /// What [`BatchHeader::parse`] finds, or [`BatchError::Incomplete`].
    pub fn new(batch: Bytes) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(&batch)?;
        if batch.len() < header.batch_bytes() {
            return Err(BatchError::Incomplete {
                needed_bytes: header.batch_bytes(),
                present_bytes: batch.len(),
            });
        }
        let body = batch.slice(HEADER_BYTES..header.batch_bytes());
        Ok(Self {
            header,
            body_crc: crc32c::crc32c(&body),
            body_shift: CrcShift::of(body.len()),
            body,
        })
    }

    /// Records in the batch.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// Size of the batch in bytes.
    pub fn bytes(&self) -> usize {
        self.header.batch_bytes()
    }

    /// The batch with a new header; the body is shared.
    pub fn stamped(&self, stamp: Stamp) -> Records {
        let mut header = self.header;
        let span_ms = header.max_timestamp_ms - header.base_timestamp_ms;
        header.producer_id = stamp.producer_id;
        header.producer_epoch = stamp.producer_epoch;
        header.base_sequence = stamp.base_sequence;
        header.base_timestamp_ms = stamp.base_timestamp_ms;
        header.max_timestamp_ms = stamp.base_timestamp_ms.saturating_add(span_ms);
        let raw = header.to_bytes();
        let head_crc = crc32c::crc32c(&raw[CRC_COVERS_FROM..]);
        header.crc = self.body_shift.combine(head_crc, self.body_crc);
        let raw = Bytes::copy_from_slice(&header.to_bytes());
        Records::Pieces(vec![raw, self.body.clone()])
    }
}

/// Gives a finished batch a producer and a sequence, in place.
///
/// # Errors
/// What [`BatchHeader::parse`] finds.
pub(crate) fn stamp_producer(
    batch: &mut [u8],
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
) -> Result<(), BatchError> {
    let mut header = BatchHeader::parse(batch)?;
    header.producer_id = producer_id;
    header.producer_epoch = producer_epoch;
    header.base_sequence = base_sequence;
    let raw = header.to_bytes();
    header.crc = crc32c::crc32c_append(
        crc32c::crc32c(&raw[CRC_COVERS_FROM..]),
        batch.get(HEADER_BYTES..).unwrap_or_default(),
    );
    if let Some(head) = batch.first_chunk_mut::<HEADER_BYTES>() {
        *head = header.to_bytes();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use corelog_batch::{BatchBuilder, BatchLimits, BatchOptions, verify_producer_batch};
    use proptest::prelude::*;

    use super::*;

    fn batch(values: &[Vec<u8>]) -> Bytes {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for (timestamp_ms, value) in (1_000..).zip(values) {
            builder
                .append(timestamp_ms, None, Some(value), &[])
                .unwrap();
        }
        builder.build().unwrap().freeze()
    }

    proptest! {
        #[test]
        fn a_new_header_keeps_the_batch_valid(
            values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..20),
            producer_id in 0..i64::MAX,
            producer_epoch in 0..i16::MAX,
            base_sequence in 0..i32::MAX,
            base_timestamp_ms in 0..i64::MAX / 2,
        ) {
            let original = batch(&values);
            let prepared = PreparedBatch::new(original.clone()).unwrap();
            let stamp = Stamp { producer_id, producer_epoch, base_sequence, base_timestamp_ms };
            let stamped = prepared.stamped(stamp).to_bytes();
            let header = verify_producer_batch(&stamped, &BatchLimits::default()).unwrap();
            prop_assert_eq!(header.producer_id, producer_id);
            prop_assert_eq!(header.producer_epoch, producer_epoch);
            prop_assert_eq!(header.base_sequence, base_sequence);
            prop_assert_eq!(header.base_timestamp_ms, base_timestamp_ms);
            prop_assert_eq!(header.max_timestamp_ms, base_timestamp_ms + values.len() as i64 - 1);

            let mut in_place = original.to_vec();
            stamp_producer(&mut in_place, producer_id, producer_epoch, base_sequence).unwrap();
            let header = verify_producer_batch(&in_place, &BatchLimits::default()).unwrap();
            prop_assert_eq!(header.base_sequence, base_sequence);
        }
    }
}
