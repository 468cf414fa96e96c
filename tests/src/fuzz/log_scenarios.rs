//! Logs as they lie on disk after different lives, to be damaged.

use std::sync::OnceLock;

use bytes::Bytes;
use corelog_batch::Codec;
use corelog_engine::identity::{LeaderEpoch, Offset};
use corelog_engine::log::LogPhase;
use corelog_engine::publish::VerifiedBatches;

use super::batches::batch;
use super::log_disk::{Files, LogOnDisk};
use super::metadata::producers_snapshot;

/// The files of each life. All but the first belong to a log that has begun.
pub(super) fn scenarios() -> &'static [Files] {
    static SCENARIOS: OnceLock<Vec<Files>> = OnceLock::new();
    SCENARIOS.get_or_init(|| {
        vec![
            None,
            killed_early(),
            stopped(),
            killed_after_a_checkpoint(),
            start_moved(),
            killed_while_cutting(),
        ]
    })
}

fn append(log: &mut LogOnDisk, batches: usize) {
    for index in 0..batches {
        let codec = Codec::ALL[index % Codec::ALL.len()];
        let producer = (index % 2 == 1).then_some((7, index as i32 * 9));
        let own = VerifiedBatches::own(Bytes::from(batch(codec, 9, producer)));
        let epoch = log.log.epoch().unwrap_or_default();
        log.call(|log, now, queue| log.append(own, epoch, now, queue));
        log.run();
        if log.log.checkpoint_due() {
            log.call(|log, _, queue| log.checkpoint(producers_snapshot(), queue));
            log.run();
        }
    }
}

fn begin_epoch(log: &mut LogOnDisk, epoch: u32) {
    log.call(|log, _, queue| log.begin_epoch(LeaderEpoch(epoch), queue));
    log.run();
}

fn begun() -> LogOnDisk {
    let mut log = LogOnDisk::open(None, false);
    begin_epoch(&mut log, 1);
    log
}

/// One segment, no checkpoint.
fn killed_early() -> Files {
    let mut log = begun();
    append(&mut log, 5);
    log.files
}

/// Several segments and epochs, stopped cleanly.
fn stopped() -> Files {
    let mut log = begun();
    append(&mut log, 25);
    begin_epoch(&mut log, 3);
    append(&mut log, 25);
    log.call(|log, _, queue| log.stop(producers_snapshot(), queue));
    log.run();
    assert_eq!(log.log.phase(), LogPhase::Stopped);
    log.files
}

/// As before, then appended to and killed.
fn killed_after_a_checkpoint() -> Files {
    let mut log = LogOnDisk::open(stopped(), true);
    begin_epoch(&mut log, 4);
    append(&mut log, 8);
    log.files
}

/// The oldest records are gone.
fn start_moved() -> Files {
    let mut log = LogOnDisk::open(stopped(), true);
    begin_epoch(&mut log, 4);
    append(&mut log, 4);
    log.call(|log, _, queue| log.delete_before(Offset(200), queue));
    log.run();
    log.files
}

/// A cut has begun and not ended.
fn killed_while_cutting() -> Files {
    let mut log = LogOnDisk::open(killed_after_a_checkpoint(), true);
    let to = Offset(log.log.end().get() - 30);
    log.call(|log, _, queue| log.cut(to, queue));
    log.run_at_most(4);
    log.files
}

#[cfg(test)]
mod tests {
    use corelog_engine::disk::LogFile;

    use super::*;

    #[test]
    fn the_lives_have_every_kind_of_file() {
        let names: Vec<LogFile> = scenarios()
            .iter()
            .flatten()
            .flat_map(|files| files.keys().copied())
            .collect();
        for (what, is_there) in [
            (
                "state",
                (|name| matches!(name, LogFile::State)) as fn(&LogFile) -> bool,
            ),
            (
                "segment",
                |name| matches!(name, LogFile::Segment(base) if base.get() > 0),
            ),
            ("index", |name| matches!(name, LogFile::OffsetIndex(_))),
            ("time index", |name| matches!(name, LogFile::TimeIndex(_))),
            ("seal", |name| matches!(name, LogFile::Seal(_))),
            ("producers", |name| matches!(name, LogFile::Producers(_))),
        ] {
            assert!(names.iter().any(is_there), "no {what}: {names:?}");
        }
    }

    #[test]
    fn every_undamaged_life_goes_on() {
        for (index, files) in scenarios().iter().enumerate() {
            let log = LogOnDisk::open(files.clone(), index > 0);
            assert_eq!(
                log.log.phase(),
                LogPhase::Ready,
                "life {index}: {:?}",
                log.progress
            );
        }
    }
}
