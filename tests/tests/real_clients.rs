//! Real clients, driven in their own languages, against one broker: kcat 1.7 (librdkafka 2.0), confluent-kafka 2.16
//! and kafka-python 3.0. Each reads what every other one wrote, HTTP too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;
use corelog_batch::{BatchHeader, Codec, batches};
use corelog_tests::broker::{Broker, Options};
use corelog_tests::http::Connection;
use corelog_tests::message_api;
use serde_json::Value;

/// Names the Python of the environment that has the clients.
const PYTHON_VARIABLE: &str = "CORELOG_PYTHON";
/// Ends a client that hangs.
const CLIENT_SECONDS_MAX: &str = "180";
const COUNT: usize = 200;
const CODECS: [(Codec, &str); 5] = [
    (Codec::None, "none"),
    (Codec::Gzip, "gzip"),
    (Codec::Snappy, "snappy"),
    (Codec::Lz4, "lz4"),
    (Codec::Zstd, "zstd"),
];

struct Rig {
    broker: Broker,
    http: Connection,
}

impl Rig {
    fn new() -> Self {
        let broker = Broker::start(Options::default()).unwrap();
        let http = Connection::open(&broker.http_address()).unwrap();
        Self { broker, http }
    }

    fn python(&self, script: &str, arguments: &[&str]) -> Value {
        let python = std::env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| "python3".into());
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/clients")
            .join(script);
        let output = Command::new("timeout")
            .arg(CLIENT_SECONDS_MAX)
            .arg(python)
            .arg(&script)
            .arg(self.broker.kafka_address())
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{} {arguments:?}: {}\n{said}",
            script.display(),
            output.status
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn librdkafka(&self, arguments: &[&str]) -> Value {
        self.python("librdkafka.py", arguments)
    }

    fn kafka_python(&self, arguments: &[&str]) -> Value {
        self.python("kafka_python.py", arguments)
    }

    fn kcat_produce(&self, topic: &str, codec: &str, prefix: &str) {
        let mut kcat = Command::new("timeout")
            .args([
                CLIENT_SECONDS_MAX,
                "kcat",
                "-P",
                "-b",
                &self.broker.kafka_address(),
                "-t",
                topic,
            ])
            .args(["-K", "\t", "-z", codec, "-X", "partitioner=murmur2_random"])
            .args(["-X", "acks=all", "-X", "enable.idempotence=true"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = kcat.stdin.take().unwrap();
        for number in 0..COUNT {
            writeln!(
                input,
                "{prefix}-key{}\t{}",
                number % 10,
                value(prefix, number)
            )
            .unwrap();
        }
        drop(input);
        assert!(kcat.wait().unwrap().success());
    }

    fn kcat_read(&self, topic: &str, count: usize) -> BTreeSet<String> {
        let output = Command::new("timeout")
            .args([
                CLIENT_SECONDS_MAX,
                "kcat",
                "-C",
                "-q",
                "-e",
                "-o",
                "beginning",
            ])
            .args([
                "-b",
                &self.broker.kafka_address(),
                "-t",
                topic,
                "-f",
                "%s\n",
            ])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), count, "kcat read another number");
        text.lines().map(str::to_owned).collect()
    }

    fn http_produce(&mut self, topic: &str, prefix: &str) {
        let messages: Vec<(String, String)> = (0..COUNT)
            .map(|number| {
                (
                    format!("{prefix}-key{}", number % 10),
                    value(prefix, number),
                )
            })
            .collect();
        let messages: Vec<(&str, &str)> = messages
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        message_api::publish(&mut self.http, topic, &messages).unwrap();
    }

    /// Everything in a topic, in order of place.
    fn http_read(&mut self, group: &str, topic: &str) -> Vec<message_api::Message> {
        let mut messages = Vec::new();
        loop {
            let fetched = message_api::fetch(&mut self.http, group, topic, 1_000, 200).unwrap();
            if fetched.is_empty() {
                messages.sort();
                return messages;
            }
            message_api::commit(&mut self.http, group, topic, &fetched).unwrap();
            messages.extend(fetched);
        }
    }

    /// The headers of the batches of the newest topic folder, as they stand on disk.
    fn batches_on_disk(&self) -> Vec<BatchHeader> {
        let topics = self.broker.data_directory().join("topics");
        let mut headers = Vec::new();
        for segment in segments(&topics) {
            for batch in batches(Bytes::from(fs::read(segment).unwrap())) {
                // Behind the last batch stand zeros.
                let Ok((header, _)) = batch else { break };
                headers.push(header);
            }
        }
        headers
    }
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|ending| ending == "log") {
            found.push(path);
        }
    }
    found
}

fn value(prefix: &str, number: usize) -> String {
    format!("{prefix}-{number} {}", "x".repeat(100))
}

fn values(prefix: &str) -> BTreeSet<String> {
    (0..COUNT).map(|number| value(prefix, number)).collect()
}

fn strings(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().unwrap();
    list.iter()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

#[test]
#[ignore = "needs the release binary, kcat and the Python clients: ./test --only clients"]
fn every_client_reads_what_every_other_wrote() {
    let mut rig = Rig::new();
    let topic = "shared";
    rig.librdkafka(&["create", topic, "4"]);
    let count = COUNT.to_string();
    rig.librdkafka(&[
        "produce",
        topic,
        "zstd",
        &count,
        "librdkafka",
        "--idempotent",
    ]);
    rig.kafka_python(&["produce", topic, "gzip", &count, "python"]);
    rig.kcat_produce(topic, "lz4", "kcat");
    rig.http_produce(topic, "http");
    let expected: BTreeSet<String> = ["librdkafka", "python", "kcat", "http"]
        .into_iter()
        .flat_map(values)
        .collect();
    let all = expected.len();
    assert_eq!(rig.kcat_read(topic, all), expected);
    let by_python = rig.kafka_python(&["read", topic, &all.to_string()]);
    let by_python: Vec<(i64, i64, String, String)> =
        serde_json::from_value(by_python["records"].clone()).unwrap();
    assert_eq!(by_python.len(), all);
    let by_http = rig.http_read("http-reads", topic);
    assert_eq!(by_http.len(), all);
    let mut by_python: Vec<_> = by_python
        .into_iter()
        .map(|(partition, offset, key, value)| message_api::Message {
            partition: partition as i32,
            offset,
            key: key.into_bytes(),
            payload: value.into_bytes(),
        })
        .collect();
    by_python.sort();
    assert_eq!(by_http, by_python, "two clients see different logs");
    for message in &by_http {
        assert!(expected.contains(std::str::from_utf8(&message.payload).unwrap()));
    }
    let grouped = rig.librdkafka(&["group", topic, "librdkafka-reads", &all.to_string()]);
    assert_eq!(strings(&grouped["values"]), expected);
}

#[test]
#[ignore = "needs the release binary, kcat and the Python clients: ./test --only clients"]
fn every_codec_stands_on_disk_as_the_client_chose_it() {
    let count = COUNT.to_string();
    for (codec, name) in CODECS {
        for client in ["librdkafka", "kafka-python", "kcat"] {
            let rig = Rig::new();
            let topic = "compressed";
            rig.librdkafka(&["create", topic, "1"]);
            match client {
                "librdkafka" => drop(rig.librdkafka(&["produce", topic, name, &count, "p"])),
                "kafka-python" => drop(rig.kafka_python(&["produce", topic, name, &count, "p"])),
                _ => rig.kcat_produce(topic, name, "p"),
            }
            assert_eq!(rig.kcat_read(topic, COUNT), values("p"), "{client}, {name}");
            let headers = rig.batches_on_disk();
            let records: i32 = headers.iter().map(|header| header.record_count).sum();
            assert_eq!(records as usize, COUNT);
            // A client leaves a batch as it is where compression would make it longer.
            let large = headers.iter().filter(|header| header.record_count > 5);
            for header in large {
                assert_eq!(header.codec().unwrap(), codec, "{client}, {name}");
            }
        }
    }
}

#[test]
#[ignore = "needs the release binary, kcat and the Python clients: ./test --only clients"]
fn idempotent_batches_carry_their_producer_on_disk() {
    let rig = Rig::new();
    rig.librdkafka(&["create", "once", "1"]);
    let produced = rig.librdkafka(&[
        "produce",
        "once",
        "none",
        &COUNT.to_string(),
        "p",
        "--idempotent",
    ]);
    assert_eq!(produced["places"].as_array().unwrap().len(), COUNT);
    let mut sequence = 0;
    for header in rig.batches_on_disk() {
        assert!(header.producer_id >= 0);
        assert_eq!(header.base_sequence, sequence);
        sequence += header.record_count;
    }
    assert_eq!(sequence as usize, COUNT);
}

#[test]
#[ignore = "needs the release binary, kcat and the Python clients: ./test --only clients"]
fn a_group_of_two_shares_and_goes_on_when_one_leaves() {
    let rig = Rig::new();
    let count = COUNT.to_string();
    rig.librdkafka(&["create", "orders", "4"]);
    rig.librdkafka(&["produce", "orders", "none", &count, "p"]);
    let read = rig.librdkafka(&["group", "orders", "workers", &count]);
    assert_eq!(strings(&read["values"]), values("p"));
    let shares = read["shares"].as_array().unwrap();
    let partitions: Vec<i64> = shares
        .iter()
        .flat_map(|share| share.as_array().unwrap())
        .map(|partition| partition.as_i64().unwrap())
        .collect();
    assert_eq!(
        partitions.iter().collect::<BTreeSet<_>>().len(),
        partitions.len(),
        "shared twice: {shares:?}"
    );
    let read = rig.kafka_python(&["group", "orders", "python-workers", &count]);
    assert_eq!(
        read["count"], COUNT,
        "each record once: the second went on from the commit"
    );
    assert_eq!(strings(&read["values"]), values("p"));
}

#[test]
#[ignore = "needs the release binary, kcat and the Python clients: ./test --only clients"]
fn seeking_by_time_finds_the_first_record_at_or_past_it() {
    let rig = Rig::new();
    rig.librdkafka(&["create", "timed", "3"]);
    rig.librdkafka(&["produce", "timed", "lz4", &COUNT.to_string(), "p"]);
    let time_ms = 1_700_000_100_500_i64;
    let found = rig.librdkafka(&["seek", "timed", &time_ms.to_string()]);
    let all = rig.kafka_python(&["read", "timed", &COUNT.to_string()]);
    for (partition, first) in found["first"].as_object().unwrap() {
        let earliest = all["records"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|record| record[0].as_i64() == partition.parse().ok())
            .filter_map(|record| {
                let text = record[3].as_str().unwrap();
                let number: i64 = text.split(['-', ' ']).nth(1).unwrap().parse().unwrap();
                let stamp = 1_700_000_000_000 + number * 1_000;
                (stamp >= time_ms).then_some((record[1].as_i64().unwrap(), stamp))
            })
            .min();
        assert_eq!(
            first[0].as_i64(),
            earliest.map(|(_, stamp)| stamp),
            "partition {partition}"
        );
    }
}

#[test]
#[ignore = "needs the release binary, kcat and the Python clients: ./test --only clients"]
fn a_record_above_the_inline_limit_is_refused_by_name() {
    let rig = Rig::new();
    rig.librdkafka(&["create", "small", "1"]);
    let refused = rig.librdkafka(&["large", "small", "500000"]);
    eprintln!("librdkafka says: {}", refused["refused"]);
}
