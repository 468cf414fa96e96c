//! Bytes of metadata: little-endian numbers, counted strings, bounded before anything is reserved.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Longest string in any metadata record, in bytes. Hosts, zones and tenants are below it, topic
/// names have a limit of their own.
pub const STRING_BYTES_MAX: usize = 1_024;

/// Why bytes were not taken for metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Written by a newer build; nothing is wrong with the bytes.
    Newer {
        /// What was read.
        what: &'static str,
        /// Its version.
        version: u16,
        /// The newest version that this build reads.
        supported: u16,
    },
    /// A kind of record that this build does not know: a newer build wrote it, too.
    UnknownKind(u8),
    /// The bytes end before what they announce.
    Truncated(&'static str),
    /// The checksum does not match.
    Checksum(&'static str),
    /// A magic number, tag, count or length outside its rules.
    Invalid(&'static str),
    /// Bytes are left over.
    TrailingBytes(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer {
                what,
                version,
                supported,
            } => write!(
                f,
                "{what} has format version {version}, this build reads up to {supported}: start a \
                 newer corelog on it"
            ),
            Self::UnknownKind(kind) => write!(
                f,
                "a metadata record of kind {kind} is unknown to this build: start a newer corelog"
            ),
            Self::Truncated(what) => write!(f, "{what} ends too early"),
            Self::Checksum(what) => write!(f, "{what} does not match its checksum"),
            Self::Invalid(what) => write!(f, "{what} is outside its rules"),
            Self::TrailingBytes(what) => write!(f, "{what} is followed by bytes that are not its"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Appends numbers and strings to a buffer.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.0.extend_from_slice(value);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// # Panics
    /// If the string is longer than [`STRING_BYTES_MAX`]: whoever made the record checks that.
    pub(crate) fn string(&mut self, value: &str) {
        assert!(
            value.len() <= STRING_BYTES_MAX,
            "a metadata string is bounded where it is made"
        );
        self.u16(value.len() as u16);
        self.bytes(value.as_bytes());
    }

    /// # Panics
    /// If there are more than `u32::MAX`, which no limit allows.
    pub(crate) fn count(&mut self, value: usize) {
        assert!(value <= u32::MAX as usize, "a metadata count is bounded");
        self.u32(value as u32);
    }

    pub(crate) fn option_u64(&mut self, value: Option<u64>) {
        match value {
            None => self.u8(0),
            Some(value) => {
                self.u8(1);
                self.u64(value);
            }
        }
    }
}

/// Takes numbers and strings from a buffer; refuses whatever is not there.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// `what` names the thing read in errors.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn invalid<T>(&self) -> Result<T, DecodeError> {
        Err(DecodeError::Invalid(self.what))
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(DecodeError::Truncated(self.what)),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(DecodeError::Truncated(self.what)),
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.invalid(),
        }
    }

    pub(crate) fn string(&mut self) -> Result<String, DecodeError> {
        let length = usize::from(self.u16()?);
        if length > STRING_BYTES_MAX {
            return self.invalid();
        }
        match core::str::from_utf8(self.take(length)?) {
            Ok(text) => Ok(String::from(text)),
            Err(_) => self.invalid(),
        }
    }

    /// A count of items that take at least `item_bytes_min` each, so that what is reserved for
    /// them is bounded by the bytes that are there.
    pub(crate) fn count(&mut self, item_bytes_min: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        match count.checked_mul(item_bytes_min) {
            Some(bytes) if bytes <= self.remaining() => Ok(count),
            _ => Err(DecodeError::Truncated(self.what)),
        }
    }

    pub(crate) fn option_u64(&mut self) -> Result<Option<u64>, DecodeError> {
        match self.u8()? {
            0 => Ok(None),
            1 => self.u64().map(Some),
            _ => self.invalid(),
        }
    }

    /// Everything has been read.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes(self.what))
        }
    }
}
