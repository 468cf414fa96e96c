//! `POST /v1/groups/{group}/offsets:reset`: all of the named partitions move, or none does.

use std::collections::BTreeSet;

use corelog_engine::identity::{Offset, PartitionIndex};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{FoundOffset, OffsetQuery, PartitionDescription};
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::body::bounded_option;
use super::fetch::wire_offset;
use super::limits::PARTITIONS_MAX;
use super::problem::{Problem, Retained};

/// The body of a reset.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetBody {
    topic: String,
    to: ResetTarget,
    #[serde(default, deserialize_with = "bounded_option::<_, _, PARTITIONS_MAX>")]
    partitions: Option<Vec<u32>>,
    #[serde(default)]
    dry_run: bool,
}

/// Where to: `"earliest"`, `"latest"`, `{"offset": N}` or `{"time_ms": N}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetTarget {
    /// The oldest retained record.
    Earliest,
    /// The watermark.
    Latest,
    /// This offset.
    Offset(u64),
    /// The first record with a time stamp at or past this, in milliseconds since 1970; the watermark if
    /// there is none.
    TimeMs(u64),
}

/// A checked reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetRequest {
    /// The topic.
    pub topic: String,
    /// Where to.
    pub target: ResetTarget,
    /// Which partitions; `None`: all.
    pub partitions: Option<BTreeSet<PartitionIndex>>,
    /// Only say what would happen.
    pub dry_run: bool,
}

impl ResetBody {
    /// Checks what can be checked without the broker's state.
    ///
    /// # Errors
    ///
    /// 400 for an empty list of partitions or an offset out of range.
    pub fn check(self) -> Result<ResetRequest, Problem> {
        if let ResetTarget::Offset(offset) = self.to {
            wire_offset(offset)?;
        }
        if self.partitions.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::invalid(
                "leave partitions out to reset all of them",
            ));
        }
        let partitions = self.partitions;
        Ok(ResetRequest {
            topic: self.topic,
            target: self.to,
            partitions: partitions.map(|all| all.into_iter().map(PartitionIndex).collect()),
            dry_run: self.dry_run,
        })
    }
}

impl ResetTarget {
    /// What to look up in each partition, beside its description; `None` where nothing need be.
    pub const fn query(self) -> Option<OffsetQuery> {
        match self {
            Self::TimeMs(time_ms) => Some(OffsetQuery::AtOrAfterMs(time_ms)),
            Self::Earliest | Self::Latest | Self::Offset(_) => None,
        }
    }

    /// The offset in one partition, from what it holds and what its look-up found (see [`Self::query`]).
    ///
    /// A time before the oldest retained record of a log that has lost records is refused like an offset
    /// there: records of that time may have been retained no longer, and starting later in silence would
    /// pass them over.
    ///
    /// # Errors
    ///
    /// [`Rejection::OffsetOutOfRange`]; [`reset_refused`] says what is still there.
    pub fn resolve(
        self,
        held: &PartitionDescription,
        found: Option<&FoundOffset>,
    ) -> Result<Offset, Rejection> {
        match self {
            Self::Earliest => Ok(held.log_start),
            Self::Latest => Ok(held.watermark),
            Self::Offset(offset) => {
                let offset = Offset(offset);
                if offset < held.log_start || offset > held.watermark {
                    return Err(Rejection::OffsetOutOfRange);
                }
                Ok(offset)
            }
            Self::TimeMs(time_ms) => {
                let Some(offset) = found.and_then(|found| found.offset) else {
                    return Ok(held.watermark);
                };
                let found_ms = found.and_then(|found| found.timestamp_ms);
                let is_oldest = offset <= held.log_start;
                let lost_some = held.log_start > Offset::ZERO;
                if is_oldest && lost_some && found_ms.is_none_or(|found_ms| found_ms > time_ms) {
                    return Err(Rejection::OffsetOutOfRange);
                }
                Ok(offset)
            }
        }
    }
}

/// 416: nothing was reset, because the target lies outside what these partitions retain.
pub fn reset_refused(request: &ResetRequest, retained: &[Retained]) -> Problem {
    let detail = match request.target {
        ResetTarget::TimeMs(time_ms) => format!(
            "nothing was reset: records of time {time_ms} may have been there and are retained no longer; \
             `retained` names what is still there"
        ),
        _ => "nothing was reset: the offset lies outside what is retained; `retained` names what is still \
              there"
            .to_owned(),
    };
    Problem::rejected(Rejection::OffsetOutOfRange)
        .with_detail(detail)
        .with_retained(retained)
}

/// What was, or with `dry_run` would be, committed for one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ResetOffset {
    /// The partition.
    pub partition: u32,
    /// What the group had committed.
    pub previous_offset: Option<u64>,
    /// Where it begins now.
    pub offset: u64,
}

/// 200 with the old and new offset of each partition.
pub fn reset_answer(request: &ResetRequest, offsets: &[ResetOffset]) -> Answer {
    #[derive(Serialize)]
    struct Reset<'a> {
        topic: &'a str,
        dry_run: bool,
        offsets: &'a [ResetOffset],
    }
    Answer::json(
        200,
        &Reset {
            topic: &request.topic,
            dry_run: request.dry_run,
            offsets,
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use corelog_engine::identity::LeaderEpoch;

    use super::super::parse_body;
    use super::*;

    fn check(body: &str) -> Result<ResetRequest, Problem> {
        parse_body::<ResetBody>(body.as_bytes())?.check()
    }

    fn held(log_start: u64, watermark: u64) -> PartitionDescription {
        PartitionDescription {
            leader_epoch: LeaderEpoch(1),
            log_start: Offset(log_start),
            watermark: Offset(watermark),
            log_end: Offset(watermark),
            log_bytes: 0,
        }
    }

    fn found(offset: u64, timestamp_ms: u64) -> FoundOffset {
        FoundOffset {
            offset: Some(Offset(offset)),
            timestamp_ms: Some(timestamp_ms),
            leader_epoch: None,
        }
    }

    #[test]
    fn every_target_is_read() {
        for (to, target) in [
            (r#""earliest""#, ResetTarget::Earliest),
            (r#""latest""#, ResetTarget::Latest),
            (r#"{"offset":7}"#, ResetTarget::Offset(7)),
            (
                r#"{"time_ms":1700000000000}"#,
                ResetTarget::TimeMs(1_700_000_000_000),
            ),
        ] {
            let request = check(&format!("{{\"topic\":\"orders\",\"to\":{to}}}")).unwrap();
            assert_eq!(request.target, target);
            assert_eq!((request.partitions, request.dry_run), (None, false));
        }
        let request = check(r#"{"topic":"o","to":"latest","partitions":[2,0],"dry_run":true}"#);
        let request = request.unwrap();
        assert!(request.dry_run);
        let partitions = BTreeSet::from([PartitionIndex(0), PartitionIndex(2)]);
        assert_eq!(request.partitions, Some(partitions));
    }

    #[test]
    fn targets_that_are_none_are_refused() {
        for to in [
            r#""beginning""#,
            "7",
            "{}",
            "null",
            r#"{"offset":1,"time_ms":2}"#,
            r#"{"offset":-1}"#,
            r#"{"offset":9223372036854775808}"#,
            r#"{"offset":"7"}"#,
            r#"{"earliest":1}"#,
        ] {
            let problem = check(&format!("{{\"topic\":\"orders\",\"to\":{to}}}")).unwrap_err();
            assert_eq!(problem.status(), 400, "{to}");
        }
        let empty = check(r#"{"topic":"o","to":"latest","partitions":[]}"#);
        assert_eq!(empty.unwrap_err().status(), 400);
    }

    #[test]
    fn offsets_from_log_start_to_watermark_are_taken_and_others_refused() {
        let resolve = |offset| ResetTarget::Offset(offset).resolve(&held(10, 20), None);
        assert_eq!(resolve(10), Ok(Offset(10)));
        assert_eq!(resolve(20), Ok(Offset(20)));
        assert_eq!(resolve(9), Err(Rejection::OffsetOutOfRange));
        assert_eq!(resolve(21), Err(Rejection::OffsetOutOfRange));
        assert_eq!(
            ResetTarget::Earliest.resolve(&held(10, 20), None),
            Ok(Offset(10))
        );
        assert_eq!(
            ResetTarget::Latest.resolve(&held(10, 20), None),
            Ok(Offset(20))
        );
    }

    #[test]
    fn a_time_before_what_is_retained_is_refused_only_where_records_are_gone() {
        let at = |time_ms, held, found: FoundOffset| {
            ResetTarget::TimeMs(time_ms).resolve(&held, Some(&found))
        };
        assert_eq!(
            at(500, held(10, 20), found(10, 600)),
            Err(Rejection::OffsetOutOfRange)
        );
        assert_eq!(at(600, held(10, 20), found(10, 600)), Ok(Offset(10)));
        assert_eq!(at(500, held(0, 20), found(0, 600)), Ok(Offset(0)));
        assert_eq!(at(650, held(10, 20), found(12, 700)), Ok(Offset(12)));
        let none = FoundOffset {
            offset: None,
            timestamp_ms: None,
            leader_epoch: None,
        };
        assert_eq!(at(900, held(10, 20), none), Ok(Offset(20)));
    }

    #[test]
    fn a_refused_reset_names_what_is_still_there() {
        let request = check(r#"{"topic":"orders","to":{"offset":7}}"#).unwrap();
        let retained = Retained {
            topic: "orders".into(),
            partition: 0,
            log_start: 10,
            watermark: 20,
        };
        let problem = reset_refused(&request, &[retained]);
        assert_eq!(problem.status(), 416);
        let body: serde_json::Value = serde_json::from_slice(&problem.to_bytes()).unwrap();
        assert_eq!(body["retained"][0]["log_start"], 10);
    }
}
