//! Files of our own: what was written is read, and nothing else is.

use std::vec::Vec;

use super::harness::{LOG_ID, PARTITION};
use super::random::Random;
use crate::identity::{LeaderEpoch, Offset};
use crate::log::index::SparseIndex;
use crate::log::seal::{SEAL_FILE_BYTES, Seal, decode_producers, encode_producers};
use crate::log::state::{Checkpoint, DurableState, SLOT_BYTES, Slots, read_slots};

fn a_state() -> DurableState {
    let mut state = DurableState::new(PARTITION, LOG_ID);
    state.promised = LeaderEpoch(9);
    state.checkpoint = Checkpoint {
        offset: Offset(70),
        segment: Offset(50),
        position: 8_000,
        crc: Some(77),
        last_append_ms: 5,
        first_append_ms: 4,
        producers: true,
    };
    state.start = Offset(20);
    state.start_epoch = Some(LeaderEpoch(2));
    state.durable_end = Offset(80);
    state.cut_to = Some(Offset(75));
    for (epoch, offset) in [(3, 10), (5, 30), (9, 30)] {
        state.begin_epoch(LeaderEpoch(epoch), Offset(offset));
    }
    state
}

#[test]
fn state_is_read_as_written_and_the_newer_slot_counts() {
    let (older, mut newer) = (a_state(), a_state());
    newer.clean = true;
    let mut file = older.encode(4);
    file.resize(SLOT_BYTES, 0);
    file.extend_from_slice(&newer.encode(5));
    let Slots::State {
        state,
        sequence,
        slot,
    } = read_slots(&file)
    else {
        panic!("unreadable");
    };
    assert_eq!((state, sequence, slot), (newer, 5, 1));
}

#[test]
fn any_flipped_bit_or_missing_byte_is_noticed() {
    let state = a_state().encode(1);
    let seal = Seal {
        base: Offset(3),
        end: Offset(9),
        length_bytes: 100,
        crc: 5,
        last_append_ms: 6,
        max_timestamp_ms: -1,
    };
    let mut index = SparseIndex::new(Offset(100));
    index.note(Offset(100), 0, 5);
    index.note(Offset(120), 40_000, 6);
    let (offsets, times) = index.encode(50_000);
    let producers = encode_producers(Offset(6), b"snapshot");
    assert_eq!(Seal::decode(&seal.encode()), Some(seal));
    assert_eq!(seal.encode().len(), SEAL_FILE_BYTES);
    assert_eq!(
        SparseIndex::decode(Offset(100), 50_000, &offsets, &times),
        Some(index)
    );
    assert_eq!(decode_producers(Offset(6), &producers).unwrap(), "snapshot");
    assert!(decode_producers(Offset(7), &producers).is_err());
    assert!(SparseIndex::decode(Offset(101), 1, &offsets, &times).is_none());
    assert!(SparseIndex::decode(Offset(100), 50_001, &offsets, &times).is_none());
    type IsRead = fn(&[u8], &[u8]) -> bool;
    let files: [(&[u8], IsRead); 5] = [
        (&state, |file, _| DurableState::decode(file).is_ok()),
        (&seal.encode(), |file, _| Seal::decode(file).is_some()),
        (&offsets, |file, times| {
            SparseIndex::decode(Offset(100), 1, file, times).is_some()
        }),
        (&times, |file, _| {
            let mut index = SparseIndex::new(Offset(100));
            index.note(Offset(100), 0, 5);
            index.note(Offset(120), 40_000, 6);
            SparseIndex::decode(Offset(100), 1, &index.encode(50_000).0, file).is_some()
        }),
        (&producers, |file, _| {
            decode_producers(Offset(6), &bytes::Bytes::copy_from_slice(file)).is_ok()
        }),
    ];
    for (file, is_read) in files {
        assert!(is_read(file, &times));
        for bit in 0..file.len() * 8 {
            let mut damaged = file.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_read(&damaged, &times), "bit {bit}");
        }
        for length in 0..file.len() {
            assert!(!is_read(&file[..length], &times), "length {length}");
        }
    }
}

#[test]
fn random_bytes_are_no_state() {
    let mut random = Random::new(5);
    for _ in 0..200 {
        let file: Vec<u8> = (0..random.below(40_000))
            .map(|_| random.below(256) as u8)
            .collect();
        assert!(!matches!(read_slots(&file), Slots::State { .. }));
    }
}

#[test]
fn log_start_keeps_the_newest_entry_at_or_below_it() {
    let mut state = a_state();
    state.move_start(Offset(30));
    assert_eq!(state.start_epoch, Some(LeaderEpoch(3)));
    assert_eq!(state.history.len(), 1);
    assert_eq!(state.epoch_at(Offset(30)), Some(LeaderEpoch(9)));
    assert_eq!(state.epoch_at(Offset(29)), None);
}
