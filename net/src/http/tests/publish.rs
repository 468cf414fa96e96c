//! Publishes: what is refused, what is planned, what is answered.

use std::num::NonZeroU32;

use bytes::Bytes;
use corelog_batch::{
    BatchHeader, BatchLimits, Record, open, partition_for_key, records, verify_producer_batch,
};
use corelog_engine::identity::{LeaderEpoch, Offset};
use corelog_engine::limits::{INLINE_BYTES_MAX, TIMESTAMP_AHEAD_MS_MAX};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Durability, Published};
use proptest::prelude::*;
use serde_json::json;

use super::super::limits::{MESSAGE_HEADERS_MAX, PUBLISH_MESSAGES_MAX};
use super::super::publish::PublishBody;
use super::super::{
    Problem, PublishContext, PublishPlan, parse_body, plan_publish, publish_answer,
};
use super::{NOW_MS, context, json};

fn plan_in(context: &PublishContext, body: &str) -> Result<PublishPlan, Problem> {
    let body: PublishBody<'_> = parse_body(body.as_bytes())?;
    plan_publish(&body, context)
}

fn plan(body: &str) -> Result<PublishPlan, Problem> {
    plan_in(&context(), body)
}

/// The header and records of a planned batch, checked as the engine checks them.
fn read(batch: &Bytes) -> (BatchHeader, Vec<Record>) {
    let limits = BatchLimits {
        batch_bytes_max: usize::MAX,
        ..BatchLimits::default()
    };
    let header = verify_producer_batch(batch, &limits).unwrap();
    let body = open(batch, usize::MAX).unwrap();
    (header, records(&header, body).map(Result::unwrap).collect())
}

fn published(first_offset: u64, repeat: bool) -> Published {
    Published {
        first_offset: Offset(first_offset),
        log_start: Offset(0),
        append_time_ms: None,
        leader_epoch: LeaderEpoch(1),
        durability: Durability::OneDisk,
        repeat,
    }
}

fn refusal(body: &str) -> String {
    let problem = plan(body).unwrap_err();
    assert_eq!(
        (problem.status(), problem.kind()),
        (400, "invalid_request"),
        "{body}"
    );
    problem.detail().to_owned()
}

#[test]
fn a_message_becomes_a_record_with_its_key_headers_and_id() {
    let plan = plan(
        r#"{"messages":[{"message_key":"kunde-é","message_id":"m-1","headers":{"b":"2","a":null},
            "payload":"line\n\u0000","created_at_ms":77}]}"#,
    )
    .unwrap();
    let key = "kunde-é".as_bytes();
    let partition = partition_for_key(key, NonZeroU32::new(4).unwrap());
    assert_eq!(plan.batches[0].partition.get(), partition);
    assert_eq!(plan.batches[0].messages, [0]);
    let (header, records) = read(&plan.batches[0].bytes);
    assert_eq!(header.producer_id, -1);
    assert_eq!(records[0].key.as_deref(), Some(key));
    assert_eq!(records[0].value.as_deref(), Some(&b"line\n\0"[..]));
    assert_eq!(records[0].timestamp_ms(&header), 77);
    let headers: Vec<_> = records[0]
        .headers
        .iter()
        .map(|h| (h.key, h.value))
        .collect();
    assert_eq!(headers[0], ("b".into(), Some("2".into())));
    assert_eq!(headers[1], ("a".into(), None));
    assert_eq!(
        headers[2],
        ("corelog.message-id".into(), Some("m-1".into()))
    );
}

#[test]
fn base64_null_keys_and_tombstones_are_kept_apart_from_empty_text() {
    let plan = plan(
        r#"{"messages":[
            {"payload_base64":"/wA=","message_key_base64":"gIE=","headers":[{"name":"x","value_base64":"/w=="},{"name":"x","value":"2"}],"partition":0},
            {"payload":null,"message_key":"","partition":0},
            {"payload":"","message_key":null,"partition":0}]}"#,
    )
    .unwrap();
    let (_, records) = read(&plan.batches[0].bytes);
    assert_eq!(records[0].value.as_deref(), Some(&[0xff, 0][..]));
    assert_eq!(records[0].key.as_deref(), Some(&[0x80, 0x81][..]));
    let headers: Vec<_> = records[0]
        .headers
        .iter()
        .map(|h| h.value.unwrap())
        .collect();
    assert_eq!(
        headers[..2],
        [Bytes::from_static(b"\xff"), Bytes::from_static(b"2")]
    );
    assert_eq!(
        (records[1].value.as_deref(), records[1].key.as_deref()),
        (None, Some(&b""[..]))
    );
    assert_eq!(
        (records[2].value.as_deref(), records[2].key.as_deref()),
        (Some(&b""[..]), None)
    );
}

#[test]
fn text_that_is_wrong_refuses_the_whole_request_and_names_the_message() {
    let ok = r#"{"payload":"fine"}"#;
    for (bad, word) in [
        (r#"{}"#, "payload"),
        (r#"{"payload":"a","payload_base64":"YQ=="}"#, "exclude"),
        (r#"{"payload":null,"payload_base64":null}"#, "exclude"),
        (r#"{"payload_base64":"*"}"#, "payload_base64 is not base64"),
        (
            r#"{"payload":"a","message_key_base64":"é"}"#,
            "message_key_base64 is not base64",
        ),
        (
            r#"{"payload":"a","message_key":"k","message_key_base64":"YQ=="}"#,
            "exclude",
        ),
        (
            r#"{"payload":"a","headers":{"corelog.message-id":"x"}}"#,
            "broker's own",
        ),
        (
            r#"{"payload":"a","headers":[{"name":"corelog.","value":"x"}]}"#,
            "broker's own",
        ),
        (
            r#"{"payload":"a","headers":[{"name":"h","value_base64":"?"}]}"#,
            "value_base64",
        ),
        (r#"{"payload":"a","message_id":""}"#, "message_id"),
        (r#"{"payload":"a","sequence":0}"#, "producer_id"),
    ] {
        let detail = refusal(&format!("{{\"messages\":[{ok},{bad}]}}"));
        assert!(
            detail.starts_with("message 1: ") && detail.contains(word),
            "{bad}: {detail}"
        );
    }
    let long_id = "i".repeat(257);
    refusal(&format!(
        "{{\"messages\":[{{\"payload\":\"a\",\"message_id\":\"{long_id}\"}}]}}"
    ));
}

#[test]
fn json_that_is_not_a_publish_is_refused() {
    for bad in [
        "",
        "{}",
        "[]",
        r#"{"messages":[]}"#,
        r#"{"messages":{}}"#,
        r#"{"messages":["a"]}"#,
        r#"{"messages":[{"payload":1}]}"#,
        r#"{"messages":[{"payload":{"a":1}}]}"#,
        r#"{"messages":[{"payload":"a","key":"k"}]}"#,
        r#"{"messages":[{"payload":"a"}],"tenant":"t"}"#,
        r#"{"messages":[{"payload":"a","payload":"b"}]}"#,
        r#"{"messages":[{"payload":"a","partition":-1}]}"#,
        r#"{"messages":[{"payload":"a","headers":{"h":1}}]}"#,
        r#"{"messages":[{"payload":"a","headers":"h"}]}"#,
        r#"{"messages":[{"payload":"a","headers":[{"value":"x"}]}]}"#,
        r#"{"messages":[{"payload":"a"}],"producer_id":1}"#,
    ] {
        refusal(bad);
    }
}

#[test]
fn lists_end_at_their_limits() {
    let many = vec![r#"{"payload":""}"#; PUBLISH_MESSAGES_MAX + 1].join(",");
    assert!(refusal(&format!("{{\"messages\":[{many}]}}")).contains("more than"));
    let most = vec![r#"{"payload":""}"#; PUBLISH_MESSAGES_MAX].join(",");
    assert!(plan(&format!("{{\"messages\":[{most}]}}")).is_ok());
    let headers = vec![r#""h":"""#; MESSAGE_HEADERS_MAX + 1].join(",");
    let detail = refusal(&format!(
        "{{\"messages\":[{{\"payload\":\"\",\"headers\":{{{headers}}}}}]}}"
    ));
    assert!(detail.contains("headers"), "{detail}");
}

#[test]
fn unkeyed_messages_go_to_one_partition_and_named_partitions_win() {
    let plan = plan(
        r#"{"messages":[{"payload":"a"},{"payload":"b"},{"payload":"c","message_key":"k","partition":3}]}"#,
    )
    .unwrap();
    let where_to: Vec<_> = plan.messages.iter().map(|m| m.partition.get()).collect();
    assert_eq!(where_to, [2, 2, 3]);
    assert_eq!(plan.batches.len(), 2);
    assert_eq!(plan.batches[0].messages, [0, 1]);
}

#[test]
fn messages_without_an_id_get_distinct_ones() {
    let plan = plan(r#"{"messages":[{"payload":"a"},{"payload":"b","message_id":null}]}"#).unwrap();
    assert_eq!(plan.messages[0].message_id, format!("{:032x}", 0xff));
    assert_eq!(plan.messages[1].message_id, format!("{:032x}", 0x100));
    let (_, records) = read(&plan.batches[0].bytes);
    let header = records[1].headers.iter().next().unwrap();
    assert_eq!(header.value.unwrap(), plan.messages[1].message_id);
}

#[test]
fn a_message_that_cannot_be_stored_leaves_the_others() {
    let huge = "x".repeat(INLINE_BYTES_MAX);
    let late = NOW_MS + TIMESTAMP_AHEAD_MS_MAX + 1;
    let plan = plan(&format!(
        "{{\"messages\":[{{\"payload\":\"a\",\"partition\":0}},{{\"payload\":\"{huge}\",\"partition\":0}},
          {{\"payload\":\"c\",\"partition\":4}},{{\"payload\":\"d\",\"created_at_ms\":{late},\"partition\":0}},
          {{\"payload\":\"e\",\"partition\":0}}]}}"
    ))
    .unwrap();
    let refusals: Vec<_> = plan
        .messages
        .iter()
        .map(|message| message.refusal.as_ref().map(|refusal| refusal.rejection))
        .collect();
    assert_eq!(
        refusals,
        [
            None,
            Some(Rejection::MessageTooLarge),
            Some(Rejection::UnknownTopicOrPartition),
            Some(Rejection::InvalidTimestamp),
            None
        ]
    );
    assert_eq!(plan.batches.len(), 1);
    assert_eq!(plan.batches[0].messages, [0, 4]);
}

#[test]
fn the_inline_limit_is_measured_as_the_engine_measures_it() {
    let room = INLINE_BYTES_MAX - "corelog.message-id".len() - 1 - 1 - 2;
    for (payload_bytes, stored) in [(room, true), (room + 1, false)] {
        let payload = "x".repeat(payload_bytes);
        let plan = plan(&format!(
            "{{\"messages\":[{{\"payload\":\"{payload}\",\"message_key\":\"k\",\"message_id\":\"i\",\"headers\":{{\"a\":\"b\"}}}}]}}"
        ))
        .unwrap();
        assert_eq!(plan.messages[0].refusal.is_none(), stored);
        if let Some(batch) = plan.batches.first() {
            let (header, _) = read(&batch.bytes);
            let body = open(&batch.bytes, usize::MAX).unwrap();
            let largest = corelog_batch::largest_record_bytes(&header, &body).unwrap();
            assert_eq!(largest, INLINE_BYTES_MAX);
        }
    }
}

#[test]
fn a_full_batch_is_followed_by_another_in_order() {
    let context = PublishContext {
        batch_bytes_max: 400,
        ..context()
    };
    let messages: Vec<_> = (0..9)
        .map(|n| json!({"payload": format!("{n:050}")}))
        .collect();
    let body = json!({ "messages": messages }).to_string();
    let plan = plan_in(&context, &body).unwrap();
    assert!(plan.batches.len() > 1);
    let order: Vec<u32> = plan
        .batches
        .iter()
        .flat_map(|b| b.messages.clone())
        .collect();
    assert_eq!(order, (0..9).collect::<Vec<u32>>());
    for batch in &plan.batches {
        assert!(batch.bytes.len() <= 400);
        assert_eq!(read(&batch.bytes).1.len(), batch.messages.len());
    }
    // One that fits into no batch of this topic is refused alone.
    let body = json!({"messages": [{"payload": "x".repeat(400)}, {"payload": "y"}]}).to_string();
    let plan = plan_in(&context, &body).unwrap();
    let refusal = plan.messages[0].refusal.as_ref().unwrap();
    assert_eq!(refusal.rejection, Rejection::MessageTooLarge);
    assert_eq!(plan.batches[0].messages, [1]);
}

#[test]
fn consecutive_sequences_share_a_batch_and_a_jump_begins_another() {
    let plan = plan(
        r#"{"producer_id":9,"producer_epoch":2,"messages":[
            {"payload":"a","partition":0,"sequence":2147483646},{"payload":"b","partition":1,"sequence":5},
            {"payload":"c","partition":0,"sequence":2147483647},{"payload":"d","partition":0,"sequence":0},
            {"payload":"e","partition":0,"sequence":2},{"payload":"f","partition":1,"sequence":5}]}"#,
    )
    .unwrap();
    let batches: Vec<_> = plan
        .batches
        .iter()
        .map(|batch| {
            let (header, _) = read(&batch.bytes);
            assert_eq!((header.producer_id, header.producer_epoch), (9, 2));
            (
                batch.partition.get(),
                header.base_sequence,
                batch.messages.clone(),
            )
        })
        .collect();
    // Sequences wrap after 2^31 - 1, and a repeat within the request is a batch of its own.
    assert!(batches.contains(&(0, i32::MAX - 1, vec![0, 2, 3])));
    assert!(batches.contains(&(0, 2, vec![4])));
    assert!(batches.contains(&(1, 5, vec![1])));
    assert!(batches.contains(&(1, 5, vec![5])));
    assert_eq!(batches.len(), 4);
}

#[test]
fn a_producers_messages_name_partition_and_sequence() {
    for message in [
        r#"{"payload":"a","partition":0}"#,
        r#"{"payload":"a","sequence":0}"#,
        r#"{"payload":"a","sequence":0,"message_key":"k"}"#,
        r#"{"payload":"a","partition":0,"sequence":2147483648}"#,
    ] {
        refusal(&format!(
            "{{\"producer_id\":9,\"producer_epoch\":0,\"messages\":[{message}]}}"
        ));
    }
}

#[test]
fn under_a_producer_nothing_is_planned_behind_a_refused_message_of_its_partition() {
    let huge = "x".repeat(INLINE_BYTES_MAX);
    let plan = plan(&format!(
        "{{\"producer_id\":9,\"producer_epoch\":0,\"messages\":[{{\"payload\":\"{huge}\",\"partition\":0,\"sequence\":0}},
          {{\"payload\":\"b\",\"partition\":0,\"sequence\":1}},{{\"payload\":\"c\",\"partition\":1,\"sequence\":0}}]}}"
    ))
    .unwrap();
    assert_eq!(plan.batches.len(), 1);
    assert_eq!(plan.batches[0].messages, [2]);
    let refusal = plan.messages[1].refusal.as_ref().unwrap();
    assert_eq!(refusal.rejection, Rejection::OutOfOrderSequence);
}

#[test]
fn the_answer_gives_each_message_its_partition_offset_and_status() {
    let plan = plan(
        r#"{"messages":[{"payload":"a","partition":0,"message_id":"x"},{"payload":"b","partition":1},{"payload":"c","partition":0},{"payload":"d","partition":9}]}"#,
    )
    .unwrap();
    let answer = publish_answer(
        &plan,
        &[Ok(published(40, false)), Err(Rejection::RequestTimedOut)],
    );
    assert_eq!(answer.status, 200);
    let body = json(&answer);
    assert_eq!(body["durability"], "one-disk");
    assert_eq!(body["failed"], 2);
    let messages = &body["messages"];
    assert_eq!(
        messages[0],
        json!({"status": "stored", "partition": 0, "offset": 40, "message_id": "x"})
    );
    assert_eq!(messages[2]["offset"], 41);
    assert_eq!(messages[1]["status"], "unknown");
    assert_eq!(messages[1]["error"]["type"], "request_timed_out");
    assert_eq!(messages[3]["status"], "rejected");
    assert_eq!(messages[3]["error"]["type"], "unknown_topic_or_partition");
    assert_eq!(messages[3]["offset"], serde_json::Value::Null);
}

#[test]
fn repeats_are_success_and_answer_only_ids_that_were_given() {
    let plan = plan(
        r#"{"producer_id":9,"producer_epoch":0,"messages":[{"payload":"a","partition":0,"sequence":0,"message_id":"x"},
            {"payload":"b","partition":0,"sequence":1},{"payload":"c","partition":1,"sequence":0}]}"#,
    )
    .unwrap();
    let answer = publish_answer(
        &plan,
        &[Ok(published(7, true)), Err(Rejection::DuplicateSequence)],
    );
    let body = json(&answer);
    assert_eq!((answer.status, &body["failed"]), (200, &json!(0)));
    assert_eq!(
        body["messages"][0],
        json!({"status": "repeat", "partition": 0, "offset": 7, "message_id": "x"})
    );
    assert_eq!(
        body["messages"][1],
        json!({"status": "repeat", "partition": 0, "offset": 8, "message_id": null})
    );
    assert_eq!(body["messages"][2]["offset"], serde_json::Value::Null);
}

#[test]
fn if_none_is_stored_the_answer_is_a_problem_with_the_messages_in_it() {
    let plan =
        plan(r#"{"messages":[{"payload":"a","partition":0},{"payload":"b","partition":1}]}"#)
            .unwrap();
    let all = |first, second| publish_answer(&plan, &[Err(first), Err(second)]);
    let answer = all(Rejection::StorageError, Rejection::StorageError);
    assert_eq!(answer.status, 503);
    assert_eq!(json(&answer)["messages"][0]["status"], "unknown");
    let answer = all(Rejection::Overloaded, Rejection::Overloaded);
    assert_eq!((answer.status, answer.retry_after_s), (429, Some(1)));
    assert_eq!(answer.content_type, Some("application/problem+json"));
    assert_eq!(json(&answer)["type"], "throttling_quota_exceeded");
    let answer = all(Rejection::NotLeader, Rejection::Overloaded);
    assert_eq!(answer.status, 503);
    assert!(
        json(&answer)["detail"]
            .as_str()
            .unwrap()
            .contains("different reasons")
    );
}

proptest! {
    #[test]
    fn every_message_is_planned_once_and_in_order(
        partitions in proptest::collection::vec(0_u32..6, 1..60),
        batch_bytes_max in 150_usize..600,
    ) {
        let messages: Vec<_> = partitions.iter().map(|p| json!({"payload": "p".repeat(*p as usize * 9), "partition": p})).collect();
        let context = PublishContext { batch_bytes_max, ..context() };
        let plan = plan_in(&context, &json!({ "messages": messages }).to_string()).unwrap();
        let mut seen = vec![0; partitions.len()];
        for partition in 0..6 {
            let order: Vec<u32> = plan.batches.iter().filter(|b| b.partition.get() == partition).flat_map(|b| b.messages.clone()).collect();
            prop_assert!(order.is_sorted());
            for index in order {
                prop_assert_eq!(partitions[index as usize], partition);
                seen[index as usize] += 1;
            }
        }
        for (message, count) in plan.messages.iter().zip(seen) {
            prop_assert_eq!(usize::from(message.refusal.is_none()), count);
        }
    }

    #[test]
    fn any_body_is_planned_or_refused(body in "\\{\"messages\":\\[\\{(\"(payload|headers|partition|message_key)\":(\"\\PC{0,4}\"|1|null|\\{\\}),?){0,3}\\}\\]\\}") {
        let _ = plan(&body);
    }
}
