//! How far a group is behind on each of its partitions.

use std::collections::BTreeMap;

use bytes::Bytes;
use corelog_engine::identity::{Offset, PartitionId, PartitionIndex};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    Answer, Fetch, FetchPartition, GroupAction, GroupDescription, GroupResponse, OffsetsWanted,
    PartitionDescription, Request, Response,
};
use corelog_net::http::consumer_protocol::decode_assignment;
use corelog_net::http::group::{HeldRange, PartitionLag};
use corelog_net::http::{MessageReader, Problem};

use super::body::reserve;
use super::exchange::Exchange;
use super::reading::Reading;

/// Partitions whose oldest unread record is looked at in one description: each costs a read. The
/// age of further ones is answered as not known.
const AGES_MAX: usize = 1_000;

/// Partitions with a committed offset and those that are assigned, by topic and number.
pub(super) async fn lags_of(
    exchange: &Exchange,
    group: &str,
    description: &GroupDescription,
) -> Result<Vec<PartitionLag>, Problem> {
    let wanted = GroupAction::Committed(OffsetsWanted {
        fence: None,
        partitions: None,
    });
    let GroupResponse::Offsets(stored) = exchange.ask_group(group, wanted).await? else {
        return Err(Rejection::CoordinatorUnavailable.into());
    };
    let mut behind: BTreeMap<PartitionId, Option<Offset>> = BTreeMap::new();
    for assignment in description.members.iter().map(|member| &member.assignment) {
        for (topic, partitions) in decode_assignment(assignment).unwrap_or_default() {
            let partitions = partitions.into_iter().map(PartitionIndex);
            let known = partitions.filter_map(|index| exchange.partition(&topic, index).ok());
            behind.extend(known.map(|partition| (partition, None)));
        }
    }
    let stored = stored.into_iter();
    behind.extend(stored.map(|stored| (stored.partition, Some(stored.offset))));
    let partitions: Vec<PartitionId> = behind.keys().copied().collect();
    let held = exchange.describe_each(&partitions).await;
    let mut ages = ages(exchange, &behind, &partitions, &held).await;
    let mut lags = Vec::with_capacity(partitions.len());
    for ((partition, committed), held) in behind.into_iter().zip(held) {
        let topic = exchange
            .shard
            .image(|image| image.topic(partition.topic).map(|topic| topic.name.clone()));
        // A topic that is gone takes its offsets along.
        let Some(topic) = topic else { continue };
        lags.push(PartitionLag {
            topic,
            partition: partition.partition.get(),
            committed,
            held: held.map(|held| HeldRange {
                log_start: held.log_start,
                watermark: held.watermark,
                log_bytes: held.log_bytes,
                oldest_unread_ms: ages.remove(&partition),
            }),
        });
    }
    lags.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Ok(lags)
}

/// The time stamp of the oldest unread record of each partition that has one.
async fn ages(
    exchange: &Exchange,
    behind: &BTreeMap<PartitionId, Option<Offset>>,
    partitions: &[PartitionId],
    held: &[Result<PartitionDescription, Rejection>],
) -> BTreeMap<PartitionId, u64> {
    let mut unread = BTreeMap::new();
    for (partition, held) in partitions.iter().zip(held) {
        let Ok(held) = held else { continue };
        let committed = behind.get(partition).copied().flatten();
        let next = committed.unwrap_or(held.log_start).max(held.log_start);
        if next < held.watermark && unread.len() < AGES_MAX {
            unread.insert(*partition, next);
        }
    }
    let lagging: Vec<PartitionId> = unread.keys().copied().collect();
    let now = exchange.shard.now().monotonic;
    let answers = exchange.ask_each(&lagging, |partition| {
        Request::Fetch(Fetch {
            partitions: vec![FetchPartition {
                partition,
                offset: unread.get(&partition).copied().unwrap_or(Offset::ZERO),
                bytes_max: 1,
                leader_epoch: None,
                last_fetched_epoch: None,
            }],
            bytes_min: 1,
            bytes_max: 1,
            wait_until: now,
        })
    });
    let mut ages = BTreeMap::new();
    for ((partition, next), answer) in unread.iter().zip(answers.await) {
        if let Some(timestamp_ms) = oldest_ms(exchange, *next, answer).await {
            ages.insert(*partition, timestamp_ms);
        }
    }
    ages
}

async fn oldest_ms(exchange: &Exchange, next: Offset, answer: Answer) -> Option<u64> {
    let Ok(Response::Fetched(parts)) = answer else {
        return None;
    };
    let fetched = parts.into_iter().next()?.result.ok()?;
    let fetched_bytes = fetched.batches.iter().map(Bytes::len).sum();
    let held = reserve(&exchange.shard, fetched_bytes).await.ok()?;
    let mut reading = Reading::new(MessageReader::new(1, usize::MAX), held);
    let mut next = next;
    // Without an age where the batch cannot be read: its lag in records and bytes is told all the same.
    let _ = reading
        .read("", PartitionIndex::ZERO, &mut next, fetched.batches)
        .await;
    let (messages, _) = reading.finish();
    messages.first()?.timestamp_ms
}
