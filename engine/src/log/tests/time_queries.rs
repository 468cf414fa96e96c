//! Look-ups by time against a plain scan.

use std::vec::Vec;

use corelog_batch::Codec;

use super::harness::{Harness, batch_of, settings};
use super::random::Random;
use crate::identity::Offset;
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
