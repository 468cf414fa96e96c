//! Administration of topics: CreateTopics, DeleteTopics.

use corelog_engine::admission::{Action, Load};
use corelog_engine::metadata::Refusal;
use corelog_engine::rejection::Rejection;
use corelog_net::kafka::TopicKey;
use corelog_net::kafka::topics::{created, deleted, not_created, repeated_names, topic_request};
use corelog_wire::{
    CreatableTopic, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
    DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, Uuid, WireString,
};

use super::call::{Call, Pending};

/// First version of DeleteTopics that may name topics by id.
const DELETE_BY_ID_FROM: i16 = 6;

fn refuse(rejection: Rejection) -> Refusal {
    Refusal::new(rejection, rejection.text())
}

/// CreateTopics: one after the other, each for itself.
pub(super) fn create(call: Call, request: CreateTopicsRequest) -> Pending {
    Pending::later(async move {
        let repeated = repeated_names(&request.topics);
        let mut response = CreateTopicsResponse::default();
        let mut told = std::collections::BTreeSet::new();
        for topic in &request.topics {
            if !repeated.contains(&topic.name) {
                response
                    .topics
                    .push(create_one(&call, topic, request.validate_only).await);
            } else if told.insert(topic.name.clone()) {
                let refusal = Refusal::new(
                    Rejection::InvalidRequest,
                    "the request names the topic more than once",
                );
                response
                    .topics
                    .push(not_created(topic.name.clone(), &refusal));
            }
        }
        call.answer(&response)
    })
}

async fn create_one(
    call: &Call,
    topic: &CreatableTopic,
    validate_only: bool,
) -> CreatableTopicResult {
    let allowed = call
        .authorize(Action::AlterTopic(&topic.name))
        .and_then(|()| call.admit(Load::Creation));
    let outcome = match allowed {
        Ok(()) => {
            call.shard
                .create_topic(topic_request(topic, call.tenant(), validate_only))
                .await
        }
        Err(rejection) => Err(refuse(rejection)),
    };
    match outcome {
        Ok(plan) => created(topic.name.clone(), &plan, validate_only),
        Err(refusal) => not_created(topic.name.clone(), &refusal),
    }
}

/// DeleteTopics: by name, or by id.
pub(super) fn delete(call: Call, request: DeleteTopicsRequest) -> Pending {
    Pending::later(async move {
        let mut response = DeleteTopicsResponse::default();
        for name in &request.topic_names {
            response
                .responses
                .push(delete_one(&call, Some(name.clone()), Uuid::ZERO).await);
        }
        for topic in &request.topics {
            response
                .responses
                .push(delete_one(&call, topic.name.clone(), topic.topic_id).await);
        }
        call.answer(&response)
    })
}

async fn delete_one(call: &Call, name: Option<WireString>, id: Uuid) -> DeletableTopicResult {
    let key = match &name {
        Some(name) => TopicKey::Name(name.clone()),
        None => TopicKey::new(&WireString::default(), id, true),
    };
    let found = call.shard.image(|image| {
        key.find(image, call.tenant())
            .map(|topic| (topic.id, topic.name.clone()))
    });
    let outcome = match &found {
        Ok((_, name)) => call.authorize(Action::AlterTopic(name)),
        Err(rejection) => Err(*rejection),
    };
    let outcome = match (outcome, &found) {
        (Ok(()), Ok((topic, _))) => call.shard.delete_topic(*topic).await,
        (Err(rejection), _) => Err(refuse(rejection)),
        (Ok(()), Err(rejection)) => Err(refuse(*rejection)),
    };
    let with_ids = call.version >= DELETE_BY_ID_FROM;
    let known = found.ok();
    let told_name = name.or_else(|| {
        known
            .as_ref()
            .map(|(_, name)| WireString::from(name.as_str()))
    });
    let told_id = known
        .filter(|_| with_ids)
        .map_or(id, |(topic, _)| Uuid(*topic.bytes()));
    deleted(told_name, told_id, outcome)
}
