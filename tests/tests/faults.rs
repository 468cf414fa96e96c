//! Rows of `docs/FAULTS.md` that show from outside: what a client of one broker would suffer from.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions};
use corelog_tests::broker::{Broker, Options};
use corelog_tests::{http, kafka, message_api};
use corelog_wire::frame::{decode_response, encode_request};
use corelog_wire::{
    DecodeLimits, ErrorCode, FetchPartition, FetchRequest, FetchTopic, InitProducerIdRequest,
    PartitionProduceData, ProduceRequest, Records, Request, TopicProduceData,
};

const TOPIC: &str = "orders";

fn start(partitions: u32) -> Broker {
    let broker = Broker::start(Options::default()).unwrap();
    message_api::create_topic(&mut over_http(&broker), TOPIC, partitions).unwrap();
    broker
}

fn over_http(broker: &Broker) -> http::Connection {
    http::Connection::open(&broker.http_address()).unwrap()
}

fn over_kafka(broker: &Broker) -> kafka::Connection {
    kafka::Connection::open(&broker.kafka_address()).unwrap()
}

/// A batch of one record.
fn batch(producer: Option<(i64, i16)>, sequence: i32, value: &[u8]) -> Bytes {
    let (producer_id, producer_epoch) = producer.unwrap_or((-1, -1));
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch,
        base_sequence: sequence,
        ..BatchOptions::default()
    });
    builder
        .append(1_700_000_000_000, None, Some(value), &[])
        .unwrap();
    builder.build().unwrap().freeze()
}

/// Publishes one batch, and says at which offset it stands.
fn publish(kafka: &mut kafka::Connection, partition: i32, batch: Bytes) -> i64 {
    let answer = kafka.produce(TOPIC, partition, batch).unwrap();
    assert_eq!(answer.error_code, ErrorCode::NONE);
    answer.base_offset
}

/// The high watermark of partition 0.
fn watermark(kafka: &mut kafka::Connection) -> i64 {
    kafka.fetch(TOPIC, 0, 0).unwrap().high_watermark
}

/// Sends a request, and reads no answer.
fn send_only<R: Request>(stream: &mut TcpStream, request: &R, version: i16) {
    let frame = encode_request(1, Some("faults".into()), version, request).unwrap();
    stream.write_all(&frame.into_bytes()).unwrap();
}

/// Reads one answer.
fn read_answer<R: Request>(stream: &mut TcpStream, version: i16) -> R::Response {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).unwrap();
    let answer = decode_response::<R>(Bytes::from(frame), version, DecodeLimits::RESPONSE);
    answer.unwrap().1
}

fn fetch_request(bytes_max: i32, partitions: Vec<FetchPartition>) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        max_bytes: bytes_max,
        topics: vec![FetchTopic {
            topic: TOPIC.into(),
            partitions,
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

#[test]
#[ignore = "needs the release binary: ./test --only faults"]
fn a_new_topic_of_an_old_name_has_nothing_of_the_old_one() {
    let mut broker = start(1);
    let mut kafka = over_kafka(&broker);
    let producer = kafka.init_producer().unwrap();
    for sequence in 0..3 {
        publish(&mut kafka, 0, batch(Some(producer), sequence, b"old"));
    }
    let mut http = over_http(&broker);
    let read = message_api::fetch(&mut http, "group", TOPIC, 10, 1_000).unwrap();
    assert_eq!(read.len(), 3);
    message_api::commit(&mut http, "group", TOPIC, &read).unwrap();
    assert_eq!(kafka.committed("group", TOPIC, 0).unwrap(), 3);

    let path = format!("/v1/topics/{TOPIC}");
    assert_eq!(http.request("DELETE", &path, b"").unwrap().status, 204);
    message_api::create_topic(&mut http, TOPIC, 1).unwrap();
    for kill in [false, true] {
        if kill {
            broker.kill9().unwrap();
            broker.restart().unwrap();
            kafka = over_kafka(&broker);
        }
        let fetched = kafka.fetch(TOPIC, 0, 0).unwrap();
        assert_eq!(
            (fetched.error_code, fetched.high_watermark),
            (ErrorCode::NONE, 0)
        );
        assert_eq!(kafka.committed("group", TOPIC, 0).unwrap(), -1);
    }
    // Sequence 2 is the last that the old one knew: it is no repeat here.
    let offset = publish(&mut kafka, 0, batch(Some(producer), 2, b"new"));
    assert_eq!(offset, 0);
    let read = message_api::fetch(&mut over_http(&broker), "group", TOPIC, 10, 1_000).unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].payload, b"new");
}

#[test]
#[ignore = "needs the release binary: ./test --only faults"]
fn five_in_flight_whose_answers_are_lost_keep_their_offsets_over_a_kill() {
    let mut broker = start(1);
    let mut kafka = over_kafka(&broker);
    let producer = kafka.init_producer().unwrap();
    publish(&mut kafka, 0, batch(None, -1, b"somebody else's"));
    let mut deaf = TcpStream::connect(broker.kafka_address()).unwrap();
    for sequence in 0..5 {
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: TOPIC.into(),
                partition_data: vec![PartitionProduceData {
                    index: 0,
                    records: batch(Some(producer), sequence, b"value").into(),
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        send_only(&mut deaf, &request, 9);
    }
    let until = Instant::now() + Duration::from_secs(20);
    while watermark(&mut kafka) < 6 {
        assert!(Instant::now() < until, "five publishes are never kept");
    }
    drop(deaf);
    for restarts in 0..2 {
        broker.kill9().unwrap();
        broker.restart().unwrap();
        kafka = over_kafka(&broker);
        for sequence in 0..5 {
            let again = batch(Some(producer), sequence, b"value");
            let offset = publish(&mut kafka, 0, again);
            assert_eq!(offset, i64::from(sequence) + 1, "after {restarts} restarts");
        }
        assert_eq!(watermark(&mut kafka), 6);
    }
    let gap = kafka.produce(TOPIC, 0, batch(Some(producer), 6, b"value"));
    assert_eq!(
        gap.unwrap().error_code,
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
    );
    assert_eq!(
        publish(&mut kafka, 0, batch(Some(producer), 5, b"value")),
        6
    );
}

#[test]
#[ignore = "needs the release binary: ./test --only faults"]
fn a_producer_at_its_last_epoch_gets_a_new_id() {
    let broker = start(1);
    let mut kafka = over_kafka(&broker);
    let (id, first) = kafka.init_producer().unwrap();
    assert_eq!(first, 0);
    let mut raise = |epoch: i16| {
        let request = InitProducerIdRequest {
            producer_id: id,
            producer_epoch: epoch,
            ..InitProducerIdRequest::default()
        };
        let answer = kafka.ask(&request, 4).unwrap();
        assert_eq!(answer.error_code, ErrorCode::NONE);
        (answer.producer_id, answer.producer_epoch)
    };
    assert_eq!(raise(0), (id, 1));
    assert_eq!(raise(i16::MAX - 2), (id, i16::MAX - 1));
    // Fenced at the last epoch but one, twice, and at the last.
    let mut ids = vec![id];
    for epoch in [i16::MAX - 1, i16::MAX - 1, i16::MAX] {
        let (new, epoch) = raise(epoch);
        assert_eq!(epoch, 0);
        assert!(!ids.contains(&new), "{new} is somebody else's: {ids:?}");
        ids.push(new);
    }
}

/// What the record at an offset of the next test holds.
fn content(offset: i64) -> Vec<u8> {
    let mut state = offset.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(100_000);
    while bytes.len() < 100_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes
}

/// A reader that takes its answer late still gets the bytes that it asked for, whatever the broker read and sent
/// meanwhile.
#[test]
#[ignore = "needs the release binary: ./test --only faults"]
fn a_reader_that_stalls_in_mid_answer_gets_no_bytes_of_others() {
    const RECORDS: i64 = 300;
    let mut broker = start(1);
    let mut kafka = over_kafka(&broker);
    for offset in 0..RECORDS {
        publish(&mut kafka, 0, batch(None, -1, &content(offset)));
    }
    // Nothing is left in memory: every answer below is read from the disk.
    broker.kill9().unwrap();
    broker.restart().unwrap();
    let from = |offset: i64| FetchPartition {
        partition: 0,
        fetch_offset: offset,
        partition_max_bytes: 4 << 20,
        ..FetchPartition::default()
    };
    let mut stalled: Vec<(i64, TcpStream)> = (0..6)
        .map(|number| {
            let offset = number * 40;
            let mut stream = TcpStream::connect(broker.kafka_address()).unwrap();
            send_only(&mut stream, &fetch_request(4 << 20, vec![from(offset)]), 11);
            (offset, stream)
        })
        .collect();
    // Some go without a word, with their answers on the wire.
    let mut gone = stalled.split_off(4);
    for (_, stream) in &mut gone {
        stream.read_exact(&mut [0; 1_000]).unwrap();
    }
    drop(gone);
    let mut kafka = over_kafka(&broker);
    let mut next = 0;
    while next < RECORDS {
        next = assert_content(next, &kafka.fetch(TOPIC, 0, next).unwrap().records);
    }
    for offset in RECORDS..RECORDS + 50 {
        publish(&mut kafka, 0, batch(None, -1, &content(offset)));
    }
    for (offset, mut stream) in stalled {
        let mut answer = read_answer::<FetchRequest>(&mut stream, 11);
        let part = answer.responses.remove(0).partitions.remove(0);
        assert!(assert_content(offset, &part.records) > offset + 20);
    }
}

/// Every batch holds what was published at its offset; gives the offset behind them.
fn assert_content(from: i64, records: &Records) -> i64 {
    let mut next = from;
    for found in corelog_batch::batches(records.to_bytes()) {
        // The last one may be cut off.
        let Ok((header, bytes)) = found else { break };
        assert_eq!(header.base_offset, next);
        corelog_batch::verify_stored_batch(&bytes).unwrap();
        let expected = content(next);
        let is_there = bytes
            .windows(expected.len())
            .any(|window| window == expected);
        assert!(is_there, "other bytes at {next}");
        next += 1;
    }
    next
}

#[test]
#[ignore = "needs the release binary: ./test --only faults"]
fn one_huge_partition_does_not_keep_a_fetch_from_the_others() {
    const PARTITIONS: i32 = 100;
    let broker = start(PARTITIONS.unsigned_abs());
    let mut kafka = over_kafka(&broker);
    for number in 0..100 {
        publish(&mut kafka, 0, batch(None, -1, &content(number)));
    }
    for partition in 1..PARTITIONS {
        publish(&mut kafka, partition, batch(None, -1, b"small"));
    }
    for in_session in [false, true] {
        let mut kafka = over_kafka(&broker);
        let mut positions = vec![0; PARTITIONS as usize];
        let (mut session_id, mut session_epoch) = (0, if in_session { 0 } else { -1 });
        let mut rounds = 0;
        while positions.contains(&0) {
            rounds += 1;
            assert!(rounds <= 20, "somebody starves: {positions:?}");
            // The huge one always comes first, and one batch of it fills the answer.
            let all = (0..)
                .zip(&positions)
                .map(|(partition, position)| FetchPartition {
                    partition,
                    fetch_offset: *position,
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                });
            let request = FetchRequest {
                session_id,
                session_epoch,
                ..fetch_request(50_000, all.collect())
            };
            let answer = kafka.ask(&request, 11).unwrap();
            assert_eq!(answer.error_code, ErrorCode::NONE);
            if in_session {
                session_id = answer.session_id;
                session_epoch += 1;
            }
            for part in answer
                .responses
                .into_iter()
                .flat_map(|topic| topic.partitions)
            {
                let records = part.records.to_bytes();
                let batches = corelog_batch::batches(records).filter(Result::is_ok);
                positions[part.partition_index as usize] += batches.count() as i64;
            }
        }
        assert!(rounds > 1, "the huge one does not fill an answer");
    }
}
