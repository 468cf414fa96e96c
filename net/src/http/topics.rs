//! Topics: create, list, describe. (Deletion has no body and answers [`Answer::done`].)

use std::collections::BTreeMap;
use std::fmt;

use corelog_engine::identity::{PartitionIndex, TopicId};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Durability, PartitionDescription};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::limits::TOPIC_SETTINGS_MAX;
use super::problem::PartProblem;

/// The body of `POST /v1/topics`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTopicBody {
    /// Its name.
    pub name: String,
    /// How many partitions; the broker's default where absent.
    pub partitions: Option<u32>,
    /// Settings by name, as in Kafka's topic configuration.
    #[serde(default, deserialize_with = "settings")]
    pub settings: BTreeMap<String, String>,
}

/// Settings, each once: where a name stands twice, neither value is surely the meant one.
fn settings<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    struct SettingsVisitor;
    impl<'de> Visitor<'de> for SettingsVisitor {
        type Value = BTreeMap<String, String>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {TOPIC_SETTINGS_MAX} settings, names to strings")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut settings = BTreeMap::new();
            while let Some((name, value)) = map.next_entry()? {
                if settings.len() == TOPIC_SETTINGS_MAX {
                    return Err(A::Error::custom(format_args!(
                        "more than {TOPIC_SETTINGS_MAX} settings"
                    )));
                }
                if settings.insert(name, value).is_some() {
                    return Err(A::Error::custom("a setting stands twice"));
                }
            }
            Ok(settings)
        }
    }
    deserializer.deserialize_map(SettingsVisitor)
}

/// A topic's contract, as answered by creation and description.
#[derive(Clone, Debug)]
pub struct TopicContract {
    /// Its name.
    pub name: String,
    /// Its incarnation.
    pub id: TopicId,
    /// How many partitions.
    pub partitions: u32,
    /// What an acknowledgement means.
    pub durability: Durability,
    /// Its settings, in the order in which they are shown.
    pub settings: BTreeMap<String, String>,
}

/// One partition in a description: what it holds, or why that is not known now.
pub type PartitionState = (PartitionIndex, Result<PartitionDescription, Rejection>);

#[derive(Serialize)]
struct TopicView<'a> {
    name: &'a str,
    id: String,
    partitions: u32,
    durability: &'static str,
    settings: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_states: Option<Vec<PartitionView>>,
}

#[derive(Serialize)]
struct PartitionView {
    partition: u32,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    held: Option<HeldView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<PartProblem>,
}

#[derive(Serialize)]
struct HeldView {
    leader_epoch: u32,
    log_start: u64,
    watermark: u64,
    log_end: u64,
    log_bytes: u64,
}

impl<'a> TopicView<'a> {
    fn new(contract: &'a TopicContract) -> Self {
        Self {
            name: &contract.name,
            id: contract.id.to_string(),
            partitions: contract.partitions,
            durability: contract.durability.name(),
            settings: &contract.settings,
            partition_states: None,
        }
    }
}

/// 201 with the contract.
pub fn topic_created_answer(contract: &TopicContract) -> Answer {
    Answer::json(201, &TopicView::new(contract))
}

/// 200 with the contract and what each partition holds.
pub fn topic_answer(contract: &TopicContract, partitions: &[PartitionState]) -> Answer {
    let states = partitions.iter().map(|(partition, state)| PartitionView {
        partition: partition.get(),
        held: state.ok().map(|held| HeldView {
            leader_epoch: held.leader_epoch.get(),
            log_start: held.log_start.get(),
            watermark: held.watermark.get(),
            log_end: held.log_end.get(),
            log_bytes: held.log_bytes,
        }),
        error: state
            .err()
            .map(|rejection| PartProblem::new(rejection, None)),
    });
    let view = TopicView {
        partition_states: Some(states.collect()),
        ..TopicView::new(contract)
    };
    Answer::json(200, &view)
}

/// 200 with one page of contracts, in the order of names, and `next_after` while there are more.
pub fn topics_answer(contracts: &[TopicContract], more: bool) -> Answer {
    #[derive(Serialize)]
    struct Listing<'a> {
        topics: Vec<TopicView<'a>>,
        next_after: Option<&'a str>,
    }
    let last = contracts.last().map(|contract| contract.name.as_str());
    let listing = Listing {
        topics: contracts.iter().map(TopicView::new).collect(),
        next_after: last.filter(|_| more),
    };
    Answer::json(200, &listing)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use corelog_engine::identity::{LeaderEpoch, Offset};
    use serde_json::Value;

    use super::super::parse_body;
    use super::*;

    fn contract() -> TopicContract {
        TopicContract {
            name: "orders".into(),
            id: TopicId([0xab; 16]),
            partitions: 2,
            durability: Durability::OneDisk,
            settings: BTreeMap::from([("retention.ms".into(), "1000".into())]),
        }
    }

    fn json(answer: &Answer) -> Value {
        serde_json::from_slice(&answer.body).unwrap()
    }

    #[test]
    fn only_the_name_is_required() {
        let body: CreateTopicBody = parse_body(br#"{"name":"orders"}"#).unwrap();
        assert_eq!((body.name.as_str(), body.partitions), ("orders", None));
        let body: CreateTopicBody =
            parse_body(br#"{"name":"orders","partitions":8,"settings":{"retention.ms":"1000"}}"#)
                .unwrap();
        assert_eq!(body.partitions, Some(8));
        assert_eq!(body.settings["retention.ms"], "1000");
    }

    #[test]
    fn creations_that_are_not_understood_are_refused() {
        let many: Vec<String> = (0..=TOPIC_SETTINGS_MAX)
            .map(|n| format!("\"{n}\":\"\""))
            .collect();
        for refused in [
            "{}",
            r#"{"name":7}"#,
            r#"{"name":"a","partitions":-1}"#,
            r#"{"name":"a","partitions":4294967296}"#,
            r#"{"name":"a","replicas":3}"#,
            r#"{"name":"a","settings":{"a":1}}"#,
            r#"{"name":"a","settings":{"a":"1","a":"2"}}"#,
            &format!("{{\"name\":\"a\",\"settings\":{{{}}}}}", many.join(",")),
        ] {
            let problem = parse_body::<CreateTopicBody>(refused.as_bytes()).unwrap_err();
            assert_eq!(problem.status(), 400, "{refused}");
        }
    }

    #[test]
    fn creation_answers_the_contract() {
        let answer = topic_created_answer(&contract());
        assert_eq!(answer.status, 201);
        let body = json(&answer);
        assert_eq!(body["id"], "ab".repeat(16));
        assert_eq!(body["partitions"], 2);
        assert_eq!(body["durability"], "one-disk");
        assert_eq!(body["settings"]["retention.ms"], "1000");
        assert!(body.get("partition_states").is_none());
    }

    #[test]
    fn a_description_names_what_each_partition_holds_or_why_not() {
        let held = PartitionDescription {
            leader_epoch: LeaderEpoch(3),
            log_start: Offset(10),
            watermark: Offset(30),
            log_end: Offset(31),
            log_bytes: 4_000,
        };
        let states = [
            (PartitionIndex(0), Ok(held)),
            (PartitionIndex(1), Err(Rejection::StorageError)),
        ];
        let body = json(&topic_answer(&contract(), &states));
        assert_eq!(body["partition_states"][0]["log_start"], 10);
        assert_eq!(body["partition_states"][0]["watermark"], 30);
        assert_eq!(
            body["partition_states"][1]["error"]["type"],
            "storage_error"
        );
        assert!(body["partition_states"][1].get("log_start").is_none());
    }

    #[test]
    fn a_listing_says_where_to_go_on() {
        let body = json(&topics_answer(&[contract()], true));
        assert_eq!(body["next_after"], "orders");
        let body = json(&topics_answer(&[contract()], false));
        assert_eq!(body["next_after"], Value::Null);
        assert_eq!(body["topics"][0]["name"], "orders");
    }
}
