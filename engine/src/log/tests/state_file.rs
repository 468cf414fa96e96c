//! The state file: clean marks, promises, slots.

use bytes::Bytes;

use super::harness::{Harness, batch, settings};
use crate::disk::{DiskRequest, LogFile};
use crate::identity::{LeaderEpoch, Offset};
use crate::log::state::{DurableState, SLOT_BYTES};
use crate::log::{LogFault, LogPhase, LogProgress};

fn is_state_write(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Write { file, .. } if file.file == LogFile::State)
}

fn stopped_cleanly() -> Harness {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(5_000, 1), batch(100, 2)]);
    harness.run();
    harness.stop(b"table");
    harness.reopen_and_run()
}

#[test]
fn a_clean_log_is_not_scanned() {
    let mut harness = stopped_cleanly();
    let recovered = harness.recovered();
    assert!(recovered.clean);
    assert_eq!((recovered.end, recovered.scanned_bytes), (Offset(2), 0));
    assert_eq!(
        recovered.producers_snapshot,
        Some(Bytes::from_static(b"table"))
    );
    assert_eq!(recovered.snapshot_offset, Offset(2));
    assert!(harness.scanned.is_empty());
    harness.assert_holds_all(0);
    // And nothing has to be written to stop again.
    let before = harness.disk.requests.len();
    harness.call(|log, _, queue| log.stop(Bytes::new(), queue));
    assert_eq!(harness.log.phase(), LogPhase::Stopped);
    assert_eq!(harness.disk.requests.len(), before);
}

#[test]
fn clean_mark_is_removed_before_the_first_change() {
    let mut harness = stopped_cleanly();
    harness.append(&[batch(100, 3)]);
    assert_eq!(harness.disk.waiting.len(), 1);
    assert!(is_state_write(&harness.disk.waiting[0].1));
    harness.complete(0);
    assert!(harness.disk.waiting.len() > 1 || !is_state_write(&harness.disk.waiting[0].1));
    harness.run();
    // Whatever happens now, the log is scanned.
    let mut harness = harness.reopen_and_run();
    assert!(!harness.recovered().clean);
    assert_eq!(harness.log.end(), Offset(3));
    harness.assert_holds_all(0);
}

#[test]
fn recovery_is_not_skipped_after_a_cut_of_a_clean_log() {
    let mut harness = stopped_cleanly();
    harness.call(|log, _, queue| log.cut(Offset(1), queue));
    harness.run();
    harness.durable = Offset(1);
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.end(), Offset(1));
    assert!(!harness.recovered().clean);
    harness.appended.split_off(&1);
    harness.append(&[batch(77, 9)]);
    harness.run();
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.end(), Offset(2));
    harness.assert_holds_all(0);
}

#[test]
fn epoch_is_durable_before_its_first_batch() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    harness.run();
    harness.begin_epoch(5);
    harness.append(&[batch(100, 2)]);
    assert_eq!(harness.disk.waiting.len(), 1);
    assert!(is_state_write(&harness.disk.waiting[0].1));
    harness.complete(0);
    assert!(
        harness
            .progress
            .contains(&LogProgress::Promised(LeaderEpoch(5)))
    );
    harness.run();
    let harness = harness.reopen_and_run();
    let recovered = harness.recovered();
    assert_eq!(recovered.epoch, Some(LeaderEpoch(5)));
    assert_eq!(recovered.promised, LeaderEpoch(5));
    assert_eq!(
        harness.log.end_of_epoch(LeaderEpoch(4)),
        Some((LeaderEpoch(1), Offset(1)))
    );
    assert_eq!(harness.log.epoch_of(Offset(0)), Some(LeaderEpoch(1)));
    assert_eq!(harness.log.last_record_epoch(), Some(LeaderEpoch(5)));
}

#[test]
fn a_promise_survives_without_any_append() {
    let mut harness = Harness::new(settings());
    harness.call(|log, _, queue| log.promise(LeaderEpoch(8), queue));
    harness.run();
    assert!(
        harness
            .progress
            .contains(&LogProgress::Promised(LeaderEpoch(8)))
    );
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.promised(), LeaderEpoch(8));
    // A lower one changes nothing and is answered with the higher.
    harness.call(|log, _, queue| log.promise(LeaderEpoch(2), queue));
    assert_eq!(harness.log.promised(), LeaderEpoch(8));
    harness.begin_epoch(9);
    harness.append(&[batch(10, 1)]);
    harness.run();
    assert_eq!(harness.durable, Offset(1));
}

#[test]
fn unreadable_state_is_not_empty() {
    let whole = || {
        let mut harness = Harness::new(settings());
        harness.append(&[batch(100, 1)]);
        harness.run();
        harness
    };
    let mut damages: [fn(&mut Harness); 4] = [
        |harness| harness.disk.file_mut(LogFile::State).bytes.fill(0),
        |harness| harness.disk.file_mut(LogFile::State).bytes.clear(),
        |harness| {
            for slot in [0, SLOT_BYTES] {
                if let Some(byte) = harness
                    .disk
                    .file_mut(LogFile::State)
                    .bytes
                    .get_mut(slot + 60)
                {
                    *byte ^= 4;
                }
            }
        },
        |harness| {
            harness.disk.files.as_mut().unwrap().remove(&LogFile::State);
        },
    ];
    for damage in &mut damages {
        for begun in [true, false] {
            let mut harness = whole();
            damage(&mut harness);
            harness.begun = begun;
            let before = harness.disk.files.as_ref().unwrap().len();
            let harness = harness.reopen_and_run();
            assert!(harness.is_corrupt());
            assert_eq!(harness.disk.files.as_ref().unwrap().len(), before);
        }
    }
    let mut harness = whole();
    harness.disk.files = None;
    assert!(harness.reopen_and_run().is_corrupt());
}

#[test]
fn a_disk_that_cannot_be_read_is_not_empty() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    harness.run();
    let mut harness = harness.reopen();
    harness.disk.fail_next = Some((|_| true, crate::disk::DiskError::Failed("EIO".into())));
    harness.run();
    assert_eq!(harness.log.phase(), LogPhase::Corrupt);
}

#[test]
fn one_slot_may_rot_at_rest() {
    for slot in [0, 1] {
        let mut harness = Harness::new(settings());
        harness.append(&[batch(100, 1)]);
        harness.run();
        harness.begin_epoch(7);
        harness.run();
        harness.disk.file_mut(LogFile::State).bytes[slot * SLOT_BYTES + 70] ^= 1;
        let mut harness = harness.reopen_and_run();
        assert_eq!(harness.log.promised(), LeaderEpoch(7));
        assert_eq!(harness.log.end(), Offset(1));
        harness.assert_holds_all(0);
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    harness.run();
    let slot = &mut harness.disk.file_mut(LogFile::State).bytes;
    slot[9] = 2;
    let length = u32::from_be_bytes(slot[12..16].try_into().unwrap()) as usize;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&slot[..16]), &slot[20..20 + length]);
    slot[16..20].copy_from_slice(&crc.to_be_bytes());
    let harness = harness.reopen_and_run();
    let LogFault::Corruption(corruption) = harness.fault() else {
        panic!("not refused");
    };
    assert!(corruption.what.contains("version 2"), "{}", corruption.what);
}

/// A log of one batch, opened with another state than it left.
fn reopened_with(stop: bool, change: impl Fn(&mut DurableState)) -> Harness {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    harness.run();
    if stop {
        harness.stop(b"");
    }
    let file = &mut harness.disk.file_mut(LogFile::State).bytes;
    for slot in file.chunks_mut(SLOT_BYTES) {
        if let Ok((sequence, mut state)) = DurableState::decode(slot) {
            change(&mut state);
            let bytes = state.encode(sequence);
            slot[..bytes.len()].copy_from_slice(&bytes);
        }
    }
    harness.reopen_and_run()
}

#[test]
fn a_start_that_the_batches_do_not_reach_is_corrupt() {
    for stop in [false, true] {
        let harness = reopened_with(stop, |state| state.start = Offset(1_000));
        assert!(harness.is_corrupt());
    }
}

#[test]
fn an_epoch_of_which_a_crash_left_no_record_is_forgotten_and_its_promise_kept() {
    for stop in [false, true] {
        let mut harness = reopened_with(stop, |state| {
            state.promised = LeaderEpoch(9);
            state.begin_epoch(LeaderEpoch(9), Offset(1_000));
        });
        assert_eq!(harness.log.promised(), LeaderEpoch(9));
        assert!(harness.log.epoch() < Some(LeaderEpoch(9)));
        harness.begin_epoch(10);
        harness.append(&[batch(100, 2)]);
        harness.run();
        let mut harness = harness.reopen_and_run();
        assert_eq!(harness.log.end(), Offset(2));
        assert_eq!(harness.log.epoch(), Some(LeaderEpoch(10)));
        harness.assert_holds_all(0);
    }
}

#[test]
fn another_logs_state_is_refused() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    harness.run();
    for at in [20 + 8, 20 + 8 + 16 + 4] {
        // Topic id, then log id.
        let mut disk = crate::log::tests::disk::Disk {
            files: harness.disk.files.clone(),
            ..Default::default()
        };
        for slot in [0, SLOT_BYTES] {
            let bytes = &mut disk.file_mut(LogFile::State).bytes;
            let Some(bytes) = bytes.get_mut(slot..) else {
                continue;
            };
            bytes[at] ^= 0xff;
            let length = u32::from_be_bytes(bytes[12..16].try_into().unwrap()) as usize;
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[20..20 + length]);
            bytes[16..20].copy_from_slice(&crc.to_be_bytes());
        }
        let mut other = Harness::opening(disk, settings(), true);
        other.run();
        assert!(other.is_corrupt());
    }
}

#[test]
fn history_is_bounded_and_keeps_the_newest() {
    let mut harness = Harness::new(settings());
    for epoch in 1..1_200 {
        harness.begin_epoch(epoch);
        if epoch % 100 == 0 {
            harness.append(&[batch(10, 1)]);
            harness.run();
        }
    }
    harness.run();
    let mut harness = harness.reopen_and_run();
    assert_eq!(harness.log.epoch(), Some(LeaderEpoch(1_199)));
    assert_eq!(harness.log.end_of_epoch(LeaderEpoch(5)), None);
    harness.assert_holds_all(0);
}
