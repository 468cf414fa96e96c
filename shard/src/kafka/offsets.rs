//! ListOffsets, OffsetForLeaderEpoch and InitProducerId.

use corelog_engine::admission::Action;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{FindOffset, Request, Response};
use corelog_net::kafka::offsets::{
    OffsetWish, believed_epoch, epoch_end, epoch_wish, found, granted, previous_producer,
};
use corelog_net::kafka::{TopicKey, partition_of};
use corelog_wire::{
    InitProducerIdRequest, LeaderEpochEndOffset, ListOffsetsPartition,
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition, OffsetForLeaderTopicResult, WireString,
};

use super::call::{Call, Pending, expect};
use crate::shard::Asked;

enum Lookup {
    Known(ListOffsetsPartitionResponse),
    Asked(i32, Asked),
}

/// ListOffsets: every partition's owner is asked at once.
pub(super) fn list_offsets(call: Call, request: ListOffsetsRequest) -> Pending {
    let mut topics: Vec<(WireString, Vec<Lookup>)> = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let lookups = topic.partitions.iter().map(|partition| {
            let asked = ask(&call, &topic.name, partition);
            asked.unwrap_or_else(|rejection| {
                Lookup::Known(found(partition.partition_index, Err(rejection)))
            })
        });
        let lookups = lookups.collect();
        topics.push((topic.name.detached(), lookups));
    }
    Pending::later(async move {
        let mut response = ListOffsetsResponse::default();
        for (name, lookups) in topics {
            let mut partitions = Vec::with_capacity(lookups.len());
            for lookup in lookups {
                partitions.push(match lookup {
                    Lookup::Known(response) => response,
                    Lookup::Asked(index, asked) => {
                        let answer = expect(asked.await, |response| match response {
                            Response::OffsetFound(found) => Some(found),
                            _ => None,
                        });
                        found(index, answer.map(Some))
                    }
                });
            }
            response
                .topics
                .push(ListOffsetsTopicResponse { name, partitions });
        }
        call.answer(&response)
    })
}

fn ask(
    call: &Call,
    name: &WireString,
    partition: &ListOffsetsPartition,
) -> Result<Lookup, Rejection> {
    call.authorize(Action::ReadTopic(name))?;
    let id = call.shard.image(|image| {
        let topic = TopicKey::Name(name.clone()).find(image, call.tenant())?;
        partition_of(topic, partition.partition_index)
    })?;
    Ok(match OffsetWish::of(partition)? {
        OffsetWish::Nothing => Lookup::Known(found(partition.partition_index, Ok(None))),
        OffsetWish::Query(by) => {
            let find = FindOffset {
                partition: id,
                by,
                leader_epoch: believed_epoch(partition),
            };
            Lookup::Asked(
                partition.partition_index,
                call.shard.ask(id, Request::FindOffset(find)),
            )
        }
    })
}

enum EpochLookup {
    Known(LeaderEpochEndOffset),
    Asked(i32, Asked),
}

/// OffsetForLeaderEpoch: every partition's owner is asked at once.
pub(super) fn epoch_ends(call: Call, request: OffsetForLeaderEpochRequest) -> Pending {
    let mut topics: Vec<(WireString, Vec<EpochLookup>)> = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let lookups = topic.partitions.iter().map(|partition| {
            ask_epoch(&call, &topic.topic, partition).unwrap_or_else(|rejection| {
                EpochLookup::Known(epoch_end(partition.partition, Err(rejection)))
            })
        });
        let lookups = lookups.collect();
        topics.push((topic.topic.detached(), lookups));
    }
    Pending::later(async move {
        let mut response = OffsetForLeaderEpochResponse::default();
        for (topic, lookups) in topics {
            let mut partitions = Vec::with_capacity(lookups.len());
            for lookup in lookups {
                partitions.push(match lookup {
                    EpochLookup::Known(response) => response,
                    EpochLookup::Asked(index, asked) => {
                        let answer = expect(asked.await, |response| match response {
                            Response::EpochEnd(end) => Some(end),
                            _ => None,
                        });
                        epoch_end(index, answer)
                    }
                });
            }
            response
                .topics
                .push(OffsetForLeaderTopicResult { topic, partitions });
        }
        call.answer(&response)
    })
}

fn ask_epoch(
    call: &Call,
    name: &WireString,
    partition: &OffsetForLeaderPartition,
) -> Result<EpochLookup, Rejection> {
    call.authorize(Action::ReadTopic(name))?;
    let id = call.shard.image(|image| {
        let topic = TopicKey::Name(name.clone()).find(image, call.tenant())?;
        partition_of(topic, partition.partition)
    })?;
    let find = epoch_wish(id, partition)?;
    Ok(EpochLookup::Asked(
        partition.partition,
        call.shard.ask(id, Request::FindEpochEnd(find)),
    ))
}

/// InitProducerId: an identity for an idempotent producer, or the next epoch of one.
pub(super) fn init_producer_id(call: Call, request: InitProducerIdRequest) -> Pending {
    Pending::later(async move {
        let previous = call
            .authorize(Action::UseCluster)
            .and_then(|()| previous_producer(&request));
        let outcome = match previous {
            Ok(previous) => call
                .shard
                .grant_producer(previous)
                .await
                .map_err(|refusal| refusal.rejection),
            Err(rejection) => Err(rejection),
        };
        call.answer(&granted(outcome))
    })
}
