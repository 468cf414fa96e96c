//! Appends, the writes that carry them, and when a segment rolls.

use alloc::vec::Vec;

use bytes::{Bytes, BytesMut};

use super::Log;
use super::operations::DiskQueue;
use super::progress::{Appended, LogPhase};
use super::segment::Segment;
use super::tail::{Tail, add_batch_crc};
use super::task::{Planned, Task};
use crate::disk::{DiskRequest, LogFile};
use crate::identity::{LeaderEpoch, Offset, Position};
use crate::limits::EXTEND_BYTES_MIN;
use crate::publish::{VerifiedBatch, VerifiedBatches};
use crate::time::Now;

/// Whatever the settings say, an index entry must be able to point into a segment.
const SEGMENT_BYTES_CEILING: u64 = u32::MAX as u64 / 2;
/// As above, for offsets.
const SEGMENT_OFFSETS_CEILING: u64 = u32::MAX as u64 / 2;

impl Log {
    /// Gives `batches` their offsets and stages them for a durable write; `DurableEnd` follows.
    ///
    /// The batches are stamped in place if their buffer is owned by nobody else, and copied once if
    /// it is not.
    ///
    /// # Panics
    /// Unless the phase is `Ready` (or `Cutting`: then the caller has not waited) and [`Log::epoch`]
    /// is `epoch`.
    pub fn append(
        &mut self,
        batches: VerifiedBatches,
        epoch: LeaderEpoch,
        now: Now,
        queue: &mut DiskQueue<'_>,
    ) -> Appended {
        assert!(
            self.phase == LogPhase::Ready,
            "an append to a log not ready"
        );
        assert!(
            self.epoch() == Some(epoch),
            "an append in an epoch not begun"
        );
        self.keeper.begin_changes();
        self.last_append_ms = self.last_append_ms.max(now.wall.0);
        self.was_active = true;
        let first_offset = self.end();
        let (bytes, verified) = batches.into_parts();
        let batches = stamp_all(bytes, &verified, first_offset, epoch);
        for (batch, bytes) in verified.iter().zip(&batches) {
            self.stage(batch, bytes.clone(), now);
        }
        self.advance(queue);
        Appended {
            first_offset,
            end_offset: self.end(),
            append_time_ms: self.last_append_ms,
            batches,
        }
    }

    fn stage(&mut self, batch: &VerifiedBatch, bytes: Bytes, now: Now) {
        let batch_bytes = bytes.len() as u64;
        if self.must_roll_before(batch_bytes, now) {
            self.roll();
        }
        let append_ms = self.last_append_ms;
        let Some(tail) = self.tails.back_mut() else {
            return;
        };
        let (base, position, offset) = (tail.base, tail.end(), tail.end_offset());
        tail.crc = tail
            .crc
            .map(|crc| add_batch_crc(crc, &bytes, batch.header.crc));
        tail.first_append_ms.get_or_insert(append_ms);
        tail.stage(bytes, offset.plus(records(batch)));
        self.bytes_since_checkpoint += batch_bytes;
        if let Some(segment) = self.segment_mut(base) {
            segment.bytes = position + batch_bytes;
            segment.last_append_ms = Some(append_ms);
            if let Some(index) = segment.index.entries_mut() {
                index.note(offset, position, batch.header.max_timestamp_ms);
            }
        }
    }

    fn must_roll_before(&self, batch_bytes: u64, now: Now) -> bool {
        let Some(tail) = self.tails.back() else {
            return true;
        };
        let bytes_max = self.settings.segment_bytes_max.min(SEGMENT_BYTES_CEILING);
        let offsets = tail.end_offset().get() - tail.base.get();
        tail.end() > 0
            && (tail.end() + batch_bytes > bytes_max
                || offsets > SEGMENT_OFFSETS_CEILING
                || self.is_old(tail, now))
    }

    fn is_old(&self, tail: &Tail, now: Now) -> bool {
        tail.first_append_ms
            .is_some_and(|first| first.saturating_add(self.settings.segment_ms) <= now.wall.0)
    }

    /// Rolls the last segment if its first batch is older than the settings allow.
    pub(super) fn roll_if_old(&mut self, now: Now) {
        let is_due = self
            .tails
            .back()
            .is_some_and(|tail| tail.end() > 0 && self.is_old(tail, now));
        if is_due {
            self.keeper.begin_changes();
            self.roll();
        }
    }

    /// Begins a segment at the log's end, in memory. It is made once the one before is durable.
    pub(super) fn roll(&mut self) {
        let base = self.end();
        self.segments.push_back(Segment::empty(base));
        self.tails.push_back(Tail::to_be_created(base));
    }

    /// Issues what may be written of the segment that takes writes, and goes on to the next one when
    /// it is full and durable.
    pub(super) fn write_batches(&mut self, queue: &mut DiskQueue<'_>) {
        if !self.keeper.allows_changes() || self.cut.is_some() {
            return;
        }
        while self.retire_tail() {}
        let Some(tail) = self.tails.front_mut() else {
            return;
        };
        let base = tail.base;
        if !tail.created {
            if !self.has_task(|task| *task == Task::CreateSegment { base }) {
                let request = DiskRequest::Create {
                    file: self.file(LogFile::Segment(base)),
                    written_bytes: EXTEND_BYTES_MIN,
                };
                self.submit(
                    queue,
                    Planned::foreground(Task::CreateSegment { base }, request),
                );
            }
            return;
        }
        if let Some((position, length_bytes)) = tail.head_to_read() {
            let request = DiskRequest::Read {
                file: self.file(LogFile::Segment(base)),
                position: Position(position),
                length_bytes,
            };
            self.submit(queue, Planned::foreground(Task::ReadHead { base }, request));
        }
        self.issue_writes(base, queue);
    }

    /// Takes the first tail away if it is durable and another one follows; its segment is then closed.
    fn retire_tail(&mut self) -> bool {
        let is_full = self.tails.len() > 1
            && self
                .tails
                .front()
                .is_some_and(|tail| tail.created && tail.is_idle());
        if !is_full {
            return false;
        }
        let Some(tail) = self.tails.pop_front() else {
            return false;
        };
        if let Some(segment) = self.segment_mut(tail.base) {
            segment.is_closing = true;
            segment.crc = tail.crc;
        }
        true
    }

    fn issue_writes(&mut self, base: Offset, queue: &mut DiskQueue<'_>) {
        let settings = self.settings;
        let file = self.file(LogFile::Segment(base));
        loop {
            let Some(tail) = self.tail_mut(base) else {
                return;
            };
            let Some(mut write) = tail.plan_write(&settings) else {
                break;
            };
            let request = DiskRequest::Write {
                file,
                position: Position(write.position),
                parts: core::mem::take(&mut write.parts),
            };
            let operation = self.submit(
                queue,
                Planned::foreground(Task::WriteData { base }, request),
            );
            if let Some(tail) = self.tail_mut(base) {
                tail.issued(operation, write);
            }
        }
        let Some((range, space)) = self
            .tail_mut(base)
            .and_then(|tail| tail.plan_extension(&settings))
        else {
            return;
        };
        let request = DiskRequest::Extend {
            file,
            from: Position(range.start),
            to: Position(range.end),
            space,
        };
        let operation = self.submit(queue, Planned::background(Task::Extend { base }, request));
        if let Some(tail) = self.tail_mut(base) {
            tail.extension_issued(operation, range);
        }
    }
}

fn records(batch: &VerifiedBatch) -> u64 {
    u64::from(batch.header.last_offset_delta.unsigned_abs()) + 1
}

fn stamp_all(
    bytes: Bytes,
    verified: &[VerifiedBatch],
    first_offset: Offset,
    epoch: LeaderEpoch,
) -> Vec<Bytes> {
    let mut buffer = match bytes.try_into_mut() {
        Ok(buffer) => buffer,
        Err(shared) => BytesMut::from(shared.as_ref()),
    };
    let mut offset = first_offset;
    for batch in verified {
        corelog_batch::stamp(
            &mut buffer[batch.start..batch.end],
            offset.to_wire(),
            epoch.to_wire(),
        );
        offset = offset.plus(records(batch));
    }
    let stamped = buffer.freeze();
    verified
        .iter()
        .map(|batch| stamped.slice(batch.start..batch.end))
        .collect()
}
