//! What a producer may send and what a log may hold.
#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use corelog_batch::{
    Attributes, BatchBuilder, BatchError, BatchErrorKind, BatchHeader, BatchLimits, BatchOptions,
    CRC_COVERS_FROM, Codec, HEADER_BYTES, HeaderRef, RecordFault, batches, open, record_refs,
    scan_records, verify_producer_batch, verify_stored_batch,
};

fn batch_of(records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for _ in 0..records {
        builder.append(1_000, Some(b"k"), Some(b"v"), &[]).unwrap();
    }
    builder.build().unwrap().to_vec()
}

/// The batch with its header changed, under a CRC that matches.
fn changed(batch: &[u8], change: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut header = BatchHeader::parse(batch).unwrap();
    change(&mut header);
    with_header(&header, &batch[HEADER_BYTES..])
}

fn with_header(header: &BatchHeader, body: &[u8]) -> Vec<u8> {
    let mut header = BatchHeader {
        length: i32::try_from(HEADER_BYTES - 12 + body.len()).unwrap(),
        ..*header
    };
    let mut batch = [&header.to_bytes()[..], body].concat();
    header.crc = crc32c::crc32c(&batch[CRC_COVERS_FROM..]);
    batch[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    batch
}

fn producer(batch: &[u8]) -> Result<BatchHeader, BatchError> {
    verify_producer_batch(batch, &BatchLimits::default())
}

fn refused_with(change: impl FnOnce(&mut BatchHeader), kind: BatchErrorKind) -> BatchError {
    let error = producer(&changed(&batch_of(3), change)).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

#[test]
fn only_brokers_write_control_batches_and_log_append_time() {
    for bit in [5, 6] {
        refused_with(
            |h| h.attributes = Attributes(1 << bit),
            BatchErrorKind::InvalidRecord,
        );
    }
    refused_with(
        |h| h.attributes = Attributes(1 << 3),
        BatchErrorKind::InvalidTimestamp,
    );
}

#[test]
fn unknown_codecs_are_named_as_such() {
    for code in 5..8 {
        let error = refused_with(
            |h| h.attributes = Attributes(code),
            BatchErrorKind::UnsupportedCompression,
        );
        assert_eq!(error, BatchError::UnknownCodec { code: code as u8 });
    }
}

#[test]
fn count_and_last_offset_delta_must_agree_in_a_producer_batch() {
    for (record_count, last_offset_delta) in [
        (0, -1),
        (0, 0),
        (-1, -2),
        (2, 2),
        (3, 1),
        (i32::MIN, i32::MAX),
        (1, i32::MAX),
    ] {
        refused_with(
            |h| (h.record_count, h.last_offset_delta) = (record_count, last_offset_delta),
            BatchErrorKind::InvalidRecord,
        );
    }
}

#[test]
fn a_small_compressed_batch_cannot_use_up_billions_of_offsets() {
    let error = refused_with(
        |h| {
            h.attributes = Attributes::with_codec(Codec::Zstd);
            (h.record_count, h.last_offset_delta) = (i32::MAX, i32::MAX - 1);
        },
        BatchErrorKind::MessageTooLarge,
    );
    assert!(matches!(error, BatchError::TooManyRecords { .. }));
    refused_with(
        |h| (h.record_count, h.last_offset_delta) = (1_000, 999),
        BatchErrorKind::InvalidRecord,
    );
}

#[test]
fn a_batch_above_the_limit_is_too_large_even_before_it_has_arrived() {
    let batch = batch_of(3);
    let limits = BatchLimits {
        batch_bytes_max: batch.len() - 1,
        ..BatchLimits::default()
    };
    for present in [&batch[..], &batch[..HEADER_BYTES]] {
        let error = verify_producer_batch(present, &limits).unwrap_err();
        assert_eq!(error.kind(), BatchErrorKind::MessageTooLarge);
    }
    let limits = BatchLimits {
        batch_bytes_max: batch.len(),
        ..limits
    };
    assert!(verify_producer_batch(&batch, &limits).is_ok());
}

#[test]
fn an_idempotent_producer_needs_epoch_and_sequence() {
    for (producer_id, producer_epoch, base_sequence) in [(5, -1, 0), (5, 0, -1), (-2, 0, 0)] {
        refused_with(
            |h| {
                h.producer_id = producer_id;
                h.producer_epoch = producer_epoch;
                h.base_sequence = base_sequence;
            },
            BatchErrorKind::InvalidRecord,
        );
    }
    refused_with(
        |h| h.attributes = Attributes::default().with_transactional(true),
        BatchErrorKind::InvalidRecord,
    );
    let accepted = changed(&batch_of(3), |h| {
        (h.producer_id, h.producer_epoch, h.base_sequence) = (5, 0, 0);
        h.attributes = Attributes::default().with_transactional(true);
    });
    assert!(producer(&accepted).unwrap().attributes.is_transactional());
}

#[test]
fn clients_that_send_sequence_zero_without_a_producer_id_are_accepted() {
    let batch = changed(&batch_of(1), |h| {
        (h.producer_epoch, h.base_sequence) = (0, 0);
    });
    assert!(!producer(&batch).unwrap().has_producer_id());
}

#[test]
fn clients_that_leave_the_max_timestamp_out_are_accepted_and_scanned() {
    let batch = Bytes::from(changed(&batch_of(2), |h| h.max_timestamp_ms = -1));
    let header = producer(&batch).unwrap();
    let scan = scan_records(&header, &open(&batch, 1_000).unwrap()).unwrap();
    assert_eq!(scan.max_timestamp_ms, 1_000);
    for timestamp_ms in [-2, i64::MIN] {
        refused_with(
            |h| h.max_timestamp_ms = timestamp_ms,
            BatchErrorKind::InvalidTimestamp,
        );
        refused_with(
            |h| h.base_timestamp_ms = timestamp_ms,
            BatchErrorKind::InvalidTimestamp,
        );
    }
}

#[test]
fn older_message_formats_are_refused_by_name() {
    for magic in [0, 1] {
        let mut batch = batch_of(1);
        batch[16] = magic;
        let error = producer(&batch).unwrap_err();
        assert_eq!(error.kind(), BatchErrorKind::InvalidRecord);
        assert!(error.to_string().contains(&format!("magic is {magic}")));
        let split = batches(Bytes::from(batch)).next().unwrap();
        assert!(
            !split.unwrap_err().is_incomplete(),
            "damage, not a torn tail"
        );
    }
}

#[test]
fn compacted_and_control_batches_of_a_log_are_accepted() {
    let empty = with_header(
        &BatchHeader {
            base_offset: 40,
            record_count: 0,
            last_offset_delta: 9,
            ..BatchHeader::parse(&batch_of(1)).unwrap()
        },
        &[],
    );
    let header = verify_stored_batch(&empty).unwrap();
    assert_eq!(
        header.next_offset(),
        50,
        "an empty batch moves the offset on"
    );
    let body = open(&Bytes::from(empty.clone()), 0).unwrap();
    assert_eq!(record_refs(&header, &body).count(), 0);
    assert!(producer(&empty).is_err());

    let control = changed(&batch_of(1), |h| {
        h.attributes = Attributes::default().with_control(true);
    });
    assert!(
        verify_stored_batch(&control)
            .unwrap()
            .attributes
            .is_control()
    );

    let gaps = changed(&batch_of(2), |h| h.last_offset_delta = 5);
    let header = verify_stored_batch(&gaps).unwrap();
    assert_eq!((header.record_count, header.next_offset()), (2, 6));
}

#[test]
fn impossible_counts_and_offsets_of_a_log_are_refused() {
    let stored = |change: fn(&mut BatchHeader)| verify_stored_batch(&changed(&batch_of(3), change));
    assert!(stored(|h| h.record_count = -1).is_err());
    assert!(stored(|h| h.last_offset_delta = -1).is_err());
    assert!(stored(|h| h.last_offset_delta = 1).is_err());
    assert!(stored(|h| (h.record_count, h.last_offset_delta) = (i32::MIN, 0)).is_err());
    assert!(stored(|h| h.base_offset = -1).is_err());
    assert!(stored(|h| h.base_offset = i64::MAX - 2).is_err());
    assert!(stored(|h| h.base_offset = i64::MAX - 3).is_ok());
    assert!(stored(|h| h.producer_id = -2).is_err());
}

#[test]
fn zero_crc_batch_is_still_readable() {
    // A record's last header value ends the batch, so its four bytes can be chosen to give any CRC.
    let with_tail = |tail: u32| {
        let tail = tail.to_le_bytes();
        let header = HeaderRef {
            key: b"h",
            value: Some(&tail),
        };
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(1, None, Some(b"v"), &[header]).unwrap();
        builder.build().unwrap().to_vec()
    };
    let crc_of = |tail: u32| BatchHeader::parse(&with_tail(tail)).unwrap().crc;
    let tail = tail_for_zero_crc(crc_of);
    let batch = Bytes::from(with_tail(tail));
    let header = producer(&batch).unwrap();
    assert_eq!(header.crc, 0);
    assert_eq!(verify_stored_batch(&batch), Ok(header));
    let (_, split) = batches(batch.clone()).next().unwrap().unwrap();
    assert_eq!(split, batch);
    assert!(scan_records(&header, &open(&batch, 1_000).unwrap()).is_ok());
}

/// A CRC is affine in the bits of the tail, so Gaussian elimination finds the tail that makes it zero.
fn tail_for_zero_crc(crc_of: impl Fn(u32) -> u32) -> u32 {
    let constant = crc_of(0);
    let mut rows: Vec<(u32, u32)> = (0..32)
        .map(|bit| (crc_of(1 << bit) ^ constant, 1 << bit))
        .collect();
    let (mut target, mut tail) = (constant, 0);
    for bit in (0..32).rev() {
        let pivot = rows
            .iter()
            .position(|(crc, _)| crc >> bit & 1 == 1)
            .unwrap();
        let (pivot_crc, pivot_tail) = rows.swap_remove(pivot);
        for (crc, tail) in &mut rows {
            if *crc >> bit & 1 == 1 {
                *crc ^= pivot_crc;
                *tail ^= pivot_tail;
            }
        }
        if target >> bit & 1 == 1 {
            target ^= pivot_crc;
            tail ^= pivot_tail;
        }
    }
    tail
}

#[test]
fn records_that_break_the_format_are_refused_by_index() {
    // length, attributes, timestamp delta, offset delta, key, value, header count
    let good: [u8; 7] = [12, 0, 0, 0, 1, 1, 0];
    let cases: [(&[u8], RecordFault); 10] = [
        (&[14, 0, 0, 2, 1, 1, 0], RecordFault::Truncated),
        (&[1, 0, 0, 2, 1, 1, 0], RecordFault::Length),
        (&[12, 0, 0, 2, 3, 1, 0], RecordFault::Length),
        (&[12, 0, 0, 2, 1, 40, 0], RecordFault::Length),
        (&[12, 0, 0, 2, 1, 1, 1], RecordFault::HeaderCount),
        (&[12, 0, 0, 2, 1, 1, 2], RecordFault::HeaderCount),
        (&[16, 0, 0, 2, 1, 1, 2, 1, 1], RecordFault::HeaderKey),
        (&[14, 0, 0, 2, 1, 1, 0, 0], RecordFault::BytesAfterFields),
        (&[12, 0, 0, 0, 1, 1, 0], RecordFault::OffsetDelta),
        (&[12, 0, 0, 4, 1, 1, 0], RecordFault::OffsetDelta),
    ];
    let header = BatchHeader::parse(&batch_of(2)).unwrap();
    for (second, fault) in cases {
        let body = [&good[..], second].concat();
        let mut records = record_refs(&header, &body);
        assert!(records.next().unwrap().is_ok());
        let error = records.next().unwrap().unwrap_err();
        assert_eq!(error, BatchError::Record { index: 1, fault });
        assert!(records.next().is_none(), "an error ends the iteration");
    }
    let third = [&good[..], &[12, 0, 0, 2, 1, 1, 0], &[0]].concat();
    assert_eq!(
        scan_records(&header, &third),
        Err(BatchError::Record {
            index: 2,
            fault: RecordFault::BytesAfterLastRecord
        })
    );
    assert_eq!(
        scan_records(&header, &good),
        Err(BatchError::Record {
            index: 1,
            fault: RecordFault::Truncated
        })
    );
}
