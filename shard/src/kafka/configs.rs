//! DescribeConfigs.

use corelog_engine::admission::{Action, INTERNAL_PREFIX};
use corelog_engine::limits::{BATCH_BYTES_MAX, INLINE_BYTES_MAX};
use corelog_engine::metadata::{Refusal, SettingDescription, SettingKind};
use corelog_engine::rejection::Rejection;
use corelog_net::kafka::TopicKey;
use corelog_net::kafka::configs::{
    ConfigDetail, RESOURCE_BROKER, RESOURCE_TOPIC, broker_configs, broker_setting, not_described,
    topic_configs,
};
use corelog_wire::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse, DescribeConfigsResult,
};

use super::call::{Call, Pending};

/// The settings of topics and of this broker.
pub(super) fn describe(call: Call, request: DescribeConfigsRequest) -> Pending {
    let detail = ConfigDetail {
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
    };
    let results = request
        .resources
        .iter()
        .map(|resource| describe_one(&call, resource, detail));
    let response = DescribeConfigsResponse {
        results: results.collect(),
        ..DescribeConfigsResponse::default()
    };
    call.ready(&response)
}

fn describe_one(
    call: &Call,
    resource: &DescribeConfigsResource,
    detail: ConfigDetail,
) -> DescribeConfigsResult {
    let described = match resource.resource_type {
        RESOURCE_TOPIC => describe_topic(call, resource, detail),
        RESOURCE_BROKER => describe_broker(call, resource, detail),
        other => Err(Refusal::new(
            Rejection::InvalidRequest,
            format!("resources of type {other} have no settings here"),
        )),
    };
    described.unwrap_or_else(|refusal| not_described(resource, &refusal))
}

fn describe_topic(
    call: &Call,
    resource: &DescribeConfigsResource,
    detail: ConfigDetail,
) -> Result<DescribeConfigsResult, Refusal> {
    let refuse = |rejection: Rejection| Refusal::new(rejection, rejection.text());
    call.authorize(Action::ReadTopic(&resource.resource_name))
        .map_err(refuse)?;
    call.shard.image(|image| {
        let topic = TopicKey::Name(resource.resource_name.clone())
            .find(image, call.tenant())
            .map_err(refuse)?;
        Ok(topic_configs(resource, topic, detail))
    })
}

fn describe_broker(
    call: &Call,
    resource: &DescribeConfigsResource,
    detail: ConfigDetail,
) -> Result<DescribeConfigsResult, Refusal> {
    let refuse = |rejection: Rejection| Refusal::new(rejection, rejection.text());
    call.authorize(Action::UseCluster).map_err(refuse)?;
    let own = call.shard.settings().broker.get().to_string();
    if resource.resource_name == own.as_str() {
        return Ok(broker_configs(resource, broker_settings(call), detail));
    }
    if resource.resource_name.is_empty() {
        // The default of all brokers: nothing can be set for all of them at once.
        return Ok(broker_configs(resource, Vec::new(), detail));
    }
    Err(Refusal::new(
        Rejection::InvalidRequest,
        format!("broker {own} describes its own settings only; ask the other broker"),
    ))
}

fn broker_settings(call: &Call) -> Vec<SettingDescription> {
    let settings = call.shard.settings();
    let text = SettingKind::String;
    let listener = format!(
        "PLAINTEXT://{}:{}",
        settings.advertised_host, settings.kafka_port
    );
    vec![
        broker_setting(
            "advertised.listeners",
            listener,
            text,
            "What Kafka clients are told.",
        ),
        broker_setting(
            "auto.create.topics.enable",
            settings.auto_create_topics.to_string(),
            SettingKind::Boolean,
            "Whether a topic is made when a client first names it.",
        ),
        broker_setting(
            "broker.id",
            settings.broker.get().to_string(),
            SettingKind::Int,
            "The broker's number.",
        ),
        broker_setting(
            "broker.rack",
            settings.zone.clone(),
            text,
            "The broker's zone.",
        ),
        broker_setting(
            "corelog.cores",
            settings.cores.to_string(),
            SettingKind::Int,
            "Cores of the broker.",
        ),
        broker_setting(
            "corelog.inline_bytes_max",
            INLINE_BYTES_MAX.to_string(),
            SettingKind::Int,
            "Largest record, in bytes.",
        ),
        broker_setting(
            "corelog.internal_prefix",
            INTERNAL_PREFIX.to_owned(),
            text,
            "Topics whose names begin so belong to the broker.",
        ),
        broker_setting(
            "message.max.bytes",
            BATCH_BYTES_MAX.to_string(),
            SettingKind::Int,
            "Largest record batch, in bytes.",
        ),
        broker_setting(
            "num.partitions",
            settings.defaults.partitions.to_string(),
            SettingKind::Int,
            "Partitions of a topic that does not say how many.",
        ),
    ]
}
