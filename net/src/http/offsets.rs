//! `POST /v1/groups/{group}/offsets:commit`.

use std::collections::BTreeSet;

use corelog_engine::identity::{Offset, PartitionIndex};
use corelog_engine::limits::OFFSET_METADATA_BYTES_MAX;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::MemberFence;
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::body::bounded;
use super::fetch::{member_fence, topic_of, wire_offset};
use super::limits::PARTITIONS_MAX;
use super::problem::{PartProblem, Problem, shared_rejection};

/// The body of a commit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitBody {
    topic: Option<String>,
    #[serde(deserialize_with = "bounded::<_, _, PARTITIONS_MAX>")]
    offsets: Vec<OffsetEntry>,
    member_id: Option<String>,
    generation: Option<u32>,
    instance_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OffsetEntry {
    topic: Option<String>,
    partition: u32,
    offset: u64,
    metadata: Option<String>,
}

/// A checked commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitRequest {
    /// The member, if the asker is one. Without one a commit is accepted only while the group has no
    /// members.
    pub fence: Option<MemberFence>,
    /// What to store; no partition stands twice.
    pub offsets: Vec<NamedOffset>,
}

/// The offset to store for one partition, with the topic by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The next offset to process.
    pub offset: Offset,
    /// The client's own note.
    pub metadata: String,
}

impl CommitBody {
    /// Checks what can be checked without the broker's state.
    ///
    /// # Errors
    ///
    /// 400 for an empty commit, an entry without a topic, a partition that stands twice or half a member;
    /// 413 for a note above `OFFSET_METADATA_BYTES_MAX`.
    pub fn check(self) -> Result<CommitRequest, Problem> {
        let fence = member_fence(self.member_id, self.generation, self.instance_id)?;
        let named: BTreeSet<String> = self.topic.into_iter().collect();
        if self.offsets.is_empty() {
            return Err(Problem::invalid("offsets must not be empty"));
        }
        let mut seen = BTreeSet::new();
        let mut offsets = Vec::with_capacity(self.offsets.len());
        for entry in self.offsets {
            let topic = topic_of(entry.topic, &named)?;
            let metadata = entry.metadata.unwrap_or_default();
            if metadata.len() > OFFSET_METADATA_BYTES_MAX {
                return Err(Rejection::OffsetMetadataTooLarge.into());
            }
            if !seen.insert((topic.clone(), entry.partition)) {
                return Err(Problem::invalid("a partition stands twice in offsets"));
            }
            offsets.push(NamedOffset {
                topic,
                partition: PartitionIndex(entry.partition),
                offset: wire_offset(entry.offset)?,
                metadata,
            });
        }
        Ok(CommitRequest { fence, offsets })
    }
}

/// Refuses a commit past the log's end: nothing there has ever been read. The end, not the watermark, is
/// compared, since a new leader may still be behind the watermark that a reader has seen.
///
/// # Errors
///
/// [`Rejection::CommitPastEnd`].
pub fn check_within_log(offset: Offset, log_end: Offset) -> Result<(), Rejection> {
    if offset > log_end {
        Err(Rejection::CommitPastEnd)
    } else {
        Ok(())
    }
}

/// 200 with one entry per offset, `stored` or `rejected`, and how many `failed`. If none was stored, a
/// problem with the first refusal and the entries in its member `offsets`.
///
/// # Panics
///
/// If `outcomes` is not as long as the request's offsets.
pub fn commit_answer(request: &CommitRequest, outcomes: &[Result<(), Rejection>]) -> Answer {
    assert_eq!(
        request.offsets.len(),
        outcomes.len(),
        "every offset to commit has one outcome"
    );
    #[derive(Serialize)]
    struct Committed<'a> {
        offsets: Vec<OffsetView<'a>>,
        failed: usize,
    }
    #[derive(Serialize)]
    struct OffsetView<'a> {
        topic: &'a str,
        partition: u32,
        offset: u64,
        status: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<PartProblem>,
    }
    let offsets: Vec<OffsetView<'_>> = request
        .offsets
        .iter()
        .zip(outcomes)
        .map(|(entry, outcome)| OffsetView {
            topic: &entry.topic,
            partition: entry.partition.get(),
            offset: entry.offset.get(),
            status: if outcome.is_ok() {
                "stored"
            } else {
                "rejected"
            },
            error: outcome
                .err()
                .map(|rejection| PartProblem::new(rejection, None)),
        })
        .collect();
    if let Some(refused) = shared_rejection(outcomes.iter().map(|outcome| outcome.err())) {
        return refused.into_problem("offsets", &offsets).into_answer();
    }
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    Answer::json(200, &Committed { offsets, failed })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::super::parse_body;
    use super::*;

    fn check(body: &str) -> Result<CommitRequest, Problem> {
        parse_body::<CommitBody>(body.as_bytes())?.check()
    }

    #[test]
    fn a_topic_may_stand_once_or_in_each_entry() {
        let once = check(r#"{"topic":"orders","offsets":[{"partition":0,"offset":7}]}"#).unwrap();
        let each = check(r#"{"offsets":[{"topic":"orders","partition":0,"offset":7}]}"#).unwrap();
        assert_eq!(once, each);
        assert_eq!(once.fence, None);
        assert_eq!(once.offsets[0].offset, Offset(7));
        let member = check(
            r#"{"topic":"orders","offsets":[{"partition":0,"offset":7,"metadata":"x"}],"member_id":"m","generation":3}"#,
        )
        .unwrap();
        assert_eq!(member.fence.unwrap().generation.get(), 3);
        assert_eq!(member.offsets[0].metadata, "x");
    }

    #[test]
    fn contradictions_are_refused() {
        for refused in [
            "{}",
            r#"{"topic":"orders","offsets":[]}"#,
            r#"{"offsets":[{"partition":0,"offset":7}]}"#,
            r#"{"topic":"o","offsets":[{"partition":0,"offset":7},{"topic":"o","partition":0,"offset":8}]}"#,
            r#"{"topic":"o","offsets":[{"partition":0,"offset":-1}]}"#,
            r#"{"topic":"o","offsets":[{"partition":0,"offset":9223372036854775808}]}"#,
            r#"{"topic":"o","offsets":[{"partition":0}]}"#,
            r#"{"topic":"o","offsets":[{"partition":0,"offset":7}],"member_id":"m"}"#,
            r#"{"topic":"o","offsets":[{"partition":0,"offset":7}],"generation":1}"#,
            r#"{"topic":"o","offsets":[{"partition":0,"offset":7}],"instance_id":"i"}"#,
            r#"{"topic":"o","offsets":[{"partition":0,"offset":7,"epoch":1}]}"#,
        ] {
            assert_eq!(check(refused).unwrap_err().status(), 400, "{refused}");
        }
        let note = "n".repeat(OFFSET_METADATA_BYTES_MAX + 1);
        let body = format!(
            "{{\"topic\":\"o\",\"offsets\":[{{\"partition\":0,\"offset\":7,\"metadata\":\"{note}\"}}]}}"
        );
        assert_eq!(
            check(&body).unwrap_err().kind(),
            "offset_metadata_too_large"
        );
    }

    #[test]
    fn the_log_end_may_be_committed_and_nothing_past_it() {
        assert_eq!(check_within_log(Offset(7), Offset(7)), Ok(()));
        assert_eq!(
            check_within_log(Offset(8), Offset(7)),
            Err(Rejection::CommitPastEnd)
        );
    }

    #[test]
    fn refusals_are_per_partition_until_all_are_refused() {
        let request = check(
            r#"{"topic":"o","offsets":[{"partition":0,"offset":7},{"partition":1,"offset":9}]}"#,
        )
        .unwrap();
        let past = Err(Rejection::CommitPastEnd);
        let answer = commit_answer(&request, &[Ok(()), past]);
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(body["failed"], 1);
        assert_eq!(body["offsets"][0]["status"], "stored");
        assert_eq!(body["offsets"][1]["status"], "rejected");
        assert_eq!(body["offsets"][1]["error"]["type"], "commit_past_end");
        let answer = commit_answer(&request, &[past, past]);
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer.status, 409);
        assert_eq!(body["type"], "commit_past_end");
        assert_eq!(body["offsets"][1]["offset"], 9);
    }
}
