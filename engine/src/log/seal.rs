//! What is sealed with a closed segment, and the frame around a producer snapshot.

use alloc::vec::Vec;

use bytes::{Buf, BufMut, Bytes};

use super::frame::{self, FRAME_HEAD_BYTES, Format, FrameFault};
use crate::identity::Offset;

const SEAL: Format = Format {
    magic: *b"corelogE",
    version: 1,
    name: "segment seal",
};
const PRODUCERS: Format = Format {
    magic: *b"corelogP",
    version: 1,
    name: "producer snapshot",
};

/// Bytes of a seal file.
pub(super) const SEAL_FILE_BYTES: usize = FRAME_HEAD_BYTES + 8 + 8 + 8 + 4 + 8 + 8;
/// Largest producer snapshot file read.
pub(super) const PRODUCERS_FILE_BYTES_MAX: u64 = 64 << 20;

/// Facts about a closed segment, for scrubbing, repair, tiering and retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    /// First offset.
    pub base: Offset,
    /// One past the last offset.
    pub end: Offset,
    /// Length of the file.
    pub length_bytes: u64,
    /// CRC-32C of the whole file.
    pub crc: u32,
    /// Append time of the last batch in milliseconds; later than true if a crash lost it.
    pub last_append_ms: u64,
    /// No record has a larger stamp.
    pub max_timestamp_ms: i64,
}

impl Seal {
    /// The file's content.
    pub fn encode(&self) -> Bytes {
        let mut body = Vec::with_capacity(SEAL_FILE_BYTES);
        body.put_u64(self.base.get());
        body.put_u64(self.end.get());
        body.put_u64(self.length_bytes);
        body.put_u32(self.crc);
        body.put_u64(self.last_append_ms);
        body.put_i64(self.max_timestamp_ms);
        Bytes::from(frame::encode(&SEAL, &body))
    }

    /// Reads a seal file; `None` if it is damaged. Then later append times are assumed.
    pub fn decode(file: &[u8]) -> Option<Self> {
        let mut body = frame::decode(&SEAL, file).ok()?;
        let seal = Self {
            base: Offset(body.try_get_u64().ok()?),
            end: Offset(body.try_get_u64().ok()?),
            length_bytes: body.try_get_u64().ok()?,
            crc: body.try_get_u32().ok()?,
            last_append_ms: body.try_get_u64().ok()?,
            max_timestamp_ms: body.try_get_i64().ok()?,
        };
        (!body.has_remaining()).then_some(seal)
    }
}

/// The content of a producer snapshot file of `offset`.
pub(super) fn encode_producers(offset: Offset, snapshot: &[u8]) -> Bytes {
    let mut body = Vec::with_capacity(8 + snapshot.len());
    body.put_u64(offset.get());
    body.put_slice(snapshot);
    Bytes::from(frame::encode(&PRODUCERS, &body))
}

/// The snapshot in a producer snapshot file, which must be of `offset`.
pub(super) fn decode_producers(offset: Offset, file: &Bytes) -> Result<Bytes, FrameFault> {
    let mut body = frame::decode(&PRODUCERS, file)?;
    match body.try_get_u64() {
        Ok(its_offset) if its_offset == offset.get() => Ok(file.slice_ref(body)),
        _ => Err(FrameFault::Bad(
            "producer snapshot: of another offset".into(),
        )),
    }
}
