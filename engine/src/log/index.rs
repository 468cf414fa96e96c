//! The sparse index of a segment: by offset and by time. It can be rebuilt and proves nothing.
//!
//! Invariants:
//! 1. Entries rise strictly in offset and position; the first one stands at the segment's start.
//! 2. An entry's largest stamp is at least that of every batch from it up to the next entry.
//! 3. What an entry points to is believed only once the batch header there agrees.

use alloc::vec::Vec;

use bytes::{Buf, BufMut, Bytes};

use super::frame::{self, FRAME_HEAD_BYTES, Format};
use crate::identity::Offset;
use crate::limits::INDEX_INTERVAL_BYTES;

const OFFSETS: Format = Format {
    magic: *b"corelogO",
    version: 1,
    name: "offset index",
};
const TIMES: Format = Format {
    magic: *b"corelogT",
    version: 1,
    name: "time index",
};
const BODY_HEAD_BYTES: usize = 8 + 8 + 4;
const ENTRY_BYTES: usize = 8;

/// The stretch of log from here to the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    offset_delta: u32,
    position: u32,
    max_timestamp_ms: i64,
}

/// A stretch of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Offset of its first batch.
    pub offset: Offset,
    /// Position of its first batch.
    pub position: u64,
    /// Position of the next stretch; `None` for the last one.
    pub end_position: Option<u64>,
    /// No record in it has a larger stamp.
    pub max_timestamp_ms: i64,
}

/// The entries of one segment, or of its part from some position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SparseIndex {
    base: Offset,
    entries: Vec<IndexEntry>,
}

impl SparseIndex {
    /// Nothing yet of the segment that begins at `base`.
    pub fn new(base: Offset) -> Self {
        Self {
            base,
            entries: Vec::new(),
        }
    }

    /// Notes a batch. Batches come in order.
    ///
    /// # Panics
    /// If the segment is larger than an entry can say; segments roll before that.
    pub fn note(&mut self, offset: Offset, position: u64, max_timestamp_ms: i64) {
        if let Some(last) = self.entries.last_mut()
            && position - u64::from(last.position) < INDEX_INTERVAL_BYTES
        {
            last.max_timestamp_ms = last.max_timestamp_ms.max(max_timestamp_ms);
            return;
        }
        let narrow = |wide: u64| match u32::try_from(wide) {
            Ok(narrow) => narrow,
            Err(_) => beyond_a_segment(),
        };
        self.entries.push(IndexEntry {
            offset_delta: narrow(offset.get() - self.base.get()),
            position: narrow(position),
            max_timestamp_ms,
        });
    }

    /// Where the stretch that contains `offset` begins.
    pub fn floor(&self, offset: Offset) -> Option<Stretch> {
        let delta = offset.get().checked_sub(self.base.get())?;
        let after = self
            .entries
            .partition_point(|entry| u64::from(entry.offset_delta) <= delta);
        self.stretch(after.checked_sub(1)?)
    }

    /// All stretches, in order.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch> + '_ {
        (0..self.entries.len()).filter_map(|at| self.stretch(at))
    }

    fn stretch(&self, at: usize) -> Option<Stretch> {
        let entry = self.entries.get(at)?;
        Some(Stretch {
            offset: self.base.plus(u64::from(entry.offset_delta)),
            position: u64::from(entry.position),
            end_position: self
                .entries
                .get(at + 1)
                .map(|next| u64::from(next.position)),
            max_timestamp_ms: entry.max_timestamp_ms,
        })
    }

    /// The largest stamp of all; `i64::MIN` without entries.
    pub fn max_timestamp_ms(&self) -> i64 {
        self.entries
            .iter()
            .map(|entry| entry.max_timestamp_ms)
            .max()
            .unwrap_or(i64::MIN)
    }

    /// Forgets the stretches that begin at or past `position`.
    pub fn cut(&mut self, position: u64) {
        let keep = self
            .entries
            .partition_point(|entry| u64::from(entry.position) < position);
        self.entries.truncate(keep);
    }

    /// Puts `later`, an index of the same segment from `position` on, behind this one.
    pub fn join(&mut self, later: &Self, position: u64) {
        self.cut(position);
        self.entries.extend_from_slice(&later.entries);
    }

    /// The two files' contents; `covered_bytes` is how much of the segment they speak of.
    pub fn encode(&self, covered_bytes: u64) -> (Bytes, Bytes) {
        let head = || {
            let mut body = Vec::with_capacity(BODY_HEAD_BYTES + self.entries.len() * ENTRY_BYTES);
            body.put_u64(self.base.get());
            body.put_u64(covered_bytes);
            body.put_u32(self.entries.len() as u32);
            body
        };
        let mut offsets = head();
        let mut times = head();
        for entry in &self.entries {
            offsets.put_u32(entry.offset_delta);
            offsets.put_u32(entry.position);
            times.put_i64(entry.max_timestamp_ms);
        }
        (
            Bytes::from(frame::encode(&OFFSETS, &offsets)),
            Bytes::from(frame::encode(&TIMES, &times)),
        )
    }

    /// Largest size of either file for a segment of so many bytes.
    pub fn file_bytes_max(segment_bytes: u64) -> usize {
        let entries = segment_bytes / INDEX_INTERVAL_BYTES + 1;
        FRAME_HEAD_BYTES + BODY_HEAD_BYTES + entries as usize * ENTRY_BYTES
    }

    /// Reads both files; `None` if they are not whole, not of this segment, or cover less than
    /// `covered_bytes_min` of it.
    pub fn decode(
        base: Offset,
        covered_bytes_min: u64,
        offsets: &[u8],
        times: &[u8],
    ) -> Option<Self> {
        let (count, mut offsets) = Self::decode_head(&OFFSETS, base, covered_bytes_min, offsets)?;
        let (times_count, mut times) = Self::decode_head(&TIMES, base, covered_bytes_min, times)?;
        if count != times_count {
            return None;
        }
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = IndexEntry {
                offset_delta: offsets.try_get_u32().ok()?,
                position: offsets.try_get_u32().ok()?,
                max_timestamp_ms: times.try_get_i64().ok()?,
            };
            let in_order = match entries.last() {
                None => entry.offset_delta == 0 && entry.position == 0,
                Some(last) => {
                    last.offset_delta < entry.offset_delta && last.position < entry.position
                }
            };
            if !in_order {
                return None;
            }
            entries.push(entry);
        }
        Some(Self { base, entries })
    }

    fn decode_head<'a>(
        format: &Format,
        base: Offset,
        covered_bytes_min: u64,
        file: &'a [u8],
    ) -> Option<(usize, &'a [u8])> {
        let mut body = frame::decode(format, file).ok()?;
        let its_base = body.try_get_u64().ok()?;
        let covered_bytes = body.try_get_u64().ok()?;
        let count = body.try_get_u32().ok()? as usize;
        let whole = body.remaining() == count.checked_mul(ENTRY_BYTES)?;
        (its_base == base.get() && covered_bytes >= covered_bytes_min && whole)
            .then_some((count, body))
    }
}

#[allow(clippy::panic)]
fn beyond_a_segment() -> ! {
    panic!("a segment larger than its index can say")
}
