//! `POST /v1/groups/{group}/offsets:commit` and `offsets:reset`.

use std::collections::{BTreeMap, BTreeSet};

use corelog_engine::admission::{Action, Load};
use corelog_engine::identity::{Offset, PartitionId, PartitionIndex};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    Commit, FindOffset, FoundOffset, GroupAction, GroupResponse, OffsetToCommit, OffsetsWanted,
    PartitionDescription, Request, Response,
};
use corelog_net::http::offsets::{CommitBody, check_within_log, commit_answer};
use corelog_net::http::reset::{ResetBody, ResetOffset, ResetRequest, reset_answer, reset_refused};
use corelog_net::http::{Answer, Problem, Retained, parse_body};

use super::exchange::Exchange;
use crate::counts::{Count, PastEnd};

/// Stores what the group has processed.
pub(super) async fn commit(exchange: &mut Exchange, group: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseGroup(group))?;
    exchange.admit(Load::Other)?;
    let body = exchange.read_body(1).await?;
    let request = parse_body::<CommitBody>(&body)?.check()?;
    let topics: BTreeSet<&String> = request.offsets.iter().map(|named| &named.topic).collect();
    for topic in topics {
        exchange.authorize(Action::ReadTopic(topic))?;
    }
    let mut outcomes = Vec::with_capacity(request.offsets.len());
    let mut known = Vec::new();
    for named in &request.offsets {
        let partition = exchange.partition(&named.topic, named.partition);
        known.extend(partition.ok());
        outcomes.push(partition.map(drop));
    }
    let held = exchange.describe_each(&known).await;
    let mut places = BTreeMap::new();
    let mut to_store = Vec::with_capacity(known.len());
    let named = request.offsets.iter().zip(&mut outcomes).enumerate();
    let named = named.filter(|(_, (_, outcome))| outcome.is_ok());
    for ((index, (named, outcome)), (partition, held)) in named.zip(known.into_iter().zip(held)) {
        *outcome = held.and_then(|held| check_within_log(named.offset, held.log_end));
        if *outcome == Err(Rejection::CommitPastEnd) {
            let refused = Count::CommitPastEnd(PastEnd::Refused);
            exchange.shard.counts.count(refused);
        }
        if outcome.is_ok() {
            places.insert(partition, index);
            to_store.push(OffsetToCommit {
                partition,
                offset: named.offset,
                leader_epoch: None,
                metadata: named.metadata.clone(),
            });
        }
    }
    if to_store.is_empty() {
        return Ok(commit_answer(&request, &outcomes));
    }
    let commit = GroupAction::Commit(Commit {
        fence: request.fence.clone(),
        offsets: to_store,
    });
    let GroupResponse::Committed(stored) = exchange.ask_group(group, commit).await? else {
        return Err(Rejection::CoordinatorUnavailable.into());
    };
    for (partition, result) in stored {
        if let Some(outcome) = places
            .get(&partition)
            .and_then(|index| outcomes.get_mut(*index))
        {
            *outcome = result;
        }
    }
    Ok(commit_answer(&request, &outcomes))
}

/// Moves the group to an offset or a time, in all of the named partitions or in none.
pub(super) async fn reset(exchange: &mut Exchange, group: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseGroup(group))?;
    exchange.admit(Load::Other)?;
    let body = exchange.read_body(1).await?;
    let request = parse_body::<ResetBody>(&body)?.check()?;
    exchange.authorize(Action::ReadTopic(&request.topic))?;
    let partitions = partitions_of(exchange, &request)?;
    let described = exchange.ask_group(group, GroupAction::Describe).await?;
    let has_members =
        matches!(&described, GroupResponse::Described(group) if !group.members.is_empty());
    if has_members {
        return Err(Rejection::NonEmptyGroup.into());
    }
    let held = exchange.describe_each(&partitions).await;
    let held: Vec<PartitionDescription> = held.into_iter().collect::<Result<_, Rejection>>()?;
    let found = find_each(exchange, &request, &partitions).await?;
    let mut targets = Vec::with_capacity(partitions.len());
    let mut retained = Vec::new();
    for ((partition, held), found) in partitions.iter().zip(&held).zip(&found) {
        match request.target.resolve(held, found.as_ref()) {
            Ok(offset) => targets.push((*partition, offset)),
            Err(_) => retained.push(Retained {
                topic: request.topic.clone(),
                partition: partition.partition.get(),
                log_start: held.log_start.get(),
                watermark: held.watermark.get(),
            }),
        }
    }
    if !retained.is_empty() {
        return Err(reset_refused(&request, &retained));
    }
    let previous = previous_offsets(exchange, group, &partitions).await?;
    if !request.dry_run {
        store(exchange, group, &targets).await?;
    }
    let offset_of = |(partition, offset): &(PartitionId, Offset)| ResetOffset {
        partition: partition.partition.get(),
        previous_offset: previous.get(partition).map(|offset| offset.get()),
        offset: offset.get(),
    };
    let offsets: Vec<ResetOffset> = targets.iter().map(offset_of).collect();
    Ok(reset_answer(&request, &offsets))
}

fn partitions_of(exchange: &Exchange, request: &ResetRequest) -> Result<Vec<PartitionId>, Problem> {
    let topic = exchange.topic(&request.topic)?;
    let id = |partition| PartitionId {
        topic: topic.id,
        partition,
    };
    let Some(named) = &request.partitions else {
        return Ok((0..topic.partitions).map(PartitionIndex).map(id).collect());
    };
    if named
        .iter()
        .any(|partition| partition.get() >= topic.partitions)
    {
        return Err(Rejection::UnknownTopicOrPartition.into());
    }
    Ok(named.iter().copied().map(id).collect())
}

/// What each partition has at the wanted time; nothing where no time is wanted.
async fn find_each(
    exchange: &Exchange,
    request: &ResetRequest,
    partitions: &[PartitionId],
) -> Result<Vec<Option<FoundOffset>>, Problem> {
    let Some(by) = request.target.query() else {
        return Ok(vec![None; partitions.len()]);
    };
    let answers = exchange.ask_each(partitions, |partition| {
        Request::FindOffset(FindOffset {
            partition,
            by,
            leader_epoch: None,
        })
    });
    let mut found = Vec::with_capacity(partitions.len());
    for answer in answers.await {
        match answer? {
            Response::OffsetFound(offset) => found.push(Some(offset)),
            _ => return Err(Rejection::NotLeader.into()),
        }
    }
    Ok(found)
}

async fn previous_offsets(
    exchange: &Exchange,
    group: &str,
    partitions: &[PartitionId],
) -> Result<BTreeMap<PartitionId, Offset>, Problem> {
    let wanted = GroupAction::Committed(OffsetsWanted {
        fence: None,
        partitions: Some(partitions.to_vec()),
    });
    let GroupResponse::Offsets(offsets) = exchange.ask_group(group, wanted).await? else {
        return Err(Rejection::CoordinatorUnavailable.into());
    };
    let offsets = offsets.into_iter();
    Ok(offsets
        .map(|stored| (stored.partition, stored.offset))
        .collect())
}

/// One commit is one append: all of it is stored or nothing.
async fn store(
    exchange: &Exchange,
    group: &str,
    targets: &[(PartitionId, Offset)],
) -> Result<(), Problem> {
    let to_store = |(partition, offset): &(PartitionId, Offset)| OffsetToCommit {
        partition: *partition,
        offset: *offset,
        leader_epoch: None,
        metadata: String::new(),
    };
    let commit = GroupAction::Commit(Commit {
        fence: None,
        offsets: targets.iter().map(to_store).collect(),
    });
    let stored = exchange.ask_group(group, commit).await;
    match stored {
        Ok(GroupResponse::Committed(stored)) => {
            for (_, result) in stored {
                result?;
            }
            Ok(())
        }
        // Somebody joined since the group was looked at.
        Err(Rejection::UnknownMember) => Err(Rejection::NonEmptyGroup.into()),
        Err(rejection) => Err(rejection.into()),
        Ok(_) => Err(Rejection::CoordinatorUnavailable.into()),
    }
}
