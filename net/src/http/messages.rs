//! Fetched record batches to messages, and messages to JSON.
//!
//! Invariants:
//!
//! 1. The offset that [`MessageReader::take`] returns is where the next read has to begin: every record
//!    below it has been handed out, or was below the asked offset, or is not data.
//! 2. A compressed batch opens to at most `BATCH_OPENED_BYTES_MAX`; one that does not, or cannot be read,
//!    stops its partition there and no other.

use std::fmt;

use base64::Engine as _;
use bytes::Bytes;
use corelog_batch::{
    BatchError, BatchErrorKind, BatchHeader, Batches, Codec, Header, Opener, Record, Turn, records,
};
use corelog_engine::identity::{Offset, PartitionIndex};
use corelog_engine::limits::BATCH_OPENED_BYTES_MAX;
use corelog_engine::rejection::Rejection;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::MESSAGE_ID_HEADER;
use super::body::BASE64;

/// A record as HTTP shows it. Its bytes share the memory of the opened batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The record's offset.
    pub offset: Offset,
    /// The record's time stamp; `None` where the producer gave none.
    pub timestamp_ms: Option<u64>,
    /// The key.
    pub key: Option<Bytes>,
    /// The id from `corelog.message-id`, where it is there and UTF-8.
    pub message_id: Option<String>,
    /// All other headers, in their order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<Bytes>,
}

/// A batch that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFault {
    /// Where the batch begins; the partition cannot be read on from here.
    pub base_offset: u64,
    /// Where the next one begins: a consumer that can do without this one goes on there.
    pub next_offset: u64,
    /// What is wrong.
    pub error: BatchError,
}

impl ReadFault {
    /// The refusal that fits.
    pub fn rejection(&self) -> Rejection {
        match self.error.kind() {
            BatchErrorKind::MessageTooLarge => Rejection::MessageTooLarge,
            BatchErrorKind::UnsupportedCompression => Rejection::UnsupportedCompressionType,
            BatchErrorKind::CorruptMessage
            | BatchErrorKind::InvalidTimestamp
            | BatchErrorKind::InvalidRecord => Rejection::CorruptMessage,
        }
    }
}

impl fmt::Display for ReadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the batch at offset {} cannot be read: {}; the next one begins at {}",
            self.base_offset, self.error, self.next_offset
        )
    }
}

/// Collects messages of several partitions up to a number and a size.
#[derive(Debug)]
pub struct MessageReader {
    messages: Vec<Message>,
    messages_max: usize,
    bytes: usize,
    bytes_max: usize,
}

impl MessageReader {
    /// Takes at most `messages_max` messages, and stops before keys, payloads and headers pass
    /// `bytes_max`; the first message is taken even if it is larger.
    pub const fn new(messages_max: usize, bytes_max: usize) -> Self {
        Self {
            messages: Vec::new(),
            messages_max,
            bytes: 0,
            bytes_max,
        }
    }

    /// Whether no further message would be taken.
    pub const fn is_full(&self) -> bool {
        self.messages.len() >= self.messages_max || self.bytes >= self.bytes_max
    }

    /// Takes no further message. Whether it has any.
    pub fn close(&mut self) -> bool {
        self.messages_max = self.messages.len();
        !self.messages.is_empty()
    }

    /// The messages so far.
    pub fn into_messages(self) -> Vec<Message> {
        self.messages
    }

    /// The next batch of `batches` with something to read from `from` on. They must come from the log,
    /// verified. A last batch that is cut off is left for the next read.
    ///
    /// # Errors
    /// The batch that stops this partition.
    pub fn next_batch(&self, from: Offset, batches: &mut Batches) -> Result<NextBatch, ReadFault> {
        let mut from = from;
        while !self.is_full() {
            let (header, bytes) = match batches.next() {
                None => break,
                Some(Ok(batch)) => batch,
                Some(Err(error)) if error.is_incomplete() => break,
                Some(Err(error)) => return Err(fault_at(from, from, error)),
            };
            let Some(after) = Offset::from_wire(header.next_offset()) else {
                let error = BatchError::Offsets {
                    base_offset: header.base_offset,
                    last_offset_delta: header.last_offset_delta,
                };
                return Err(fault_at(from, from, error));
            };
            if after <= from {
                continue;
            }
            if header.attributes.is_control() {
                from = after;
                continue;
            }
            let opener = Opener::new(&bytes, BATCH_OPENED_BYTES_MAX)
                .map_err(|error| fault_at(from, after, error))?;
            return Ok(NextBatch::Open(Box::new(OpeningBatch {
                header,
                from,
                after,
                opener,
            })));
        }
        Ok(NextBatch::End(from))
    }

    /// Takes the records of an opened batch; the offset to go on from (invariant 1). A batch with a bad
    /// record gives nothing.
    ///
    /// # Errors
    /// The batch stops its partition.
    pub fn take(
        &mut self,
        topic: &str,
        partition: PartitionIndex,
        batch: &OpeningBatch,
        body: Bytes,
    ) -> Result<Offset, ReadFault> {
        let header = &batch.header;
        let taken_before = (self.messages.len(), self.bytes);
        for record in records(header, body) {
            let record = record.map_err(|error| {
                self.messages.truncate(taken_before.0);
                self.bytes = taken_before.1;
                batch.fault(error)
            })?;
            let Some(offset) = Offset::from_wire(record.offset(header)) else {
                continue;
            };
            if offset < batch.from {
                continue;
            }
            let record_bytes = content_bytes(&record);
            let is_first = self.messages.is_empty();
            if self.is_full() || (!is_first && self.bytes + record_bytes > self.bytes_max) {
                // Full for this answer, however small the next record is.
                self.bytes = self.bytes.max(self.bytes_max);
                return Ok(offset);
            }
            self.bytes += record_bytes;
            self.messages
                .push(message(topic, partition, offset, header, record));
        }
        Ok(batch.after)
    }
}

/// Where the reading of a partition stands.
#[derive(Debug)]
pub enum NextBatch {
    /// This batch is to be opened and taken.
    Open(Box<OpeningBatch>),
    /// Nothing more is read; the offset to go on from next time.
    End(Offset),
}

/// A batch on its way from the log to a [`MessageReader`].
#[derive(Debug)]
pub struct OpeningBatch {
    header: BatchHeader,
    from: Offset,
    after: Offset,
    opener: Opener,
}

impl OpeningBatch {
    /// Where to go on if nothing of it is taken.
    pub const fn from(&self) -> Offset {
        self.from
    }

    /// Memory of its own that the opened part takes so far, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.opener.output_memory_bytes()
    }

    /// Memory of its own that the opened body takes: none where it lies in the fetched batch as it is.
    pub fn body_memory_bytes(&self, body: &Bytes) -> usize {
        match self.header.codec() {
            Ok(Codec::None) | Err(_) => 0,
            Ok(_) => body.len(),
        }
    }

    /// Opens some more of it, about `budget_bytes`; the body once it is whole.
    ///
    /// # Errors
    /// What stops its partition here (invariant 2).
    pub fn turn(&mut self, budget_bytes: usize) -> Result<Option<Bytes>, ReadFault> {
        match self.opener.turn(budget_bytes) {
            Ok(Turn::More) => Ok(None),
            Ok(Turn::Done(body)) => Ok(Some(body)),
            Err(error) => Err(self.fault(error)),
        }
    }

    fn fault(&self, error: BatchError) -> ReadFault {
        fault_at(self.from, self.after, error)
    }
}

fn fault_at(base: Offset, next: Offset, error: BatchError) -> ReadFault {
    ReadFault {
        base_offset: base.get(),
        next_offset: next.get(),
        error,
    }
}

fn content_bytes(record: &Record) -> usize {
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let headers: usize = record
        .headers
        .refs()
        .map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len))
        .sum();
    length(&record.key) + length(&record.value) + headers
}

fn message(
    topic: &str,
    partition: PartitionIndex,
    offset: Offset,
    header: &BatchHeader,
    record: Record,
) -> Message {
    let mut message_id = None;
    let mut headers = Vec::with_capacity(record.headers.len());
    for Header { key, value } in record.headers.iter() {
        let id = value.as_ref().and_then(|value| str::from_utf8(value).ok());
        match id {
            Some(id) if key == MESSAGE_ID_HEADER.as_bytes() && message_id.is_none() => {
                message_id = Some(id.to_owned());
            }
            _ => headers.push((key, value)),
        }
    }
    Message {
        topic: topic.to_owned(),
        partition,
        offset,
        timestamp_ms: u64::try_from(record.timestamp_ms(header)).ok(),
        key: record.key,
        message_id,
        headers,
        payload: record.value,
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("topic", &self.topic)?;
        map.serialize_entry("partition", &self.partition.get())?;
        map.serialize_entry("offset", &self.offset.get())?;
        map.serialize_entry("timestamp_ms", &self.timestamp_ms)?;
        let key = self.key.as_deref();
        serialize_bytes(&mut map, "message_key", "message_key_base64", key)?;
        map.serialize_entry("message_id", &self.message_id)?;
        map.serialize_entry("headers", &HeaderViews(&self.headers))?;
        let payload = self.payload.as_deref();
        serialize_bytes(&mut map, "payload", "payload_base64", payload)?;
        map.end()
    }
}

/// UTF-8 under the plain name, other bytes as base64 under the other, nothing as null.
fn serialize_bytes<M: SerializeMap>(
    map: &mut M,
    plain: &'static str,
    base64: &'static str,
    bytes: Option<&[u8]>,
) -> Result<(), M::Error> {
    match bytes.map(|bytes| str::from_utf8(bytes).map_err(|_| bytes)) {
        None => map.serialize_entry(plain, &()),
        Some(Ok(text)) => map.serialize_entry(plain, text),
        Some(Err(bytes)) => map.serialize_entry(base64, &BASE64.encode(bytes)),
    }
}

struct HeaderViews<'a>(&'a [(Bytes, Option<Bytes>)]);

struct HeaderView<'a>(&'a Bytes, Option<&'a Bytes>);

impl Serialize for HeaderViews<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (name, value) in self.0 {
            list.serialize_element(&HeaderView(name, value.as_ref()))?;
        }
        list.end()
    }
}

impl Serialize for HeaderView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        serialize_bytes(&mut map, "name", "name_base64", Some(self.0))?;
        let value = self.1.map(|value| value.as_ref());
        serialize_bytes(&mut map, "value", "value_base64", value)?;
        map.end()
    }
}
