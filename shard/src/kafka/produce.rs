//! Produce: each partition's batch is checked on this core, then handed to the core that owns it.

use std::rc::Rc;

use bytes::Bytes;
use corelog_engine::admission::{Action, Load};
use corelog_engine::identity::PartitionId;
use corelog_engine::limits::INLINE_BYTES_MAX;
use corelog_engine::publish::{PublishRefusal, PublishRules};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Publish, Request, Response};
use corelog_engine::time::Monotonic;
use corelog_net::kafka::produce::{
    AnsweredPartition, PlannedPartition, ProducePlan, check_records, published, refused, response,
};
use corelog_net::kafka::{Node, TopicKey, partition_of};

use super::call::{Answered, Call, End, Pending, expect};
use crate::shard::Asked;

/// Kafka's produce request carries one batch for each partition.
const BATCHES_PER_PARTITION: usize = 1;

/// First version that says who leads where the asker is wrong (KIP-951).
const LEADER_TAGS_FROM: i16 = 10;

struct Begun {
    topic: usize,
    index: i32,
    partition: Option<PartitionId>,
    outcome: Result<Asked, PublishRefusal>,
}

/// Publishes to every partition named, each for itself. Whatever `acks` says, an answer means that
/// the topic's durability is reached.
///
/// # Errors
/// A body that is no such request.
pub(super) async fn produce(call: Call, body: Bytes) -> Result<Pending, End> {
    let plan = ProducePlan::read(body, call.version)?;
    let allowed = admit(&call, &plan);
    let deadline = call.shard.now().monotonic.plus_ms(plan.wait_ms);
    let ProducePlan {
        acks,
        topics,
        partitions,
        ..
    } = plan;
    let mut begun = Vec::with_capacity(partitions.len());
    for planned in partitions {
        let (topic, index) = (planned.topic, planned.index);
        let (partition, outcome) = match (allowed, topics.get(topic)) {
            (Ok(()), Some(key)) => begin(&call, key, planned, deadline).await,
            (Err(rejection), _) => (None, Err(rejection.into())),
            (Ok(()), None) => (None, Err(Rejection::UnknownTopicOrPartition.into())),
        };
        begun.push(Begun {
            topic,
            index,
            partition,
            outcome,
        });
    }
    Ok(Pending::later(finish(call, acks, topics, begun)))
}

/// What holds for the request as a whole.
fn admit(call: &Call, plan: &ProducePlan) -> Result<(), Rejection> {
    if !(-1..=1).contains(&plan.acks) {
        return Err(Rejection::InvalidRequiredAcks);
    }
    if plan.is_transactional {
        return Err(Rejection::TransactionalIdAuthorizationFailed);
    }
    call.admit(Load::Publish)
}

async fn begin(
    call: &Call,
    key: &TopicKey,
    planned: PlannedPartition,
    deadline: Monotonic,
) -> (Option<PartitionId>, Result<Asked, PublishRefusal>) {
    let (partition, rules) = match find(call, key, planned.index) {
        Ok(found) => found,
        Err(rejection) => return (None, Err(rejection.into())),
    };
    let records = planned.records;
    if let Err(rejection) = check_records(&records, call.version) {
        return (Some(partition), Err(rejection.into()));
    }
    let asked = match call.shard.inspect(records, rules).await {
        Ok(batches) => {
            let publish = Publish {
                partition,
                batches,
                leader_epoch: None,
                deadline,
            };
            Ok(call.shard.ask(partition, Request::Publish(publish)))
        }
        Err(refusal) => Err(refusal),
    };
    (Some(partition), asked)
}

fn find(call: &Call, key: &TopicKey, index: i32) -> Result<(PartitionId, PublishRules), Rejection> {
    let wall = call.shard.now().wall;
    call.shard.image(|image| {
        let topic = key.find(image, call.tenant())?;
        call.authorize(Action::WriteTopic(&topic.name))?;
        let partition = partition_of(topic, index)?;
        let rules = PublishRules {
            batch_bytes_max: topic.settings.max_message_bytes as usize,
            inline_bytes_max: INLINE_BYTES_MAX,
            batches_max: BATCHES_PER_PARTITION,
            wall,
        };
        Ok((partition, rules))
    })
}

async fn finish(call: Call, acks: i16, topics: Vec<TopicKey>, begun: Vec<Begun>) -> Answered {
    let mut answered = Vec::with_capacity(begun.len());
    let mut refusal = None;
    for Begun {
        topic,
        index,
        partition,
        outcome,
    } in begun
    {
        let outcome = match outcome {
            Ok(asked) => expect(asked.await, |response| match response {
                Response::Published(published) => Some(published),
                _ => None,
            })
            .map_err(PublishRefusal::from),
            Err(refusal) => Err(refusal),
        };
        let rejection = outcome.as_ref().err().map(|refused| refused.rejection);
        refusal = refusal.or(rejection);
        let is_misled = rejection == Some(Rejection::NotLeader) && call.version >= LEADER_TAGS_FROM;
        let leader = partition
            .filter(|_| is_misled)
            .and_then(|partition| leader(&call, partition));
        let response = match &outcome {
            Ok(kept) => published(index, kept),
            Err(refusal) => refused(index, refusal),
        };
        answered.push(AnsweredPartition {
            topic,
            response,
            leader,
        });
    }
    match (acks, refusal) {
        (0, None) => Answered::Nothing,
        (0, Some(rejection)) => Answered::End(End::RefusedWithoutAnswer(rejection)),
        _ => call.answer(&response(&topics, answered)),
    }
}

/// Who leads a partition, and in which epoch.
pub(super) fn leader(call: &Call, partition: PartitionId) -> Option<(Node, i32)> {
    let shard = Rc::clone(&call.shard);
    shard.image(|image| {
        let partition = image.partition(partition)?;
        Some((
            Node::of(image, partition.leader)?,
            partition.leader_epoch.to_wire(),
        ))
    })
}
