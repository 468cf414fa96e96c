//! Positions of consumer groups: OffsetCommit, OffsetFetch.

use std::collections::{BTreeMap, BTreeSet};

use corelog_engine::admission::Action;
use corelog_engine::identity::{Offset, PartitionId};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{GroupAction, GroupResponse, OffsetsWanted, Request, Response};
use corelog_net::kafka::group_offsets::{
    CommitPlan, OffsetsShape, commit_refused, offsets_plans, offsets_response,
};
use corelog_wire::{OffsetCommitRequest, OffsetFetchRequest};
use futures_lite::future::zip;

use super::call::{Call, Pending};
use super::groups::{answer, ask};
use crate::counts::{Count, PastEnd};
use crate::shard::Asked;

/// Questions to other cores that one commit has under way.
const ASKED_AT_ONCE_MAX: usize = 1_000;

/// OffsetCommit.
pub(super) fn commit(call: Call, request: OffsetCommitRequest) -> Pending {
    let planned = call.shard.image(|image| {
        let readable = |name: &str| call.authorize(Action::ReadTopic(name));
        CommitPlan::read(&request, call.version, image, call.tenant(), readable)
    });
    let mut plan = match planned {
        Ok(plan) => plan,
        Err(rejection) => return call.ready(&commit_refused(&request, rejection)),
    };
    let commit = plan.take_commit();
    if commit.offsets.is_empty() {
        return call.ready(&plan.response(&Ok(GroupResponse::Committed(Vec::new()))));
    }
    let offsets = commit.offsets.iter();
    let offsets: BTreeMap<PartitionId, Offset> =
        offsets.map(|one| (one.partition, one.offset)).collect();
    let asked = ask(&call, &request.group_id, GroupAction::Commit(commit));
    Pending::later(async move {
        // Each end is asked for while the commit is under way, so that counting costs it no time.
        let (answer, past_end) = zip(answer(asked), past_end(&call, &offsets)).await;
        if let Ok(GroupResponse::Committed(stored)) = &answer {
            for (partition, outcome) in stored {
                if outcome.is_ok() && past_end.contains(partition) {
                    let stored = Count::CommitPastEnd(PastEnd::Stored);
                    call.shard.counts.count(stored);
                }
            }
        }
        call.answer(&plan.response(&answer))
    })
}

/// The partitions whose log ends before the offset to commit. Kafka's clients expect that such a commit is
/// stored; whoever commits what was never read should be found all the same.
async fn past_end(call: &Call, offsets: &BTreeMap<PartitionId, Offset>) -> BTreeSet<PartitionId> {
    let mut past = BTreeSet::new();
    let mut left = offsets.iter().peekable();
    while left.peek().is_some() {
        let some = left.by_ref().take(ASKED_AT_ONCE_MAX);
        let asked: Vec<(PartitionId, Offset, Asked)> = some
            .map(|(id, offset)| {
                let end = call.shard.ask(*id, Request::DescribePartition(*id));
                (*id, *offset, end)
            })
            .collect();
        for (id, offset, asked) in asked {
            if let Ok(Response::Partition(held)) = asked.await
                && offset > held.log_end
            {
                past.insert(id);
            }
        }
    }
    past
}

/// OffsetFetch: for one group, or for several that may live on different cores.
pub(super) fn fetch(call: Call, request: OffsetFetchRequest) -> Pending {
    let plans = offsets_plans(&request, call.version);
    let shapes: Vec<OffsetsShape> = plans.iter().map(|plan| plan.shape()).collect();
    let mut asked = Vec::with_capacity(plans.len());
    for plan in plans {
        let partitions = call
            .shard
            .image(|image| plan.partitions(image, call.tenant()));
        let wanted = OffsetsWanted {
            fence: None,
            partitions,
        };
        let question = ask(&call, &plan.group, GroupAction::Committed(wanted));
        asked.push((plan, question));
    }
    Pending::later(async move {
        let mut groups = Vec::with_capacity(asked.len());
        for (plan, question) in asked {
            let answer = match answer(question).await {
                // Nothing is known of such a group, which is no error to a consumer.
                Err(Rejection::GroupIdNotFound) => Ok(GroupResponse::Offsets(Vec::new())),
                other => other,
            };
            groups.push(
                call.shard
                    .image(|image| plan.response(image, call.tenant(), answer)),
            );
        }
        call.answer(&offsets_response(groups, &shapes, call.version))
    })
}
