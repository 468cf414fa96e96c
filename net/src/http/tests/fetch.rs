//! Fetches: what is asked, where it begins, what is answered.

use std::collections::{BTreeMap, BTreeSet};

use corelog_engine::identity::{Offset, PartitionIndex};
use corelog_engine::rejection::Rejection;
use serde_json::json;

use super::super::fetch::{
    FetchBody, FetchFrom, FetchRequest, FetchStart, FetchedPartition, fetch_answer, plan_fetch,
};
use super::super::limits::{FETCH_BYTES_MAX, TOPICS_MAX};
use super::super::{Problem, parse_body};
use super::json;

fn check(body: &str) -> Result<FetchRequest, Problem> {
    parse_body::<FetchBody>(body.as_bytes())?.check()
}

fn part(topic: &str, partition: u32) -> (String, PartitionIndex) {
    (topic.to_owned(), PartitionIndex(partition))
}

fn fetched(partition: u32, refusal: Option<Rejection>) -> FetchedPartition {
    FetchedPartition {
        topic: "orders".into(),
        partition: PartitionIndex(partition),
        next_offset: Some(Offset(7)),
        log_start: Some(Offset(5)),
        watermark: Some(Offset(9)),
        refusal: refusal.map(|rejection| (rejection, None)),
    }
}

#[test]
fn a_topic_is_enough() {
    let request = check(r#"{"topic":"orders"}"#).unwrap();
    assert_eq!(request.topics, BTreeSet::from(["orders".to_owned()]));
    assert_eq!(
        (request.messages_max, request.bytes_max, request.wait_ms),
        (500, 1 << 20, 0)
    );
    assert_eq!(request.from, FetchFrom::Earliest);
    assert_eq!(request.fence, None);
}

#[test]
fn a_member_needs_no_topic_and_both_its_fields() {
    let request = check(r#"{"member_id":"m","generation":3,"instance_id":"i"}"#).unwrap();
    let fence = request.fence.unwrap();
    assert_eq!((fence.member_id.as_str(), fence.generation.get()), ("m", 3));
    assert_eq!(fence.instance_id.as_deref(), Some("i"));
}

#[test]
fn contradictions_are_refused() {
    let many = vec![r#""t""#; TOPICS_MAX + 1].join(",");
    for refused in [
        "{}",
        r#"{"topics":[]}"#,
        r#"{"topic":"a","topics":["b"]}"#,
        r#"{"topic":"a","member_id":"m"}"#,
        r#"{"topic":"a","generation":1}"#,
        r#"{"topic":"a","max_messages":0}"#,
        r#"{"topic":"a","max_messages":10001}"#,
        r#"{"topic":"a","max_bytes":0}"#,
        r#"{"topic":"a","max_wait_ms":300001}"#,
        r#"{"topic":"a","from":"middle"}"#,
        r#"{"topic":"a","from":7}"#,
        r#"{"topic":"a","auto_commit":true}"#,
        r#"{"topic":"a","positions":[{"topic":"b","partition":0,"offset":1}]}"#,
        r#"{"topics":["a","b"],"positions":[{"partition":0,"offset":1}]}"#,
        r#"{"topic":"a","positions":[{"partition":0,"offset":1},{"partition":0,"offset":2}]}"#,
        r#"{"topic":"a","positions":[{"partition":0,"offset":9223372036854775808}]}"#,
        &format!("{{\"topic\":\"a\",\"max_bytes\":{}}}", FETCH_BYTES_MAX + 1),
        &format!("{{\"topics\":[{many}]}}"),
    ] {
        assert_eq!(check(refused).unwrap_err().status(), 400, "{refused}");
    }
}

#[test]
fn positions_go_before_commits_and_commits_before_from() {
    let request =
        check(r#"{"topic":"orders","from":"latest","positions":[{"partition":0,"offset":70}]}"#)
            .unwrap();
    let readable = BTreeSet::from([part("orders", 0), part("orders", 1), part("orders", 2)]);
    let committed = BTreeMap::from([
        (part("orders", 0), Offset(10)),
        (part("orders", 1), Offset(11)),
    ]);
    let planned = plan_fetch(&request, &readable, &committed, 0).unwrap();
    let starts: Vec<_> = planned.iter().map(|planned| planned.start).collect();
    assert_eq!(
        starts,
        [
            FetchStart::At(Offset(70)),
            FetchStart::At(Offset(11)),
            FetchStart::Latest
        ]
    );
}

#[test]
fn every_partition_comes_first_once_in_a_round() {
    let request = check(r#"{"topic":"orders"}"#).unwrap();
    let readable: BTreeSet<_> = (0..3).map(|partition| part("orders", partition)).collect();
    let first = |rotation| {
        let planned = plan_fetch(&request, &readable, &BTreeMap::new(), rotation).unwrap();
        assert_eq!(planned.len(), 3);
        planned[0].partition.get()
    };
    assert_eq!([first(0), first(1), first(2), first(3)], [0, 1, 2, 0]);
    assert_eq!(
        plan_fetch(&request, &BTreeSet::new(), &BTreeMap::new(), 5).unwrap(),
        []
    );
}

#[test]
fn a_member_reads_its_assignment_only_and_may_narrow_it() {
    let assigned = BTreeSet::from([part("a", 0), part("b", 1)]);
    let member = r#""member_id":"m","generation":1"#;
    let request = check(&format!("{{\"topic\":\"b\",{member}}}")).unwrap();
    let planned = plan_fetch(&request, &assigned, &BTreeMap::new(), 0).unwrap();
    assert_eq!(planned.len(), 1);
    assert_eq!(
        (planned[0].topic.as_str(), planned[0].start),
        ("b", FetchStart::Earliest)
    );
    let position = r#""positions":[{"topic":"a","partition":5,"offset":1}]"#;
    let request = check(&format!("{{{member},{position}}}")).unwrap();
    let problem = plan_fetch(&request, &assigned, &BTreeMap::new(), 0).unwrap_err();
    assert_eq!(problem.status(), 400);
}

#[test]
fn next_offsets_are_the_positions_of_the_next_fetch() {
    let answer = fetch_answer(&[], &[fetched(0, None)]);
    assert_eq!(answer.status, 200);
    assert_eq!(
        json(&answer),
        json!({"messages": [], "errors": [],
               "next_offsets": [{"topic": "orders", "partition": 0, "offset": 7, "watermark": 9}]})
    );
}

#[test]
fn one_refused_partition_does_not_hide_the_others() {
    let answer = fetch_answer(
        &[],
        &[
            fetched(0, None),
            fetched(1, Some(Rejection::OffsetOutOfRange)),
        ],
    );
    let body = json(&answer);
    assert_eq!(answer.status, 200);
    assert_eq!(body["errors"][0]["partition"], 1);
    assert_eq!(body["errors"][0]["log_start"], 5);
    assert_eq!(body["errors"][0]["error"]["type"], "offset_out_of_range");
}

#[test]
fn if_every_partition_is_refused_the_answer_is_a_problem_that_names_what_is_retained() {
    let answer = fetch_answer(&[], &[fetched(1, Some(Rejection::OffsetOutOfRange))]);
    let body = json(&answer);
    assert_eq!(answer.status, 416);
    assert_eq!(body["type"], "offset_out_of_range");
    assert_eq!(
        body["retained"],
        json!([{"topic": "orders", "partition": 1, "log_start": 5, "watermark": 9}])
    );
}

#[test]
fn a_fetch_without_partitions_is_empty_and_no_error() {
    assert_eq!(fetch_answer(&[], &[]).status, 200);
}
