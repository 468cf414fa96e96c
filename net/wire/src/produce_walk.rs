//! Produce requests read without allocating: the broker's hottest decoder.
//!
//! Invariant: a [`ProduceWalk`] exists only for a body that has been read to its end without an
//! error, so no partition is appended before a fault in a later one is seen, and walking cannot
//! fail.

use core::ops::Range;

use bytes::Bytes;

use crate::api::ApiKey;
use crate::error::DecodeError;
use crate::limits::DecodeLimits;
use crate::primitives::{Form, Reader, Uuid, Value, WireString};

/// A Produce request whose partitions are walked rather than collected. It says the same as a
/// decoded [`crate::ProduceRequest`].
#[derive(Debug, Clone)]
pub struct ProduceWalk {
    /// See [`crate::ProduceRequest::transactional_id`].
    pub transactional_id: Option<WireString>,
    /// See [`crate::ProduceRequest::acks`].
    pub acks: i16,
    /// See [`crate::ProduceRequest::timeout_ms`].
    pub timeout_ms: i32,
    partitions_len: usize,
    start: ProducePartitions,
}

/// The batches for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducePartition {
    /// Name of the topic; empty from version 13 on.
    pub topic_name: WireString,
    /// Id of the topic; zero before version 13.
    pub topic_id: Uuid,
    /// Index of the partition.
    pub index: i32,
    /// Whole batches, a slice of the frame; empty for null.
    pub records: Bytes,
}

/// Walks the partitions of a Produce request in their order on the wire.
#[derive(Debug, Clone)]
pub struct ProducePartitions {
    reader: Reader,
    form: Form,
    topics_left: usize,
    partitions_left: usize,
    in_topic: bool,
    topic_name: WireString,
    topic_id: Uuid,
}

impl ProduceWalk {
    /// Reads a body to its end.
    ///
    /// # Errors
    /// As [`crate::Message::decode`] of a [`crate::ProduceRequest`].
    pub fn decode(body: Bytes, version: i16, limits: DecodeLimits) -> Result<Self, DecodeError> {
        let api = ApiKey::Produce;
        let form = api.form(version).ok_or(DecodeError::UnsupportedVersion {
            api_key: api.code(),
            version,
        })?;
        let mut reader = Reader::new(body, limits);
        let transactional_id = Value::read(&mut reader, form, true)?;
        let acks = reader.read_i16()?;
        let timeout_ms = reader.read_i32()?;
        let topics_left = read_array_length(&mut reader, form)?;
        let start = ProducePartitions {
            reader,
            form,
            topics_left,
            partitions_left: 0,
            in_topic: false,
            topic_name: WireString::default(),
            topic_id: Uuid::ZERO,
        };

        let mut walk = start.clone();
        let mut partitions_len = 0;
        while walk.next_partition()?.is_some() {
            partitions_len += 1;
        }
        skip_tagged_fields(&mut walk.reader, form)?;
        walk.reader.finish()?;
        Ok(Self {
            transactional_id,
            acks,
            timeout_ms,
            partitions_len,
            start,
        })
    }

    /// How many partitions [`ProduceWalk::partitions`] gives.
    pub fn partitions_len(&self) -> usize {
        self.partitions_len
    }

    /// The partitions, in their order on the wire.
    pub fn partitions(&self) -> ProducePartitions {
        self.start.clone()
    }
}

impl ProducePartitions {
    /// Index and records of the next partition; `topic_name` and `topic_id` are then its topic's.
    fn next_partition(&mut self) -> Result<Option<(i32, Range<usize>)>, DecodeError> {
        while self.partitions_left == 0 {
            if self.in_topic {
                skip_tagged_fields(&mut self.reader, self.form)?;
                self.in_topic = false;
            }
            if self.topics_left == 0 {
                return Ok(None);
            }
            self.topics_left -= 1;
            self.in_topic = true;
            if self.form.version >= 13 {
                self.topic_id = self.reader.read_uuid()?;
            } else {
                self.topic_name = Value::read(&mut self.reader, self.form, false)?;
            }
            self.partitions_left = read_array_length(&mut self.reader, self.form)?;
        }
        self.partitions_left -= 1;
        let index = self.reader.read_i32()?;
        let records = self.reader.skip_nullable_bytes(self.form.flexible)?;
        skip_tagged_fields(&mut self.reader, self.form)?;
        Ok(Some((index, records.unwrap_or_default())))
    }
}

impl Iterator for ProducePartitions {
    type Item = ProducePartition;

    fn next(&mut self) -> Option<ProducePartition> {
        // By the module's invariant there is no error to lose here.
        let (index, records) = self.next_partition().ok().flatten()?;
        Some(ProducePartition {
            topic_name: self.topic_name.clone(),
            topic_id: self.topic_id,
            index,
            records: self.reader.slice(records),
        })
    }
}

fn read_array_length(reader: &mut Reader, form: Form) -> Result<usize, DecodeError> {
    reader
        .read_array_length(form.flexible, 1)?
        .ok_or(DecodeError::UnexpectedNull)
}

fn skip_tagged_fields(reader: &mut Reader, form: Form) -> Result<(), DecodeError> {
    if form.flexible {
        reader.read_tagged_fields(|_, _| Ok(false))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::api::Message;
    use crate::messages::ProduceRequest;
    use crate::tests::sample::{Fill, Sample, Source};

    const LIMITS: DecodeLimits = DecodeLimits::REQUEST;

    fn assert_says_the_same(body: &Bytes, version: i16) {
        let walked = ProduceWalk::decode(body.clone(), version, LIMITS);
        let decoded = match ProduceRequest::decode(body.clone(), version, LIMITS) {
            Ok(decoded) => decoded,
            Err(error) => {
                assert_eq!(walked.err(), Some(error));
                return;
            }
        };
        let walked = walked.unwrap();
        assert_eq!(walked.transactional_id, decoded.transactional_id);
        assert_eq!(
            (walked.acks, walked.timeout_ms),
            (decoded.acks, decoded.timeout_ms)
        );
        let expected: Vec<ProducePartition> = decoded
            .topic_data
            .iter()
            .flat_map(|topic| {
                topic
                    .partition_data
                    .iter()
                    .map(|partition| ProducePartition {
                        topic_name: topic.name.clone(),
                        topic_id: topic.topic_id,
                        index: partition.index,
                        records: partition.records.to_bytes(),
                    })
            })
            .collect();
        assert_eq!(walked.partitions_len(), expected.len());
        assert_eq!(walked.partitions().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_walk_says_the_same_as_the_decoded_message_also_when_damaged() {
        let mut damage = Source::new(3, Fill::Random);
        for version in 3..=13 {
            for seed in 0..60 {
                let mut source = Source::new(seed, Fill::Random);
                let request = ProduceRequest::sample(&mut source, version, false);
                let body = request.encode(version).unwrap().into_bytes();
                assert_says_the_same(&body, version);
                for _ in 0..24 {
                    let cut = usize::try_from(damage.below(body.len() as u64)).unwrap();
                    assert_says_the_same(&body.slice(..cut), version);
                    let mut changed = body.to_vec();
                    changed[cut] = damage.next() as u8;
                    assert_says_the_same(&changed.into(), version);
                }
            }
        }
    }

    #[test]
    fn versions_that_are_advertised_but_not_built_are_refused() {
        for version in [0, 1, 2, 14] {
            let refused = ProduceWalk::decode(Bytes::new(), version, LIMITS).err();
            let api_key = 0;
            let expected = DecodeError::UnsupportedVersion { api_key, version };
            assert_eq!(refused, Some(expected));
        }
    }
}
