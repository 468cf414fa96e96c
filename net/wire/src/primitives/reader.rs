//! Bounded reading of the protocol's primitive types.
//!
//! Invariants:
//! 1. `position <= end <= bytes.len()`: nothing outside the current section can be read.
//! 2. No memory is reserved for a claimed length before that length has been checked against the
//!    bytes that remain and against [`DecodeLimits`].
//! 3. The elements that all arrays of one reader may claim only ever fall.

use core::ops::Range;

use bytes::Bytes;

use crate::error::DecodeError;
use crate::limits::DecodeLimits;
use crate::primitives::{Uuid, WireString};

/// A cursor over one frame. Strings, byte fields and records are slices of the frame, not copies.
#[derive(Debug, Clone)]
pub struct Reader {
    bytes: Bytes,
    position: usize,
    end: usize,
    limits: DecodeLimits,
    elements_left: usize,
}

impl Reader {
    /// Starts at the first of `bytes`.
    pub fn new(bytes: Bytes, limits: DecodeLimits) -> Self {
        let end = bytes.len();
        Self {
            bytes,
            position: 0,
            end,
            limits,
            elements_left: limits.elements_total_max,
        }
    }

    /// Bytes left in the current section.
    pub fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// Everything that is left, without a copy.
    pub fn into_rest(self) -> Bytes {
        self.bytes.slice(self.position..self.end)
    }

    /// Errors with [`DecodeError::TrailingBytes`] unless everything has been read.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes(left)),
        }
    }

    fn advance(&mut self, length: usize) -> Result<usize, DecodeError> {
        let remaining = self.remaining();
        if length > remaining {
            return Err(DecodeError::Truncated {
                needed: length,
                remaining,
            });
        }
        let start = self.position;
        self.position = start + length;
        Ok(start)
    }

    fn read_fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let start = self.advance(N)?;
        self.bytes
            .get(start..start + N)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(DecodeError::Truncated {
                needed: N,
                remaining: 0,
            })
    }

    /// One byte; anything but zero is true.
    pub fn read_bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.read_i8()? != 0)
    }

    /// A signed 8-bit integer.
    pub fn read_i8(&mut self) -> Result<i8, DecodeError> {
        self.read_fixed().map(i8::from_be_bytes)
    }

    /// A signed 16-bit integer.
    pub fn read_i16(&mut self) -> Result<i16, DecodeError> {
        self.read_fixed().map(i16::from_be_bytes)
    }

    /// A signed 32-bit integer.
    pub fn read_i32(&mut self) -> Result<i32, DecodeError> {
        self.read_fixed().map(i32::from_be_bytes)
    }

    /// A signed 64-bit integer.
    pub fn read_i64(&mut self) -> Result<i64, DecodeError> {
        self.read_fixed().map(i64::from_be_bytes)
    }

    /// A 16-byte identifier.
    pub fn read_uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.read_fixed().map(Uuid)
    }

    /// An unsigned base-128 integer of at most 5 bytes.
    pub fn read_uvarint(&mut self) -> Result<u32, DecodeError> {
        if let Some(&byte) = self
            .bytes
            .get(self.position..self.end)
            .and_then(<[u8]>::first)
            && byte < 0x80
        {
            self.position += 1;
            return Ok(u32::from(byte));
        }
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.read_fixed()?;
            let group = u32::from(byte & 0x7f);
            if shift == 28 && group > 0x0f {
                return Err(DecodeError::VarintOverflow);
            }
            value |= group << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintOverflow)
    }

    /// A zigzag base-128 integer of at most 5 bytes.
    pub fn read_varint(&mut self) -> Result<i32, DecodeError> {
        let raw = self.read_uvarint()?;
        Ok((raw >> 1).cast_signed() ^ -((raw & 1).cast_signed()))
    }

    /// A zigzag base-128 integer of at most 10 bytes.
    pub fn read_varlong(&mut self) -> Result<i64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.read_fixed()?;
            let group = u64::from(byte & 0x7f);
            if shift == 63 && group > 1 {
                return Err(DecodeError::VarintOverflow);
            }
            value |= group << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
            }
        }
        Err(DecodeError::VarintOverflow)
    }

    /// A length prefix: `None` is null. `wide` chooses 32 over 16 bits in the older form.
    fn read_length(&mut self, flexible: bool, wide: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            let raw = self.read_uvarint()?;
            return Ok(raw.checked_sub(1).map(|length| length as usize));
        }
        let raw = if wide {
            self.read_i32()?
        } else {
            i32::from(self.read_i16()?)
        };
        match raw {
            -1 => Ok(None),
            length => usize::try_from(length)
                .map(Some)
                .map_err(|_| DecodeError::NegativeLength(i64::from(length))),
        }
    }

    /// A string or null; compact when `flexible`.
    pub fn read_nullable_string(
        &mut self,
        flexible: bool,
    ) -> Result<Option<WireString>, DecodeError> {
        let Some(length) = self.read_length(flexible, false)? else {
            return Ok(None);
        };
        let start = self.advance(length)?;
        WireString::from_utf8(self.bytes.slice(start..start + length)).map(Some)
    }

    /// A byte field or null, with a 32-bit length; compact when `flexible`.
    pub fn read_nullable_bytes(&mut self, flexible: bool) -> Result<Option<Bytes>, DecodeError> {
        let range = self.skip_nullable_bytes(flexible)?;
        Ok(range.map(|range| self.bytes.slice(range)))
    }

    /// Steps over a byte field or null and tells where it lies in the frame, without taking a
    /// reference to it.
    pub(crate) fn skip_nullable_bytes(
        &mut self,
        flexible: bool,
    ) -> Result<Option<Range<usize>>, DecodeError> {
        let Some(length) = self.read_length(flexible, true)? else {
            return Ok(None);
        };
        let start = self.advance(length)?;
        Ok(Some(start..start + length))
    }

    /// A part of the frame that [`Reader::skip_nullable_bytes`] stepped over.
    pub(crate) fn slice(&self, range: Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }

    /// The length of an array whose elements take at least `element_bytes_min` bytes each; `None`
    /// is null. A returned length has been checked (invariant 2) and charged (invariant 3).
    pub fn read_array_length(
        &mut self,
        flexible: bool,
        element_bytes_min: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let Some(elements) = self.read_length(flexible, true)? else {
            return Ok(None);
        };
        let needed = elements.saturating_mul(element_bytes_min.max(1));
        let remaining = self.remaining();
        if needed > remaining {
            return Err(DecodeError::Truncated { needed, remaining });
        }
        let elements_max = self.limits.array_elements_max;
        if elements > elements_max {
            return Err(DecodeError::ArrayTooLong {
                elements,
                elements_max,
            });
        }
        self.elements_left =
            self.elements_left
                .checked_sub(elements)
                .ok_or(DecodeError::TooManyElements {
                    elements_max: self.limits.elements_total_max,
                })?;
        Ok(Some(elements))
    }

    /// A section of tagged fields (KIP-482). `read_known` reads the field of a tag that it knows,
    /// with the reader confined to that field, and says whether it did; others are skipped.
    pub fn read_tagged_fields(
        &mut self,
        mut read_known: impl FnMut(u32, &mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let fields = self.read_uvarint()? as usize;
        let fields_max = self.limits.tagged_fields_max;
        if fields > fields_max {
            return Err(DecodeError::TooManyTaggedFields { fields, fields_max });
        }
        let mut tag_min = 0_u32;
        for _ in 0..fields {
            let tag = self.read_uvarint()?;
            if tag < tag_min {
                return Err(DecodeError::TagOutOfOrder(tag));
            }
            tag_min = tag.saturating_add(1);
            let length = self.read_uvarint()? as usize;
            let field_end = self.advance(length)? + length;
            let section_end = core::mem::replace(&mut self.end, field_end);
            self.position = field_end - length;
            let known = read_known(tag, self);
            let left = self.remaining();
            self.position = field_end;
            self.end = section_end;
            if known? && left > 0 {
                return Err(DecodeError::TaggedFieldSize { tag, left });
            }
        }
        Ok(())
    }
}
