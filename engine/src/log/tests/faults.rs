//! Faults of disks, and what a damaged log may still do.

use std::vec::Vec;

use bytes::Bytes;

use super::harness::{Harness, batch, settings};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::Offset;
use crate::limits::BLOCK_BYTES;
use crate::log::{LogFault, LogPhase, LogProgress, LogSettings};

const FIRST: LogFile = LogFile::Segment(Offset(0));

fn is_data_write(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Write { file, .. } if matches!(file.file, LogFile::Segment(_)))
}

/// A batch whose CRC-32C is zero. The CRC is affine in the bits of the value, so four bytes of it can
/// be solved for.
fn batch_with_zero_crc() -> Bytes {
    let crc_of = |word: u32| {
        let value = [&[7; 20][..], &word.to_be_bytes()].concat();
        let batch = super::harness::batch_of(corelog_batch::Codec::None, &[1_000], &value);
        crc32c::crc32c(&batch[corelog_batch::CRC_COVERS_FROM..])
    };
    let constant = crc_of(0);
    let mut rows: Vec<(u32, u32)> = (0..32)
        .map(|bit| (crc_of(1 << bit) ^ constant, 1 << bit))
        .collect();
    let (mut left, mut word) = (constant, 0_u32);
    for bit in (0..32).rev() {
        let Some(at) = rows.iter().position(|(crc, _)| crc >> bit & 1 == 1) else {
            continue;
        };
        let (pivot, bits) = rows.swap_remove(at);
        for row in &mut rows {
            if row.0 >> bit & 1 == 1 {
                *row = (row.0 ^ pivot, row.1 ^ bits);
            }
        }
        if left >> bit & 1 == 1 {
            left ^= pivot;
            word ^= bits;
        }
    }
    assert_eq!(left, 0);
    let value = [&[7; 20][..], &word.to_be_bytes()].concat();
    super::harness::batch_of(corelog_batch::Codec::None, &[1_000], &value)
}

#[test]
fn zero_crc_batch_is_still_readable() {
    let zero = batch_with_zero_crc();
    assert_eq!(&zero[17..21], &[0; 4]);
    let mut harness = Harness::new(settings());
    harness.append(&[batch(10, 1), zero, batch(10, 2)]);
    harness.run();
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.end(), Offset(3));
    harness.assert_holds_all(0);
}

#[test]
fn zeros_are_never_written_over_data() {
    // The disk itself refuses an extension below written bytes.
    let mut harness = Harness::new(LogSettings {
        extend_bytes: (BLOCK_BYTES as u64, 64 << 10),
        ..settings()
    });
    for round in 0..60 {
        harness.append(&[batch(3_000 + round * 37, round as u8)]);
        harness.run();
        if round % 10 == 9 {
            let end = harness.log.end().get();
            harness.call(|log, _, queue| log.cut(Offset(end - 3), queue));
            harness.durable = Offset(end - 3);
            harness.run();
            harness.appended.split_off(&(end - 3));
        }
    }
    let extensions = harness
        .disk
        .requests
        .iter()
        .filter(|request| matches!(request, DiskRequest::Extend { .. }));
    assert!(extensions.count() > 3);
    harness.assert_holds_all(0);
    let mut harness = harness.reopen_and_run();
    harness.assert_holds_all(0);
}

#[test]
fn end_is_found_from_batches_and_cut_before_appending() {
    let mut harness = Harness::new(settings());
    let sizes = harness.append(&[batch(900, 1), batch(900, 2), batch(900, 3)]);
    harness.run();
    let batch_bytes = sizes.batches[0].len();
    // As if the second batch had never landed and the third had.
    let torn = batch_bytes..2 * batch_bytes;
    harness.disk.file_mut(FIRST).bytes[torn].fill(0);
    harness.durable = Offset(0);
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.end(), Offset(1));
    assert!(harness.recovered().cut_bytes > batch_bytes as u64);
    let behind = harness.disk.file(FIRST).unwrap().bytes.get(batch_bytes..);
    assert!(behind.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)));
    // A batch of the same size: the stale third one must not come back behind it.
    harness.appended.split_off(&1);
    harness.append(&[batch(900, 4)]);
    harness.run();
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.end(), Offset(2));
    harness.assert_holds_all(0);
}

#[test]
fn zeros_at_the_end_of_a_file_are_not_a_batch() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    harness.run();
    assert!(harness.disk.file(FIRST).unwrap().bytes.len() >= 64 << 10);
    for _ in 0..3 {
        harness = harness.reopen_and_run();
        assert_eq!(harness.recovered().cut_bytes, 0);
        harness.append(&[batch(100, 2)]);
        harness.run();
    }
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.end(), Offset(4));
    harness.assert_holds_all(0);
}

#[test]
fn failed_sync_is_final() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    harness.run();
    harness.append(&[batch(100, 2)]);
    harness.disk.fail_next = Some((is_data_write, DiskError::Failed("EIO".into())));
    harness.run();
    assert_eq!(harness.log.phase(), LogPhase::Failed);
    assert!(matches!(
        harness.fault(),
        LogFault::Disk(DiskError::Failed(_))
    ));
    assert_eq!(harness.log.durable_end(), Offset(1));
    // Nothing is written again, whatever time passes.
    let before = harness.disk.requests.len();
    harness.now_ms += 1 << 40;
    harness.call(|log, now, queue| log.tick(now, queue));
    harness.call(|log, now, queue| log.retain(now, queue));
    harness.call(|log, _, queue| log.stop(Bytes::new(), queue));
    assert_eq!(harness.disk.requests.len(), before);
    assert_eq!(harness.log.phase(), LogPhase::Failed);
    // What was durable can be read.
    assert_eq!(harness.read_all(0).unwrap().len(), 1);
}

#[test]
fn a_write_that_lands_behind_a_failed_one_acknowledges_nothing() {
    let mut harness = Harness::new(LogSettings {
        parallel_bytes_min: 1,
        ..settings()
    });
    harness.append(&[batch(100, 1)]);
    harness.run();
    harness.append(&[batch(20_000, 2)]);
    harness.append(&[batch(20_000, 3)]);
    let waiting: Vec<bool> = harness
        .disk
        .waiting
        .iter()
        .map(|(_, request)| is_data_write(request))
        .collect();
    assert_eq!(waiting.iter().filter(|is_data| **is_data).count(), 2);
    harness.disk.fail_next = Some((is_data_write, DiskError::Failed("EIO".into())));
    harness.run();
    assert_eq!(harness.durable, Offset(1));
}

#[test]
fn a_full_disk_ends_writing_but_no_room_ahead_does_not() {
    let is_extension = |request: &DiskRequest| matches!(request, DiskRequest::Extend { .. });
    let mut harness = Harness::new(LogSettings {
        extend_bytes: (BLOCK_BYTES as u64, 1 << 20),
        ..settings()
    });
    harness.disk.fail_next = Some((is_extension, DiskError::Full));
    for round in 0..30 {
        harness.append(&[batch(3_000, round)]);
        harness.run();
    }
    assert!(harness.progress.contains(&LogProgress::NoRoom));
    assert_eq!(harness.log.phase(), LogPhase::Ready);
    assert_eq!(harness.log.durable_end(), Offset(30));
    harness.append(&[batch(100, 1)]);
    harness.disk.fail_next = Some((is_data_write, DiskError::Full));
    harness.run();
    assert_eq!(harness.log.phase(), LogPhase::Failed);
    assert_eq!(harness.fault(), LogFault::Disk(DiskError::Full));
    // And after a restart everything acknowledged is served.
    let mut harness = harness.reopen_and_run();
    assert!(harness.log.end() >= Offset(30));
    harness.assert_holds_all(0);
}

#[test]
fn new_segment_is_durable_before_it_is_written() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    let next = |harness: &Harness| harness.disk.waiting[0].1.clone();
    assert_eq!(harness.disk.waiting.len(), 1);
    assert!(
        matches!(next(&harness), DiskRequest::Create { file, .. } if file.file == LogFile::State)
    );
    harness.complete(0);
    assert_eq!(harness.disk.waiting.len(), 1);
    assert!(
        matches!(next(&harness), DiskRequest::Write { file, .. } if file.file == LogFile::State)
    );
    harness.complete(0);
    harness.complete_where(
        |request| matches!(request, DiskRequest::Create { file, .. } if file.file == FIRST),
    );
    assert!(harness.progress.contains(&LogProgress::Begun));
    assert_eq!(harness.durable, Offset(0));
    harness.complete_where(is_data_write);
    assert_eq!(harness.durable, Offset(1));
}

#[test]
fn nothing_is_made_before_the_first_append() {
    let mut harness = Harness::new(settings());
    harness.begin_epoch(3);
    harness.call(|log, now, queue| log.tick(now, queue));
    harness.checkpoint(b"table");
    harness.stop(b"table");
    assert!(harness.disk.files.is_none());
}

#[test]
fn a_bad_batch_found_by_a_read_stops_that_read_alone() {
    let mut harness = Harness::new(settings());
    let appended = harness.append(&[batch(100_000, 1), batch(100_000, 2), batch(100_000, 3)]);
    harness.run();
    let second = appended.batches[0].len() + 5_000;
    harness.disk.file_mut(FIRST).bytes[second] ^= 1;
    let fault = harness.read(1, 1_000).unwrap_err();
    let LogFault::Corruption(corruption) = fault else {
        panic!("{fault:?}");
    };
    assert_eq!(corruption.file.file, FIRST);
    assert_eq!(corruption.position.get(), appended.batches[0].len() as u64);
    assert_eq!(harness.read(0, 1_000).unwrap().len(), 1);
    assert_eq!(harness.read(2, 1_000).unwrap().len(), 1);
    assert_eq!(harness.log.phase(), LogPhase::Ready);
    harness.append(&[batch(10, 4)]);
    harness.run();
    assert_eq!(harness.durable, Offset(4));
}

#[test]
fn a_log_that_ends_below_what_was_durable_is_corrupt() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1), batch(100, 2)]);
    harness.run();
    harness.checkpoint(b"");
    harness.append(&[batch(100, 3)]);
    harness.run();
    // A later state write carries the durable end.
    harness.begin_epoch(2);
    harness.run();
    let batch_bytes = batch(100, 1).len();
    let third = 2 * batch_bytes + 70;
    harness.disk.file_mut(FIRST).bytes[third] ^= 1;
    let harness = harness.reopen_and_run();
    assert!(harness.is_corrupt());
}

#[test]
fn a_file_that_ends_below_the_checkpoint_is_corrupt() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(10_000, 1)]);
    harness.run();
    harness.stop(b"");
    harness.disk.file_mut(FIRST).bytes.truncate(8_192);
    let harness = harness.reopen_and_run();
    assert!(harness.is_corrupt());
}

#[test]
fn a_missing_segment_is_not_an_empty_log() {
    for stop in [false, true] {
        let mut harness = Harness::new(settings());
        harness.append(&[batch(100, 1)]);
        harness.run();
        if stop {
            harness.stop(b"");
        }
        harness.disk.files.as_mut().unwrap().remove(&FIRST);
        let harness = harness.reopen_and_run();
        assert!(harness.is_corrupt());
        assert!(harness.disk.waiting.is_empty());
    }
}

#[test]
fn a_crash_in_the_first_append_leaves_a_log_that_can_begin() {
    for completed in 0..4 {
        let mut harness = Harness::new(settings());
        harness.append(&[batch(100, 1)]);
        for _ in 0..completed {
            harness.complete(0);
        }
        assert!(!harness.begun || completed == 3);
        let mut harness = harness.reopen_and_run();
        assert_eq!(harness.log.phase(), LogPhase::Ready, "{completed}");
        assert_eq!(harness.log.end(), Offset(0));
        harness.append(&[batch(100, 2)]);
        harness.run();
        assert_eq!(harness.durable, Offset(1));
        harness.assert_holds_all(0);
    }
}

#[test]
fn a_batch_of_another_epoch_is_not_what_belongs_there() {
    // Offset and epoch lie outside the CRC: continuity and history check them.
    for (at, flipped) in [(7, 1_u8), (15, 4)] {
        let mut harness = Harness::new(settings());
        let appended = harness.append(&[batch(100, 1), batch(100, 2), batch(100, 3)]);
        harness.run();
        let second = appended.batches[0].len();
        harness.disk.file_mut(FIRST).bytes[second + at] ^= flipped;
        let harness = harness.reopen_and_run();
        assert_eq!(harness.log.end(), Offset(1));
    }
}
