//! Crashes at any moment, over many seeds.

use std::vec::Vec;

use bytes::Bytes;
use corelog_batch::Codec;

use super::harness::{Harness, batch, batch_of, settings};
use super::random::Random;
use crate::log::{LogPhase, LogSettings};

fn random_settings(random: &mut Random) -> LogSettings {
    LogSettings {
        segment_bytes_max: [20_000, 100_000, 1 << 20][random.below(3) as usize],
        writes_in_flight_max: 1 + random.below(4) as usize,
        write_bytes_max: [4_096, 16_384, 1 << 20][random.below(3) as usize],
        parallel_bytes_min: [1, 10_000, 1 << 20][random.below(3) as usize],
        extend_below_bytes: [0, 10_000, usize::MAX][random.below(3) as usize],
        extend_bytes: (4_096, 65_536),
        reserve_bytes: (4_096, 131_072),
        ..settings()
    }
}

/// Batches of one size in half of the seeds: then a stale batch stands just where the next one would
/// begin.
fn random_batch(random: &mut Random, value_bytes: Option<usize>) -> Bytes {
    if let Some(value_bytes) = value_bytes {
        return batch(value_bytes, random.below(256) as u8);
    }
    let records = 1 + random.below(3) as usize;
    let value_bytes = match random.below(10) {
        0 => 40_000,
        1..4 => 3_000,
        _ => 100,
    };
    let fill = random.below(256) as u8;
    let value: Vec<u8> = (0..1 + random.below(value_bytes))
        .map(|at| fill.wrapping_add(at as u8))
        .collect();
    let stamps: Vec<i64> = (0..records).map(|_| random.below(10_000) as i64).collect();
    batch_of(Codec::None, &stamps, &value)
}

/// One life of a log: appends, checkpoints and completions in random order.
fn live(harness: &mut Harness, random: &mut Random, value_bytes: Option<usize>) {
    let epoch = harness.log.epoch().map_or(1, |epoch| epoch.get() + 1);
    if random.one_in(2) || epoch == 1 {
        harness.begin_epoch(epoch);
    }
    for _ in 0..random.below(120) {
        harness.now_ms += random.below(50);
        match random.below(12) {
            0..4 if harness.log.phase() == LogPhase::Ready => {
                let batches: Vec<Bytes> = (0..1 + random.below(3))
                    .map(|_| random_batch(random, value_bytes))
                    .collect();
                harness.append(&batches);
            }
            4 if random.one_in(3) => {
                harness.call(|log, _, queue| log.checkpoint(Bytes::from_static(b"table"), queue));
            }
            5 if random.one_in(4) => {
                harness.call(|log, now, queue| log.tick(now, queue));
            }
            _ if !harness.disk.waiting.is_empty() => {
                let at = random.below(harness.disk.waiting.len() as u64) as usize;
                harness.complete(at);
            }
            _ => {}
        }
        assert_eq!(
            harness.log.phase(),
            LogPhase::Ready,
            "{:?}",
            harness.progress
        );
    }
}

/// Everything reported durable is there, and what recovery found beyond it is what was appended.
fn check(harness: &mut Harness, seed: u64) {
    assert_eq!(
        harness.log.phase(),
        LogPhase::Ready,
        "seed {seed}: {:?}",
        harness.progress
    );
    let end = harness.log.end();
    assert!(
        end >= harness.durable,
        "seed {seed}: acknowledged batches are gone"
    );
    assert_eq!(end, harness.log.durable_end());
    harness.appended.split_off(&end.get());
    harness.durable = end;
    let start = harness.log.start().get();
    harness.assert_holds_all(start);
}

#[test]
fn acknowledged_batches_survive_crashes_at_any_moment() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut harness = Harness::new(random_settings(&mut random));
        let value_bytes =
            [None, None, Some(30), Some(300), Some(5_000), Some(30_000)][random.below(6) as usize];
        for _ in 0..6 {
            live(&mut harness, &mut random, value_bytes);
            if random.one_in(4) {
                harness.stop(b"table");
            }
            harness.disk.crash(&mut random);
            harness = harness.reopen();
            // A crash during recovery, too.
            while random.one_in(3) {
                for _ in 0..random.below(10) {
                    if !harness.disk.waiting.is_empty() {
                        let at = random.below(harness.disk.waiting.len() as u64) as usize;
                        harness.complete(at);
                    }
                }
                harness.disk.crash(&mut random);
                harness = harness.reopen();
            }
            harness.run();
            check(&mut harness, seed);
        }
    }
}
