//! Who reads what: the members' blobs and the range assignor.
//!
//! The blobs are those of Kafka's own consumers, so that members of either kind share a group.
//! Sources: Kafka's `ConsumerProtocolSubscription` and `ConsumerProtocolAssignment` (KIP-429), and its
//! range assignor.

use std::collections::BTreeMap;

use bytes::Bytes;
use corelog_wire::{DecodeError, DecodeLimits, EncodeError, Reader, WireString, Writer};

/// Written version of both blobs. Later versions add what the range assignor does not read.
const BLOB_VERSION: i16 = 0;
/// An array element with a string takes at least its length.
const STRING_BYTES_MIN: usize = 2;

/// What a member wants to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// The topics.
    pub topics: Vec<String>,
}

impl Subscription {
    /// The blob for JoinGroup.
    ///
    /// # Errors
    /// A topic name that is too long.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut writer = Writer::body();
        writer.write_i16(BLOB_VERSION);
        writer.write_length(Some(self.topics.len()), false);
        for topic in &self.topics {
            writer.write_nullable_string(Some(topic.as_bytes()), false);
        }
        writer.write_nullable_bytes(None, false);
        Ok(writer.finish()?.into_bytes())
    }

    /// Reads another member's blob; what later versions add is skipped.
    ///
    /// # Errors
    /// Bytes that are no such blob.
    pub fn decode(blob: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(blob, DecodeLimits::RESPONSE);
        reader.read_i16()?;
        let count = reader
            .read_array_length(false, STRING_BYTES_MIN)?
            .unwrap_or(0);
        let mut topics = Vec::new();
        for _ in 0..count {
            topics.push(read_name(&mut reader)?.to_string());
        }
        Ok(Self { topics })
    }
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPartitions {
    /// The topic.
    pub topic: String,
    /// The partitions, rising.
    pub partitions: Vec<i32>,
}

/// What a member reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// By topic.
    pub topics: Vec<TopicPartitions>,
}

impl Assignment {
    /// The blob for SyncGroup.
    ///
    /// # Errors
    /// A topic name that is too long.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut writer = Writer::body();
        writer.write_i16(BLOB_VERSION);
        writer.write_length(Some(self.topics.len()), false);
        for topic in &self.topics {
            writer.write_nullable_string(Some(topic.topic.as_bytes()), false);
            writer.write_length(Some(topic.partitions.len()), false);
            for partition in &topic.partitions {
                writer.write_i32(*partition);
            }
        }
        writer.write_nullable_bytes(None, false);
        Ok(writer.finish()?.into_bytes())
    }

    /// Reads the blob that the leader made. An empty one assigns nothing.
    ///
    /// # Errors
    /// Bytes that are no such blob.
    pub fn decode(blob: Bytes) -> Result<Self, DecodeError> {
        if blob.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(blob, DecodeLimits::RESPONSE);
        reader.read_i16()?;
        let count = reader
            .read_array_length(false, STRING_BYTES_MIN)?
            .unwrap_or(0);
        let mut topics = Vec::new();
        for _ in 0..count {
            let topic = read_name(&mut reader)?.to_string();
            let count = reader.read_array_length(false, 4)?.unwrap_or(0);
            let mut partitions = Vec::new();
            for _ in 0..count {
                partitions.push(reader.read_i32()?);
            }
            topics.push(TopicPartitions { topic, partitions });
        }
        Ok(Self { topics })
    }

    /// Topic and partition of each.
    pub fn partitions(&self) -> impl Iterator<Item = (&str, i32)> {
        self.topics.iter().flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(|partition| (topic.topic.as_str(), *partition))
        })
    }
}

fn read_name(reader: &mut Reader) -> Result<WireString, DecodeError> {
    reader
        .read_nullable_string(false)?
        .ok_or(DecodeError::UnexpectedNull)
}

/// The range assignor: of each topic, the members that want it get neighbouring partitions, the first ones
/// in the order of their ids one more where the count does not divide. Topics that are not known
/// (`partition_count` gives `None`) are left out.
pub fn assign_ranges(
    members: &BTreeMap<String, Subscription>,
    partition_count: impl Fn(&str) -> Option<u32>,
) -> BTreeMap<String, Assignment> {
    let mut readers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (member, subscription) in members {
        for topic in &subscription.topics {
            let of_topic = readers.entry(topic).or_default();
            if of_topic.last() != Some(&member.as_str()) {
                of_topic.push(member);
            }
        }
    }
    let mut assignments: BTreeMap<String, Assignment> = members
        .keys()
        .map(|member| (member.clone(), Assignment::default()))
        .collect();
    for (topic, members) in readers {
        let Some(count) = partition_count(topic) else {
            continue;
        };
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let member_count = i32::try_from(members.len()).unwrap_or(i32::MAX);
        let (each, one_more) = (count / member_count, count % member_count);
        let mut next = 0;
        for (index, member) in (0_i32..).zip(members) {
            let end = next + each + i32::from(index < one_more);
            let partitions: Vec<i32> = (next..end).collect();
            next = end;
            if let (Some(assignment), false) = (assignments.get_mut(member), partitions.is_empty())
            {
                assignment.topics.push(TopicPartitions {
                    topic: topic.to_owned(),
                    partitions,
                });
            }
        }
    }
    assignments
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use proptest::prelude::*;

    use super::*;

    fn members(topics_of: &[&[&str]]) -> BTreeMap<String, Subscription> {
        let subscription = |topics: &&[&str]| Subscription {
            topics: topics.iter().map(ToString::to_string).collect(),
        };
        (0..)
            .zip(topics_of)
            .map(|(index, topics): (u32, _)| (format!("m{index}"), subscription(topics)))
            .collect()
    }

    #[test]
    fn the_first_members_get_one_more_where_the_count_does_not_divide() {
        let assigned = assign_ranges(&members(&[&["t"], &["t"], &["t"]]), |_| Some(7));
        let counts: Vec<usize> = assigned
            .values()
            .map(|assignment| assignment.partitions().count())
            .collect();
        assert_eq!(counts, [3, 2, 2]);
        assert_eq!(assigned["m1"].topics[0].partitions, [3, 4]);
    }

    #[test]
    fn a_member_gets_only_topics_that_it_wants_and_that_exist() {
        let assigned = assign_ranges(&members(&[&["a", "gone"], &["b"]]), |topic| {
            (topic != "gone").then_some(2)
        });
        assert_eq!(
            assigned["m0"].partitions().collect::<Vec<_>>(),
            [("a", 0), ("a", 1)]
        );
        assert_eq!(
            assigned["m1"].partitions().collect::<Vec<_>>(),
            [("b", 0), ("b", 1)]
        );
    }

    #[test]
    fn a_subscription_of_a_later_version_is_read_up_to_what_is_known() {
        let mut blob = Subscription {
            topics: vec!["t".into()],
        }
        .encode()
        .unwrap()
        .to_vec();
        blob[1] = 3;
        blob.extend([0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(Subscription::decode(blob.into()).unwrap().topics, ["t"]);
    }

    proptest! {
        #[test]
        fn every_partition_goes_to_exactly_one_member(members_count in 1..20_usize, partitions in 0..200_u32) {
            let topics: Vec<&[&str]> = vec![&["t"]; members_count];
            let assigned = assign_ranges(&members(&topics), |_| Some(partitions));
            let mut all: Vec<i32> = assigned
                .values()
                .flat_map(|assignment| assignment.partitions().map(|(_, partition)| partition))
                .collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..partitions as i32).collect::<Vec<_>>());
        }

        #[test]
        fn blobs_of_others_never_panic(blob in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Subscription::decode(blob.clone().into());
            let _ = Assignment::decode(blob.into());
        }

        #[test]
        fn an_assignment_is_read_as_it_was_written(partitions in proptest::collection::vec(any::<i32>(), 0..50)) {
            let assignment = Assignment {
                topics: vec![TopicPartitions { topic: "t".into(), partitions }],
            };
            prop_assert_eq!(Assignment::decode(assignment.encode().unwrap()).unwrap(), assignment);
        }
    }
}
