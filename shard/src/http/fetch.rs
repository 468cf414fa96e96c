//! `POST /v1/groups/{group}/messages:fetch`.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use corelog_engine::admission::{Action, Load};
use corelog_engine::identity::{CoreIndex, Offset, PartitionId, PartitionIndex};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    self as engine, FetchPartition, FetchRefusal, Fetched, FindOffset, GroupAction, GroupResponse,
    MemberFence, OffsetQuery, OffsetsWanted, Request, Response, Sync,
};
use corelog_engine::time::Monotonic;
use corelog_net::http::consumer_protocol::decode_assignment;
use corelog_net::http::fetch::{
    FetchBody, FetchRequest, FetchStart, FetchedPartition, PlannedFetch, fetch_answer, plan_fetch,
};
use corelog_net::http::limits::PARTITIONS_MAX;
use corelog_net::http::{Answer, Problem, parse_body};

use super::body::reserve;
use super::exchange::{Exchange, compute, next_number};
use super::reading::Reading;
use crate::shard::Asked;
use crate::uring::sleep;

/// A member that has no partitions waits at most this long: its assignment may come meanwhile.
const UNASSIGNED_WAIT: Duration = Duration::from_secs(1);

/// What was fetched takes this many times its size: as it is, and as JSON. What compressed batches open to
/// comes on top.
const COPIES: usize = 2;

type Place = (String, PartitionIndex);

/// Reads from the group's partitions, waiting for something to read if asked.
pub(super) async fn fetch(exchange: &mut Exchange, group: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseGroup(group))?;
    exchange.admit(Load::Other)?;
    let body = exchange.read_body(1).await?;
    let request = parse_body::<FetchBody>(&body)?.check()?;
    let wait_until = exchange.shard.now().monotonic.plus_ms(request.wait_ms);
    let readable = match &request.fence {
        Some(fence) => assigned(exchange, group, fence).await?,
        None => all_partitions(exchange, &request.topics)?,
    };
    let topics: BTreeSet<&String> = readable.iter().map(|(topic, _)| topic).collect();
    for topic in topics {
        exchange.authorize(Action::ReadTopic(topic))?;
    }
    let committed = committed(exchange, group, &request, &readable).await?;
    let rotation = next_number() as usize;
    let planned = plan_fetch(&request, &readable, &committed, rotation)?;
    if planned.is_empty() {
        sleep(Duration::from_millis(request.wait_ms).min(UNASSIGNED_WAIT)).await;
    }
    let starts = resolve_starts(exchange, &planned).await;
    let parts = read_cores(exchange, &request, &planned, &starts, wait_until).await;
    let fetched_bytes = parts
        .iter()
        .flatten()
        .flat_map(|fetched| &fetched.batches)
        .map(Bytes::len)
        .sum::<usize>();
    let held = reserve(&exchange.shard, fetched_bytes.saturating_mul(COPIES)).await?;
    let mut reading = Reading::new(request.reader(), held);
    let partitions = read_parts(&mut reading, &planned, &starts, parts).await;
    let (messages, held) = reading.finish();
    exchange.answer_held = Some(held);
    let answer = compute(fetched_bytes, move || fetch_answer(&messages, &partitions));
    Ok(answer.await)
}

/// The partitions that the group gave to the member. The empty sync checks its fence and renews its
/// lease.
async fn assigned(
    exchange: &Exchange,
    group: &str,
    fence: &MemberFence,
) -> Result<BTreeSet<Place>, Problem> {
    let sync = Sync {
        fence: fence.clone(),
        protocol_type: None,
        protocol: None,
        assignments: Vec::new(),
    };
    let synced = exchange.ask_group(group, GroupAction::Sync(sync)).await?;
    let GroupResponse::Synced { assignment, .. } = synced else {
        return Err(Rejection::CoordinatorUnavailable.into());
    };
    let topics =
        decode_assignment(&assignment).map_err(|_| Rejection::InconsistentGroupProtocol)?;
    let places = topics.into_iter().flat_map(|(topic, partitions)| {
        let place = move |partition| (topic.clone(), PartitionIndex(partition));
        partitions.into_iter().map(place)
    });
    Ok(places.collect())
}

/// All partitions of the topics.
fn all_partitions(
    exchange: &Exchange,
    topics: &BTreeSet<String>,
) -> Result<BTreeSet<Place>, Problem> {
    let mut places = BTreeSet::new();
    for name in topics {
        let partitions = exchange.topic(name).map_err(|rejection| {
            Problem::rejected(rejection).with_detail(format!("there is no topic {name}"))
        })?;
        if places.len() + partitions.partitions as usize > PARTITIONS_MAX {
            return Err(
                Problem::rejected(Rejection::RecordListTooLarge).with_detail(format!(
                    "a fetch reads at most {PARTITIONS_MAX} partitions; name fewer topics"
                )),
            );
        }
        let place = |partition| (name.clone(), PartitionIndex(partition));
        places.extend((0..partitions.partitions).map(place));
    }
    Ok(places)
}

/// What the group has committed for those partitions to read that have no position.
async fn committed(
    exchange: &Exchange,
    group: &str,
    request: &FetchRequest,
    readable: &BTreeSet<Place>,
) -> Result<BTreeMap<Place, Offset>, Problem> {
    let wanted: BTreeMap<PartitionId, &Place> = readable
        .iter()
        .filter(|place| !request.positions.contains_key(*place))
        .filter_map(|place| Some((exchange.partition(&place.0, place.1).ok()?, place)))
        .collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let offsets = GroupAction::Committed(OffsetsWanted {
        fence: request.fence.clone(),
        partitions: Some(wanted.keys().copied().collect()),
    });
    let GroupResponse::Offsets(offsets) = exchange.ask_group(group, offsets).await? else {
        return Err(Rejection::CoordinatorUnavailable.into());
    };
    let named = offsets.into_iter().filter_map(|stored| {
        let place = wanted.get(&stored.partition)?;
        Some(((*place).clone(), stored.offset))
    });
    Ok(named.collect())
}

/// The partition and offset to read each planned part from, or why there is none.
async fn resolve_starts(
    exchange: &Exchange,
    planned: &[PlannedFetch],
) -> Vec<Result<(PartitionId, Offset), Rejection>> {
    let partitions: Vec<Result<PartitionId, Rejection>> = planned
        .iter()
        .map(|part| exchange.partition(&part.topic, part.partition))
        .collect();
    let mut queries = BTreeMap::new();
    for (part, partition) in planned.iter().zip(&partitions) {
        let query = match part.start {
            FetchStart::At(_) => continue,
            FetchStart::Earliest => OffsetQuery::Earliest,
            FetchStart::Latest => OffsetQuery::Latest,
        };
        if let Ok(partition) = partition {
            queries.insert(*partition, query);
        }
    }
    let asked: Vec<PartitionId> = queries.keys().copied().collect();
    let answers = exchange.ask_each(&asked, |partition| {
        Request::FindOffset(FindOffset {
            partition,
            by: queries
                .get(&partition)
                .copied()
                .unwrap_or(OffsetQuery::Earliest),
            leader_epoch: None,
        })
    });
    let found: BTreeMap<PartitionId, Result<Offset, Rejection>> = asked
        .iter()
        .copied()
        .zip(answers.await.into_iter().map(found_offset))
        .collect();
    let start = |(part, partition): (&PlannedFetch, Result<PartitionId, Rejection>)| {
        let partition = partition?;
        let offset = match part.start {
            FetchStart::At(offset) => offset,
            FetchStart::Earliest | FetchStart::Latest => found
                .get(&partition)
                .copied()
                .unwrap_or(Err(Rejection::NotLeader))?,
        };
        Ok((partition, offset))
    };
    planned.iter().zip(partitions).map(start).collect()
}

/// The offset of an answer to a look-up that always has one.
fn found_offset(answer: engine::Answer) -> Result<Offset, Rejection> {
    match answer? {
        Response::OffsetFound(found) => found.offset.ok_or(Rejection::OffsetNotAvailable),
        _ => Err(Rejection::NotLeader),
    }
}

/// Reads from every core that owns some of the parts, all at once; what each part came to.
async fn read_cores(
    exchange: &Exchange,
    request: &FetchRequest,
    planned: &[PlannedFetch],
    starts: &[Result<(PartitionId, Offset), Rejection>],
    wait_until: Monotonic,
) -> Vec<Result<Fetched, FetchRefusal>> {
    let shard = &exchange.shard;
    let mut parts: Vec<Result<Fetched, FetchRefusal>> = Vec::with_capacity(planned.len());
    let mut cores: BTreeMap<CoreIndex, Vec<(usize, FetchPartition)>> = BTreeMap::new();
    for (index, start) in starts.iter().enumerate() {
        let owned = start.and_then(|(partition, offset)| {
            let owner = shard.owner_of(partition);
            let core = owner.ok_or(Rejection::UnknownTopicOrPartition)?;
            Ok((core, partition, offset))
        });
        if let Ok((core, partition, offset)) = owned {
            let part = FetchPartition {
                partition,
                offset,
                bytes_max: request.bytes_max,
                leader_epoch: None,
                last_fetched_epoch: None,
            };
            cores.entry(core).or_default().push((index, part));
        }
        parts.push(Err(refusal(owned.err().unwrap_or(Rejection::NotLeader))));
    }
    // A part that cannot be read at all is told now, not after a wait for the others.
    let wait_until = if cores.values().map(Vec::len).sum::<usize>() < planned.len() {
        shard.now().monotonic
    } else {
        wait_until
    };
    let ask = |(&core, parts): (&CoreIndex, &Vec<(usize, FetchPartition)>)| {
        let fetch = engine::Fetch {
            partitions: parts.iter().map(|(_, part)| *part).collect(),
            bytes_min: 1,
            bytes_max: request.bytes_max,
            wait_until,
        };
        shard.ask_core(core, Request::Fetch(fetch))
    };
    let asked: Vec<Asked> = cores.iter().map(ask).collect();
    for (answer, asked) in first_hurries_others(asked)
        .await
        .into_iter()
        .zip(cores.values())
    {
        match answer {
            Ok(Response::Fetched(fetched)) => {
                for ((index, _), part) in asked.iter().zip(fetched) {
                    parts[*index] = part.result;
                }
            }
            Ok(_) => {}
            Err(rejection) => {
                for (index, _) in asked {
                    parts[*index] = Err(refusal(rejection));
                }
            }
        }
    }
    parts
}

const fn refusal(rejection: Rejection) -> FetchRefusal {
    FetchRefusal {
        rejection,
        log_start: None,
        watermark: None,
    }
}

/// Waits for all answers. The first one ends the waits of the others.
async fn first_hurries_others(mut asked: Vec<Asked>) -> Vec<engine::Answer> {
    let mut answers: Vec<Option<engine::Answer>> = asked.iter().map(|_| None).collect();
    let mut hurried = false;
    poll_fn(|context| {
        for (asked, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(given) = Pin::new(asked).poll(context)
            {
                *answer = Some(given);
            }
        }
        if !hurried && answers.iter().any(Option::is_some) {
            hurried = true;
            let waiting = asked.iter().zip(&answers);
            for (asked, _) in waiting.filter(|(_, answer)| answer.is_none()) {
                asked.hurry();
            }
        }
        if answers.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// What each part comes to in the answer.
async fn read_parts(
    reading: &mut Reading,
    planned: &[PlannedFetch],
    starts: &[Result<(PartitionId, Offset), Rejection>],
    parts: Vec<Result<Fetched, FetchRefusal>>,
) -> Vec<FetchedPartition> {
    let mut partitions = Vec::with_capacity(planned.len());
    for ((part, start), read) in planned.iter().zip(starts).zip(parts) {
        let start = start.ok().map(|(_, offset)| offset);
        let mut fetched = FetchedPartition {
            topic: part.topic.clone(),
            partition: part.partition,
            next_offset: start,
            log_start: None,
            watermark: None,
            refusal: None,
        };
        match read {
            Ok(read) => {
                fetched.log_start = Some(read.log_start);
                fetched.watermark = Some(read.watermark);
                let mut next = start.unwrap_or(read.log_start);
                let taken = reading.read(&part.topic, part.partition, &mut next, read.batches);
                fetched.refusal = taken.await.err();
                fetched.next_offset = Some(next);
            }
            Err(refusal) => {
                fetched.log_start = refusal.log_start;
                fetched.watermark = refusal.watermark;
                fetched.refusal = Some((refusal.rejection, None));
            }
        }
        partitions.push(fetched);
    }
    partitions
}
