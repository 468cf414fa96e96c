//! Cuts, with crashes at each step.

use std::vec::Vec;

use corelog_batch::Codec;

use super::harness::{Harness, batch, batch_of, settings};
use super::random::Random;
use crate::identity::{LeaderEpoch, Offset};
use crate::log::{LogPhase, LogProgress, LogSettings};

fn filled(random: &mut Random) -> Harness {
    let mut harness = Harness::new(LogSettings {
        segment_bytes_max: 20_000,
        ..settings()
    });
    for round in 0..25 {
        if round % 8 == 0 {
            harness.begin_epoch(1 + round as u32);
        }
        let stamps: Vec<i64> = (0..1 + random.below(3) as i64).collect();
        let value = std::vec![round as u8; random.below(3_000) as usize];
        harness.append(&[batch_of(Codec::None, &stamps, &value)]);
        if random.one_in(2) {
            harness.run();
        }
        if random.one_in(10) {
            harness.checkpoint(b"table");
        }
    }
    harness
}

/// The batch boundary at or below `offset`.
fn boundary(harness: &Harness, offset: u64) -> u64 {
    *harness.appended.range(..=offset).next_back().unwrap().0
}

#[test]
fn a_cut_removes_the_tail_for_good() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut harness = filled(&mut random);
        let to = random.below(harness.log.end().get());
        let wanted = boundary(&harness, to);
        harness.call(|log, _, queue| log.cut(Offset(to), queue));
        harness.run();
        harness.durable = Offset(0);
        assert!(harness.progress.contains(&LogProgress::Cut(Offset(wanted))));
        assert_eq!(harness.log.end(), Offset(wanted), "seed {seed}");
        assert_eq!(harness.log.durable_end(), Offset(wanted));
        harness.appended.split_off(&wanted);
        harness.assert_holds_all(0);
        harness.begin_epoch(100);
        harness.append(&[batch(2_000, 7), batch(10, 8)]);
        harness.run();
        harness.assert_holds_all(0);
        harness.checkpoint(b"table");
        let mut harness = harness.reopen_and_run();
        assert_eq!(harness.log.phase(), LogPhase::Ready);
        assert_eq!(harness.log.end(), Offset(wanted + 2), "seed {seed}");
        harness.assert_holds_all(0);
    }
}

#[test]
fn a_crash_within_a_cut_leaves_one_end_or_the_other() {
    for seed in 0..200 {
        let mut random = Random::new(1_000 + seed);
        let mut harness = filled(&mut random);
        harness.run();
        let end = harness.log.end().get();
        let to = boundary(&harness, random.below(end));
        harness.call(|log, _, queue| log.cut(Offset(to), queue));
        harness.durable = Offset(0);
        for _ in 0..random.below(14) {
            if !harness.disk.waiting.is_empty() {
                let at = random.below(harness.disk.waiting.len() as u64) as usize;
                harness.complete(at);
            }
        }
        let is_told = harness.progress.contains(&LogProgress::Cut(Offset(to)));
        harness.disk.crash(&mut random);
        let mut harness = harness.reopen();
        if random.one_in(2) {
            for _ in 0..random.below(8) {
                if !harness.disk.waiting.is_empty() {
                    harness.complete(0);
                }
            }
            harness.disk.crash(&mut random);
            harness = harness.reopen();
        }
        harness.run();
        assert_eq!(
            harness.log.phase(),
            LogPhase::Ready,
            "seed {seed}: {:?}",
            harness.progress
        );
        let found = harness.log.end().get();
        assert!(found == to || (found == end && !is_told), "seed {seed}");
        harness.appended.split_off(&found);
        harness.assert_holds_all(0);
        harness.begin_epoch(100);
        harness.append(&[batch(3_000, 1)]);
        harness.run();
        let mut harness = harness.reopen_and_run();
        assert_eq!(harness.log.end().get(), found + 1, "seed {seed}");
        harness.assert_holds_all(0);
    }
}

#[test]
fn a_cut_takes_history_and_checkpoint_with_it() {
    let mut harness = Harness::new(settings());
    for epoch in [2, 4, 6] {
        harness.begin_epoch(epoch);
        harness.append(&[batch(100, 1), batch(100, 2)]);
        harness.run();
    }
    harness.checkpoint(b"table");
    harness.call(|log, _, queue| log.cut(Offset(3), queue));
    harness.durable = Offset(3);
    harness.run();
    assert_eq!(harness.log.epoch(), Some(LeaderEpoch(4)));
    assert_eq!(harness.log.promised(), LeaderEpoch(6));
    let harness = harness.reopen_and_run();
    let recovered = harness.recovered();
    assert_eq!(recovered.end, Offset(3));
    assert_eq!(recovered.epoch, Some(LeaderEpoch(4)));
    assert_eq!(recovered.producers_snapshot, None);
    assert_eq!(recovered.snapshot_offset, Offset(0));
    assert_eq!(harness.scanned.len(), 3);
}

#[test]
fn a_cut_at_or_past_the_end_changes_nothing() {
    let mut harness = Harness::new(settings());
    harness.append(&[batch(100, 1)]);
    harness.run();
    let before = harness.disk.requests.len();
    harness.call(|log, _, queue| log.cut(Offset(1), queue));
    assert!(harness.progress.contains(&LogProgress::Cut(Offset(1))));
    assert_eq!(harness.disk.requests.len(), before);
}
