//! The consumer: positions to fetches, answers to records.
//!
//! Invariants:
//! 1. A partition's records are handed out in the order of their offsets, each at most once for each
//!    assignment, and none below the position it started from.
//! 2. A partition is in at most one request at a time.
//! 3. No fetch goes out while [`ConsumerSettings::buffered_bytes_max`] bytes wait to be handed out.
//!
//! Batches that hold no records for the reader (control batches, batches emptied by compaction) move the
//! position on all the same.

mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use corelog_batch::{BatchError, BatchHeader, Record, batches, open, records, verify_stored_batch};
use corelog_wire::{
    ErrorCode, FetchPartition, FetchPartitionData, FetchRequest, FetchResponse, FetchTopic,
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic, WireString,
};

pub use self::settings::{
    ConsumedBatch, ConsumedRecords, ConsumerSettings, FetchError, FetchId, FetchToSend, StartAt,
};
use super::metadata::Metadata;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

#[derive(Debug)]
struct Position {
    /// Where it begins, until that has been found out.
    start: Option<StartAt>,
    /// The next offset to hand out.
    next_offset: i64,
    /// The next offset to fetch.
    fetch_offset: i64,
    high_watermark: Option<i64>,
    fetched: VecDeque<(BatchHeader, Bytes)>,
    in_request: bool,
    rests_until_ms: u64,
    stopped: bool,
}

/// Reads partitions.
///
/// ```no_run
/// use corelog_client::core::{ConsumerCore, ConsumerSettings, Metadata, StartAt};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let metadata = Metadata::default();
/// let mut consumer = ConsumerCore::new(ConsumerSettings::default());
/// consumer.assign("orders", 0, StartAt::Offset(42));
/// while let Some(fetch) = consumer.next_fetch(&metadata, 0) {
///     // Give `fetch.request` to the connection of `fetch.broker`, and its answer to `on_fetch`.
///     # let _ = fetch;
/// }
/// while let Some(batch) = consumer.next_records()? {
///     println!("{} records up to {}", batch.records.len(), batch.next_offset);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConsumerCore {
    settings: ConsumerSettings,
    positions: BTreeMap<(WireString, i32), Position>,
    requests: BTreeMap<FetchId, (i32, Vec<(WireString, i32)>)>,
    /// Partitions with fetched batches, in the order of their arrival.
    arrived: VecDeque<(WireString, i32)>,
    buffered_bytes: usize,
    next_request: u64,
    metadata_wanted: bool,
    errors: VecDeque<FetchError>,
}

impl ConsumerCore {
    /// A consumer that reads nothing yet.
    pub fn new(settings: ConsumerSettings) -> Self {
        Self {
            settings,
            positions: BTreeMap::new(),
            requests: BTreeMap::new(),
            arrived: VecDeque::new(),
            buffered_bytes: 0,
            next_request: 0,
            metadata_wanted: false,
            errors: VecDeque::new(),
        }
    }

    /// Begins to read a partition, or begins it anew elsewhere.
    pub fn assign(&mut self, topic: &str, partition: i32, start: StartAt) {
        self.unassign(topic, partition);
        let known = match start {
            StartAt::Offset(offset) => Some(offset),
            StartAt::Earliest | StartAt::Latest | StartAt::Time(_) => None,
        };
        let position = Position {
            start: Some(start).filter(|_| known.is_none()),
            next_offset: known.unwrap_or(0),
            fetch_offset: known.unwrap_or(0),
            high_watermark: None,
            fetched: VecDeque::new(),
            in_request: false,
            rests_until_ms: 0,
            stopped: false,
        };
        self.positions.insert((topic.into(), partition), position);
    }

    /// Reads a partition no more; what was fetched of it is dropped, and answers that are still to come are
    /// ignored.
    pub fn unassign(&mut self, topic: &str, partition: i32) {
        let key = (WireString::from(topic), partition);
        if let Some(position) = self.positions.remove(&key) {
            let dropped: usize = position.fetched.iter().map(|(_, batch)| batch.len()).sum();
            self.buffered_bytes -= dropped;
        }
        self.arrived.retain(|arrived| *arrived != key);
        for (_, partitions) in self.requests.values_mut() {
            partitions.retain(|asked| *asked != key);
        }
    }

    /// Reads nothing any more.
    pub fn unassign_all(&mut self) {
        self.positions.clear();
        self.arrived.clear();
        self.buffered_bytes = 0;
        for (_, partitions) in self.requests.values_mut() {
            partitions.clear();
        }
    }

    /// Where each partition stands: the next offset to hand out, unless the start is still to be found.
    pub fn positions(&self) -> impl Iterator<Item = (&str, i32, i64)> {
        self.positions
            .iter()
            .filter(|(_, position)| position.start.is_none())
            .map(|((topic, partition), position)| {
                (topic.as_str(), *partition, position.next_offset)
            })
    }

    /// The topics of which partitions are assigned.
    pub fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self
            .positions
            .keys()
            .map(|(topic, _)| topic.to_string())
            .collect();
        topics.dedup();
        topics
    }

    /// Whether everything below the high watermark that the broker last told has been handed out, in every
    /// partition.
    pub fn is_at_end(&self) -> bool {
        self.positions.values().all(|position| {
            let end = position.high_watermark;
            position.stopped
                || position.start.is_none() && end.is_some_and(|end| position.next_offset >= end)
        })
    }

    /// Whether leaders must be asked for. Says so once for each reason.
    pub fn take_metadata_wanted(&mut self) -> bool {
        std::mem::take(&mut self.metadata_wanted)
    }

    /// The next look-up of where to begin. Call until `None`.
    pub fn next_offset_query(
        &mut self,
        metadata: &Metadata,
        now_ms: u64,
    ) -> Option<FetchToSend<ListOffsetsRequest>> {
        let is_due = |position: &Position| position.start.is_some();
        let (broker, due) = self.due(metadata, now_ms, is_due)?;
        let mut topics: Vec<ListOffsetsTopic> = Vec::new();
        for (topic, partition) in &due {
            let start = self
                .positions
                .get(&(topic.clone(), *partition))
                .and_then(|position| position.start);
            let asked = ListOffsetsPartition {
                partition_index: *partition,
                timestamp: match start {
                    Some(StartAt::Latest) | None => LATEST,
                    Some(StartAt::Time(time_ms)) => time_ms.max(0),
                    Some(StartAt::Earliest | StartAt::Offset(_)) => EARLIEST,
                },
                ..ListOffsetsPartition::default()
            };
            match topics.last_mut() {
                Some(last) if last.name == *topic => last.partitions.push(asked),
                _ => topics.push(ListOffsetsTopic {
                    name: topic.clone(),
                    partitions: vec![asked],
                }),
            }
        }
        let request = ListOffsetsRequest {
            topics,
            timeout_ms: 30_000,
            ..ListOffsetsRequest::default()
        };
        Some(self.send(broker, due, request))
    }

    /// A look-up was answered.
    pub fn on_offsets(&mut self, id: FetchId, response: &ListOffsetsResponse, now_ms: u64) {
        let retry_at_ms = now_ms.saturating_add(self.settings.retry_backoff_ms);
        for key in self.answered(id, retry_at_ms) {
            let found = response
                .topics
                .iter()
                .filter(|topic| topic.name == key.0)
                .flat_map(|topic| &topic.partitions)
                .find(|partition| partition.partition_index == key.1);
            let (Some(found), Some(position)) = (found, self.positions.get_mut(&key)) else {
                continue;
            };
            match (found.error_code, position.start) {
                // No record is that young: the end.
                (ErrorCode::NONE, Some(StartAt::Time(_))) if found.offset < 0 => {
                    position.start = Some(StartAt::Latest);
                    position.rests_until_ms = 0;
                }
                (ErrorCode::NONE, Some(_)) => {
                    position.start = None;
                    position.next_offset = found.offset;
                    position.fetch_offset = found.offset;
                    position.rests_until_ms = 0;
                }
                (ErrorCode::NONE, None) => {}
                (code, _) => self.on_refusal(&key, code),
            }
        }
    }

    /// The next fetch. Call until `None`.
    pub fn next_fetch(
        &mut self,
        metadata: &Metadata,
        now_ms: u64,
    ) -> Option<FetchToSend<FetchRequest>> {
        if self.buffered_bytes >= self.settings.buffered_bytes_max {
            return None;
        }
        let is_due = |position: &Position| position.start.is_none();
        let (broker, due) = self.due(metadata, now_ms, is_due)?;
        let mut topics: Vec<FetchTopic> = Vec::new();
        for (topic, partition) in &due {
            let position = self.positions.get(&(topic.clone(), *partition));
            let asked = FetchPartition {
                partition: *partition,
                fetch_offset: position.map_or(0, |position| position.fetch_offset),
                partition_max_bytes: self.settings.partition_bytes_max,
                ..FetchPartition::default()
            };
            match topics.last_mut() {
                Some(last) if last.topic == *topic => last.partitions.push(asked),
                _ => topics.push(FetchTopic {
                    topic: topic.clone(),
                    partitions: vec![asked],
                    ..FetchTopic::default()
                }),
            }
        }
        let request = FetchRequest {
            max_wait_ms: self.settings.max_wait_ms,
            min_bytes: self.settings.min_bytes,
            max_bytes: self.settings.fetch_bytes_max,
            topics,
            ..FetchRequest::default()
        };
        Some(self.send(broker, due, request))
    }

    /// A fetch was answered.
    pub fn on_fetch(&mut self, id: FetchId, response: FetchResponse, now_ms: u64) {
        let retry_at_ms = now_ms.saturating_add(self.settings.retry_backoff_ms);
        let asked = self.answered(id, retry_at_ms);
        for topic in response.responses {
            for data in topic.partitions {
                let key = (topic.topic.detached(), data.partition_index);
                if asked.contains(&key) {
                    self.on_fetched(key, data);
                }
            }
        }
    }

    /// A request has no answer: its connection ended.
    pub fn on_failed(&mut self, id: FetchId, now_ms: u64) {
        self.metadata_wanted = true;
        self.answered(id, now_ms.saturating_add(self.settings.retry_backoff_ms));
    }

    /// The records of the next batch that has any for this reader, or `None` until more is fetched.
    ///
    /// # Errors
    /// What stops a partition; the others go on.
    pub fn next_records(&mut self) -> Result<Option<ConsumedRecords>, FetchError> {
        while let Some(batch) = self.next_batch()? {
            let records = match read_batch(&batch, &self.settings) {
                Ok(records) if records.is_empty() => continue,
                Ok(records) => records,
                Err(error) => return Err(self.on_unreadable(batch, error)),
            };
            return Ok(Some(ConsumedRecords {
                next_offset: batch.header.next_offset().max(batch.from),
                topic: batch.topic,
                partition: batch.partition,
                header: batch.header,
                records,
            }));
        }
        Ok(None)
    }

    /// The next batch as it came, neither verified nor opened, or `None` until more is fetched.
    ///
    /// # Errors
    /// As [`ConsumerCore::next_records`].
    pub fn next_batch(&mut self) -> Result<Option<ConsumedBatch>, FetchError> {
        if let Some(error) = self.errors.pop_front() {
            return Err(error);
        }
        while let Some(key) = self.arrived.front() {
            let position = self.positions.get_mut(key);
            let next = position.and_then(|position| {
                let (header, batch) = position.fetched.pop_front()?;
                let from = position.next_offset;
                position.next_offset = header.next_offset().max(from);
                Some((header, batch, from))
            });
            let Some((header, batch, from)) = next else {
                self.arrived.pop_front();
                continue;
            };
            self.buffered_bytes -= batch.len();
            return Ok(Some(ConsumedBatch {
                topic: key.0.clone(),
                partition: key.1,
                header,
                batch,
                from,
            }));
        }
        Ok(None)
    }

    /// When to ask for fetches again if nothing else happens; `None`: not by time.
    pub fn wake_at_ms(&self) -> Option<u64> {
        self.positions
            .values()
            .filter(|position| !position.in_request && !position.stopped)
            .map(|position| position.rests_until_ms)
            .min()
    }

    /// A broker without a request in flight, and its partitions that are due.
    fn due(
        &mut self,
        metadata: &Metadata,
        now_ms: u64,
        is_due: impl Fn(&Position) -> bool,
    ) -> Option<(i32, Vec<(WireString, i32)>)> {
        let mut chosen: Option<(i32, Vec<(WireString, i32)>)> = None;
        for (key, position) in &self.positions {
            let rests = position.in_request || position.stopped || position.rests_until_ms > now_ms;
            if rests || !is_due(position) {
                continue;
            }
            let Some(leader) = metadata.leader(key.0.as_str(), key.1) else {
                self.metadata_wanted = true;
                continue;
            };
            match &mut chosen {
                Some((broker, due)) if *broker == leader => due.push(key.clone()),
                Some(_) => {}
                None if self.requests.values().any(|(broker, _)| *broker == leader) => {}
                None => chosen = Some((leader, vec![key.clone()])),
            }
        }
        chosen
    }

    fn send<R>(
        &mut self,
        broker: i32,
        partitions: Vec<(WireString, i32)>,
        request: R,
    ) -> FetchToSend<R> {
        let id = FetchId(self.next_request);
        self.next_request += 1;
        for key in &partitions {
            if let Some(position) = self.positions.get_mut(key) {
                position.in_request = true;
            }
        }
        self.requests.insert(id, (broker, partitions));
        FetchToSend {
            id,
            broker,
            request,
        }
    }

    /// The partitions of a request that is over. They rest until `rests_until_ms` unless the answer says
    /// otherwise.
    fn answered(&mut self, id: FetchId, rests_until_ms: u64) -> Vec<(WireString, i32)> {
        let partitions = self
            .requests
            .remove(&id)
            .map_or(Vec::new(), |(_, keys)| keys);
        for key in &partitions {
            if let Some(position) = self.positions.get_mut(key) {
                position.in_request = false;
                position.rests_until_ms = rests_until_ms;
            }
        }
        partitions
    }

    fn on_fetched(&mut self, key: (WireString, i32), data: FetchPartitionData) {
        let Some(position) = self.positions.get_mut(&key) else {
            return;
        };
        if data.error_code == ErrorCode::OFFSET_OUT_OF_RANGE {
            return self.on_out_of_range(&key, &data);
        }
        if !data.error_code.is_none() {
            return self.on_refusal(&key, data.error_code);
        }
        position.rests_until_ms = 0;
        position.high_watermark = Some(data.high_watermark);
        let was_empty = position.fetched.is_empty();
        for batch in batches(data.records.to_bytes()) {
            match batch {
                // Batches below the position come when it lies inside a batch; whole ones below it are old.
                Ok((header, batch)) if header.next_offset() > position.fetch_offset => {
                    position.fetch_offset = header.next_offset();
                    self.buffered_bytes += batch.len();
                    position.fetched.push_back((header, batch));
                }
                Ok(_) => {}
                // The broker cuts the last batch where the answer is full.
                Err(error) if error.is_incomplete() => break,
                Err(error) => {
                    position.stopped = true;
                    self.errors.push_back(FetchError::Batch {
                        topic: key.0.clone(),
                        partition: key.1,
                        offset: position.fetch_offset,
                        error,
                    });
                    break;
                }
            }
        }
        if was_empty && !position.fetched.is_empty() {
            self.arrived.push_back(key);
        }
    }

    fn on_out_of_range(&mut self, key: &(WireString, i32), data: &FetchPartitionData) {
        let reset_to = self.settings.reset_to;
        let Some(position) = self.positions.get_mut(key) else {
            return;
        };
        match reset_to {
            Some(StartAt::Offset(offset)) if offset == position.fetch_offset => {
                position.stopped = true;
            }
            Some(start) => {
                position.start = Some(start);
                position.rests_until_ms = 0;
                return;
            }
            None => position.stopped = true,
        }
        let told = |offset: i64| Some(offset).filter(|offset| *offset >= 0);
        self.errors.push_back(FetchError::OutOfRange {
            topic: key.0.clone(),
            partition: key.1,
            offset: position.fetch_offset,
            log_start: told(data.log_start_offset),
            end: told(data.high_watermark),
        });
    }

    /// A batch that cannot be read stops its partition where the batch begins.
    fn on_unreadable(&mut self, batch: ConsumedBatch, error: BatchError) -> FetchError {
        let key = (batch.topic, batch.partition);
        if let Some(position) = self.positions.get_mut(&key) {
            position.stopped = true;
            position.next_offset = batch.from;
            for (_, later) in position.fetched.drain(..) {
                self.buffered_bytes -= later.len();
            }
        }
        FetchError::Batch {
            topic: key.0,
            partition: key.1,
            offset: batch.from,
            error,
        }
    }

    /// A refusal that passes makes the partition rest; another one stops it.
    fn on_refusal(&mut self, key: &(WireString, i32), code: ErrorCode) {
        if code.is_retriable() {
            self.metadata_wanted = true;
            return;
        }
        if let Some(position) = self.positions.get_mut(key) {
            position.stopped = true;
        }
        self.errors.push_back(FetchError::Refused {
            topic: key.0.clone(),
            partition: key.1,
            code,
        });
    }
}

/// The records of a batch for a reader that stands at `batch.from`.
fn read_batch(
    batch: &ConsumedBatch,
    settings: &ConsumerSettings,
) -> Result<Vec<Record>, BatchError> {
    if settings.verify_checksums {
        verify_stored_batch(&batch.batch)?;
    }
    if batch.header.attributes.is_control() {
        return Ok(Vec::new());
    }
    let is_old = |record: &Record| record.offset(&batch.header) < batch.from;
    let body = open(&batch.batch, settings.opened_bytes_max)?;
    records(&batch.header, body)
        .filter(|record| !record.as_ref().is_ok_and(is_old))
        .collect()
}
