//! `POST /v1/groups/{group}/messages:fetch`.
//!
//! Two ways to read:
//!
//! - **Without a member**: all partitions of the named topics, each from its `positions` entry, else
//!   from what the group committed, else from the end that `from` names (`earliest` unless it says
//!   `latest`). Nothing is reserved for the reader, so two readers of one group see the same messages.
//! - **As a member** (`member_id` and `generation`, from `members:join`): the partitions that the group
//!   assigned to it, or those of them whose topics are named. A member of an older generation is refused.
//!   The shard asks the group for the assignment with an empty sync, which checks the fence and counts as a
//!   sign of life.
//!
//! A fetch moves nothing: what it returned is committed by `offsets:commit`, and `next_offsets` of
//! one answer are the `positions` of the next fetch until then.

use std::collections::{BTreeMap, BTreeSet};

use corelog_engine::identity::{Generation, Offset, PartitionIndex};
use corelog_engine::limits::FETCH_WAIT_MS_MAX;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::MemberFence;
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::body::{bounded, bounded_option};
use super::limits::{
    FETCH_BYTES_DEFAULT, FETCH_BYTES_MAX, FETCH_MESSAGES_DEFAULT, FETCH_MESSAGES_MAX,
    PARTITIONS_MAX, TOPICS_MAX,
};
use super::messages::{Message, MessageReader};
use super::problem::{PartProblem, Problem, Retained, shared_rejection};

/// The body of a fetch.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchBody {
    topic: Option<String>,
    #[serde(default, deserialize_with = "bounded_option::<_, _, TOPICS_MAX>")]
    topics: Option<Vec<String>>,
    max_messages: Option<u32>,
    max_bytes: Option<usize>,
    max_wait_ms: Option<u64>,
    from: Option<FetchFrom>,
    #[serde(default, deserialize_with = "bounded::<_, _, PARTITIONS_MAX>")]
    positions: Vec<Position>,
    member_id: Option<String>,
    generation: Option<u32>,
    instance_id: Option<String>,
}

/// Where to begin on a partition that the group has not committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchFrom {
    /// At the oldest retained record.
    #[default]
    Earliest,
    /// At the watermark.
    Latest,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Position {
    topic: Option<String>,
    partition: u32,
    offset: u64,
}

/// A checked fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The topics named; a member may name none.
    pub topics: BTreeSet<String>,
    /// Where the asker wants to begin, by topic and partition.
    pub positions: BTreeMap<(String, PartitionIndex), Offset>,
    /// Where to begin elsewhere, where nothing is committed.
    pub from: FetchFrom,
    /// The member, if the asker is one.
    pub fence: Option<MemberFence>,
    /// Most messages to answer.
    pub messages_max: usize,
    /// Most bytes of keys, payloads and headers to answer.
    pub bytes_max: usize,
    /// How long to wait for a first message.
    pub wait_ms: u64,
}

impl FetchRequest {
    /// A reader with this request's limits.
    pub const fn reader(&self) -> MessageReader {
        MessageReader::new(self.messages_max, self.bytes_max)
    }
}

impl FetchBody {
    /// Checks what can be checked without the broker's state.
    ///
    /// # Errors
    ///
    /// 400 for contradictions: no topic and no member, a position outside the named topics or named
    /// twice, a number outside its limits.
    pub fn check(self) -> Result<FetchRequest, Problem> {
        let fence = member_fence(self.member_id, self.generation, self.instance_id)?;
        let topics = match (self.topic, self.topics) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("topic and topics exclude each other"));
            }
            (Some(topic), None) => BTreeSet::from([topic]),
            (None, Some(topics)) => topics.into_iter().collect(),
            (None, None) => BTreeSet::new(),
        };
        if topics.is_empty() && fence.is_none() {
            return Err(Problem::invalid(
                "name a topic, or the member_id and generation from members:join",
            ));
        }
        let mut positions = BTreeMap::new();
        for position in self.positions {
            let topic = topic_of(position.topic, &topics)?;
            if !topics.is_empty() && !topics.contains(&topic) {
                return Err(Problem::invalid(
                    "a position names a topic that is not read",
                ));
            }
            let offset = wire_offset(position.offset)?;
            let key = (topic, PartitionIndex(position.partition));
            if positions.insert(key, offset).is_some() {
                return Err(Problem::invalid("a partition has two positions"));
            }
        }
        let messages_max = self.max_messages.unwrap_or(FETCH_MESSAGES_DEFAULT);
        let bytes_max = self.max_bytes.unwrap_or(FETCH_BYTES_DEFAULT);
        let wait_ms = self.max_wait_ms.unwrap_or(0);
        if !(1..=FETCH_MESSAGES_MAX).contains(&messages_max) {
            return Err(Problem::invalid(format!(
                "max_messages is 1 to {FETCH_MESSAGES_MAX}"
            )));
        }
        if !(1..=FETCH_BYTES_MAX).contains(&bytes_max) {
            return Err(Problem::invalid(format!(
                "max_bytes is 1 to {FETCH_BYTES_MAX}"
            )));
        }
        if wait_ms > FETCH_WAIT_MS_MAX {
            return Err(Problem::invalid(format!(
                "max_wait_ms is 0 to {FETCH_WAIT_MS_MAX}"
            )));
        }
        Ok(FetchRequest {
            topics,
            positions,
            from: self.from.unwrap_or_default(),
            fence,
            messages_max: messages_max as usize,
            bytes_max,
            wait_ms,
        })
    }
}

/// Both of `member_id` and `generation`, or neither (and then no static id).
pub(super) fn member_fence(
    member_id: Option<String>,
    generation: Option<u32>,
    instance_id: Option<String>,
) -> Result<Option<MemberFence>, Problem> {
    match (member_id, generation) {
        (Some(member_id), Some(generation)) if !member_id.is_empty() => Ok(Some(MemberFence {
            generation: Generation(generation),
            member_id,
            instance_id,
        })),
        (None, None) if instance_id.is_none() => Ok(None),
        _ => Err(Problem::invalid(
            "member_id and generation go together; take both from members:join",
        )),
    }
}

/// The topic of one entry: its own, or the only one that the request names.
pub(super) fn topic_of(own: Option<String>, named: &BTreeSet<String>) -> Result<String, Problem> {
    match (own, named.first()) {
        (Some(own), _) => Ok(own),
        (None, Some(only)) if named.len() == 1 => Ok(only.clone()),
        _ => Err(Problem::invalid(
            "an entry for a partition must name its topic",
        )),
    }
}

/// An offset within the range of logs.
pub(super) fn wire_offset(offset: u64) -> Result<Offset, Problem> {
    match i64::try_from(offset) {
        Ok(_) => Ok(Offset(offset)),
        Err(_) => Err(Problem::invalid("an offset is at most 2^63 - 1")),
    }
}

/// Where to begin on one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchStart {
    /// There.
    At(Offset),
    /// At the log's start, to be asked for.
    Earliest,
    /// At the watermark, to be asked for.
    Latest,
}

/// One partition to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFetch {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// Where to begin.
    pub start: FetchStart,
}

/// Chooses where to begin on each of `readable`: all partitions of the named topics, or what the member
/// was assigned. `committed` are the group's offsets. `rotation` says which comes first, so that a busy
/// partition does not starve the others from request to request.
///
/// # Errors
///
/// 400 for a position on a partition that is not among `readable`; for a member that means it is not
/// (or no longer) assigned.
pub fn plan_fetch(
    request: &FetchRequest,
    readable: &BTreeSet<(String, PartitionIndex)>,
    committed: &BTreeMap<(String, PartitionIndex), Offset>,
    rotation: usize,
) -> Result<Vec<PlannedFetch>, Problem> {
    if let Some((topic, partition)) = request
        .positions
        .keys()
        .find(|key| !readable.contains(*key))
    {
        return Err(Problem::invalid(format!(
            "partition {partition} of {topic} has a position and is not among those to read"
        )));
    }
    let wanted = |topic: &String| request.topics.is_empty() || request.topics.contains(topic);
    let mut planned: Vec<PlannedFetch> = readable
        .iter()
        .filter(|(topic, _)| wanted(topic))
        .map(|key| PlannedFetch {
            topic: key.0.clone(),
            partition: key.1,
            start: match (
                request.positions.get(key).or(committed.get(key)),
                request.from,
            ) {
                (Some(&offset), _) => FetchStart::At(offset),
                (None, FetchFrom::Earliest) => FetchStart::Earliest,
                (None, FetchFrom::Latest) => FetchStart::Latest,
            },
        })
        .collect();
    if !planned.is_empty() {
        let first = rotation % planned.len();
        planned.rotate_left(first);
    }
    Ok(planned)
}

/// What became of one partition of a fetch.
#[derive(Clone, Debug)]
pub struct FetchedPartition {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// Where to go on; for a refused partition where it was asked for, if that is known.
    pub next_offset: Option<Offset>,
    /// The oldest retained offset, where known.
    pub log_start: Option<Offset>,
    /// The first offset not yet readable, where known.
    pub watermark: Option<Offset>,
    /// Why it was not read, or not to the end, and what exactly.
    pub refusal: Option<(Rejection, Option<String>)>,
}

#[derive(Serialize)]
struct NextOffsetView<'a> {
    topic: &'a str,
    partition: u32,
    offset: u64,
    watermark: Option<u64>,
}

#[derive(Serialize)]
struct PartitionErrorView<'a> {
    topic: &'a str,
    partition: u32,
    log_start: Option<u64>,
    watermark: Option<u64>,
    error: PartProblem,
}

/// 200 with `messages`, `next_offsets` (the positions of the next fetch, one per partition) and
/// `errors` of partitions that were not read to the end. If there is no message and every partition was
/// refused, a problem with the first refusal; for offsets out of range it names what is `retained`.
pub fn fetch_answer(messages: &[Message], partitions: &[FetchedPartition]) -> Answer {
    let errors: Vec<PartitionErrorView<'_>> = partitions
        .iter()
        .filter_map(|part| {
            let (rejection, detail) = part.refusal.clone()?;
            Some(PartitionErrorView {
                topic: &part.topic,
                partition: part.partition.get(),
                log_start: part.log_start.map(Offset::get),
                watermark: part.watermark.map(Offset::get),
                error: PartProblem::new(rejection, detail),
            })
        })
        .collect();
    let refusals = partitions
        .iter()
        .map(|part| part.refusal.as_ref().map(|refusal| refusal.0));
    if messages.is_empty()
        && let Some(refused) = shared_rejection(refusals)
    {
        let problem = refused.into_problem("errors", &errors);
        return problem
            .with_retained(&retained_of(partitions))
            .into_answer();
    }
    #[derive(Serialize)]
    struct Fetched<'a> {
        messages: &'a [Message],
        next_offsets: Vec<NextOffsetView<'a>>,
        errors: Vec<PartitionErrorView<'a>>,
    }
    let next_offsets = partitions
        .iter()
        .filter_map(|part| {
            Some(NextOffsetView {
                topic: &part.topic,
                partition: part.partition.get(),
                offset: part.next_offset?.get(),
                watermark: part.watermark.map(Offset::get),
            })
        })
        .collect();
    Answer::json(
        200,
        &Fetched {
            messages,
            next_offsets,
            errors,
        },
    )
}

fn retained_of(partitions: &[FetchedPartition]) -> Vec<Retained> {
    partitions
        .iter()
        .filter_map(|part| {
            Some(Retained {
                topic: part.topic.clone(),
                partition: part.partition.get(),
                log_start: part.log_start?.get(),
                watermark: part.watermark?.get(),
            })
        })
        .collect()
}
