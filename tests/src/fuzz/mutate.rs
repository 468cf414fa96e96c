//! Changes that break decoders.

use crate::power_cut::seeded::Seeded;

/// Inputs grow to this at most.
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// Numbers that lengths, counts and offsets are confused by.
const NUMBERS: [i64; 20] = [
    0,
    1,
    2,
    -1,
    -2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
    1_000_000_000,
    61,
    4096,
];

/// The same as variable-length integers, plain and zigzag.
const VARINTS: [&[u8]; 8] = [
    &[0x00],
    &[0x01],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xfe, 0xff, 0xff, 0xff, 0x0f],
    &[0x80, 0x94, 0xeb, 0xdc, 0x03],
    &[0x80, 0xa8, 0xd6, 0xb9, 0x07],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80],
];

/// A new input out of one of `corpus`.
pub fn mutated(corpus: &[Vec<u8>], dictionary: &[&[u8]], random: &mut Seeded) -> Vec<u8> {
    let mut input = pick(corpus, random).cloned().unwrap_or_default();
    let mut changes = 1 + random.below(3);
    if random.below(8) == 0 {
        changes += random.below(24);
    }
    for _ in 0..changes {
        change(&mut input, corpus, dictionary, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], dictionary: &[&[u8]], random: &mut Seeded) {
    match random.below(12) {
        0 | 1 => flip_bit(input, random),
        2 => overwrite(input, &[random.draw() as u8], random),
        3 | 4 => overwrite_number(input, random),
        5 => overwrite(input, pick(&VARINTS, random).unwrap_or(&VARINTS[0]), random),
        6 => add_to_byte(input, random),
        7 => {
            let length = below(input.len() + 1, random);
            input.truncate(length);
        }
        8 => splice(input, corpus, random),
        9 => repeat(input, random),
        10 => drop(input.drain(range(input.len(), random))),
        _ => match pick(dictionary, random) {
            Some(piece) if random.below(2) == 0 => insert(input, piece, random),
            Some(piece) => overwrite(input, piece, random),
            None => insert(input, &random.draw().to_le_bytes(), random),
        },
    }
}

fn below(bound: usize, random: &mut Seeded) -> usize {
    random.below(bound.max(1) as u64) as usize
}

fn pick<'a, T>(from: &'a [T], random: &mut Seeded) -> Option<&'a T> {
    from.get(below(from.len(), random))
}

/// A stretch, mostly a short one.
fn range(length: usize, random: &mut Seeded) -> std::ops::Range<usize> {
    let start = below(length, random).min(length);
    let most = if random.below(4) == 0 { length } else { 16 };
    let end = start + below(most + 1, random);
    start..end.min(length)
}

fn flip_bit(input: &mut [u8], random: &mut Seeded) {
    let at = below(input.len(), random);
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
}

fn add_to_byte(input: &mut [u8], random: &mut Seeded) {
    let at = below(input.len(), random);
    if let Some(byte) = input.get_mut(at) {
        *byte = byte.wrapping_add(random.below(9) as u8).wrapping_sub(4);
    }
}

fn overwrite(input: &mut [u8], piece: &[u8], random: &mut Seeded) {
    let at = below(input.len(), random);
    for (byte, new) in input.iter_mut().skip(at).zip(piece) {
        *byte = *new;
    }
}

fn overwrite_number(input: &mut [u8], random: &mut Seeded) {
    let number = match random.below(4) {
        0 => input.len() as i64 + random.below(5) as i64 - 2,
        _ => *pick(&NUMBERS, random).unwrap_or(&0),
    };
    let width = 1 << random.below(4);
    let mut bytes = number.to_be_bytes()[8 - width..].to_vec();
    if random.below(4) == 0 {
        bytes.reverse();
    }
    overwrite(input, &bytes, random);
}

fn splice(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Seeded) {
    let Some(other) = pick(corpus, random) else {
        return;
    };
    let kept = below(input.len() + 1, random);
    let from = below(other.len() + 1, random);
    input.truncate(kept);
    input.extend_from_slice(other.get(from..).unwrap_or_default());
}

fn repeat(input: &mut Vec<u8>, random: &mut Seeded) {
    let range = range(input.len(), random);
    let at = range.end;
    let piece = input.get(range).unwrap_or_default().to_vec();
    let times = 1 + below(if random.below(8) == 0 { 1_000 } else { 4 }, random);
    if piece.len() * times > INPUT_BYTES_MAX {
        return;
    }
    let tail = input.split_off(at.min(input.len()));
    input.extend_from_slice(&piece.repeat(times));
    input.extend_from_slice(&tail);
}

fn insert(input: &mut Vec<u8>, piece: &[u8], random: &mut Seeded) {
    let tail = input.split_off(below(input.len() + 1, random));
    input.extend_from_slice(piece);
    input.extend_from_slice(&tail);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs_and_none_is_too_long() {
        let corpus = [
            b"some bytes to begin with".to_vec(),
            vec![7; 1_000],
            Vec::new(),
        ];
        let inputs = |seed| {
            let mut random = Seeded::new(seed);
            let inputs: Vec<_> = (0..2_000)
                .map(|_| mutated(&corpus, &[b"word"], &mut random))
                .collect();
            inputs
        };
        let first = inputs(3);
        assert_eq!(first, inputs(3));
        assert_ne!(first, inputs(4));
        assert!(first.iter().all(|input| input.len() <= INPUT_BYTES_MAX));
    }
}
