//! Bytes there and back, and bytes that are refused.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::generators::{history, record};
use super::{counting, create, image_with_broker, request};
use crate::identity::{BrokerId, ClusterId, ProducerId, TopicId};
use crate::metadata::identity_file::DataDirectoryIdentity;
use crate::metadata::{DecodeError, Image, MetadataRecord};

fn image_of(records: &[MetadataRecord]) -> Image {
    let mut image = Image::new();
    for record in records {
        let _ = image.apply(record);
    }
    image
}

proptest! {
    #[test]
    fn a_record_comes_back_as_it_was(record in record()) {
        prop_assert_eq!(MetadataRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn records_one_behind_the_other_come_apart_again(records in history()) {
        let bytes: Vec<u8> = records.iter().flat_map(MetadataRecord::encode).collect();
        let mut rest = bytes.as_slice();
        for record in records {
            let (first, behind) = MetadataRecord::decode_first(rest).unwrap();
            prop_assert_eq!(first, record);
            rest = behind;
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn every_truncation_of_a_record_is_refused(record in record()) {
        let bytes = record.encode();
        for end in 0..bytes.len() {
            prop_assert!(MetadataRecord::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn a_flipped_bit_in_a_record_is_refused(record in record(), at in any::<usize>()) {
        let mut bytes = record.encode();
        let bit = at % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(MetadataRecord::decode(&bytes).is_err());
    }

    #[test]
    fn hostile_bytes_with_a_right_checksum_are_decoded_or_refused(
        kind in 0_u8..12, body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = frame(kind, 1, &body);
        if let Ok(record) = MetadataRecord::decode(&bytes) {
            prop_assert_eq!(record.encode(), bytes);
        }
    }

    #[test]
    fn a_snapshot_comes_back_as_the_same_image(records in history()) {
        let image = image_of(&records);
        let bytes = image.encode_snapshot();
        let back = Image::decode_snapshot(&bytes).unwrap();
        prop_assert_eq!(&back, &image);
        prop_assert_eq!(back.encode_snapshot(), bytes);
    }

    #[test]
    fn a_damaged_snapshot_is_refused(records in history(), at in any::<usize>()) {
        let mut bytes = image_of(&records).encode_snapshot();
        let at = at % bytes.len();
        prop_assert!(Image::decode_snapshot(&bytes[..at]).is_err());
        bytes[at] ^= 0x10;
        prop_assert!(Image::decode_snapshot(&bytes).is_err());
    }

    #[test]
    fn an_image_from_a_snapshot_goes_on_as_the_original(records in history(), cut in 0_usize..60) {
        let (before, after) = records.split_at(cut.min(records.len()));
        let mut original = image_of(before);
        let mut restored = Image::decode_snapshot(&original.encode_snapshot()).unwrap();
        for record in after {
            prop_assert_eq!(original.apply(record), restored.apply(record));
        }
        prop_assert_eq!(original, restored);
    }
}

fn frame(kind: u8, version: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = alloc::vec![kind, version];
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), body);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_record_of_a_newer_version_or_kind_is_refused_by_name() {
    let newer = MetadataRecord::decode(&frame(6, 2, &[0; 40])).unwrap_err();
    assert_eq!(
        newer,
        DecodeError::Newer {
            what: "metadata record TopicDeleted",
            version: 2,
            supported: 1
        }
    );
    let unknown = MetadataRecord::decode(&frame(200, 1, &[])).unwrap_err();
    assert_eq!(unknown, DecodeError::UnknownKind(200));
    let level = MetadataRecord::decode(&frame(1, 1, &9_u16.to_le_bytes())).unwrap_err();
    assert!(matches!(level, DecodeError::Newer { version: 9, .. }));
}

#[test]
fn a_count_beyond_the_bytes_reserves_nothing() {
    let mut body = alloc::vec![0; 16 + 4];
    body.extend_from_slice(&u32::MAX.to_le_bytes());
    let result = MetadataRecord::decode(&frame(8, 1, &body));
    assert!(matches!(result, Err(DecodeError::Truncated(_))));
}

#[test]
fn a_snapshot_of_a_newer_version_is_refused_by_name() {
    let mut bytes = Image::new().encode_snapshot();
    bytes[8] = 2;
    let error = Image::decode_snapshot(&bytes).unwrap_err();
    assert!(matches!(error, DecodeError::Newer { version: 2, .. }));
}

#[test]
fn ten_thousand_partitions_fit_a_record_and_a_snapshot() {
    let mut image = image_with_broker(8);
    let mut ids = counting();
    create(&mut image, &request("wide", 10_000), &mut ids);
    let back = Image::decode_snapshot(&image.encode_snapshot()).unwrap();
    assert_eq!(back, image);
    assert_eq!(back.partitions().count(), 10_000);
}

fn identity() -> DataDirectoryIdentity {
    DataDirectoryIdentity {
        cluster: ClusterId([7; 16]),
        broker: BrokerId(3),
        created_at_ms: 1_700_000_000_000,
    }
}

#[test]
fn the_identity_of_a_data_directory_comes_back_as_it_was() {
    let bytes = identity().encode();
    assert_eq!(bytes.len(), 52);
    assert_eq!(DataDirectoryIdentity::decode(&bytes), Ok(identity()));
}

#[test]
fn every_cut_and_every_flipped_bit_of_the_identity_is_refused() {
    let bytes = identity().encode();
    for end in 0..bytes.len() {
        assert!(DataDirectoryIdentity::decode(&bytes[..end]).is_err());
    }
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(DataDirectoryIdentity::decode(&bad).is_err(), "bit {bit}");
    }
    let mut long = bytes;
    long.push(0);
    assert!(DataDirectoryIdentity::decode(&long).is_err());
}

#[test]
fn a_newer_data_directory_is_refused_by_name_whatever_else_it_holds() {
    let mut bytes = identity().encode();
    bytes[8] = 2;
    bytes.extend_from_slice(&[1; 100]);
    let error = DataDirectoryIdentity::decode(&bytes).unwrap_err();
    assert_eq!(
        error,
        DecodeError::Newer {
            what: "the data directory",
            version: 2,
            supported: 1
        }
    );
}

/// The bytes of version 1, written down: a build that reads them differently breaks every broker.
#[test]
fn version_one_of_a_record_stays_what_it_is() {
    let record = MetadataRecord::ProducerIdBlockGranted {
        broker: BrokerId(1),
        first: ProducerId(2_000),
        count: 1_000,
    };
    let mut expected = alloc::vec![10, 1, 20, 0, 0, 0];
    let body = [
        1, 0, 0, 0, 0xd0, 0x07, 0, 0, 0, 0, 0, 0, 0xe8, 0x03, 0, 0, 0, 0, 0, 0,
    ];
    let crc = crc32c::crc32c_append(crc32c::crc32c(&expected), &body);
    expected.extend_from_slice(&crc.to_le_bytes());
    expected.extend_from_slice(&body);
    assert_eq!(record.encode(), expected);
    let deleted = MetadataRecord::TopicDeleted {
        topic: TopicId([5; 16]),
    };
    assert_eq!(deleted.encode().get(10..), Some([5; 16].as_slice()));
}
