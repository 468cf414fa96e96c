//! Every message at every version comes back as it was written, and no cut of it is accepted.

use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;

use super::MessageVisitor;
use super::sample::{Fill, Sample, Source};
use crate::api::{API_VERSIONS, ApiKey, Message, for_each_message};
use crate::error::DecodeError;
use crate::limits::DecodeLimits;

const LIMITS: DecodeLimits = DecodeLimits::REQUEST;

/// Samples of each kind; random ones several times.
fn samples<M: Sample>(version: i16) -> impl Iterator<Item = M> {
    let fixed = [Fill::Null, Fill::Empty, Fill::Full].map(|fill| (fill, 1));
    let random = (0..24).map(|seed| (Fill::Random, seed));
    fixed
        .into_iter()
        .chain(random)
        .map(move |(fill, seed)| M::sample(&mut Source::new(seed, fill), version, false))
}

struct RoundTrip {
    seen: BTreeSet<(ApiKey, i16, bool)>,
}

impl MessageVisitor for RoundTrip {
    fn visit<M: Message + Sample + Debug + PartialEq + Clone>(
        &mut self,
        version: i16,
        request: bool,
    ) {
        self.seen.insert((M::API, version, request));
        for message in samples::<M>(version) {
            let encoded = message.encode(version).unwrap();
            let bytes_len = encoded.bytes_len();
            let bytes = encoded.into_bytes();
            assert_eq!(bytes.len(), bytes_len);
            let back = M::decode(bytes.clone(), version, LIMITS);
            assert_eq!(back.as_ref(), Ok(&message), "{:?} v{version}", M::API);
            let again = back.unwrap().encode(version).unwrap().into_bytes();
            assert_eq!(again, bytes, "{:?} v{version}", M::API);
        }
    }
}

#[test]
fn every_message_survives_a_round_trip_at_every_version() {
    let mut round_trip = RoundTrip {
        seen: BTreeSet::new(),
    };
    for_each_message(&mut round_trip);
    let versions: usize = API_VERSIONS
        .iter()
        .map(|range| usize::try_from(range.max - range.built_min + 1).unwrap())
        .sum();
    assert_eq!(round_trip.seen.len(), versions * 2);
}

struct Truncation;

impl MessageVisitor for Truncation {
    fn visit<M: Message + Sample + Debug + PartialEq + Clone>(&mut self, version: i16, _: bool) {
        for message in samples::<M>(version).take(9) {
            let bytes = message.encode(version).unwrap().into_bytes();
            for length in 0..bytes.len() {
                let cut = M::decode(bytes.slice(..length), version, LIMITS);
                assert!(cut.is_err(), "{:?} v{version} cut at {length}", M::API);
            }
            let longer: Bytes = [&bytes[..], &[0]].concat().into();
            assert_eq!(
                M::decode(longer, version, LIMITS),
                Err(DecodeError::TrailingBytes(1))
            );
        }
    }
}

#[test]
fn every_truncation_and_every_extension_is_refused() {
    for_each_message(&mut Truncation);
}

struct Mutation;

impl MessageVisitor for Mutation {
    fn visit<M: Message + Sample + Debug + PartialEq + Clone>(&mut self, version: i16, _: bool) {
        let mut source = Source::new(7, Fill::Random);
        for message in samples::<M>(version) {
            let bytes = message.encode(version).unwrap().into_bytes();
            if bytes.is_empty() {
                continue;
            }
            for _ in 0..32 {
                let mut changed = bytes.to_vec();
                for _ in 0..=source.below(3) {
                    let at = usize::try_from(source.below(bytes.len() as u64)).unwrap();
                    changed[at] = [0x00, 0xff, 0x7f, 0x80, source.next() as u8]
                        [usize::try_from(source.below(5)).unwrap()];
                }
                if let Ok(accepted) = M::decode(changed.into(), version, LIMITS) {
                    let encoded = accepted.encode(version).unwrap().into_bytes();
                    assert_eq!(M::decode(encoded, version, LIMITS), Ok(accepted));
                }
            }
        }
    }
}

#[test]
fn what_is_accepted_from_damaged_bytes_still_survives_a_round_trip() {
    for_each_message(&mut Mutation);
}

#[test]
fn versions_outside_the_built_range_are_refused_both_ways() {
    struct Outside;
    impl MessageVisitor for Outside {
        fn visit<M: Message + Sample + Debug + PartialEq + Clone>(&mut self, _: i16, _: bool) {
            let range = M::API.versions();
            for version in [i16::MIN, -1, range.built_min - 1, range.max + 1, i16::MAX] {
                if range.built_min <= version && version <= range.max {
                    continue;
                }
                assert!(M::default().encode(version).is_err());
                let decoded = M::decode(Bytes::from_static(&[0; 64]), version, LIMITS);
                let api_key = M::API.code();
                assert_eq!(
                    decoded,
                    Err(DecodeError::UnsupportedVersion { api_key, version })
                );
            }
        }
    }
    for_each_message(&mut Outside);
}
