//! Retention and the log start.

use bytes::Bytes;
use corelog_batch::Codec;

use super::harness::{Harness, batch, batch_of, settings};
use crate::disk::{DiskRequest, LogFile};
use crate::identity::Offset;
use crate::log::{LogProgress, LogSettings, Started};

const DAY_MS: u64 = 24 * 3_600_000;

fn retain(harness: &mut Harness) {
    for _ in 0..20 {
        harness.call(|log, now, queue| log.retain(now, queue));
        harness.run();
        if harness.log.checkpoint_due() {
            harness.checkpoint(b"table");
        }
    }
}

fn filled(settings: LogSettings) -> Harness {
    let mut harness = Harness::new(LogSettings {
        segment_bytes_max: 20_000,
        ..settings
    });
    for fill in 0..20 {
        harness.append(&[batch(6_000, fill)]);
        harness.run();
    }
    harness.checkpoint(b"table");
    harness
}

#[test]
fn future_stamp_does_not_pin_the_log() {
    let mut harness = Harness::new(LogSettings {
        segment_ms: DAY_MS,
        retention_ms: Some(7 * DAY_MS),
        ..settings()
    });
    // The year 2100; microseconds taken for milliseconds; eight days old.
    let stamps = [
        4_102_444_800_000,
        1_700_000_000_000_000,
        1_000_000 - 8 * DAY_MS as i64,
    ];
    for stamp in stamps {
        harness.append(&[batch_of(Codec::None, &[stamp.max(0)], b"v")]);
        harness.run();
    }
    retain(&mut harness);
    assert_eq!(
        harness.log.start(),
        Offset(0),
        "an old stamp deletes nothing"
    );
    harness.now_ms += 8 * DAY_MS;
    retain(&mut harness);
    assert_eq!(harness.log.start(), Offset(3));
    assert_eq!(harness.segments(), [3]);
    // An offset is given once.
    let appended = harness.append(&[batch(10, 1)]);
    assert_eq!(appended.first_offset, Offset(3));
    harness.run();
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.start(), Offset(3));
    assert_eq!(harness.log.end(), Offset(4));
    harness.assert_holds_all(3);
}

#[test]
fn retention_by_size_keeps_at_least_that_much() {
    let mut harness = filled(LogSettings {
        retention_bytes: Some(50_000),
        ..settings()
    });
    retain(&mut harness);
    assert!(harness.log.start() > Offset(0));
    assert!(harness.log.bytes() >= 50_000);
    assert!(harness.log.bytes() < 50_000 + 20_000);
    let start = harness.log.start().get();
    assert_eq!(harness.segments()[0], start);
    harness.assert_holds_all(start);
}

#[test]
fn retention_after_a_restart_goes_by_the_seals() {
    let mut harness = filled(LogSettings {
        retention_ms: Some(DAY_MS),
        segment_ms: 100 * DAY_MS,
        ..settings()
    });
    harness.now_ms += DAY_MS - 1;
    harness.append(&[batch(10, 1)]);
    harness.run();
    harness.stop(b"table");
    let mut harness = harness.reopen_and_run();
    retain(&mut harness);
    assert_eq!(harness.log.start(), Offset(0));
    harness.now_ms += 2;
    retain(&mut harness);
    let start = harness.log.start();
    assert!(start > Offset(0) && start < Offset(21));
}

#[test]
fn a_lost_seal_means_a_later_append_time() {
    let mut harness = filled(LogSettings {
        retention_ms: Some(DAY_MS),
        segment_ms: 100 * DAY_MS,
        ..settings()
    });
    harness.stop(b"table");
    harness
        .disk
        .files
        .as_mut()
        .unwrap()
        .retain(|file, _| !matches!(file, LogFile::Seal(_)));
    let mut harness = harness.reopen_and_run();
    harness.now_ms += 2 * DAY_MS;
    harness.call(|log, now, queue| log.retain(now, queue));
    harness.run();
    harness.call(|log, now, queue| log.retain(now, queue));
    harness.run();
    assert_eq!(harness.log.start(), Offset(0));
}

#[test]
fn log_start_is_durable_before_files_go() {
    let mut harness = filled(settings());
    let segments = harness.segments();
    let start = Offset(segments[3]);
    harness.call(|log, _, queue| log.delete_before(start, queue));
    assert_eq!(harness.disk.waiting.len(), 1);
    assert!(matches!(
        &harness.disk.waiting[0].1,
        DiskRequest::Write { file, .. } if file.file == LogFile::State
    ));
    harness.complete(0);
    assert!(harness.progress.contains(&LogProgress::Start(start)));
    harness.run();
    assert_eq!(harness.segments(), segments[3..]);
    harness.assert_holds_all(start.get());
}

#[test]
fn log_start_within_a_batch_serves_that_batch() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch_of(Codec::None, &[1, 2, 3, 4], b"v")]);
    harness.run();
    harness.call(|log, _, queue| log.delete_before(Offset(2), queue));
    harness.run();
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.start(), Offset(2));
    let pieces = harness.read(2, 10).unwrap();
    assert_eq!(pieces, [harness.appended[&0].clone()]);
}

#[test]
fn a_segment_that_a_read_holds_is_not_removed() {
    let mut harness = filled(settings());
    let end = harness.log.end();
    let Started::Pending(id) = harness.call(|log, _, queue| log.read(Offset(0), 1, end, queue))
    else {
        panic!("not in memory");
    };
    let read = harness.disk.waiting.len() - 1;
    let segments = harness.segments();
    let start = Offset(segments[2]);
    harness.call(|log, _, queue| log.delete_before(start, queue));
    // Everything but the read.
    while harness.disk.waiting.len() > read + 1 {
        harness.complete(read + 1);
    }
    assert_eq!(harness.segments(), segments);
    harness.run();
    assert!(harness.read_result(id).unwrap().is_ok());
    assert_eq!(harness.segments(), segments[2..]);
}

#[test]
fn an_append_beside_a_removal_of_everything_goes_on_counting() {
    let mut harness = filled(settings());
    let end = harness.log.end();
    harness.call(|log, _, queue| log.delete_before(end, queue));
    let appended = harness.append(&[batch(10, 1)]);
    assert_eq!(appended.first_offset, end);
    harness.run();
    harness.call(|log, _, queue| log.checkpoint(Bytes::new(), queue));
    harness.run();
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.start(), end);
    assert_eq!(harness.log.end(), end.plus(1));
    harness.assert_holds_all(end.get());
}

#[test]
fn a_segment_stays_until_the_checkpoint_has_passed_it() {
    let mut harness = Harness::new(LogSettings {
        segment_bytes_max: 20_000,
        ..settings()
    });
    for fill in 0..12 {
        harness.append(&[batch(6_000, fill)]);
        harness.run();
    }
    let segments = harness.segments();
    let start = Offset(segments[2]);
    harness.call(|log, _, queue| log.delete_before(start, queue));
    harness.run();
    assert_eq!(harness.segments(), segments);
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.start(), start);
    harness.assert_holds_all(start.get());
    harness.checkpoint(b"table");
    assert_eq!(harness.segments(), segments[2..]);
    let mut harness = harness.reopen_and_run();
    harness.assert_holds_all(start.get());
}
