//! Getting a segment's index into memory: from its files, or by scanning the segment.
//!
//! One at a time, for whoever waits: a read, a look-up, a closing, a checkpoint. Few indexes of closed
//! segments stay in memory.

use alloc::string::String;

use bytes::Bytes;

use super::Log;
use super::batch_check::{Checked, check_batch, next_offset};
use super::index::SparseIndex;
use super::operations::DiskQueue;
use super::progress::LogFault;
use super::segment::Index;
use super::task::{Planned, Task};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::{Offset, Position};
use crate::limits::SCAN_READ_BYTES;

/// Closed segments of one log whose index stays in memory.
const CLOSED_INDEXES_MAX: usize = 2;

/// The index being got.
#[derive(Debug)]
pub(super) struct IndexJob {
    pub base: Offset,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Offsets,
    Times { offsets: Bytes },
    Scan(Scan),
}

#[derive(Debug)]
struct Scan {
    /// Where it ends.
    limit: u64,
    position: u64,
    offset: Offset,
    index: SparseIndex,
    crc: u32,
    length: usize,
}

impl Scan {
    fn new(base: Offset, limit: u64) -> Self {
        Self {
            limit,
            position: 0,
            offset: base,
            index: SparseIndex::new(base),
            crc: 0,
            length: SCAN_READ_BYTES,
        }
    }
}

impl Log {
    /// Goes on with getting an index, or starts with the next one that somebody waits for.
    pub(super) fn load_index(&mut self, queue: &mut DiskQueue<'_>) {
        if self.has_task(|task| matches!(task, Task::LoadIndex { .. })) {
            return;
        }
        if self.index_job.is_none() {
            self.index_job = self.next_index_job();
        }
        let Some(job) = &self.index_job else {
            return;
        };
        let base = job.base;
        let segment_bytes = self.segment(base).map_or(0, |segment| segment.bytes);
        let (file, position, length) = match &job.step {
            Step::Offsets => (
                LogFile::OffsetIndex(base),
                0,
                SparseIndex::file_bytes_max(segment_bytes),
            ),
            Step::Times { .. } => (
                LogFile::TimeIndex(base),
                0,
                SparseIndex::file_bytes_max(segment_bytes),
            ),
            Step::Scan(scan) => {
                let left = usize::try_from(scan.limit - scan.position).unwrap_or(usize::MAX);
                (LogFile::Segment(base), scan.position, scan.length.min(left))
            }
        };
        let request = DiskRequest::Read {
            file: self.file(file),
            position: Position(position),
            length_bytes: length,
        };
        self.submit(
            queue,
            Planned::background(Task::LoadIndex { length }, request),
        );
    }

    fn next_index_job(&self) -> Option<IndexJob> {
        let reads = self.reads.iter().filter_map(|read| read.waits_for_index());
        let look_ups = self
            .look_ups
            .iter()
            .filter_map(|look_up| look_up.waits_for_index());
        let closing = self
            .closing_that_waits()
            .filter(|_| !self.is_writing_over());
        let checkpoint = self.checkpoint_index_wanted();
        let base = reads
            .chain(look_ups)
            .chain(closing)
            .chain(checkpoint)
            .find(|base| {
                let is_closing = closing == Some(*base);
                self.segment(*base)
                    .is_some_and(|one| one.index.whole().is_none() || is_closing)
            })?;
        let segment = self.segment(base)?;
        let must_scan = segment.rebuild || (closing == Some(base) && segment.crc.is_none());
        let step = if must_scan {
            Step::Scan(Scan::new(base, self.scan_limit(base)))
        } else {
            Step::Offsets
        };
        Some(IndexJob { base, step })
    }

    /// How far a scan of the segment goes: for one that grows to where the index in memory begins.
    fn scan_limit(&self, base: Offset) -> u64 {
        match self.segment(base) {
            Some(segment) if self.tail(base).is_none() => segment.bytes,
            Some(segment) => match &segment.index {
                Index::From { position, .. } => *position,
                _ => self.durable_end_of(base).0,
            },
            None => 0,
        }
    }

    /// How much of the segment an index file must cover to be of use.
    fn covered_wanted(&self, base: Offset) -> u64 {
        match self.segment(base).map(|segment| &segment.index) {
            Some(Index::From { position, .. }) => *position,
            _ => self.scan_limit(base),
        }
    }

    /// Bytes of an index file or of the scanned segment.
    pub(super) fn on_index_bytes(&mut self, bytes: Result<Bytes, DiskError>, length: usize) {
        let Some(IndexJob { base, step }) = self.index_job.take() else {
            return;
        };
        let next = match (step, bytes) {
            (Step::Offsets, Ok(offsets)) => Some(Step::Times { offsets }),
            (Step::Times { offsets }, Ok(times)) => {
                let covered = self.covered_wanted(base);
                match SparseIndex::decode(base, covered, &offsets, &times) {
                    Some(index) => {
                        self.index_known(base, index, true);
                        None
                    }
                    None => Some(Step::Scan(Scan::new(base, self.scan_limit(base)))),
                }
            }
            (Step::Offsets | Step::Times { .. }, Err(_)) => {
                Some(Step::Scan(Scan::new(base, self.scan_limit(base))))
            }
            (Step::Scan(scan), Ok(bytes)) => self.scanned(base, scan, &bytes, length),
            (Step::Scan(scan), Err(DiskError::Missing)) => {
                let what = "the segment is missing";
                self.index_failed(base, self.segment_fault(base, scan.position, what));
                None
            }
            (Step::Scan(_), Err(error)) => {
                self.index_failed(base, LogFault::Disk(error));
                None
            }
        };
        self.index_job = next.map(|step| IndexJob { base, step });
    }

    /// Takes a piece of the scanned segment; what is to be done next, if anything.
    fn scanned(
        &mut self,
        base: Offset,
        mut scan: Scan,
        bytes: &Bytes,
        length: usize,
    ) -> Option<Step> {
        let mut at = 0;
        while scan.position < scan.limit {
            let rest = bytes.get(at..).unwrap_or_default();
            match check_batch(rest, scan.offset) {
                Checked::Batch(header, batch_bytes) => {
                    scan.index
                        .note(scan.offset, scan.position, header.max_timestamp_ms);
                    scan.crc = crc32c::crc32c_append(scan.crc, &rest[..batch_bytes]);
                    scan.offset = next_offset(&header);
                    scan.position += batch_bytes as u64;
                    at += batch_bytes;
                }
                Checked::Short(needed_bytes) => {
                    let ends =
                        bytes.len() < length || scan.position + needed_bytes as u64 > scan.limit;
                    if ends {
                        let what = "the segment ends within a batch";
                        self.index_failed(base, self.segment_fault(base, scan.position, what));
                        return None;
                    }
                    scan.length = needed_bytes.max(SCAN_READ_BYTES);
                    return Some(Step::Scan(scan));
                }
                Checked::Bad(what) => {
                    self.index_failed(base, self.segment_fault(base, scan.position, what));
                    return None;
                }
            }
        }
        if self.tail(base).is_none() && scan.limit == self.segment(base)?.bytes {
            let crc = scan.crc;
            self.segment_mut(base)?.crc = Some(crc);
        }
        self.index_known(base, scan.index, false);
        None
    }

    fn segment_fault(&self, base: Offset, position: u64, what: impl Into<String>) -> LogFault {
        self.corruption(LogFile::Segment(base), position, what)
    }

    /// Puts an index into memory, in front of what is there of it.
    fn index_known(&mut self, base: Offset, mut index: SparseIndex, is_read: bool) {
        self.index_uses += 1;
        let used = self.index_uses;
        if let Some(segment) = self.segment_mut(base) {
            if let Index::From {
                position,
                index: later,
            } = &segment.index
            {
                index.join(later, *position);
            }
            segment.rebuild = false;
            segment.index_used = used;
            segment.index = Index::Whole { index, is_read };
        }
        self.evict_indexes();
    }

    /// The segment cannot be scanned: whoever waits for its index hears why.
    fn index_failed(&mut self, base: Offset, fault: LogFault) {
        self.fail_reads_of(base, &fault);
        self.fail_look_ups_of(base, &fault);
        if self.checkpoint_index_wanted() == Some(base) {
            self.on_checkpoint_refused();
        }
        if let Some(segment) = self.segment_mut(base) {
            // It stays without a seal; reads of it say what is wrong.
            segment.is_closing = false;
        }
    }

    /// Drops the indexes of closed segments that were not used lately.
    pub(super) fn evict_indexes(&mut self) {
        let tails: alloc::vec::Vec<Offset> = self.tails.iter().map(|tail| tail.base).collect();
        let evictable = |segment: &&mut super::segment::Segment| {
            segment.index.whole().is_some() && !segment.is_closing && !tails.contains(&segment.base)
        };
        loop {
            let held = self.segments.iter_mut().filter(evictable).count();
            if held <= CLOSED_INDEXES_MAX {
                return;
            }
            let oldest = self
                .segments
                .iter_mut()
                .filter(evictable)
                .min_by_key(|segment| segment.index_used);
            if let Some(segment) = oldest {
                segment.index = Index::OnDisk;
            }
        }
    }
}
