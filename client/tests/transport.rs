//! The tokio transport against a scripted broker on a real socket.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;

use bytes::BytesMut;
use corelog_client::core::{
    ConnectionSettings, Outcome, ProducerSettings, PublishFailure, RecordToPublish,
};
use corelog_client::transport::{BrokerConnection, Client, ClientError, ClientSettings, Producer};
use corelog_client::wire::frame::{decode_request_header, encode_any_response, take_frame};
use corelog_client::wire::{
    AnyRequest, AnyResponse, ApiVersionsResponse, DecodeLimits, ErrorCode, InitProducerIdResponse,
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the broker does with the next Produce.
#[derive(Clone, Copy, Debug)]
enum Step {
    Answer(ErrorCode),
    /// Closes the connection without an answer.
    Close,
    /// Never answers.
    Silence,
}

/// Sequences of the batches of partition 0 in the order in which they came.
type Seen = Vec<i32>;

/// Serves one connection after another until the script has been played and the client is gone.
async fn serve(listener: TcpListener, mut script: VecDeque<Step>) -> Seen {
    let port = listener.local_addr().unwrap().port();
    let mut seen = Seen::new();
    let (sender, mut received) = tokio::sync::mpsc::channel::<TcpStream>(8);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if sender.send(stream).await.is_err() {
                return;
            }
        }
    });
    let mut connections: Vec<(TcpStream, BytesMut)> = Vec::new();
    let mut idle = 0;
    while idle < 200 {
        while let Ok(stream) = received.try_recv() {
            connections.push((stream, BytesMut::new()));
        }
        let mut index = 0;
        let mut was_idle = true;
        while index < connections.len() {
            let (stream, buffer) = &mut connections[index];
            let mut keep = true;
            let mut chunk = [0; 65_536];
            match stream.try_read(&mut chunk) {
                Ok(0) => keep = false,
                Ok(read) => buffer.extend_from_slice(&chunk[..read]),
                Err(_) => {}
            }
            while keep && let Some(frame) = take_frame(buffer, 1 << 20).unwrap() {
                was_idle = false;
                let (header, body) = decode_request_header(frame, DecodeLimits::REQUEST).unwrap();
                let request =
                    AnyRequest::decode(header.api, header.version, body, DecodeLimits::REQUEST);
                let response = match request.unwrap() {
                    AnyRequest::Produce(request) => {
                        let data = &request.topic_data[0].partition_data[0];
                        let batch = data.records.to_bytes();
                        let parsed = corelog_client::batch::BatchHeader::parse(&batch).unwrap();
                        seen.push(parsed.base_sequence);
                        match script.pop_front().unwrap_or(Step::Answer(ErrorCode::NONE)) {
                            Step::Close => {
                                keep = false;
                                continue;
                            }
                            Step::Silence => continue,
                            Step::Answer(code) => produced(code),
                        }
                    }
                    other => answer(&other, port),
                };
                let bytes =
                    encode_any_response(header.correlation_id, header.version, &response).unwrap();
                stream.write_all(&bytes.into_bytes()).await.unwrap();
            }
            if keep {
                index += 1;
            } else {
                connections.swap_remove(index);
            }
        }
        idle = if was_idle { idle + 1 } else { 0 };
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    seen
}

fn produced(error_code: ErrorCode) -> AnyResponse {
    AnyResponse::Produce(ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: "t".into(),
            partition_responses: vec![PartitionProduceResponse {
                error_code,
                base_offset: 9,
                ..PartitionProduceResponse::default()
            }],
            ..TopicProduceResponse::default()
        }],
        ..ProduceResponse::default()
    })
}

fn answer(request: &AnyRequest, port: u16) -> AnyResponse {
    match request {
        AnyRequest::ApiVersions(_) => {
            AnyResponse::ApiVersions(ApiVersionsResponse::advertising(|_| true))
        }
        AnyRequest::InitProducerId(_) => AnyResponse::InitProducerId(InitProducerIdResponse {
            producer_id: 5,
            ..InitProducerIdResponse::default()
        }),
        AnyRequest::Metadata(_) => AnyResponse::Metadata(MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: 1,
                host: "127.0.0.1".into(),
                port: i32::from(port),
                rack: None,
            }],
            topics: vec![MetadataResponseTopic {
                name: Some("t".into()),
                partitions: vec![MetadataResponsePartition {
                    leader_id: 1,
                    ..MetadataResponsePartition::default()
                }],
                ..MetadataResponseTopic::default()
            }],
            ..MetadataResponse::default()
        }),
        other => panic!("not scripted: {other:?}"),
    }
}

/// Publishes two records, each in a batch of its own, over the script.
async fn publish(script: &[Step], settings: ProducerSettings) -> (Vec<Outcome>, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let broker = tokio::spawn(serve(listener, script.iter().copied().collect()));
    let client_settings = ClientSettings {
        retry_backoff_ms: 1,
        request_timeout_ms: 200,
        ..ClientSettings::default()
    };
    let client = Client::connect(&address, client_settings).await.unwrap();
    let mut producer = Producer::new(client, settings);
    let mut outcomes = Vec::new();
    for value in ["one", "two"] {
        let record = RecordToPublish {
            topic: "t",
            partition: None,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp_ms: 1,
        };
        producer.publish(&record).await.unwrap();
        producer.flush().await.unwrap();
        outcomes.extend(std::iter::from_fn(|| producer.next_outcome()).map(|told| told.outcome));
    }
    drop(producer);
    (outcomes, broker.await.unwrap())
}

fn settings() -> ProducerSettings {
    ProducerSettings {
        linger_ms: 0,
        retry_backoff_ms: 1,
        request_timeout_ms: 50,
        ..ProducerSettings::default()
    }
}

const STORED: Outcome = Outcome::Yes {
    base_offset: Some(9),
};

#[tokio::test]
async fn records_are_acknowledged_over_a_socket() {
    let (outcomes, seen) = publish(&[], settings()).await;
    assert_eq!(outcomes, [STORED, STORED]);
    assert_eq!(seen, [0, 1]);
}

#[tokio::test]
async fn a_broken_connection_is_opened_anew_and_the_batch_keeps_its_sequence() {
    let (outcomes, seen) = publish(&[Step::Close, Step::Close], settings()).await;
    assert_eq!(outcomes, [STORED, STORED]);
    assert_eq!(seen, [0, 0, 0, 1]);
}

#[tokio::test]
async fn a_broker_that_falls_silent_is_given_up_and_asked_again() {
    let (outcomes, seen) = publish(&[Step::Silence], settings()).await;
    assert_eq!(outcomes, [STORED, STORED]);
    assert_eq!(seen, [0, 0, 1]);
}

#[tokio::test]
async fn a_refusal_is_told_and_the_next_record_goes_on() {
    let script = [Step::Answer(ErrorCode::MESSAGE_TOO_LARGE)];
    let (outcomes, seen) = publish(&script, settings()).await;
    let refused = PublishFailure::Refused {
        code: ErrorCode::MESSAGE_TOO_LARGE,
        message: None,
    };
    assert_eq!(outcomes, [Outcome::No(refused), STORED]);
    assert_eq!(seen, [0, 0], "under a new producer, from 0 on");
}

#[tokio::test]
async fn a_lost_answer_before_the_delivery_timeout_is_unknown() {
    let settings = ProducerSettings {
        delivery_timeout_ms: 300,
        ..settings()
    };
    let (outcomes, _) = publish(&[Step::Close; 1_000], settings).await;
    assert!(matches!(outcomes[0], Outcome::Unknown(_)), "{outcomes:?}");
}

#[tokio::test]
async fn what_is_no_broker_is_named_and_what_is_not_there_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 16];
        stream.read_exact(&mut request).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    });
    let opened = BrokerConnection::open(&address, ConnectionSettings::default(), 2_000).await;
    let error = opened.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
    other.await.unwrap();
    let opened = BrokerConnection::open(&address, ConnectionSettings::default(), 2_000).await;
    assert!(matches!(opened.unwrap_err(), ClientError::Connect { .. }));
}
