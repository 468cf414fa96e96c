//! Retention and the log start: whole segments go, oldest first.
//!
//! It goes by the broker's append time, which never falls; what a producer stamped has no say. The log
//! start moves durably first, then files are removed. A segment stays while a read, a look-up or a
//! scan holds it, and while the checkpoint has not passed it.

use super::Log;
use super::operations::DiskQueue;
use super::progress::LogPhase;
use super::seal::{SEAL_FILE_BYTES, Seal};
use super::segment::Segment;
use super::task::{Planned, Task};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::{Offset, Position};
use crate::time::Now;

impl Log {
    /// Moves the log start to `offset`, at most to the durable end and never back; `Start` follows, and
    /// whole segments below it go.
    pub fn delete_before(&mut self, offset: Offset, queue: &mut DiskQueue<'_>) {
        let to = offset.min(self.durable_end());
        if self.phase == LogPhase::Ready && self.keeper.exists {
            if to > self.keeper.state().start {
                self.keeper.change(|state| state.move_start(to));
            } else {
                self.told_start = Offset::ZERO;
                self.tell_durable_state();
            }
            self.advance(queue);
        }
    }

    /// Deletes what the retention settings no longer keep: segments whose last append is too old, and
    /// segments without which the log is still as large as allowed. A growing segment that is too old
    /// is rolled, so that a later call finds it closed.
    ///
    /// May first have to read a segment's seal; then a later call goes on.
    pub fn retain(&mut self, now: Now, queue: &mut DiskQueue<'_>) {
        if self.phase != LogPhase::Ready {
            return;
        }
        let mut excess = self
            .settings
            .retention_bytes
            .map_or(0, |bytes_max| self.bytes().saturating_sub(bytes_max));
        let mut start = None;
        for at in 0..self.segments.len().saturating_sub(1) {
            let (Some(segment), Some(next)) = (self.segments.get(at), self.segments.get(at + 1))
            else {
                break;
            };
            let base = segment.base;
            if segment.is_closing || self.tail(base).is_some() || self.is_held(base) {
                break;
            }
            let bytes = segment.bytes;
            let is_excess = bytes <= excess;
            if !is_excess {
                if self.settings.retention_ms.is_none() {
                    break;
                }
                let Some(last_append_ms) = segment.last_append_ms else {
                    self.read_seal(base, queue);
                    break;
                };
                if !self.is_expired(last_append_ms, now) {
                    break;
                }
            }
            excess = excess.saturating_sub(bytes);
            start = Some(next.base);
        }
        if let Some(start) = start
            && start > self.keeper.state().start
        {
            self.keeper.change(|state| state.move_start(start));
        }
        let is_last_expired = self.tails.len() == 1
            && self.tails.iter().all(|tail| tail.end() > 0)
            && self.is_expired(self.last_append_ms, now);
        if is_last_expired {
            self.keeper.begin_changes();
            self.roll();
        }
        self.advance(queue);
    }

    fn is_expired(&self, last_append_ms: u64, now: Now) -> bool {
        self.settings
            .retention_ms
            .is_some_and(|ms| last_append_ms.saturating_add(ms) < now.wall.0)
    }

    fn read_seal(&mut self, base: Offset, queue: &mut DiskQueue<'_>) {
        if self.has_task(|task| *task == Task::ReadSeal { base }) {
            return;
        }
        let request = DiskRequest::Read {
            file: self.file(LogFile::Seal(base)),
            position: Position::ZERO,
            length_bytes: SEAL_FILE_BYTES,
        };
        self.submit(queue, Planned::background(Task::ReadSeal { base }, request));
    }

    /// A seal was read. Where it is lost, a later append time is assumed.
    pub(super) fn on_seal(&mut self, base: Offset, file: Result<&[u8], DiskError>, now: Now) {
        let seal = file
            .ok()
            .and_then(Seal::decode)
            .filter(|seal| seal.base == base);
        let latest = self.last_append_ms.max(now.wall.0);
        if let Some(segment) = self.segment_mut(base) {
            segment.last_append_ms = Some(seal.map_or(latest, |seal| seal.last_append_ms));
            segment.crc = seal.map(|seal| seal.crc);
            segment.max_timestamp_ms = seal.map(|seal| seal.max_timestamp_ms);
        }
    }

    /// Whether a read, a look-up or a scan needs the segment.
    fn is_held(&self, base: Offset) -> bool {
        self.reads.iter().any(|read| read.holds(base))
            || self.look_ups.iter().any(|look_up| look_up.holds(base))
            || self.index_job.as_ref().is_some_and(|job| job.base == base)
    }

    /// Removes the files of segments wholly below the durable log start, and others that are dead.
    pub(super) fn remove_segments(&mut self, queue: &mut DiskQueue<'_>) {
        if self.is_removing_files || self.waits_for_room || self.cut.is_some() {
            return;
        }
        let facts = *self.keeper.durable();
        while let (Some(first), Some(next)) = (self.segments.front(), self.segments.get(1)) {
            let base = first.base;
            let is_dead = next.base <= facts.start
                && base < facts.checkpoint_segment
                && !first.is_closing
                && !self.is_held(base)
                && self.tail(base).is_none()
                && self.keeper.allows_changes();
            if !is_dead {
                break;
            }
            self.segments.pop_front();
            self.cursors.retain(|cursor| cursor.base != base);
            self.dead_files.extend(Segment::files(base));
        }
        if self.dead_files.is_empty() {
            return;
        }
        let files = core::mem::take(&mut self.dead_files);
        self.is_removing_files = true;
        let request = DiskRequest::Remove {
            partition: self.partition,
            files: files.clone(),
        };
        self.submit(queue, Planned::background(Task::Remove { files }, request));
    }
}
