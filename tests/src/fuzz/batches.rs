//! Record batches from producers and from disks: checks, codecs, records.

use std::io::Write;

use bytes::Bytes;
use corelog_batch::{
    Attributes, BatchBuilder, BatchHeader, BatchLimits, BatchOptions, CRC_COVERS_FROM, Codec,
    HEADER_BYTES, HeaderRef, LENGTH_PREFIX_BYTES, Opener, Turn, batches, first_record_above, open,
    record_refs, records, scan_records, stamp, verify_producer_batch, verify_stored_batch, walk,
};
use corelog_engine::limits::{BATCH_BYTES_MAX, BATCH_OPENED_BYTES_MAX, INLINE_BYTES_MAX};
use corelog_engine::publish::{Inspection, Progress, PublishRules};
use corelog_engine::time::Wall;

use super::{Allowance, Target, note, note_result};

/// Output limit of the target of one codec: small enough that its bombs pass it.
const OPENED_BYTES_MAX: usize = 1 << 20;
/// LZ4 names blocks of up to 4 MiB, which are opened whole whatever the output limit.
const OPENING: Allowance = Allowance {
    allocation_bytes_max: 9 << 20,
    ..Allowance::DEFAULT
};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "batch_check",
        run: check,
        samples: all_samples,
        dictionary: &[],
        repair: Some(repair),
        allowance: Allowance::DEFAULT,
    },
    target_of_codec("batch_none", || samples(Codec::None)),
    target_of_codec("batch_gzip", || samples(Codec::Gzip)),
    target_of_codec("batch_snappy", || samples(Codec::Snappy)),
    target_of_codec("batch_lz4", || samples(Codec::Lz4)),
    target_of_codec("batch_zstd", || samples(Codec::Zstd)),
    Target {
        name: "publish_inspection",
        run: inspect,
        samples: all_samples,
        dictionary: &[],
        repair: Some(repair),
        // A publish may open to the engine's limit; doubling holds old and new for a moment.
        allowance: Allowance {
            held_bytes_max: 3 * BATCH_OPENED_BYTES_MAX,
            allocation_bytes_max: 2 * BATCH_OPENED_BYTES_MAX,
            ..Allowance::DEFAULT
        },
    },
];

const fn target_of_codec(name: &'static str, samples: fn() -> Vec<Vec<u8>>) -> Target {
    Target {
        name,
        run: open_and_read,
        samples,
        dictionary: &[
            b"\x1f\x8b\x08",
            b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01",
            &[0x04, 0x22, 0x4d, 0x18, 0x40, 0x70, 0xdf],
            &[0x28, 0xb5, 0x2f, 0xfd],
            &[0x28, 0xb5, 0x2f, 0xfd, 0xa4],
        ],
        repair: Some(repair),
        allowance: OPENING,
    }
}

/// Splitting and both checks; what a check accepts agrees with the header.
fn check(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let produced = verify_producer_batch(&bytes, &BatchLimits::default());
    let stored = verify_stored_batch(&bytes);
    note_result(&produced);
    note_result(&stored);
    if let Ok(header) = &produced {
        assert_eq!(header.batch_bytes(), bytes.len());
        let mut stamped = bytes.to_vec();
        stamp(&mut stamped, 17, 3);
        let read = verify_stored_batch(&stamped).map(|header| header.base_offset);
        assert_eq!(read, Ok(17), "an accepted batch can be stored");
    }
    let mut split_bytes = 0;
    for batch in batches(bytes.clone()) {
        note_result(&batch);
        if let Ok((header, batch)) = batch {
            assert_eq!(header.batch_bytes(), batch.len());
            split_bytes += batch.len();
        }
    }
    assert!(split_bytes <= bytes.len());
}

/// Opening in turns and reading every record; the limit holds whatever the stream says.
fn open_and_read(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let Ok(header) = verify_stored_batch(&bytes) else {
        // A reader may meet bytes whose checksum it has not looked at.
        let opened = Opener::new(&bytes, 1_000).and_then(|mut opener| opener.turn(100));
        return note_result(&opened);
    };
    let opened = open(&bytes, OPENED_BYTES_MAX);
    note_result(&opened);
    assert_eq!(open_in_turns(&bytes), opened, "turns change nothing");
    let Ok(body) = opened else { return };
    assert!(body.len() <= OPENED_BYTES_MAX);
    let scanned = scan_records(&header, &body);
    note_result(&scanned);
    let owned = records(&header, body.clone())
        .take_while(Result::is_ok)
        .count();
    let borrowed = record_refs(&header, &body)
        .take_while(Result::is_ok)
        .count();
    assert_eq!(owned, borrowed, "both readers see the same records");
    if scanned.is_ok() {
        assert_eq!(i32::try_from(owned), Ok(header.record_count));
    }
    for record in records(&header, body.clone()).flatten() {
        assert_eq!(record.headers.iter().count(), record.headers.len());
    }
    let _ = first_record_above(&header, &body, 10);
    note_result(&walk(bytes, OPENED_BYTES_MAX));
}

fn open_in_turns(batch: &Bytes) -> Result<Bytes, corelog_batch::BatchError> {
    let mut opener = Opener::new(batch, OPENED_BYTES_MAX)?;
    loop {
        if let Turn::Done(body) = opener.turn(10_000)? {
            return Ok(body);
        }
    }
}

/// What a broker checks before it appends: whatever passes can be stored, opened and read by every consumer.
fn inspect(bytes: &[u8]) {
    let rules = PublishRules {
        batch_bytes_max: BATCH_BYTES_MAX,
        inline_bytes_max: INLINE_BYTES_MAX,
        batches_max: 16,
        wall: Wall(1_000_000_000_000),
    };
    let mut inspection = Inspection::new(Bytes::copy_from_slice(bytes), rules);
    let accepted = loop {
        match inspection.turn(64 << 10) {
            Ok(Progress::More) => {}
            Ok(Progress::Done(accepted)) => break accepted,
            Err(refusal) => return note(std::mem::discriminant(&refusal.rejection)),
        }
    };
    note(accepted.batches().len());
    for place in accepted.batches() {
        let batch = accepted.bytes().slice(place.start..place.end);
        let mut batch = batch.to_vec();
        stamp(&mut batch, 1_000, 1);
        let walked = walk(Bytes::from(batch), BATCH_OPENED_BYTES_MAX);
        assert!(
            walked.is_ok(),
            "an accepted batch is unreadable: {walked:?}"
        );
    }
}

/// Gives the batches in `bytes` a true length and checksum, as far as they can be told apart.
pub(super) fn repair(bytes: &mut Vec<u8>) {
    let mut start = 0;
    while bytes.len() - start >= HEADER_BYTES {
        let rest = bytes.len() - start;
        let claimed =
            BatchHeader::parse(&bytes[start..]).map_or(rest, |header| header.batch_bytes());
        let length = if (HEADER_BYTES..=rest).contains(&claimed) {
            claimed
        } else {
            rest
        };
        repair_one(&mut bytes[start..start + length]);
        start += length;
    }
}

/// As [`repair`], for exactly one batch.
pub(super) fn repair_one(batch: &mut [u8]) {
    let length = i32::try_from(batch.len() - LENGTH_PREFIX_BYTES).unwrap_or(i32::MAX);
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[16] = corelog_batch::MAGIC as u8;
    let crc = crc32c::crc32c(&batch[CRC_COVERS_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// A batch of a few records with keys, nulls and headers.
pub(super) fn batch(codec: Codec, record_count: u8, producer: Option<(i64, i32)>) -> Vec<u8> {
    let mut options = BatchOptions {
        codec,
        ..BatchOptions::default()
    };
    if let Some((producer_id, base_sequence)) = producer {
        options.producer_id = producer_id;
        options.producer_epoch = 0;
        options.base_sequence = base_sequence;
    }
    let mut builder = BatchBuilder::new(options);
    let header = HeaderRef {
        key: b"name",
        value: Some(b"value"),
    };
    for index in 0..record_count {
        let value = [index; 40];
        let key = (index % 3 != 0).then_some(&b"key"[..]);
        let value = (index % 5 != 4).then_some(&value[..]);
        let _ = builder.append(1_000 + i64::from(index), key, value, &[header]);
    }
    builder
        .build()
        .map(|batch| batch.to_vec())
        .unwrap_or_default()
}

/// A batch around this body.
fn with_body(codec: Codec, body: &[u8]) -> Vec<u8> {
    let mut batch = batch(codec, 1, None);
    batch.truncate(HEADER_BYTES);
    batch[21..23].copy_from_slice(&Attributes::with_codec(codec).0.to_be_bytes());
    batch.extend_from_slice(body);
    repair_one(&mut batch);
    batch
}

fn samples(codec: Codec) -> Vec<Vec<u8>> {
    let mut samples = vec![
        batch(codec, 1, None),
        batch(codec, 20, None),
        batch(codec, 3, Some((7, 0))),
    ];
    samples.extend(bombs(codec).iter().map(|bomb| with_body(codec, bomb)));
    samples
}

fn all_samples() -> Vec<Vec<u8>> {
    let mut samples: Vec<_> = Codec::ALL.into_iter().flat_map(samples).collect();
    samples.push([batch(Codec::None, 2, None), batch(Codec::Gzip, 3, None)].concat());
    samples
}

/// Small bodies that open to much more than the limit.
fn bombs(codec: Codec) -> Vec<Vec<u8>> {
    let zeros = vec![0; 8 * OPENED_BYTES_MAX];
    let made = match codec {
        Codec::None => Ok(Vec::new()),
        Codec::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(&zeros).and_then(|()| encoder.finish())
        }
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            let written = encoder.write_all(&zeros);
            written.and_then(|()| encoder.finish().map_err(std::io::Error::other))
        }
        Codec::Zstd => zstd::stream::encode_all(&zeros[..], 19),
        Codec::Snappy => snap::raw::Encoder::new()
            .compress_vec(&zeros)
            .map_err(std::io::Error::other),
    };
    let Ok(bomb) = made else { return Vec::new() };
    let framed = match codec {
        Codec::Snappy => {
            let mut body = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
            let block = snap::raw::Encoder::new().compress_vec(&zeros[..32_768]);
            let block = block.unwrap_or_default();
            for _ in 0..100 {
                body.extend_from_slice(&(block.len() as u32).to_be_bytes());
                body.extend_from_slice(&block);
            }
            Some(body)
        }
        _ => None,
    };
    [Some(bomb), framed].into_iter().flatten().collect()
}
