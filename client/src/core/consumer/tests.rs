#![allow(clippy::unwrap_used, clippy::panic)]

use corelog_batch::{BatchBuilder, BatchOptions, stamp};
use corelog_wire::{
    FetchableTopicResponse, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    Records,
};

use super::*;

fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.apply(&MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: "h".into(),
            port: 9092,
            rack: None,
        }],
        topics: vec![MetadataResponseTopic {
            name: Some("t".into()),
            partitions: (0..3)
                .map(|partition_index| MetadataResponsePartition {
                    partition_index,
                    leader_id: 1,
                    ..MetadataResponsePartition::default()
                })
                .collect(),
            ..MetadataResponseTopic::default()
        }],
        ..MetadataResponse::default()
    });
    metadata
}

fn batch(base_offset: i64, records: i64, control: bool) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        control,
        ..BatchOptions::default()
    });
    for offset in base_offset..base_offset + records {
        let value = offset.to_be_bytes();
        builder.append(1_000, None, Some(&value), &[]).unwrap();
    }
    let mut batch = builder.build().unwrap();
    stamp(&mut batch, base_offset, 0);
    batch.freeze()
}

fn fetched(partition_index: i32, error_code: ErrorCode, records: &[Bytes]) -> FetchResponse {
    FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: "t".into(),
            partitions: vec![FetchPartitionData {
                partition_index,
                error_code,
                high_watermark: 100,
                log_start_offset: 40,
                records: Records::from(Bytes::from(records.concat())),
                ..FetchPartitionData::default()
            }],
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    }
}

fn reading_from(offset: i64) -> ConsumerCore {
    let mut consumer = ConsumerCore::new(ConsumerSettings::default());
    consumer.assign("t", 0, StartAt::Offset(offset));
    consumer
}

/// Fetches once and gives this answer.
fn fetch(consumer: &mut ConsumerCore, response: FetchResponse) -> FetchRequest {
    let fetch = consumer.next_fetch(&metadata(), 1_000_000).unwrap();
    consumer.on_fetch(fetch.id, response, 1_000_000);
    fetch.request
}

fn fetch_offset(request: &FetchRequest) -> i64 {
    request.topics[0].partitions[0].fetch_offset
}

fn all_offsets(consumer: &mut ConsumerCore) -> Vec<i64> {
    let mut offsets = Vec::new();
    while let Some(batch) = consumer.next_records().unwrap() {
        offsets.extend(
            batch
                .records
                .iter()
                .map(|record| record.offset(&batch.header)),
        );
    }
    offsets
}

#[test]
fn records_below_the_position_are_trimmed_from_their_batch() {
    let mut consumer = reading_from(12);
    let none = ErrorCode::NONE;
    fetch(&mut consumer, fetched(0, none, &[batch(10, 5, false)]));
    assert_eq!(all_offsets(&mut consumer), [12, 13, 14]);
    let positions: Vec<_> = consumer.positions().collect();
    assert_eq!(positions, [("t", 0, 15)]);
}

#[test]
fn the_next_fetch_goes_on_behind_what_came_before_it_is_handed_out() {
    let mut consumer = reading_from(0);
    let whole = [batch(0, 3, false), batch(3, 2, false)];
    fetch(&mut consumer, fetched(0, ErrorCode::NONE, &whole));
    let next = consumer.next_fetch(&metadata(), 0).unwrap();
    assert_eq!(fetch_offset(&next.request), 5);
    assert!(
        consumer.next_fetch(&metadata(), 0).is_none(),
        "one at a time"
    );
    assert_eq!(all_offsets(&mut consumer), [0, 1, 2, 3, 4]);
}

#[test]
fn a_batch_that_is_cut_off_is_fetched_again() {
    let mut consumer = reading_from(0);
    let cut = [batch(0, 3, false), batch(3, 2, false).slice(..70)];
    fetch(&mut consumer, fetched(0, ErrorCode::NONE, &cut));
    assert_eq!(all_offsets(&mut consumer), [0, 1, 2]);
    let next = consumer.next_fetch(&metadata(), 0).unwrap();
    assert_eq!(fetch_offset(&next.request), 3);
}

#[test]
fn a_control_batch_moves_the_position_on_and_is_not_handed_out() {
    let mut consumer = reading_from(0);
    let batches = [batch(0, 1, true), batch(1, 1, false)];
    fetch(&mut consumer, fetched(0, ErrorCode::NONE, &batches));
    assert_eq!(all_offsets(&mut consumer), [1]);
}

#[test]
fn a_batch_emptied_by_compaction_does_not_stall() {
    let mut consumer = reading_from(0);
    let mut header = BatchHeader::parse(&batch(0, 4, false)).unwrap();
    header.length = 49;
    header.record_count = 0;
    let mut empty = header.to_bytes();
    let crc = crc32c::crc32c(&empty[corelog_batch::CRC_COVERS_FROM..]);
    empty[17..21].copy_from_slice(&crc.to_be_bytes());
    let batches = [Bytes::copy_from_slice(&empty), batch(4, 1, false)];
    fetch(&mut consumer, fetched(0, ErrorCode::NONE, &batches));
    assert_eq!(all_offsets(&mut consumer), [4]);
}

#[test]
fn a_damaged_batch_stops_its_partition_where_it_begins() {
    let mut consumer = reading_from(0);
    let mut damaged = batch(1, 1, false).to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let batches = [batch(0, 1, false), damaged.into(), batch(2, 1, false)];
    fetch(&mut consumer, fetched(0, ErrorCode::NONE, &batches));
    assert!(consumer.next_records().unwrap().is_some());
    let error = consumer.next_records().unwrap_err();
    assert!(matches!(error, FetchError::Batch { offset: 1, .. }));
    assert!(consumer.next_records().unwrap().is_none());
    assert!(consumer.next_fetch(&metadata(), 1_000_000).is_none());
}

#[test]
fn an_offset_out_of_range_names_what_is_there_or_starts_where_it_was_told() {
    let mut consumer = reading_from(7);
    let gone = || fetched(0, ErrorCode::OFFSET_OUT_OF_RANGE, &[]);
    fetch(&mut consumer, gone());
    assert_eq!(
        consumer.next_records().unwrap_err(),
        FetchError::OutOfRange {
            topic: "t".into(),
            partition: 0,
            offset: 7,
            log_start: Some(40),
            end: Some(100),
        }
    );
    let mut consumer = ConsumerCore::new(ConsumerSettings {
        reset_to: Some(StartAt::Earliest),
        ..ConsumerSettings::default()
    });
    consumer.assign("t", 0, StartAt::Offset(7));
    fetch(&mut consumer, gone());
    let query = consumer.next_offset_query(&metadata(), 1_000_000).unwrap();
    assert_eq!(query.request.topics[0].partitions[0].timestamp, EARLIEST);
}

fn found(partition_index: i32, offset: i64) -> ListOffsetsResponse {
    ListOffsetsResponse {
        topics: vec![ListOffsetsTopicResponse {
            name: "t".into(),
            partitions: vec![ListOffsetsPartitionResponse {
                partition_index,
                offset,
                ..ListOffsetsPartitionResponse::default()
            }],
        }],
        ..ListOffsetsResponse::default()
    }
}

#[test]
fn a_time_behind_every_record_begins_at_the_end() {
    let mut consumer = ConsumerCore::new(ConsumerSettings::default());
    consumer.assign("t", 0, StartAt::Time(5_000));
    let query = consumer.next_offset_query(&metadata(), 0).unwrap();
    assert_eq!(query.request.topics[0].partitions[0].timestamp, 5_000);
    consumer.on_offsets(query.id, &found(0, -1), 0);
    let query = consumer.next_offset_query(&metadata(), 0).unwrap();
    assert_eq!(query.request.topics[0].partitions[0].timestamp, LATEST);
    consumer.on_offsets(query.id, &found(0, 33), 0);
    let fetch = consumer.next_fetch(&metadata(), 0).unwrap();
    assert_eq!(fetch_offset(&fetch.request), 33);
}

#[test]
fn a_moved_leader_makes_the_partition_rest_and_asks_for_metadata() {
    let mut consumer = reading_from(0);
    let fetch = consumer.next_fetch(&metadata(), 0).unwrap();
    let moved = fetched(0, ErrorCode::NOT_LEADER_OR_FOLLOWER, &[]);
    consumer.on_fetch(fetch.id, moved, 0);
    assert!(consumer.take_metadata_wanted());
    assert!(consumer.next_fetch(&metadata(), 99).is_none());
    assert!(consumer.next_fetch(&metadata(), 100).is_some());
}

#[test]
fn an_answer_for_a_partition_that_was_taken_away_is_ignored() {
    let mut consumer = reading_from(0);
    let fetch = consumer.next_fetch(&metadata(), 0).unwrap();
    consumer.unassign("t", 0);
    consumer.assign("t", 0, StartAt::Offset(50));
    let late = fetched(0, ErrorCode::NONE, &[batch(0, 3, false)]);
    consumer.on_fetch(fetch.id, late, 0);
    assert!(all_offsets(&mut consumer).is_empty());
    let fetch = consumer.next_fetch(&metadata(), 0).unwrap();
    assert_eq!(fetch_offset(&fetch.request), 50);
}

#[test]
fn no_fetch_goes_out_while_too_much_waits_to_be_handed_out() {
    let mut consumer = ConsumerCore::new(ConsumerSettings {
        buffered_bytes_max: 10,
        ..ConsumerSettings::default()
    });
    consumer.assign("t", 0, StartAt::Offset(0));
    let one = [batch(0, 1, false)];
    fetch(&mut consumer, fetched(0, ErrorCode::NONE, &one));
    assert!(consumer.next_fetch(&metadata(), 0).is_none());
    assert_eq!(all_offsets(&mut consumer), [0]);
    assert!(consumer.next_fetch(&metadata(), 0).is_some());
}

#[test]
fn the_end_is_reached_when_everything_below_the_watermark_is_handed_out() {
    let mut consumer = reading_from(99);
    assert!(!consumer.is_at_end());
    let last = [batch(99, 1, false)];
    fetch(&mut consumer, fetched(0, ErrorCode::NONE, &last));
    assert!(!consumer.is_at_end());
    all_offsets(&mut consumer);
    assert!(consumer.is_at_end());
}
