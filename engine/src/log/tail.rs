//! The growing end of a segment: staged batches, and which of their blocks are written when.
//!
//! Contiguous batches share blocks, so what is not written yet is kept as ranges of bytes, and a
//! write takes whole blocks of the first range whose first block is free. A batch that begins in a
//! block that is being written waits for that write (which is the group commit) unless enough lies
//! behind that block to be worth a write of its own: then the whole blocks go out at once, and the
//! shared block is written again when it is free.
//!
//! Invariants:
//! 1. At most one write in flight covers a block, and none covers a block of an extension in flight.
//! 2. `front` is the batch boundary below which everything is durable. It only grows.
//! 3. `unwritten` and the fresh parts of the writes in flight are disjoint, and between them hold
//!    everything from the durable position to `end`.
//! 4. A rewritten block holds the bytes that it held before, and more behind them.
//! 5. An extension begins past every byte that has been given a position.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use bytes::{Bytes, BytesMut};

use super::settings::LogSettings;
use crate::disk::{OperationId, Space};
use crate::identity::Offset;
use crate::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn block_start(position: u64) -> u64 {
    position - position % BLOCK
}

fn block_end(position: u64) -> u64 {
    position.next_multiple_of(BLOCK)
}

/// A batch that is not durable yet.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub bytes: Bytes,
    pub base_offset: Offset,
    pub end_offset: Offset,
    pub position: u64,
}

impl Staged {
    fn end(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }
}

#[derive(Debug)]
struct Flight {
    operation: OperationId,
    blocks: Range<u64>,
    fresh: Range<u64>,
}

/// A write to be issued.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlannedWrite {
    pub position: u64,
    pub parts: Vec<Bytes>,
    fresh: Range<u64>,
}

/// The bytes of the block that the front stands in, from the block's start to the front.
#[derive(Debug)]
enum Head {
    Known(Bytes),
    OnDisk,
    Reading,
}

/// The growing end of one segment.
#[derive(Debug)]
pub(super) struct Tail {
    /// The segment.
    pub base: Offset,
    /// Whether its file is durably there.
    pub created: bool,
    /// CRC-32C of the segment up to `end`, if known.
    pub crc: Option<u32>,
    /// Append time of the segment's first batch, in milliseconds.
    pub first_append_ms: Option<u64>,
    head: Head,
    front: u64,
    front_offset: Offset,
    end: u64,
    end_offset: Offset,
    staged: VecDeque<Staged>,
    unwritten: VecDeque<Range<u64>>,
    in_flight: Vec<Flight>,
    issued_to: u64,
    extended_to: u64,
    extending: Option<(OperationId, Range<u64>)>,
    /// Of the last few writes. One of a large batch's ends is often a write of one block, so the last
    /// write alone tells nothing.
    mean_write_bytes: usize,
}

impl Tail {
    /// The tail of a segment that holds durable bytes up to `end` and whose file has `file_bytes`.
    pub fn new(base: Offset, end: u64, end_offset: Offset, file_bytes: u64) -> Self {
        Self {
            base,
            created: true,
            crc: (end == 0).then_some(0),
            first_append_ms: None,
            head: if end.is_multiple_of(BLOCK) {
                Head::Known(Bytes::new())
            } else {
                Head::OnDisk
            },
            front: end,
            front_offset: end_offset,
            end,
            end_offset,
            staged: VecDeque::new(),
            unwritten: VecDeque::new(),
            in_flight: Vec::new(),
            issued_to: block_end(end),
            extended_to: block_start(file_bytes),
            extending: None,
            mean_write_bytes: 0,
        }
    }

    /// The tail of a segment whose file is still to be made.
    pub fn to_be_created(base: Offset) -> Self {
        Self {
            created: false,
            ..Self::new(base, 0, base, 0)
        }
    }

    /// The file is durably there, with so many bytes of zeros.
    pub fn created_with(&mut self, zero_bytes: u64) {
        self.created = true;
        self.extended_to = self.extended_to.max(zero_bytes);
    }

    /// One past the last byte, durable or not.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// One past the last record, durable or not.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// The position below which everything is durable.
    pub fn durable(&self) -> u64 {
        self.front
    }

    /// The offset below which everything is durable.
    pub fn durable_offset(&self) -> Offset {
        self.front_offset
    }

    /// Bytes that are not durable.
    pub fn staged_bytes(&self) -> u64 {
        self.end - self.front
    }

    /// Whether everything is durable and nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.staged.is_empty() && self.in_flight.is_empty() && self.extending.is_none()
    }

    /// The staged batches.
    pub fn staged(&self) -> &VecDeque<Staged> {
        &self.staged
    }

    /// Adds a batch at the end.
    pub fn stage(&mut self, bytes: Bytes, end_offset: Offset) {
        assert!(end_offset > self.end_offset, "a batch without offsets");
        let start = self.end;
        self.end += bytes.len() as u64;
        self.staged.push_back(Staged {
            bytes,
            base_offset: self.end_offset,
            end_offset,
            position: start,
        });
        self.end_offset = end_offset;
        match self.unwritten.back_mut() {
            Some(last) if last.end == start => last.end = self.end,
            _ => self.unwritten.push_back(start..self.end),
        }
    }

    /// The block to be read before anything can be written, if its bytes are needed and unknown.
    pub fn head_to_read(&mut self) -> Option<(u64, usize)> {
        if self.staged.is_empty() || !matches!(self.head, Head::OnDisk) {
            return None;
        }
        self.head = Head::Reading;
        let start = block_start(self.front);
        Some((start, (self.front - start) as usize))
    }

    /// Takes the bytes of that block. False if there are fewer than the log holds.
    pub fn head_read(&mut self, bytes: &Bytes) -> bool {
        let length = (self.front - block_start(self.front)) as usize;
        if bytes.len() < length {
            return false;
        }
        self.head = Head::Known(Bytes::copy_from_slice(&bytes[..length]));
        true
    }

    /// Forgets the bytes of the last block if nothing is staged; they can be read again.
    pub fn forget_head(&mut self) {
        if self.is_idle()
            && !self.front.is_multiple_of(BLOCK)
            && !matches!(self.head, Head::Reading)
        {
            self.head = Head::OnDisk;
            self.staged = VecDeque::new();
            self.unwritten = VecDeque::new();
            self.in_flight = Vec::new();
        }
    }

    /// The next write that may be issued, which the caller then issues and reports by
    /// [`Tail::issued`].
    pub fn plan_write(&mut self, settings: &LogSettings) -> Option<PlannedWrite> {
        if !self.created || !matches!(self.head, Head::Known(_)) {
            return None;
        }
        if self.in_flight.len() >= settings.writes_in_flight_max.max(1) {
            return None;
        }
        let (at, fresh) = (0..self.unwritten.len())
            .find_map(|at| Some((at, self.writable(self.unwritten.get(at)?, settings)?)))?;
        let range = self.unwritten.get(at)?.clone();
        self.unwritten.remove(at);
        // Insert from the back, so that `at` stays right.
        if fresh.end < range.end {
            self.unwritten.insert(at, fresh.end..range.end);
        }
        if range.start < fresh.start {
            self.unwritten.insert(at, range.start..fresh.start);
        }
        let position = block_start(fresh.start);
        Some(PlannedWrite {
            position,
            parts: self.parts(position..fresh.end),
            fresh,
        })
    }

    /// The part of an unwritten range that may be written now.
    fn writable(&self, range: &Range<u64>, settings: &LogSettings) -> Option<Range<u64>> {
        let start = if self.is_block_free(range.start) {
            range.start
        } else {
            let behind = block_end(range.start);
            let worth = behind.saturating_add(settings.parallel_bytes_min.max(1) as u64);
            if range.end < worth || !self.is_block_free(behind) {
                return None;
            }
            behind
        };
        let first_block = block_start(start);
        let write_bytes_max = (settings.write_bytes_max.max(BLOCK_BYTES) as u64 / BLOCK) * BLOCK;
        let mut end = range.end.min(first_block + write_bytes_max);
        if let Some((_, extension)) = &self.extending
            && first_block < extension.end
            && block_end(end) > extension.start
        {
            end = extension.start;
        }
        (end > start).then_some(start..end)
    }

    fn is_block_free(&self, position: u64) -> bool {
        self.in_flight
            .iter()
            .all(|flight| !flight.blocks.contains(&position))
    }

    /// A planned write is on its way.
    pub fn issued(&mut self, operation: OperationId, write: PlannedWrite) {
        let blocks = write.position..block_end(write.fresh.end);
        let clear = self
            .in_flight
            .iter()
            .all(|flight| blocks.end <= flight.blocks.start || flight.blocks.end <= blocks.start);
        assert!(clear, "two writes of one block in flight");
        self.issued_to = self.issued_to.max(blocks.end);
        let bytes = (write.fresh.end - write.position) as usize;
        self.mean_write_bytes = match self.mean_write_bytes {
            0 => bytes,
            mean => (mean - mean / 8 + bytes / 8).max(1),
        };
        self.in_flight.push(Flight {
            operation,
            blocks,
            fresh: write.fresh,
        });
    }

    /// A write is durable.
    pub fn written(&mut self, operation: OperationId) {
        self.in_flight
            .retain(|flight| flight.operation != operation);
        let durable = self
            .in_flight
            .iter()
            .map(|flight| flight.fresh.start)
            .chain(self.unwritten.front().map(|range| range.start))
            .min()
            .unwrap_or(self.end);
        let passed = self
            .staged
            .iter()
            .take_while(|batch| batch.end() <= durable)
            .count();
        let Some(last) = passed.checked_sub(1).and_then(|at| self.staged.get(at)) else {
            return;
        };
        let (front, front_offset) = (last.end(), last.end_offset);
        // A copy, so that a few bytes do not hold a large batch.
        let mut head = BytesMut::with_capacity((front - block_start(front)) as usize);
        for part in self.parts(block_start(front)..front) {
            head.extend_from_slice(&part);
        }
        self.head = Head::Known(head.freeze());
        self.staged.drain(..passed);
        self.front = front;
        self.front_offset = front_offset;
    }

    /// The known bytes of `range`, which begins in the front's block or behind it.
    fn parts(&self, range: Range<u64>) -> Vec<Bytes> {
        let mut parts = Vec::new();
        let head_start = block_start(self.front);
        assert!(head_start <= range.start, "a block below the front");
        if range.start < self.front
            && let Head::Known(head) = &self.head
        {
            let end = range.end.min(self.front);
            parts
                .push(head.slice((range.start - head_start) as usize..(end - head_start) as usize));
        }
        let first = self
            .staged
            .partition_point(|batch| batch.end() <= range.start);
        for batch in self.staged.range(first..) {
            if batch.position >= range.end {
                break;
            }
            let from = range.start.max(batch.position) - batch.position;
            let to = range.end.min(batch.end()) - batch.position;
            parts.push(batch.bytes.slice(from as usize..to as usize));
        }
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        assert_eq!(
            bytes as u64,
            range.end - range.start,
            "bytes of a block are not at hand"
        );
        parts
    }

    /// The stretch to be had ahead now, and what it is to be.
    pub fn plan_extension(&mut self, settings: &LogSettings) -> Option<(Range<u64>, Space)> {
        if !self.created || self.extending.is_some() || self.mean_write_bytes == 0 {
            return None;
        }
        let (space, (least, most)) = if self.mean_write_bytes < settings.extend_below_bytes {
            (Space::Written, settings.extend_bytes)
        } else {
            (Space::Reserved, settings.reserve_bytes)
        };
        let from = self
            .extended_to
            .max(self.issued_to)
            .max(block_end(self.end));
        let step = block_end(from.clamp(least.max(BLOCK), most.max(BLOCK)));
        let to = (from + step).min(block_end(settings.segment_bytes_max));
        let room = from - block_end(self.end);
        // A write that reaches into a stretch waits for it. Room is found quicker than it fills, so
        // large writes keep off it by beginning it a little further ahead.
        let from = match space {
            Space::Reserved if room == 0 => block_end(from + step / 4),
            _ => from,
        };
        (room < step / 2 && from < to).then_some((from..to, space))
    }

    /// A planned extension is on its way.
    pub fn extension_issued(&mut self, operation: OperationId, range: Range<u64>) {
        self.extending = Some((operation, range));
    }

    /// An extension is done (or was refused: then `written` is false).
    pub fn extended(&mut self, written: bool) {
        if let Some((_, range)) = self.extending.take() {
            if written {
                self.extended_to = range.end;
            } else {
                // Not tried again before the next write.
                self.mean_write_bytes = 0;
            }
        }
    }

    /// Drops everything from the batch boundary `end` on, once nothing is in flight. What was
    /// durable stays; `end` may lie below the front.
    pub fn cut(&mut self, end: u64, end_offset: Offset) {
        assert!(self.in_flight.is_empty(), "a cut under a write in flight");
        let mut crc_known = end == self.end;
        self.staged.retain(|batch| batch.end() <= end);
        self.unwritten.retain_mut(|range| {
            range.end = range.end.min(end);
            range.start < range.end
        });
        if end < self.front {
            self.front = end;
            self.front_offset = end_offset;
            self.head = if end.is_multiple_of(BLOCK) {
                Head::Known(Bytes::new())
            } else {
                Head::OnDisk
            };
        }
        self.end = end;
        self.end_offset = end_offset;
        self.issued_to = block_end(end);
        self.extended_to = block_start(end);
        if end == 0 {
            self.crc = Some(0);
            self.first_append_ms = None;
            crc_known = true;
        }
        if !crc_known {
            self.crc = None;
        }
    }
}

/// CRC-32C of `crc`'s bytes and a batch behind them. A batch carries the CRC of all but its first bytes,
/// so those of a large one need not be read again.
pub(super) fn add_batch_crc(crc: u32, batch: &[u8], batch_crc: u32) -> u32 {
    const COMBINE_BYTES_MIN: usize = 16 << 10;
    let covered = corelog_batch::CRC_COVERS_FROM;
    match batch.get(..covered) {
        Some(head) if batch.len() >= COMBINE_BYTES_MIN => {
            let shift = corelog_batch::CrcShift::of(batch.len() - covered);
            shift.combine(crc32c::crc32c_append(crc, head), batch_crc)
        }
        _ => crc32c::crc32c_append(crc, batch),
    }
}
