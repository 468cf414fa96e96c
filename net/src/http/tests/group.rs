//! Groups: members of both kinds, leases, lag.

use bytes::Bytes;
use corelog_engine::identity::{Generation, Offset};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    GroupDescription, GroupListing, GroupState, Join, Joined, JoinedMember, MemberDescription,
};
use serde_json::{Value, json};

use super::super::consumer_protocol::{
    Assignment, decode_assignment, decode_subscription, encode_assignment,
};
use super::super::group::{
    HeartbeatBody, HeldRange, JoinBody, JoiningClient, LeaveBody, PartitionLag, assign_as_leader,
    group_answer, groups_answer, join_answer,
};
use super::super::{Problem, parse_body};
use super::json;

fn join(body: &str) -> Result<Join, Problem> {
    let client = JoiningClient {
        new_member_id: "new".into(),
        client_id: "curl".into(),
        client_host: "127.0.0.1".into(),
    };
    parse_body::<JoinBody>(body.as_bytes())?.check(client)
}

fn joined(leader: &str, protocol: &str, metadata: &[&[u8]]) -> Joined {
    let members = metadata
        .iter()
        .enumerate()
        .map(|(index, metadata)| JoinedMember {
            member_id: format!("m{index}"),
            instance_id: None,
            metadata: Bytes::copy_from_slice(metadata),
        });
    Joined {
        generation: Generation(4),
        protocol_type: "consumer".into(),
        protocol: protocol.into(),
        leader: leader.into(),
        member_id: "m0".into(),
        members: members.collect(),
        skip_assignment: false,
    }
}

fn assignment(topic: &str, partitions: &[u32]) -> Assignment {
    Assignment::from([(topic.to_owned(), partitions.to_vec())])
}

#[test]
fn a_join_is_a_kafka_consumers_join() {
    let join = join(r#"{"topics":["b","a","b"]}"#).unwrap();
    assert_eq!(join.protocol_type, "consumer");
    let names: Vec<_> = join
        .protocols
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["range", "roundrobin"]);
    let topics = decode_subscription(&join.protocols[0].1).unwrap();
    assert_eq!(topics.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(
        (join.session_timeout_ms, join.rebalance_timeout_ms),
        (45_000, 45_000)
    );
    assert_eq!(
        (join.member_id.as_str(), join.member_id_required),
        ("", false)
    );
}

#[test]
fn joins_that_cannot_be_are_refused() {
    let long = "t".repeat(250);
    for (body, kind) in [
        ("{}".to_owned(), "invalid_request"),
        (r#"{"topics":[]}"#.to_owned(), "invalid_request"),
        (r#"{"topics":[""]}"#.to_owned(), "invalid_topic"),
        (format!("{{\"topics\":[\"{long}\"]}}"), "invalid_topic"),
        (
            r#"{"topics":["a"],"session_timeout_ms":499}"#.to_owned(),
            "invalid_session_timeout",
        ),
        (
            r#"{"topics":["a"],"rebalance_timeout_ms":1800001}"#.to_owned(),
            "invalid_session_timeout",
        ),
        (
            r#"{"topics":["a"],"lease_ms":1000}"#.to_owned(),
            "invalid_request",
        ),
    ] {
        assert_eq!(join(&body).unwrap_err().kind(), kind, "{body}");
    }
}

#[test]
fn an_http_leader_assigns_for_kafka_members_too() {
    let http = join(r#"{"topics":["t"]}"#).unwrap().protocols[0].1.clone();
    // A Java client's version 3 subscription, with user data, owned partitions, generation and rack.
    let kafka = b"\0\x03\0\0\0\x01\0\x01t\0\0\0\x02xy\0\0\0\0\0\0\0\x03\0\x02r1";
    let joined = joined("m0", "range", &[&http, kafka]);
    let assignments = assign_as_leader(&joined, |topic| (topic == "t").then_some(3)).unwrap();
    assert_eq!(assignments.len(), 2);
    assert_eq!(assignments[0].0, "m0");
    assert_eq!(
        decode_assignment(&assignments[0].1),
        Ok(assignment("t", &[0, 1]))
    );
    assert_eq!(
        decode_assignment(&assignments[1].1),
        Ok(assignment("t", &[2]))
    );
}

#[test]
fn followers_and_returned_static_leaders_assign_nothing() {
    let follower = joined("m1", "range", &[]);
    assert_eq!(assign_as_leader(&follower, |_| Some(3)), Ok(vec![]));
    let returned = Joined {
        skip_assignment: true,
        ..joined("m0", "range", &[b"junk"])
    };
    assert_eq!(assign_as_leader(&returned, |_| Some(3)), Ok(vec![]));
}

#[test]
fn metadata_or_protocols_that_are_not_understood_are_refused() {
    let inconsistent = Err(Rejection::InconsistentGroupProtocol);
    assert_eq!(
        assign_as_leader(&joined("m0", "sticky", &[]), |_| Some(3)),
        inconsistent
    );
    let junk = joined("m0", "range", &[b"junk"]);
    assert_eq!(assign_as_leader(&junk, |_| Some(3)), inconsistent);
}

#[test]
fn a_join_answers_generation_assignment_and_lease() {
    let body = json(&join_answer(
        &joined("m0", "range", &[]),
        &assignment("t", &[0, 2]),
        45_000,
    ));
    assert_eq!(
        body,
        json!({"member_id": "m0", "generation": 4, "lease_ms": 45000,
               "assignment": [{"topic": "t", "partitions": [0, 2]}]})
    );
}

#[test]
fn heartbeats_and_leaves_name_their_member() {
    let heartbeat = |body: &str| parse_body::<HeartbeatBody>(body.as_bytes())?.fence();
    let fence = heartbeat(r#"{"member_id":"m","generation":4}"#).unwrap();
    assert_eq!(
        (fence.member_id.as_str(), fence.generation),
        ("m", Generation(4))
    );
    for refused in [
        "{}",
        r#"{"member_id":"m"}"#,
        r#"{"member_id":"","generation":4}"#,
    ] {
        assert_eq!(heartbeat(refused).unwrap_err().status(), 400, "{refused}");
    }
    let leave = |body: &str| parse_body::<LeaveBody>(body.as_bytes())?.member();
    assert_eq!(leave(r#"{"member_id":"m"}"#).unwrap().member_id, "m");
    assert_eq!(
        leave(r#"{"instance_id":"i"}"#)
            .unwrap()
            .instance_id
            .as_deref(),
        Some("i")
    );
    assert_eq!(leave("{}").unwrap_err().status(), 400);
}

fn lag(committed: Option<u64>, oldest_unread_ms: Option<u64>) -> PartitionLag {
    PartitionLag {
        topic: "t".into(),
        partition: 0,
        committed: committed.map(Offset),
        held: Ok(HeldRange {
            log_start: Offset(100),
            watermark: Offset(200),
            log_bytes: 5_000,
            oldest_unread_ms,
        }),
    }
}

fn described(lags: &[PartitionLag]) -> Value {
    let member = |assignment: Bytes| MemberDescription {
        member_id: "m".into(),
        instance_id: None,
        client_id: "curl".into(),
        client_host: "127.0.0.1".into(),
        metadata: Bytes::new(),
        assignment,
    };
    let description = GroupDescription {
        state: GroupState::Stable,
        generation: Generation(4),
        protocol_type: "consumer".into(),
        protocol: "range".into(),
        members: vec![
            member(encode_assignment(&assignment("t", &[0]))),
            member(Bytes::from_static(b"?")),
        ],
    };
    json(&group_answer("billing", &description, lags, 10_000))
}

#[test]
fn lag_is_told_in_records_bytes_and_age() {
    let body = described(&[lag(Some(150), Some(9_000)), lag(Some(200), None)]);
    assert_eq!(body["state"], "Stable");
    assert_eq!(
        body["members"][0]["assignment"],
        json!([{"topic": "t", "partitions": [0]}])
    );
    assert_eq!(
        body["members"][1]["assignment"],
        Value::Null,
        "not of the consumer protocol"
    );
    assert_eq!(
        body["partitions"][0],
        json!({"topic": "t", "partition": 0, "committed_offset": 150, "log_start": 100, "watermark": 200,
               "lag_records": 50, "lag_bytes": 2500, "lag_ms": 1000, "expired_records": 0})
    );
    assert_eq!(body["partitions"][1]["lag_records"], 0);
    assert_eq!(body["partitions"][1]["lag_ms"], 0);
    assert_eq!(
        (&body["lag_records"], &body["lag_bytes"], &body["lag_ms"]),
        (&json!(50), &json!(2500), &json!(1000))
    );
}

#[test]
fn records_that_retention_took_are_not_lag_but_counted() {
    let body = described(&[lag(Some(30), None)]);
    assert_eq!(body["partitions"][0]["lag_records"], 100);
    assert_eq!(body["partitions"][0]["expired_records"], 70);
    assert_eq!(body["partitions"][0]["lag_ms"], Value::Null, "not known");
}

#[test]
fn a_partition_without_a_commit_lags_by_all_that_is_retained() {
    let body = described(&[lag(None, None)]);
    assert_eq!(body["partitions"][0]["committed_offset"], Value::Null);
    assert_eq!(body["partitions"][0]["lag_records"], 100);
    assert_eq!(body["partitions"][0]["lag_bytes"], 5_000);
}

#[test]
fn a_partition_that_is_not_served_is_named_with_its_reason() {
    let down = PartitionLag {
        held: Err(Rejection::StorageError),
        ..lag(Some(1), None)
    };
    let body = described(&[down]);
    assert_eq!(body["partitions"][0]["error"]["type"], "storage_error");
    assert_eq!(body["partitions"][0]["committed_offset"], 1);
    assert_eq!(body["lag_ms"], Value::Null);
}

#[test]
fn a_listing_says_where_to_go_on() {
    let listing = GroupListing {
        group: "billing".into(),
        protocol_type: "consumer".into(),
        state: GroupState::Empty,
    };
    let body = json(&groups_answer(&[listing], true));
    assert_eq!(
        body,
        json!({"groups": [{"group": "billing", "state": "Empty", "protocol_type": "consumer"}], "next_after": "billing"})
    );
}
