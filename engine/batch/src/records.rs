//! The records of an opened body.
//!
//! Invariants:
//!
//! 1. A record that is handed out has been read to its end: keys, values and headers lie inside it, and its
//!    fields fill its stated length exactly.
//! 2. Offset deltas rise from record to record and never pass the batch's last offset delta. With a verified
//!    producer batch (count = last delta + 1) they are therefore 0, 1, 2 and so on.
//! 3. Iterators state no lower size: a count is a claim, and `collect` would reserve it.

use std::iter::FusedIterator;

use bytes::Bytes;

use crate::error::{BatchError, RecordFault};
use crate::header::{BatchHeader, NO_TIMESTAMP};
use crate::varint::Reader;

/// A record, its fields borrowed from the body.
#[derive(Clone, Debug)]
pub struct RecordRef<'a> {
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// Milliseconds after the batch's base timestamp; may be negative.
    pub timestamp_delta: i64,
    /// Key, if there is one.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a tombstone on a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Headers, already checked.
    pub headers: HeaderRefs<'a>,
}

impl RecordRef<'_> {
    /// Bytes of key, value, header keys and header values together: what the record carries, without framing.
    pub fn content_bytes(&self) -> usize {
        let headers: usize = self
            .headers
            .clone()
            .map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len))
            .sum();
        self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + headers
    }

    /// Offset of the record.
    pub fn offset(&self, header: &BatchHeader) -> i64 {
        offset(header, self.offset_delta)
    }

    /// Timestamp of the record in milliseconds: the batch's maximum under log-append time.
    pub fn timestamp_ms(&self, header: &BatchHeader) -> i64 {
        timestamp_ms(header, self.timestamp_delta)
    }
}

/// A record whose fields share the body's memory.
#[derive(Clone, Debug)]
pub struct Record {
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// Milliseconds after the batch's base timestamp; may be negative.
    pub timestamp_delta: i64,
    /// Key, if there is one.
    pub key: Option<Bytes>,
    /// Value; `None` is a tombstone on a compacted topic.
    pub value: Option<Bytes>,
    /// Headers, already checked.
    pub headers: RecordHeaders,
}

impl Record {
    /// Offset of the record.
    pub fn offset(&self, header: &BatchHeader) -> i64 {
        offset(header, self.offset_delta)
    }

    /// Timestamp of the record in milliseconds: the batch's maximum under log-append time.
    pub fn timestamp_ms(&self, header: &BatchHeader) -> i64 {
        timestamp_ms(header, self.timestamp_delta)
    }
}

/// A record header, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderRef<'a> {
    /// Name; UTF-8 by convention, not by check.
    pub key: &'a [u8],
    /// Value, if there is one.
    pub value: Option<&'a [u8]>,
}

/// A record header that shares the body's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name; UTF-8 by convention, not by check.
    pub key: Bytes,
    /// Value, if there is one.
    pub value: Option<Bytes>,
}

/// Iterator over the checked headers of a record.
#[derive(Clone, Debug)]
pub struct HeaderRefs<'a> {
    reader: Reader<'a>,
    remaining: usize,
}

impl<'a> Iterator for HeaderRefs<'a> {
    type Item = HeaderRef<'a>;

    fn next(&mut self) -> Option<HeaderRef<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        read_header(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Checked against the bytes that are there when the record was read.
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for HeaderRefs<'_> {}

/// The checked headers of a record, sharing the body's memory.
#[derive(Clone, Debug)]
pub struct RecordHeaders {
    bytes: Bytes,
    count: usize,
}

impl RecordHeaders {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The headers, borrowed.
    pub fn refs(&self) -> HeaderRefs<'_> {
        HeaderRefs {
            reader: Reader::new(&self.bytes),
            remaining: self.count,
        }
    }

    /// The headers, in slices of the same memory.
    pub fn iter(&self) -> impl Iterator<Item = Header> + '_ {
        self.refs().map(|header| Header {
            key: self.bytes.slice_ref(header.key),
            value: header.value.map(|value| self.bytes.slice_ref(value)),
        })
    }
}

/// Iterates the records of an opened body without a copy or an allocation.
///
/// The first error ends the iteration. If it ends without one, the body held exactly the records that the
/// header claims.
pub fn record_refs<'a>(header: &BatchHeader, body: &'a [u8]) -> RecordRefs<'a> {
    RecordRefs {
        reader: Reader::new(body),
        cursor: Cursor::new(header),
    }
}

/// Iterates the records of an opened body, each in slices of its memory; otherwise as [`record_refs`].
pub fn records(header: &BatchHeader, body: Bytes) -> Records {
    Records {
        position: 0,
        cursor: Cursor::new(header),
        body,
    }
}

/// Where an iteration stands, and what the next record must satisfy.
#[derive(Clone, Debug)]
struct Cursor {
    index: u32,
    record_count: u32,
    offset_delta_min: i32,
    last_offset_delta: i32,
    ended: bool,
}

impl Cursor {
    fn new(header: &BatchHeader) -> Self {
        Cursor {
            index: 0,
            record_count: u32::try_from(header.record_count).unwrap_or(0),
            offset_delta_min: 0,
            last_offset_delta: header.last_offset_delta,
            ended: false,
        }
    }

    fn next<'a>(&mut self, reader: &mut Reader<'a>) -> Option<Result<RecordRef<'a>, BatchError>> {
        if self.ended {
            return None;
        }
        if self.index == self.record_count {
            self.ended = true;
            return (reader.remaining() > 0)
                .then(|| Err(self.error(RecordFault::BytesAfterLastRecord)));
        }
        match read_record(reader).and_then(|record| self.admit(record)) {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(fault) => {
                self.ended = true;
                Some(Err(self.error(fault)))
            }
        }
    }

    fn admit<'a>(&mut self, record: RecordRef<'a>) -> Result<RecordRef<'a>, RecordFault> {
        let delta = record.offset_delta;
        if delta < self.offset_delta_min || delta > self.last_offset_delta {
            return Err(RecordFault::OffsetDelta);
        }
        self.offset_delta_min = delta.saturating_add(1);
        Ok(record)
    }

    fn error(&self, fault: RecordFault) -> BatchError {
        BatchError::Record {
            index: self.index,
            fault,
        }
    }
}

/// Iterator over borrowed records; see [`record_refs`].
#[derive(Clone, Debug)]
pub struct RecordRefs<'a> {
    reader: Reader<'a>,
    cursor: Cursor,
}

impl<'a> Iterator for RecordRefs<'a> {
    type Item = Result<RecordRef<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next(&mut self.reader)
    }
}

impl FusedIterator for RecordRefs<'_> {}

/// Iterator over records that share the body's memory; see [`records()`].
#[derive(Clone, Debug)]
pub struct Records {
    body: Bytes,
    position: usize,
    cursor: Cursor,
}

impl Iterator for Records {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut reader = Reader::new(self.body.get(self.position..).unwrap_or_default());
        let record = self.cursor.next(&mut reader)?;
        self.position = self.body.len() - reader.remaining();
        Some(record.map(|record| Record {
            offset_delta: record.offset_delta,
            timestamp_delta: record.timestamp_delta,
            key: record.key.map(|key| self.body.slice_ref(key)),
            value: record.value.map(|value| self.body.slice_ref(value)),
            headers: RecordHeaders {
                bytes: self.body.slice_ref(record.headers.reader.rest()),
                count: record.headers.remaining,
            },
        }))
    }
}

impl FusedIterator for Records {}

fn read_record<'a>(body: &mut Reader<'a>) -> Result<RecordRef<'a>, RecordFault> {
    let length = usize::try_from(body.varint()?).map_err(|_| RecordFault::Length)?;
    if length > body.remaining() {
        return Err(RecordFault::Truncated);
    }
    let mut reader = Reader::new(body.take(length)?);
    // Record attributes are unused so far; Kafka ignores them too.
    reader.byte()?;
    let timestamp_delta = reader.varlong()?;
    let offset_delta = reader.varint()?;
    let key = reader.nullable_bytes()?;
    let value = reader.nullable_bytes()?;
    let count = usize::try_from(reader.varint()?).map_err(|_| RecordFault::HeaderCount)?;
    // A header takes at least the two bytes of its lengths.
    if count > reader.remaining() / 2 {
        return Err(RecordFault::HeaderCount);
    }
    let headers = HeaderRefs {
        reader,
        remaining: count,
    };
    for _ in 0..count {
        read_header(&mut reader)?;
    }
    if reader.remaining() > 0 {
        return Err(RecordFault::BytesAfterFields);
    }
    Ok(RecordRef {
        offset_delta,
        timestamp_delta,
        key,
        value,
        headers,
    })
}

fn read_header<'a>(reader: &mut Reader<'a>) -> Result<HeaderRef<'a>, RecordFault> {
    let key = reader.nullable_bytes()?.ok_or(RecordFault::HeaderKey)?;
    let value = reader.nullable_bytes()?;
    Ok(HeaderRef { key, value })
}

fn offset(header: &BatchHeader, offset_delta: i32) -> i64 {
    header.base_offset.saturating_add(i64::from(offset_delta))
}

fn timestamp_ms(header: &BatchHeader, timestamp_delta: i64) -> i64 {
    if header.attributes.is_log_append_time() {
        header.max_timestamp_ms
    } else {
        header.base_timestamp_ms.saturating_add(timestamp_delta)
    }
}

/// What one pass over an opened body finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordScan {
    /// Content bytes of the largest record; 0 without records. See [`RecordRef::content_bytes`].
    pub largest_record_bytes: usize,
    /// Largest timestamp in milliseconds; -1 without records.
    pub max_timestamp_ms: i64,
    /// Offset delta of the first record with that timestamp.
    pub max_timestamp_offset_delta: i32,
    /// Records without a key, which a compacted topic refuses.
    pub null_keys: u32,
}

/// Reads an opened body to its end, checking every record, without an allocation.
///
/// # Errors
///
/// [`BatchError::Record`] with the first record that cannot be read.
pub fn scan_records(header: &BatchHeader, body: &[u8]) -> Result<RecordScan, BatchError> {
    let mut scan = RecordScan {
        largest_record_bytes: 0,
        max_timestamp_ms: NO_TIMESTAMP,
        max_timestamp_offset_delta: 0,
        null_keys: 0,
    };
    for record in record_refs(header, body) {
        let record = record?;
        scan.largest_record_bytes = scan.largest_record_bytes.max(record.content_bytes());
        let timestamp_ms = record.timestamp_ms(header);
        if timestamp_ms > scan.max_timestamp_ms {
            scan.max_timestamp_ms = timestamp_ms;
            scan.max_timestamp_offset_delta = record.offset_delta;
        }
        scan.null_keys += u32::from(record.key.is_none());
    }
    Ok(scan)
}

/// Content bytes of the largest record of an opened body: key, value and headers.
///
/// # Errors
///
/// As [`scan_records`].
pub fn largest_record_bytes(header: &BatchHeader, body: &[u8]) -> Result<usize, BatchError> {
    scan_records(header, body).map(|scan| scan.largest_record_bytes)
}

/// A record above a size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OversizeRecord {
    /// Index in the batch, from 0: what Kafka's record errors name.
    pub index: u32,
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// Its content bytes; see [`RecordRef::content_bytes`].
    pub record_bytes: usize,
}

/// The first record of an opened body whose key, value and headers exceed `record_bytes_max` together.
/// Records after it are not read.
///
/// # Errors
///
/// [`BatchError::Record`] if a record before it cannot be read.
pub fn first_record_above(
    header: &BatchHeader,
    body: &[u8],
    record_bytes_max: usize,
) -> Result<Option<OversizeRecord>, BatchError> {
    for (index, record) in (0_u32..).zip(record_refs(header, body)) {
        let record = record?;
        let record_bytes = record.content_bytes();
        if record_bytes > record_bytes_max {
            return Ok(Some(OversizeRecord {
                index,
                offset_delta: record.offset_delta,
                record_bytes,
            }));
        }
    }
    Ok(None)
}
