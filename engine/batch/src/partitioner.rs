//! Where a key goes: the murmur2 choice of Kafka's Java client, so that every client and every face of the
//! broker puts a key in the same partition.

use std::num::NonZeroU32;

/// Kafka's variant of MurmurHash2 (32 bits, seed `0x9747b28c`), as in `org.apache.kafka.common.utils.Utils`.
pub fn murmur2(key: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;

    // Java's lengths are 32 bits wide; no key is longer.
    let mut hash = SEED ^ (key.len() as u32);
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (index, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^= hash >> 15;
    hash as i32
}

/// The hash without its sign bit (not its absolute value), as Kafka's `Utils.toPositive`.
pub fn to_positive(hash: i32) -> u32 {
    (hash as u32) & 0x7fff_ffff
}

/// The partition of a key among `partitions`.
pub fn partition_for_key(key: &[u8], partitions: NonZeroU32) -> u32 {
    to_positive(murmur2(key)) % partitions
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    /// The vectors of the Java client's own tests.
    const KNOWN: [(&str, i32); 6] = [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        (
            "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
            -58_897_971,
        ),
        ("abc", 479_470_107),
    ];

    #[test]
    fn hashes_equal_those_of_kafka_clients() {
        for (key, hash) in KNOWN {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn a_negative_hash_loses_its_sign_bit_and_is_not_negated() {
        assert_eq!(to_positive(-1), 0x7fff_ffff);
        assert_eq!(to_positive(i32::MIN), 0);
        let partitions = NonZeroU32::new(10).unwrap();
        assert_eq!(
            partition_for_key(b"21", partitions),
            ((-973_932_308_i64) & 0x7fff_ffff) as u32 % 10
        );
    }

    #[test]
    fn slots_choose_the_partition_that_the_hash_chooses() {
        for partitions in [1_u32, 3, 7, 100] {
            for key in 0..1_000_u32 {
                let key = key.to_le_bytes();
                let slot = partition_for_key(&key, NonZeroU32::new(64 * partitions).unwrap());
                let direct = partition_for_key(&key, NonZeroU32::new(partitions).unwrap());
                assert_eq!(slot % partitions, direct);
            }
        }
    }
}
