//! CRC-32C of two stretches from the CRCs of each.
//!
//! A CRC is a polynomial over GF(2) modulo the generator, and the bytes behind it multiply it by a power
//! of x (the method of zlib's `crc32_combine`). The library's own `crc32c_combine` squares matrices, which
//! took longer than to read a batch of 100 kB again.

/// The generator of CRC-32C (Castagnoli), lowest power first.
const GENERATOR: u32 = 0x82F6_3B78;

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// Powers of x by squaring: entry n is x^(2^n). Enough for any length in bits below 2^40.
const SQUARES: [u32; 40] = {
    let mut squares = [1 << 30; 40];
    let mut at = 1;
    while at < squares.len() {
        squares[at] = multiply(squares[at - 1], squares[at - 1]);
        at += 1;
    }
    squares
};

/// The product of two polynomials modulo the generator.
const fn multiply(left: u32, mut right: u32) -> u32 {
    let mut product = 0;
    let mut power = ONE;
    while power != 0 {
        if left & power != 0 {
            product ^= right;
        }
        power >>= 1;
        right = if right & 1 != 0 {
            (right >> 1) ^ GENERATOR
        } else {
            right >> 1
        };
    }
    product
}

/// What a stretch of some length does to the CRC-32C of whatever stands before it. Worth keeping where
/// many stretches have one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrcShift(u32);

impl CrcShift {
    /// That of a stretch of so many bytes.
    ///
    /// # Panics
    /// If they are 4 GiB or more.
    pub fn of(bytes: usize) -> Self {
        assert!(bytes < 1 << 32, "a CRC of {bytes} bytes");
        let bits = (bytes as u64) * 8;
        let mut power = ONE;
        for (at, square) in SQUARES.iter().enumerate() {
            if (bits >> at) & 1 != 0 {
                power = multiply(*square, power);
            }
        }
        Self(power)
    }

    /// CRC-32C of a stretch with the CRC `first` and, behind it, one of this length with the CRC `second`.
    pub fn combine(self, first: u32, second: u32) -> u32 {
        multiply(self.0, first) ^ second
    }
}

#[cfg(test)]
mod tests {
    use super::CrcShift;

    #[test]
    fn combined_is_as_if_read_in_one_go() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
        for cut in [0, 1, 7, 61, 4_096, 99_999, 299_999, 300_000] {
            let (first, second) = bytes.split_at(cut);
            let combined =
                CrcShift::of(second.len()).combine(crc32c::crc32c(first), crc32c::crc32c(second));
            assert_eq!(combined, crc32c::crc32c(&bytes));
        }
    }
}
