//! The batches of one partition on their way.
//!
//! Invariants:
//! 1. Batches go out in the order of their records, and those in flight stand in the order of their
//!    sequences.
//! 2. While a batch waits to be sent again, no later one is sent for the first time.
//! 3. A batch's sequence is given when it is first sent and stays for all repeats under the same producer
//!    id.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use corelog_batch::{BatchBuilder, BatchOptions, BuildError, HEADER_BYTES};
use corelog_wire::ErrorCode;

use super::settings::{ProducerSettings, PublishId, PublishRefusal, RecordToPublish, SendId};
use crate::core::prepared::stamp_producer;

/// A batch that still takes records.
#[derive(Debug)]
struct OpenBatch {
    builder: BatchBuilder,
    publishes: Vec<PublishId>,
    opened_ms: u64,
}

/// Where a batch in flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchState {
    /// To be sent again.
    Waiting,
    /// In this request.
    Sent(SendId),
}

/// A batch that takes no more records.
#[derive(Debug)]
pub(super) struct ClosedBatch {
    bytes: Bytes,
    pub publishes: Vec<PublishId>,
    pub opened_ms: u64,
    /// What it counts for in the producer's buffer.
    pub buffered_bytes: usize,
    pub state: BatchState,
    /// Whether an attempt may have been stored without an answer.
    pub may_be_stored: bool,
    pub last_refusal: Option<ErrorCode>,
}

impl ClosedBatch {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch, by reference.
    pub fn share(&self) -> Bytes {
        self.bytes.clone()
    }
}

/// A producer id and its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProducerIdentity {
    pub id: i64,
    pub epoch: i16,
}

/// One partition's batches: one open, some closed and never sent, some in flight.
#[derive(Debug)]
pub(super) struct PartitionQueue {
    pub partition: i32,
    open: Option<OpenBatch>,
    ready: VecDeque<ClosedBatch>,
    pub in_flight: VecDeque<ClosedBatch>,
    next_sequence: i32,
    retry_at_ms: u64,
}

impl PartitionQueue {
    pub fn new(partition: i32) -> Self {
        Self {
            partition,
            open: None,
            ready: VecDeque::new(),
            in_flight: VecDeque::new(),
            next_sequence: 0,
            retry_at_ms: 0,
        }
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.ready.is_empty() && self.in_flight.is_empty()
    }

    /// Whether any batch is in a request.
    pub fn has_sent(&self) -> bool {
        let sent = |batch: &ClosedBatch| matches!(batch.state, BatchState::Sent(_));
        self.in_flight.iter().any(sent)
    }

    /// Bytes that this record adds at most: with a header, since it may open a batch.
    pub fn bytes_for(&self, record: &RecordToPublish<'_>) -> usize {
        let bytes_with = |builder: &BatchBuilder| {
            builder.bytes_with(
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
            ) - builder.bytes()
        };
        let record_bytes = match &self.open {
            Some(open) => bytes_with(&open.builder),
            None => bytes_with(&BatchBuilder::new(BatchOptions::default())),
        };
        HEADER_BYTES + record_bytes
    }

    /// Adds a record; the batch before it is closed if it is full. Returns the bytes added to the buffer,
    /// and whether a batch was closed.
    pub fn append(
        &mut self,
        record: &RecordToPublish<'_>,
        id: PublishId,
        settings: &ProducerSettings,
        now_ms: u64,
    ) -> Result<(usize, bool), PublishRefusal> {
        let mut closed = false;
        if let Some(open) = &mut self.open {
            let before = open.builder.bytes();
            match append_to(&mut open.builder, record) {
                Ok(()) => {
                    open.publishes.push(id);
                    return Ok((open.builder.bytes() - before, false));
                }
                // Full, or too far from the first timestamp: either way the next batch takes it.
                Err(BuildError::Full { .. } | BuildError::Timestamp { .. }) => closed = true,
                Err(_) => return Err(PublishRefusal::Ended),
            }
        }
        let mut builder = BatchBuilder::new(BatchOptions {
            codec: settings.codec,
            batch_bytes_max: settings.batch_bytes_max,
            ..BatchOptions::default()
        });
        append_to(&mut builder, record).map_err(|error| match error {
            BuildError::Full {
                bytes_with,
                batch_bytes_max,
            } => PublishRefusal::TooLarge {
                batch_bytes: bytes_with,
                batch_bytes_max,
            },
            BuildError::Timestamp { timestamp_ms } => PublishRefusal::Timestamp { timestamp_ms },
            BuildError::Empty | BuildError::Compress { .. } => PublishRefusal::Ended,
        })?;
        if closed {
            self.close_open();
        }
        let bytes = builder.bytes();
        self.open = Some(OpenBatch {
            builder,
            publishes: vec![id],
            opened_ms: now_ms,
        });
        Ok((bytes, closed))
    }

    /// Closes the open batch, if there is one.
    pub fn close_open(&mut self) {
        let Some(open) = self.open.take() else { return };
        let buffered_bytes = open.builder.bytes();
        // The only failure left is a codec without memory; the batch is then refused by its emptiness when
        // it is sent, which names it to the caller.
        let bytes = open
            .builder
            .build()
            .map(BytesMut::freeze)
            .unwrap_or_default();
        self.ready.push_back(ClosedBatch {
            bytes,
            publishes: open.publishes,
            opened_ms: open.opened_ms,
            buffered_bytes,
            state: BatchState::Waiting,
            may_be_stored: false,
            last_refusal: None,
        });
    }

    /// When something may be sent: `None` if nothing is there or all room in flight is taken.
    pub fn due_ms(&self, settings: &ProducerSettings, in_flight_max: usize) -> Option<u64> {
        if let Some(waiting) = self.first_waiting() {
            // Earlier ones are in a request: this one may follow them.
            return (waiting < in_flight_max).then_some(self.retry_at_ms);
        }
        if self.in_flight.len() >= in_flight_max {
            return None;
        }
        if !self.ready.is_empty() {
            return Some(0);
        }
        let open = self.open.as_ref()?;
        Some(open.opened_ms.saturating_add(settings.linger_ms))
    }

    /// Takes the next batch to send into request `send`, and returns it by reference. [`Self::due_ms`] must
    /// have said that there is one.
    pub fn take_for(
        &mut self,
        send: SendId,
        identity: Option<ProducerIdentity>,
    ) -> Option<&ClosedBatch> {
        let index = match self.first_waiting() {
            Some(index) => index,
            None => {
                if self.ready.is_empty() {
                    self.close_open();
                }
                let mut batch = self.ready.pop_front()?;
                if let Some(identity) = identity {
                    let records = i32::try_from(batch.publishes.len()).unwrap_or(i32::MAX);
                    batch.bytes = stamped(batch.bytes, identity, self.next_sequence);
                    self.next_sequence = self.next_sequence.wrapping_add(records) & i32::MAX;
                }
                self.in_flight.push_back(batch);
                self.in_flight.len() - 1
            }
        };
        let batch = self.in_flight.get_mut(index)?;
        batch.state = BatchState::Sent(send);
        Some(batch)
    }

    /// The batch in request `send`.
    pub fn sent_in(&self, send: SendId) -> Option<usize> {
        let sent = BatchState::Sent(send);
        self.in_flight.iter().position(|batch| batch.state == sent)
    }

    /// Lets a batch wait until it is sent again.
    pub fn retry(&mut self, index: usize, retry_at_ms: u64) {
        if let Some(batch) = self.in_flight.get_mut(index) {
            batch.state = BatchState::Waiting;
            self.retry_at_ms = self.retry_at_ms.max(retry_at_ms);
        }
    }

    /// Starts over under a new producer id: batches that may be stored are handed out, since a repeat of
    /// them would not be recognised; the others go back to the front.
    pub fn start_over(&mut self) -> Vec<ClosedBatch> {
        let mut lost = Vec::new();
        for batch in std::mem::take(&mut self.in_flight).into_iter().rev() {
            if batch.may_be_stored {
                lost.push(batch);
            } else {
                self.ready.push_front(batch);
            }
        }
        self.next_sequence = 0;
        lost.reverse();
        lost
    }

    /// Batches that are too old and not in a request. `true` beside one whose sequence is used up.
    pub fn take_expired(&mut self, opened_before_ms: u64) -> Vec<(ClosedBatch, bool)> {
        let mut expired = Vec::new();
        let is_old = |batch: &ClosedBatch| {
            batch.state == BatchState::Waiting && batch.opened_ms <= opened_before_ms
        };
        while let Some(index) = self.in_flight.iter().position(is_old) {
            expired.extend(self.in_flight.remove(index).map(|batch| (batch, true)));
        }
        while self.ready.front().is_some_and(is_old) {
            expired.extend(self.ready.pop_front().map(|batch| (batch, false)));
        }
        if self.ready.is_empty()
            && self
                .open
                .as_ref()
                .is_some_and(|open| open.opened_ms <= opened_before_ms)
        {
            self.close_open();
            expired.extend(self.ready.pop_front().map(|batch| (batch, false)));
        }
        expired
    }

    /// Everything on its way, in order; nothing is left.
    pub fn take_all(&mut self) -> Vec<ClosedBatch> {
        self.close_open();
        let mut all: Vec<ClosedBatch> = std::mem::take(&mut self.in_flight).into();
        all.extend(std::mem::take(&mut self.ready));
        all
    }

    /// When the oldest batch was opened.
    pub fn oldest_opened_ms(&self) -> Option<u64> {
        let closed = self.in_flight.front().or(self.ready.front());
        closed
            .map(|batch| batch.opened_ms)
            .or(self.open.as_ref().map(|open| open.opened_ms))
    }

    /// Index of the first batch that is to be sent again.
    fn first_waiting(&self) -> Option<usize> {
        let waiting = |batch: &ClosedBatch| batch.state == BatchState::Waiting;
        self.in_flight.iter().position(waiting)
    }
}

fn append_to(builder: &mut BatchBuilder, record: &RecordToPublish<'_>) -> Result<(), BuildError> {
    builder
        .append(
            record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
        )
        .map(|_| ())
}

/// The batch with this identity. Copied only when a request still holds it.
fn stamped(batch: Bytes, identity: ProducerIdentity, sequence: i32) -> Bytes {
    let mut bytes = BytesMut::from(batch);
    if bytes.len() >= HEADER_BYTES {
        // Built here, so its header can be read.
        let stamped = stamp_producer(&mut bytes, identity.id, identity.epoch, sequence);
        assert!(stamped.is_ok(), "a batch that was built here can be read");
    }
    bytes.freeze()
}
