//! Producers, a reader and a committer that outlive their broker.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions, Codec, partition_for_key};
use corelog_wire::ErrorCode;
use serde_json::{Value, json};

use super::ledger::{Digest, Ledger};
use super::{GROUP, PARTITIONS, TOPIC, check};
use crate::power_cut::seeded::Seeded;
use crate::{http, kafka};

/// Keys of each producer.
const KEYS: u64 = 20;
const RECORDS_PER_BATCH_MAX: u64 = 20;
const VALUE_BYTES_MAX: u64 = 2_000;
/// Between two publishes of one producer, so that the log stays small enough to be read whole again and again.
const PACE: Duration = Duration::from_millis(4);
const RECONNECT_PAUSE: Duration = Duration::from_millis(15);

/// Where the broker is.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// `host:port` of the Kafka listener.
    pub kafka: String,
    /// `host:port` of the HTTP listener.
    pub http: String,
}

/// Load that runs until it is stopped.
#[derive(Debug)]
pub struct Load {
    ledger: Arc<Ledger>,
    is_stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What each thread has.
#[derive(Clone)]
struct Worker {
    addresses: Addresses,
    ledger: Arc<Ledger>,
    is_stopping: Arc<AtomicBool>,
    seed: u64,
}

impl Load {
    /// Starts three producers on the Kafka wire, one on HTTP, a reader and a committer.
    pub fn start(addresses: &Addresses, seed: u64) -> Self {
        static LOADS: AtomicU32 = AtomicU32::new(0);
        let load = LOADS.fetch_add(1, Ordering::Relaxed);
        let ledger = Arc::new(Ledger::default());
        let is_stopping = Arc::new(AtomicBool::new(false));
        let worker = |number: u64| Worker {
            addresses: addresses.clone(),
            ledger: Arc::clone(&ledger),
            is_stopping: Arc::clone(&is_stopping),
            seed: seed.wrapping_mul(100).wrapping_add(number),
        };
        let mut threads = Vec::new();
        for number in 0..3 {
            let worker = worker(number);
            let name = format!("load{load}-kafka{number}");
            threads.push(std::thread::spawn(move || worker.produce_kafka(&name)));
        }
        let producing = worker(3);
        let name = format!("load{load}-http");
        threads.push(std::thread::spawn(move || producing.produce_http(&name)));
        let reading = worker(4);
        threads.push(std::thread::spawn(move || reading.read()));
        let committing = worker(5);
        threads.push(std::thread::spawn(move || committing.commit()));
        Self {
            ledger,
            is_stopping,
            threads,
        }
    }

    /// What the broker has promised.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Ends the load. A publish under way is settled if the broker answers.
    pub fn stop(mut self) -> Arc<Ledger> {
        self.end();
        Arc::clone(&self.ledger)
    }

    fn end(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.ledger
                    .violate("a thread of the load panicked".to_owned());
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // In a failing test nobody waits for publishes that will never be answered.
        self.is_stopping.store(true, Ordering::Relaxed);
    }
}

/// Records with one key, in one partition.
struct Publish {
    partition: i32,
    key: String,
    values: Vec<String>,
    digests: Vec<Digest>,
    codec: Codec,
}

impl Worker {
    fn goes_on(&self) -> bool {
        !self.is_stopping.load(Ordering::Relaxed)
    }

    /// The next publish of a producer; its values carry a number that rises within the key.
    fn next_publish(&self, name: &str, counter: &mut u64, random: &mut Seeded) -> Publish {
        let key = format!("{name}-key{}", random.below(KEYS));
        let partition = partition_for_key(key.as_bytes(), partitions());
        let values: Vec<String> = (0..=random.below(RECORDS_PER_BATCH_MAX))
            .map(|_| {
                *counter += 1;
                let padding = "x".repeat(random.below(VALUE_BYTES_MAX) as usize);
                format!("{counter} {padding}")
            })
            .collect();
        let digests: Vec<Digest> = values
            .iter()
            .map(|value| Digest::of(key.as_bytes(), value.as_bytes()))
            .collect();
        self.ledger.attempt(&digests);
        Publish {
            partition: partition.cast_signed(),
            key,
            values,
            digests,
            codec: Codec::ALL[random.below(Codec::ALL.len() as u64) as usize],
        }
    }

    /// Publishes through the wire; an unknown outcome is tried again until it is known.
    fn produce_kafka(&self, name: &str) {
        let mut random = Seeded::new(self.seed);
        let mut counter = 0;
        let mut sequences = [0_i32; PARTITIONS as usize];
        let mut connection = None;
        let producer = self.retry_kafka(&mut connection, kafka::Connection::init_producer);
        let Some((producer_id, producer_epoch)) = producer else {
            return;
        };
        while self.goes_on() {
            let publish = self.next_publish(name, &mut counter, &mut random);
            let sequence = &mut sequences[publish.partition as usize];
            let batch = encode(&publish, producer_id, producer_epoch, *sequence);
            loop {
                let answer = self.retry_kafka(&mut connection, |connection| {
                    connection.produce(TOPIC, publish.partition, batch.clone())
                });
                let Some(answer) = answer else { return };
                match answer.error_code {
                    ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER
                        if answer.base_offset >= 0 =>
                    {
                        let (partition, offset) = (publish.partition, answer.base_offset);
                        self.ledger.store(partition, offset, &publish.digests);
                        break;
                    }
                    code if is_transient(code) && self.goes_on() => {
                        std::thread::sleep(RECONNECT_PAUSE);
                    }
                    code if is_transient(code) => return,
                    code => {
                        let what = format!("a publish of {name} was refused: {code:?} {answer:?}");
                        return self.ledger.violate(what);
                    }
                }
            }
            *sequence += publish.values.len() as i32;
            std::thread::sleep(PACE);
        }
    }

    /// Calls over a connection that is made anew when it breaks; `None` when the load ends meanwhile.
    fn retry_kafka<T>(
        &self,
        connection: &mut Option<kafka::Connection>,
        mut call: impl FnMut(&mut kafka::Connection) -> io::Result<T>,
    ) -> Option<T> {
        loop {
            if connection.is_none() {
                *connection = kafka::Connection::open(&self.addresses.kafka).ok();
            }
            if let Some(open) = connection {
                match call(open) {
                    Ok(answer) => return Some(answer),
                    Err(_) => *connection = None,
                }
            }
            if !self.goes_on() {
                return None;
            }
            std::thread::sleep(RECONNECT_PAUSE);
        }
    }

    /// Publishes through HTTP with a producer's identity.
    fn produce_http(&self, name: &str) {
        let mut random = Seeded::new(self.seed);
        let mut counter = 0;
        let mut sequences = [0_u64; PARTITIONS as usize];
        let mut connection = None;
        let Some(producer) = self.retry_http(&mut connection, "/v1/producers", &json!({})) else {
            return;
        };
        let path = format!("/v1/topics/{TOPIC}/messages:publish");
        while self.goes_on() {
            let publish = self.next_publish(name, &mut counter, &mut random);
            let sequence = &mut sequences[publish.partition as usize];
            let messages: Vec<Value> = (*sequence..)
                .zip(&publish.values)
                .map(|(sequence, value)| {
                    json!({ "message_key": publish.key, "payload": value, "partition": publish.partition,
                            "sequence": sequence })
                })
                .collect();
            let body = json!({ "messages": messages, "producer_id": producer["producer_id"],
                               "producer_epoch": producer["producer_epoch"] });
            loop {
                let Some(answer) = self.retry_http(&mut connection, &path, &body) else {
                    return;
                };
                match settled(&answer, publish.values.len()) {
                    Settled::At(offset) => {
                        self.ledger
                            .store(publish.partition, offset, &publish.digests);
                        break;
                    }
                    Settled::Unknown if self.goes_on() => std::thread::sleep(RECONNECT_PAUSE),
                    Settled::Unknown => return,
                    Settled::Refused => {
                        let what = format!("a publish of {name} was refused: {answer:.500}");
                        return self.ledger.violate(what);
                    }
                }
            }
            *sequence += publish.values.len() as u64;
            std::thread::sleep(PACE);
        }
    }

    /// As [`Worker::retry_kafka`]; refusals come back as they are.
    fn retry_http(
        &self,
        connection: &mut Option<http::Connection>,
        path: &str,
        body: &Value,
    ) -> Option<Value> {
        loop {
            if connection.is_none() {
                *connection = http::Connection::open(&self.addresses.http).ok();
            }
            if let Some(open) = connection {
                let answer = open.request("POST", path, body.to_string().as_bytes());
                match answer.and_then(|answer| answer.json()) {
                    Ok(answer) => return Some(answer),
                    Err(_) => *connection = None,
                }
            }
            if !self.goes_on() {
                return None;
            }
            std::thread::sleep(RECONNECT_PAUSE);
        }
    }

    /// Reads every partition, from the start again after every loss of the connection.
    fn read(&self) {
        while self.goes_on() {
            let Ok(mut connection) = kafka::Connection::open(&self.addresses.kafka) else {
                std::thread::sleep(RECONNECT_PAUSE);
                continue;
            };
            let mut positions = [0; PARTITIONS as usize];
            while self.goes_on() {
                if self.read_round(&mut connection, &mut positions).is_err() {
                    break;
                }
            }
        }
    }

    fn read_round(
        &self,
        connection: &mut kafka::Connection,
        positions: &mut [i64],
    ) -> io::Result<()> {
        for (partition, position) in (0..).zip(positions) {
            let fetched = connection.fetch(TOPIC, partition, *position)?;
            if fetched.error_code == ErrorCode::OFFSET_OUT_OF_RANGE {
                let what = format!(
                    "offset {position} of partition {partition} was read, and is out of range"
                );
                self.ledger.violate(what);
            }
            if fetched.error_code != ErrorCode::NONE {
                return Err(io::ErrorKind::Other.into());
            }
            let records = match check::records_of(fetched.records.to_bytes()) {
                Ok(records) => records,
                Err(what) => {
                    self.ledger
                        .violate(format!("partition {partition}: {what}"));
                    return Err(io::ErrorKind::InvalidData.into());
                }
            };
            for record in records.iter().filter(|record| record.offset >= *position) {
                self.ledger.see((partition, record.offset), record.digest());
            }
            if let Some(last) = records.last() {
                *position = last.offset + 1;
            }
        }
        Ok(())
    }

    /// Commits what was read, partition by partition, again and again.
    fn commit(&self) {
        let mut connection = None;
        let path = format!("/v1/groups/{GROUP}/offsets:commit");
        while self.goes_on() {
            for partition in 0..PARTITIONS {
                let offset = self.ledger.seen_end(partition);
                let body = json!({ "topic": TOPIC, "offsets": [{ "partition": partition, "offset": offset }] });
                self.ledger.commit(partition, offset, false);
                let Some(answer) = self.retry_http(&mut connection, &path, &body) else {
                    return;
                };
                if answer["failed"].as_u64() == Some(0) {
                    self.ledger.commit(partition, offset, true);
                } else if answer["type"] == "commit_past_end" {
                    let what = format!(
                        "offset {offset} of partition {partition} was read, and is past the end"
                    );
                    self.ledger.violate(what);
                }
            }
            std::thread::sleep(PACE);
        }
    }
}

fn partitions() -> NonZeroU32 {
    NonZeroU32::new(PARTITIONS.unsigned_abs()).unwrap_or(NonZeroU32::MIN)
}

fn encode(publish: &Publish, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        codec: publish.codec,
        producer_id,
        producer_epoch,
        base_sequence,
        ..BatchOptions::default()
    });
    for value in &publish.values {
        let (key, value) = (publish.key.as_bytes(), value.as_bytes());
        let appended = builder.append(1_700_000_000_000, Some(key), Some(value), &[]);
        assert!(appended.is_ok(), "a record of the load fits: {appended:?}");
    }
    builder
        .build()
        .map(bytes::BytesMut::freeze)
        .unwrap_or_default()
}

/// What a restart or a stopping broker may answer.
fn is_transient(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::REQUEST_TIMED_OUT
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::NOT_ENOUGH_REPLICAS
            | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::THROTTLING_QUOTA_EXCEEDED
    )
}

enum Settled {
    /// Stored, now or before, the first message at this offset.
    At(i64),
    Unknown,
    Refused,
}

fn settled(answer: &Value, count: usize) -> Settled {
    let Some(messages) = answer["messages"].as_array() else {
        return match answer["retry"].as_str() {
            Some("later" | "after_refresh") => Settled::Unknown,
            _ => Settled::Refused,
        };
    };
    let kept = |message: &&Value| matches!(message["status"].as_str(), Some("stored" | "repeat"));
    let offsets: Vec<i64> = messages
        .iter()
        .filter(kept)
        .filter_map(|message| message["offset"].as_i64())
        .collect();
    match offsets.as_slice() {
        [first, ..]
            if offsets.len() == count && (*first..).zip(&offsets).all(|(due, is)| due == *is) =>
        {
            Settled::At(*first)
        }
        _ if messages.iter().any(|message| {
            message["status"] == "unknown"
                || message["error"]["retry"] != "never" && message["status"] == "rejected"
        }) =>
        {
            Settled::Unknown
        }
        _ => Settled::Refused,
    }
}
