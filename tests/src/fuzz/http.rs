//! The HTTP face: paths, heads, every JSON body, and Kafka's consumer protocol, which its members speak inside.

use std::num::NonZeroU32;

use corelog_engine::limits::INLINE_BYTES_MAX;
use corelog_engine::time::Wall;
use corelog_net::http::consumer_protocol::{
    decode_assignment, decode_subscription, encode_assignment, encode_subscription,
};
use corelog_net::http::fetch::FetchBody;
use corelog_net::http::group::{HeartbeatBody, JoinBody, JoiningClient, LeaveBody};
use corelog_net::http::offsets::CommitBody;
use corelog_net::http::producers::ProducerBody;
use corelog_net::http::publish::PublishBody;
use corelog_net::http::reset::ResetBody;
use corelog_net::http::topics::CreateTopicBody;
use corelog_net::http::{
    Head, Problem, PublishContext, check_head, parse_body, plan_publish, route,
};

use super::{Allowance, Target, note};

const WORDS: &[&[u8]] = &[
    b"\"messages\"",
    b"\"payload\":",
    b"\"payload_base64\":",
    b"\"message_key\":",
    b"\"message_id\":",
    b"\"headers\":[",
    b"\"name\":",
    b"\"value\":",
    b"\"partition\":",
    b"\"sequence\":",
    b"\"topic\":",
    b"\"topics\":[",
    b"\"offset\":",
    b"\"offsets\":[",
    b"\"member_id\":",
    b"\"generation\":",
    b"\"instance_id\":",
    b"\"max_messages\":",
    b"\"max_bytes\":",
    b"\"max_wait_ms\":",
    b"\"from\":",
    b"\"positions\":[",
    b"\"to\":",
    b"\"time_ms\":",
    b"\"created_at_ms\":",
    b"\"corelog.x\"",
    b"\"\\ud800\"",
    b"\"\\u0000\"",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"9223372036854775808",
    b"[[[[[[[[",
    b"{\"a\":",
    b"}",
    b"]",
    b",",
    b"\xff",
];

/// A message of a few bytes takes some hundreds in memory, bounded by the most messages of a publish; a publish
/// repeats its payload in a batch.
const BODIES: Allowance = Allowance {
    allocation_bytes_max: 9 << 20,
    allocation_per_input_byte: 64,
    ..Allowance::DEFAULT
};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "http_route",
        run: routes,
        samples: route_samples,
        dictionary: &[
            b"/v1/topics/",
            b"/v1/groups/",
            b"messages:publish",
            b"messages:fetch",
            b"offsets:commit",
            b"%2F",
            b"%00",
            b"%zz",
            b"%",
            b"..",
            b"after=",
            b"limit=",
            b"&",
            b"18446744073709551616",
        ],
        repair: None,
        allowance: Allowance::DEFAULT,
    },
    Target {
        name: "http_head",
        run: head,
        samples: || {
            [
                "application/json\n\n10\n",
                "application/json; charset=utf-8\nidentity\n\n100-continue",
                "text/plain\ngzip\n99999999999\n",
            ]
            .map(|text| text.as_bytes().to_vec())
            .to_vec()
        },
        dictionary: &[b";", b"charset=", b"\"utf-8\"", b"\n", b"application/json"],
        repair: None,
        allowance: Allowance::DEFAULT,
    },
    Target {
        name: "http_bodies",
        run: bodies,
        samples: body_samples,
        dictionary: WORDS,
        repair: None,
        allowance: BODIES,
    },
    Target {
        name: "consumer_protocol",
        run: consumer_protocol,
        samples: protocol_samples,
        dictionary: &[&[0, 0, 0, 1], &[0, 1], &[0x7f, 0xff, 0xff, 0xff], &[0, 3]],
        repair: None,
        allowance: Allowance {
            allocation_per_input_byte: 64,
            ..Allowance::DEFAULT
        },
    },
];

fn note_refusal<T>(result: &Result<T, Problem>) {
    note(result.as_ref().err().map(Problem::status));
    if let Err(problem) = result {
        assert!(
            (400..500).contains(&problem.status()),
            "a refusal is the asker's fault"
        );
        let text = serde_json::from_slice::<serde_json::Value>(&problem.to_bytes());
        assert!(text.is_ok(), "a problem is JSON");
    }
}

/// Lines: method, path, query.
fn routes(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n');
    let method = lines.next().unwrap_or_default();
    let path = lines.next().unwrap_or_default();
    let found = route(method, path, lines.next());
    note_refusal(&found);
    if let Ok(route) = found {
        note(route.label());
        let _ = route.body_bytes_max();
    }
}

/// Lines: type, encoding, length, expectation.
fn head(bytes: &[u8]) {
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().filter(|line| !line.is_empty());
    let (content_type, content_encoding) = (line(), line());
    let length = line().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let head = Head {
        content_type,
        content_encoding,
        content_length: length,
        expect: line(),
    };
    note_refusal(&check_head(&head, 1_000));
}

/// First byte: which body. What is accepted goes on through everything that needs no broker.
fn bodies(bytes: &[u8]) {
    let Some((&kind, body)) = bytes.split_first() else {
        return;
    };
    note(kind % 9);
    match kind % 9 {
        0 => publish(body),
        1 => note_refusal(&parse_body::<FetchBody>(body).and_then(FetchBody::check)),
        2 => note_refusal(&parse_body::<CommitBody>(body).and_then(CommitBody::check)),
        3 => note_refusal(&parse_body::<ResetBody>(body).and_then(ResetBody::check)),
        4 => {
            let client = || JoiningClient {
                new_member_id: "http-1".to_owned(),
                client_id: "curl".to_owned(),
                client_host: "127.0.0.1".to_owned(),
            };
            note_refusal(&parse_body::<JoinBody>(body).and_then(|join| join.check(client())));
        }
        5 => note_refusal(&parse_body::<HeartbeatBody>(body).and_then(HeartbeatBody::fence)),
        6 => note_refusal(&parse_body::<LeaveBody>(body).and_then(LeaveBody::member)),
        7 => {
            let parsed = parse_body::<ProducerBody>(body);
            note_refusal(&parsed.and_then(|body| body.producer()));
        }
        _ => note_refusal(&parse_body::<CreateTopicBody>(body)),
    }
}

/// Every message stands in exactly one batch or has a refusal, and every batch is one that a broker accepts.
fn publish(body: &[u8]) {
    let parsed = parse_body::<PublishBody<'_>>(body);
    note_refusal(&parsed);
    let Ok(parsed) = parsed else { return };
    let context = PublishContext {
        partitions: NonZeroU32::MIN.saturating_add(2),
        batch_bytes_max: 1 << 20,
        inline_bytes_max: INLINE_BYTES_MAX,
        now: Wall(1_700_000_000_000),
        unkeyed: 1,
        message_id_seed: 9,
    };
    let planned = plan_publish(&parsed, &context);
    note_refusal(&planned);
    let Ok(plan) = planned else { return };
    assert_eq!(plan.messages.len(), parsed.message_count());
    let mut places = vec![0; plan.messages.len()];
    for batch in &plan.batches {
        let header = corelog_batch::verify_stored_batch(&batch.bytes);
        let records = header.map(|header| header.record_count as usize);
        assert_eq!(records, Ok(batch.messages.len()));
        for message in &batch.messages {
            places[*message as usize] += 1;
        }
    }
    for (places, message) in places.iter().zip(&plan.messages) {
        assert_eq!(*places, i32::from(message.refusal.is_none()), "{message:?}");
    }
}

/// What is read of another member can be written and read again.
fn consumer_protocol(bytes: &[u8]) {
    let subscription = decode_subscription(bytes);
    note(subscription.is_ok());
    if let Ok(topics) = subscription {
        let written = encode_subscription(topics.iter().map(String::as_str));
        assert_eq!(decode_subscription(&written), Ok(topics));
    }
    let assignment = decode_assignment(bytes);
    note(assignment.is_ok());
    if let Ok(assignment) = assignment {
        assert_eq!(
            decode_assignment(&encode_assignment(&assignment)),
            Ok(assignment)
        );
    }
}

fn protocol_samples() -> Vec<Vec<u8>> {
    let assignment = [
        ("orders".to_owned(), vec![0, 1, 7]),
        ("x".to_owned(), Vec::new()),
    ]
    .into();
    let owned_partitions: &[u8] =
        b"\0\x01\0\0\0\x01\0\x01x\0\0\0\x02ab\0\0\0\x01\0\x01x\0\0\0\x01\0\0\0\0";
    vec![
        encode_subscription(["orders", "x"].into_iter()).to_vec(),
        encode_assignment(&assignment).to_vec(),
        owned_partitions.to_vec(),
    ]
}

fn route_samples() -> Vec<Vec<u8>> {
    [
        "POST\n/v1/topics",
        "GET\n/v1/topics\nafter=a%20b&limit=10",
        "GET\n/v1/topics/orders",
        "DELETE\n/v1/topics/orders",
        "POST\n/v1/topics/orders/messages:publish",
        "POST\n/v1/groups/a%2Fb/messages%3Afetch",
        "POST\n/v1/groups/g/offsets:commit",
        "POST\n/v1/groups/g/offsets:reset",
        "POST\n/v1/groups/g/members:join",
        "GET\n/v1/groups\nlimit=1",
        "GET\n/health/ready",
        "GET\n/metrics",
        "PUT\n/v1/nothing/at/all/there",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn body_samples() -> Vec<Vec<u8>> {
    let samples: [(u8, &str); 16] = [
        (
            0,
            r#"{"messages":[{"payload":"a"},{"message_key":"k","payload_base64":"AP8=","headers":[{"name":"n","value":"v"}],"message_id":"m","created_at_ms":5}]}"#,
        ),
        (
            0,
            r#"{"producer_id":1000,"producer_epoch":0,"messages":[{"partition":0,"sequence":0,"payload":"a"},{"partition":0,"sequence":1,"payload":"b"},{"partition":1,"sequence":5,"payload":null}]}"#,
        ),
        (
            0,
            r#"{"messages":[{"message_key_base64":"AAE=","payload":"a\nb","headers":[{"name":"n","value_base64":"/w=="}]}]}"#,
        ),
        (
            1,
            r#"{"topic":"orders","max_messages":100,"max_wait_ms":1000,"max_bytes":1,"from":"latest"}"#,
        ),
        (
            1,
            r#"{"topics":["a","b"],"positions":[{"topic":"a","partition":0,"offset":7}]}"#,
        ),
        (1, r#"{"member_id":"m","generation":3,"instance_id":"i"}"#),
        (
            2,
            r#"{"topic":"orders","offsets":[{"partition":2,"offset":18,"metadata":"batch 7"}]}"#,
        ),
        (
            2,
            r#"{"member_id":"m","generation":3,"offsets":[{"topic":"a","partition":2,"offset":18}]}"#,
        ),
        (
            3,
            r#"{"topic":"orders","to":{"time_ms":1767225600000},"dry_run":true}"#,
        ),
        (
            3,
            r#"{"topic":"orders","to":{"offset":3},"partitions":[0,1]}"#,
        ),
        (
            4,
            r#"{"topics":["orders"],"session_timeout_ms":30000,"rebalance_timeout_ms":60000}"#,
        ),
        (5, r#"{"member_id":"http-8c1d","generation":3}"#),
        (6, r#"{"member_id":"http-8c1d"}"#),
        (7, r#"{"producer_id":1000,"producer_epoch":0}"#),
        (
            8,
            r#"{"name":"orders","partitions":3,"settings":{"retention.ms":"1000"}}"#,
        ),
        (8, r#"{}"#),
    ];
    samples
        .iter()
        .map(|(kind, text)| [&[*kind], text.as_bytes()].concat())
        .collect()
}
