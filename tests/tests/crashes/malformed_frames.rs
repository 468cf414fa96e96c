//! One packet does not stop a core: malformed frames in every state of a connection, on both ports, while others are
//! served.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions, Codec};
use corelog_tests::broker::{Broker, Options};
use corelog_tests::{http, kafka, message_api};
use corelog_wire::{API_VERSIONS, ErrorCode};

const TOPIC: &str = "orders";

/// A frame of one request: key, version, correlation id, an empty client id, then `body`.
fn frame(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend_from_slice(&api.to_be_bytes());
    header.extend_from_slice(&version.to_be_bytes());
    header.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
    let length = (header.len() + body.len()) as u32;
    [&length.to_be_bytes()[..], &header, body].concat()
}

/// Bytes for the Kafka port that no client sends.
fn hostile_to_kafka() -> Vec<Vec<u8>> {
    let mut packets = vec![
        vec![0xff; 4],
        vec![0x7f, 0xff, 0xff, 0xff],
        vec![0, 0, 0, 0],
        vec![0, 0, 0, 1, 0],
        vec![0, 0, 0],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        frame(-1, 0, &[]),
        frame(9_999, 0, &[]),
        vec![0; 100_000],
    ];
    for range in API_VERSIONS {
        let api = range.api.code();
        for version in [range.built_min, range.max, range.max + 1, -1] {
            for body in [
                &[][..],
                &[0xff; 40],
                &[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff],
                &[0; 64],
                &[
                    0, 0x80, 0x94, 0xeb, 0xdc, 0x03, 0xff, 0xff, 0xff, 0xff, 0x0f,
                ],
                &[1; 300],
            ] {
                packets.push(frame(api, version, body));
            }
        }
    }
    packets
}

fn hostile_to_http() -> Vec<Vec<u8>> {
    let post = |path: &str, head: &str, body: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\n{head}\r\n{body}").into_bytes()
    };
    let long = "x".repeat(100_000);
    vec![
        vec![0xff; 100],
        b"\r\n\r\n\r\n".to_vec(),
        b"GET".to_vec(),
        format!("GET /{long} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes(),
        format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n").into_bytes(),
        b"GET /v1/topics HTTP/9.9\r\n\r\n".to_vec(),
        post("/v1/topics", "content-length: 99999999999999999999\r\n", ""),
        post("/v1/topics", "content-length: -1\r\n", ""),
        post(
            "/v1/topics",
            "content-length: 5\r\ncontent-length: 6\r\n",
            "{}   ",
        ),
        post(
            "/v1/topics",
            "transfer-encoding: chunked\r\n",
            "ffffffffffffffff\r\n",
        ),
        post("/v1/topics", "transfer-encoding: chunked\r\n", "zz\r\n"),
        post("/v1/topics", "content-length: 9\r\n", "[[[[[[[[["),
        post(
            "/v1/topics/orders/messages:publish",
            "content-length: 100\r\n",
            "{\"messages\": [",
        ),
        post(
            "/v1/groups/%zz/messages:fetch",
            "content-length: 2\r\n",
            "{}",
        ),
        post(
            "/v1/groups/%00/messages:fetch",
            "content-length: 18\r\n",
            "{\"topic\":\"orders\"}",
        ),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(18, 3, &[0; 10]),
    ]
}

fn batch(codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        ..BatchOptions::default()
    });
    builder
        .append(1_700_000_000_000, Some(b"key"), Some(&[7; 500]), &[])
        .unwrap();
    builder.build().unwrap().freeze()
}

/// Sends bytes, waits a moment for whatever comes, and goes without a word.
fn throw(address: &str, packet: &[u8], half_close: bool) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(30)))
        .unwrap();
    if stream.write_all(packet).is_err() {
        return;
    }
    if half_close {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let _ = stream.read(&mut [0; 4_096]);
}

/// Both faces still answer those who behave.
struct Others {
    kafka: kafka::Connection,
    http: http::Connection,
    published: i64,
}

impl Others {
    fn assert_served(&mut self) {
        let answer = self.kafka.produce(TOPIC, 0, batch(Codec::None)).unwrap();
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (ErrorCode::NONE, self.published)
        );
        self.published += 1;
        let live = self.http.request("GET", "/health/ready", b"").unwrap();
        assert_eq!(live.status, 200);
    }
}

#[test]
#[ignore = "needs the release binary: ./test --only crashes"]
fn one_packet_does_not_stop_a_core() {
    let broker = Broker::start(Options::default()).unwrap();
    let process = broker.process_id();
    let mut http = http::Connection::open(&broker.http_address()).unwrap();
    message_api::create_topic(&mut http, TOPIC, 1).unwrap();
    let kafka = kafka::Connection::open(&broker.kafka_address()).unwrap();
    let mut others = Others {
        kafka,
        http,
        published: 0,
    };
    others.assert_served();
    let ports = [
        (broker.kafka_address(), hostile_to_kafka()),
        (broker.http_address(), hostile_to_http()),
    ];
    for (address, packets) in &ports {
        for (number, packet) in packets.iter().enumerate() {
            throw(address, packet, number % 2 == 0);
            // Cut off in the middle, and behind a good request.
            throw(address, &packet[..packet.len() / 2], true);
            throw(address, &[&frame(18, 0, &[]), &packet[..]].concat(), false);
            if number % 10 == 0 {
                others.assert_served();
            }
        }
        others.assert_served();
    }
    assert_eq!(broker.process_id(), process);
}

#[test]
#[ignore = "needs the release binary: ./test --only crashes"]
fn batches_that_do_not_verify_are_refused_and_the_connection_lives() {
    let broker = Broker::start(Options::default()).unwrap();
    let mut http = http::Connection::open(&broker.http_address()).unwrap();
    message_api::create_topic(&mut http, TOPIC, 1).unwrap();
    let mut kafka = kafka::Connection::open(&broker.kafka_address()).unwrap();
    for codec in Codec::ALL {
        let good = batch(codec);
        for at in [8, 16, 17, 22, 23, 57, good.len() - 1] {
            let mut bad = good.to_vec();
            bad[at] ^= 0x55;
            let answer = kafka.produce(TOPIC, 0, Bytes::from(bad)).unwrap();
            assert_ne!(answer.error_code, ErrorCode::NONE, "{codec}, byte {at}");
        }
        let answer = kafka.produce(TOPIC, 0, good).unwrap();
        assert_eq!(answer.error_code, ErrorCode::NONE, "{codec}");
    }
    let read = kafka.fetch(TOPIC, 0, 0).unwrap();
    assert_eq!(read.high_watermark, Codec::ALL.len() as i64);
}
