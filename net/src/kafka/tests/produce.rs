use bytes::{Bytes, BytesMut};
use corelog_batch::{BatchError, Codec, RecordFault};
use corelog_engine::identity::{LeaderEpoch, Offset};
use corelog_engine::publish::PublishRefusal;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Durability, Published};
use corelog_wire::{
    ErrorCode, Message, PartitionProduceData, ProduceRequest, Records, TopicProduceData, Uuid,
};

use super::{batch, text};
use crate::kafka::produce::{
    AnsweredPartition, ProducePlan, check_records, published, refused, response,
};
use crate::kafka::{Node, TopicKey};

fn request(topics: &[(&str, &[i32])], records: &Bytes) -> ProduceRequest {
    let partition = |index: &i32| PartitionProduceData {
        index: *index,
        records: Records::from(records.clone()),
    };
    let topic = |(name, partitions): &(&str, &[i32])| TopicProduceData {
        name: text(name),
        partition_data: partitions.iter().map(partition).collect(),
        ..TopicProduceData::default()
    };
    ProduceRequest {
        acks: -1,
        timeout_ms: 1_500,
        topic_data: topics.iter().map(topic).collect(),
        ..ProduceRequest::default()
    }
}

/// The body as it arrives: one piece of memory.
fn body(request: &ProduceRequest, version: i16) -> Bytes {
    BytesMut::from(&request.encode(version).unwrap().into_bytes()[..]).freeze()
}

#[test]
fn records_of_a_request_for_one_partition_are_alone_in_their_frame() {
    let records = batch(Codec::None, b"v");
    let plan = ProducePlan::read(body(&request(&[("t", &[4])], &records), 9), 9).unwrap();
    let ProducePlan {
        partitions, topics, ..
    } = plan;
    let [only] = <[_; 1]>::try_from(partitions).unwrap();
    assert_eq!((only.index, &only.records), (4, &records));
    // Topic names are kept, and do not hold on to the frame.
    assert_eq!(topics, [TopicKey::Name(text("t"))]);
    assert!(only.records.try_into_mut().is_ok());
}

#[test]
fn topics_and_partitions_keep_their_order_by_name_and_by_id() {
    let records = batch(Codec::None, b"v");
    let mut wanted = request(&[("b", &[2, 0]), ("a", &[1])], &records);
    let plan = ProducePlan::read(body(&wanted, 3), 3).unwrap();
    assert_eq!(
        plan.topics,
        [TopicKey::Name(text("b")), TopicKey::Name(text("a"))]
    );
    let places: Vec<(usize, i32)> = plan
        .partitions
        .iter()
        .map(|partition| (partition.topic, partition.index))
        .collect();
    assert_eq!(places, [(0, 2), (0, 0), (1, 1)]);

    for (topic, id) in wanted.topic_data.iter_mut().zip(1..) {
        (topic.name, topic.topic_id) = (text(""), Uuid([id; 16]));
    }
    let plan = ProducePlan::read(body(&wanted, 13), 13).unwrap();
    assert_eq!(
        plan.topics.iter().map(TopicKey::id).collect::<Vec<_>>(),
        [Uuid([1; 16]), Uuid([2; 16])]
    );
}

#[test]
fn without_acks_the_time_of_the_request_does_not_cut_the_wait_short() {
    let records = batch(Codec::None, b"v");
    let mut wanted = request(&[("t", &[0])], &records);
    assert_eq!(
        ProducePlan::read(body(&wanted, 7), 7).unwrap().wait_ms,
        1_500
    );
    wanted.acks = 1;
    assert_eq!(
        ProducePlan::read(body(&wanted, 7), 7).unwrap().wait_ms,
        30_000
    );
    (wanted.acks, wanted.timeout_ms) = (-1, -5);
    assert_eq!(ProducePlan::read(body(&wanted, 7), 7).unwrap().wait_ms, 1);
}

#[test]
fn old_message_sets_and_early_zstd_are_refused_by_name() {
    let plain = batch(Codec::None, b"v");
    let mut old = plain.to_vec();
    old[16] = 1;
    assert_eq!(
        check_records(&old, 7),
        Err(Rejection::UnsupportedForMessageFormat)
    );
    let zstd = batch(Codec::Zstd, &[7; 100]);
    assert_eq!(
        check_records(&zstd, 6),
        Err(Rejection::UnsupportedCompressionType)
    );
    assert_eq!(check_records(&zstd, 7), Ok(()));
    assert_eq!(check_records(&batch(Codec::Lz4, &[7; 100]), 3), Ok(()));
    // Too short to say anything: the inspection has the words for it.
    assert_eq!(check_records(&plain[..10], 3), Ok(()));
}

fn kept() -> Published {
    Published {
        first_offset: Offset(44),
        log_start: Offset(2),
        append_time_ms: None,
        leader_epoch: LeaderEpoch(1),
        durability: Durability::OneDisk,
        repeat: false,
    }
}

#[test]
fn create_time_answers_append_time_minus_one() {
    let answer = published(1, &kept());
    assert_eq!(
        (
            answer.base_offset,
            answer.log_append_time_ms,
            answer.log_start_offset
        ),
        (44, -1, 2)
    );
    let stamped = Published {
        append_time_ms: Some(9),
        ..kept()
    };
    assert_eq!(published(1, &stamped).log_append_time_ms, 9);
}

#[test]
fn a_bad_record_is_named_in_the_answer() {
    let fault = BatchError::Record {
        index: 5,
        fault: RecordFault::Length,
    };
    let answer = refused(0, &PublishRefusal::from(fault));
    assert_eq!(answer.error_code, ErrorCode::INVALID_RECORD);
    assert_eq!((answer.base_offset, answer.log_start_offset), (-1, -1));
    assert_eq!(answer.record_errors[0].batch_index, 5);
    assert!(answer.error_message.unwrap().contains("record 5"));
}

#[test]
fn a_full_queue_is_a_code_that_producers_retry() {
    let answer = refused(0, &PublishRefusal::from(Rejection::Overloaded));
    assert!(answer.error_code.is_retriable());
}

#[test]
fn the_leader_is_named_once_with_its_address() {
    let node = Node {
        id: 3,
        host: text("h"),
        port: 1,
        rack: text("a"),
    };
    let partition = |topic, index| AnsweredPartition {
        topic,
        response: refused(index, &PublishRefusal::from(Rejection::NotLeader)),
        leader: Some((node.clone(), 8)),
    };
    let topics = [TopicKey::Name(text("a")), TopicKey::Name(text("b"))];
    let answer = response(&topics, vec![partition(0, 0), partition(1, 7)]);
    assert_eq!(answer.node_endpoints.len(), 1);
    let last = &answer.responses[1].partition_responses[0];
    assert_eq!(
        (
            last.index,
            last.current_leader.leader_id,
            last.current_leader.leader_epoch
        ),
        (7, 3, 8)
    );
}
