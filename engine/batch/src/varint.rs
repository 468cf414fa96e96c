//! Zigzag variable-length integers, as in Protocol Buffers' `sint32` and `sint64`.

use crate::error::RecordFault;

/// Fewest bytes a record can take: length, attributes, two deltas, two lengths and a header count.
pub const RECORD_BYTES_MIN: usize = 7;

/// Reads from a slice that shrinks from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, RecordFault> {
        let (&byte, rest) = self.rest.split_first().ok_or(RecordFault::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], RecordFault> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(RecordFault::Length)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn varint(&mut self) -> Result<i32, RecordFault> {
        i32::try_from(self.varlong_of(5)?).map_err(|_| RecordFault::Varint)
    }

    pub(crate) fn varlong(&mut self) -> Result<i64, RecordFault> {
        self.varlong_of(10)
    }

    fn varlong_of(&mut self, bytes_max: u32) -> Result<i64, RecordFault> {
        let mut zigzag = 0_u64;
        for index in 0..bytes_max {
            let byte = self.byte()?;
            // The tenth byte has room for one bit.
            if index == 9 && byte > 1 {
                return Err(RecordFault::Varint);
            }
            zigzag |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
            }
        }
        Err(RecordFault::Varint)
    }

    /// A length and that many bytes, or `None` for the length -1.
    pub(crate) fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        let length = self.varint()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| RecordFault::Length)?;
        self.take(length).map(Some)
    }
}

/// Bytes that `value` takes.
pub(crate) fn varlong_bytes(value: i64) -> usize {
    let bits = u64::BITS - zigzag(value).leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

/// Writes `value` to `put`, lowest bits first.
pub(crate) fn write_varlong(value: i64, mut put: impl FnMut(u8)) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        put((rest as u8) | 0x80);
        rest >>= 7;
    }
    put(rest as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_encodings() {
        let known: [(i64, &[u8]); 6] = [
            (0, &[0]),
            (-1, &[1]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (value, encoded) in known {
            let mut bytes = Vec::new();
            write_varlong(value, |b| bytes.push(b));
            assert_eq!(bytes, encoded);
            assert_eq!(i64::from(Reader::new(encoded).varint().unwrap()), value);
        }
    }

    #[test]
    fn too_long_or_too_large_integers_are_refused() {
        let refused = |bytes: &[u8]| Reader::new(bytes).varint();
        assert_eq!(refused(&[0x80; 6]), Err(RecordFault::Varint));
        assert_eq!(
            refused(&[0xff, 0xff, 0xff, 0xff, 0x1f]),
            Err(RecordFault::Varint)
        );
        assert_eq!(refused(&[0x80, 0x80]), Err(RecordFault::Truncated));
        assert_eq!(Reader::new(&[0x80; 11]).varlong(), Err(RecordFault::Varint));
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varlong(),
            Err(RecordFault::Varint)
        );
    }

    proptest! {
        #[test]
        fn every_integer_survives_and_its_size_is_known(value in any::<i64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            write_varlong(value, |b| bytes.push(b));
            prop_assert_eq!(bytes.len(), varlong_bytes(value));
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varlong(), Ok(value));
            prop_assert_eq!(reader.remaining(), 0);
        }
    }
}
