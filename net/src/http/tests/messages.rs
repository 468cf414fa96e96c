//! Batches to messages.

use bytes::{Bytes, BytesMut};
use corelog_batch::{BatchOptions, Batches, Codec, batches as split, stamp};
use corelog_engine::identity::{Offset, PartitionIndex};
use corelog_engine::rejection::Rejection;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::publish::PublishBody;
use super::super::{Message, MessageReader, NextBatch, ReadFault, parse_body, plan_publish};
use super::{context, stored, stored_with};

fn read_from(
    reader: &mut MessageReader,
    offset: u64,
    batches: &[Bytes],
) -> (u64, Option<ReadFault>) {
    let mut next = Offset(offset);
    for batch in batches {
        let mut batches = split(batch.clone());
        match read_all(reader, &mut next, &mut batches) {
            Ok(()) => {}
            Err(fault) => return (next.get(), Some(fault)),
        }
    }
    (next.get(), None)
}

/// Reads in turns of one byte, so that every place to stop at is one.
fn read_all(
    reader: &mut MessageReader,
    next: &mut Offset,
    batches: &mut Batches,
) -> Result<(), ReadFault> {
    loop {
        let mut batch = match reader.next_batch(*next, batches)? {
            NextBatch::Open(batch) => batch,
            NextBatch::End(end) => {
                *next = end;
                return Ok(());
            }
        };
        *next = batch.from();
        let body = loop {
            if let Some(body) = batch.turn(1)? {
                break body;
            }
        };
        *next = reader.take("orders", PartitionIndex(3), &batch, body)?;
    }
}

fn read(offset: u64, messages_max: usize, batches: &[Bytes]) -> (Vec<Message>, u64) {
    let mut reader = MessageReader::new(messages_max, usize::MAX);
    let (next, fault) = read_from(&mut reader, offset, batches);
    assert_eq!(fault, None);
    (reader.into_messages(), next)
}

fn offsets(messages: &[Message]) -> Vec<u64> {
    messages
        .iter()
        .map(|message| message.offset.get())
        .collect()
}

fn shown(message: &Message) -> Value {
    serde_json::to_value(message).unwrap()
}

#[test]
fn reading_begins_in_the_middle_of_a_batch_and_ends_in_the_middle_of_another() {
    for codec in Codec::ALL {
        let batches = [
            stored(10, codec, &[b"0", b"1", b"2"]),
            stored(13, codec, &[b"3", b"4", b"5"]),
        ];
        let (messages, next) = read(11, 3, &batches);
        assert_eq!(
            (offsets(&messages), next),
            (vec![11, 12, 13], 14),
            "{codec}"
        );
        let (messages, next) = read(14, 3, &batches);
        assert_eq!((offsets(&messages), next), (vec![14, 15], 16), "{codec}");
    }
}

#[test]
fn batches_may_come_concatenated_and_the_last_one_cut_off() {
    let mut joined = BytesMut::from(&stored(10, Codec::None, &[b"0", b"1"])[..]);
    joined.extend_from_slice(&stored(12, Codec::None, &[b"2"])[..]);
    let cut = joined.len() - 1;
    let whole = joined.freeze();
    assert_eq!(read(10, 9, std::slice::from_ref(&whole)).1, 13);
    let (messages, next) = read(10, 9, &[whole.slice(..cut)]);
    assert_eq!((offsets(&messages), next), (vec![10, 11], 12));
}

#[test]
fn control_batches_and_compacted_gaps_are_passed_over() {
    let control = BatchOptions {
        control: true,
        producer_id: 1,
        producer_epoch: 0,
        base_sequence: 0,
        ..BatchOptions::default()
    };
    let batches = [
        stored_with(10, control, &[b"commit"]),
        // 11 to 19 have been compacted away.
        stored(20, Codec::None, &[b"a"]),
    ];
    let (messages, next) = read(10, 9, &batches);
    assert_eq!((offsets(&messages), next), (vec![20], 21));
    assert_eq!(
        read(10, 9, &batches[..1]).1,
        11,
        "a control batch alone moves the reader on"
    );
    assert_eq!(
        read(30, 9, &batches),
        (vec![], 30),
        "nothing below the asked offset comes out"
    );
}

#[test]
fn the_size_limit_stops_before_the_record_that_passes_it_except_the_first() {
    let batch = [stored(0, Codec::None, &[&[b'x'; 100], &[b'y'; 100], b"z"])];
    let mut reader = MessageReader::new(9, 10);
    assert_eq!(read_from(&mut reader, 0, &batch).0, 1);
    assert!(reader.is_full());
    assert_eq!(
        read_from(&mut reader, 7, &[]).0,
        7,
        "a full reader leaves other partitions where they are"
    );
    let mut reader = MessageReader::new(9, 150);
    assert_eq!(
        read_from(&mut reader, 0, &batch).0,
        1,
        "a later small record does not overtake"
    );
    let mut reader = MessageReader::new(9, 1_000);
    assert_eq!(read_from(&mut reader, 0, &batch).0, 3);
    assert!(!reader.is_full());
}

#[test]
fn a_batch_that_cannot_be_opened_stops_its_partition_and_says_how_to_pass() {
    let good = stored(10, Codec::None, &[b"0", b"1"]);
    let mut broken = BytesMut::from(&stored(12, Codec::Gzip, &[b"2", b"3"])[..]);
    let end = broken.len() - 12;
    broken[end..].fill(0xee);
    stamp(&mut broken, 12, 1);
    let mut reader = MessageReader::new(9, usize::MAX);
    let (next, fault) = read_from(&mut reader, 10, &[good, broken.freeze()]);
    let fault = fault.unwrap();
    assert_eq!(next, 12);
    assert_eq!((fault.base_offset, fault.next_offset), (12, 14));
    assert_eq!(fault.rejection(), Rejection::CorruptMessage);
    assert!(fault.to_string().contains("the next one begins at 14"));
    assert_eq!(offsets(&reader.into_messages()), [10, 11]);
}

#[test]
fn a_bad_record_gives_nothing_of_its_batch() {
    let mut broken = BytesMut::from(&stored(5, Codec::None, &[b"0", b"1"])[..]);
    let last = broken.len() - 1;
    broken.truncate(last);
    let length = (last - 12) as u32;
    broken[8..12].copy_from_slice(&length.to_be_bytes());
    let mut reader = MessageReader::new(9, usize::MAX);
    let (next, fault) = read_from(&mut reader, 5, &[broken.freeze()]);
    assert_eq!((next, fault.is_some()), (5, true));
    assert!(reader.into_messages().is_empty());
}

#[test]
fn text_leaves_as_text_and_other_bytes_as_base64() {
    let batch = stored(0, Codec::None, &["é\n".as_bytes(), b"\xff\0"]);
    let (messages, _) = read(0, 9, &[batch]);
    assert_eq!(
        shown(&messages[0]),
        json!({"topic": "orders", "partition": 3, "offset": 0, "timestamp_ms": 1000, "message_key": "k",
               "message_id": null, "headers": [{"name": "h", "value": "1"}], "payload": "é\n"})
    );
    let binary = shown(&messages[1]);
    assert_eq!(binary["payload_base64"], "/wA=");
    assert!(binary.get("payload").is_none());
}

#[test]
fn what_is_published_is_fetched_unchanged() {
    let text = json!({"messages": [
        {"payload": "a", "message_key": "k", "message_id": "m", "headers": [{"name": "x", "value": "1"}, {"name": "x", "value": null}]},
        {"payload": null, "message_key_base64": "/w==", "message_id": "n"},
        {"payload_base64": "gA==", "message_id": "o", "headers": [{"name": "y", "value_base64": "gA=="}]},
    ]})
    .to_string();
    let mut context = context();
    context.partitions = std::num::NonZeroU32::MIN;
    let body: PublishBody<'_> = parse_body(text.as_bytes()).unwrap();
    let plan = plan_publish(&body, &context).unwrap();
    let (messages, _) = read(0, 9, std::slice::from_ref(&plan.batches[0].bytes));
    let shown: Vec<Value> = messages.iter().map(shown).collect();
    assert_eq!(shown[0]["message_id"], "m");
    assert_eq!(
        shown[0]["headers"],
        json!([{"name": "x", "value": "1"}, {"name": "x", "value": null}])
    );
    assert_eq!(
        (&shown[1]["payload"], &shown[1]["message_key_base64"]),
        (&Value::Null, &json!("/w=="))
    );
    assert_eq!(shown[2]["payload_base64"], "gA==");
    assert_eq!(
        shown[2]["headers"],
        json!([{"name": "y", "value_base64": "gA=="}])
    );
    // And what was fetched can be published again.
    for message in shown {
        let mut again = message.as_object().unwrap().clone();
        for own in ["topic", "offset", "timestamp_ms"] {
            again.remove(own);
        }
        again.remove("partition");
        let text = json!({"messages": [again]}).to_string();
        let body: PublishBody<'_> = parse_body(text.as_bytes()).unwrap();
        assert!(plan_publish(&body, &context).is_ok());
    }
}

proptest! {
    #[test]
    fn reading_in_pieces_gives_every_record_once(
        counts in proptest::collection::vec(1_usize..6, 1..6),
        messages_max in 1_usize..5,
        bytes_max in 1_usize..40,
    ) {
        let mut batches = Vec::new();
        let mut end = 0;
        for count in counts {
            batches.push(stored(end, Codec::None, &vec![&b"value"[..]; count]));
            end += count as i64;
        }
        let mut seen = Vec::new();
        let mut next = 0;
        while next < end as u64 {
            let mut reader = MessageReader::new(messages_max, bytes_max);
            let (went_to, fault) = read_from(&mut reader, next, &batches);
            prop_assert_eq!(fault, None);
            prop_assert!(went_to > next, "every read moves on");
            seen.extend(offsets(&reader.into_messages()));
            next = went_to;
        }
        prop_assert_eq!(seen, (0..end as u64).collect::<Vec<u64>>());
    }

    #[test]
    fn any_bytes_are_read_or_named(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..100, byte in any::<u8>()) {
        let mut reader = MessageReader::new(9, 1_000);
        let _ = read_from(&mut reader, 0, &[Bytes::from(bytes)]);
        let mut batch = BytesMut::from(&stored(0, Codec::Lz4, &[b"abc", b"def"])[..]);
        let at = at % batch.len();
        batch[at] = byte;
        let _ = read_from(&mut reader, 0, &[batch.freeze()]);
    }
}
