//! Batches that clients publish, no two alike.

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions, Codec};
use corelog_engine::publish::{Inspection, Progress, PublishRules, VerifiedBatches};
use corelog_engine::time::Wall;

use super::chance::Chance;

/// Largest record that clients send, in bytes.
const VALUE_BYTES_MAX: u64 = 200 << 10;

/// Who publishes a batch: producer id, producer epoch, sequence of the first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The producer.
    pub id: i64,
    /// Its incarnation.
    pub epoch: i16,
    /// Sequence of the first record.
    pub sequence: i32,
}

/// The sequence so many records later.
pub fn sequence_after(sequence: i32, records: usize) -> i32 {
    ((i64::from(sequence) + records as i64) % (1 << 31)) as i32
}

/// A batch as its producer built it.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its bytes.
    pub bytes: Bytes,
    /// The time stamps of its records.
    pub stamps: Vec<i64>,
    /// Its producer, unless it is anonymous.
    pub signature: Option<Signature>,
}

/// Sizes of one run's batches.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Batches above some blocks come once in so many.
    pub large_one_in: u64,
}

/// A batch with contents of its own: `tag` is in its first record.
pub fn build(
    tag: u64,
    signature: Option<Signature>,
    wall_ms: u64,
    sizes: Sizes,
    chance: &mut Chance,
) -> Built {
    let codec = match chance.below(12) {
        0 => Codec::Lz4,
        1 => Codec::Zstd,
        _ => Codec::None,
    };
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        batch_bytes_max: 4 << 20,
        producer_id: signature.map_or(-1, |signature| signature.id),
        producer_epoch: signature.map_or(-1, |signature| signature.epoch),
        base_sequence: signature.map_or(-1, |signature| signature.sequence),
        ..BatchOptions::default()
    });
    let count = if chance.one_in(3) {
        chance.between(2, 9)
    } else {
        1
    };
    let mut stamps = Vec::new();
    for index in 0..count {
        let stamp = wall_ms as i64 + chance.below(4_000) as i64 - 3_000;
        let value = value(tag, index, count, sizes, chance);
        let key = tag.to_be_bytes();
        let added = builder.append(stamp, Some(&key), Some(&value), &[]);
        if added.is_err() {
            break;
        }
        stamps.push(stamp);
    }
    let bytes = match builder.build() {
        Ok(bytes) => bytes.freeze(),
        Err(error) => unreachable!("a batch of a few records is built: {error}"),
    };
    Built {
        bytes,
        stamps,
        signature,
    }
}

fn value(tag: u64, index: u64, count: u64, sizes: Sizes, chance: &mut Chance) -> Vec<u8> {
    // Header, record framing and key take about so much beside the first value.
    const AROUND: u64 = 61 + 8 + 12;
    let length = if count == 1 && chance.one_in(sizes.large_one_in) {
        chance.between(8 << 10, VALUE_BYTES_MAX)
    } else if count == 1 && chance.one_in(4) {
        // To a block, or nearly.
        4096 * chance.between(1, 3) - AROUND + chance.below(5) - 2
    } else {
        chance.between(8, 900)
    };
    let mut value = vec![0; length as usize];
    let mut word = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index << 56);
    for piece in value.chunks_mut(8) {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        piece.copy_from_slice(&word.to_be_bytes()[..piece.len()]);
    }
    value
}

/// Passes bytes through the checks that every publish passes.
///
/// # Panics
/// If they are refused: clients here send nothing that may be.
pub fn inspect(bytes: Bytes) -> VerifiedBatches {
    let rules = PublishRules {
        batch_bytes_max: 8 << 20,
        inline_bytes_max: 256 << 10,
        batches_max: 1_024,
        // A clock that steps would refuse what was built before the step.
        wall: Wall(u64::MAX),
    };
    let mut inspection = Inspection::new(bytes, rules);
    loop {
        match inspection.turn(1 << 20) {
            Ok(Progress::More) => {}
            Ok(Progress::Done(verified)) => return verified,
            Err(refusal) => unreachable!("a good publish is refused: {refusal:?}"),
        }
    }
}
