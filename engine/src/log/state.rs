//! The state file: what must be lost together with the log or not at all.
//!
//! Two slots, each [`SLOT_BYTES`] long, written in turn by durable writes. A slot is one framed
//! [`DurableState`] with a sequence number; the valid one with the higher number counts.
//!
//! Invariants:
//! 1. The slot that counts is never the one being written.
//! 2. Once a state is durable it is written to the other slot too, so that at rest one slot may rot.
//! 3. History is ordered: epochs rise strictly, first offsets never fall. At most
//!    [`HISTORY_ENTRIES_MAX`] entries; the oldest go first.

use alloc::vec::Vec;

use bytes::{Buf, BufMut};

use super::frame::{self, FRAME_HEAD_BYTES, Format, FrameFault};
use crate::identity::{LeaderEpoch, LogId, Offset, PartitionId, PartitionIndex, TopicId};
use crate::limits::BLOCK_BYTES;

/// Bytes from one slot's start to the next one's.
pub(super) const SLOT_BYTES: usize = 4 * BLOCK_BYTES;
/// Bytes of both slots.
pub(super) const STATE_FILE_BYTES: usize = 2 * SLOT_BYTES;
/// Most entries of an epoch history.
pub(super) const HISTORY_ENTRIES_MAX: usize = 1_000;

/// No state was ever written as often: a larger number is damage, and leaves no room for the next.
const SEQUENCE_MAX: u64 = 1 << 60;

const FORMAT: Format = Format {
    magic: *b"corelogS",
    version: 1,
    name: "state of a log",
};
const ENTRY_BYTES: usize = 12;
const FIXED_BYTES_MAX: usize = 256;
const _: () = assert!(
    FRAME_HEAD_BYTES + FIXED_BYTES_MAX + HISTORY_ENTRIES_MAX * ENTRY_BYTES <= SLOT_BYTES,
    "a full history must fit into a slot"
);

/// An epoch and the offset at which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryEntry {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// The log's end when it began.
    pub first_offset: Offset,
}

/// Below it everything is durable and has been found good; recovery reads from there on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// The offset.
    pub offset: Offset,
    /// The segment that goes on there.
    pub segment: Offset,
    /// Where in it.
    pub position: u64,
    /// CRC-32C of the segment up to there, if known.
    pub crc: Option<u32>,
    /// Append time of the last batch below, in milliseconds.
    pub last_append_ms: u64,
    /// Append time of the segment's first batch, in milliseconds; zero if it has none.
    pub first_append_ms: u64,
    /// Whether there is a producer snapshot of this offset.
    pub producers: bool,
}

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DurableState {
    pub partition: PartitionId,
    pub log_id: LogId,
    /// Whether the log was stopped at its checkpoint and not touched since.
    pub clean: bool,
    pub promised: LeaderEpoch,
    pub checkpoint: Checkpoint,
    /// The oldest retained offset.
    pub start: Offset,
    /// The epoch of the record before `start`.
    pub start_epoch: Option<LeaderEpoch>,
    /// The durable end when this was written.
    pub durable_end: Offset,
    /// A cut to this offset is under way, and is finished by recovery if need be.
    pub cut_to: Option<Offset>,
    pub history: Vec<HistoryEntry>,
}

impl DurableState {
    /// The state of a log without any batch.
    pub fn new(partition: PartitionId, log_id: LogId) -> Self {
        Self {
            partition,
            log_id,
            clean: false,
            promised: LeaderEpoch::ZERO,
            checkpoint: Checkpoint::default(),
            start: Offset::ZERO,
            start_epoch: None,
            durable_end: Offset::ZERO,
            cut_to: None,
            history: Vec::new(),
        }
    }

    /// Enters (`epoch`, `first_offset`) unless that epoch is the newest already.
    ///
    /// # Panics
    /// If the entry would break the order (invariant 3).
    pub fn begin_epoch(&mut self, epoch: LeaderEpoch, first_offset: Offset) {
        if let Some(last) = self.history.last() {
            if last.epoch == epoch {
                return;
            }
            assert!(last.epoch < epoch, "an epoch older than the history's");
            assert!(
                last.first_offset <= first_offset,
                "an epoch that begins before the last one"
            );
        }
        if self.history.len() >= HISTORY_ENTRIES_MAX {
            self.history.remove(0);
        }
        self.history.push(HistoryEntry {
            epoch,
            first_offset,
        });
    }

    /// Forgets the epochs that begin above `end`, of which no record is left.
    pub fn cut_history(&mut self, end: Offset) {
        self.history.retain(|entry| entry.first_offset <= end);
    }

    /// The epoch of the record at `offset`; `None` if history does not reach back to it.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self
            .history
            .partition_point(|entry| entry.first_offset <= offset);
        Some(self.history.get(after.checked_sub(1)?)?.epoch)
    }

    /// Forgets what lies below `start`, but the newest entry at or below it.
    pub fn move_start(&mut self, start: Offset) {
        assert!(self.start <= start, "a log start never goes back");
        if start > self.start {
            self.start_epoch = self.epoch_at(Offset(start.get() - 1)).or(self.start_epoch);
        }
        self.start = start;
        let after = self
            .history
            .partition_point(|entry| entry.first_offset <= start);
        self.history.drain(..after.saturating_sub(1));
    }

    /// The slot's bytes.
    pub fn encode(&self, sequence: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(FIXED_BYTES_MAX + self.history.len() * ENTRY_BYTES);
        body.put_u64(sequence);
        body.put_slice(self.partition.topic.bytes());
        body.put_u32(self.partition.partition.get());
        body.put_slice(self.log_id.bytes());
        body.put_u8(u8::from(self.clean));
        body.put_u32(self.promised.get());
        body.put_u64(self.checkpoint.offset.get());
        body.put_u64(self.checkpoint.segment.get());
        body.put_u64(self.checkpoint.position);
        put_optional_u32(&mut body, self.checkpoint.crc);
        body.put_u64(self.checkpoint.last_append_ms);
        body.put_u64(self.checkpoint.first_append_ms);
        body.put_u8(u8::from(self.checkpoint.producers));
        body.put_u64(self.start.get());
        put_optional_u32(&mut body, self.start_epoch.map(LeaderEpoch::get));
        body.put_u64(self.durable_end.get());
        body.put_u64(self.cut_to.map_or(u64::MAX, Offset::get));
        body.put_u32(self.history.len() as u32);
        for entry in &self.history {
            body.put_u32(entry.epoch.get());
            body.put_u64(entry.first_offset.get());
        }
        frame::encode(&FORMAT, &body)
    }

    /// Reads one slot.
    pub fn decode(slot: &[u8]) -> Result<(u64, Self), FrameFault> {
        let body = frame::decode(&FORMAT, slot)?;
        Self::decode_body(body).ok_or_else(|| FrameFault::Bad("state of a log: bad fields".into()))
    }

    fn decode_body(mut body: &[u8]) -> Option<(u64, Self)> {
        let body = &mut body;
        let sequence = body.try_get_u64().ok()?;
        if sequence > SEQUENCE_MAX {
            return None;
        }
        let topic = TopicId(get_id(body)?);
        let partition = PartitionIndex(body.try_get_u32().ok()?);
        let log_id = LogId(get_id(body)?);
        let clean = get_bool(body)?;
        let promised = get_epoch(body)?;
        let checkpoint = Checkpoint {
            offset: get_offset(body)?,
            segment: get_offset(body)?,
            position: body.try_get_u64().ok()?,
            crc: get_optional_u32(body)?,
            last_append_ms: body.try_get_u64().ok()?,
            first_append_ms: body.try_get_u64().ok()?,
            producers: get_bool(body)?,
        };
        // A segment's indexes count offsets and positions from its base in 32 bits.
        let in_segment = checkpoint
            .offset
            .get()
            .checked_sub(checkpoint.segment.get())?;
        if in_segment > u64::from(u32::MAX) || checkpoint.position > u64::from(u32::MAX) {
            return None;
        }
        let start = get_offset(body)?;
        let start_epoch = match get_optional_u32(body)? {
            Some(epoch) => Some(epoch_of(epoch)?),
            None => None,
        };
        let durable_end = get_offset(body)?;
        let cut_to = match body.try_get_u64().ok()? {
            u64::MAX => None,
            offset => Some(Offset(offset).checked()?),
        };
        let count = body.try_get_u32().ok()? as usize;
        if count > HISTORY_ENTRIES_MAX || body.remaining() != count * ENTRY_BYTES {
            return None;
        }
        let mut history: Vec<HistoryEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = HistoryEntry {
                epoch: get_epoch(body)?,
                first_offset: get_offset(body)?,
            };
            let in_order = history.last().is_none_or(|last| {
                last.epoch < entry.epoch && last.first_offset <= entry.first_offset
            });
            if !in_order {
                return None;
            }
            history.push(entry);
        }
        // Nothing enters the history of an epoch that was not promised.
        let is_promised = history.last().is_none_or(|last| last.epoch <= promised);
        if checkpoint.segment > checkpoint.offset || !is_promised {
            return None;
        }
        let state = Self {
            partition: PartitionId { topic, partition },
            log_id,
            clean,
            promised,
            checkpoint,
            start,
            start_epoch,
            durable_end,
            cut_to,
            history,
        };
        Some((sequence, state))
    }
}

trait Checked: Sized {
    fn checked(self) -> Option<Self>;
}

impl Checked for Offset {
    /// Offsets are at most `i64::MAX`.
    fn checked(self) -> Option<Self> {
        (self.0 <= i64::MAX as u64).then_some(self)
    }
}

fn get_id(body: &mut &[u8]) -> Option<[u8; 16]> {
    let (id, rest) = body.split_first_chunk::<16>()?;
    *body = rest;
    Some(*id)
}

fn get_bool(body: &mut &[u8]) -> Option<bool> {
    match body.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn get_offset(body: &mut &[u8]) -> Option<Offset> {
    Offset(body.try_get_u64().ok()?).checked()
}

fn put_optional_u32(body: &mut Vec<u8>, value: Option<u32>) {
    body.put_u8(u8::from(value.is_some()));
    body.put_u32(value.unwrap_or(0));
}

/// An epoch that the wire can say.
fn epoch_of(number: u32) -> Option<LeaderEpoch> {
    LeaderEpoch::from_wire(i32::try_from(number).ok()?)
}

fn get_epoch(body: &mut &[u8]) -> Option<LeaderEpoch> {
    epoch_of(body.try_get_u32().ok()?)
}

fn get_optional_u32(body: &mut &[u8]) -> Option<Option<u32>> {
    let there = get_bool(body)?;
    let value = body.try_get_u32().ok()?;
    Some(there.then_some(value))
}

/// What the two slots of a state file say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slots {
    /// Neither was ever written.
    Blank,
    /// The state that counts, its sequence number, and the slot it stands in.
    State {
        state: DurableState,
        sequence: u64,
        slot: usize,
    },
    /// Nothing can be made of them.
    Bad(FrameFault),
}

/// Reads a state file, which may be shorter than both slots.
pub(super) fn read_slots(file: &[u8]) -> Slots {
    let slot_bytes = |slot: usize| {
        let start = (slot * SLOT_BYTES).min(file.len());
        let end = ((slot + 1) * SLOT_BYTES).min(file.len());
        file.get(start..end).unwrap_or_default()
    };
    let read = [0, 1].map(|slot| DurableState::decode(slot_bytes(slot)));
    let mut best: Option<(u64, DurableState, usize)> = None;
    let mut fault = None;
    for (slot, result) in read.into_iter().enumerate() {
        match result {
            Ok((sequence, state)) => {
                if best.as_ref().is_none_or(|(other, ..)| *other < sequence) {
                    best = Some((sequence, state, slot));
                }
            }
            // A newer build has been here; what the other slot says is no longer true.
            Err(fault @ FrameFault::Newer(_)) => return Slots::Bad(fault),
            Err(FrameFault::Blank) => {}
            Err(bad) => fault = Some(bad),
        }
    }
    match (best, fault) {
        (Some((sequence, state, slot)), _) => Slots::State {
            state,
            sequence,
            slot,
        },
        (None, Some(fault)) => Slots::Bad(fault),
        (None, None) => Slots::Blank,
    }
}
