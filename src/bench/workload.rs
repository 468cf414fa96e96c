//! What is published: batches that are built once for each partition and get new headers for each use.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;

use corelog_client::batch::{BatchBuilder, BatchOptions, BuildError, partition_for_key};
use corelog_client::core::{PreparedBatch, Stamp};
use corelog_client::wire::Records;

use crate::failure::Failure;

/// Batches that several producers may share; all of them run on one thread.
pub type SharedBatches = Rc<RefCell<PartitionBatches>>;

/// The batches of each of `partitions`, without those to which no key belongs.
pub fn batches_of_partitions(
    partitions: NonZeroU32,
    keys: u64,
    record_bytes: usize,
    batch_bytes_max: usize,
) -> Result<Vec<(i32, SharedBatches)>, Failure> {
    let count = i32::try_from(partitions.get()).unwrap_or(i32::MAX);
    let mut all = Vec::new();
    let mut shared: Option<SharedBatches> = None;
    for partition in 0..count {
        if let Some(shared) = &shared {
            all.push((partition, Rc::clone(shared)));
            continue;
        }
        let batches =
            PartitionBatches::new(partition, partitions, keys, record_bytes, batch_bytes_max)?;
        let Some(batches) = batches else { continue };
        let batches = Rc::new(RefCell::new(batches));
        if keys == 0 {
            shared = Some(Rc::clone(&batches));
        }
        all.push((partition, batches));
    }
    Ok(all)
}

/// No producer id, epoch or sequence.
pub const ANONYMOUS: (i64, i16) = (-1, -1);

/// Batches by their number of records: entry k holds k + 1 records.
#[derive(Debug)]
pub struct PartitionBatches {
    keys: Vec<Vec<u8>>,
    record_bytes: usize,
    batch_bytes_max: usize,
    by_records: Vec<Option<Rc<PreparedBatch>>>,
}

impl PartitionBatches {
    /// Batches of records with `record_bytes` random bytes as value. `keys`: how many different keys there
    /// are in the topic, 0 for none. `None`: none of the keys belongs to this partition.
    pub fn new(
        partition: i32,
        partitions: NonZeroU32,
        keys: u64,
        record_bytes: usize,
        batch_bytes_max: usize,
    ) -> Result<Option<Self>, Failure> {
        let of_partition = u32::try_from(partition).unwrap_or(0);
        let keys_here: Vec<Vec<u8>> = (0..keys)
            .map(|key| format!("key-{key:012}").into_bytes())
            .filter(|key| partition_for_key(key, partitions) == of_partition)
            .collect();
        if keys > 0 && keys_here.is_empty() {
            return Ok(None);
        }
        let mut batches = Self {
            keys: keys_here,
            record_bytes,
            batch_bytes_max,
            by_records: Vec::new(),
        };
        let records_max = batches.build(u32::MAX)?.record_count();
        batches
            .by_records
            .resize(usize::try_from(records_max).unwrap_or(1), None);
        Ok(Some(batches))
    }

    /// Records in a full batch.
    pub fn records_max(&self) -> u32 {
        u32::try_from(self.by_records.len()).unwrap_or(u32::MAX)
    }

    /// A batch of this many records (at most a full one) with this header. Each size is built once.
    pub fn batch(&mut self, records: u32, stamp: Stamp) -> Result<Records, Failure> {
        let records = records.clamp(1, self.records_max());
        let index = records as usize - 1;
        if let Some(Some(prepared)) = self.by_records.get(index) {
            return Ok(prepared.stamped(stamp));
        }
        let prepared = Rc::new(self.build(records)?);
        let stamped = prepared.stamped(stamp);
        if let Some(slot) = self.by_records.get_mut(index) {
            *slot = Some(prepared);
        }
        Ok(stamped)
    }

    fn build(&self, records: u32) -> Result<PreparedBatch, Failure> {
        let mut value = vec![0; self.record_bytes];
        getrandom::fill(&mut value)
            .map_err(|error| Failure::new(format!("random bytes: {error}")))?;
        let mut builder = BatchBuilder::new(BatchOptions {
            batch_bytes_max: self.batch_bytes_max,
            ..BatchOptions::default()
        });
        for index in 0..records {
            let key = match self.keys.len() {
                0 => None,
                count => self.keys.get(index as usize % count).map(Vec::as_slice),
            };
            match builder.append(0, key, Some(&value), &[]) {
                Ok(_) => {}
                Err(BuildError::Full { .. }) if index > 0 => break,
                Err(error) => {
                    return Err(Failure::usage(format!(
                        "{error}; raise --batch-bytes or lower --record-bytes"
                    )));
                }
            }
        }
        let failed = |what: String| Failure::new(format!("building a batch: {what}"));
        let batch = builder.build().map_err(|error| failed(error.to_string()))?;
        PreparedBatch::new(batch.freeze()).map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use corelog_client::batch::{BatchLimits, open, record_refs, verify_producer_batch};

    use super::*;

    const STAMP: Stamp = Stamp {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: 5,
        base_timestamp_ms: 1_000,
    };

    fn four() -> NonZeroU32 {
        NonZeroU32::new(4).unwrap()
    }

    #[test]
    fn keys_go_to_the_partition_that_every_client_puts_them_in() {
        for partition in 0..4 {
            let mut batches = PartitionBatches::new(partition, four(), 100, 50, 10_000)
                .unwrap()
                .unwrap();
            let records = batches.records_max();
            let batch = batches.batch(records, STAMP).unwrap().to_bytes();
            let header = verify_producer_batch(&batch, &BatchLimits::default()).unwrap();
            let body = open(&batch, 1 << 20).unwrap();
            for record in record_refs(&header, &body) {
                let key = record.unwrap().key.unwrap();
                assert_eq!(partition_for_key(key, four()), partition as u32);
            }
        }
    }

    #[test]
    fn a_partition_without_a_key_is_left_out() {
        let with_batches = (0..4)
            .filter(|partition| {
                let batches = PartitionBatches::new(*partition, four(), 1, 50, 10_000);
                batches.unwrap().is_some()
            })
            .count();
        assert_eq!(with_batches, 1);
    }

    #[test]
    fn a_full_batch_keeps_to_its_size_and_smaller_ones_hold_what_is_asked() {
        let mut batches = PartitionBatches::new(0, four(), 0, 1_000, 16_000)
            .unwrap()
            .unwrap();
        assert_eq!(batches.records_max(), 15);
        let full = batches.batch(u32::MAX, STAMP).unwrap().to_bytes();
        assert!(full.len() <= 16_000);
        let batch = batches.batch(3, STAMP).unwrap().to_bytes();
        let header = verify_producer_batch(&batch, &BatchLimits::default()).unwrap();
        assert_eq!(header.record_count, 3);
    }

    #[test]
    fn a_record_that_fits_no_batch_is_a_usage_error() {
        let error = PartitionBatches::new(0, four(), 0, 1_000, 500).unwrap_err();
        assert_eq!(error.code, 2);
    }
}
