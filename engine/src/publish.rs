//! Producer batches, checked once on the core that accepted them.
//!
//! Invariants:
//! 1. A [`VerifiedBatches`] holds whole batches, one behind the other, each with the right magic,
//!    length and CRC-32C, a known codec, and records that can be read and are within their limit.
//! 2. Only [`Inspection`] (for clients) and [`VerifiedBatches::own`] (for the broker's own records)
//!    make one.
//!
//! A compressed batch is opened to be checked, in turns, and then passed on as the producer built
//! it: a batch that nobody can open, or that hides a record above the limit, would otherwise stop
//! every consumer at its offset.

use alloc::vec::Vec;

use bytes::Bytes;
use corelog_batch::{BatchError, BatchErrorKind, BatchHeader, BatchLimits, Codec, Opener, Turn};

use crate::limits::{BATCH_OPENED_BYTES_MAX, TIMESTAMP_AHEAD_MS_MAX};
use crate::rejection::Rejection;
use crate::time::Wall;

/// Most batches in one publish to one partition.
pub const BATCHES_PER_PUBLISH_MAX: usize = 1_024;

/// Where one checked batch lies within a publish's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedBatch {
    /// Its header as the producer sent it.
    pub header: BatchHeader,
    /// First byte within the publish.
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
}

/// One or more whole producer batches whose structure, checksum and records have been checked.
#[derive(Clone, Debug)]
pub struct VerifiedBatches {
    bytes: Bytes,
    batches: Vec<VerifiedBatch>,
}

impl VerifiedBatches {
    /// The concatenated batches.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The batches, in order.
    pub fn batches(&self) -> &[VerifiedBatch] {
        &self.batches
    }

    /// How many records (offsets) they take.
    pub fn record_count(&self) -> u64 {
        self.batches
            .iter()
            .map(|batch| u64::from(batch.header.last_offset_delta.unsigned_abs()) + 1)
            .sum()
    }

    /// The batches with the broker's append time in place of the producer's stamps, for topics that
    /// ask for it (the one change of a batch that its checksum covers, so it is made anew).
    #[must_use]
    pub fn with_append_time(self, append_time_ms: u64) -> Self {
        let stamp = i64::try_from(append_time_ms).unwrap_or(i64::MAX);
        let mut bytes = match self.bytes.try_into_mut() {
            Ok(unique) => unique,
            Err(shared) => bytes::BytesMut::from(&shared[..]),
        };
        let mut batches = self.batches;
        for batch in &mut batches {
            let range = &mut bytes[batch.start..batch.end];
            corelog_batch::stamp_log_append_time(range, stamp);
            if let Ok(header) = BatchHeader::parse(range) {
                batch.header = header;
            }
        }
        Self {
            bytes: bytes.freeze(),
            batches,
        }
    }

    /// Takes the parts out, so that a uniquely owned buffer stays uniquely owned.
    pub fn into_parts(self) -> (Bytes, Vec<VerifiedBatch>) {
        (self.bytes, self.batches)
    }

    /// One batch that the broker built itself.
    ///
    /// # Panics
    /// If it is not a whole batch: the builder is ours.
    pub fn own(batch: Bytes) -> Self {
        let header = match corelog_batch::verify_stored_batch(&batch) {
            Ok(header) => header,
            Err(error) => own_batch_is_bad(&error),
        };
        let end = batch.len();
        Self {
            bytes: batch,
            batches: alloc::vec![VerifiedBatch {
                header,
                start: 0,
                end
            }],
        }
    }
}

#[allow(clippy::panic)]
fn own_batch_is_bad(error: &BatchError) -> ! {
    panic!("a batch built here does not verify: {error}")
}

/// What a publish is checked against.
#[derive(Clone, Copy, Debug)]
pub struct PublishRules {
    /// Largest batch (topic setting `max.message.bytes`).
    pub batch_bytes_max: usize,
    /// Largest record: key, value and headers.
    pub inline_bytes_max: usize,
    /// Most batches; Kafka's produce request carries one for each partition.
    pub batches_max: usize,
    /// The broker's clock, which no time stamp may be far ahead of.
    pub wall: Wall,
}

/// A refusal with what the operator of the producer needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishRefusal {
    /// The code for the client.
    pub rejection: Rejection,
    /// What was wrong with the bytes, if that was it.
    pub fault: Option<BatchError>,
}

impl From<Rejection> for PublishRefusal {
    fn from(rejection: Rejection) -> Self {
        Self {
            rejection,
            fault: None,
        }
    }
}

impl From<BatchError> for PublishRefusal {
    fn from(fault: BatchError) -> Self {
        let rejection = match fault.kind() {
            BatchErrorKind::CorruptMessage => Rejection::CorruptMessage,
            BatchErrorKind::MessageTooLarge => Rejection::MessageTooLarge,
            BatchErrorKind::UnsupportedCompression => Rejection::UnsupportedCompressionType,
            BatchErrorKind::InvalidTimestamp => Rejection::InvalidTimestamp,
            BatchErrorKind::InvalidRecord => Rejection::InvalidRecord,
        };
        Self {
            rejection,
            fault: Some(fault),
        }
    }
}

/// How far an inspection has come.
#[derive(Debug)]
pub enum Progress {
    /// Call again: there is more to open.
    More,
    /// Everything is in order.
    Done(VerifiedBatches),
}

/// Checks a publish in turns, so that a large compressed one does not hold up its core.
#[derive(Debug)]
pub struct Inspection {
    bytes: Bytes,
    rules: PublishRules,
    batches: Vec<VerifiedBatch>,
    opening: Option<Opener>,
    checked_end: usize,
    stamps_differ: bool,
}

impl Inspection {
    /// Begins to check `bytes`, the record batches of one partition's publish.
    pub fn new(bytes: Bytes, rules: PublishRules) -> Self {
        Self {
            bytes,
            rules,
            batches: Vec::new(),
            opening: None,
            checked_end: 0,
            stamps_differ: false,
        }
    }

    /// Goes on, opening about `budget_bytes` of compressed bodies at most.
    ///
    /// # Errors
    /// The first thing that is wrong with the publish. None of it may then be appended.
    pub fn turn(&mut self, budget_bytes: usize) -> Result<Progress, PublishRefusal> {
        loop {
            if let Some(mut opener) = self.opening.take() {
                match opener.turn(budget_bytes)? {
                    Turn::More => {
                        self.opening = Some(opener);
                        return Ok(Progress::More);
                    }
                    Turn::Done(body) => self.accept(&body)?,
                }
                continue;
            }
            if self.checked_end == self.bytes.len() {
                return self.finish();
            }
            self.begin_batch()?;
        }
    }

    fn begin_batch(&mut self) -> Result<(), PublishRefusal> {
        if self.batches.len() == self.rules.batches_max.min(BATCHES_PER_PUBLISH_MAX) {
            return Err(Rejection::InvalidRecord.into());
        }
        let start = self.checked_end;
        let rest = self.bytes.slice(start..);
        let claimed = BatchHeader::parse(&rest)?.batch_bytes();
        let batch = if claimed <= rest.len() {
            rest.slice(..claimed)
        } else {
            rest
        };
        let limits = BatchLimits {
            batch_bytes_max: self.rules.batch_bytes_max,
            ..BatchLimits::default()
        };
        let header = corelog_batch::verify_producer_batch(&batch, &limits)?;
        if header.attributes.is_transactional() {
            return Err(Rejection::TransactionalIdAuthorizationFailed.into());
        }
        self.batches.push(VerifiedBatch {
            header,
            start,
            end: start + batch.len(),
        });
        if header.codec()? == Codec::None {
            self.accept(&batch.slice(corelog_batch::HEADER_BYTES..))
        } else {
            self.opening = Some(Opener::new(&batch, BATCH_OPENED_BYTES_MAX)?);
            Ok(())
        }
    }

    fn accept(&mut self, body: &Bytes) -> Result<(), PublishRefusal> {
        let Some(batch) = self.batches.last_mut() else {
            return Err(Rejection::InvalidRecord.into());
        };
        let scan = corelog_batch::scan_records(&batch.header, body)?;
        if scan.largest_record_bytes > self.rules.inline_bytes_max {
            return Err(Rejection::MessageTooLarge.into());
        }
        let latest = self.rules.wall.0.saturating_add(TIMESTAMP_AHEAD_MS_MAX);
        if u64::try_from(scan.max_timestamp_ms).is_ok_and(|stamp| stamp > latest) {
            return Err(Rejection::InvalidTimestamp.into());
        }
        self.checked_end = batch.end;
        if batch.header.max_timestamp_ms != scan.max_timestamp_ms {
            batch.header.max_timestamp_ms = scan.max_timestamp_ms;
            self.stamps_differ = true;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Progress, PublishRefusal> {
        if self.batches.is_empty() {
            return Err(Rejection::InvalidRecord.into());
        }
        let mut batches = core::mem::take(&mut self.batches);
        let mut bytes = core::mem::take(&mut self.bytes);
        if self.stamps_differ {
            bytes = with_true_stamps(&bytes, &mut batches);
        }
        assert_eq!(
            batches.last().map(|batch| batch.end),
            Some(bytes.len()),
            "unchecked bytes behind the last batch"
        );
        Ok(Progress::Done(VerifiedBatches { bytes, batches }))
    }
}

/// Some clients leave the largest time stamp of a batch unset. Look-ups by time trust it, so it is
/// put right here, as Kafka's brokers do; the checksum covers it and is made anew.
fn with_true_stamps(bytes: &[u8], batches: &mut [VerifiedBatch]) -> Bytes {
    const CRC: core::ops::Range<usize> = 17..21;
    const MAX_TIMESTAMP: core::ops::Range<usize> = 35..43;
    let mut out = bytes.to_vec();
    for batch in batches {
        let Some(range) = out.get_mut(batch.start..batch.end) else {
            continue;
        };
        range[MAX_TIMESTAMP].copy_from_slice(&batch.header.max_timestamp_ms.to_be_bytes());
        let crc = crc32c::crc32c(&range[corelog_batch::CRC_COVERS_FROM..]);
        range[CRC].copy_from_slice(&crc.to_be_bytes());
        batch.header.crc = crc;
    }
    Bytes::from(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use corelog_batch::{BatchBuilder, BatchOptions};

    const RULES: PublishRules = PublishRules {
        batch_bytes_max: 1 << 20,
        inline_bytes_max: 1_000,
        batches_max: 2,
        wall: Wall(1_000_000),
    };

    fn batch(codec: Codec, stamps: &[i64], value: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            codec,
            ..BatchOptions::default()
        });
        for stamp in stamps {
            builder
                .append(*stamp, Some(b"k"), Some(value), &[])
                .unwrap();
        }
        builder.build().unwrap().to_vec()
    }

    fn inspect(bytes: Vec<u8>) -> Result<VerifiedBatches, Rejection> {
        let mut inspection = Inspection::new(Bytes::from(bytes), RULES);
        for _ in 0..10_000 {
            if let Progress::Done(batches) =
                inspection.turn(64).map_err(|refusal| refusal.rejection)?
            {
                return Ok(batches);
            }
        }
        panic!("an inspection that does not end")
    }

    #[test]
    fn a_record_above_the_limit_is_refused_under_every_codec() {
        for codec in Codec::ALL {
            assert!(
                inspect(batch(codec, &[1, 2], &[7; 900])).is_ok(),
                "{codec:?}"
            );
            let refused = inspect(batch(codec, &[1, 2], &[7; 1_000]));
            assert_eq!(
                refused.unwrap_err(),
                Rejection::MessageTooLarge,
                "{codec:?}"
            );
        }
    }

    #[test]
    fn a_compressed_body_that_cannot_be_opened_is_refused() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let mut bytes = batch(codec, &[1, 2, 3], &[7; 100]);
            let end = bytes.len();
            bytes[end - 9..].fill(0xff);
            let crc = crc32c::crc32c(&bytes[21..]);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
            assert!(inspect(bytes).is_err(), "{codec:?}");
        }
    }

    #[test]
    fn stamps_far_ahead_of_the_clock_are_refused() {
        let ahead = 1_000_000 + TIMESTAMP_AHEAD_MS_MAX as i64;
        assert!(inspect(batch(Codec::None, &[ahead], b"v")).is_ok());
        assert_eq!(
            inspect(batch(Codec::None, &[1, ahead + 1], b"v")).unwrap_err(),
            Rejection::InvalidTimestamp
        );
    }

    #[test]
    fn a_wrong_largest_stamp_is_put_right() {
        let mut bytes = batch(Codec::None, &[5, 9, 7], b"v");
        bytes[35..43].copy_from_slice(&(-1_i64).to_be_bytes());
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let checked = inspect(bytes).unwrap();
        let header = corelog_batch::verify_stored_batch(checked.bytes()).unwrap();
        assert_eq!(header.max_timestamp_ms, 9);
        assert_eq!(checked.batches()[0].header, header);
    }

    #[test]
    fn more_batches_than_allowed_and_torn_ones_are_refused() {
        let one = batch(Codec::None, &[1], b"v");
        let three = [one.clone(), one.clone(), one.clone()].concat();
        assert_eq!(inspect(three).unwrap_err(), Rejection::InvalidRecord);
        assert_eq!(
            inspect([one.clone(), one.clone()].concat())
                .unwrap()
                .batches()
                .len(),
            2
        );
        assert!(inspect(Vec::new()).is_err());
        for end in 1..one.len() {
            assert!(inspect(one[..end].to_vec()).is_err());
        }
    }
}
