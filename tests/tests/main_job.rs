//! The main job: a real file goes in line by line with keys, through kcat and through HTTP, and comes back by
//! consumer groups byte for byte and in order per key, before and after a SIGKILL of the broker.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use corelog_tests::broker::{Broker, Options};
use corelog_tests::http::Connection;
use corelog_tests::message_api::{self, Message};
use corelog_tests::package_index::{KeyedLine, keyed_lines};

const LINES: usize = 120_000;
const PARTITIONS: u32 = 8;
const HTTP_BATCH: usize = 1_000;
const THROUGH_KCAT: &str = "packages-kcat";
const THROUGH_HTTP: &str = "packages-http";

#[test]
fn every_debian_machine_has_lines_enough_and_their_keys_part_from_them_at_a_tab() {
    let lines = keyed_lines(LINES).unwrap();
    assert_eq!(lines.len(), LINES);
    for (key, line) in lines {
        assert!(!key.is_empty() && !key.contains(['\t', '\n']), "{key:?}");
        assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
    }
}

#[test]
#[ignore = "needs the release binary and kcat: ./test --only main-job"]
fn a_real_file_comes_back_byte_for_byte_in_order_per_key_before_and_after_a_kill() {
    let lines = keyed_lines(LINES).unwrap();
    assert!(lines.len() >= 100_000);
    let mut broker = Broker::start(Options::default()).unwrap();
    let mut http = Connection::open(&broker.http_address()).unwrap();
    for topic in [THROUGH_KCAT, THROUGH_HTTP] {
        message_api::create_topic(&mut http, topic, PARTITIONS).unwrap();
    }
    publish_through_kcat(&broker, THROUGH_KCAT, &lines);
    publish_through_http(&mut http, THROUGH_HTTP, &lines);

    let mut before = Vec::new();
    for topic in [THROUGH_KCAT, THROUGH_HTTP] {
        let by_kcat = read_by_kcat_group(&broker, "kcat-before", topic, lines.len());
        let by_http = read_by_http_group(&mut http, "http-before", topic, lines.len());
        assert_same_content(&lines, &by_kcat);
        assert_eq!(by_kcat, by_http, "the faces differ on {topic}");
        before.push(by_kcat);
    }
    assert_eq!(
        partition_of_keys(&before[0]),
        partition_of_keys(&before[1]),
        "the faces put keys in different partitions"
    );

    broker.kill9().unwrap();
    let ready_after = broker.restart().unwrap();
    eprintln!("ready {ready_after:?} after the start that followed the kill");

    let mut http = Connection::open(&broker.http_address()).unwrap();
    for (topic, before) in [THROUGH_KCAT, THROUGH_HTTP].into_iter().zip(before) {
        let by_kcat = read_by_kcat_group(&broker, "kcat-after", topic, lines.len());
        assert_eq!(before, by_kcat, "{topic} changed over the kill");
        let by_http = read_by_http_group(&mut http, "http-after", topic, lines.len());
        assert_eq!(before, by_http, "{topic} changed over the kill");
        let again = message_api::fetch(&mut http, "http-before", topic, 10, 200).unwrap();
        assert!(again.is_empty(), "commits were lost over the kill");
    }
}

fn publish_through_kcat(broker: &Broker, topic: &str, lines: &[KeyedLine]) {
    let mut kcat = Command::new("kcat")
        .args(["-P", "-b", &broker.kafka_address(), "-t", topic])
        .args(["-K", "\t", "-X", "partitioner=murmur2_random"])
        .args(["-X", "acks=all", "-X", "enable.idempotence=true"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = std::io::BufWriter::new(kcat.stdin.take().unwrap());
    for (key, line) in lines {
        writeln!(input, "{key}\t{line}").unwrap();
    }
    drop(input);
    let status = kcat.wait().unwrap();
    assert!(status.success(), "kcat -P: {status}");
}

fn publish_through_http(http: &mut Connection, topic: &str, lines: &[KeyedLine]) {
    for batch in lines.chunks(HTTP_BATCH) {
        let messages: Vec<(&str, &str)> = batch
            .iter()
            .map(|(key, line)| (key.as_str(), line.as_str()))
            .collect();
        message_api::publish(http, topic, &messages).unwrap();
    }
}

/// Reads a topic of `count` messages through a consumer group of kcat, sorted by place.
fn read_by_kcat_group(broker: &Broker, group: &str, topic: &str, count: usize) -> Vec<Message> {
    let output = Command::new("timeout")
        .args(["120", "kcat", "-q", "-b", &broker.kafka_address()])
        .args(["-X", "auto.offset.reset=earliest", "-c", &count.to_string()])
        // Partition, offset, lengths, then the bytes themselves, which may be anything.
        .args(["-f", "%p %o %K %S %k%s"])
        .args(["-G", &format!("{group}-{topic}"), topic])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "kcat -G: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let messages = parse_kcat(&output.stdout);
    assert_eq!(
        messages.len(),
        count,
        "kcat read another number of messages"
    );
    in_order_of_place(messages)
}

fn parse_kcat(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let mut number = || {
            let end = bytes.iter().position(|byte| *byte == b' ').unwrap();
            let text = std::str::from_utf8(&bytes[..end]).unwrap();
            bytes = &bytes[end + 1..];
            text.parse::<i64>().unwrap()
        };
        let [partition, offset, key_length, payload_length] = std::array::from_fn(|_| number());
        let (key, rest) = bytes.split_at(key_length.max(0) as usize);
        let (payload, rest) = rest.split_at(payload_length.max(0) as usize);
        messages.push(Message {
            partition: partition as i32,
            offset,
            key: key.to_vec(),
            payload: payload.to_vec(),
        });
        bytes = rest;
    }
    messages
}

/// Reads a topic of `count` messages through a group over HTTP, with a commit for each answer, sorted by place.
fn read_by_http_group(
    http: &mut Connection,
    group: &str,
    topic: &str,
    count: usize,
) -> Vec<Message> {
    let mut messages = Vec::new();
    loop {
        let fetched = message_api::fetch(http, group, topic, HTTP_BATCH, 200).unwrap();
        if fetched.is_empty() {
            break;
        }
        message_api::commit(http, group, topic, &fetched).unwrap();
        messages.extend(fetched);
        assert!(messages.len() <= count, "more came back than went in");
    }
    assert_eq!(
        messages.len(),
        count,
        "the group read another number of messages"
    );
    in_order_of_place(messages)
}

/// Sorts messages by partition and offset, having checked that each partition came in order.
fn in_order_of_place(mut messages: Vec<Message>) -> Vec<Message> {
    let mut next = BTreeMap::new();
    for message in &messages {
        let expected = next.entry(message.partition).or_insert(0);
        assert_eq!(message.offset, *expected, "partition {}", message.partition);
        *expected += 1;
    }
    messages.sort();
    messages
}

/// Each key has the same lines in the same order, and no other key is there.
fn assert_same_content(lines: &[KeyedLine], messages: &[Message]) {
    let mut expected: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for (key, line) in lines {
        let of_key = expected.entry(key.as_bytes()).or_default();
        of_key.push(line.as_bytes());
    }
    let mut read: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for message in messages {
        read.entry(&message.key).or_default().push(&message.payload);
    }
    assert_eq!(expected.len(), read.len(), "numbers of keys");
    for (key, lines) in expected {
        let key_text = String::from_utf8_lossy(key);
        assert!(
            read.get(key) == Some(&lines),
            "the lines of {key_text:?} differ"
        );
    }
}

/// The one partition of each key.
fn partition_of_keys(messages: &[Message]) -> BTreeMap<&[u8], i32> {
    let mut partitions = BTreeMap::new();
    for message in messages {
        let partition = *partitions
            .entry(message.key.as_slice())
            .or_insert(message.partition);
        assert_eq!(partition, message.partition, "a key in two partitions");
    }
    partitions
}
