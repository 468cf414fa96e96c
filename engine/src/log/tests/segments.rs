//! Rolling, closing, sealing; checkpoints.

use bytes::Bytes;

use super::harness::{Harness, batch, settings};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::Offset;
use crate::log::seal::Seal;
use crate::log::{LogPhase, LogProgress, LogSettings};

fn small_segments() -> LogSettings {
    LogSettings {
        segment_bytes_max: 30_000,
        ..settings()
    }
}

fn fill(harness: &mut Harness, batches: u8) {
    for fill in 0..batches {
        harness.append(&[batch(5_000 + usize::from(fill), fill)]);
        harness.run();
    }
}

fn assert_sealed(harness: &Harness) {
    let segments = harness.segments();
    for pair in segments.windows(2) {
        let [base, next] = [Offset(pair[0]), Offset(pair[1])];
        let file = &harness.disk.file(LogFile::Segment(base)).unwrap().bytes;
        let wanted: std::vec::Vec<u8> = harness
            .appended
            .range(base.get()..next.get())
            .flat_map(|(_, batch)| batch.to_vec())
            .collect();
        assert!(*file == wanted, "a closed segment is its batches alone");
        let seal = &harness.disk.file(LogFile::Seal(base)).unwrap().bytes;
        let seal = Seal::decode(seal).unwrap();
        assert_eq!((seal.base, seal.end), (base, next));
        assert_eq!(seal.length_bytes, file.len() as u64);
        assert_eq!(seal.crc, crc32c::crc32c(file));
    }
}

#[test]
fn a_closed_segment_is_a_plain_run_of_batches_with_a_true_seal() {
    let mut harness = Harness::new(small_segments());
    fill(&mut harness, 30);
    assert!(harness.segments().len() > 4);
    assert_sealed(&harness);
    harness.assert_holds_all(0);
}

#[test]
fn seals_are_true_after_a_crash_and_after_a_checkpoint() {
    let mut harness = Harness::new(small_segments());
    for round in 0..6 {
        fill(&mut harness, 7);
        if round % 2 == 0 {
            harness.checkpoint(b"table");
        }
        harness = harness.reopen_and_run();
    }
    fill(&mut harness, 7);
    assert_sealed(&harness);
    harness.assert_holds_all(0);
}

#[test]
fn a_segment_rolls_by_age() {
    let mut harness = Harness::new(LogSettings {
        segment_ms: 1_000,
        ..settings()
    });
    harness.append(&[batch(10, 1)]);
    harness.run();
    harness.now_ms += 999;
    harness.call(|log, now, queue| log.tick(now, queue));
    harness.run();
    assert_eq!(harness.segments(), [0]);
    harness.now_ms += 1;
    harness.call(|log, now, queue| log.tick(now, queue));
    harness.run();
    assert_eq!(harness.segments(), [0, 1]);
    // An empty one does not.
    harness.now_ms += 10_000;
    harness.call(|log, now, queue| log.tick(now, queue));
    harness.run();
    assert_eq!(harness.segments(), [0, 1]);
    harness.append(&[batch(10, 2)]);
    harness.run();
    harness.assert_holds_all(0);
}

#[test]
fn recovery_reads_only_above_the_checkpoint() {
    let mut harness = Harness::new(small_segments());
    fill(&mut harness, 20);
    assert!(harness.log.checkpoint_due());
    harness.checkpoint(b"first");
    assert!(!harness.log.checkpoint_due());
    assert!(
        harness
            .progress
            .contains(&LogProgress::Checkpointed(Offset(20)))
    );
    let last = harness.append(&[batch(50, 1)]);
    harness.run();
    let mut harness = harness.reopen_and_run();
    let recovered = harness.recovered();
    assert_eq!(recovered.scanned_bytes, last.batches[0].len() as u64);
    assert_eq!(recovered.snapshot_offset, Offset(20));
    assert_eq!(
        recovered.producers_snapshot,
        Some(Bytes::from_static(b"first"))
    );
    assert_eq!(harness.scanned.len(), 1);
    assert_eq!(harness.scanned[0].base_offset, 20);
    // The older snapshot goes when the next one stands.
    harness.checkpoint(b"second");
    let has = |harness: &Harness, offset| {
        let file = LogFile::Producers(Offset(offset));
        harness.disk.file(file).is_some()
    };
    assert!(!has(&harness, 20) && has(&harness, 21));
    // An empty table needs no file.
    harness.append(&[batch(50, 2)]);
    harness.checkpoint(b"");
    assert!(!has(&harness, 21) && !has(&harness, 22));
    let harness = harness.reopen_and_run();
    assert_eq!(harness.recovered().producers_snapshot, None);
    assert_eq!(harness.recovered().snapshot_offset, Offset(22));
}

#[test]
fn a_checkpoint_is_never_above_what_is_durable() {
    let mut harness = Harness::new(settings());
    fill(&mut harness, 1);
    harness.append(&[batch(100, 1)]);
    harness.call(|log, _, queue| log.checkpoint(Bytes::from_static(b"table"), queue));
    let writes_state = harness.disk.waiting.iter().any(|(_, request)| {
        matches!(request, DiskRequest::Write { file, .. } if file.file == LogFile::State)
    });
    assert!(!writes_state, "the batch is not durable yet");
    harness.run();
    assert!(
        harness
            .progress
            .contains(&LogProgress::Checkpointed(Offset(2)))
    );
}

#[test]
fn a_damaged_or_missing_snapshot_has_its_log_read_instead() {
    for remove in [false, true] {
        let mut harness = Harness::new(small_segments());
        fill(&mut harness, 12);
        harness.stop(b"table");
        assert!(harness.segments().len() > 2);
        let file = LogFile::Producers(Offset(12));
        if remove {
            harness.disk.files.as_mut().unwrap().remove(&file);
        } else {
            harness.disk.file_mut(file).bytes[30] ^= 1;
        }
        let mut harness = harness.reopen_and_run();
        let recovered = harness.recovered();
        assert!(recovered.clean);
        assert_eq!(recovered.producers_snapshot, None);
        assert_eq!(recovered.snapshot_lost.unwrap().file.file, file);
        assert_eq!(recovered.snapshot_offset, Offset(0));
        let scanned = harness.scanned.iter().map(|header| header.base_offset);
        assert!(scanned.eq(0..12));
        harness.assert_holds_all(0);
        // A crash at any time: it is read again, or there is a new one.
        assert!(harness.log.checkpoint_due());
        harness.call(|log, _, queue| log.checkpoint(Bytes::from_static(b"again"), queue));
        for _ in 0..20 {
            if harness.disk.waiting.is_empty() {
                break;
            }
            harness = harness.reopen_and_run();
            let recovered = harness.recovered();
            assert!(recovered.snapshot_lost.is_some() || recovered.producers_snapshot.is_some());
            harness.call(|log, _, queue| log.checkpoint(Bytes::from_static(b"again"), queue));
            harness.complete(0);
        }
        harness.run();
        let harness = harness.reopen_and_run();
        assert_eq!(
            harness.recovered().producers_snapshot,
            Some(Bytes::from_static(b"again"))
        );
        assert_eq!(harness.recovered().snapshot_offset, Offset(12));
    }
}

#[test]
fn a_producer_snapshot_of_a_newer_version_is_refused_by_name() {
    let mut harness = Harness::new(settings());
    fill(&mut harness, 2);
    harness.stop(b"table");
    let bytes = &mut harness.disk.file_mut(LogFile::Producers(Offset(2))).bytes;
    bytes[9] = 2;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[20..]);
    bytes[16..20].copy_from_slice(&crc.to_be_bytes());
    let harness = harness.reopen_and_run();
    assert!(harness.is_corrupt());
    assert!(alloc::format!("{}", harness.fault()).contains("version 2"));
}

#[test]
fn a_log_damaged_beside_its_lost_snapshot_is_corrupt() {
    let mut harness = Harness::new(small_segments());
    fill(&mut harness, 12);
    harness.stop(b"table");
    let second = harness.segments()[1];
    harness
        .disk
        .file_mut(LogFile::Segment(Offset(second)))
        .bytes[100] ^= 1;
    // By itself that stops nothing but reads of it.
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.phase(), LogPhase::Ready);
    harness.disk.file_mut(LogFile::Producers(Offset(12))).bytes[30] ^= 1;
    let harness = harness.reopen_and_run();
    assert!(harness.is_corrupt());
    let fault = alloc::format!("{}", harness.fault());
    assert!(
        fault.contains(".log") && fault.contains(".producers"),
        "{fault}"
    );
}

#[test]
fn no_room_for_small_files_keeps_the_old_checkpoint() {
    let mut harness = Harness::new(settings());
    fill(&mut harness, 2);
    harness.checkpoint(b"old");
    fill(&mut harness, 1);
    let is_replace = |request: &DiskRequest| matches!(request, DiskRequest::Replace { .. });
    harness.disk.fail_next = Some((is_replace, DiskError::Full));
    harness.checkpoint(b"new");
    assert_eq!(harness.log.phase(), LogPhase::Ready);
    let harness = harness.reopen_and_run();
    let recovered = harness.recovered();
    assert_eq!(recovered.snapshot_offset, Offset(2));
    assert_eq!(
        recovered.producers_snapshot,
        Some(Bytes::from_static(b"old"))
    );
    assert_eq!(recovered.end, Offset(3));
}

#[test]
fn a_full_disk_does_not_keep_a_log_from_stopping() {
    let mut harness = Harness::new(small_segments());
    let is_replace = |request: &DiskRequest| matches!(request, DiskRequest::Replace { .. });
    harness.disk.fail_next = Some((is_replace, DiskError::Full));
    fill(&mut harness, 8);
    harness.call(|log, _, queue| log.stop(Bytes::from_static(b"table"), queue));
    harness.run();
    assert_eq!(harness.log.phase(), LogPhase::Stopped);
    let mut harness = harness.reopen_and_run();
    assert!(!harness.recovered().clean);
    harness.assert_holds_all(0);
}

#[test]
fn a_removed_log_leaves_nothing() {
    let mut harness = Harness::new(settings());
    fill(&mut harness, 2);
    harness.append(&[batch(100, 1)]);
    harness.call(|log, _, queue| log.remove(queue));
    harness.run();
    assert!(harness.progress.contains(&LogProgress::Removed));
    assert!(harness.disk.files.is_none());
}

#[test]
fn a_checkpoint_never_names_a_segment_that_is_not_there_yet() {
    let mut harness = Harness::new(LogSettings {
        segment_ms: 1_000,
        ..settings()
    });
    harness.append(&[batch(10, 1)]);
    harness.run();
    harness.now_ms += 1_000;
    harness.call(|log, now, queue| log.tick(now, queue));
    harness.call(|log, _, queue| log.checkpoint(Bytes::from_static(b"table"), queue));
    let is_create = |request: &DiskRequest| matches!(request, DiskRequest::Create { .. });
    // Everything but the new segment lands.
    while let Some(at) = harness
        .disk
        .waiting
        .iter()
        .position(|(_, request)| !is_create(request))
    {
        harness.complete(at);
    }
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.phase(), LogPhase::Ready);
    harness.assert_holds_all(0);
}

#[test]
fn an_idle_log_is_small() {
    // Ten thousand of them must not be felt.
    assert!(core::mem::size_of::<crate::log::Log>() <= 1_024);
}
