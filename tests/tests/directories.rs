//! Data directories that earlier builds wrote: every later build opens them, and goes on from there.
//!
//! `tests/data/directory_N.tar.gz` is a directory as a broker left it, with what it was told and had acknowledged
//! in `kept.json`. One is made anew whenever a format on disk gets another version, beside those that are there:
//!
//! ```sh
//! cargo build --release
//! CORELOG_KEEP_DIRECTORY=tests/data/directory_2.tar.gz \
//!     cargo test --release -p corelog-tests --test directories -- --ignored a_directory_of_this_build
//! ```
//!
//! A kept directory is never changed. It holds: batches under every codec, segments that are closed with their
//! indexes and seals, a clean stop's checkpoint and what was written after it up to a kill, a deleted topic,
//! producers, and offsets that groups committed over both faces. Nothing in it goes by age.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions, Codec, HeaderRef};
use corelog_tests::broker::{Broker, Options};
use corelog_tests::scratch::Scratch;
use corelog_tests::{http, kafka, message_api};
use corelog_wire::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, ErrorCode};
use serde_json::{Value, json};

/// Makes a directory that is kept, at this path.
const KEEP_VARIABLE: &str = "CORELOG_KEEP_DIRECTORY";

/// What a directory may take in the repository.
const KEPT_BYTES_MAX: u64 = 200 << 10;

/// What a broker was told and had acknowledged.
#[derive(Default)]
struct Kept {
    /// Batches as they were published, by topic, partition and offset.
    batches: BTreeMap<(String, i32, i64), Bytes>,
    /// Offsets by group, topic and partition.
    offsets: BTreeMap<(String, String, i32), i64>,
    /// The next sequence of a producer's partition.
    producers: BTreeMap<(i64, i16, String, i32), i32>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

impl Kept {
    fn to_json(&self) -> Value {
        let batches = self.batches.iter();
        let batches = batches.map(|((topic, partition, offset), batch)| {
            json!({ "topic": topic, "partition": partition, "offset": offset, "batch": hex(batch) })
        });
        let offsets = self.offsets.iter();
        let offsets = offsets.map(|((group, topic, partition), offset)| {
            json!({ "group": group, "topic": topic, "partition": partition, "offset": offset })
        });
        let producers = self.producers.iter();
        let producers = producers.map(|((id, epoch, topic, partition), next)| {
            json!({ "id": id, "epoch": epoch, "topic": topic, "partition": partition, "next": next })
        });
        json!({
            "batches": batches.collect::<Vec<_>>(),
            "offsets": offsets.collect::<Vec<_>>(),
            "producers": producers.collect::<Vec<_>>(),
        })
    }

    fn of_json(kept: &Value) -> Self {
        let all = |name: &str| kept[name].as_array().unwrap().clone();
        let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
        let number = |one: &Value, name: &str| one[name].as_i64().unwrap();
        let place = |one: &Value| (text(one, "topic"), number(one, "partition") as i32);
        let mut read = Self::default();
        for one in all("batches") {
            let (topic, partition) = place(&one);
            let key = (topic, partition, number(&one, "offset"));
            read.batches.insert(key, unhex(&text(&one, "batch")));
        }
        for one in all("offsets") {
            let (topic, partition) = place(&one);
            let key = (text(&one, "group"), topic, partition);
            read.offsets.insert(key, number(&one, "offset"));
        }
        for one in all("producers") {
            let (topic, partition) = place(&one);
            let key = (
                number(&one, "id"),
                number(&one, "epoch") as i16,
                topic,
                partition,
            );
            read.producers.insert(key, number(&one, "next") as i32);
        }
        read
    }

    fn publish(
        &mut self,
        kafka: &mut kafka::Connection,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> i64 {
        let answer = kafka.produce(topic, partition, batch.clone()).unwrap();
        assert_eq!(answer.error_code, ErrorCode::NONE);
        let key = (topic.to_owned(), partition, answer.base_offset);
        assert!(self.batches.insert(key, batch).is_none(), "a repeat");
        answer.base_offset
    }

    fn commit(&mut self, kafka: &mut kafka::Connection, group: &str, topic: &str, offset: i64) {
        kafka.commit(group, topic, 0, offset).unwrap();
        let key = (group.to_owned(), topic.to_owned(), 0);
        self.offsets.insert(key, offset);
    }
}

fn batch(codec: Codec, producer: Option<(i64, i16)>, sequence: i32, values: &[Vec<u8>]) -> Bytes {
    let (producer_id, producer_epoch) = producer.unwrap_or((-1, -1));
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        producer_id,
        producer_epoch,
        base_sequence: sequence,
        ..BatchOptions::default()
    });
    let headers = [HeaderRef {
        key: b"kind",
        value: Some(b"kept"),
    }];
    for (value, at_ms) in values.iter().zip(1_700_000_000_000_i64..) {
        let key = value.get(..4);
        builder.append(at_ms, key, Some(value), &headers).unwrap();
    }
    builder.build().unwrap().freeze()
}

fn values(from: u32, count: u32) -> Vec<Vec<u8>> {
    (from..from + count)
        .map(|number| format!("{number:04} a record that is kept").into_bytes())
        .collect()
}

fn create_topics(kafka: &mut kafka::Connection) {
    let setting = |name: &str, value: &str| CreatableTopicConfig {
        name: name.into(),
        value: Some(value.into()),
    };
    let topic = |name: &str, partitions: i32| CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: -1,
        configs: vec![
            setting("retention.ms", "-1"),
            setting("segment.bytes", "262144"),
        ],
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![
            topic("codecs", 2),
            topic("rolled", 1),
            topic("gone", 1),
            topic("empty", 3),
        ],
        ..CreateTopicsRequest::default()
    };
    let answer = kafka.ask(&request, 4).unwrap();
    for created in answer.topics {
        assert_eq!(created.error_code, ErrorCode::NONE, "{created:?}");
    }
}

fn start(data: &Path) -> Broker {
    Broker::start(Options {
        data_directory: Some(data.to_owned()),
        ..Options::default()
    })
    .unwrap()
}

/// Has this build write a directory: a life that ends in order, and one that is killed.
fn write(data: &Path) -> Kept {
    let mut kept = Kept::default();
    let mut broker = start(data);
    let mut kafka = kafka::Connection::open(&broker.kafka_address()).unwrap();
    create_topics(&mut kafka);
    let producer = kafka.init_producer().unwrap();
    let mut next = 0;
    for is_first_life in [true, false] {
        for (number, codec) in (0..).zip(Codec::ALL) {
            let anonymous = batch(codec, None, -1, &values(number * 10, 3));
            kept.publish(&mut kafka, "codecs", 0, anonymous);
            let signed = batch(codec, Some(producer), next, &values(number * 10, 2));
            kept.publish(&mut kafka, "codecs", 1, signed);
            next += 2;
        }
        // Bytes that take no room in an archive, and fill segments.
        for fill in 0..9 {
            let large = batch(Codec::None, None, -1, &[vec![fill; 60_000]]);
            kept.publish(&mut kafka, "rolled", 0, large);
        }
        kept.commit(
            &mut kafka,
            "kafka-readers",
            "codecs",
            if is_first_life { 3 } else { 7 },
        );
        if is_first_life {
            kept.commit(&mut kafka, "early-readers", "rolled", 2);
            kafka
                .produce("gone", 0, batch(Codec::None, None, -1, &values(0, 1)))
                .unwrap();
            let mut http = http::Connection::open(&broker.http_address()).unwrap();
            let deleted = http.request("DELETE", "/v1/topics/gone", b"").unwrap();
            assert_eq!(deleted.status, 204);
            assert!(broker.stop().unwrap().success());
            broker.restart().unwrap();
            kafka = kafka::Connection::open(&broker.kafka_address()).unwrap();
        }
    }
    kept.producers
        .insert((producer.0, producer.1, "codecs".to_owned(), 1), next);
    let mut http = http::Connection::open(&broker.http_address()).unwrap();
    let read = message_api::fetch(&mut http, "http-readers", "rolled", 3, 1_000).unwrap();
    message_api::commit(&mut http, "http-readers", "rolled", &read).unwrap();
    let key = ("http-readers".to_owned(), "rolled".to_owned(), 0);
    kept.offsets.insert(key, read.len() as i64);
    broker.kill9().unwrap();
    kept
}

/// This build reads all of it as it was written, and goes on.
fn assert_opens(data: &Path, kept: &Kept) {
    assert!(kept.batches.len() > 20 && kept.offsets.len() > 2 && !kept.producers.is_empty());
    let mut broker = start(data);
    for life in ["as it was kept", "after a kill", "after a stop in order"] {
        let mut kafka = kafka::Connection::open(&broker.kafka_address()).unwrap();
        assert_batches(&mut kafka, kept, life);
        for ((group, topic, partition), offset) in &kept.offsets {
            let found = kafka.committed(group, topic, *partition).unwrap();
            assert_eq!(found, *offset, "{group} in {topic}, {life}");
        }
        let gone = kafka.fetch("gone", 0, 0).unwrap();
        assert_eq!(gone.error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let empty = kafka.fetch("empty", 2, 0).unwrap();
        assert_eq!(
            (empty.error_code, empty.high_watermark),
            (ErrorCode::NONE, 0)
        );
        assert_producers(&mut kafka, kept, life);
        match life {
            "as it was kept" => broker.kill9().unwrap(),
            _ => assert!(broker.stop().unwrap().success()),
        }
        broker.restart().unwrap();
    }
    assert_goes_on(&broker, kept);
}

/// Every batch stands where it stood, and nothing else.
fn assert_batches(kafka: &mut kafka::Connection, kept: &Kept, life: &str) {
    let mut left = kept.batches.clone();
    let places: Vec<(String, i32)> = kept
        .batches
        .keys()
        .map(|(topic, partition, _)| (topic.clone(), *partition))
        .collect();
    for (topic, partition) in places {
        let mut next = 0;
        loop {
            let fetched = kafka.fetch(&topic, partition, next).unwrap();
            assert_eq!(fetched.error_code, ErrorCode::NONE);
            if next >= fetched.high_watermark {
                break;
            }
            for found in corelog_batch::batches(fetched.records.to_bytes()) {
                // The last one may be cut off.
                let Ok((header, bytes)) = found else { break };
                corelog_batch::verify_stored_batch(&bytes).unwrap();
                let key = (topic.clone(), partition, header.base_offset);
                if let Some(published) = left.remove(&key) {
                    // Offset and epoch are the broker's.
                    assert_eq!(bytes[8..12], published[8..12], "{key:?} {life}");
                    assert_eq!(bytes[16..], published[16..], "{key:?} {life}");
                } else {
                    assert!(kept.batches.contains_key(&key), "{key:?} {life}");
                }
                next = header.next_offset();
            }
        }
    }
    let missing: Vec<_> = left.keys().collect();
    assert!(missing.is_empty(), "{missing:?} are missing {life}");
}

/// What each producer sent last is a repeat, and what skips a sequence a gap.
fn assert_producers(kafka: &mut kafka::Connection, kept: &Kept, life: &str) {
    for ((id, epoch, topic, partition), next) in &kept.producers {
        let of_partition =
            |(of, number, _): &&(String, i32, i64)| of == topic && number == partition;
        let last = kept.batches.keys().rfind(of_partition).unwrap();
        let again = kafka
            .produce(topic, *partition, kept.batches[last].clone())
            .unwrap();
        assert_eq!(
            (again.error_code, again.base_offset),
            (ErrorCode::NONE, last.2),
            "the last batch of {id}, {life}"
        );
        let gap = batch(Codec::None, Some((*id, *epoch)), next + 5, &values(0, 1));
        let refused = kafka.produce(topic, *partition, gap).unwrap();
        assert_eq!(
            refused.error_code,
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
            "{life}"
        );
    }
}

/// Publishing goes on where it ended, and new producers and topics are none of the old.
fn assert_goes_on(broker: &Broker, kept: &Kept) {
    let mut kafka = kafka::Connection::open(&broker.kafka_address()).unwrap();
    for ((id, epoch, topic, partition), next) in &kept.producers {
        let new = batch(Codec::Zstd, Some((*id, *epoch)), *next, &values(0, 2));
        let end = kafka.fetch(topic, *partition, 0).unwrap().high_watermark;
        let stored = kafka.produce(topic, *partition, new).unwrap();
        assert_eq!(
            (stored.error_code, stored.base_offset),
            (ErrorCode::NONE, end)
        );
        assert_ne!(kafka.init_producer().unwrap().0, *id, "an id given twice");
    }
    let mut http = http::Connection::open(&broker.http_address()).unwrap();
    let kept_at = &kept.offsets[&("http-readers".to_owned(), "rolled".to_owned(), 0)];
    let read = message_api::fetch(&mut http, "http-readers", "rolled", 1, 1_000).unwrap();
    assert_eq!(read[0].offset, *kept_at, "a group goes on where it was");
    message_api::create_topic(&mut http, "gone", 1).unwrap();
    assert_eq!(kafka.fetch("gone", 0, 0).unwrap().high_watermark, 0);
    message_api::publish(&mut http, "empty", &[("key", "not any more")]).unwrap();
}

fn tar(arguments: &[&str], archive: &Path, folder: &Path) {
    let status = Command::new("tar")
        .args(arguments)
        .arg(archive)
        .arg("-C")
        .arg(folder)
        .args(if arguments[0] == "-x" {
            &[]
        } else {
            &["data", "kept.json"][..]
        })
        .status()
        .unwrap();
    assert!(status.success(), "tar {arguments:?}: {status}");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
#[ignore = "needs the release binary: ./test --only directories"]
fn every_kept_directory_is_opened_and_goes_on() {
    let mut archives: Vec<PathBuf> = fs::read_dir(repository().join("tests/data"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .collect();
    archives.sort();
    assert!(!archives.is_empty());
    for archive in archives {
        let scratch = Scratch::new("kept-directory").unwrap();
        tar(&["-x", "-z", "-f"], &archive, scratch.path());
        let text = fs::read(scratch.path().join("kept.json")).unwrap();
        let kept = Kept::of_json(&serde_json::from_slice(&text).unwrap());
        eprintln!("{}: {} batches", archive.display(), kept.batches.len());
        assert_opens(&scratch.path().join("data"), &kept);
    }
}

/// What this build keeps, it opens; and with [`KEEP_VARIABLE`] later ones will have to.
#[test]
#[ignore = "needs the release binary: ./test --only directories"]
fn a_directory_of_this_build_is_opened_and_goes_on() {
    let scratch = Scratch::new("new-directory").unwrap();
    let data = scratch.path().join("data");
    let kept = write(&data);
    fs::write(scratch.path().join("kept.json"), kept.to_json().to_string()).unwrap();
    let archive = match std::env::var_os(KEEP_VARIABLE) {
        Some(path) => repository().join(path),
        None => scratch.path().join("directory.tar.gz"),
    };
    let owner = ["--owner=0", "--group=0", "--numeric-owner"];
    tar(
        &["-c", "--sparse", owner[0], owner[1], owner[2], "-z", "-f"],
        &archive,
        scratch.path(),
    );
    let bytes = fs::metadata(&archive).unwrap().len();
    eprintln!("{}: {bytes} bytes", archive.display());
    assert!(bytes < KEPT_BYTES_MAX, "{bytes} bytes are too many to keep");
    assert_opens(&data, &Kept::of_json(&kept.to_json()));
}
