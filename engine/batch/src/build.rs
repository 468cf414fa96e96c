//! Building a batch, record by record.
//!
//! Invariants:
//!
//! 1. [`BatchBuilder::bytes_with`] is exact: it equals [`BatchBuilder::bytes`] after that append.
//! 2. A refused append changes nothing.
//! 3. Without a codec nothing is allocated per record beyond the growth of the one buffer, and building
//!    neither copies nor allocates.

use std::error::Error;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::compress::compress;
use crate::header::{
    Attributes, BatchHeader, CRC_COVERS_FROM, Codec, HEADER_BYTES, LENGTH_PREFIX_BYTES,
    NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
};
use crate::records::HeaderRef;
use crate::varint::{varlong_bytes, write_varlong};

/// What all records of a batch have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// How the body is compressed at the end.
    pub codec: Codec,
    /// Largest batch in bytes, header included and before compression. At most 2^31 - 1 is used.
    pub batch_bytes_max: usize,
    /// Producer id, or [`NO_PRODUCER_ID`].
    pub producer_id: i64,
    /// Producer epoch, or [`NO_PRODUCER_EPOCH`].
    pub producer_epoch: i16,
    /// Sequence of the first record, or [`NO_SEQUENCE`].
    pub base_sequence: i32,
    /// Whether the batch belongs to a transaction.
    pub transactional: bool,
    /// Whether the records are transaction markers; brokers only.
    pub control: bool,
}

impl Default for BatchOptions {
    /// Uncompressed, at most 1 MiB, no producer id.
    fn default() -> Self {
        BatchOptions {
            codec: Codec::None,
            batch_bytes_max: 1024 * 1024,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            transactional: false,
            control: false,
        }
    }
}

/// Why a record was not appended or a batch not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The record does not fit: build what is there and start anew. In an empty builder it never fits.
    Full {
        /// Size of the batch with it.
        bytes_with: usize,
        /// The limit.
        batch_bytes_max: usize,
    },
    /// The timestamp is below -1, or too far from the first record's.
    Timestamp {
        /// The timestamp in milliseconds.
        timestamp_ms: i64,
    },
    /// There are no records.
    Empty,
    /// The codec failed, which means that memory ran out.
    Compress {
        /// The codec.
        codec: Codec,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full {
                bytes_with,
                batch_bytes_max,
            } => write!(
                f,
                "the batch would have {bytes_with} bytes and at most {batch_bytes_max} are allowed"
            ),
            Self::Timestamp { timestamp_ms } => {
                write!(f, "timestamp {timestamp_ms} is out of range")
            }
            Self::Empty => f.write_str("a batch needs at least one record"),
            Self::Compress { codec } => write!(f, "{codec} could not compress the batch"),
        }
    }
}

impl Error for BuildError {}

/// Collects records and makes a batch of them.
#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// Room for the header, then the records.
    buffer: BytesMut,
    record_count: i32,
    base_timestamp_ms: i64,
    max_timestamp_ms: i64,
}

impl BatchBuilder {
    /// An empty batch. Memory is reserved as records come.
    pub fn new(options: BatchOptions) -> BatchBuilder {
        BatchBuilder::with_capacity(options, HEADER_BYTES)
    }

    /// As [`Self::new`], with `capacity_bytes` reserved for header and records, up to the batch limit.
    pub fn with_capacity(options: BatchOptions, capacity_bytes: usize) -> BatchBuilder {
        let limit = options.batch_bytes_max.min(i32::MAX as usize);
        let options = BatchOptions {
            batch_bytes_max: limit,
            ..options
        };
        let mut buffer = BytesMut::with_capacity(capacity_bytes.min(limit).max(HEADER_BYTES));
        buffer.put_bytes(0, HEADER_BYTES);
        BatchBuilder {
            options,
            buffer,
            record_count: 0,
            base_timestamp_ms: NO_TIMESTAMP,
            max_timestamp_ms: NO_TIMESTAMP,
        }
    }

    /// Records so far.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Size of the batch so far, before compression.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Largest timestamp so far in milliseconds; -1 without records.
    pub fn max_timestamp_ms(&self) -> i64 {
        self.max_timestamp_ms
    }

    /// Size of the batch, before compression, if this record were appended.
    pub fn bytes_with(
        &self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) -> usize {
        let delta = self.timestamp_delta(timestamp_ms).unwrap_or(i64::MAX);
        let fields = self.field_bytes(delta, key, value, headers.iter().copied());
        self.bytes() + record_bytes(fields)
    }

    /// Appends a record and returns its offset delta.
    ///
    /// # Errors
    ///
    /// [`BuildError::Full`] or [`BuildError::Timestamp`]; the batch is then as before.
    pub fn append(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) -> Result<i32, BuildError> {
        self.append_with(timestamp_ms, key, value, headers.iter().copied())
    }

    /// As [`Self::append`], with headers from an iterator (those of another record, say), which is walked
    /// twice.
    ///
    /// # Errors
    ///
    /// As [`Self::append`].
    pub fn append_with<'h>(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl Iterator<Item = HeaderRef<'h>> + Clone,
    ) -> Result<i32, BuildError> {
        let timestamp_delta = self
            .timestamp_delta(timestamp_ms)
            .ok_or(BuildError::Timestamp { timestamp_ms })?;
        let field_bytes = self.field_bytes(timestamp_delta, key, value, headers.clone());
        let bytes_with = self.bytes() + record_bytes(field_bytes);
        if bytes_with > self.options.batch_bytes_max {
            return Err(BuildError::Full {
                bytes_with,
                batch_bytes_max: self.options.batch_bytes_max,
            });
        }
        self.buffer.reserve(bytes_with - self.bytes());
        let offset_delta = self.record_count;
        self.put_varint(field_bytes);
        self.buffer.put_u8(0);
        write_varlong(timestamp_delta, |byte| self.buffer.put_u8(byte));
        write_varlong(i64::from(offset_delta), |byte| self.buffer.put_u8(byte));
        self.put_nullable(key);
        self.put_nullable(value);
        self.put_varint(headers.clone().count());
        for header in headers {
            self.put_nullable(Some(header.key));
            self.put_nullable(header.value);
        }
        assert_eq!(
            self.bytes(),
            bytes_with,
            "the size of a record is known before it is written"
        );
        if self.record_count == 0 {
            self.base_timestamp_ms = timestamp_ms;
        }
        self.max_timestamp_ms = self.max_timestamp_ms.max(timestamp_ms);
        self.record_count += 1;
        Ok(offset_delta)
    }

    /// The batch, with base offset 0 and no leader epoch; [`crate::stamp()`] gives it both.
    ///
    /// # Errors
    ///
    /// [`BuildError::Empty`] without records, [`BuildError::Compress`] if the codec fails.
    pub fn build(self) -> Result<BytesMut, BuildError> {
        if self.record_count == 0 {
            return Err(BuildError::Empty);
        }
        let codec = self.options.codec;
        let mut batch = if codec == Codec::None {
            self.buffer
        } else {
            let mut out = Vec::with_capacity(HEADER_BYTES + self.buffer.len() / 2);
            out.resize(HEADER_BYTES, 0);
            compress(codec, &self.buffer[HEADER_BYTES..], &mut out)
                .map_err(|_| BuildError::Compress { codec })?;
            // The memory has one owner, so this takes it over without a copy.
            BytesMut::from(Bytes::from(out))
        };
        let mut header = BatchHeader {
            base_offset: 0,
            length: i32::try_from(batch.len() - LENGTH_PREFIX_BYTES)
                .map_err(|_| BuildError::Compress { codec })?,
            leader_epoch: NO_LEADER_EPOCH,
            crc: 0,
            attributes: Attributes::with_codec(codec)
                .with_transactional(self.options.transactional)
                .with_control(self.options.control),
            last_offset_delta: self.record_count - 1,
            base_timestamp_ms: self.base_timestamp_ms,
            max_timestamp_ms: self.max_timestamp_ms,
            producer_id: self.options.producer_id,
            producer_epoch: self.options.producer_epoch,
            base_sequence: self.options.base_sequence,
            record_count: self.record_count,
        };
        batch[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        header.crc = crc32c::crc32c(&batch[CRC_COVERS_FROM..]);
        batch[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        Ok(batch)
    }

    fn timestamp_delta(&self, timestamp_ms: i64) -> Option<i64> {
        if timestamp_ms < NO_TIMESTAMP {
            return None;
        }
        if self.record_count == 0 {
            return Some(0);
        }
        timestamp_ms.checked_sub(self.base_timestamp_ms)
    }

    /// Bytes of a record after its length.
    fn field_bytes<'h>(
        &self,
        timestamp_delta: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl Iterator<Item = HeaderRef<'h>>,
    ) -> usize {
        let mut header_count = 0_usize;
        let mut header_bytes = 0_usize;
        for header in headers {
            header_count += 1;
            header_bytes += nullable_bytes(Some(header.key)) + nullable_bytes(header.value);
        }
        1 + varlong_bytes(timestamp_delta)
            + varlong_bytes(i64::from(self.record_count))
            + nullable_bytes(key)
            + nullable_bytes(value)
            + length_bytes(header_count)
            + header_bytes
    }

    fn put_varint(&mut self, length: usize) {
        write_varlong(length as i64, |byte| self.buffer.put_u8(byte));
    }

    fn put_nullable(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                self.put_varint(bytes.len());
                self.buffer.put_slice(bytes);
            }
            None => write_varlong(-1, |byte| self.buffer.put_u8(byte)),
        }
    }
}

/// Bytes of a record whose fields take `field_bytes`.
fn record_bytes(field_bytes: usize) -> usize {
    length_bytes(field_bytes) + field_bytes
}

fn nullable_bytes(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| length_bytes(bytes.len()) + bytes.len())
}

/// Lengths of memory fit an `i64`.
fn length_bytes(length: usize) -> usize {
    varlong_bytes(length as i64)
}
