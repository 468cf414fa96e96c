//! DescribeConfigs.

use corelog_engine::metadata::{Refusal, SettingDescription, SettingKind, Topic};
use corelog_wire::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult,
    DescribeConfigsSynonym, WireString,
};

use super::error_code;

/// Resource type of a topic.
pub const RESOURCE_TOPIC: i8 = 2;
/// Resource type of a broker.
pub const RESOURCE_BROKER: i8 = 4;

/// Somebody asked for it on the topic.
pub(super) const SOURCE_TOPIC: i8 = 1;
/// The broker was started with it.
const SOURCE_STATIC: i8 = 4;
/// Nobody asked for it.
pub(super) const SOURCE_DEFAULT: i8 = 5;

/// What of the settings is wanted beside their values.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigDetail {
    /// Where else the value would come from.
    pub synonyms: bool,
    /// What it does.
    pub documentation: bool,
}

/// The settings of a topic.
pub fn topic_configs(
    resource: &DescribeConfigsResource,
    topic: &Topic,
    detail: ConfigDetail,
) -> DescribeConfigsResult {
    let settings = topic.settings.describe(topic.partitioner);
    described(resource, settings, SOURCE_TOPIC, detail)
}

/// One setting of a broker, fixed at its start.
pub fn broker_setting(
    name: &'static str,
    value: String,
    kind: SettingKind,
    documentation: &'static str,
) -> SettingDescription {
    SettingDescription {
        name,
        value,
        is_default: false,
        read_only: true,
        kind,
        documentation,
    }
}

/// The settings of a broker.
pub fn broker_configs(
    resource: &DescribeConfigsResource,
    settings: Vec<SettingDescription>,
    detail: ConfigDetail,
) -> DescribeConfigsResult {
    described(resource, settings, SOURCE_STATIC, detail)
}

fn described(
    resource: &DescribeConfigsResource,
    settings: Vec<SettingDescription>,
    source: i8,
    detail: ConfigDetail,
) -> DescribeConfigsResult {
    let is_wanted = |setting: &SettingDescription| match &resource.configuration_keys {
        Some(keys) => keys.iter().any(|key| *key == setting.name),
        None => true,
    };
    let wanted = settings.into_iter().filter(is_wanted);
    DescribeConfigsResult {
        configs: wanted
            .map(|setting| described_setting(setting, source, detail))
            .collect(),
        ..unknown(resource)
    }
}

fn described_setting(
    setting: SettingDescription,
    source: i8,
    detail: ConfigDetail,
) -> DescribeConfigsResourceResult {
    let source = if setting.is_default {
        SOURCE_DEFAULT
    } else {
        source
    };
    let name = WireString::from_static(setting.name);
    let value = Some(WireString::from(setting.value));
    let synonym = DescribeConfigsSynonym {
        name: name.clone(),
        value: value.clone(),
        source,
    };
    DescribeConfigsResourceResult {
        name,
        value,
        read_only: setting.read_only,
        config_source: source,
        synonyms: if detail.synonyms {
            vec![synonym]
        } else {
            Vec::new()
        },
        config_type: setting.kind.code(),
        documentation: detail
            .documentation
            .then(|| WireString::from_static(setting.documentation)),
        ..DescribeConfigsResourceResult::default()
    }
}

/// The answer for a resource that is not described.
pub fn not_described(
    resource: &DescribeConfigsResource,
    refusal: &Refusal,
) -> DescribeConfigsResult {
    DescribeConfigsResult {
        error_code: error_code(refusal.rejection),
        error_message: Some(WireString::from(refusal.detail.as_str())),
        ..unknown(resource)
    }
}

fn unknown(resource: &DescribeConfigsResource) -> DescribeConfigsResult {
    DescribeConfigsResult {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.detached(),
        ..DescribeConfigsResult::default()
    }
}
