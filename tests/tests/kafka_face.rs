//! The Kafka face from outside: what `docs/KAFKA.md` says of this broker's answers, asked on the wire.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions};
use corelog_tests::broker::{Broker, Options};
use corelog_tests::{http, kafka, message_api};
use corelog_wire::{
    ApiVersionsRequest, ErrorCode, FetchPartition, FetchPartitionData, FetchRequest, FetchTopic,
    LeaderEpochEndOffset, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

const TOPIC: &str = "orders";

/// A broker and a connection to each of its faces.
struct Face {
    broker: Broker,
    kafka: kafka::Connection,
}

impl Face {
    fn start() -> Self {
        let broker = Broker::start(Options::default()).unwrap();
        let mut http = http::Connection::open(&broker.http_address()).unwrap();
        message_api::create_topic(&mut http, TOPIC, 1).unwrap();
        let kafka = kafka::Connection::open(&broker.kafka_address()).unwrap();
        Self { broker, kafka }
    }

    fn kill_and_restart(&mut self) {
        self.broker.kill9().unwrap();
        self.broker.restart().unwrap();
        self.kafka = kafka::Connection::open(&self.broker.kafka_address()).unwrap();
    }

    fn publish(&mut self, records: usize) {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for _ in 0..records {
            builder.append(1, None, Some(b"v"), &[]).unwrap();
        }
        let batch: Bytes = builder.build().unwrap().freeze();
        let answer = self.kafka.produce(TOPIC, 0, batch).unwrap();
        assert_eq!(answer.error_code, ErrorCode::NONE);
    }

    /// Where the newest epoch not newer than `epoch` ends, asked by somebody who believes in `current`.
    fn end_of(&mut self, epoch: i32, current: i32) -> LeaderEpochEndOffset {
        let request = OffsetForLeaderEpochRequest {
            replica_id: -1,
            topics: vec![OffsetForLeaderTopic {
                topic: TOPIC.into(),
                partitions: vec![OffsetForLeaderPartition {
                    partition: 0,
                    current_leader_epoch: current,
                    leader_epoch: epoch,
                }],
            }],
        };
        let mut answer = self.kafka.ask(&request, 4).unwrap();
        answer.topics.remove(0).partitions.remove(0)
    }

    /// A fetch from `offset` on by somebody whose last record is of epoch `last`.
    fn fetch(&mut self, offset: i64, last: i32, current: i32) -> FetchPartitionData {
        let request = FetchRequest {
            max_wait_ms: 10_000,
            min_bytes: 1,
            topics: vec![FetchTopic {
                topic: TOPIC.into(),
                partitions: vec![FetchPartition {
                    partition: 0,
                    current_leader_epoch: current,
                    fetch_offset: offset,
                    last_fetched_epoch: last,
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                }],
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        };
        let mut answer = self.kafka.ask(&request, 12).unwrap();
        answer.responses.remove(0).partitions.remove(0)
    }

    fn latest(&mut self, current: i32) -> (ErrorCode, i32) {
        let request = ListOffsetsRequest {
            topics: vec![ListOffsetsTopic {
                name: TOPIC.into(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: 0,
                    current_leader_epoch: current,
                    timestamp: -1,
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        let mut answer = self.kafka.ask(&request, 7).unwrap();
        let partition = answer.topics.remove(0).partitions.remove(0);
        (partition.error_code, partition.leader_epoch)
    }
}

#[test]
#[ignore = "needs the release binary: ./test --only kafka"]
fn ends_of_epochs_and_diverging_readers_are_told_over_restarts() {
    let mut face = Face::start();
    let versions = face.kafka.ask(&ApiVersionsRequest::default(), 3).unwrap();
    let advertised = versions.api_keys.iter().find(|api| api.api_key == 23);
    let range = advertised.map(|api| (api.min_version, api.max_version));
    assert_eq!(range, Some((2, 4)));

    face.publish(3);
    let (code, first) = face.latest(-1);
    assert_eq!(code, ErrorCode::NONE);
    face.kill_and_restart();
    face.publish(2);
    let (_, second) = face.latest(-1);
    assert!(second > first, "a start is a new epoch");

    let told = |end: LeaderEpochEndOffset| (end.error_code, end.leader_epoch, end.end_offset);
    assert_eq!(
        told(face.end_of(first, second)),
        (ErrorCode::NONE, first, 3)
    );
    assert_eq!(told(face.end_of(second, -1)), (ErrorCode::NONE, second, 5));
    assert_eq!(told(face.end_of(second + 1, -1)), (ErrorCode::NONE, -1, -1));

    // Offset 4 lies behind the end of the first epoch; 3 does not. The wait is ten seconds: a reader that diverges is
    // answered before.
    let asked = std::time::Instant::now();
    let diverging = face.fetch(5, first, second);
    assert!(asked.elapsed().as_secs() < 8);
    assert!(diverging.records.is_empty());
    let end = &diverging.diverging_epoch;
    assert_eq!((end.epoch, end.end_offset), (first, 3));
    let whole = face.fetch(3, first, second);
    assert_eq!(
        (whole.error_code, whole.diverging_epoch.epoch),
        (ErrorCode::NONE, -1)
    );
    assert!(!whole.records.is_empty());

    for (current, code) in [
        (first, ErrorCode::FENCED_LEADER_EPOCH),
        (second + 1, ErrorCode::UNKNOWN_LEADER_EPOCH),
    ] {
        assert_eq!(face.fetch(0, -1, current).error_code, code);
        assert_eq!(face.latest(current).0, code);
        assert_eq!(face.end_of(first, current).error_code, code);
    }
}

#[test]
#[ignore = "needs the release binary: ./test --only kafka"]
fn commits_past_the_end_and_malformed_frames_are_counted() {
    let mut face = Face::start();
    face.publish(3);
    // The end itself is where every consumer stands that has read all.
    for offset in [3, 1_003] {
        let stored = face.kafka.commit("g", TOPIC, 0, offset);
        stored.expect("stored on this wire");
    }
    // Metadata v9 with an array of 2^31 - 1 topics; an API that nobody has; a length below zero.
    let frames: [&[u8]; 3] = [
        b"\0\0\0\x10\0\x03\0\x09\0\0\0\x01\0\0\0\xff\xff\xff\xff\x07",
        b"\0\0\0\x0a\x27\x0f\0\0\0\0\0\x01\0\0",
        b"\xff\xff\xff\xff",
    ];
    for frame in frames {
        let mut stream = TcpStream::connect(face.broker.kafka_address()).unwrap();
        stream.write_all(frame).unwrap();
        let mut rest = Vec::new();
        // The connection ends, in order or not.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    let mut http = http::Connection::open(&face.broker.http_address()).unwrap();
    let metrics = http.request("GET", "/metrics", b"").unwrap();
    let metrics = String::from_utf8(metrics.body).unwrap();
    let sum = |start: &str, end: &str| -> u64 {
        let lines = metrics.lines().filter(|line| line.starts_with(start));
        let lines = lines.filter_map(|line| line.split_once(&format!("{end}}} ")));
        lines
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum()
    };
    assert_eq!(
        sum("corelog_commits_past_end_total{", "outcome=\"stored\""),
        1,
        "{metrics}"
    );
    for reason in ["malformed_body", "unsupported", "too_large"] {
        let label = format!("face=\"kafka\",reason=\"{reason}\"");
        assert_eq!(
            sum("corelog_connections_ended_total{", &label),
            1,
            "{reason}\n{metrics}"
        );
    }
}
