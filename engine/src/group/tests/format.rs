//! The record format, and hostile bytes in it.

use proptest::prelude::*;

use super::super::record::{Key, RecordedGroup, RecordedMember, StoredOffset};
use super::*;
use crate::identity::LeaderEpoch;

fn sample() -> RecordedGroup {
    RecordedGroup {
        generation: Generation(300),
        protocol_type: "consumer".to_string(),
        protocol: "range".to_string(),
        leader: Some("a".to_string()),
        empty_since_ms: None,
        members: vec![RecordedMember {
            member_id: "a".to_string(),
            instance_id: Some("i".to_string()),
            client_id: "c".to_string(),
            client_host: "h".to_string(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: u32::MAX,
            protocols: vec![("range".to_string(), Bytes::from_static(b"metadata"))],
            assignment: Bytes::from_static(b"assignment"),
        }],
    }
}

#[test]
fn records_read_back_as_written() {
    assert_eq!(RecordedGroup::decode(&sample().encode()).unwrap(), sample());
    let empty = RecordedGroup {
        empty_since_ms: Some(0),
        ..RecordedGroup::default()
    };
    assert_eq!(RecordedGroup::decode(&empty.encode()).unwrap(), empty);
    let stored = StoredOffset {
        offset: Offset(i64::MAX as u64),
        leader_epoch: Some(LeaderEpoch(0)),
        metadata: "note".to_string(),
        commit_time_ms: u64::MAX,
    };
    assert_eq!(StoredOffset::decode(&stored.encode()).unwrap(), stored);
    let keys = [
        Key::Group("g".to_string()),
        Key::Offset("g".to_string(), partition(3, u32::MAX)),
        Key::Generation(String::new()),
        Key::Topic(topic_id(9)),
        Key::SnapshotBegin,
        Key::SnapshotEnd,
    ];
    for key in keys {
        for copy in [false, true] {
            assert_eq!(Key::decode(&key.encode(copy)).unwrap(), (key.clone(), copy));
        }
    }
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut world = World::new();
    world.coordinator = Coordinator::new(world.settings.clone(), world.now);
    let key = Key::Group("g".to_string()).encode(false);
    let mut value = sample().encode().to_vec();
    value[1] = 2;
    let refused = world
        .coordinator
        .replay(&key, Some(&value.into()))
        .unwrap_err();
    let newer = ReplayError::Newer {
        what: "group record",
        version: 2,
    };
    assert_eq!(refused, newer);
    assert!(refused.to_string().contains("group record of version 2"));
    let mut key = key.to_vec();
    key[1] = 7;
    let refused = world.coordinator.replay(&key.into(), None).unwrap_err();
    assert!(matches!(refused, ReplayError::Newer { version: 7, .. }));
}

#[test]
fn a_record_cut_short_anywhere_is_refused() {
    let bytes = sample().encode();
    for end in 0..bytes.len() {
        assert!(RecordedGroup::decode(&bytes.slice(..end)).is_err(), "{end}");
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(RecordedGroup::decode(&longer.into()).is_err());
}

#[test]
fn a_count_beyond_the_record_is_refused_before_room_is_made() {
    let mut bytes = vec![0xC8, 1, 1, 0, 0, 0, 0];
    bytes.extend_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
    assert!(RecordedGroup::decode(&bytes.into()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_bytes_never_break_a_reader(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        place in 0_usize..100,
        flip in 1_u8..,
    ) {
        let mut valid = sample().encode().to_vec();
        let at = place % valid.len();
        valid[at] ^= flip;
        let _flipped = RecordedGroup::decode(&valid.into());
        let _random = Key::decode(&bytes.clone().into());
        if bytes.len() > 2 {
            bytes[0] = 0xC8;
            bytes[1] = 1;
        }
        let bytes = Bytes::from(bytes);
        let _group = RecordedGroup::decode(&bytes);
        let _offset = StoredOffset::decode(&bytes);
    }
}
