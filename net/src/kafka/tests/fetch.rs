use bytes::Bytes;
use corelog_batch::Codec;
use corelog_engine::identity::{LeaderEpoch, Offset};
use corelog_engine::limits::{FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{EpochEnd, Fetched};
use corelog_wire::{ErrorCode, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};

use super::{batch, text};
use crate::kafka::TopicKey;
use crate::kafka::fetch::{FetchAnswer, FetchTerms, partition_data, refused, wanted_partitions};
use crate::kafka::fetch_session::{FetchSession, SessionUse};

fn request(partitions: &[(&str, i32, i64)]) -> FetchRequest {
    let topic = |(name, partition, fetch_offset): &(&str, i32, i64)| FetchTopic {
        topic: text(name),
        partitions: vec![FetchPartition {
            partition: *partition,
            fetch_offset: *fetch_offset,
            partition_max_bytes: 100,
            ..FetchPartition::default()
        }],
        ..FetchTopic::default()
    };
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        topics: partitions.iter().map(topic).collect(),
        ..FetchRequest::default()
    }
}

fn terms() -> FetchTerms {
    FetchTerms::of(&request(&[]))
}

fn fetched(watermark: u64, batches: Vec<Bytes>) -> Fetched {
    Fetched {
        watermark: Offset(watermark),
        log_start: Offset(1),
        batches,
        diverging: None,
    }
}

#[test]
fn the_terms_stay_within_the_limits() {
    let wild = FetchRequest {
        max_wait_ms: i32::MAX,
        min_bytes: i32::MAX,
        max_bytes: i32::MAX,
        ..request(&[])
    };
    let terms = FetchTerms::of(&wild);
    assert_eq!(
        (terms.wait_ms, terms.bytes_min, terms.bytes_max),
        (FETCH_WAIT_MS_MAX, FETCH_BYTES_MAX, FETCH_BYTES_MAX)
    );
    let negative = FetchRequest {
        max_wait_ms: -1,
        min_bytes: -1,
        max_bytes: -1,
        ..request(&[])
    };
    let terms = FetchTerms::of(&negative);
    assert_eq!((terms.wait_ms, terms.bytes_min, terms.bytes_max), (0, 0, 1));
}

#[test]
fn whoever_is_content_with_nothing_does_not_wait() {
    let content = FetchRequest {
        min_bytes: 0,
        ..request(&[])
    };
    assert_eq!(FetchTerms::of(&content).wait_ms, 0);
}

#[test]
fn zstd_is_kept_from_readers_that_do_not_know_it() {
    let mixed = [batch(Codec::Gzip, &[1; 90]), batch(Codec::Zstd, &[1; 90])].concat();
    let read = |version| {
        partition_data(0, fetched(9, vec![mixed.clone().into()]), &terms(), version).error_code
    };
    assert_eq!(read(9), ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    assert_eq!(read(10), ErrorCode::NONE);
    let gzip = fetched(9, vec![batch(Codec::Gzip, &[1; 90])]);
    assert_eq!(
        partition_data(0, gzip, &terms(), 9).error_code,
        ErrorCode::NONE
    );
}

#[test]
fn without_transactions_the_stable_offset_is_the_watermark() {
    let committed = FetchTerms {
        is_read_committed: true,
        ..terms()
    };
    let data = partition_data(2, fetched(9, Vec::new()), &committed, 11);
    assert_eq!(
        (
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset
        ),
        (9, 9, 1)
    );
    assert_eq!(
        (data.aborted_transactions, data.preferred_read_replica),
        (Some(Vec::new()), -1)
    );
}

#[test]
fn a_diverging_reader_hears_where_its_log_leaves_ours_every_time() {
    let diverging = Fetched {
        diverging: Some(EpochEnd {
            epoch: LeaderEpoch(4),
            end: Offset(6),
        }),
        ..fetched(9, Vec::new())
    };
    let data = partition_data(0, diverging, &terms(), 12);
    assert_eq!((data.error_code, data.high_watermark), (ErrorCode::NONE, 9));
    assert_eq!(
        (data.diverging_epoch.epoch, data.diverging_epoch.end_offset),
        (4, 6)
    );
    let mut session = FetchSession::open(&request(&[("t", 0, 0)]), 12);
    let topic = TopicKey::Name(text("t"));
    assert!(session.has_news(&topic, &data));
    assert!(session.has_news(&topic, &data));
}

#[test]
fn epochs_below_zero_are_not_said() {
    let mut fetch = request(&[("t", 0, 0)]);
    let wanted = wanted_partitions(&fetch, 12);
    assert_eq!(
        (wanted[0].leader_epoch, wanted[0].last_fetched_epoch),
        (None, None)
    );
    fetch.topics[0].partitions[0].current_leader_epoch = 5;
    fetch.topics[0].partitions[0].last_fetched_epoch = 4;
    let wanted = wanted_partitions(&fetch, 12);
    assert_eq!(
        (wanted[0].leader_epoch, wanted[0].last_fetched_epoch),
        (Some(LeaderEpoch(5)), Some(LeaderEpoch(4)))
    );
}

#[test]
fn a_refused_partition_tells_no_offsets() {
    let data = refused(2, Rejection::OffsetOutOfRange);
    assert_eq!(data.error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(
        (
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset
        ),
        (-1, -1, -1)
    );
}

#[test]
fn neighbouring_partitions_of_a_topic_share_its_entry() {
    let mut answer = FetchAnswer::new(5);
    for (topic, index) in [("a", 0), ("a", 1), ("b", 0)] {
        answer.add(
            &TopicKey::Name(text(topic)),
            refused(index, Rejection::NotLeader),
            None,
        );
    }
    let response = answer.finish();
    assert_eq!(response.session_id, 5);
    let shape: Vec<usize> = response
        .responses
        .iter()
        .map(|topic| topic.partitions.len())
        .collect();
    assert_eq!(shape, [2, 1]);
}

#[test]
fn epochs_say_how_a_session_is_used() {
    let with = |session_id, session_epoch| {
        SessionUse::of(&FetchRequest {
            session_id,
            session_epoch,
            ..request(&[])
        })
    };
    assert_eq!(with(0, -1), SessionUse::None { ends: None });
    assert_eq!(with(8, -1), SessionUse::None { ends: Some(8) });
    assert_eq!(with(8, 0), SessionUse::Open { ends: Some(8) });
    assert_eq!(with(8, 3), SessionUse::Continue { id: 8, epoch: 3 });
}

#[test]
fn a_session_answers_the_epoch_that_follows_and_no_other() {
    let mut session = FetchSession::open(&request(&[("t", 0, 0)]), 12);
    let next = request(&[]);
    assert_eq!(
        session.advance(2, &next, 12),
        Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH)
    );
    assert_eq!(session.advance(1, &next, 12), Ok(()));
    assert_eq!(
        session.advance(1, &next, 12),
        Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH)
    );
    assert_eq!(session.advance(2, &next, 12), Ok(()));
}

#[test]
fn a_session_by_name_does_not_go_on_by_id() {
    let mut session = FetchSession::open(&request(&[("t", 0, 0)]), 12);
    assert_eq!(
        session.advance(1, &request(&[]), 13),
        Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR)
    );
}

#[test]
fn a_session_moves_adds_and_forgets_partitions() {
    let mut session = FetchSession::open(&request(&[("t", 0, 0), ("t", 1, 0)]), 12);
    let change = FetchRequest {
        forgotten_topics_data: vec![ForgottenTopic {
            topic: text("t"),
            partitions: vec![1],
            ..ForgottenTopic::default()
        }],
        ..request(&[("t", 0, 7), ("u", 3, 2)])
    };
    session.advance(1, &change, 12).unwrap();
    let wanted: Vec<_> = session
        .wanted()
        .into_iter()
        .map(|wanted| (wanted.topic.name().to_string(), wanted.index, wanted.offset))
        .collect();
    assert_eq!(
        wanted,
        [
            ("t".to_owned(), 0, Some(Offset(7))),
            ("u".to_owned(), 3, Some(Offset(2)))
        ]
    );
}

#[test]
fn a_partition_is_left_out_only_if_the_client_knows_all_of_it() {
    let mut session = FetchSession::open(&request(&[("t", 0, 0)]), 12);
    let topic = TopicKey::Name(text("t"));
    let quiet = |watermark| partition_data(0, fetched(watermark, Vec::new()), &terms(), 12);
    assert!(session.has_news(&topic, &quiet(5)));
    assert!(!session.has_news(&topic, &quiet(5)));
    assert!(session.has_news(&topic, &quiet(6)), "the watermark moved");
    let records = partition_data(0, fetched(6, vec![batch(Codec::None, b"v")]), &terms(), 12);
    assert!(session.has_news(&topic, &records));
    assert!(session.has_news(&topic, &refused(0, Rejection::NotLeader)));
    assert!(
        session.has_news(&topic, &quiet(6)),
        "an error was told in between"
    );
}
