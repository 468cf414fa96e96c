//! Reads, with indexes that are there, missing, damaged or lying.

use std::vec::Vec;

use bytes::Bytes;
use corelog_batch::Codec;

use super::harness::{Harness, batch, batch_of, settings};
use crate::disk::LogFile;
use crate::identity::Offset;
use crate::log::index::SparseIndex;
use crate::log::{LogSettings, Started};

fn filled(segment_bytes_max: u64) -> Harness {
    let mut harness = Harness::new(LogSettings {
        segment_bytes_max,
        ..settings()
    });
    for round in 0..200_u32 {
        let stamps: Vec<i64> = (0..1 + i64::from(round % 4)).collect();
        let value = std::vec![round as u8; 100 + (round as usize * 97) % 4_000];
        harness.append(&[batch_of(Codec::None, &stamps, &value)]);
        harness.run();
    }
    harness
}

#[test]
fn offset_in_the_middle_of_a_batch_serves_the_batch() {
    let mut harness = filled(60_000);
    for offset in 0..harness.log.end().get() {
        let pieces = harness.read(offset, 1).unwrap();
        let (base, wanted) = harness.appended.range(..=offset).next_back().unwrap();
        assert_eq!(
            pieces,
            std::slice::from_ref(wanted),
            "offset {offset}, batch {base}"
        );
    }
}

#[test]
fn reads_give_whole_batches_within_their_limits() {
    let mut harness = filled(60_000);
    let end = harness.log.end();
    assert_eq!(harness.read(end.get(), 1_000).unwrap(), Vec::<Bytes>::new());
    for (offset, bytes_max, up_to) in [(0, 5_000, 40), (3, 20_000, 37), (100, 1, 103)] {
        let started =
            harness.call(|log, _, queue| log.read(Offset(offset), bytes_max, Offset(up_to), queue));
        let bytes = harness.result_of(started).unwrap().concat();
        let mut total = 0;
        for one in corelog_batch::batches(bytes.into()) {
            let (header, batch) = one.unwrap();
            assert!(header.next_offset() as u64 <= up_to);
            assert!(total == 0 || total + batch.len() <= bytes_max);
            total += batch.len();
        }
        assert!(total > 0 || up_to == 103);
    }
}

#[test]
fn a_first_batch_larger_than_the_limit_still_comes() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(10, 1), batch(3 << 20, 2), batch(10, 3)]);
    harness.run();
    assert_eq!(
        harness.read(1, 100).unwrap()[0].len(),
        harness.appended[&1].len()
    );
}

#[test]
fn everything_is_read_after_a_restart_with_and_without_a_checkpoint() {
    for checkpoint in [false, true] {
        let mut harness = filled(150_000);
        if checkpoint {
            harness.checkpoint(b"table");
        }
        let mut harness = harness.reopen_and_run();
        harness.assert_holds_all(0);
        for offset in (0..harness.log.end().get()).rev() {
            assert_eq!(harness.read(offset, 1).unwrap().len(), 1);
        }
    }
}

#[test]
fn a_large_segment_below_the_checkpoint_is_found_by_its_index_file() {
    let mut harness = Harness::new(settings());
    for round in 0..40 {
        harness.append(&[batch(100_000, round)]);
        harness.run();
    }
    harness.stop(b"");
    let index = LogFile::OffsetIndex(Offset(0));
    assert!(harness.disk.file(index).is_some());
    let mut harness = harness.reopen_and_run();
    let before = harness.disk.requests.len();
    assert_eq!(
        harness.read(20, 1).unwrap(),
        [harness.appended[&20].clone()]
    );
    assert!(harness.disk.requests.len() - before <= 4);
    harness.append(&[batch(100_000, 99)]);
    harness.run();
    harness.assert_holds_all(0);
    // Without it the segment is scanned.
    harness.stop(b"");
    harness.disk.files.as_mut().unwrap().remove(&index);
    let mut harness = harness.reopen_and_run();
    assert_eq!(
        harness.read(20, 1).unwrap(),
        [harness.appended[&20].clone()]
    );
    harness.assert_holds_all(0);
}

#[test]
fn indexes_prove_nothing() {
    let lies: [fn(&mut Harness, Offset); 4] = [
        |harness, base| harness.disk.file_mut(LogFile::OffsetIndex(base)).bytes[30] ^= 1,
        |harness, base| {
            harness
                .disk
                .file_mut(LogFile::TimeIndex(base))
                .bytes
                .clear()
        },
        |harness, base| {
            let files = harness.disk.files.as_mut().unwrap();
            files.remove(&LogFile::OffsetIndex(base));
        },
        |harness, base| {
            // Whole, and wrong.
            let mut index = SparseIndex::new(base);
            index.note(base, 0, 0);
            for entry in 1..6 {
                index.note(base.plus(entry * 7), entry * 17_001, 0);
            }
            let (offsets, times) = index.encode(1 << 30);
            harness.disk.file_mut(LogFile::OffsetIndex(base)).bytes = offsets.to_vec();
            harness.disk.file_mut(LogFile::TimeIndex(base)).bytes = times.to_vec();
        },
    ];
    for lie in lies {
        let mut harness = filled(100_000);
        harness.stop(b"");
        let segments = harness.segments();
        assert!(segments.len() > 3);
        for base in &segments[..segments.len() - 1] {
            lie(&mut harness, Offset(*base));
        }
        let mut harness = harness.reopen_and_run();
        for offset in (0..harness.log.end().get()).step_by(3) {
            let (_, wanted) = harness.appended.range(..=offset).next_back().unwrap();
            let wanted = wanted.clone();
            assert_eq!(harness.read(offset, 1).unwrap(), [wanted]);
        }
        harness.assert_holds_all(0);
    }
}

#[test]
fn many_reads_at_once_are_each_answered_once() {
    let mut harness = filled(60_000);
    let end = harness.log.end();
    let mut pending = Vec::new();
    for offset in (0..end.get()).step_by(5) {
        let started = harness.call(|log, _, queue| log.read(Offset(offset), 1, end, queue));
        match started {
            Started::Pending(id) => pending.push((offset, id)),
            Started::Ready(_) => panic!("not in memory"),
        }
    }
    harness.run();
    for (offset, id) in pending {
        let (_, wanted) = harness.appended.range(..=offset).next_back().unwrap();
        let pieces = harness.read_result(id).unwrap().unwrap();
        assert_eq!(pieces, std::slice::from_ref(wanted));
    }
}
