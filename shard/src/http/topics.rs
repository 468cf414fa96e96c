//! `/v1/topics`: create, list, describe, delete.

use std::collections::BTreeMap;

use corelog_engine::admission::{Action, Load};
use corelog_engine::identity::{PartitionId, PartitionIndex};
use corelog_engine::metadata::decisions::TopicRequest;
use corelog_engine::metadata::settings::SettingDescription;
use corelog_engine::metadata::{Refusal, Topic};
use corelog_engine::rejection::Rejection;
use corelog_net::http::topics::{
    CreateTopicBody, PartitionState, TopicContract, topic_answer, topic_created_answer,
    topics_answer,
};
use corelog_net::http::{Answer, Page, Problem, parse_body};

use super::exchange::Exchange;

/// A refusal by the control plane, with its reason.
pub(super) fn refused(refusal: Refusal) -> Problem {
    Problem::rejected(refusal.rejection).with_detail(refusal.detail)
}

/// `POST /v1/topics`.
pub(super) async fn create(exchange: &mut Exchange) -> Result<Answer, Problem> {
    exchange.admit(Load::Creation)?;
    let body = exchange.read_body(1).await?;
    let wanted: CreateTopicBody = parse_body(&body)?;
    exchange.authorize(Action::AlterTopic(&wanted.name))?;
    let partitions = match wanted.partitions.map(i32::try_from) {
        None => -1,
        Some(Ok(partitions)) => partitions,
        Some(Err(_)) => return Err(Rejection::InvalidPartitions.into()),
    };
    let configs = wanted.settings.into_iter();
    let request = TopicRequest {
        tenant: exchange.principal.tenant.clone(),
        name: wanted.name.clone(),
        partitions,
        replication_factor: -1,
        assignments: Vec::new(),
        configs: configs.map(|(key, value)| (key, Some(value))).collect(),
        validate_only: false,
    };
    let plan = exchange.shard.create_topic(request).await;
    let plan = plan.map_err(refused)?;
    Ok(topic_created_answer(&TopicContract {
        name: wanted.name,
        id: plan.topic,
        partitions: plan.partitions,
        durability: plan.settings.durability,
        settings: explicit(plan.settings.describe(plan.partitioner)),
    }))
}

/// `GET /v1/topics`. The broker's own topics are not listed.
pub(super) fn list(exchange: &Exchange, page: &Page) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseCluster)?;
    exchange.admit(Load::Other)?;
    let mut contracts: Vec<TopicContract> = exchange.image(|image, tenant| {
        let is_after = |topic: &&Topic| page.after.as_ref().is_none_or(|name| topic.name > *name);
        let listed = image.topics_of(tenant).filter(|topic| !topic.internal);
        let on_page = listed.filter(is_after).take(page.limit + 1);
        on_page.map(contract).collect()
    });
    let more = contracts.len() > page.limit;
    contracts.truncate(page.limit);
    Ok(topics_answer(&contracts, more))
}

/// `GET /v1/topics/{topic}`.
pub(super) async fn describe(exchange: &Exchange, topic: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::ReadTopic(topic))?;
    exchange.admit(Load::Other)?;
    let contract = exchange
        .image(|image, tenant| image.topic_named(tenant, topic).map(contract))
        .ok_or(Rejection::UnknownTopicOrPartition)?;
    let partitions: Vec<PartitionId> = (0..contract.partitions)
        .map(|partition| PartitionId {
            topic: contract.id,
            partition: PartitionIndex(partition),
        })
        .collect();
    let described = exchange.describe_each(&partitions).await;
    let states: Vec<PartitionState> = partitions
        .iter()
        .map(|id| id.partition)
        .zip(described)
        .collect();
    Ok(topic_answer(&contract, &states))
}

/// `DELETE /v1/topics/{topic}`.
pub(super) async fn delete(exchange: &Exchange, topic: &str) -> Result<Answer, Problem> {
    exchange.authorize(Action::AlterTopic(topic))?;
    exchange.admit(Load::Other)?;
    let id = exchange.topic(topic)?.id;
    exchange.shard.delete_topic(id).await.map_err(refused)?;
    Ok(Answer::done())
}

fn contract(topic: &Topic) -> TopicContract {
    TopicContract {
        name: topic.name.clone(),
        id: topic.id,
        partitions: topic.partition_count(),
        durability: topic.settings.durability,
        settings: explicit(topic.settings.describe(topic.partitioner)),
    }
}

/// The settings that somebody asked for.
fn explicit(settings: Vec<SettingDescription>) -> BTreeMap<String, String> {
    let asked_for = settings.into_iter().filter(|setting| !setting.is_default);
    asked_for
        .map(|setting| (setting.name.to_owned(), setting.value))
        .collect()
}
