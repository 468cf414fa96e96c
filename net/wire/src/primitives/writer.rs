//! Writing the protocol's primitive types, with record bytes kept by reference.
//!
//! Invariants:
//! 1. Positions of spliced pieces never fall, and none lies inside a tagged field, whose length is
//!    known only after its content.
//! 2. After the first error the bytes are worthless; [`Writer::finish`] gives the error instead.

use bytes::Bytes;

use crate::error::EncodeError;
use crate::primitives::{Records, Uuid};

/// Builds one frame or body. The first error is kept and given by [`Writer::finish`], so that the
/// writing itself reads straight through.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: Vec<u8>,
    /// Pieces of others, each with the position in `buffer` before which it belongs.
    splices: Vec<(usize, Bytes)>,
    spliced_bytes: usize,
    framed: bool,
    error: Option<EncodeError>,
}

/// Bytes of the length that stands before each frame.
pub const FRAME_LENGTH_BYTES: usize = 4;

/// Bytes reserved when a frame is begun; most frames without records fit.
const FRAME_RESERVE_BYTES: usize = 256;

impl Writer {
    /// A body without a frame length.
    pub fn body() -> Self {
        Self::default()
    }

    /// A frame: its length is filled in by [`Writer::finish`].
    pub fn frame() -> Self {
        let mut writer = Self {
            buffer: Vec::with_capacity(FRAME_RESERVE_BYTES),
            framed: true,
            ..Self::default()
        };
        writer.buffer.resize(FRAME_LENGTH_BYTES, 0);
        writer
    }

    /// Notes the first reason why this message cannot be written.
    pub fn refuse(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    /// The finished bytes.
    ///
    /// # Errors
    /// The first error met while writing, or a frame longer than its length field can say.
    pub fn finish(mut self) -> Result<EncodedBytes, EncodeError> {
        let bytes_len = self.buffer.len() + self.spliced_bytes;
        if self.framed {
            let length = self.length_i32(bytes_len - FRAME_LENGTH_BYTES);
            if let Some(prefix) = self.buffer.get_mut(..FRAME_LENGTH_BYTES) {
                prefix.copy_from_slice(&length.to_be_bytes());
            }
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let buffer = Bytes::from(self.buffer);
        if self.splices.is_empty() {
            return Ok(EncodedBytes {
                chunks: vec![buffer],
                bytes_len,
            });
        }
        let mut chunks = Vec::with_capacity(self.splices.len() * 2 + 1);
        let mut written = 0;
        for (position, piece) in self.splices {
            if position > written {
                chunks.push(buffer.slice(written..position));
                written = position;
            }
            chunks.push(piece);
        }
        if written < buffer.len() {
            chunks.push(buffer.slice(written..));
        }
        Ok(EncodedBytes { chunks, bytes_len })
    }

    /// One byte.
    pub fn write_bool(&mut self, value: bool) {
        self.buffer.push(u8::from(value));
    }

    /// A signed 8-bit integer.
    pub fn write_i8(&mut self, value: i8) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A signed 16-bit integer.
    pub fn write_i16(&mut self, value: i16) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A signed 32-bit integer.
    pub fn write_i32(&mut self, value: i32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A signed 64-bit integer.
    pub fn write_i64(&mut self, value: i64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A 16-byte identifier.
    pub fn write_uuid(&mut self, value: Uuid) {
        self.buffer.extend_from_slice(&value.0);
    }

    /// An unsigned base-128 integer.
    pub fn write_uvarint(&mut self, value: u32) {
        if value < 0x80 {
            self.buffer.push(value as u8);
            return;
        }
        let (bytes, length) = uvarint_bytes(value);
        self.buffer.extend_from_slice(&bytes[..length]);
    }

    /// A zigzag base-128 integer.
    pub fn write_varint(&mut self, value: i32) {
        self.write_uvarint(((value << 1) ^ (value >> 31)).cast_unsigned());
    }

    /// A zigzag base-128 integer of 64 bits.
    pub fn write_varlong(&mut self, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while rest >= 0x80 {
            self.buffer.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.buffer.push(rest as u8);
    }

    fn length_i32(&mut self, length: usize) -> i32 {
        i32::try_from(length).unwrap_or_else(|_| {
            self.refuse(EncodeError::LengthOverflow { length });
            0
        })
    }

    /// The length of an array or byte field; `None` is null.
    pub fn write_length(&mut self, length: Option<usize>, flexible: bool) {
        match (length, flexible) {
            (None, true) => self.write_uvarint(0),
            (None, false) => self.write_i32(-1),
            (Some(length), true) => {
                let length = self.length_i32(length).cast_unsigned();
                self.write_uvarint(length + 1);
            }
            (Some(length), false) => {
                let length = self.length_i32(length);
                self.write_i32(length);
            }
        }
    }

    /// A string or null; compact when `flexible`. Strings longer than 32,767 bytes are refused in
    /// both forms, as Kafka does.
    pub fn write_nullable_string(&mut self, text: Option<&[u8]>, flexible: bool) {
        let Some(text) = text else {
            if flexible {
                self.write_uvarint(0);
            } else {
                self.write_i16(-1);
            }
            return;
        };
        let Ok(length) = i16::try_from(text.len()) else {
            return self.refuse(EncodeError::StringTooLong { bytes: text.len() });
        };
        if flexible {
            self.write_uvarint(u32::from(length.cast_unsigned()) + 1);
        } else {
            self.write_i16(length);
        }
        self.buffer.extend_from_slice(text);
    }

    /// A byte field or null, copied; compact when `flexible`.
    pub fn write_nullable_bytes(&mut self, bytes: Option<&[u8]>, flexible: bool) {
        self.write_length(bytes.map(<[u8]>::len), flexible);
        self.buffer.extend_from_slice(bytes.unwrap_or_default());
    }

    /// Record batches, by reference.
    pub fn write_records(&mut self, records: &Records, flexible: bool) {
        self.write_length(Some(records.bytes_len()), flexible);
        for piece in records.pieces().iter().filter(|piece| !piece.is_empty()) {
            self.splices.push((self.buffer.len(), piece.clone()));
            self.spliced_bytes += piece.len();
        }
    }

    /// One tagged field: the tag, the length of what `write_content` writes, and that content.
    ///
    /// # Panics
    /// If `write_content` writes records (invariant 1); no message has them in a tagged field.
    pub fn write_tagged_field(&mut self, tag: u32, write_content: impl FnOnce(&mut Self)) {
        self.write_uvarint(tag);
        let (start, splices) = (self.buffer.len(), self.splices.len());
        write_content(self);
        assert_eq!(splices, self.splices.len(), "records in a tagged field");
        let content_end = self.buffer.len();
        let size = self.length_i32(content_end - start).cast_unsigned();
        let (prefix, prefix_length) = uvarint_bytes(size);
        self.buffer.resize(content_end + prefix_length, 0);
        self.buffer
            .copy_within(start..content_end, start + prefix_length);
        self.buffer[start..start + prefix_length].copy_from_slice(&prefix[..prefix_length]);
    }
}

/// The bytes of an unsigned base-128 integer and how many there are (1 to 5).
fn uvarint_bytes(value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0_u8; 5];
    let mut rest = value;
    let mut length = 0;
    for byte in &mut bytes {
        length += 1;
        *byte = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, length)
}

/// Encoded bytes as chunks to be sent in order: what this crate wrote, and between it the record
/// batches by reference.
#[derive(Debug, Clone)]
pub struct EncodedBytes {
    chunks: Vec<Bytes>,
    bytes_len: usize,
}

impl EncodedBytes {
    /// The chunks, none of them empty unless the whole is.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// The chunks, owned.
    pub fn into_chunks(self) -> Vec<Bytes> {
        self.chunks
    }

    /// Bytes of all chunks together.
    pub fn bytes_len(&self) -> usize {
        self.bytes_len
    }

    /// All in one slice: free when there is one chunk, a copy of everything otherwise.
    pub fn into_bytes(mut self) -> Bytes {
        match self.chunks.len() {
            1 => self.chunks.pop().unwrap_or_default(),
            _ => self.chunks.concat().into(),
        }
    }
}
