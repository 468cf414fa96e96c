//! `/health/live` and `/health/ready`.

use std::rc::Rc;
use std::time::Duration;

use corelog_engine::disk::DiskLevel;
use corelog_engine::identity::CoreIndex;
use corelog_net::http::{Answer, health_answer};

use crate::mesh::{CoreReport, ToCore};
use crate::shard::Shard;
use crate::uring::channel::reply;
use crate::uring::timeout;

/// A core that does not say how it stands within this time is not ready.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// Whoever can answer lives.
pub(super) fn live() -> Answer {
    health_answer(Ok(()))
}

/// 200 once every core serves all that it owns and the disk takes publishes.
pub(super) async fn ready(shard: &Rc<Shard>) -> Answer {
    let reports = reports(shard).await;
    let reports: Vec<CoreReport> = reports.into_iter().map(|(_, report)| report).collect();
    let cores = usize::from(shard.settings().cores);
    match why_not(&reports, cores, shard.is_stopping()) {
        None => health_answer(Ok(())),
        Some(reason) => health_answer(Err(&reason)),
    }
}

/// How those cores stand that say so in time.
pub(super) async fn reports(shard: &Rc<Shard>) -> Vec<(CoreIndex, CoreReport)> {
    let mut asked = Vec::new();
    for (index, inbox) in (0_u16..).zip(shard.core_senders()) {
        let (answer, wait) = reply();
        if index != shard.core().get() && inbox.try_send(ToCore::Report(answer)).is_ok() {
            asked.push((CoreIndex(index), wait));
        }
    }
    let mut reports = vec![(shard.core(), shard.report())];
    let all = async {
        for (index, wait) in asked {
            if let Ok(report) = wait.await {
                reports.push((index, report));
            }
        }
    };
    // What has come by then is told all the same.
    let _ = timeout(REPORT_WAIT, all).await;
    reports.sort_by_key(|(index, _)| *index);
    reports
}

fn why_not(reports: &[CoreReport], cores: usize, is_stopping: bool) -> Option<String> {
    if is_stopping {
        return Some(String::from("the broker is stopping"));
    }
    if reports.len() < cores {
        return Some(format!("{} of {cores} cores have answered", reports.len()));
    }
    if !reports.iter().all(|report| report.is_ready) {
        let sum = |count: fn(&CoreReport) -> usize| reports.iter().map(count).sum::<usize>();
        let (opened, logs) = (sum(|report| report.opened.0), sum(|report| report.opened.1));
        return Some(if opened < logs {
            format!("{opened} of {logs} logs are open")
        } else {
            format!("all {logs} logs are open; group coordinators are loading")
        });
    }
    if reports
        .iter()
        .any(|report| report.disk_level == DiskLevel::Full)
    {
        return Some(String::from(
            "the disk is full: reads are served, publishes are not",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn report(is_ready: bool, opened: (usize, usize)) -> CoreReport {
        CoreReport {
            counted: Default::default(),
            is_ready,
            opened,
            counters: Default::default(),
            budget_bytes: (0, 0),
            tail_cache_bytes: 0,
            connections: (0, 0),
            partitions: HashMap::new(),
            disk_operations: (0, 0),
            disk_level: DiskLevel::Normal,
        }
    }

    #[test]
    fn one_core_that_is_not_ready_is_enough_and_progress_is_told() {
        let reports = [report(true, (3, 3)), report(false, (1, 4))];
        assert_eq!(why_not(&reports, 2, false).unwrap(), "4 of 7 logs are open");
        let reports = [report(true, (3, 3)), report(false, (4, 4))];
        assert!(why_not(&reports, 2, false).unwrap().contains("loading"));
        let reports = [report(true, (3, 3)), report(true, (4, 4))];
        assert_eq!(why_not(&reports, 2, false), None);
    }

    #[test]
    fn silent_cores_a_full_disk_and_the_end_are_not_ready() {
        let mut reports = [report(true, (3, 3))];
        assert_eq!(
            why_not(&reports, 2, false).unwrap(),
            "1 of 2 cores have answered"
        );
        assert!(why_not(&reports, 1, true).unwrap().contains("stopping"));
        reports[0].disk_level = DiskLevel::Low;
        assert_eq!(why_not(&reports, 1, false), None);
        reports[0].disk_level = DiskLevel::Full;
        assert!(why_not(&reports, 1, false).unwrap().contains("full"));
    }
}
