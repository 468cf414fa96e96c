//! Damaged and malicious bytes: refused, never a panic, never past a limit.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;

use bytes::Bytes;
use corelog_batch::{
    Attributes, BatchBuilder, BatchError, BatchHeader, BatchLimits, BatchOptions, BodyFault,
    CRC_COVERS_FROM, Codec, HEADER_BYTES, HeaderRef, Opener, Turn, batches, first_record_above,
    open, records, scan_records, stamp, verify_producer_batch, verify_stored_batch, walk,
};
use proptest::prelude::*;

fn sample_batch(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        ..BatchOptions::default()
    });
    let header = HeaderRef {
        key: b"name",
        value: Some(b"value"),
    };
    for index in 0..20_u8 {
        let value = [index; 30];
        builder
            .append(i64::from(index), Some(b"key"), Some(&value), &[header])
            .unwrap();
    }
    let mut batch = builder.build().unwrap();
    stamp(&mut batch, 17, 2);
    batch.to_vec()
}

/// A batch with this compressed body and a CRC that matches.
fn batch_with_body(codec: Codec, body: &[u8]) -> Bytes {
    let mut header = BatchHeader {
        attributes: Attributes::with_codec(codec),
        length: i32::try_from(HEADER_BYTES - 12 + body.len()).unwrap(),
        ..BatchHeader::parse(&sample_batch(Codec::None)).unwrap()
    };
    let mut batch = [&header.to_bytes()[..], body].concat();
    header.crc = crc32c::crc32c(&batch[CRC_COVERS_FROM..]);
    batch[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Bytes::from(batch)
}

fn body_of(batch: &[u8]) -> &[u8] {
    &batch[HEADER_BYTES..]
}

const COMPRESSED: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

#[test]
fn every_truncation_is_refused() {
    for codec in Codec::ALL {
        let batch = sample_batch(codec);
        for length in 0..batch.len() {
            let cut = &batch[..length];
            let error = verify_producer_batch(cut, &BatchLimits::default()).unwrap_err();
            assert!(error.is_incomplete(), "{codec} at {length}: {error}");
            assert_eq!(verify_stored_batch(cut), Err(error));
            assert!(Opener::new(&Bytes::copy_from_slice(cut), 1 << 20).is_err());
            if length > 0 {
                let split = batches(Bytes::copy_from_slice(cut)).next().unwrap();
                assert!(split.unwrap_err().is_incomplete());
            }
        }
    }
}

#[test]
fn every_flipped_bit_that_a_check_covers_is_refused() {
    for codec in Codec::ALL {
        let batch = sample_batch(codec);
        for bit in 0..batch.len() * 8 {
            let at = bit / 8;
            let mut flipped = batch.clone();
            flipped[at] ^= 1 << (bit % 8);
            let verified = verify_stored_batch(&flipped);
            // Base offset and leader epoch lie outside the CRC: continuity guards them.
            let uncovered = at < 8 || (12..16).contains(&at);
            if uncovered {
                let is_negative_offset = bit == 7;
                assert_eq!(verified.is_err(), is_negative_offset, "{codec} bit {bit}");
            } else {
                assert!(verified.is_err(), "{codec} bit {bit}");
            }
            if at >= 17 {
                assert!(
                    matches!(verified, Err(BatchError::Checksum { .. })),
                    "{codec} bit {bit}"
                );
            }
        }
    }
}

#[test]
fn every_truncated_stream_is_refused_also_under_a_crc_that_matches() {
    for codec in COMPRESSED {
        let batch = sample_batch(codec);
        let body = body_of(&batch);
        for length in 1..body.len() {
            let cut = batch_with_body(codec, &body[..length]);
            // A frame of several Snappy blocks may end after any of them; its records then run short.
            let read = open(&cut, 1 << 20).and_then(|opened| {
                let header = verify_stored_batch(&cut)?;
                scan_records(&header, &opened)
            });
            assert!(read.is_err(), "{codec} cut to {length}");
        }
    }
}

#[test]
fn bytes_after_a_stream_are_refused() {
    for codec in COMPRESSED {
        let batch = sample_batch(codec);
        let twice = [body_of(&batch), body_of(&batch)].concat();
        let garbage = [body_of(&batch), &[0]].concat();
        for body in [twice, garbage] {
            assert!(
                open(&batch_with_body(codec, &body), 1 << 20).is_err(),
                "{codec}"
            );
        }
    }
}

#[test]
fn checksums_inside_a_stream_are_checked() {
    let content = vec![5; 1_000];
    let info = lz4_flex::frame::FrameInfo::new()
        .content_checksum(true)
        .block_checksums(true)
        .content_size(Some(1_000));
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&content).unwrap();
    let frame = encoder.finish().unwrap();
    assert_eq!(
        open(&batch_with_body(Codec::Lz4, &frame), 1_000).unwrap(),
        content
    );
    for bit in 0..frame.len() * 8 {
        let mut flipped = frame.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let batch = batch_with_body(Codec::Lz4, &flipped);
        assert!(open(&batch, 1 << 20).is_err(), "bit {bit}");
    }
}

fn bomb(codec: Codec, bytes: usize) -> Vec<u8> {
    let zeros = vec![0; bytes];
    match codec {
        Codec::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(&zeros).unwrap();
            encoder.finish().unwrap()
        }
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(&zeros).unwrap();
            encoder.finish().unwrap()
        }
        Codec::Zstd => zstd::stream::encode_all(&zeros[..], 19).unwrap(),
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(&zeros).unwrap(),
        Codec::None => zeros,
    }
}

fn framed_snappy_bomb(bytes: usize) -> Vec<u8> {
    let block = bomb(Codec::Snappy, bytes / 100);
    let mut body = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for _ in 0..100 {
        body.extend_from_slice(&i32::try_from(block.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&block);
    }
    body
}

#[test]
fn bombs_of_every_codec_stop_at_the_limit() {
    const BYTES: usize = 16 * 1024 * 1024;
    let mut bombs: Vec<_> = Codec::ALL.map(|codec| (codec, bomb(codec, BYTES))).into();
    bombs.push((Codec::Snappy, framed_snappy_bomb(BYTES / 100 * 100)));
    for (codec, body) in bombs {
        let batch = batch_with_body(codec, &body);
        for output_bytes_max in [0, 1, 4_095, 1_000_000] {
            assert_eq!(
                open(&batch, output_bytes_max),
                Err(BatchError::OutputLimit { output_bytes_max }),
                "{codec}"
            );
        }
        assert!(open(&batch, BYTES).is_ok(), "{codec}");
    }
}

#[test]
fn a_bomb_is_opened_in_turns_that_end() {
    const BYTES: usize = 16 * 1024 * 1024;
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let mut opener = Opener::new(&batch_with_body(codec, &bomb(codec, BYTES)), BYTES).unwrap();
        let mut turns = 1;
        while opener.turn(256 * 1024).unwrap() == Turn::More {
            turns += 1;
        }
        assert!((4..=128).contains(&turns), "{codec} took {turns} turns");
    }
}

#[test]
fn a_spent_opener_says_so() {
    let batch = batch_with_body(Codec::Zstd, &bomb(Codec::Zstd, 1_000));
    let mut opener = Opener::new(&batch, 10).unwrap();
    assert!(matches!(
        opener.turn(usize::MAX),
        Err(BatchError::OutputLimit { .. })
    ));
    assert_eq!(
        opener.turn(usize::MAX),
        Err(BatchError::Body {
            codec: Codec::Zstd,
            fault: BodyFault::Truncated
        })
    );
}

fn mutate(body: &mut [u8], changes: &[(prop::sample::Index, u8)]) {
    for (at, byte) in changes {
        if !body.is_empty() {
            let at = at.index(body.len());
            body[at] = *byte;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let bytes = Bytes::from(bytes);
        let _ = verify_producer_batch(&bytes, &BatchLimits::default());
        let _ = batches(bytes.clone()).count();
        let _ = Opener::new(&bytes, 1_000).and_then(|mut opener| opener.turn(100));
        let _ = walk(bytes, 10_000);
    }

    #[test]
    fn changed_streams_under_a_matching_crc_never_panic_or_pass_the_limit(
        codec in proptest::sample::select(Codec::ALL.to_vec()),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let batch = sample_batch(codec);
        let mut body = body_of(&batch).to_vec();
        mutate(&mut body, &changes);
        if changes.len() % 2 == 0 {
            body.truncate(cut.index(body.len()));
        }
        let batch = batch_with_body(codec, &body);
        if let Ok(opened) = open(&batch, 20_000) {
            prop_assert!(opened.len() <= 20_000);
            let header = BatchHeader::parse(&batch).unwrap();
            let _ = records(&header, opened.clone()).count();
            let _ = first_record_above(&header, &opened, 10);
        }
    }

    #[test]
    fn arbitrary_streams_never_panic(
        codec in proptest::sample::select(COMPRESSED.to_vec()),
        framed in any::<bool>(),
        tail in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let start: &[u8] = match (codec, framed) {
            (_, false) | (Codec::None, _) => &[],
            (Codec::Gzip, _) => &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3],
            (Codec::Snappy, _) => b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x20\x40",
            // Linked blocks of 4 MiB; the header checksum is right.
            (Codec::Lz4, _) => &[0x04, 0x22, 0x4d, 0x18, 0x40, 0x70, 0xdf, 40, 0, 0, 0],
            (Codec::Zstd, _) => &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58],
        };
        let _ = open(&batch_with_body(codec, &[start, &tail].concat()), 100_000);
    }

    #[test]
    fn arbitrary_records_never_panic(body in proptest::collection::vec(0_u8..32, 0..200), record_count in 0..50_i32) {
        let header = BatchHeader {
            record_count,
            last_offset_delta: 60,
            ..BatchHeader::parse(&sample_batch(Codec::None)).unwrap()
        };
        for record in records(&header, Bytes::from(body)).flatten() {
            prop_assert_eq!(record.headers.iter().count(), record.headers.len());
        }
    }
}
