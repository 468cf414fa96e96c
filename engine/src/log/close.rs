//! Closing a full segment: cut to its length, then its indexes and its seal, in the background.
//!
//! A closed segment is a plain Kafka log segment. Until the seal stands the checkpoint stays below, so
//! that recovery scans the segment again and closing starts anew.

use alloc::vec::Vec;

use bytes::Bytes;

use super::Log;
use super::operations::DiskQueue;
use super::seal::Seal;
use super::task::{Planned, Task};
use crate::disk::{DiskRequest, LogFile};
use crate::identity::Offset;

/// The closing under way: its remaining requests, the next one last.
#[derive(Debug)]
pub(super) struct Closing {
    base: Offset,
    remaining: Vec<DiskRequest>,
}

impl Log {
    /// Starts to close the oldest segment that is to be closed, if none is being closed.
    pub(super) fn close_segments(&mut self, queue: &mut DiskQueue<'_>) {
        if !self.keeper.allows_changes() {
            return;
        }
        if self.closing.is_none() && !self.waits_for_room && self.cut.is_none() {
            self.closing = self.next_closing();
        }
        if self.has_task(|task| *task == Task::Close) {
            return;
        }
        if let Some(request) = self
            .closing
            .as_mut()
            .and_then(|closing| closing.remaining.pop())
        {
            self.submit(queue, Planned::background(Task::Close, request));
        }
    }

    /// The oldest segment that is to be closed, as soon as its index and checksum are known.
    fn next_closing(&self) -> Option<Closing> {
        let at = self.segments.iter().position(|one| one.is_closing)?;
        let segment = self.segments.get(at)?;
        let end = self.segments.get(at + 1)?.base;
        let index = segment.index.whole()?;
        let base = segment.base;
        let (offsets, times) = index.encode(segment.bytes);
        let seal = Seal {
            base,
            end,
            length_bytes: segment.bytes,
            crc: segment.crc?,
            last_append_ms: segment.last_append_ms.unwrap_or(self.last_append_ms),
            max_timestamp_ms: index.max_timestamp_ms(),
        };
        let replace = |file: LogFile, content: Bytes| DiskRequest::Replace {
            file: self.file(file),
            content,
        };
        let remaining = alloc::vec![
            replace(LogFile::Seal(base), seal.encode()),
            replace(LogFile::TimeIndex(base), times),
            replace(LogFile::OffsetIndex(base), offsets),
            DiskRequest::Truncate {
                file: self.file(LogFile::Segment(base)),
                length_bytes: segment.bytes,
            },
        ];
        Some(Closing { base, remaining })
    }

    /// One step of the closing is done.
    pub(super) fn on_closed(&mut self) {
        let Some(closing) = self.closing.take_if(|closing| closing.remaining.is_empty()) else {
            return;
        };
        self.has_closed_since_checkpoint = true;
        if let Some(segment) = self.segment_mut(closing.base) {
            segment.is_closing = false;
            segment.max_timestamp_ms = segment.index.whole().map(|index| index.max_timestamp_ms());
        }
        self.evict_indexes();
    }

    /// The segment whose closing waits for its index or checksum.
    pub(super) fn closing_that_waits(&self) -> Option<Offset> {
        let segment = self.segments.iter().find(|segment| segment.is_closing)?;
        let waits = segment.index.whole().is_none() || segment.crc.is_none();
        waits.then_some(segment.base)
    }
}
