//! `POST /v1/topics/{topic}/messages:publish`.

use std::num::NonZeroU32;

use corelog_engine::admission::{Action, Load};
use corelog_engine::identity::PartitionId;
use corelog_engine::limits::INLINE_BYTES_MAX;
use corelog_engine::publish::PublishRules;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Publish, Published, Request, Response};
use corelog_net::http::publish::PublishBody;
use corelog_net::http::{
    Answer, Problem, PublishContext, parse_body, plan_publish, publish_answer,
};

use super::exchange::{Exchange, compute, next_number};
use crate::randomness::random_id;
use crate::shard::Asked;

/// How long a publish may take before its messages are answered `unknown`.
const PUBLISH_WAIT_MS: u64 = 30_000;

/// The body, and the batches built from it.
const COPIES: usize = 2;

/// Stores the messages and answers what became of each.
pub(super) async fn publish(exchange: &mut Exchange, topic: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::WriteTopic(topic))?;
    exchange.admit(Load::Publish)?;
    let facts = exchange.topic(topic)?;
    let partitions = NonZeroU32::new(facts.partitions).ok_or(Rejection::UnknownTopicOrPartition)?;
    let body = exchange.read_body(COPIES).await?;
    let shard = &exchange.shard;
    let now = shard.now();
    let context = PublishContext {
        partitions,
        batch_bytes_max: facts.batch_bytes_max,
        inline_bytes_max: INLINE_BYTES_MAX,
        now: now.wall,
        unkeyed: next_number(),
        message_id_seed: u128::from_be_bytes(random_id()),
    };
    let planned = compute(body.len(), move || {
        plan_publish(&parse_body::<PublishBody<'_>>(&body)?, &context)
    });
    let mut plan = planned.await?;
    let rules = PublishRules {
        batch_bytes_max: facts.batch_bytes_max,
        inline_bytes_max: INLINE_BYTES_MAX,
        batches_max: 1,
        wall: now.wall,
    };
    let deadline = now.monotonic.plus_ms(PUBLISH_WAIT_MS);
    // All batches have their place in their partitions' order before any is waited for.
    let mut asked: Vec<Result<Asked, Rejection>> = Vec::with_capacity(plan.batches.len());
    for batch in &mut plan.batches {
        // Taken, not cloned: a buffer with one owner is stamped in place.
        let bytes = std::mem::take(&mut batch.bytes);
        let partition = PartitionId {
            topic: facts.id,
            partition: batch.partition,
        };
        let inspected = shard.inspect(bytes, rules).await;
        asked.push(match inspected {
            Ok(batches) => Ok(shard.ask(
                partition,
                Request::Publish(Publish {
                    partition,
                    batches,
                    leader_epoch: None,
                    deadline,
                }),
            )),
            Err(refusal) => Err(refusal.rejection),
        });
    }
    let mut outcomes: Vec<Result<Published, Rejection>> = Vec::with_capacity(asked.len());
    for asked in asked {
        outcomes.push(match asked {
            Ok(asked) => stored(asked).await,
            Err(rejection) => Err(rejection),
        });
    }
    Ok(publish_answer(&plan, &outcomes))
}

async fn stored(asked: Asked) -> Result<Published, Rejection> {
    match asked.await? {
        Response::Published(published) => Ok(published),
        _ => Err(Rejection::RequestTimedOut),
    }
}
