//! The frame around every small file of our own: magic, version, length, checksum.
//!
//! Layout, big-endian: magic (8), version (2), zero (2), body length (4), CRC-32C (4) of the 16 bytes
//! before it and the body, body.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes before the body.
pub(super) const FRAME_HEAD_BYTES: usize = 20;
const CRC_AT: usize = 16;

/// One kind of framed file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// First eight bytes.
    pub magic: [u8; 8],
    /// The version written, and the newest one read.
    pub version: u16,
    /// For messages.
    pub name: &'static str,
}

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FrameFault {
    /// Nothing, or zeros only: never written.
    Blank,
    /// Anything else, in words.
    Bad(String),
    /// A newer build wrote it.
    Newer(String),
}

impl FrameFault {
    /// In words, for a [`crate::corruption::Corruption`].
    pub fn what(self) -> String {
        match self {
            Self::Blank => String::from("never written"),
            Self::Bad(what) | Self::Newer(what) => what,
        }
    }
}

/// Frames `body`.
pub(super) fn encode(format: &Format, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    assert!(length < u32::MAX, "a small file that is not small");
    let mut out = Vec::with_capacity(FRAME_HEAD_BYTES + body.len());
    out.extend_from_slice(&format.magic);
    out.extend_from_slice(&format.version.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out), body);
    out.extend_from_slice(&crc.to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// The body of the frame at the start of `bytes`; what follows it is not looked at.
pub(super) fn decode<'a>(format: &Format, bytes: &'a [u8]) -> Result<&'a [u8], FrameFault> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(FrameFault::Blank);
    }
    let bad = |what: &str| FrameFault::Bad(format!("{}: {what}", format.name));
    let head = bytes
        .first_chunk::<FRAME_HEAD_BYTES>()
        .ok_or_else(|| bad("too short"))?;
    if head[..8] != format.magic {
        return Err(bad("wrong magic"));
    }
    let version = u16::from_be_bytes([head[8], head[9]]);
    let length = u32::from_be_bytes([head[12], head[13], head[14], head[15]]) as usize;
    let stored = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
    let end = FRAME_HEAD_BYTES.saturating_add(length);
    let body = bytes
        .get(FRAME_HEAD_BYTES..end)
        .ok_or_else(|| bad("shorter than its length says"))?;
    if crc32c::crc32c_append(crc32c::crc32c(&head[..CRC_AT]), body) != stored {
        return Err(bad("checksum mismatch"));
    }
    // Only a frame whose checksum holds can say which version it is.
    if version > format.version {
        return Err(FrameFault::Newer(format!(
            "{}: format version {version}, and this build knows up to {}",
            format.name, format.version
        )));
    }
    if version == 0 {
        return Err(bad("format version 0"));
    }
    Ok(body)
}
