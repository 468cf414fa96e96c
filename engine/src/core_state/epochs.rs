//! Where epochs end, and where a reader's log leaves the leader's (KIP-101, KIP-320, KIP-595).
//!
//! Invariants:
//! 1. An end that is told is true: no record of that epoch, or of an older one, lies behind it.
//! 2. What history does not tell is said to be unknown, never guessed.

use super::CoreState;
use crate::effect::Effects;
use crate::identity::{LeaderEpoch, Offset};
use crate::rejection::Rejection;
use crate::replica::Replica;
use crate::request::{EpochEnd, FindEpochEnd, RequestId, Response};

impl CoreState {
    pub(super) fn on_find_epoch_end(
        &mut self,
        id: RequestId,
        find: FindEpochEnd,
        effects: &mut Effects,
    ) {
        let answer = self.find_epoch_end(&find).map(Response::EpochEnd);
        self.reply(id, answer, effects);
    }

    fn find_epoch_end(&self, find: &FindEpochEnd) -> Result<Option<EpochEnd>, Rejection> {
        let replica = self
            .replicas
            .get(&find.partition)
            .ok_or_else(|| self.absent(find.partition))?;
        replica.check_epoch(find.leader_epoch)?;
        replica.check_readable()?;
        Ok(EpochHistory::of(replica, find.epoch).end_of(find.epoch))
    }
}

/// What a log knows around one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochHistory {
    /// The newest epoch that there is.
    newest: LeaderEpoch,
    /// The newest epoch of history that is not newer than the one asked about, and its end.
    found: Option<EpochEnd>,
    /// Whether history reaches back to `start`: its oldest entries leave it when there are many.
    reaches_start: bool,
    /// Where the log begins.
    start: Offset,
    /// The epoch of the record before `start`.
    before_start: Option<LeaderEpoch>,
}

impl EpochHistory {
    /// What the leader's log knows around `epoch`.
    pub(super) fn of(replica: &Replica, epoch: LeaderEpoch) -> Self {
        let log = &replica.log;
        let start = log.start();
        let before_start = start.get().checked_sub(1).map(Offset);
        Self {
            // The leader's own epoch enters the log's history with the first append at the latest.
            newest: replica.epoch().max(log.epoch().unwrap_or_default()),
            found: log
                .end_of_epoch(epoch)
                .map(|(epoch, end)| EpochEnd { epoch, end }),
            reaches_start: start == log.end() || log.epoch_of(start).is_some(),
            start,
            before_start: before_start.and_then(|offset| log.epoch_of(offset)),
        }
    }

    /// The newest epoch not newer than `epoch` and its end; `None` where that is not known.
    pub(super) fn end_of(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        if epoch > self.newest {
            // Whoever has records of such an epoch has them from another log.
            return None;
        }
        if self.found.is_some() {
            return self.found;
        }
        if !self.reaches_start {
            return None;
        }
        let end = self.start;
        match self.before_start {
            // The record at `start` is of a newer epoch: this one ended exactly here.
            Some(before) if before <= epoch => Some(EpochEnd { epoch: before, end }),
            // It ended somewhere in what retention has removed.
            Some(_) => None,
            // Nothing was removed: this log never had records of the epoch.
            None => (end == Offset::ZERO).then_some(EpochEnd { epoch, end }),
        }
    }
}

/// Where a reader that has records up to `offset`, the last of epoch `last`, leaves this log; `None`
/// if it does not.
///
/// # Errors
/// [`Rejection::OffsetOutOfRange`] if `end` of that epoch is not known: the reader finds its place
/// anew.
pub(super) fn divergence(
    end: Option<EpochEnd>,
    last: LeaderEpoch,
    offset: Offset,
) -> Result<Option<EpochEnd>, Rejection> {
    let end = end.ok_or(Rejection::OffsetOutOfRange)?;
    Ok((end.epoch < last || end.end < offset).then_some(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log from 10 to 20 whose record 9 was of epoch 3, and whose epoch 5 began at 10.
    fn history(found: Option<(u32, u64)>) -> EpochHistory {
        EpochHistory {
            newest: LeaderEpoch(7),
            found: found.map(|(epoch, end)| told(epoch, end)),
            reaches_start: true,
            start: Offset(10),
            before_start: Some(LeaderEpoch(3)),
        }
    }

    fn told(epoch: u32, end: u64) -> EpochEnd {
        EpochEnd {
            epoch: LeaderEpoch(epoch),
            end: Offset(end),
        }
    }

    #[test]
    fn an_epoch_in_history_ends_where_history_says() {
        let history = history(Some((5, 15)));
        assert_eq!(history.end_of(LeaderEpoch(6)), Some(told(5, 15)));
    }

    #[test]
    fn an_epoch_newer_than_the_log_is_unknown() {
        let history = history(Some((7, 20)));
        assert_eq!(history.end_of(LeaderEpoch(8)), None);
    }

    #[test]
    fn the_epoch_before_log_start_ends_at_log_start() {
        let history = history(None);
        assert_eq!(history.end_of(LeaderEpoch(3)), Some(told(3, 10)));
        assert_eq!(history.end_of(LeaderEpoch(4)), Some(told(3, 10)));
    }

    #[test]
    fn an_epoch_that_retention_removed_is_unknown() {
        assert_eq!(history(None).end_of(LeaderEpoch(2)), None);
    }

    #[test]
    fn a_history_that_has_lost_its_beginning_tells_nothing_about_it() {
        let cut = EpochHistory {
            reaches_start: false,
            ..history(None)
        };
        assert_eq!(cut.end_of(LeaderEpoch(3)), None);
    }

    #[test]
    fn an_epoch_older_than_a_whole_log_ends_at_zero() {
        let whole = EpochHistory {
            start: Offset::ZERO,
            before_start: None,
            ..history(None)
        };
        assert_eq!(whole.end_of(LeaderEpoch(1)), Some(told(1, 0)));
    }

    #[test]
    fn a_reader_diverges_by_epoch_or_by_length() {
        let at = |end, last, offset| divergence(end, LeaderEpoch(last), Offset(offset));
        assert_eq!(at(Some(told(5, 15)), 5, 15), Ok(None));
        assert_eq!(at(Some(told(5, 15)), 5, 16), Ok(Some(told(5, 15))));
        assert_eq!(at(Some(told(5, 15)), 6, 12), Ok(Some(told(5, 15))));
        assert_eq!(at(None, 6, 12), Err(Rejection::OffsetOutOfRange));
    }
}
