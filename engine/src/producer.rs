//! The producer table of one partition: who published what last, so that a doubled publish is
//! recognized and a stale producer is fenced.
//!
//! Invariants:
//! 1. The table moves with the log only: [`ProducerTable::record`] is called for batches that have
//!    been given their offsets, in order, and [`ProducerTable::cut`] when the log is cut.
//! 2. Remembered batches of one producer are in one producer epoch, in order of sequence and of
//!    offset.
//! 3. Forgetting goes by append time carried in the log, so that every replica forgets alike.
//! 4. A batch found in the log was rightly appended: whoever appended it had forgotten whatever a table
//!    made from the log alone would hold against it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;
use corelog_batch::BatchHeader;

use crate::identity::{LeaderEpoch, Offset, Producer, ProducerEpoch, ProducerId, Sequence};
use crate::limits::{PRODUCER_BATCHES, PRODUCERS_PER_PARTITION_MAX};

const SNAPSHOT_MAGIC: [u8; 4] = *b"clpr";
const SNAPSHOT_VERSION: u16 = 1;
const SNAPSHOT_HEAD_BYTES: usize = 4 + 2 + 4;
const PRODUCER_HEAD_BYTES: usize = 8 + 2 + 8 + 1;
const REMEMBERED_BYTES: usize = 4 + 4 + 4 + 8;

/// A batch that a repeat of it is recognized by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedBatch {
    /// Sequence of its first record.
    pub first_sequence: Sequence,
    /// Sequence of its last record.
    pub last_sequence: Sequence,
    /// The leader epoch that it was appended in.
    pub leader_epoch: LeaderEpoch,
    /// The offset of its first record.
    pub first_offset: Offset,
}

impl RememberedBatch {
    /// One past the offset of its last record.
    pub fn end_offset(&self) -> Offset {
        let span =
            u64::from(self.last_sequence.get()) + (1 << 31) - u64::from(self.first_sequence.get());
        self.first_offset.plus(span % (1 << 31) + 1)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ProducerState {
    epoch: ProducerEpoch,
    appended_ms: u64,
    batches: VecDeque<RememberedBatch>,
}

/// What a batch is, by its producer fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No producer id: nothing to check.
    Anonymous,
    /// The next of its producer.
    Next,
    /// Of a producer without state here: may start at any sequence, and is counted.
    Unknown,
    /// Stored before, as this.
    Repeat(RememberedBatch),
    /// Stored before, at an offset no longer remembered.
    OldRepeat,
    /// It leaves a gap, or a new epoch does not start at zero.
    Gap,
    /// A newer epoch of the producer exists.
    Fenced,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerTable {
    producers: BTreeMap<ProducerId, ProducerState>,
}

/// A snapshot that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// It is of a newer format than this build reads.
    NewerVersion(u16),
    /// Its bytes are not a snapshot.
    Malformed(&'static str),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerVersion(version) => write!(
                f,
                "producer table of version {version}, and this build knows up to {SNAPSHOT_VERSION}"
            ),
            Self::Malformed(what) => write!(f, "no producer table: {what}"),
        }
    }
}

/// The producer named by a batch, or `None` for an ordinary at-least-once publish.
///
/// A negative epoch or one above [`ProducerEpoch::MAX`] beside an id is refused before this by the
/// batch's verification.
pub fn producer_of(header: &BatchHeader) -> Option<Producer> {
    let id = u64::try_from(header.producer_id).ok()?;
    let epoch = u16::try_from(header.producer_epoch).ok()?;
    Some(Producer {
        id: ProducerId(id),
        epoch: ProducerEpoch(epoch),
    })
}

fn sequences_of(header: &BatchHeader) -> (Sequence, Sequence) {
    let first = Sequence(u32::try_from(header.base_sequence).unwrap_or(0));
    let span = u32::try_from(header.last_offset_delta).unwrap_or(0);
    (first, first.plus(span))
}

impl ProducerTable {
    /// Judges a batch before it is appended. Changes nothing (invariant 1).
    pub fn check(&self, header: &BatchHeader) -> Verdict {
        let Some(producer) = producer_of(header) else {
            return Verdict::Anonymous;
        };
        let Some(state) = self.producers.get(&producer.id) else {
            return Verdict::Unknown;
        };
        let (first, last) = sequences_of(header);
        if producer.epoch < state.epoch {
            return Verdict::Fenced;
        }
        if producer.epoch > state.epoch {
            return if first == Sequence::ZERO {
                Verdict::Next
            } else {
                Verdict::Gap
            };
        }
        if let Some(found) = state
            .batches
            .iter()
            .find(|batch| batch.first_sequence == first && batch.last_sequence == last)
        {
            return Verdict::Repeat(*found);
        }
        let Some(newest) = state.batches.back() else {
            return Verdict::Unknown;
        };
        let expected = newest.last_sequence.plus(1);
        let ahead = (first.get().wrapping_sub(expected.get())) & 0x7fff_ffff;
        match ahead {
            0 => Verdict::Next,
            // Half the ring lies ahead of what is expected, half behind it.
            1..0x4000_0000 => Verdict::Gap,
            _ if is_behind(last, expected) => Verdict::OldRepeat,
            _ => Verdict::Gap,
        }
    }

    /// Takes note of a batch that has its offset now, appended in `leader_epoch` at `appended_ms`.
    pub fn record(
        &mut self,
        header: &BatchHeader,
        first_offset: Offset,
        leader_epoch: LeaderEpoch,
        appended_ms: u64,
    ) {
        let Some(producer) = producer_of(header) else {
            return;
        };
        let (first_sequence, last_sequence) = sequences_of(header);
        if !self.producers.contains_key(&producer.id) {
            self.make_room();
        }
        let state = self
            .producers
            .entry(producer.id)
            .or_insert_with(|| ProducerState {
                epoch: producer.epoch,
                appended_ms,
                batches: VecDeque::new(),
            });
        assert!(
            producer.epoch >= state.epoch,
            "a fenced batch reached the log"
        );
        if producer.epoch > state.epoch {
            state.epoch = producer.epoch;
            state.batches.clear();
        }
        if let Some(newest) = state.batches.back() {
            assert!(
                newest.first_offset < first_offset,
                "producer batches out of order of offset"
            );
        }
        if state.batches.len() == PRODUCER_BATCHES {
            state.batches.pop_front();
        }
        state.batches.push_back(RememberedBatch {
            first_sequence,
            last_sequence,
            leader_epoch,
            first_offset,
        });
        state.appended_ms = appended_ms;
    }

    /// As [`ProducerTable::record`], for a batch that recovery found in the log (invariant 4).
    pub fn replay(
        &mut self,
        header: &BatchHeader,
        first_offset: Offset,
        leader_epoch: LeaderEpoch,
        appended_ms: u64,
    ) {
        if let Some(producer) = producer_of(header)
            && let Some(state) = self.producers.get(&producer.id)
            && state.epoch > producer.epoch
        {
            self.producers.remove(&producer.id);
        }
        self.record(header, first_offset, leader_epoch, appended_ms);
    }

    fn make_room(&mut self) {
        if self.producers.len() < PRODUCERS_PER_PARTITION_MAX {
            return;
        }
        let idlest = self
            .producers
            .iter()
            .min_by_key(|(_, state)| {
                // What is read from the log after a start was appended at one time, as far as
                // anybody knows; there the offset tells.
                let newest = state.batches.back().map(|batch| batch.first_offset);
                (state.appended_ms, newest)
            })
            .map(|(id, _)| *id);
        if let Some(id) = idlest {
            self.producers.remove(&id);
        }
    }

    /// Forgets every batch at or above `end`, where the log was cut. A producer none of whose
    /// remembered batches is left is forgotten whole: it may start anywhere again, and is counted.
    pub fn cut(&mut self, end: Offset) {
        self.producers.retain(|_, state| {
            let had = !state.batches.is_empty();
            state.batches.retain(|batch| batch.first_offset < end);
            !(had && state.batches.is_empty())
        });
    }

    /// Puts what came later into this table: recovery reads the log above a snapshot before it has
    /// the snapshot.
    pub fn absorb(&mut self, later: Self) {
        for (id, mut newer) in later.producers {
            match self.producers.get_mut(&id) {
                Some(known) if known.epoch == newer.epoch => {
                    let newest = known.batches.back().map(|batch| batch.first_offset);
                    newer
                        .batches
                        .retain(|batch| Some(batch.first_offset) > newest);
                    known.batches.append(&mut newer.batches);
                    let surplus = known.batches.len().saturating_sub(PRODUCER_BATCHES);
                    known.batches.drain(..surplus);
                    known.appended_ms = known.appended_ms.max(newer.appended_ms);
                }
                // Also of an older epoch (invariant 4).
                _ => {
                    if !self.producers.contains_key(&id) {
                        self.make_room();
                    }
                    self.producers.insert(id, newer);
                }
            }
        }
    }

    /// Forgets producers that have not published for `expiry_ms` of log time.
    pub fn expire(&mut self, log_time_ms: u64, expiry_ms: u64) {
        self.producers
            .retain(|_, state| state.appended_ms.saturating_add(expiry_ms) > log_time_ms);
    }

    /// How many producers are remembered.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether no producer is remembered.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// The table as bytes, to stand beside the log offset that it belongs to. Whoever stores it
    /// adds a checksum.
    pub fn snapshot(&self) -> Bytes {
        let mut out = Vec::with_capacity(SNAPSHOT_HEAD_BYTES + self.producers.len() * 64);
        out.extend_from_slice(&SNAPSHOT_MAGIC);
        out.extend_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        out.extend_from_slice(&(self.producers.len() as u32).to_be_bytes());
        for (id, state) in &self.producers {
            out.extend_from_slice(&id.get().to_be_bytes());
            out.extend_from_slice(&state.epoch.get().to_be_bytes());
            out.extend_from_slice(&state.appended_ms.to_be_bytes());
            out.push(state.batches.len() as u8);
            for batch in &state.batches {
                out.extend_from_slice(&batch.first_sequence.get().to_be_bytes());
                out.extend_from_slice(&batch.last_sequence.get().to_be_bytes());
                out.extend_from_slice(&batch.leader_epoch.get().to_be_bytes());
                out.extend_from_slice(&batch.first_offset.get().to_be_bytes());
            }
        }
        Bytes::from(out)
    }

    /// The table from [`ProducerTable::snapshot`]'s bytes.
    ///
    /// # Errors
    /// If the bytes are of a newer version, or not a snapshot.
    pub fn restore(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut input = Input { rest: bytes };
        if input.take::<4>()? != SNAPSHOT_MAGIC {
            return Err(SnapshotError::Malformed("not a producer snapshot"));
        }
        let version = u16::from_be_bytes(input.take()?);
        if version > SNAPSHOT_VERSION {
            return Err(SnapshotError::NewerVersion(version));
        }
        let count = u32::from_be_bytes(input.take()?) as usize;
        if count > PRODUCERS_PER_PARTITION_MAX || count > input.rest.len() / PRODUCER_HEAD_BYTES {
            return Err(SnapshotError::Malformed(
                "more producers than bytes for them",
            ));
        }
        let mut table = Self::default();
        for _ in 0..count {
            let (id, state) = input.producer()?;
            table.producers.insert(id, state);
        }
        if !input.rest.is_empty() {
            return Err(SnapshotError::Malformed("bytes behind the last producer"));
        }
        Ok(table)
    }
}

fn is_behind(last: Sequence, expected: Sequence) -> bool {
    let distance = expected.get().wrapping_sub(last.get()) & 0x7fff_ffff;
    (1..0x4000_0000).contains(&distance)
}

struct Input<'a> {
    rest: &'a [u8],
}

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(SnapshotError::Malformed("cut short"));
        };
        self.rest = rest;
        Ok(*head)
    }

    fn offset(&mut self) -> Result<Offset, SnapshotError> {
        let value = u64::from_be_bytes(self.take()?);
        if value > i64::MAX as u64 {
            return Err(SnapshotError::Malformed("an offset out of range"));
        }
        Ok(Offset(value))
    }

    fn producer(&mut self) -> Result<(ProducerId, ProducerState), SnapshotError> {
        let id = ProducerId(u64::from_be_bytes(self.take()?));
        let epoch = ProducerEpoch(u16::from_be_bytes(self.take()?));
        let appended_ms = u64::from_be_bytes(self.take()?);
        let [count] = self.take::<1>()?;
        let count = usize::from(count);
        if count > PRODUCER_BATCHES || count > self.rest.len() / REMEMBERED_BYTES {
            return Err(SnapshotError::Malformed("more batches than are remembered"));
        }
        let mut batches = VecDeque::with_capacity(count);
        for _ in 0..count {
            batches.push_back(RememberedBatch {
                first_sequence: Sequence(u32::from_be_bytes(self.take()?)),
                last_sequence: Sequence(u32::from_be_bytes(self.take()?)),
                leader_epoch: LeaderEpoch(u32::from_be_bytes(self.take()?)),
                first_offset: self.offset()?,
            });
        }
        Ok((
            id,
            ProducerState {
                epoch,
                appended_ms,
                batches,
            },
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use corelog_batch::BatchHeader;

    fn batch(id: i64, epoch: i16, first: i32, count: i32) -> BatchHeader {
        let mut bytes = [0_u8; corelog_batch::HEADER_BYTES];
        bytes[8..12].copy_from_slice(&49_i32.to_be_bytes());
        bytes[16] = 2;
        bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        bytes[43..51].copy_from_slice(&id.to_be_bytes());
        bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&first.to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        BatchHeader::parse(&bytes).unwrap()
    }

    fn put(table: &mut ProducerTable, header: &BatchHeader, at: u64) {
        table.record(header, Offset(at), LeaderEpoch(1), at);
    }

    #[test]
    fn five_in_flight_and_the_first_sent_again_gets_its_first_offset() {
        let mut table = ProducerTable::default();
        for index in 0..5 {
            put(&mut table, &batch(7, 0, index * 10, 10), index as u64 * 10);
        }
        match table.check(&batch(7, 0, 0, 10)) {
            Verdict::Repeat(found) => {
                assert_eq!(found.first_offset, Offset(0));
                assert_eq!(found.end_offset(), Offset(10));
            }
            other => panic!("{other:?}"),
        }
        put(&mut table, &batch(7, 0, 50, 10), 50);
        assert_eq!(table.check(&batch(7, 0, 0, 10)), Verdict::OldRepeat);
        assert_eq!(table.check(&batch(7, 0, 60, 1)), Verdict::Next);
        assert_eq!(table.check(&batch(7, 0, 61, 1)), Verdict::Gap);
    }

    #[test]
    fn older_epochs_are_fenced_and_new_ones_start_at_zero() {
        let mut table = ProducerTable::default();
        put(&mut table, &batch(7, 3, 5, 1), 0);
        assert_eq!(table.check(&batch(7, 2, 6, 1)), Verdict::Fenced);
        assert_eq!(table.check(&batch(7, 4, 6, 1)), Verdict::Gap);
        assert_eq!(table.check(&batch(7, 4, 0, 1)), Verdict::Next);
        assert_eq!(table.check(&batch(8, 0, 99, 1)), Verdict::Unknown);
    }

    #[test]
    fn sequences_wrap_at_the_end_of_their_range() {
        let mut table = ProducerTable::default();
        put(&mut table, &batch(7, 0, i32::MAX - 1, 4), 0);
        match table.check(&batch(7, 0, i32::MAX - 1, 4)) {
            Verdict::Repeat(found) => assert_eq!(found.end_offset(), Offset(4)),
            other => panic!("{other:?}"),
        }
        assert_eq!(table.check(&batch(7, 0, 2, 1)), Verdict::Next);
        assert_eq!(table.check(&batch(7, 0, 3, 1)), Verdict::Gap);
        assert_eq!(
            table.check(&batch(7, 0, i32::MAX - 5, 2)),
            Verdict::OldRepeat
        );
    }

    #[test]
    fn a_cut_of_the_log_cuts_the_table() {
        let mut table = ProducerTable::default();
        put(&mut table, &batch(7, 0, 0, 10), 0);
        put(&mut table, &batch(7, 0, 10, 10), 10);
        put(&mut table, &batch(8, 0, 0, 10), 20);
        table.cut(Offset(10));
        assert_eq!(table.check(&batch(7, 0, 10, 10)), Verdict::Next);
        assert_eq!(table.check(&batch(8, 0, 10, 10)), Verdict::Unknown);
    }

    #[test]
    fn a_snapshot_restores_the_table_and_no_truncation_of_it_does() {
        let mut table = ProducerTable::default();
        for id in 0..20 {
            put(&mut table, &batch(id, 1, 0, 3), id as u64 * 3);
        }
        let bytes = table.snapshot();
        assert_eq!(ProducerTable::restore(&bytes).unwrap(), table);
        for end in 0..bytes.len() {
            assert!(ProducerTable::restore(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn what_the_log_holds_is_never_held_against_it() {
        // Forgotten at epoch 3, then back with epoch 1: the log has both.
        let mut table = ProducerTable::default();
        put(&mut table, &batch(7, 3, 0, 1), 0);
        table.replay(&batch(7, 1, 5, 1), Offset(1), LeaderEpoch(1), 1);
        assert_eq!(table.check(&batch(7, 1, 6, 1)), Verdict::Next);
        let mut snapshot = ProducerTable::default();
        put(&mut snapshot, &batch(7, 3, 0, 1), 0);
        let mut later = ProducerTable::default();
        put(&mut later, &batch(7, 1, 5, 1), 1);
        snapshot.absorb(later);
        assert_eq!(snapshot.check(&batch(7, 1, 6, 1)), Verdict::Next);
    }

    #[test]
    fn of_producers_read_from_the_log_the_one_with_the_oldest_batch_makes_room() {
        let mut table = ProducerTable::default();
        for id in 0..PRODUCERS_PER_PARTITION_MAX as i64 {
            let at = Offset((id as u64 + 10) % PRODUCERS_PER_PARTITION_MAX as u64);
            table.replay(&batch(id, 0, 0, 1), at, LeaderEpoch(1), 5);
        }
        let oldest = PRODUCERS_PER_PARTITION_MAX as i64 - 10;
        table.replay(
            &batch(-2 + 1_000_000, 0, 0, 1),
            Offset(1 << 30),
            LeaderEpoch(1),
            5,
        );
        assert_eq!(table.check(&batch(oldest, 0, 1, 1)), Verdict::Unknown);
        assert_eq!(table.check(&batch(0, 0, 1, 1)), Verdict::Next);
    }

    #[test]
    fn the_idlest_producer_makes_room() {
        let mut table = ProducerTable::default();
        for id in 0..=PRODUCERS_PER_PARTITION_MAX as i64 {
            put(&mut table, &batch(id, 0, 0, 1), id as u64);
        }
        assert_eq!(table.len(), PRODUCERS_PER_PARTITION_MAX);
        assert_eq!(table.check(&batch(0, 0, 1, 1)), Verdict::Unknown);
    }
}
