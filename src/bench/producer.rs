//! One producer of the load: one connection, requests on schedule.
//!
//! With a rate, record i is due at start + i / rate, whatever the broker does, and its latency counts from
//! there: a stall is charged to every record that it delayed. Without a rate, a request is due when it is
//! sent, which is as soon as there is room in flight.

use std::collections::VecDeque;
use std::future::pending;
use std::time::{Duration, Instant};

use corelog_client::core::{ConnectionSettings, Stamp};
use corelog_client::transport::{BrokerConnection, wall_ms};
use corelog_client::wire::{
    InitProducerIdRequest, PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
    WireString,
};
use hdrhistogram::Histogram;

use super::precise_timer::PreciseTimer;
use super::report::latencies;
use super::workload::{ANONYMOUS, SharedBatches};
use crate::failure::Failure;

const ACKS_ALL: i16 = -1;
const BROKER_TIMEOUT_MS: i32 = 30_000;
const CALL_TIMEOUT_MS: u64 = 10_000;
/// How long a producer rests before it connects again.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// How long records that were due before the end are still sent and awaited.
pub const GRACE: Duration = Duration::from_secs(10);
/// Records of one request whose latencies are recorded one by one; more are represented by so many.
const SAMPLES_PER_REQUEST: u64 = 16;

/// What all producers have in common.
#[derive(Clone, Debug)]
pub struct Plan {
    pub topic: WireString,
    /// Records per second of one producer; `None`: as fast as there is room in flight.
    pub rate: Option<f64>,
    pub in_flight: usize,
    pub linger: Duration,
    pub batches_per_request: usize,
    pub idempotent: bool,
    pub start: Instant,
    /// The measurement goes from here
    pub measured_from: Instant,
    /// up to here.
    pub end: Instant,
}

/// What one producer found.
#[derive(Debug)]
pub struct Figures {
    pub latencies: Histogram<u64>,
    /// Acknowledged within the measurement.
    pub records: u64,
    pub requests: u64,
    /// Records that were refused, lost or never sent.
    pub errors: u64,
    pub first_error: Option<String>,
}

/// A partition to publish to.
#[derive(Debug)]
struct Target {
    partition: i32,
    batches: SharedBatches,
    next_sequence: i32,
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Number of its first record in the schedule.
    first: u64,
    records: u64,
    at: Instant,
}

/// One producer.
pub struct LoadProducer {
    plan: Plan,
    address: String,
    targets: Vec<Target>,
    next_target: usize,
    connection: Option<BrokerConnection>,
    identity: (i64, i16),
    /// The producer id is spent: a new one is asked for once nothing is in flight.
    wants_identity: bool,
    in_flight: VecDeque<Sent>,
    sent_records: u64,
    timer: PreciseTimer,
    figures: Figures,
}

impl LoadProducer {
    /// A producer that is connected and has its producer id.
    pub async fn connect(
        plan: Plan,
        address: String,
        targets: impl Iterator<Item = (i32, SharedBatches)>,
    ) -> Result<Self, Failure> {
        let targets = targets.map(|(partition, batches)| Target {
            partition,
            batches,
            next_sequence: 0,
        });
        let mut producer = Self {
            address,
            targets: targets.collect(),
            next_target: 0,
            connection: None,
            identity: ANONYMOUS,
            wants_identity: plan.idempotent,
            in_flight: VecDeque::new(),
            sent_records: 0,
            timer: PreciseTimer::new()?,
            figures: Figures {
                latencies: latencies()?,
                records: 0,
                requests: 0,
                errors: 0,
                first_error: None,
            },
            plan,
        };
        producer.prepare().await.map_err(Failure::new)?;
        Ok(producer)
    }

    /// The plan's times, once all producers are connected.
    pub fn set_times(&mut self, start: Instant, measured_from: Instant, end: Instant) {
        self.plan.start = start;
        self.plan.measured_from = measured_from;
        self.plan.end = end;
    }

    /// Publishes until the plan's end and what was due before it.
    pub async fn run(mut self) -> Result<Figures, Failure> {
        let give_up = self.plan.end + GRACE;
        let give_up_timer = tokio::time::sleep_until(give_up.into());
        tokio::pin!(give_up_timer);
        loop {
            let now = Instant::now();
            if now >= give_up || (now >= self.plan.end && self.is_done()) {
                break;
            }
            if (self.connection.is_none() || self.wants_identity)
                && self.in_flight.is_empty()
                && let Err(what) = self.prepare().await
            {
                // Time goes on meanwhile, and with it the schedule.
                self.first_error(what);
                self.timer
                    .sleep_until(Instant::now() + RECONNECT_AFTER)
                    .await?;
                continue;
            }
            let wake = self.send_due(now)?;
            let timer = &self.timer;
            let sleep = async {
                match wake {
                    Some(at) => timer.sleep_until(at).await,
                    None => pending().await,
                }
            };
            let connection = self.connection.as_mut();
            let answer = async {
                match connection {
                    Some(connection) => connection.answer().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = answer => self.on_answer(answer),
                slept = sleep => slept?,
                () = &mut give_up_timer => break,
            }
        }
        let lost: u64 = self.in_flight.iter().map(|sent| sent.records).sum();
        let unsent = self
            .scheduled(self.plan.end)
            .saturating_sub(self.sent_records);
        if lost + unsent > 0 {
            self.figures.errors += lost + unsent;
            self.first_error(format!(
                "{lost} records had no answer and {unsent} could not be sent in time"
            ));
        }
        Ok(self.figures)
    }

    fn is_done(&self) -> bool {
        self.in_flight.is_empty() && self.sent_records >= self.scheduled(self.plan.end)
    }

    /// Records that are due up to `at`; without a rate there is no schedule.
    fn scheduled(&self, at: Instant) -> u64 {
        let Some(rate) = self.plan.rate else { return 0 };
        let elapsed_s = at
            .min(self.plan.end)
            .saturating_duration_since(self.plan.start)
            .as_secs_f64();
        (elapsed_s * rate) as u64
    }

    fn due(&self, record: u64) -> Instant {
        let rate = self.plan.rate.unwrap_or(f64::INFINITY);
        self.plan.start + Duration::from_secs_f64((record + 1) as f64 / rate)
    }

    /// Sends every request that is due and has room; the answer is when to look again, if by time.
    fn send_due(&mut self, now: Instant) -> Result<Option<Instant>, Failure> {
        if self.connection.is_none() || self.wants_identity {
            return Ok(None);
        }
        while self.in_flight.len() < self.plan.in_flight {
            let full = self.full_request_records();
            let records = if self.plan.rate.is_some() {
                let waiting = self.scheduled(now).saturating_sub(self.sent_records);
                let lingers_until = self.due(self.sent_records) + self.plan.linger;
                let full_at = self.due(self.sent_records + full - 1);
                if waiting < full && (waiting == 0 || now < lingers_until) {
                    let is_over = now >= self.plan.end && waiting == 0;
                    return Ok((!is_over).then_some(full_at.min(lingers_until)));
                }
                waiting.min(full)
            } else if now >= self.plan.end {
                return Ok(None);
            } else {
                full
            };
            self.send(records, now)?;
        }
        Ok(None)
    }

    /// Records that the next request takes when its batches are full.
    fn full_request_records(&self) -> u64 {
        (0..self.plan.batches_per_request)
            .filter_map(|index| {
                let target = (self.next_target + index) % self.targets.len();
                let target = self.targets.get(target)?;
                Some(u64::from(target.batches.borrow().records_max()))
            })
            .sum()
    }

    fn send(&mut self, records: u64, now: Instant) -> Result<(), Failure> {
        let timestamp_ms = wall_ms();
        let mut left = records;
        let mut partition_data = Vec::with_capacity(self.plan.batches_per_request);
        while left > 0 {
            let count = self.targets.len();
            let Some(target) = self.targets.get_mut(self.next_target) else {
                break;
            };
            self.next_target = (self.next_target + 1) % count;
            let mut batches = target.batches.borrow_mut();
            let of_batch = left.min(u64::from(batches.records_max()));
            let of_batch_u32 = u32::try_from(of_batch).unwrap_or(u32::MAX);
            let stamp = Stamp {
                producer_id: self.identity.0,
                producer_epoch: self.identity.1,
                base_sequence: if self.plan.idempotent {
                    target.next_sequence
                } else {
                    -1
                },
                base_timestamp_ms: timestamp_ms,
            };
            let records = batches.batch(of_batch_u32, stamp)?;
            target.next_sequence = target
                .next_sequence
                .wrapping_add(of_batch_u32.cast_signed())
                & i32::MAX;
            partition_data.push(PartitionProduceData {
                index: target.partition,
                records,
            });
            left -= of_batch;
        }
        let request = ProduceRequest {
            acks: ACKS_ALL,
            timeout_ms: BROKER_TIMEOUT_MS,
            topic_data: vec![TopicProduceData {
                name: self.plan.topic.clone(),
                partition_data,
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        if let Some(connection) = &mut self.connection {
            connection.send(&request)?;
        }
        self.in_flight.push_back(Sent {
            first: self.sent_records,
            records,
            at: now,
        });
        self.sent_records += records;
        Ok(())
    }

    fn on_answer(
        &mut self,
        answer: Result<corelog_client::core::Answer, corelog_client::transport::ClientError>,
    ) {
        let now = Instant::now();
        let connection = self.connection.as_ref();
        let response = answer.and_then(|answer| match connection {
            Some(connection) => connection.decode::<ProduceRequest>(answer),
            None => Ok(ProduceResponse::default()),
        });
        let response = match response {
            Ok(response) => response,
            Err(error) => return self.on_broken(&error.to_string()),
        };
        let Some(sent) = self.in_flight.pop_front() else {
            return;
        };
        let mut partitions = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses);
        if let Some(refused) = partitions.find(|partition| !partition.error_code.is_none()) {
            let words = refused
                .error_message
                .as_ref()
                .map_or("", |message| message.as_str());
            let what = format!(
                "partition {}: {} {words}",
                refused.index, refused.error_code
            );
            self.figures.errors += sent.records;
            self.first_error(what);
            self.wants_identity = self.plan.idempotent;
            return;
        }
        self.record(sent, now);
    }

    fn on_broken(&mut self, what: &str) {
        self.figures.errors += self.in_flight.iter().map(|sent| sent.records).sum::<u64>();
        self.in_flight.clear();
        self.first_error(what.to_owned());
        self.connection = None;
        self.wants_identity = self.plan.idempotent;
    }

    fn record(&mut self, sent: Sent, now: Instant) {
        let plan = &self.plan;
        if now >= plan.measured_from && now < plan.end {
            self.figures.records += sent.records;
            self.figures.requests += 1;
        }
        let samples = match plan.rate {
            Some(_) => sent.records.min(SAMPLES_PER_REQUEST),
            None => 1,
        };
        let mut from = 0;
        for sample in 1..=samples {
            let up_to = sent.records * sample / samples;
            let due = match plan.rate {
                Some(_) => self.due(sent.first + from),
                None => sent.at,
            };
            if due >= plan.measured_from && due < plan.end {
                let latency = now.saturating_duration_since(due).as_micros();
                let latency_us = u64::try_from(latency).unwrap_or(u64::MAX).max(1);
                self.figures.latencies.saturating_record(latency_us);
                let more = up_to - from - 1;
                if more > 0 {
                    self.figures.latencies.saturating_record_n(latency_us, more);
                }
            }
            from = up_to;
        }
    }

    fn first_error(&mut self, what: String) {
        self.figures.first_error.get_or_insert(what);
    }

    /// Connects if need be, and gets a producer id if one is wanted.
    async fn prepare(&mut self) -> Result<(), String> {
        let settings = ConnectionSettings {
            client_id: WireString::from_static("corelog-bench"),
            requests_in_flight_max: self.plan.in_flight.max(1),
            ..ConnectionSettings::default()
        };
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BrokerConnection::open(&self.address, settings, CALL_TIMEOUT_MS)
                .await
                .map_err(|error| error.to_string())?,
        };
        if self.wants_identity {
            let request = InitProducerIdRequest {
                transaction_timeout_ms: i32::MAX,
                ..InitProducerIdRequest::default()
            };
            let response = connection
                .call(&request, CALL_TIMEOUT_MS)
                .await
                .map_err(|error| error.to_string())?;
            if !response.error_code.is_none() {
                self.connection = Some(connection);
                return Err(format!("a producer id: {}", response.error_code));
            }
            self.identity = (response.producer_id, response.producer_epoch);
            self.wants_identity = false;
            for target in &mut self.targets {
                target.next_sequence = 0;
            }
        }
        self.connection = Some(connection);
        Ok(())
    }
}
