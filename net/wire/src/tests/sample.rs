//! Values of every field type, made from a seed.

use bytes::Bytes;

use crate::error_code::ErrorCode;
use crate::primitives::{Records, Uuid, WireString};

/// How the fields of a sample are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Nulls where allowed, else empty and zero.
    Null,
    /// Empty strings and arrays, zero numbers.
    Empty,
    /// One element in each array, every field set.
    Full,
    /// Anything.
    Random,
}

/// A small deterministic generator (SplitMix64).
pub(crate) struct Source {
    state: u64,
    pub(crate) fill: Fill,
}

impl Source {
    pub(crate) fn new(seed: u64, fill: Fill) -> Self {
        Self { state: seed, fill }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn number(&mut self) -> u64 {
        match self.fill {
            Fill::Null | Fill::Empty => 0,
            Fill::Full => self.next() | 1,
            Fill::Random => match self.below(4) {
                0 => 0,
                1 => u64::MAX,
                _ => self.next(),
            },
        }
    }

    fn length(&mut self, most: u64) -> usize {
        let length = match self.fill {
            Fill::Null | Fill::Empty => 0,
            Fill::Full => 1,
            Fill::Random => self.below(most),
        };
        usize::try_from(length).unwrap()
    }

    fn is_null(&mut self, nullable: bool) -> bool {
        nullable
            && match self.fill {
                Fill::Null => true,
                Fill::Empty | Fill::Full => false,
                Fill::Random => self.below(3) == 0,
            }
    }
}

/// A value that survives a round trip in `version`.
pub(crate) trait Sample {
    fn sample(source: &mut Source, version: i16, nullable: bool) -> Self;
}

macro_rules! number_samples {
    ($($ty:ty)*) => {$(
        impl Sample for $ty {
            fn sample(source: &mut Source, _: i16, _: bool) -> Self {
                source.number() as $ty
            }
        }
    )*};
}

number_samples! { i8 i16 i32 i64 }

impl Sample for bool {
    fn sample(source: &mut Source, _: i16, _: bool) -> Self {
        source.number() & 1 == 1
    }
}

impl Sample for ErrorCode {
    fn sample(source: &mut Source, version: i16, nullable: bool) -> Self {
        Self(Sample::sample(source, version, nullable))
    }
}

impl Sample for Uuid {
    fn sample(source: &mut Source, _: i16, _: bool) -> Self {
        let (high, low) = (source.number(), source.number());
        Self((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
}

impl Sample for WireString {
    fn sample(source: &mut Source, _: i16, _: bool) -> Self {
        let length = source.length(150);
        let text: String = (0..length)
            .map(|_| ['a', '-', 'é', '水', '9'][source.below(5) as usize])
            .collect();
        Self::from(text)
    }
}

impl Sample for Bytes {
    fn sample(source: &mut Source, _: i16, _: bool) -> Self {
        let length = source.length(200);
        (0..length).map(|_| source.next() as u8).collect()
    }
}

impl Sample for Records {
    fn sample(source: &mut Source, version: i16, _: bool) -> Self {
        let pieces = source.length(4);
        let pieces: Vec<Bytes> = (0..pieces)
            .map(|_| Sample::sample(source, version, false))
            .collect();
        Self::from(pieces)
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(source: &mut Source, version: i16, _: bool) -> Self {
        let length = source.length(4);
        (0..length)
            .map(|_| T::sample(source, version, false))
            .collect()
    }
}

macro_rules! nullable_samples {
    ($([$($generic:tt)*] $ty:ty;)*) => {$(
        impl $($generic)* Sample for Option<$ty> {
            fn sample(source: &mut Source, version: i16, nullable: bool) -> Self {
                if source.is_null(nullable) {
                    return None;
                }
                Some(Sample::sample(source, version, nullable))
            }
        }
    )*};
}

nullable_samples! {
    [] WireString;
    [<T: Sample>] Vec<T>;
}
