//! Administration of topics: CreateTopics, DeleteTopics.

use std::collections::BTreeSet;

use corelog_engine::metadata::decisions::{TopicPlan, TopicRequest};
use corelog_engine::metadata::{Refusal, SettingDescription};
use corelog_wire::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, DeletableTopicResult, ErrorCode,
    Uuid, WireString,
};

use super::configs::{SOURCE_DEFAULT, SOURCE_TOPIC};
use super::error_code;

/// What the engine is asked for a topic of a CreateTopics request.
pub fn topic_request(topic: &CreatableTopic, tenant: &str, validate_only: bool) -> TopicRequest {
    let assignment = |assigned: &corelog_wire::CreatableReplicaAssignment| {
        (assigned.partition_index, assigned.broker_ids.clone())
    };
    let config = |config: &corelog_wire::CreatableTopicConfig| {
        let value = config.value.as_ref().map(|value| value.to_string());
        (config.name.to_string(), value)
    };
    TopicRequest {
        tenant: tenant.to_owned(),
        name: topic.name.to_string(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic.assignments.iter().map(assignment).collect(),
        configs: topic.configs.iter().map(config).collect(),
        validate_only,
    }
}

/// Names that a request gives more than once; Kafka refuses each of them.
pub fn repeated_names(topics: &[CreatableTopic]) -> BTreeSet<WireString> {
    let mut seen = BTreeSet::new();
    let is_repeated = |topic: &&CreatableTopic| !seen.insert(topic.name.clone());
    let repeated = topics.iter().filter(is_repeated);
    repeated.map(|topic| topic.name.detached()).collect()
}

/// The answer for a topic that was made, or would be.
pub fn created(name: WireString, plan: &TopicPlan, validate_only: bool) -> CreatableTopicResult {
    let settings = plan.settings.describe(plan.partitioner);
    CreatableTopicResult {
        name,
        topic_id: if validate_only {
            Uuid::ZERO
        } else {
            Uuid(*plan.topic.bytes())
        },
        num_partitions: i32::try_from(plan.partitions).unwrap_or(i32::MAX),
        replication_factor: i16::try_from(plan.replication_factor).unwrap_or(i16::MAX),
        configs: settings.into_iter().map(created_config).collect(),
        ..CreatableTopicResult::default()
    }
}

fn created_config(setting: SettingDescription) -> CreatableTopicConfigs {
    CreatableTopicConfigs {
        name: WireString::from_static(setting.name),
        value: Some(WireString::from(setting.value)),
        read_only: setting.read_only,
        config_source: if setting.is_default {
            SOURCE_DEFAULT
        } else {
            SOURCE_TOPIC
        },
        is_sensitive: false,
    }
}

/// The answer for a topic that was not made.
pub fn not_created(name: WireString, refusal: &Refusal) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code: error_code(refusal.rejection),
        error_message: Some(WireString::from(refusal.detail.as_str())),
        ..CreatableTopicResult::default()
    }
}

/// The answer for a topic that was to be deleted.
pub fn deleted(
    name: Option<WireString>,
    topic_id: Uuid,
    outcome: Result<(), Refusal>,
) -> DeletableTopicResult {
    let (error_code, error_message) = match outcome {
        Ok(()) => (ErrorCode::NONE, None),
        Err(refusal) => (
            error_code(refusal.rejection),
            Some(WireString::from(refusal.detail)),
        ),
    };
    DeletableTopicResult {
        name,
        topic_id,
        error_code,
        error_message,
    }
}
