//! The record by which a data directory knows itself: whose it is and how it is laid out.
//!
//! 52 bytes: magic 8, format version u32, length u32, crc32c u32 (over the fields before it and the
//! body), then the body: cluster id 16, broker u32, time of making u64 (milliseconds since 1970),
//! 4 bytes of zero. Numbers are little-endian. Whoever owns the directory reads, writes and locks
//! the file.

use super::codec::{DecodeError, Reader, Writer};
use crate::identity::{BrokerId, ClusterId};
use alloc::vec::Vec;

/// Name of the file within the data directory.
pub const IDENTITY_FILE_NAME: &str = "identity";

/// The layout of data directories that this build writes, and the newest it opens.
pub const DATA_DIRECTORY_VERSION: u16 = 1;

/// Longest identity record ever read, in bytes.
pub const IDENTITY_FILE_BYTES_MAX: usize = 4096;

const MAGIC: [u8; 8] = *b"CORELOGD";
const WHAT: &str = "the data directory";
const BODY_BYTES: usize = 32;
const HEAD_BYTES: usize = 20;

/// Whose a data directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataDirectoryIdentity {
    /// The cluster; a broker of another one must not open it.
    pub cluster: ClusterId,
    /// The broker; another one must not open it.
    pub broker: BrokerId,
    /// When it was made, in milliseconds since 1970; for the operator alone.
    pub created_at_ms: u64,
}

impl DataDirectoryIdentity {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.bytes(&self.cluster.0);
        body.u32(self.broker.0);
        body.u64(self.created_at_ms);
        body.u32(0);
        let mut out = Writer(Vec::with_capacity(HEAD_BYTES + BODY_BYTES));
        out.bytes(&MAGIC);
        out.u32(DATA_DIRECTORY_VERSION.into());
        out.u32(body.0.len() as u32);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out.0), &body.0);
        out.u32(crc);
        out.bytes(&body.0);
        out.0
    }

    /// The record that these bytes are.
    ///
    /// # Errors
    /// See [`DecodeError`]. A newer format is refused by name, whatever else it holds.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut head = Reader::new(bytes, WHAT);
        if head.array::<8>()? != MAGIC {
            return head.invalid();
        }
        let version = head.u32()?;
        if version > DATA_DIRECTORY_VERSION.into() {
            return Err(DecodeError::Newer {
                what: WHAT,
                version: version.try_into().unwrap_or(u16::MAX),
                supported: DATA_DIRECTORY_VERSION,
            });
        }
        if version == 0 || head.u32()? as usize != BODY_BYTES {
            return head.invalid();
        }
        let crc = head.u32()?;
        let body = head.take(BODY_BYTES)?;
        head.finish()?;
        let covered = bytes.get(..HEAD_BYTES - 4).unwrap_or_default();
        if crc32c::crc32c_append(crc32c::crc32c(covered), body) != crc {
            return Err(DecodeError::Checksum(WHAT));
        }
        let mut from = Reader::new(body, WHAT);
        let identity = Self {
            cluster: ClusterId(from.array()?),
            broker: BrokerId(from.u32()?),
            created_at_ms: from.u64()?,
        };
        from.u32()?;
        from.finish()?;
        Ok(identity)
    }
}
