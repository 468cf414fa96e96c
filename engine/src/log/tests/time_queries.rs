//! Look-ups by time against a plain scan.

use std::vec::Vec;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions, Codec};

use super::harness::{Harness, batch_of, settings};
use super::random::Random;
use crate::disk::{DiskRequest, LogFile};
use crate::identity::Offset;
use crate::limits::{LOOK_UP_TURN_BYTES, SCAN_READ_BYTES};
use crate::log::index::SparseIndex;
use crate::log::{LogSettings, TimeQuery};

/// (offset, stamp) of every record from log start to the durable end.
fn plain_scan(harness: &Harness) -> Vec<(u64, i64)> {
    let (start, end) = (harness.log.start().get(), harness.log.durable_end().get());
    let mut records = Vec::new();
    for batch in harness.appended.values() {
        let header = corelog_batch::BatchHeader::parse(batch).unwrap();
        let body = corelog_batch::open(batch, 1 << 20).unwrap();
        for record in corelog_batch::record_refs(&header, &body) {
            let record = record.unwrap();
            let offset = record.offset(&header) as u64;
            if offset >= start && offset < end {
                records.push((offset, record.timestamp_ms(&header)));
            }
        }
    }
    records
}

fn assert_equal_to_scan(harness: &mut Harness, stamps: impl Iterator<Item = i64>) {
    let records = plain_scan(harness);
    for stamp in stamps {
        let wanted = records.iter().find(|(_, other)| *other >= stamp);
        let found = harness.find(TimeQuery::AtOrAfterMs(stamp)).unwrap();
        let found = found.map(|found| (found.offset.get(), found.timestamp_ms));
        assert_eq!(found, wanted.copied(), "stamp {stamp}");
    }
    let largest = records.iter().map(|(_, stamp)| *stamp).max().unwrap();
    let wanted = records.iter().find(|(_, stamp)| *stamp == largest);
    let found = harness.find(TimeQuery::Largest).unwrap().unwrap();
    assert_eq!((found.offset.get(), found.timestamp_ms), *wanted.unwrap());
}

#[test]
fn time_lookup_equals_plain_scan() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut harness = Harness::new(LogSettings {
            segment_bytes_max: 90_000,
            ..settings()
        });
        for round in 0..120 {
            let codec = Codec::ALL[random.below(5) as usize];
            let records = 1 + random.below(5);
            let stamps: Vec<i64> = (0..records)
                .map(|_| round * 10 + random.below(200) as i64)
                .collect();
            let value: Vec<u8> = (0..random.below(6_000))
                .map(|_| random.below(256) as u8)
                .collect();
            harness.append(&[batch_of(codec, &stamps, &value)]);
        }
        harness.run();
        assert_equal_to_scan(&mut harness, (-1..1_500).step_by(37));
        harness.stop(b"");
        let mut harness = harness.reopen_and_run();
        assert_equal_to_scan(&mut harness, (-1..1_500).step_by(53));
        // A query at a log start within a batch.
        let start = harness.log.end().get() / 3;
        harness.call(|log, _, queue| log.delete_before(Offset(start), queue));
        harness.run();
        assert_equal_to_scan(&mut harness, (-1..1_500).step_by(41));
    }
}

#[test]
fn a_maximum_in_the_middle_of_a_compressed_batch_is_found() {
    for codec in Codec::ALL {
        let mut harness = Harness::new(settings());
        harness.append(&[
            batch_of(codec, &[10, 11, 12], b"a"),
            batch_of(codec, &[13, 90, 20], b"b"),
            batch_of(codec, &[21, 22], b"c"),
        ]);
        harness.run();
        let found = harness.find(TimeQuery::AtOrAfterMs(50)).unwrap().unwrap();
        assert_eq!((found.offset, found.timestamp_ms), (Offset(4), 90));
        let found = harness.find(TimeQuery::AtOrAfterMs(0)).unwrap().unwrap();
        assert_eq!(found.offset, Offset(0));
        assert_eq!(harness.find(TimeQuery::AtOrAfterMs(91)).unwrap(), None);
        let found = harness.find(TimeQuery::Largest).unwrap().unwrap();
        assert_eq!(found.offset, Offset(4));
    }
}

#[test]
fn an_empty_log_has_no_records_to_find() {
    let mut harness = Harness::new(settings());
    assert_eq!(harness.find(TimeQuery::AtOrAfterMs(0)).unwrap(), None);
    assert_eq!(harness.find(TimeQuery::Largest).unwrap(), None);
}

/// A batch that opens to so many bytes, its last record stamped 90 and all before it 10.
fn bomb(codec: Codec, opened_bytes: usize) -> Bytes {
    let value = std::vec![7; 200 << 10];
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        batch_bytes_max: opened_bytes + (2 << 20),
        ..BatchOptions::default()
    });
    for _ in 0..opened_bytes / value.len() {
        builder.append(10, None, Some(&value), &[]).unwrap();
    }
    builder.append(90, None, Some(b"last"), &[]).unwrap();
    builder.build().unwrap().freeze()
}

fn turns(harness: &Harness) -> usize {
    let is_turn = |request: &&DiskRequest| matches!(request, DiskRequest::Turn { .. });
    harness.disk.requests.iter().filter(is_turn).count()
}

#[test]
fn a_batch_is_opened_in_turns() {
    let opened_bytes = 24 << 20;
    for codec in [Codec::Gzip, Codec::Zstd] {
        let mut harness = Harness::new(settings());
        harness.append(&[bomb(codec, opened_bytes), batch_of(codec, &[91], b"c")]);
        harness.run();
        assert!(harness.appended[&0].len() < 1 << 20);
        let found = harness.find(TimeQuery::AtOrAfterMs(50)).unwrap().unwrap();
        let last = (opened_bytes / (200 << 10)) as u64;
        assert_eq!((found.offset, found.timestamp_ms), (Offset(last), 90));
        let turns = turns(&harness);
        assert!(
            turns >= opened_bytes / (2 * LOOK_UP_TURN_BYTES),
            "{turns} turns"
        );
        assert_eq!(
            harness.find(TimeQuery::Largest).unwrap().unwrap().offset,
            Offset(last + 1)
        );
    }
}

#[test]
fn many_small_records_are_looked_at_in_turns() {
    let mut stamps = std::vec![10; 60_000];
    stamps.push(90);
    let mut harness = Harness::new(settings());
    harness.append(&[batch_of(Codec::None, &stamps, b"")]);
    harness.run();
    let found = harness.find(TimeQuery::AtOrAfterMs(50)).unwrap().unwrap();
    assert_eq!(found.offset, Offset(60_000));
    assert!(turns(&harness) >= 6, "{} turns", turns(&harness));
}

#[test]
fn a_stretch_is_read_in_pieces_however_long_the_index_says_it_is() {
    let mut harness = Harness::new(LogSettings {
        segment_bytes_max: 6 << 20,
        ..settings()
    });
    let value = std::vec![1; 100_000];
    for stamp in 0..100 {
        harness.append(&[batch_of(Codec::None, &[stamp], &value)]);
        harness.run();
    }
    harness.stop(b"");
    // One entry for the whole of the first segment, under a checksum that holds.
    let bytes = harness
        .disk
        .file(LogFile::Segment(Offset(0)))
        .unwrap()
        .bytes
        .len() as u64;
    let mut index = SparseIndex::new(Offset(0));
    index.note(Offset(0), 0, 1_000);
    let (offsets, times) = index.encode(bytes);
    harness.disk.file_mut(LogFile::OffsetIndex(Offset(0))).bytes = offsets.to_vec();
    harness.disk.file_mut(LogFile::TimeIndex(Offset(0))).bytes = times.to_vec();
    let mut harness = harness.reopen_and_run();
    assert_equal_to_scan(&mut harness, [0, 30, 55, 99].into_iter());
    let reads = harness
        .disk
        .requests
        .iter()
        .filter_map(|request| match request {
            DiskRequest::Read {
                file, length_bytes, ..
            } if matches!(file.file, LogFile::Segment(_)) => Some(*length_bytes),
            _ => None,
        });
    assert_eq!(reads.max(), Some(SCAN_READ_BYTES));
}
