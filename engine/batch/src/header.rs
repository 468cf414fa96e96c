//! The 61-byte header of a record batch.
//!
//! Invariants:
//!
//! 1. A [`BatchHeader`] that came from [`BatchHeader::parse`] has magic 2 and a length of at least 49, so
//!    its batch has at least [`HEADER_BYTES`] bytes; nothing else about it is checked yet.

use std::fmt;

use crate::error::BatchError;

/// Bytes of a batch before its body.
pub const HEADER_BYTES: usize = 61;
/// Bytes of base offset and length, which the length field does not count.
pub const LENGTH_PREFIX_BYTES: usize = 12;
/// First byte that the CRC-32C covers; it covers everything to the end of the batch.
pub const CRC_COVERS_FROM: usize = 21;
/// The only batch format accepted.
pub const MAGIC: i8 = 2;
/// Producer id of an ordinary (not idempotent) producer.
pub const NO_PRODUCER_ID: i64 = -1;
/// Producer epoch that goes with [`NO_PRODUCER_ID`].
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// Sequence that goes with [`NO_PRODUCER_ID`].
pub const NO_SEQUENCE: i32 = -1;
/// Timestamp of a record that has none.
pub const NO_TIMESTAMP: i64 = -1;
/// Leader epoch of a batch that no leader has stamped.
pub const NO_LEADER_EPOCH: i32 = -1;

pub(crate) const LENGTH_AT: usize = 8;
pub(crate) const LEADER_EPOCH_AT: usize = 12;
pub(crate) const MAGIC_AT: usize = 16;
pub(crate) const CRC_AT: usize = 17;
pub(crate) const ATTRIBUTES_AT: usize = 21;
const LAST_OFFSET_DELTA_AT: usize = 23;
const BASE_TIMESTAMP_AT: usize = 27;
pub(crate) const MAX_TIMESTAMP_AT: usize = 35;
const PRODUCER_ID_AT: usize = 43;
const PRODUCER_EPOCH_AT: usize = 51;
const BASE_SEQUENCE_AT: usize = 53;
const RECORD_COUNT_AT: usize = 57;

/// Smallest legal length field: a header without records.
const LENGTH_MIN: i32 = (HEADER_BYTES - LENGTH_PREFIX_BYTES) as i32;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy, raw or in the xerial framing of the Java client.
    Snappy,
    /// LZ4 frame format.
    Lz4,
    /// RFC 8878.
    Zstd,
}

impl Codec {
    /// Every codec, in the order of their codes.
    pub const ALL: [Codec; 5] = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];

    /// The three attribute bits.
    pub fn code(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// The codec of three attribute bits, if there is one.
    pub fn from_code(code: u8) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.code() == code)
    }

    /// The name that Kafka's `compression.type` uses.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The attribute bits of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC_MASK: i16 = 0b111;
    pub(crate) const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;

    /// Attributes with this codec and nothing else.
    pub fn with_codec(codec: Codec) -> Attributes {
        Attributes(i16::from(codec.code()))
    }

    /// The same attributes, transactional or not.
    #[must_use]
    pub fn with_transactional(self, transactional: bool) -> Attributes {
        self.with_bit(Self::TRANSACTIONAL, transactional)
    }

    /// The same attributes, of a control batch or not.
    #[must_use]
    pub fn with_control(self, control: bool) -> Attributes {
        self.with_bit(Self::CONTROL, control)
    }

    fn with_bit(self, bit: i16, on: bool) -> Attributes {
        Attributes(if on { self.0 | bit } else { self.0 & !bit })
    }

    /// The codec.
    ///
    /// # Errors
    ///
    /// [`BatchError::UnknownCodec`] for the three codes that name none.
    pub fn codec(self) -> Result<Codec, BatchError> {
        let code = (self.0 & Self::CODEC_MASK) as u8;
        Codec::from_code(code).ok_or(BatchError::UnknownCodec { code })
    }

    /// Whether all records carry the batch's max timestamp, given by a broker.
    pub fn is_log_append_time(self) -> bool {
        self.0 & Self::LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the records are transaction markers and such, not data.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp holds a delete horizon (KIP-534).
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }
}

/// All fields of a batch header, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the batch; a producer's value means nothing.
    pub base_offset: i64,
    /// Bytes after the length field.
    pub length: i32,
    /// Epoch of the leader that appended the batch; -1 from a producer.
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: Attributes,
    /// Offset of the last record, or of the last that was there before compaction, less the base offset.
    pub last_offset_delta: i32,
    /// Timestamp that records count from (or the delete horizon), in milliseconds.
    pub base_timestamp_ms: i64,
    /// Largest timestamp, in milliseconds. From a producer it is a claim: some clients leave it at -1;
    /// [`crate::scan_records`] finds the real one.
    pub max_timestamp_ms: i64,
    /// Producer id, or [`NO_PRODUCER_ID`].
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Sequence of the first record.
    pub base_sequence: i32,
    /// Records in the body.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`; what follows it is not looked at.
    ///
    /// # Errors
    ///
    /// [`BatchError::Magic`] as soon as the magic byte is there and is not 2, so that an older message
    /// format is named as such; [`BatchError::Incomplete`] for fewer than 61 bytes; [`BatchError::Length`]
    /// for a length below 49.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        if let Some(&magic) = bytes.get(MAGIC_AT)
            && magic as i8 != MAGIC
        {
            return Err(BatchError::Magic { magic: magic as i8 });
        }
        let Some(raw) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Incomplete {
                needed_bytes: HEADER_BYTES,
                present_bytes: bytes.len(),
            });
        };
        let header = BatchHeader {
            base_offset: i64::from_be_bytes(field(raw, 0)),
            length: i32::from_be_bytes(field(raw, LENGTH_AT)),
            leader_epoch: i32::from_be_bytes(field(raw, LEADER_EPOCH_AT)),
            crc: u32::from_be_bytes(field(raw, CRC_AT)),
            attributes: Attributes(i16::from_be_bytes(field(raw, ATTRIBUTES_AT))),
            last_offset_delta: i32::from_be_bytes(field(raw, LAST_OFFSET_DELTA_AT)),
            base_timestamp_ms: i64::from_be_bytes(field(raw, BASE_TIMESTAMP_AT)),
            max_timestamp_ms: i64::from_be_bytes(field(raw, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(field(raw, PRODUCER_ID_AT)),
            producer_epoch: i16::from_be_bytes(field(raw, PRODUCER_EPOCH_AT)),
            base_sequence: i32::from_be_bytes(field(raw, BASE_SEQUENCE_AT)),
            record_count: i32::from_be_bytes(field(raw, RECORD_COUNT_AT)),
        };
        if header.length < LENGTH_MIN {
            return Err(BatchError::Length {
                length: header.length,
            });
        }
        Ok(header)
    }

    /// The 61 bytes of this header, magic included.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        put(&mut raw, 0, self.base_offset.to_be_bytes());
        put(&mut raw, LENGTH_AT, self.length.to_be_bytes());
        put(&mut raw, LEADER_EPOCH_AT, self.leader_epoch.to_be_bytes());
        put(&mut raw, MAGIC_AT, MAGIC.to_be_bytes());
        put(&mut raw, CRC_AT, self.crc.to_be_bytes());
        put(&mut raw, ATTRIBUTES_AT, self.attributes.0.to_be_bytes());
        put(
            &mut raw,
            LAST_OFFSET_DELTA_AT,
            self.last_offset_delta.to_be_bytes(),
        );
        put(
            &mut raw,
            BASE_TIMESTAMP_AT,
            self.base_timestamp_ms.to_be_bytes(),
        );
        put(
            &mut raw,
            MAX_TIMESTAMP_AT,
            self.max_timestamp_ms.to_be_bytes(),
        );
        put(&mut raw, PRODUCER_ID_AT, self.producer_id.to_be_bytes());
        put(
            &mut raw,
            PRODUCER_EPOCH_AT,
            self.producer_epoch.to_be_bytes(),
        );
        put(&mut raw, BASE_SEQUENCE_AT, self.base_sequence.to_be_bytes());
        put(&mut raw, RECORD_COUNT_AT, self.record_count.to_be_bytes());
        raw
    }

    /// Size of the whole batch in bytes. Cannot overflow: the field is an `i32` and at least 49 (invariant 1).
    pub fn batch_bytes(&self) -> usize {
        LENGTH_PREFIX_BYTES + usize::try_from(self.length).unwrap_or(0)
    }

    /// Size of the body, as stored, in bytes.
    pub fn body_bytes(&self) -> usize {
        self.batch_bytes().saturating_sub(HEADER_BYTES)
    }

    /// Offset of the last record, or of the last that was there before compaction.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    /// Offset at which the next batch goes on, also when this one holds no records.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Whether the batch came from an idempotent producer.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id >= 0
    }

    /// Sequence of the last record; sequences wrap from 2^31 - 1 to 0. [`NO_SEQUENCE`] without a producer id.
    pub fn last_sequence(&self) -> i32 {
        if !self.has_producer_id() {
            return NO_SEQUENCE;
        }
        self.base_sequence.wrapping_add(self.last_offset_delta) & i32::MAX
    }

    /// The codec of the body.
    ///
    /// # Errors
    ///
    /// [`BatchError::UnknownCodec`], which no verified batch gives.
    pub fn codec(&self) -> Result<Codec, BatchError> {
        self.attributes.codec()
    }
}

/// Size of the batch that starts at `bytes`, from its first 12 bytes alone; for scanning and framing.
/// `None` if fewer are there or if the length is below what a header needs: parse it to learn which.
pub fn peek_batch_bytes(bytes: &[u8]) -> Option<usize> {
    let raw = bytes.first_chunk::<LENGTH_PREFIX_BYTES>()?;
    let length = i32::from_be_bytes(*raw.last_chunk::<4>()?);
    if length < LENGTH_MIN {
        return None;
    }
    Some(LENGTH_PREFIX_BYTES + usize::try_from(length).ok()?)
}

/// `N` bytes of the header from `at` on. Every caller's `at` is a constant of the layout, so the range
/// lies inside.
fn field<const N: usize>(raw: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&raw[at..at + N]);
    bytes
}

fn put<const N: usize>(raw: &mut [u8; HEADER_BYTES], at: usize, bytes: [u8; N]) {
    raw[at..at + N].copy_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use proptest::prelude::*;

    use super::*;

    fn sample() -> BatchHeader {
        BatchHeader {
            base_offset: 7,
            length: 49,
            leader_epoch: 3,
            crc: 0xdead_beef,
            attributes: Attributes(0x14),
            last_offset_delta: 9,
            base_timestamp_ms: 1_000,
            max_timestamp_ms: 2_000,
            producer_id: 77,
            producer_epoch: 5,
            base_sequence: i32::MAX - 3,
            record_count: 10,
        }
    }

    #[test]
    fn fields_stand_where_the_format_puts_them() {
        let raw = sample().to_bytes();
        assert_eq!(raw[7], 7);
        assert_eq!(raw[11], 49);
        assert_eq!(raw[15], 3);
        assert_eq!(raw[16], 2);
        assert_eq!(raw[17..21], [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(raw[21..23], [0, 0x14]);
        assert_eq!(raw[26], 9);
        assert_eq!(raw[33..35], [0x03, 0xe8]);
        assert_eq!(raw[41..43], [0x07, 0xd0]);
        assert_eq!(raw[50], 77);
        assert_eq!(raw[52], 5);
        assert_eq!(raw[53..57], [0x7f, 0xff, 0xff, 0xfc]);
        assert_eq!(raw[60], 10);
        let header = BatchHeader::parse(&raw).unwrap();
        assert_eq!(header.codec(), Ok(Codec::Zstd));
        assert!(header.attributes.is_transactional());
        assert!(!header.attributes.is_control());
        assert!(!header.attributes.is_log_append_time());
        assert!(!header.attributes.has_delete_horizon());
    }

    #[test]
    fn offsets_go_on_by_the_last_offset_delta_also_without_records() {
        let header = BatchHeader {
            record_count: 0,
            ..sample()
        };
        assert_eq!(header.last_offset(), 16);
        assert_eq!(header.next_offset(), 17);
        let last = BatchHeader {
            base_offset: i64::MAX,
            ..sample()
        };
        assert_eq!(last.next_offset(), i64::MAX, "never wraps");
    }

    #[test]
    fn sequences_wrap_to_zero_after_the_largest() {
        assert_eq!(sample().last_sequence(), 5);
        let plain = BatchHeader {
            producer_id: NO_PRODUCER_ID,
            ..sample()
        };
        assert_eq!(plain.last_sequence(), NO_SEQUENCE);
    }

    #[test]
    fn lengths_below_a_header_are_refused() {
        for length in [i32::MIN, -1, 0, 48] {
            let raw = BatchHeader { length, ..sample() }.to_bytes();
            assert_eq!(BatchHeader::parse(&raw), Err(BatchError::Length { length }));
            assert_eq!(peek_batch_bytes(&raw), None);
        }
        let raw = BatchHeader {
            length: i32::MAX,
            ..sample()
        }
        .to_bytes();
        let size = usize::try_from(i32::MAX).unwrap() + 12;
        assert_eq!(BatchHeader::parse(&raw).unwrap().batch_bytes(), size);
        assert_eq!(peek_batch_bytes(&raw), Some(size));
    }

    #[test]
    fn an_older_message_format_is_named_even_when_shorter_than_a_header() {
        let mut raw = sample().to_bytes();
        raw[16] = 1;
        assert_eq!(
            BatchHeader::parse(&raw[..30]),
            Err(BatchError::Magic { magic: 1 })
        );
        assert!(BatchHeader::parse(&raw[..16]).unwrap_err().is_incomplete());
    }

    proptest! {
        #[test]
        fn parse_and_to_bytes_are_inverse(mut raw in proptest::array::uniform32(any::<u8>()), tail in proptest::collection::vec(any::<u8>(), 29)) {
            raw[8] &= 0x7f;
            raw[16] = 2;
            let bytes: Vec<u8> = raw.iter().copied().chain(tail).collect();
            if let Ok(header) = BatchHeader::parse(&bytes) {
                prop_assert_eq!(header.to_bytes().to_vec(), bytes);
                prop_assert!(header.batch_bytes() >= HEADER_BYTES);
            }
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = BatchHeader::parse(&bytes).map(|h| (h.next_offset(), h.last_sequence(), h.codec()));
            let _ = peek_batch_bytes(&bytes);
        }
    }
}
