//! What consumers put into a group's opaque fields: subscriptions and assignments (Kafka's
//! `ConsumerProtocolSubscription` and `ConsumerProtocolAssignment`), and the two assignors that every
//! Kafka client has.
//!
//! HTTP members speak it so that a group may hold HTTP and Kafka consumers together: any of them may be
//! elected to assign, and each understands what it is given.
//!
//! Invariants:
//!
//! 1. No count is reserved before the bytes that remain could hold it.
//! 2. Every partition of a subscribed topic is given to exactly one of its subscribers; every member gets
//!    an assignment, maybe an empty one.
//! 3. Equal inputs give equal assignments, whatever the order of the members.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// The version written: the oldest, which every client reads.
const VERSION: i16 = 0;

/// Bytes that are no subscription or assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError;

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes are not of Kafka's consumer protocol")
    }
}

impl std::error::Error for ProtocolError {}

/// Partitions by topic.
pub type Assignment = BTreeMap<String, Vec<u32>>;

/// A subscription to `topics`, as a member's metadata.
///
/// # Panics
///
/// If a topic's name is longer than `i16::MAX`, which no checked name is.
pub fn encode_subscription<'t>(topics: impl ExactSizeIterator<Item = &'t str>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(VERSION);
    put_count(&mut out, topics.len());
    for topic in topics {
        put_string(&mut out, topic);
    }
    out.put_i32(-1);
    out.freeze()
}

/// The topics of a subscription of any version; user data and what later versions add is not read.
///
/// # Errors
///
/// [`ProtocolError`].
pub fn decode_subscription(mut bytes: &[u8]) -> Result<BTreeSet<String>, ProtocolError> {
    check_version(&mut bytes)?;
    let count = take_count(&mut bytes, 2)?;
    (0..count).map(|_| take_string(&mut bytes)).collect()
}

/// An assignment, as given to a member by its group's leader.
///
/// # Panics
///
/// As [`encode_subscription`]; and if a partition is above `i32::MAX`, which no topic has.
pub fn encode_assignment(assignment: &Assignment) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(VERSION);
    put_count(&mut out, assignment.len());
    for (topic, partitions) in assignment {
        put_string(&mut out, topic);
        put_count(&mut out, partitions.len());
        for &partition in partitions {
            assert!(
                partition <= i32::MAX as u32,
                "a partition fits its wire field"
            );
            out.put_u32(partition);
        }
    }
    out.put_i32(-1);
    out.freeze()
}

/// An assignment of any version. No bytes at all mean an empty one: that is what a leader gives to a
/// member that it passes over.
///
/// # Errors
///
/// [`ProtocolError`], also for a topic that stands twice.
pub fn decode_assignment(mut bytes: &[u8]) -> Result<Assignment, ProtocolError> {
    if bytes.is_empty() {
        return Ok(Assignment::new());
    }
    check_version(&mut bytes)?;
    let topics = take_count(&mut bytes, 6)?;
    let mut assignment = Assignment::new();
    for _ in 0..topics {
        let topic = take_string(&mut bytes)?;
        let count = take_count(&mut bytes, 4)?;
        let partitions = (0..count)
            .map(|_| u32::try_from(take_i32(&mut bytes)?).map_err(|_| ProtocolError))
            .collect::<Result<Vec<u32>, ProtocolError>>()?;
        if assignment.insert(topic, partitions).is_some() {
            return Err(ProtocolError);
        }
    }
    Ok(assignment)
}

fn put_count(out: &mut BytesMut, count: usize) {
    let count = i32::try_from(count);
    assert!(count.is_ok(), "a count fits its wire field");
    out.put_i32(count.unwrap_or_default());
}

fn put_string(out: &mut BytesMut, text: &str) {
    let length = i16::try_from(text.len());
    assert!(length.is_ok(), "a topic's name fits its wire field");
    out.put_i16(length.unwrap_or_default());
    out.put_slice(text.as_bytes());
}

fn check_version(bytes: &mut &[u8]) -> Result<(), ProtocolError> {
    let version = i16::from_be_bytes(take(bytes)?);
    if version < 0 {
        Err(ProtocolError)
    } else {
        Ok(())
    }
}

fn take_i32(bytes: &mut &[u8]) -> Result<i32, ProtocolError> {
    take(bytes).map(i32::from_be_bytes)
}

/// A count of elements that take at least `element_bytes_min` each (invariant 1).
fn take_count(bytes: &mut &[u8], element_bytes_min: usize) -> Result<usize, ProtocolError> {
    let count = usize::try_from(take_i32(bytes)?).map_err(|_| ProtocolError)?;
    if count > bytes.len() / element_bytes_min {
        return Err(ProtocolError);
    }
    Ok(count)
}

fn take_string(bytes: &mut &[u8]) -> Result<String, ProtocolError> {
    let length = usize::try_from(i16::from_be_bytes(take(bytes)?)).map_err(|_| ProtocolError)?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(ProtocolError)?;
    *bytes = rest;
    str::from_utf8(text)
        .map(str::to_owned)
        .map_err(|_| ProtocolError)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], ProtocolError> {
    let (taken, rest) = bytes.split_first_chunk::<N>().ok_or(ProtocolError)?;
    *bytes = rest;
    Ok(*taken)
}

/// How partitions are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Topic by topic, a stretch of neighbouring partitions to each subscriber.
    Range,
    /// One partition of all topics after another, around the members.
    RoundRobin,
}

impl Assignor {
    /// What an HTTP member offers, in its order of preference.
    pub const ALL: [Self; 2] = [Self::Range, Self::RoundRobin];

    /// Its name as a group protocol, the same in all Kafka clients.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
        }
    }

    /// The assignor of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|assignor| assignor.name() == name)
    }

    /// Shares out the partitions among `members`, one assignment for each, in their order. Topics that
    /// `partition_count` does not know are passed over, as Kafka's assignors do.
    pub fn assign(
        self,
        members: &[Subscriber],
        partition_count: impl Fn(&str) -> Option<u32>,
    ) -> Vec<Assignment> {
        let mut order: Vec<usize> = (0..members.len()).collect();
        // Static members first, then by id: a returned static member finds its old place (KIP-345).
        order.sort_by_key(|&index| {
            let member = &members[index];
            let is_dynamic = member.instance_id.is_none();
            (
                is_dynamic,
                member.instance_id.clone(),
                member.member_id.clone(),
            )
        });
        let topics: BTreeSet<&String> = members.iter().flat_map(|member| &member.topics).collect();
        let mut assignments = vec![Assignment::new(); members.len()];
        let mut turn = 0;
        for topic in topics {
            let Some(count) = partition_count(topic) else {
                continue;
            };
            let subscribers: Vec<usize> = order
                .iter()
                .copied()
                .filter(|&index| members[index].topics.contains(topic))
                .collect();
            match self {
                Self::Range => {
                    let mut next = 0;
                    for (place, &index) in (0..).zip(&subscribers) {
                        let end = next + range_share(count, subscribers.len(), place);
                        if end > next {
                            assignments[index].insert(topic.clone(), (next..end).collect());
                        }
                        next = end;
                    }
                }
                Self::RoundRobin => {
                    for partition in 0..count {
                        // Some member subscribes to the topic, so this ends.
                        while !members[order[turn % order.len()]].topics.contains(topic) {
                            turn += 1;
                        }
                        let index = order[turn % order.len()];
                        let partitions = assignments[index].entry(topic.clone()).or_default();
                        partitions.push(partition);
                        turn += 1;
                    }
                }
            }
        }
        assignments
    }
}

/// Partitions of the subscriber at `place` among `subscribers`: the first ones take what is left over.
fn range_share(count: u32, subscribers: usize, place: usize) -> u32 {
    let (count, subscribers) = (count as usize, subscribers.max(1));
    let share = count / subscribers + usize::from(place < count % subscribers);
    u32::try_from(share).unwrap_or(u32::MAX)
}

/// A member as an assignor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Its id.
    pub member_id: String,
    /// Its static id, if it has one.
    pub instance_id: Option<String>,
    /// What it subscribes to.
    pub topics: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use proptest::prelude::*;

    use super::*;

    fn subscriber(member_id: &str, topics: &[&str]) -> Subscriber {
        Subscriber {
            member_id: member_id.into(),
            instance_id: None,
            topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
        }
    }

    fn of(pairs: &[(&str, &[u32])]) -> Assignment {
        pairs
            .iter()
            .map(|&(topic, partitions)| (topic.to_owned(), partitions.to_vec()))
            .collect()
    }

    #[test]
    fn a_subscription_has_the_bytes_of_version_0() {
        let bytes = encode_subscription(["ab", "c"].into_iter());
        let expected = b"\0\0\0\0\0\x02\0\x02ab\0\x01c\xff\xff\xff\xff";
        assert_eq!(&bytes[..], expected);
        let topics = decode_subscription(&bytes).unwrap();
        assert_eq!(topics, BTreeSet::from(["ab".to_owned(), "c".to_owned()]));
    }

    #[test]
    fn later_versions_of_a_subscription_are_read() {
        // Version 1 as a Java client sends it: user data null, one owned partition list.
        let bytes = b"\0\x01\0\0\0\x01\0\x01t\xff\xff\xff\xff\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0";
        assert_eq!(
            decode_subscription(bytes).unwrap(),
            BTreeSet::from(["t".to_owned()])
        );
    }

    #[test]
    fn an_assignment_has_the_bytes_of_version_0() {
        let assignment = of(&[("t", &[0, 2])]);
        let bytes = encode_assignment(&assignment);
        let expected = b"\0\0\0\0\0\x01\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x02\xff\xff\xff\xff";
        assert_eq!(&bytes[..], expected);
        assert_eq!(decode_assignment(&bytes), Ok(assignment));
        assert_eq!(decode_assignment(&[]), Ok(Assignment::new()));
    }

    #[test]
    fn counts_that_the_bytes_cannot_hold_are_refused() {
        for bytes in [
            &b"\0"[..],
            b"\0\0",
            b"\xff\xff\0\0\0\0",
            b"\0\0\x7f\xff\xff\xff",
            b"\0\0\xff\xff\xff\xff",
            b"\0\0\0\0\0\x01\0\x05ab",
            b"\0\0\0\0\0\x01\xff\xffab",
            b"\0\0\0\0\0\x01\0\x02\xff\xfe",
        ] {
            assert_eq!(decode_subscription(bytes), Err(ProtocolError), "{bytes:?}");
            assert_eq!(decode_assignment(bytes), Err(ProtocolError), "{bytes:?}");
        }
        let many = b"\0\0\0\0\0\x01\0\x01t\x7f\xff\xff\xff";
        assert_eq!(decode_assignment(many), Err(ProtocolError));
    }

    #[test]
    fn range_gives_stretches_and_the_rest_to_the_first() {
        let members = [
            subscriber("b", &["t"]),
            subscriber("a", &["t"]),
            subscriber("c", &["t"]),
        ];
        let assignments = Assignor::Range.assign(&members, |_| Some(7));
        assert_eq!(assignments[1], of(&[("t", &[0, 1, 2])]));
        assert_eq!(assignments[0], of(&[("t", &[3, 4])]));
        assert_eq!(assignments[2], of(&[("t", &[5, 6])]));
    }

    #[test]
    fn members_without_a_share_and_unknown_topics_have_empty_assignments() {
        let members = [
            subscriber("a", &["t", "gone"]),
            subscriber("b", &["t"]),
            subscriber("c", &[]),
        ];
        let count = |topic: &str| (topic == "t").then_some(1);
        for assignor in Assignor::ALL {
            let assignments = assignor.assign(&members, count);
            assert_eq!(assignments, [of(&[("t", &[0])]), of(&[]), of(&[])]);
            assert!(assignor.assign(&[], count).is_empty());
        }
    }

    #[test]
    fn static_members_come_first_so_that_a_restart_moves_nothing() {
        let mut members = [subscriber("a", &["t"]), subscriber("z", &["t"])];
        members[1].instance_id = Some("i".into());
        let before = Assignor::Range.assign(&members, |_| Some(3));
        assert_eq!(before[1], of(&[("t", &[0, 1])]));
        members[1].member_id = "0".into();
        assert_eq!(Assignor::Range.assign(&members, |_| Some(3)), before);
    }

    #[test]
    fn round_robin_goes_on_around_the_members_from_topic_to_topic() {
        let members = [subscriber("a", &["s", "t"]), subscriber("b", &["s", "t"])];
        let assignments = Assignor::RoundRobin.assign(&members, |_| Some(3));
        assert_eq!(assignments[0], of(&[("s", &[0, 2]), ("t", &[1])]));
        assert_eq!(assignments[1], of(&[("s", &[1]), ("t", &[0, 2])]));
    }

    proptest! {
        #[test]
        fn every_partition_has_exactly_one_subscriber(
            subscriptions in proptest::collection::vec(proptest::collection::btree_set("[abc]", 0..3), 0..6),
            count in 0_u32..20,
        ) {
            let members: Vec<Subscriber> = subscriptions
                .iter()
                .enumerate()
                .map(|(index, topics)| Subscriber { member_id: format!("{index}"), instance_id: None, topics: topics.clone() })
                .collect();
            for assignor in Assignor::ALL {
                let assignments = assignor.assign(&members, |_| Some(count));
                let mut given = Vec::new();
                for (member, assignment) in members.iter().zip(&assignments) {
                    for (topic, partitions) in assignment {
                        prop_assert!(member.topics.contains(topic));
                        given.extend(partitions.iter().map(|&partition| (topic.clone(), partition)));
                    }
                }
                given.sort();
                let topics: BTreeSet<String> = subscriptions.iter().flatten().cloned().collect();
                let all: Vec<(String, u32)> = topics.iter().flat_map(|topic| (0..count).map(|p| (topic.clone(), p))).collect();
                prop_assert_eq!(given, all);
                let mut reversed = members.clone();
                reversed.reverse();
                let mut again = assignor.assign(&reversed, |_| Some(count));
                again.reverse();
                prop_assert_eq!(again, assignments);
            }
        }

        #[test]
        fn what_is_written_is_read(topics in proptest::collection::btree_map("[a-z]{1,5}", proptest::collection::vec(0..i32::MAX as u32, 0..5), 0..5)) {
            prop_assert_eq!(decode_assignment(&encode_assignment(&topics)), Ok(topics.clone()));
            let names: BTreeSet<String> = topics.keys().cloned().collect();
            let bytes = encode_subscription(topics.keys().map(String::as_str));
            prop_assert_eq!(decode_subscription(&bytes), Ok(names));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_subscription(&bytes);
            let _ = decode_assignment(&bytes);
        }
    }
}
