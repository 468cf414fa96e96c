//! What is built is verified, opened and read back as it was, with every codec and in every form that
//! clients send.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;

use bytes::{Bytes, BytesMut};
use corelog_batch::{
    Attributes, BatchBuilder, BatchHeader, BatchLimits, BatchOptions, BuildError, CRC_COVERS_FROM,
    Codec, HEADER_BYTES, HeaderRef, Opener, Turn, batches, first_record_above,
    largest_record_bytes, open, record_refs, records, scan_records, stamp, stamp_log_append_time,
    verify_producer_batch, verify_stored_batch, walk,
};
use proptest::prelude::*;

const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Clone, Debug)]
struct Sample {
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Sample {
    fn headers(&self) -> Vec<HeaderRef<'_>> {
        self.headers
            .iter()
            .map(|(key, value)| HeaderRef {
                key,
                value: value.as_deref(),
            })
            .collect()
    }
}

fn bytes_up_to(max: usize) -> impl Strategy<Value = Vec<u8>> {
    // Half of them compressible, so that codecs take both of their paths.
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..max),
        (any::<u8>(), 0..max).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn sample() -> impl Strategy<Value = Sample> {
    (
        -1_i64..2_000_000_000_000,
        proptest::option::of(bytes_up_to(40)),
        proptest::option::of(bytes_up_to(3_000)),
        proptest::collection::vec(
            (bytes_up_to(12), proptest::option::of(bytes_up_to(30))),
            0..4,
        ),
    )
        .prop_map(|(timestamp_ms, key, value, headers)| Sample {
            timestamp_ms,
            key,
            value,
            headers,
        })
}

fn codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(Codec::ALL.to_vec())
}

fn build(samples: &[Sample], codec: Codec) -> BytesMut {
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        producer_id: 9,
        producer_epoch: 1,
        base_sequence: 40,
        ..BatchOptions::default()
    });
    for sample in samples {
        let headers = sample.headers();
        let (key, value) = (sample.key.as_deref(), sample.value.as_deref());
        let bytes_with = builder.bytes_with(sample.timestamp_ms, key, value, &headers);
        builder
            .append(sample.timestamp_ms, key, value, &headers)
            .unwrap();
        assert_eq!(builder.bytes(), bytes_with, "size is known ahead");
    }
    builder.build().unwrap()
}

fn assert_reads_back(header: &BatchHeader, body: &Bytes, samples: &[Sample]) {
    let read: Vec<_> = records(header, body.clone()).map(Result::unwrap).collect();
    assert_eq!(read.len(), samples.len());
    for (index, (record, sample)) in read.iter().zip(samples).enumerate() {
        assert_eq!(record.offset_delta, i32::try_from(index).unwrap());
        assert_eq!(record.timestamp_ms(header), sample.timestamp_ms);
        assert_eq!(record.key.as_deref(), sample.key.as_deref());
        assert_eq!(record.value.as_deref(), sample.value.as_deref());
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|h| (h.key.to_vec(), h.value.map(|v| v.to_vec())))
            .collect();
        assert_eq!(headers, sample.headers);
    }
    let refs: Vec<_> = record_refs(header, body).map(Result::unwrap).collect();
    for (record, sample) in refs.iter().zip(samples) {
        assert_eq!(record.key, sample.key.as_deref());
        assert_eq!(record.headers.clone().collect::<Vec<_>>(), sample.headers());
    }
}

/// A batch with this body as it stands, claiming the records of `header`.
fn batch_with_body(header: &BatchHeader, codec: Codec, body: &[u8]) -> Bytes {
    let mut header = BatchHeader {
        attributes: Attributes::with_codec(codec),
        length: i32::try_from(HEADER_BYTES - 12 + body.len()).unwrap(),
        ..*header
    };
    let mut batch = header.to_bytes().to_vec();
    batch.extend_from_slice(body);
    header.crc = crc32c::crc32c(&batch[CRC_COVERS_FROM..]);
    batch[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Bytes::from(batch)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_codec_round_trips(samples in proptest::collection::vec(sample(), 1..40), codec in codec()) {
        let batch = build(&samples, codec).freeze();
        let header = verify_producer_batch(&batch, &BatchLimits::default()).unwrap();
        prop_assert_eq!(header.codec(), Ok(codec));
        prop_assert_eq!(header.last_sequence(), 40 + header.last_offset_delta);
        let body = open(&batch, OUTPUT_BYTES_MAX).unwrap();
        assert_reads_back(&header, &body, &samples);

        let scan = scan_records(&header, &body).unwrap();
        let content = |s: &Sample| {
            s.key.as_ref().map_or(0, Vec::len)
                + s.value.as_ref().map_or(0, Vec::len)
                + s.headers.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, Vec::len)).sum::<usize>()
        };
        let sizes: Vec<usize> = samples.iter().map(content).collect();
        let largest = sizes.iter().copied().max().unwrap();
        prop_assert_eq!(scan.largest_record_bytes, largest);
        prop_assert_eq!(largest_record_bytes(&header, &body), Ok(largest));
        prop_assert_eq!(scan.max_timestamp_ms, header.max_timestamp_ms);
        let newest = samples.iter().map(|s| s.timestamp_ms).max().unwrap();
        prop_assert_eq!(header.max_timestamp_ms, newest);
        if newest >= 0 {
            let first = samples.iter().position(|s| s.timestamp_ms == newest).unwrap();
            prop_assert_eq!(scan.max_timestamp_offset_delta, i32::try_from(first).unwrap());
        }
        prop_assert_eq!(first_record_above(&header, &body, largest), Ok(None));
        if largest > 0 {
            let index = sizes.iter().position(|size| *size == largest).unwrap();
            if sizes.iter().take(index).all(|size| *size < largest) {
                let found = first_record_above(&header, &body, largest - 1).unwrap().unwrap();
                prop_assert_eq!((found.index as usize, found.record_bytes), (index, largest));
            }
        }
    }

    #[test]
    fn turns_give_what_one_go_gives(samples in proptest::collection::vec(sample(), 1..60), codec in codec(), budget_bytes in 0_usize..5_000) {
        let batch = build(&samples, codec).freeze();
        let mut opener = Opener::new(&batch, OUTPUT_BYTES_MAX).unwrap();
        let mut turns = 0;
        let body = loop {
            turns += 1;
            prop_assert!(turns < 100_000);
            if let Turn::Done(body) = opener.turn(budget_bytes).unwrap() {
                break body;
            }
        };
        prop_assert_eq!(body, open(&batch, OUTPUT_BYTES_MAX).unwrap());
        prop_assert!(opener.turn(budget_bytes).is_err(), "an opener is spent after Done");
    }

    #[test]
    fn a_concatenation_splits_into_the_same_memory(counts in proptest::collection::vec(1_usize..5, 0..6), cut in any::<prop::sample::Index>()) {
        let sample = Sample { timestamp_ms: 1, key: None, value: Some(vec![7; 50]), headers: vec![] };
        let parts: Vec<Bytes> = counts.iter().map(|n| build(&vec![sample.clone(); *n], Codec::None).freeze()).collect();
        let all = Bytes::from(parts.concat());
        let mut split = batches(all.clone());
        let mut position = 0;
        for part in &parts {
            let (header, batch) = split.next().unwrap().unwrap();
            prop_assert_eq!(&batch, part);
            prop_assert_eq!(batch.as_ptr(), all[position..].as_ptr(), "no copy");
            prop_assert_eq!(header.batch_bytes(), part.len());
            position += part.len();
            prop_assert_eq!(split.position(), position);
        }
        prop_assert!(split.next().is_none());

        let cut = cut.index(all.len() + 1);
        let mut whole = 0;
        for batch in batches(all.slice(..cut)) {
            match batch {
                Ok((_, batch)) => whole += batch.len(),
                Err(error) => prop_assert!(error.is_incomplete(), "a torn tail is not damage: {error}"),
            }
        }
        let boundaries: Vec<usize> = parts.iter().scan(0, |end, p| { *end += p.len(); Some(*end) }).collect();
        prop_assert_eq!(whole, boundaries.iter().copied().filter(|end| *end <= cut).max().unwrap_or(0));
    }
}

#[test]
fn stamping_offset_and_epoch_leaves_the_crc_alone() {
    let sample = Sample {
        timestamp_ms: 5,
        key: None,
        value: Some(b"v".to_vec()),
        headers: vec![],
    };
    let before = build(&[sample.clone(), sample], Codec::Lz4);
    let mut after = before.clone();
    stamp(&mut after, 1_000, 7);
    assert_eq!(before[8..12], after[8..12]);
    assert_eq!(before[16..], after[16..]);
    let header = verify_stored_batch(&after).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (1_000, 7));
    assert_eq!(header.next_offset(), 1_002);
}

#[test]
fn log_append_time_becomes_the_time_of_every_record() {
    let sample = Sample {
        timestamp_ms: 5,
        key: None,
        value: None,
        headers: vec![],
    };
    let mut batch = build(&[sample.clone(), sample], Codec::Zstd);
    stamp_log_append_time(&mut batch, 99);
    let header = verify_stored_batch(&batch).unwrap();
    assert!(header.attributes.is_log_append_time());
    assert_eq!(header.codec(), Ok(Codec::Zstd));
    let body = open(&batch.freeze(), 1_000).unwrap();
    for record in records(&header, body) {
        assert_eq!(record.unwrap().timestamp_ms(&header), 99);
    }
}

#[test]
fn every_form_a_client_may_send_is_opened() {
    let sample = Sample {
        timestamp_ms: 5,
        key: Some(b"key".to_vec()),
        value: Some((0..200_000_u32).map(|i| (i / 100) as u8).collect()),
        headers: vec![],
    };
    let samples = vec![sample; 3];
    let plain = build(&samples, Codec::None).freeze();
    let header = verify_producer_batch(&plain, &BatchLimits::default()).unwrap();
    let body = open(&plain, OUTPUT_BYTES_MAX).unwrap();
    assert_eq!(body.as_ptr(), plain[HEADER_BYTES..].as_ptr(), "no copy");

    let raw_snappy = snap::raw::Encoder::new().compress_vec(&body).unwrap();
    let zstd_without_size = zstd::stream::encode_all(&body[..], 19).unwrap();
    let mut forms = vec![
        (Codec::Snappy, raw_snappy),
        (Codec::Zstd, zstd_without_size),
    ];
    for linked in [false, true] {
        for size in [
            lz4_flex::frame::BlockSize::Max64KB,
            lz4_flex::frame::BlockSize::Max4MB,
        ] {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_mode(if linked {
                    lz4_flex::frame::BlockMode::Linked
                } else {
                    lz4_flex::frame::BlockMode::Independent
                })
                .block_size(size)
                .block_checksums(linked)
                .content_checksum(linked)
                .content_size(linked.then_some(body.len() as u64));
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(&body).unwrap();
            forms.push((Codec::Lz4, encoder.finish().unwrap()));
        }
    }
    let incompressible: Vec<u8> = (0..300_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(&incompressible).unwrap();
    let stored = batch_with_body(&header, Codec::Lz4, &encoder.finish().unwrap());
    assert_eq!(open(&stored, OUTPUT_BYTES_MAX).unwrap(), incompressible);

    for (codec, compressed) in forms {
        let batch = batch_with_body(&header, codec, &compressed);
        let header = verify_producer_batch(&batch, &BatchLimits::default()).unwrap();
        let opened = open(&batch, body.len()).unwrap();
        assert_eq!(opened, body, "{codec}, at exactly the limit");
        assert_reads_back(&header, &opened, &samples);
    }
}

#[test]
fn the_libraries_that_clients_use_read_what_is_built() {
    let sample = Sample {
        timestamp_ms: 5,
        key: None,
        value: Some(vec![3; 100_000]),
        headers: vec![],
    };
    let one = std::slice::from_ref(&sample);
    let plain = build(one, Codec::None);
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let batch = build(one, codec);
        let mut reader: Box<dyn std::io::Read> = match codec {
            Codec::Gzip => Box::new(flate2::read::GzDecoder::new(&batch[HEADER_BYTES..])),
            Codec::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(&batch[HEADER_BYTES..])),
            _ => Box::new(zstd::stream::Decoder::new(&batch[HEADER_BYTES..]).unwrap()),
        };
        let mut opened = Vec::new();
        reader.read_to_end(&mut opened).unwrap();
        assert_eq!(opened, plain[HEADER_BYTES..]);
    }
    let framed = build(one, Codec::Snappy);
    assert_eq!(
        framed[HEADER_BYTES..HEADER_BYTES + 16],
        *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
    );
}

#[test]
fn a_full_builder_refuses_and_stays_as_it_was() {
    let mut builder = BatchBuilder::new(BatchOptions {
        batch_bytes_max: 200,
        ..BatchOptions::default()
    });
    assert_eq!(builder.append(10, None, Some(&[1; 100]), &[]), Ok(0));
    let bytes = builder.bytes();
    let bytes_with = builder.bytes_with(11, None, Some(&[2; 100]), &[]);
    assert_eq!(
        builder.append(11, None, Some(&[2; 100]), &[]),
        Err(BuildError::Full {
            bytes_with,
            batch_bytes_max: 200
        })
    );
    assert_eq!(
        builder.append(-2, None, None, &[]),
        Err(BuildError::Timestamp { timestamp_ms: -2 })
    );
    assert_eq!((builder.bytes(), builder.record_count()), (bytes, 1));
    let batch = builder.build().unwrap();
    let header = verify_producer_batch(&batch, &BatchLimits::default()).unwrap();
    assert_eq!((header.record_count, header.max_timestamp_ms), (1, 10));
    assert_eq!(
        BatchBuilder::new(BatchOptions::default()).build(),
        Err(BuildError::Empty)
    );
}

#[test]
fn building_without_a_codec_gives_the_builders_own_memory() {
    let mut builder = BatchBuilder::with_capacity(BatchOptions::default(), 64 * 1024);
    for _ in 0..100 {
        builder.append(1, Some(b"k"), Some(&[0; 500]), &[]).unwrap();
    }
    let batch = builder.build().unwrap();
    assert!(batch.capacity() >= 64 * 1024 - HEADER_BYTES, "not copied");
}

#[test]
fn headers_of_a_record_pass_into_a_builder_without_collecting() {
    let sample = Sample {
        timestamp_ms: 5,
        key: Some(b"k".to_vec()),
        value: None,
        headers: vec![(b"a".to_vec(), None), (b"b".to_vec(), Some(vec![1, 2]))],
    };
    let batch = build(std::slice::from_ref(&sample), Codec::None).freeze();
    let header = verify_producer_batch(&batch, &BatchLimits::default()).unwrap();
    let body = open(&batch, 1_000).unwrap();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for record in record_refs(&header, &body) {
        let record = record.unwrap();
        let timestamp_ms = record.timestamp_ms(&header);
        builder
            .append_with(timestamp_ms, record.key, record.value, record.headers)
            .unwrap();
    }
    let copy = builder.build().unwrap().freeze();
    let header = verify_producer_batch(&copy, &BatchLimits::default()).unwrap();
    assert_reads_back(&header, &open(&copy, 1_000).unwrap(), &[sample]);
}

#[test]
fn a_walk_counts_batches_and_records_and_stops_at_the_first_fault() {
    let sample = Sample {
        timestamp_ms: 5,
        key: None,
        value: Some(vec![0; 10]),
        headers: vec![],
    };
    let mut all = build(&vec![sample.clone(); 3], Codec::Gzip).to_vec();
    let first = all.len();
    all.extend_from_slice(&build(&vec![sample; 4], Codec::None));
    let found = walk(Bytes::from(all.clone()), 10_000).unwrap();
    assert_eq!(
        (found.batches, found.records, found.bytes),
        (2, 7, all.len())
    );
    let (found, error) = walk(Bytes::from(all[..all.len() - 1].to_vec()), 10_000).unwrap_err();
    assert_eq!((found.batches, found.records, found.bytes), (1, 3, first));
    assert!(error.is_incomplete());
}
