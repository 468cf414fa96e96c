//! Which writes are in flight when.

use std::vec::Vec;

use super::harness::{Harness, batch, settings};
use crate::disk::{DiskRequest, LogFile, Space};
use crate::identity::Offset;
use crate::log::LogSettings;
use crate::publish::VerifiedBatches;

fn data_writes(harness: &Harness) -> Vec<(u64, usize)> {
    harness
        .disk
        .waiting
        .iter()
        .filter_map(|(_, request)| match request {
            DiskRequest::Write { file, position, .. }
                if matches!(file.file, LogFile::Segment(_)) =>
            {
                Some((position.get(), request.write_bytes()))
            }
            _ => None,
        })
        .collect()
}

fn begun(settings: LogSettings) -> Harness {
    let mut harness = Harness::new(settings);
    harness.append(&[batch(10, 0)]);
    harness.run();
    harness
}

#[test]
fn small_batches_gather_behind_the_write_in_flight() {
    let mut harness = begun(settings());
    for fill in 0..20 {
        harness.append(&[batch(100, fill)]);
    }
    assert_eq!(data_writes(&harness).len(), 1);
    assert_eq!(harness.log.staged_bytes(), 20 * batch(100, 0).len() as u64);
    harness.complete(0);
    assert_eq!(harness.durable, Offset(2));
    assert_eq!(data_writes(&harness).len(), 1);
    harness.run();
    assert_eq!(harness.durable, Offset(21));
    assert_eq!(harness.log.staged_bytes(), 0);
    harness.assert_holds_all(0);
}

#[test]
fn large_batches_are_written_side_by_side() {
    let mut harness = begun(settings());
    for fill in 0..6 {
        harness.append(&[batch(1 << 20, fill)]);
    }
    let writes = data_writes(&harness);
    assert_eq!(writes.len(), 4);
    assert!(writes.iter().all(|(_, bytes)| *bytes > 1_000_000));
    // The last of them to land moves nothing before the others have.
    harness.complete_where(|request| request.write_bytes() > 0);
    let is_write = |(_, request): &(_, DiskRequest)| request.write_bytes() > 0;
    let at = harness.disk.waiting.iter().rposition(is_write).unwrap();
    harness.complete(at);
    assert_eq!(harness.durable, Offset(2));
    harness.run();
    assert_eq!(harness.durable, Offset(7));
    harness.assert_holds_all(0);
}

#[test]
fn a_write_is_bounded() {
    let mut harness = begun(LogSettings {
        write_bytes_max: 1 << 20,
        ..settings()
    });
    for fill in 0..12 {
        harness.append(&[batch(700_000, fill)]);
    }
    for _ in 0..1_000 {
        assert!(
            data_writes(&harness)
                .iter()
                .all(|(_, bytes)| *bytes <= 1 << 20)
        );
        assert!(data_writes(&harness).len() <= 4);
        if harness.disk.waiting.is_empty() {
            break;
        }
        harness.complete(0);
    }
    assert_eq!(harness.durable, Offset(13));
    harness.assert_holds_all(0);
}

#[test]
fn batches_of_one_publish_follow_each_other() {
    let mut harness = begun(settings());
    let batches = [batch(50, 1), batch(60, 2), batch(70, 3)];
    let whole = batches.concat();
    // The inspection makes one publish of many batches.
    let rules = crate::publish::PublishRules {
        batch_bytes_max: 1 << 20,
        inline_bytes_max: 1 << 20,
        batches_max: 10,
        wall: crate::time::Wall(1_000_000),
    };
    let mut inspection = crate::publish::Inspection::new(whole.into(), rules);
    let crate::publish::Progress::Done(verified) = inspection.turn(1 << 20).unwrap() else {
        panic!("not inspected");
    };
    let appended = harness.append_verified(verified);
    assert_eq!(
        (appended.first_offset, appended.end_offset),
        (Offset(1), Offset(4))
    );
    harness.run();
    harness.assert_holds_all(0);
}

#[test]
fn a_uniquely_owned_buffer_is_stamped_in_place() {
    let mut harness = begun(settings());
    let unique = bytes::BytesMut::from(&batch(5_000, 1)[..]).freeze();
    let place = unique.as_ptr();
    let appended = harness.append_verified(VerifiedBatches::own(unique));
    assert_eq!(appended.batches[0].as_ptr(), place);
    let shared = batch(5_000, 2);
    let other = shared.clone();
    let appended = harness.append_verified(VerifiedBatches::own(shared));
    assert_ne!(appended.batches[0].as_ptr(), other.as_ptr());
    assert_eq!(&other[..8], &[0; 8]);
}

#[test]
fn a_log_at_rest_forgets_its_last_block_and_reads_it_again() {
    let mut harness = begun(settings());
    for fill in 0..5 {
        harness.call(|log, now, queue| log.tick(now, queue));
        harness.call(|log, now, queue| log.tick(now, queue));
        harness.append(&[batch(1_000, fill)]);
        let (_, first) = &harness.disk.waiting[0];
        assert!(matches!(first, DiskRequest::Read { .. }), "{first:?}");
        harness.run();
    }
    harness.assert_holds_all(0);
    let mut harness = harness.reopen_and_run();
    harness.assert_holds_all(0);
}

#[test]
fn append_time_never_falls() {
    let mut harness = begun(settings());
    let first = harness.append(&[batch(10, 1)]).append_time_ms;
    harness.now_ms -= 500_000;
    let second = harness.append(&[batch(10, 1)]).append_time_ms;
    assert_eq!(first, second);
    harness.run();
    harness.stop(b"");
    let harness = harness.reopen_and_run();
    assert_eq!(harness.log.last_append_ms(), first);
}

#[test]
fn what_is_staged_can_be_read_from_memory() {
    let mut harness = begun(settings());
    harness.append(&[batch(100, 1), batch(100, 2), batch(100, 3)]);
    let started = harness.call(|log, _, queue| log.read(Offset(2), 1 << 20, Offset(4), queue));
    let crate::log::Started::Ready(pieces) = started else {
        panic!("staged batches are in memory");
    };
    assert_eq!(
        pieces,
        [harness.appended[&2].clone(), harness.appended[&3].clone()]
    );
}

/// Batches that end within a block leave a write of one block between large ones. It once had the log
/// write as many zeros ahead as it held data.
#[test]
fn no_zeros_are_written_ahead_of_large_batches() {
    let mut harness = begun(settings());
    for fill in 0..60 {
        harness.append(&[batch(1_000_000, fill)]);
        if fill % 4 == 3 {
            harness.run();
        }
    }
    harness.run();
    let stretch = |wanted: Space| {
        let requests = harness.disk.requests.iter();
        let stretches = requests.filter_map(move |request| match request {
            DiskRequest::Extend {
                from, to, space, ..
            } if *space == wanted => Some(to.get() - from.get()),
            _ => None,
        });
        stretches.sum::<u64>()
    };
    assert!(stretch(Space::Written) <= 64 << 10);
    assert!(stretch(Space::Reserved) >= 16 << 20);
    harness.assert_holds_all(0);
}
