#![allow(clippy::unwrap_used, clippy::panic)]

use corelog_batch::{BatchHeader, BatchLimits, verify_producer_batch};
use corelog_wire::{
    ErrorCode, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use proptest::prelude::*;

use super::*;

const PARTITIONS: u32 = 4;
const BROKERS: [i32; 2] = [1, 2];

/// Even partitions are led by broker 1, odd ones by broker 2.
fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.apply(&MetadataResponse {
        brokers: BROKERS
            .map(|node_id| MetadataResponseBroker {
                node_id,
                host: "h".into(),
                port: 9092,
                rack: None,
            })
            .to_vec(),
        topics: vec![MetadataResponseTopic {
            name: Some("t".into()),
            partitions: (0..PARTITIONS as i32)
                .map(|partition_index| MetadataResponsePartition {
                    partition_index,
                    leader_id: 1 + partition_index % 2,
                    ..MetadataResponsePartition::default()
                })
                .collect(),
            ..MetadataResponseTopic::default()
        }],
        ..MetadataResponse::default()
    });
    metadata
}

fn producer(settings: ProducerSettings) -> ProducerCore {
    let mut producer = ProducerCore::new(settings);
    producer.set_topic("t", NonZeroU32::new(PARTITIONS).unwrap());
    if settings.idempotent {
        assert!(producer.producer_id_request().is_some());
        producer.on_producer_id(Some((100, 0)));
    }
    producer
}

fn at_once() -> ProducerSettings {
    ProducerSettings {
        linger_ms: 0,
        retry_backoff_ms: 10,
        ..ProducerSettings::default()
    }
}

fn publish_to(producer: &mut ProducerCore, partition: i32, now_ms: u64) -> PublishId {
    let record = RecordToPublish {
        topic: "t",
        partition: Some(partition),
        key: None,
        value: Some(b"value"),
        headers: &[],
        timestamp_ms: 1,
    };
    producer.publish(&record, now_ms).unwrap()
}

/// Headers of a request's batches, by partition.
fn headers(send: &ProduceToSend) -> Vec<(i32, BatchHeader)> {
    let partitions = send
        .request
        .topic_data
        .iter()
        .flat_map(|t| &t.partition_data);
    partitions
        .map(|data| {
            let batch = data.records.to_bytes();
            let header = verify_producer_batch(&batch, &BatchLimits::default()).unwrap();
            (data.index, header)
        })
        .collect()
}

fn answer(send: &ProduceToSend, code: impl Fn(i32) -> ErrorCode) -> ProduceResponse {
    let partition_responses = headers(send)
        .into_iter()
        .map(|(index, _)| PartitionProduceResponse {
            index,
            error_code: code(index),
            base_offset: 50,
            ..PartitionProduceResponse::default()
        })
        .collect();
    ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: "t".into(),
            partition_responses,
            ..TopicProduceResponse::default()
        }],
        ..ProduceResponse::default()
    }
}

fn outcomes(producer: &mut ProducerCore) -> Vec<BatchOutcome> {
    std::iter::from_fn(|| producer.next_outcome()).collect()
}

#[test]
fn a_batch_lingers_unless_it_is_full_or_flushed() {
    let settings = ProducerSettings {
        linger_ms: 10,
        batch_bytes_max: 200,
        ..ProducerSettings::default()
    };
    let (mut producer, metadata) = (producer(settings), metadata());
    publish_to(&mut producer, 0, 0);
    assert!(producer.next_request(&metadata, 9).is_none());
    assert_eq!(producer.wake_at_ms(), Some(10));
    assert!(producer.next_request(&metadata, 10).is_some());

    for _ in 0..20 {
        publish_to(&mut producer, 2, 10);
    }
    let full = producer.next_request(&metadata, 10).unwrap();
    assert_eq!(headers(&full)[0].0, 2);

    publish_to(&mut producer, 1, 10);
    producer.flush();
    let flushed = producer.next_request(&metadata, 10).unwrap();
    assert_eq!((flushed.broker, headers(&flushed)[0].0), (2, 1));
}

#[test]
fn a_request_carries_the_batches_of_one_broker() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    (0..4).for_each(|partition| {
        publish_to(&mut producer, partition, 0);
    });
    let mut seen = Vec::new();
    while let Some(send) = producer.next_request(&metadata, 0) {
        let mut partitions: Vec<i32> = headers(&send).iter().map(|(index, _)| *index).collect();
        partitions.sort_unstable();
        seen.push((send.broker, partitions));
    }
    seen.sort();
    assert_eq!(seen, [(1, vec![0, 2]), (2, vec![1, 3])]);
}

#[test]
fn keys_go_where_every_kafka_client_puts_them() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    let record = RecordToPublish {
        topic: "t",
        partition: None,
        key: Some(b"foobar"),
        value: None,
        headers: &[],
        timestamp_ms: 1,
    };
    producer.publish(&record, 0).unwrap();
    let send = producer.next_request(&metadata, 0).unwrap();
    let expected = partition_for_key(b"foobar", NonZeroU32::new(PARTITIONS).unwrap());
    assert_eq!(headers(&send)[0].0, expected as i32);
}

#[test]
fn an_acknowledged_batch_tells_its_offset_and_its_records() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    let ids = [
        publish_to(&mut producer, 0, 0),
        publish_to(&mut producer, 0, 0),
    ];
    let send = producer.next_request(&metadata, 0).unwrap();
    producer.on_response(send.id, &answer(&send, |_| ErrorCode::NONE), 1);
    let told = outcomes(&mut producer);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].publishes, ids);
    let base_offset = Some(50);
    assert_eq!(told[0].outcome, Outcome::Yes { base_offset });
    assert_eq!(producer.buffered_bytes(), 0);
}

#[test]
fn a_repeat_that_the_broker_recognised_is_a_success() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    publish_to(&mut producer, 0, 0);
    let send = producer.next_request(&metadata, 0).unwrap();
    let duplicate = answer(&send, |_| ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
    producer.on_response(send.id, &duplicate, 1);
    let told = outcomes(&mut producer);
    assert!(matches!(told[0].outcome, Outcome::Yes { .. }));
}

#[test]
fn sequences_count_records_and_stay_with_a_batch_that_is_sent_again() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    publish_to(&mut producer, 0, 0);
    publish_to(&mut producer, 0, 0);
    let first = producer.next_request(&metadata, 0).unwrap();
    publish_to(&mut producer, 0, 1);
    let second = producer.next_request(&metadata, 1).unwrap();
    assert_eq!(headers(&first)[0].1.base_sequence, 0);
    assert_eq!(headers(&second)[0].1.base_sequence, 2);

    // The first is refused for now, so the second comes too early.
    let moved = answer(&first, |_| ErrorCode::NOT_LEADER_OR_FOLLOWER);
    producer.on_response(first.id, &moved, 2);
    assert!(producer.take_metadata_wanted());
    let early = answer(&second, |_| ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    producer.on_response(second.id, &early, 3);
    publish_to(&mut producer, 0, 3);
    assert!(producer.next_request(&metadata, 3).is_none(), "it rests");

    let again: Vec<i32> = (0..3)
        .map(|_| {
            headers(&producer.next_request(&metadata, 12).unwrap())[0]
                .1
                .base_sequence
        })
        .collect();
    assert_eq!(
        again,
        [0, 2, 3],
        "in the order of their sequences, the new one last"
    );
    assert!(outcomes(&mut producer).is_empty());
}

#[test]
fn no_new_batch_overtakes_one_that_waits_to_be_sent_again() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    publish_to(&mut producer, 0, 0);
    let first = producer.next_request(&metadata, 0).unwrap();
    producer.on_send_failed(first.id, true, 0);
    publish_to(&mut producer, 0, 0);
    assert!(producer.next_request(&metadata, 5).is_none());
    let again = producer.next_request(&metadata, 10).unwrap();
    assert_eq!(headers(&again)[0].1.base_sequence, 0);
}

#[test]
fn at_most_five_idempotent_batches_of_a_partition_are_in_flight() {
    let settings = ProducerSettings {
        batches_in_flight_per_partition_max: 50,
        requests_in_flight_per_broker_max: 50,
        ..at_once()
    };
    let (mut producer, metadata) = (producer(settings), metadata());
    let mut sent = 0;
    for _ in 0..10 {
        publish_to(&mut producer, 0, 0);
        sent += usize::from(producer.next_request(&metadata, 0).is_some());
    }
    assert_eq!(sent, 5);
}

#[test]
fn a_final_refusal_is_no_and_what_follows_starts_over_under_a_new_producer() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    publish_to(&mut producer, 0, 0);
    let first = producer.next_request(&metadata, 0).unwrap();
    publish_to(&mut producer, 0, 0);
    let second = producer.next_request(&metadata, 0).unwrap();
    let refused = answer(&first, |_| ErrorCode::MESSAGE_TOO_LARGE);
    producer.on_response(first.id, &refused, 1);
    assert!(
        producer.producer_id_request().is_none(),
        "one is still on its way"
    );
    let gap = answer(&second, |_| ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    producer.on_response(second.id, &gap, 1);
    assert!(producer.next_request(&metadata, 20).is_none());
    assert!(producer.producer_id_request().is_some());
    producer.on_producer_id(Some((101, 0)));
    let again = producer.next_request(&metadata, 20).unwrap();
    let header = headers(&again)[0].1;
    assert_eq!((header.producer_id, header.base_sequence), (101, 0));
    let told = outcomes(&mut producer);
    assert_eq!(told.len(), 1);
    assert!(matches!(
        told[0].outcome,
        Outcome::No(PublishFailure::Refused { .. })
    ));
}

#[test]
fn a_batch_that_may_be_stored_is_never_sent_under_another_producer_id() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    publish_to(&mut producer, 0, 0);
    let lost = producer.next_request(&metadata, 0).unwrap();
    producer.on_send_failed(lost.id, true, 0);
    let again = producer.next_request(&metadata, 10).unwrap();
    let forgotten = answer(&again, |_| ErrorCode::UNKNOWN_PRODUCER_ID);
    producer.on_response(again.id, &forgotten, 10);
    assert!(producer.producer_id_request().is_some());
    producer.on_producer_id(Some((101, 0)));
    let told = outcomes(&mut producer);
    let expected = Outcome::Unknown(PublishFailure::ProducerStateLost);
    assert_eq!(told[0].outcome, expected);
    assert!(producer.next_request(&metadata, 1_000).is_none());
}

#[test]
fn the_delivery_timeout_says_no_or_unknown_by_what_was_sent() {
    let settings = ProducerSettings {
        delivery_timeout_ms: 100,
        ..at_once()
    };
    let (mut producer, metadata) = (producer(settings), metadata());
    publish_to(&mut producer, 0, 0);
    let lost = producer.next_request(&metadata, 0).unwrap();
    producer.on_send_failed(lost.id, true, 95);
    // Never sent: its partition's leader is gone.
    publish_to(&mut producer, 1, 0);
    assert!(producer.next_request(&Metadata::default(), 100).is_none());
    let told = outcomes(&mut producer);
    let of = |partition: i32| {
        let found = told.iter().find(|one| one.partition == partition);
        &found.unwrap().outcome
    };
    assert!(matches!(
        of(0),
        Outcome::Unknown(PublishFailure::TimedOut { .. })
    ));
    assert!(matches!(
        of(1),
        Outcome::No(PublishFailure::TimedOut { .. })
    ));
    assert!(producer.is_settled());
}

#[test]
fn a_fenced_producer_ends_and_takes_no_more() {
    let (mut producer, metadata) = (producer(at_once()), metadata());
    publish_to(&mut producer, 0, 0);
    let send = producer.next_request(&metadata, 0).unwrap();
    producer.on_response(send.id, &answer(&send, |_| ErrorCode::PRODUCER_FENCED), 1);
    assert_eq!(outcomes(&mut producer).len(), 1);
    let record = RecordToPublish {
        topic: "t",
        partition: None,
        key: None,
        value: None,
        headers: &[],
        timestamp_ms: 1,
    };
    assert_eq!(producer.publish(&record, 2), Err(PublishRefusal::Ended));
}

#[test]
fn a_full_buffer_refuses_and_has_room_after_an_outcome() {
    let settings = ProducerSettings {
        buffered_bytes_max: 400,
        ..at_once()
    };
    let (mut producer, metadata) = (producer(settings), metadata());
    let value = [0_u8; 250];
    let record = RecordToPublish {
        topic: "t",
        partition: Some(0),
        key: None,
        value: Some(&value),
        headers: &[],
        timestamp_ms: 1,
    };
    producer.publish(&record, 0).unwrap();
    assert_eq!(
        producer.publish(&record, 0),
        Err(PublishRefusal::Full {
            buffered_bytes_max: 400
        })
    );
    let send = producer.next_request(&metadata, 0).unwrap();
    producer.on_response(send.id, &answer(&send, |_| ErrorCode::NONE), 1);
    producer.publish(&record, 1).unwrap();
}

#[test]
fn records_that_can_never_be_taken_are_refused_by_name() {
    let mut producer = producer(ProducerSettings {
        batch_bytes_max: 100,
        ..at_once()
    });
    let value = [0_u8; 200];
    let record = RecordToPublish {
        topic: "t",
        partition: Some(9),
        key: None,
        value: Some(&value),
        headers: &[],
        timestamp_ms: 1,
    };
    let refused = |record: &RecordToPublish<'_>, producer: &mut ProducerCore| {
        producer.publish(record, 0).unwrap_err()
    };
    assert!(matches!(
        refused(&record, &mut producer),
        PublishRefusal::PartitionUnknown { partition: 9, .. }
    ));
    let record = RecordToPublish {
        partition: Some(0),
        ..record
    };
    assert!(matches!(
        refused(&record, &mut producer),
        PublishRefusal::TooLarge { .. }
    ));
    let record = RecordToPublish {
        topic: "other",
        ..record
    };
    assert_eq!(
        refused(&record, &mut producer),
        PublishRefusal::TopicUnknown
    );
}

/// A broker that keeps to the rules of KIP-98, and to what happens on the way.
#[derive(Default)]
struct ScriptedBroker {
    /// Records stored, by partition: the publish that each value names.
    stored: BTreeMap<i32, Vec<u64>>,
    next_sequence: BTreeMap<(i32, i64), i32>,
}

impl ScriptedBroker {
    fn serve(&mut self, send: &ProduceToSend, refuse: bool) -> ProduceResponse {
        let data = &send.request.topic_data[0].partition_data;
        let partition_responses = data
            .iter()
            .map(|data| PartitionProduceResponse {
                index: data.index,
                error_code: self.append(data, refuse),
                ..PartitionProduceResponse::default()
            })
            .collect();
        ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: "t".into(),
                partition_responses,
                ..TopicProduceResponse::default()
            }],
            ..ProduceResponse::default()
        }
    }

    fn append(&mut self, data: &PartitionProduceData, refuse: bool) -> ErrorCode {
        if refuse {
            return ErrorCode::NOT_LEADER_OR_FOLLOWER;
        }
        let batch = data.records.to_bytes();
        let header = verify_producer_batch(&batch, &BatchLimits::default()).unwrap();
        let producer = (data.index, header.producer_id);
        let next = self.next_sequence.entry(producer).or_default();
        if header.base_sequence < *next {
            return ErrorCode::DUPLICATE_SEQUENCE_NUMBER;
        }
        if header.base_sequence > *next {
            return ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
        }
        *next += header.record_count;
        let body = corelog_batch::open(&batch, 1 << 20).unwrap();
        let stored = self.stored.entry(data.index).or_default();
        for record in corelog_batch::record_refs(&header, &body) {
            let value = record.unwrap().value.unwrap();
            stored.push(u64::from_be_bytes(value.try_into().unwrap()));
        }
        ErrorCode::NONE
    }
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Served,
    Refused,
    AnswerLost,
    RequestLost,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens on the way, every record is stored once and in order.
    #[test]
    fn records_are_stored_once_and_in_order_over_any_connection(
        partitions in proptest::collection::vec(0..PARTITIONS as i32, 1..60),
        ways in proptest::collection::vec(
            prop_oneof![
                4 => Just(Way::Served),
                1 => Just(Way::Refused),
                1 => Just(Way::AnswerLost),
                1 => Just(Way::RequestLost),
            ],
            0..60,
        ),
        burst in 1..8_usize,
    ) {
        let settings = ProducerSettings { batch_bytes_max: 120, ..at_once() };
        let (mut producer, metadata) = (producer(settings), metadata());
        let mut broker = ScriptedBroker::default();
        let mut ways = ways.into_iter();
        let mut now_ms = 0;
        let mut published: BTreeMap<i32, Vec<u64>> = BTreeMap::new();
        let mut acknowledged = 0;
        let mut records = partitions.into_iter();
        while records.len() > 0 || !producer.is_settled() {
            for partition in records.by_ref().take(burst) {
                let value = producer.published().to_be_bytes();
                let record = RecordToPublish {
                    topic: "t",
                    partition: Some(partition),
                    key: None,
                    value: Some(&value),
                    headers: &[],
                    timestamp_ms: 1,
                };
                let id = producer.publish(&record, now_ms).unwrap();
                published.entry(partition).or_default().push(id.0);
            }
            let mut sends = Vec::new();
            while let Some(send) = producer.next_request(&metadata, now_ms) {
                sends.push(send);
            }
            // A connection that breaks takes every request behind it along.
            let mut broken: Vec<i32> = Vec::new();
            for send in sends {
                let way = match broken.contains(&send.broker) {
                    true => Way::RequestLost,
                    false => ways.next().unwrap_or(Way::Served),
                };
                match way {
                    Way::Served | Way::Refused => {
                        let answer = broker.serve(&send, matches!(way, Way::Refused));
                        producer.on_response(send.id, &answer, now_ms);
                    }
                    Way::AnswerLost => {
                        broker.serve(&send, false);
                        broken.push(send.broker);
                        producer.on_send_failed(send.id, true, now_ms);
                    }
                    Way::RequestLost => {
                        broken.push(send.broker);
                        producer.on_send_failed(send.id, true, now_ms);
                    }
                }
            }
            while let Some(told) = producer.next_outcome() {
                let is_stored = matches!(told.outcome, Outcome::Yes { .. });
                prop_assert!(is_stored, "{:?}", told);
                acknowledged += told.publishes.len();
            }
            now_ms += 5;
            prop_assert!(now_ms < 100_000, "it ends");
        }
        prop_assert_eq!(acknowledged as u64, producer.published());
        prop_assert_eq!(broker.stored, published);
        prop_assert_eq!(producer.buffered_bytes(), 0);
    }
}
