//! The primitive types by themselves.

use bytes::Bytes;
use proptest::prelude::*;

use crate::api::{API_VERSIONS, AnyRequest, AnyResponse, ApiKey};
use crate::error::{DecodeError, EncodeError};
use crate::frame::{FrameError, HeaderError, decode_request_header, frame_length, take_frame};
use crate::limits::DecodeLimits;
use crate::messages::*;
use crate::primitives::{Reader, Records, WireString, Writer};
use crate::{Message, frame};

const LIMITS: DecodeLimits = DecodeLimits::REQUEST;

fn reader(bytes: &[u8]) -> Reader {
    Reader::new(Bytes::copy_from_slice(bytes), LIMITS)
}

proptest! {
    #[test]
    fn variable_length_integers_survive_a_round_trip(
        unsigned in any::<u32>(), int in any::<i32>(), long in any::<i64>(), shift in 0..63,
    ) {
        let mut writer = Writer::body();
        writer.write_uvarint(unsigned >> (shift / 2));
        writer.write_varint(int >> (shift / 2));
        writer.write_varlong(long >> shift);
        let mut reader = Reader::new(writer.finish().unwrap().into_bytes(), LIMITS);
        prop_assert_eq!(reader.read_uvarint(), Ok(unsigned >> (shift / 2)));
        prop_assert_eq!(reader.read_varint(), Ok(int >> (shift / 2)));
        prop_assert_eq!(reader.read_varlong(), Ok(long >> shift));
        prop_assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), api in 0..API_VERSIONS.len(),
        version in -1_i16..20,
    ) {
        let api = API_VERSIONS[api].api;
        let bytes = Bytes::from(bytes);
        let _ = decode_request_header(bytes.clone(), LIMITS);
        let _ = AnyRequest::decode(api, version, bytes.clone(), LIMITS);
        if let Ok(response) = AnyResponse::decode(api, version, bytes, LIMITS) {
            let encoded = frame::encode_any_response(1, version, &response);
            prop_assert!(encoded.is_ok());
        }
    }
}

#[test]
fn overlong_variable_length_integers_are_refused() {
    let overflow = Err(DecodeError::VarintOverflow);
    assert_eq!(
        reader(&[0xff, 0xff, 0xff, 0xff, 0x0f]).read_uvarint(),
        Ok(u32::MAX)
    );
    assert_eq!(
        reader(&[0xff, 0xff, 0xff, 0xff, 0x1f]).read_uvarint(),
        overflow
    );
    assert_eq!(
        reader(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]).read_uvarint(),
        overflow
    );
    assert_eq!(
        reader(&[0xff; 10]).read_varlong(),
        Err(DecodeError::VarintOverflow)
    );
    assert_eq!(
        reader(&[0x80]).read_uvarint(),
        Err(DecodeError::Truncated {
            needed: 1,
            remaining: 0
        })
    );
}

#[test]
fn lengths_below_minus_one_are_refused() {
    assert_eq!(
        reader(&[0xff, 0xfe]).read_nullable_string(false),
        Err(DecodeError::NegativeLength(-2))
    );
    let array = reader(&[0x80, 0, 0, 0]).read_array_length(false, 1);
    assert_eq!(array, Err(DecodeError::NegativeLength(i64::from(i32::MIN))));
}

#[test]
fn strings_are_slices_of_the_frame_and_checked() {
    let frame = Bytes::from_static(b"\x00\x02ab\x00\x01\xff");
    let mut reader = Reader::new(frame.clone(), LIMITS);
    let text = reader.read_nullable_string(false).unwrap().unwrap();
    assert_eq!(text, "ab");
    assert_eq!(text.as_bytes().as_ptr(), frame[2..].as_ptr());
    assert_ne!(text.detached().as_bytes().as_ptr(), frame[2..].as_ptr());
    assert_eq!(
        reader.read_nullable_string(false),
        Err(DecodeError::InvalidUtf8)
    );
}

#[test]
fn strings_beyond_their_length_field_are_refused_when_written() {
    let request = FindCoordinatorRequest {
        key: WireString::from("k".repeat(40_000)),
        ..Default::default()
    };
    let refused = request.encode(1).unwrap_err();
    assert_eq!(refused, EncodeError::StringTooLong { bytes: 40_000 });
}

#[test]
fn arrays_are_charged_to_one_budget_for_the_whole_message() {
    let limits = DecodeLimits {
        array_elements_max: 8,
        elements_total_max: 10,
        tagged_fields_max: 2,
    };
    let mut reader = Reader::new(
        Bytes::from_static(&[0, 0, 0, 6, 0, 0, 0, 6, 1, 1, 1, 1, 1, 1]),
        limits,
    );
    assert_eq!(reader.read_array_length(false, 1), Ok(Some(6)));
    let spent = Err(DecodeError::TooManyElements { elements_max: 10 });
    assert_eq!(reader.read_array_length(false, 1), spent);
    let mut reader = Reader::new(
        Bytes::from_static(&[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        limits,
    );
    let long = DecodeError::ArrayTooLong {
        elements: 9,
        elements_max: 8,
    };
    assert_eq!(reader.read_array_length(false, 1), Err(long));
    let mut reader = Reader::new(Bytes::from_static(&[3, 0, 0, 1, 0, 2, 0]), limits);
    let flood = DecodeError::TooManyTaggedFields {
        fields: 3,
        fields_max: 2,
    };
    assert_eq!(reader.read_tagged_fields(|_, _| Ok(false)), Err(flood));
}

#[test]
fn records_are_neither_copied_when_decoded_nor_when_encoded() {
    let pieces = [
        Bytes::from(vec![1; 100]),
        Bytes::from(vec![2; 50]),
        Bytes::from(vec![3; 10]),
    ];
    let partition = |records: Records| FetchPartitionData {
        records,
        ..Default::default()
    };
    let response = FetchResponse {
        responses: vec![FetchableTopicResponse {
            partitions: vec![
                partition(Records::from(pieces[..2].to_vec())),
                partition(Records::Empty),
                partition(Records::from(pieces[2].clone())),
            ],
            ..Default::default()
        }],
        ..Default::default()
    };
    let encoded = frame::encode_response(1, 12, &response).unwrap();
    let sent: Vec<_> = encoded
        .chunks()
        .iter()
        .map(|chunk| chunk.as_ptr())
        .collect();
    for piece in &pieces {
        assert!(sent.contains(&piece.as_ptr()));
    }
    assert_eq!(
        encoded.chunks().len(),
        6,
        "text, two pieces, text, a piece, text"
    );
    let frame = encoded.into_bytes().slice(4..);
    let range = frame.as_ptr_range();
    let (_, back) = frame::decode_response::<FetchRequest>(frame, 12, LIMITS).unwrap();
    assert_eq!(back, response);
    for partition in &back.responses[0].partitions {
        let mut received = partition.records.pieces().iter();
        assert!(received.all(|piece| range.contains(&piece.as_ptr())));
    }
}

#[test]
fn frames_are_taken_whole_and_bounded_before_they_arrive() {
    let mut received = bytes::BytesMut::from(&[0, 0, 0, 2, 8, 9, 0, 0][..]);
    assert_eq!(
        take_frame(&mut received, 2),
        Ok(Some(Bytes::from_static(&[8, 9])))
    );
    assert_eq!(take_frame(&mut received, 2), Ok(None));
    received.extend_from_slice(&[0, 3]);
    let too_long = FrameError::TooLong {
        bytes: 3,
        bytes_max: 2,
    };
    assert_eq!(take_frame(&mut received, 2), Err(too_long));
    assert_eq!(take_frame(&mut received, 3), Ok(None));
    assert_eq!(
        frame_length([0xff; 4], 9),
        Err(FrameError::NegativeLength(-1))
    );
}

#[test]
fn headers_of_what_is_not_built_are_refused_by_name() {
    let decode = |bytes: &'static [u8]| decode_request_header(Bytes::from_static(bytes), LIMITS);
    let unsupported = |api, version| HeaderError::UnsupportedVersion {
        api,
        version,
        correlation_id: 7,
    };
    assert_eq!(
        decode(&[0, 18, 0, 99, 0, 0, 0, 7]),
        Err(unsupported(ApiKey::ApiVersions, 99))
    );
    assert_eq!(
        decode(&[0, 0, 0, 2, 0, 0, 0, 7]),
        Err(unsupported(ApiKey::Produce, 2))
    );
    let unknown = HeaderError::UnknownApiKey {
        api_key: 4,
        correlation_id: 7,
    };
    assert_eq!(decode(&[0, 4, 0, 0, 0, 0, 0, 7]), Err(unknown));
    assert!(matches!(
        decode(&[0, 18, 0]),
        Err(HeaderError::Malformed(_))
    ));
}

#[test]
fn only_produce_is_advertised_below_what_is_built() {
    for range in API_VERSIONS {
        assert_eq!(ApiKey::from_code(range.api.code()), Some(range.api));
        assert_eq!(range.api.versions(), *range);
        assert!(range.built_min <= range.max && !range.api.is_built(range.max + 1));
        let below = range.advertised_min < range.built_min;
        assert_eq!(below, range.api == ApiKey::Produce);
    }
    let served = ApiVersionsResponse::advertising(|api| api == ApiKey::Produce);
    let produce = ApiVersion {
        api_key: 0,
        min_version: 0,
        max_version: 13,
    };
    assert_eq!(served.api_keys, [produce]);
}
