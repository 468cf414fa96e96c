//! A producer table whose snapshot is lost: what it said is read from the log, from the oldest retained
//! segment up to the checkpoint, where the ordinary scan goes on.
//!
//! The table comes out as it was but for producers all of whose batches retention has taken (they are
//! unknown again, as after any retention) and for append times, which are taken for later than true.
//! Nothing of the log is changed by it; the next checkpoint writes a new snapshot. It reads a piece at a
//! time and takes as long as the log is large. Where the log is damaged as well nothing says any more what
//! the table was, and the log stops.

use alloc::format;
use alloc::string::String;
use core::fmt;

use bytes::Bytes;
use corelog_batch::BatchHeader;

use super::Log;
use super::batch_check::{Checked, check_batch, next_offset};
use super::operations::DiskQueue;
use super::progress::LogFault;
use super::seal::decode_producers;
use super::task::{Planned, Task};
use crate::corruption::Corruption;
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::{Offset, Position};
use crate::limits::SCAN_READ_BYTES;

/// How far the log has been read for its producers.
#[derive(Debug)]
pub(super) struct Rebuild {
    /// What is wrong with the snapshot.
    pub fault: Corruption,
    /// Where the reading began.
    pub from: Offset,
    segment: Offset,
    position: u64,
    expected: Offset,
}

impl Log {
    /// The owner cannot read the snapshot of this offset, though its checksum holds: a newer build
    /// wrote it, or a wrong one. The log stops as a damaged one does.
    pub fn condemn_snapshot(&mut self, offset: Offset, what: &impl fmt::Display) {
        self.stop_corrupt(LogFile::Producers(offset), 0, format!("{what}"));
    }

    /// The producer snapshot's file.
    pub(super) fn on_producers(&mut self, bytes: &Bytes, queue: &mut DiskQueue<'_>) {
        use super::frame::FrameFault;
        let offset = self.keeper.state().checkpoint.offset;
        match decode_producers(offset, bytes) {
            Ok(snapshot) => self.start_scan(Some(snapshot), queue),
            // Whole, and not for this build to replace.
            Err(FrameFault::Newer(what)) => {
                self.stop_corrupt(LogFile::Producers(offset), 0, what);
            }
            Err(fault) => self.rebuild_producers(fault.what(), queue),
        }
    }

    /// The producer snapshot's file cannot be read.
    pub(super) fn on_producers_unread(&mut self, error: DiskError, queue: &mut DiskQueue<'_>) {
        self.rebuild_producers(format!("{}", LogFault::Disk(error)), queue);
    }

    /// The snapshot is lost for this reason: the log is read instead.
    pub(super) fn rebuild_producers(&mut self, what: String, queue: &mut DiskQueue<'_>) {
        let checkpoint = self.keeper.state().checkpoint;
        // The segment of the checkpoint is there, or recovery would have stopped before this.
        let from = self
            .segments
            .front()
            .map_or(checkpoint.segment, |segment| segment.base);
        let fault = Corruption {
            file: self.file(LogFile::Producers(checkpoint.offset)),
            position: Position::ZERO,
            what,
        };
        if let Some(recovery) = &mut self.recovery {
            recovery.rebuild = Some(Rebuild {
                fault,
                from,
                segment: from,
                position: 0,
                expected: from,
            });
        }
        self.read_rebuild(SCAN_READ_BYTES, queue);
    }

    /// Reads the next piece, or goes on with the scan above the checkpoint.
    fn read_rebuild(&mut self, length: usize, queue: &mut DiskQueue<'_>) {
        let checkpoint = self.keeper.state().checkpoint;
        let Some(rebuild) = self.rebuild_mut() else {
            return;
        };
        if rebuild.expected == checkpoint.offset {
            return self.start_scan(None, queue);
        }
        let (segment, position) = (rebuild.segment, rebuild.position);
        let request = DiskRequest::Read {
            file: self.file(LogFile::Segment(segment)),
            position: Position(position),
            length_bytes: length,
        };
        self.submit(
            queue,
            Planned::background(Task::Rebuild { length }, request),
        );
    }

    fn rebuild_mut(&mut self) -> Option<&mut Rebuild> {
        self.recovery.as_mut()?.rebuild.as_mut()
    }

    /// A piece of the log below the checkpoint.
    pub(super) fn on_rebuild(
        &mut self,
        bytes: &Bytes,
        length: usize,
        on_scanned: &mut dyn FnMut(&BatchHeader),
        queue: &mut DiskQueue<'_>,
    ) {
        let until = self.keeper.state().checkpoint.offset;
        let next_segment = self.rebuild_mut().map(|rebuild| rebuild.segment);
        let next_segment = next_segment.and_then(|base| self.segment_behind(base));
        let Some(rebuild) = self.rebuild_mut() else {
            return;
        };
        let is_end_of_file = bytes.len() < length;
        let mut at = 0;
        let mut wanted = SCAN_READ_BYTES;
        let mut fault = None;
        while rebuild.expected < until && next_segment != Some(rebuild.expected) {
            let rest = bytes.get(at..).unwrap_or_default();
            match check_batch(rest, rebuild.expected) {
                Checked::Batch(header, batch_bytes) => {
                    on_scanned(&header);
                    rebuild.expected = next_offset(&header);
                    rebuild.position += batch_bytes as u64;
                    at += batch_bytes;
                }
                Checked::Short(needed_bytes) if !is_end_of_file => {
                    wanted = needed_bytes.max(SCAN_READ_BYTES);
                    break;
                }
                Checked::Short(_) => {
                    fault = Some(String::from("the segment ends within a batch"));
                    break;
                }
                Checked::Bad(what) => {
                    fault = Some(what);
                    break;
                }
            }
        }
        let passed =
            rebuild.expected > until || next_segment.is_some_and(|next| rebuild.expected > next);
        if passed {
            fault = Some(format!(
                "a batch ends at {}, across the checkpoint or the next segment",
                rebuild.expected
            ));
        }
        if let Some(what) = fault {
            let (segment, position) = (rebuild.segment, rebuild.position);
            let what = format!("{what}; and {} is damaged, too", rebuild.fault.file);
            return self.stop_corrupt(LogFile::Segment(segment), position, what);
        }
        if let Some(next) = next_segment.filter(|next| *next == rebuild.expected) {
            rebuild.segment = next;
            rebuild.position = 0;
        }
        self.read_rebuild(wanted, queue);
    }

    fn segment_behind(&self, base: Offset) -> Option<Offset> {
        let at = self.segment_at(base)?;
        Some(self.segments.get(at + 1)?.base)
    }
}
