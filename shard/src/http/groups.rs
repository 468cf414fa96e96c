//! `/v1/groups`: join, heartbeat, leave, list, describe, delete.

use std::collections::BTreeMap;

use corelog_engine::admission::{Action, Load};
use corelog_engine::identity::PartitionId;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    GroupAction, GroupListing, GroupRequest, GroupResponse, Join, Joined, LeavingMember,
    MemberFence, Request, Response, Sync,
};
use corelog_net::http::consumer_protocol::{Assignment, decode_assignment};
use corelog_net::http::group::{
    HeartbeatBody, JoinBody, JoiningClient, LeaveBody, assign_as_leader, group_answer,
    groups_answer, join_answer,
};
use corelog_net::http::{Answer, Page, Problem, parse_body};

use super::exchange::Exchange;
use super::lag::lags_of;
use crate::randomness::random_id;

/// Becomes a member, or stays one in the next generation; answers with its partitions.
pub(super) async fn join(exchange: &mut Exchange, group: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseGroup(group))?;
    exchange.admit(Load::Other)?;
    let body = exchange.read_body(1).await?;
    let client = JoiningClient {
        new_member_id: format!("http-{:032x}", u128::from_be_bytes(random_id())),
        client_id: exchange.client_id.clone(),
        client_host: exchange.client_host.clone(),
    };
    let mut join = parse_body::<JoinBody>(&body)?.check(client)?;
    let lease_ms = join.session_timeout_ms;
    let rebalance_ms = u64::from(join.rebalance_timeout_ms);
    let give_up = exchange.shard.now().monotonic.plus_ms(rebalance_ms);
    loop {
        let joined = join_once(exchange, group, &join).await?;
        match sync(exchange, group, &joined).await {
            Ok(assignment) => return Ok(join_answer(&joined, &assignment, lease_ms)),
            // The group moved on between the two steps. The client does not know its id yet, so it
            // joins again here, as long as it would wait for the others anyway.
            Err(Rejection::RebalanceInProgress) if exchange.shard.now().monotonic < give_up => {
                join.member_id = joined.member_id;
            }
            Err(rejection) => {
                give_back(exchange, group, &join, joined).await;
                return Err(rejection.into());
            }
        }
    }
}

async fn join_once(exchange: &Exchange, group: &str, join: &Join) -> Result<Joined, Rejection> {
    let joined = exchange.ask_group(group, GroupAction::Join(join.clone()));
    match joined.await? {
        GroupResponse::Joined(joined) => Ok(joined),
        GroupResponse::MemberIdRequired(_) => Err(Rejection::MemberIdRequired),
        _ => Err(Rejection::CoordinatorUnavailable),
    }
}

/// Gives, if this member leads, and takes the assignment.
async fn sync(exchange: &Exchange, group: &str, joined: &Joined) -> Result<Assignment, Rejection> {
    let partitions = |topic: &str| exchange.topic(topic).ok().map(|facts| facts.partitions);
    let sync = Sync {
        fence: MemberFence {
            generation: joined.generation,
            member_id: joined.member_id.clone(),
            instance_id: None,
        },
        protocol_type: Some(joined.protocol_type.clone()),
        protocol: Some(joined.protocol.clone()),
        assignments: assign_as_leader(joined, partitions)?,
    };
    let synced = exchange.ask_group(group, GroupAction::Sync(sync)).await?;
    let GroupResponse::Synced { assignment, .. } = synced else {
        return Err(Rejection::CoordinatorUnavailable);
    };
    decode_assignment(&assignment).map_err(|_| Rejection::InconsistentGroupProtocol)
}

/// A new member whose join failed halfway would hold its partitions for a whole lease, and its
/// client does not know its id.
async fn give_back(exchange: &Exchange, group: &str, join: &Join, joined: Joined) {
    if join.member_id.is_empty() && join.instance_id.is_none() {
        let member = LeavingMember {
            member_id: joined.member_id,
            instance_id: None,
        };
        let _ = exchange
            .ask_group(group, GroupAction::Leave(vec![member]))
            .await;
    }
}

/// Renews a lease.
pub(super) async fn heartbeat(exchange: &mut Exchange, group: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseGroup(group))?;
    exchange.admit(Load::Other)?;
    let body = exchange.read_body(1).await?;
    let fence = parse_body::<HeartbeatBody>(&body)?.fence()?;
    exchange
        .ask_group(group, GroupAction::Heartbeat(fence))
        .await?;
    Ok(Answer::done())
}

/// Gives a lease up.
pub(super) async fn leave(exchange: &mut Exchange, group: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseGroup(group))?;
    exchange.admit(Load::Other)?;
    let body = exchange.read_body(1).await?;
    let member = parse_body::<LeaveBody>(&body)?.member()?;
    let left = exchange.ask_group(group, GroupAction::Leave(vec![member]));
    if let GroupResponse::Left(left) = left.await? {
        for outcome in left {
            outcome?;
        }
    }
    Ok(Answer::done())
}

/// One page of all groups.
pub(super) async fn list(exchange: &Exchange, page: &Page) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseCluster)?;
    exchange.admit(Load::Other)?;
    let coordinators: Vec<PartitionId> = exchange.shard.image(|image| {
        let partitions = image
            .offsets_topic()
            .into_iter()
            .flat_map(|topic| topic.iter());
        partitions.map(|(partition, _)| partition).collect()
    });
    let answers = exchange.ask_each(&coordinators, |coordinator| {
        Request::Group(GroupRequest {
            coordinator,
            group: String::new(),
            action: GroupAction::List,
        })
    });
    let mut groups: BTreeMap<String, GroupListing> = BTreeMap::new();
    for answer in answers.await {
        let Response::Group(GroupResponse::Listed(listed)) = answer? else {
            return Err(Rejection::CoordinatorUnavailable.into());
        };
        let is_after =
            |group: &GroupListing| page.after.as_ref().is_none_or(|name| group.group > *name);
        for group in listed.into_iter().filter(is_after) {
            groups.insert(group.group.clone(), group);
            // One more than the page, to know whether there is more.
            if groups.len() > page.limit + 1 {
                groups.pop_last();
            }
        }
    }
    let more = groups.len() > page.limit;
    let listed: Vec<GroupListing> = groups.into_values().take(page.limit).collect();
    Ok(groups_answer(&listed, more))
}

/// State, members, and how far the group is behind.
pub(super) async fn describe(exchange: &Exchange, group: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseGroup(group))?;
    exchange.admit(Load::Other)?;
    let described = exchange.ask_group(group, GroupAction::Describe).await?;
    let GroupResponse::Described(description) = described else {
        return Err(Rejection::CoordinatorUnavailable.into());
    };
    let lags = lags_of(exchange, group, &description).await?;
    let now_ms = exchange.shard.now().wall.0;
    Ok(group_answer(group, &description, &lags, now_ms))
}

/// Removes an empty group and its offsets.
pub(super) async fn delete(exchange: &Exchange, group: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseGroup(group))?;
    exchange.admit(Load::Other)?;
    exchange.ask_group(group, GroupAction::Delete).await?;
    Ok(Answer::done())
}
