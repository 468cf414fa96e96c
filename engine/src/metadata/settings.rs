//! What a topic can be told: settings, their rules, and their descriptions.
//!
//! Names are Kafka's where Kafka has the setting, and start with `corelog.` where it has not.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::codec::{DecodeError, Reader, Writer};
use super::refusal::Refusal;
use crate::limits::{BATCH_BYTES_MAX, SEGMENT_BYTES_DEFAULT};
use crate::rejection::Rejection;
use crate::request::Durability;

/// Smallest segment a topic may ask for, in bytes.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Largest segment a topic may ask for, in bytes: positions in a Kafka index are 32 bits wide.
pub const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;
/// Retention and rolling by time unless a topic says otherwise, in milliseconds: seven days.
pub const RETENTION_MS_DEFAULT: u64 = 7 * 24 * 60 * 60 * 1_000;

/// How a key finds its partition; fixed when the topic is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioner {
    /// The hash of Kafka's own clients, so that every face puts a key in the same place.
    #[default]
    Murmur2,
    /// The hash of tenant, topic and key. It has its place in the stored form, and is refused at creation until
    /// clients can route by it: a topic whose name for it meant nothing would scatter keys later.
    Routed,
}

impl Partitioner {
    /// The name in topic configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Murmur2 => "murmur2",
            Self::Routed => "routed",
        }
    }
}

/// What the time stamp of a batch means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The broker's, at append.
    LogAppendTime,
}

impl TimestampType {
    /// The name in topic configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateTime => "CreateTime",
            Self::LogAppendTime => "LogAppendTime",
        }
    }
}

/// Whether the order per key outlives a change of the partition count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// Adding partitions is allowed, and moves keys.
    #[default]
    Relaxed,
    /// Adding partitions is refused until slots can be moved in order.
    Strict,
}

impl KeyOrder {
    /// The name in topic configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relaxed => "relaxed",
            Self::Strict => "strict",
        }
    }
}

/// A topic's settings, complete: what was not asked for has the default of its day, so a later
/// change of defaults changes no topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Closed segments older than this go, in milliseconds; `None`: none goes by age.
    pub retention_ms: Option<u64>,
    /// The oldest segments of a partition go above this, in bytes; `None`: none goes by size.
    pub retention_bytes: Option<u64>,
    /// A segment rolls at this size, in bytes.
    pub segment_bytes: u64,
    /// A segment rolls at this age, in milliseconds.
    pub segment_ms: u64,
    /// Largest batch, in bytes.
    pub max_message_bytes: u32,
    /// What time stamps mean.
    pub timestamp_type: TimestampType,
    /// What an acknowledgement means.
    pub durability: Durability,
    /// Whether partitions may be added.
    pub key_order: KeyOrder,
    /// Which of them somebody asked for.
    pub explicit: ExplicitSettings,
}

/// The set of settings that somebody asked for; the others have defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExplicitSettings(u16);

impl ExplicitSettings {
    /// Whether `setting` was asked for.
    pub const fn contains(self, setting: Setting) -> bool {
        self.0 & (1 << setting as u16) != 0
    }

    fn insert(&mut self, setting: Setting) {
        self.0 |= 1 << setting as u16;
    }
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            retention_ms: Some(RETENTION_MS_DEFAULT),
            retention_bytes: None,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            segment_ms: RETENTION_MS_DEFAULT,
            max_message_bytes: BATCH_BYTES_MAX as u32,
            timestamp_type: TimestampType::CreateTime,
            durability: Durability::OneDisk,
            key_order: KeyOrder::Relaxed,
            explicit: ExplicitSettings::default(),
        }
    }
}

/// Every setting a topic has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Always `delete`.
    CleanupPolicy,
    /// [`TopicSettings::durability`].
    Durability,
    /// [`TopicSettings::key_order`].
    KeyOrder,
    /// The topic's [`Partitioner`].
    Partitioner,
    /// [`TopicSettings::max_message_bytes`].
    MaxMessageBytes,
    /// [`TopicSettings::timestamp_type`].
    TimestampType,
    /// [`TopicSettings::retention_bytes`].
    RetentionBytes,
    /// [`TopicSettings::retention_ms`].
    RetentionMs,
    /// [`TopicSettings::segment_bytes`].
    SegmentBytes,
    /// [`TopicSettings::segment_ms`].
    SegmentMs,
}

/// The type of a setting's value, by Kafka's numbering (DescribeConfigs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// true or false.
    Boolean,
    /// Text.
    String,
    /// 32 bits, signed.
    Int,
    /// 64 bits, signed.
    Long,
    /// Texts with commas between them.
    List,
}

impl SettingKind {
    /// The number on the wire.
    pub const fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Long => 5,
            Self::List => 7,
        }
    }
}

/// One setting as described to administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDescription {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Whether nobody asked for it.
    pub is_default: bool,
    /// Whether it cannot be changed on what exists.
    pub read_only: bool,
    /// Its type.
    pub kind: SettingKind,
    /// What it does.
    pub documentation: &'static str,
}

impl Setting {
    /// All, by name.
    pub const ALL: &'static [Self] = &[
        Self::CleanupPolicy,
        Self::Durability,
        Self::KeyOrder,
        Self::Partitioner,
        Self::MaxMessageBytes,
        Self::TimestampType,
        Self::RetentionBytes,
        Self::RetentionMs,
        Self::SegmentBytes,
        Self::SegmentMs,
    ];

    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CleanupPolicy => "cleanup.policy",
            Self::Durability => "corelog.durability",
            Self::KeyOrder => "corelog.key_order",
            Self::Partitioner => "corelog.partitioner",
            Self::MaxMessageBytes => "max.message.bytes",
            Self::TimestampType => "message.timestamp.type",
            Self::RetentionBytes => "retention.bytes",
            Self::RetentionMs => "retention.ms",
            Self::SegmentBytes => "segment.bytes",
            Self::SegmentMs => "segment.ms",
        }
    }

    /// The setting of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|setting| setting.name() == name)
    }

    /// Whether it is fixed when the topic is made.
    pub const fn read_only(self) -> bool {
        matches!(
            self,
            Self::CleanupPolicy | Self::Partitioner | Self::Durability
        )
    }

    /// The type of its value.
    pub const fn kind(self) -> SettingKind {
        match self {
            Self::CleanupPolicy => SettingKind::List,
            Self::Durability | Self::KeyOrder | Self::Partitioner | Self::TimestampType => {
                SettingKind::String
            }
            Self::MaxMessageBytes | Self::SegmentBytes => SettingKind::Int,
            Self::RetentionBytes | Self::RetentionMs | Self::SegmentMs => SettingKind::Long,
        }
    }

    /// What it does.
    pub const fn documentation(self) -> &'static str {
        match self {
            Self::CleanupPolicy => "What becomes of old segments; delete is all there is.",
            Self::Durability => {
                "What an acknowledgement means: one-disk (stable storage of one broker) or \
                 two-zones (stable storage in two zones). Fixed at creation."
            }
            Self::KeyOrder => {
                "strict refuses to add partitions, since that moves keys; relaxed allows it."
            }
            Self::Partitioner => {
                "How a key finds its partition: murmur2, as Kafka's own clients do. Fixed at creation."
            }
            Self::MaxMessageBytes => "Largest record batch accepted, in bytes.",
            Self::TimestampType => {
                "CreateTime keeps the producer's time stamps, LogAppendTime sets the broker's."
            }
            Self::RetentionBytes => {
                "Above this size a partition loses its oldest segments, in bytes; -1 for never."
            }
            Self::RetentionMs => {
                "Segments older than this by append time are deleted, in milliseconds; -1 for \
                 never."
            }
            Self::SegmentBytes => "Size at which a segment rolls, in bytes.",
            Self::SegmentMs => "Age at which a segment rolls, in milliseconds.",
        }
    }
}

impl TopicSettings {
    /// These settings with `configs` taken into them, and the partitioner if they name one.
    ///
    /// # Errors
    /// [`Rejection::InvalidConfig`], with the key in the detail, for a key that is unknown or given
    /// twice, and for a value that is missing or outside its rules.
    pub fn with_configs(
        &self,
        configs: &[(String, Option<String>)],
    ) -> Result<(Self, Option<Partitioner>), Refusal> {
        let mut settings = self.clone();
        let mut partitioner = None;
        let mut seen = ExplicitSettings::default();
        for (key, value) in configs {
            let Some(setting) = Setting::named(key) else {
                return Err(invalid(key, "is not a setting of a topic"));
            };
            if seen.contains(setting) {
                return Err(invalid(key, "is given twice"));
            }
            seen.insert(setting);
            let Some(value) = value.as_deref() else {
                return Err(invalid(key, "has no value"));
            };
            if setting == Setting::Partitioner {
                partitioner = Some(partitioner_named(key, value)?);
            } else {
                settings.set(setting, value)?;
            }
            settings.explicit.insert(setting);
        }
        Ok((settings, partitioner))
    }

    fn set(&mut self, setting: Setting, value: &str) -> Result<(), Refusal> {
        let key = setting.name();
        match setting {
            Setting::CleanupPolicy if value == "delete" => {}
            Setting::CleanupPolicy => return Err(invalid(key, "must be delete")),
            Setting::Durability => {
                self.durability = match value {
                    "one-disk" => Durability::OneDisk,
                    "two-zones" => Durability::TwoZones,
                    _ => return Err(invalid(key, "must be one-disk or two-zones")),
                }
            }
            Setting::KeyOrder => {
                self.key_order = match value {
                    "relaxed" => KeyOrder::Relaxed,
                    "strict" => KeyOrder::Strict,
                    _ => return Err(invalid(key, "must be relaxed or strict")),
                }
            }
            Setting::Partitioner => {}
            Setting::MaxMessageBytes => {
                self.max_message_bytes = number(key, value, 1, BATCH_BYTES_MAX as u64)? as u32;
            }
            Setting::TimestampType => {
                self.timestamp_type = match value {
                    "CreateTime" => TimestampType::CreateTime,
                    "LogAppendTime" => TimestampType::LogAppendTime,
                    _ => return Err(invalid(key, "must be CreateTime or LogAppendTime")),
                }
            }
            Setting::RetentionBytes => self.retention_bytes = number_or_never(key, value)?,
            Setting::RetentionMs => self.retention_ms = number_or_never(key, value)?,
            Setting::SegmentBytes => {
                self.segment_bytes = number(key, value, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)?;
            }
            Setting::SegmentMs => self.segment_ms = number(key, value, 1, i64::MAX as u64)?,
        }
        Ok(())
    }

    /// All settings of a topic with these and that partitioner, by name.
    pub fn describe(&self, partitioner: Partitioner) -> Vec<SettingDescription> {
        let describe = |&setting: &Setting| SettingDescription {
            name: setting.name(),
            value: self.value(setting, partitioner),
            is_default: !self.explicit.contains(setting),
            read_only: setting.read_only(),
            kind: setting.kind(),
            documentation: setting.documentation(),
        };
        Setting::ALL.iter().map(describe).collect()
    }

    fn value(&self, setting: Setting, partitioner: Partitioner) -> String {
        match setting {
            Setting::CleanupPolicy => "delete".to_string(),
            Setting::Durability => self.durability.name().to_string(),
            Setting::KeyOrder => self.key_order.name().to_string(),
            Setting::Partitioner => partitioner.name().to_string(),
            Setting::MaxMessageBytes => self.max_message_bytes.to_string(),
            Setting::TimestampType => self.timestamp_type.name().to_string(),
            Setting::RetentionBytes => never_or_number(self.retention_bytes),
            Setting::RetentionMs => never_or_number(self.retention_ms),
            Setting::SegmentBytes => self.segment_bytes.to_string(),
            Setting::SegmentMs => self.segment_ms.to_string(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.option_u64(self.retention_ms);
        out.option_u64(self.retention_bytes);
        out.u64(self.segment_bytes);
        out.u64(self.segment_ms);
        out.u32(self.max_message_bytes);
        out.bool(self.timestamp_type == TimestampType::LogAppendTime);
        out.bool(self.durability == Durability::TwoZones);
        out.bool(self.key_order == KeyOrder::Strict);
        out.u16(self.explicit.0);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            retention_ms: from.option_u64()?,
            retention_bytes: from.option_u64()?,
            segment_bytes: from.u64()?,
            segment_ms: from.u64()?,
            max_message_bytes: from.u32()?,
            timestamp_type: match from.bool()? {
                false => TimestampType::CreateTime,
                true => TimestampType::LogAppendTime,
            },
            durability: match from.bool()? {
                false => Durability::OneDisk,
                true => Durability::TwoZones,
            },
            key_order: match from.bool()? {
                false => KeyOrder::Relaxed,
                true => KeyOrder::Strict,
            },
            explicit: ExplicitSettings(from.u16()?),
        })
    }
}

impl Partitioner {
    pub(crate) fn encode(self, out: &mut Writer) {
        out.bool(self == Self::Routed);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.bool()? {
            false => Self::Murmur2,
            true => Self::Routed,
        })
    }
}

/// A key comes from outside and may be as long as a frame: its beginning names it well enough.
fn invalid(key: &str, what: &str) -> Refusal {
    let key: String = key.chars().take(100).collect();
    Refusal::new(Rejection::InvalidConfig, format!("{key} {what}"))
}

fn partitioner_named(key: &str, value: &str) -> Result<Partitioner, Refusal> {
    match value {
        "murmur2" => Ok(Partitioner::Murmur2),
        "routed" => Err(invalid(key, "is not offered as routed yet; use murmur2")),
        _ => Err(invalid(key, "must be murmur2")),
    }
}

fn number(key: &str, value: &str, min: u64, max: u64) -> Result<u64, Refusal> {
    match value.trim().parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(invalid(
            key,
            &format!("must be a whole number from {min} to {max}"),
        )),
    }
}

fn number_or_never(key: &str, value: &str) -> Result<Option<u64>, Refusal> {
    match value.trim().parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(number) if number >= 0 => Ok(Some(number as u64)),
        _ => Err(invalid(
            key,
            "must be a whole number, 0 or more, or -1 for never",
        )),
    }
}

fn never_or_number(value: Option<u64>) -> String {
    value.map_or_else(|| "-1".to_string(), |number| number.to_string())
}
