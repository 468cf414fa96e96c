//! Finding out what is on the disk.
//!
//! Order: files of the folder; state file; producer snapshot; batches above the checkpoint, segment by
//! segment; then repair: the stale tail is cut off, and what was found is made durable anew before it
//! counts. A clean log is not scanned. Where the producer snapshot is lost, `rebuild` reads what lies
//! below the checkpoint too.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use corelog_batch::BatchHeader;

use super::Log;
use super::batch_check::{Checked, check_batch, next_offset};
use super::index::SparseIndex;
use super::keeper::StateKeeper;
use super::operations::DiskQueue;
use super::progress::{LogPhase, LogProgress, Recovered};
use super::rebuild::Rebuild;
use super::seal::PRODUCERS_FILE_BYTES_MAX;
use super::segment::{Index, Segment};
use super::state::{STATE_FILE_BYTES, Slots, read_slots};
use super::tail::{Tail, add_batch_crc};
use super::task::{Planned, Task};
use crate::disk::{DiskRequest, LogFile};
use crate::identity::{LeaderEpoch, Offset, Position};
use crate::limits::SCAN_READ_BYTES;
use crate::time::Now;

/// A recovery under way.
#[derive(Debug)]
pub(super) struct Recovery {
    begun: bool,
    files: Vec<(LogFile, u64)>,
    snapshot: Option<Bytes>,
    /// The producer snapshot is lost, and what it said is read from the log.
    pub(super) rebuild: Option<Rebuild>,
    /// The segment being scanned, and where in it.
    segment: Offset,
    position: u64,
    expected: Offset,
    crc: Option<u32>,
    scanned: Vec<Offset>,
    scanned_bytes: u64,
    cut_bytes: u64,
    /// Length of the last segment's file after the repair.
    file_bytes: u64,
    dead: Vec<LogFile>,
    /// Repairs in flight.
    repairs: usize,
}

impl Recovery {
    pub(super) fn new(begun: bool) -> Self {
        Self {
            begun,
            files: Vec::new(),
            snapshot: None,
            rebuild: None,
            segment: Offset::ZERO,
            position: 0,
            expected: Offset::ZERO,
            crc: None,
            scanned: Vec::new(),
            scanned_bytes: 0,
            cut_bytes: 0,
            file_bytes: 0,
            dead: Vec::new(),
            repairs: 0,
        }
    }

    pub(super) fn size_of(&self, file: LogFile) -> Option<u64> {
        self.files
            .iter()
            .find(|(name, _)| *name == file)
            .map(|(_, bytes)| *bytes)
    }

    fn segments(&self) -> Vec<(Offset, u64)> {
        let mut segments: Vec<(Offset, u64)> = self
            .files
            .iter()
            .filter_map(|(file, bytes)| match file {
                LogFile::Segment(base) => Some((*base, *bytes)),
                _ => None,
            })
            .collect();
        segments.sort_unstable();
        segments
    }
}

impl Log {
    /// The folder's files, or that there is no folder.
    pub(super) fn on_listed(
        &mut self,
        files: Option<Vec<(LogFile, u64)>>,
        queue: &mut DiskQueue<'_>,
    ) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let begun = recovery.begun;
        let is_folder = files.is_some();
        recovery.files = files.unwrap_or_default();
        let state_bytes = recovery.size_of(LogFile::State);
        let is_empty = recovery.files.is_empty();
        let has_segments = !recovery.segments().is_empty();
        match state_bytes {
            None if begun || has_segments => {
                let what = if is_folder {
                    "missing beside what it should describe"
                } else {
                    "the whole folder is missing"
                };
                self.stop_corrupt(LogFile::State, 0, what);
            }
            None if is_empty => self.recovered_blank(),
            // Small files alone describe nothing; none is made before the state.
            None => self.remove_blank(queue),
            Some(state_bytes) => {
                let length_bytes = STATE_FILE_BYTES.min(state_bytes as usize);
                if length_bytes == 0 {
                    return self.on_state(&Bytes::new(), queue);
                }
                let request = DiskRequest::Read {
                    file: self.file(LogFile::State),
                    position: Position::ZERO,
                    length_bytes,
                };
                self.submit(queue, Planned::foreground(Task::ReadState, request));
            }
        }
    }

    /// The folder was made, and nothing ever written in it: a crash in the first append.
    fn remove_blank(&mut self, queue: &mut DiskQueue<'_>) {
        let request = DiskRequest::RemoveFolder {
            partition: self.partition,
        };
        self.submit(queue, Planned::foreground(Task::RemoveBlank, request));
    }

    /// There is nothing, as is right for a log not begun.
    pub(super) fn recovered_blank(&mut self) {
        if self.recovery.take().is_none() {
            return;
        }
        self.phase = LogPhase::Ready;
        self.outbox.push(LogProgress::Recovered(Recovered {
            start: Offset::ZERO,
            end: Offset::ZERO,
            epoch: None,
            promised: LeaderEpoch::ZERO,
            producers_snapshot: None,
            snapshot_offset: Offset::ZERO,
            snapshot_lost: None,
            scanned_bytes: 0,
            cut_bytes: 0,
            clean: true,
        }));
    }

    /// The bytes of the state file.
    pub(super) fn on_state(&mut self, bytes: &Bytes, queue: &mut DiskQueue<'_>) {
        let Some(recovery) = &self.recovery else {
            return;
        };
        let begun = recovery.begun;
        let has_segments = !recovery.segments().is_empty();
        let (state, sequence, slot) = match read_slots(bytes) {
            Slots::State {
                state,
                sequence,
                slot,
            } => (state, sequence, slot),
            Slots::Blank if !begun && !has_segments => return self.remove_blank(queue),
            Slots::Blank => return self.stop_corrupt(LogFile::State, 0, "blank"),
            Slots::Bad(fault) => return self.stop_corrupt(LogFile::State, 0, fault.what()),
        };
        if state.partition != self.partition {
            let what = format!("of partition {}", state.partition);
            return self.stop_corrupt(LogFile::State, 0, what);
        }
        if state.log_id != self.log_id {
            let what = format!("of log {} where {} belongs", state.log_id, self.log_id);
            return self.stop_corrupt(LogFile::State, 0, what);
        }
        self.keeper = StateKeeper::read(state, sequence, slot);
        self.told_promised = self.keeper.durable().promised;
        self.told_start = self.keeper.durable().start;
        self.last_append_ms = self.keeper.state().checkpoint.last_append_ms;
        if self.take_segments() {
            self.read_producers(queue);
        }
    }

    /// Sorts the folder's files: segments, and what nothing needs. False if the log stops.
    fn take_segments(&mut self) -> bool {
        let Some(mut recovery) = self.recovery.take() else {
            return false;
        };
        let state = self.keeper.state();
        let checkpoint = state.checkpoint;
        let mut segments = recovery.segments();
        // A removal that a crash cut short: its log start is durable.
        while let [(first, _), (next, _), ..] = segments[..]
            && next <= state.start
            && first < checkpoint.segment
        {
            segments.remove(0);
        }
        let last = segments.last().map(|(base, _)| *base);
        let is_kept = |file: &LogFile| match file {
            LogFile::State => true,
            LogFile::Producers(offset) => checkpoint.producers && *offset == checkpoint.offset,
            LogFile::Segment(base) | LogFile::OffsetIndex(base) | LogFile::TimeIndex(base) => {
                segments.iter().any(|(kept, _)| kept == base)
            }
            LogFile::Seal(base) => {
                Some(*base) != last && segments.iter().any(|(kept, _)| kept == base)
            }
        };
        recovery.dead = recovery
            .files
            .iter()
            .map(|(file, _)| *file)
            .filter(|file| !is_kept(file))
            .collect();
        let durable_end = state.durable_end;
        let fault = match segments
            .iter()
            .find(|(base, _)| *base == checkpoint.segment)
        {
            None if segments.is_empty()
                && !recovery.begun
                && checkpoint.offset == Offset::ZERO
                && durable_end == Offset::ZERO =>
            {
                None
            }
            None => Some((0, String::from("missing, and the checkpoint is in it"))),
            Some((_, bytes)) if *bytes < checkpoint.position => {
                Some((*bytes, String::from("the file ends below the checkpoint")))
            }
            Some(_) if state.clean && last != Some(checkpoint.segment) => {
                Some((0, String::from("another segment behind a clean end")))
            }
            Some(_) => None,
        };
        let lost_start = segments.first().filter(|(first, _)| *first > state.start);
        let fault = fault.map(|(position, what)| (checkpoint.segment, position, what));
        let fault = fault.or_else(|| {
            let what = String::from("missing, and the log start is in it");
            lost_start.map(|_| (state.start, 0, what))
        });
        self.segments = segments
            .iter()
            .map(|(base, bytes)| Segment::on_disk(*base, *bytes))
            .collect();
        self.recovery = Some(recovery);
        if let Some((segment, position, what)) = fault {
            self.stop_corrupt(LogFile::Segment(segment), position, what);
            return false;
        }
        true
    }

    fn read_producers(&mut self, queue: &mut DiskQueue<'_>) {
        let checkpoint = self.keeper.state().checkpoint;
        if !checkpoint.producers {
            return self.start_scan(None, queue);
        }
        let file = LogFile::Producers(checkpoint.offset);
        let size = self
            .recovery
            .as_ref()
            .and_then(|recovery| recovery.size_of(file));
        let Some(bytes) = size.filter(|bytes| (1..=PRODUCERS_FILE_BYTES_MAX).contains(bytes))
        else {
            return self.rebuild_producers("missing, empty or larger than any".into(), queue);
        };
        let request = DiskRequest::Read {
            file: self.file(file),
            position: Position::ZERO,
            length_bytes: bytes as usize,
        };
        self.submit(queue, Planned::foreground(Task::ReadProducers, request));
    }

    pub(super) fn start_scan(&mut self, snapshot: Option<Bytes>, queue: &mut DiskQueue<'_>) {
        let state = self.keeper.state();
        let (checkpoint, start, is_clean) = (state.checkpoint, state.start, state.clean);
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        recovery.snapshot = snapshot;
        recovery.segment = checkpoint.segment;
        recovery.position = checkpoint.position;
        recovery.expected = checkpoint.offset;
        recovery.crc = if checkpoint.position == 0 {
            Some(0)
        } else {
            checkpoint.crc
        };
        let file_bytes = recovery.size_of(LogFile::Segment(checkpoint.segment));
        recovery.file_bytes = file_bytes.unwrap_or(0);
        self.open_index(checkpoint.segment, checkpoint.position);
        if is_clean || file_bytes.is_none() {
            if checkpoint.offset < start {
                return self.stop_before_start(checkpoint.offset);
            }
            return match is_clean {
                true => self.finish_recovery(false),
                false => self.repair(queue),
            };
        }
        self.read_scan(SCAN_READ_BYTES, queue);
    }

    /// Whatever the scan finds goes into an index of the segment from `position` on.
    fn open_index(&mut self, base: Offset, position: u64) {
        if let Some(segment) = self.segment_mut(base) {
            let index = SparseIndex::new(base);
            segment.index = if position == 0 {
                Index::Whole {
                    index,
                    is_read: false,
                }
            } else {
                Index::From { position, index }
            };
        }
    }

    fn read_scan(&mut self, length: usize, queue: &mut DiskQueue<'_>) {
        let Some(recovery) = &self.recovery else {
            return;
        };
        let request = DiskRequest::Read {
            file: self.file(LogFile::Segment(recovery.segment)),
            position: Position(recovery.position),
            length_bytes: length,
        };
        self.submit(queue, Planned::foreground(Task::Scan { length }, request));
    }

    /// A piece of a segment above the checkpoint.
    pub(super) fn on_scan(
        &mut self,
        bytes: &Bytes,
        length: usize,
        now: Now,
        on_scanned: &mut dyn FnMut(&BatchHeader),
        queue: &mut DiskQueue<'_>,
    ) {
        let Some(mut recovery) = self.recovery.take() else {
            return;
        };
        let is_end_of_file = bytes.len() < length;
        let mut at = 0;
        let end = loop {
            let rest = bytes.get(at..).unwrap_or_default();
            match self.check_scanned(rest, recovery.expected) {
                Checked::Batch(header, batch_bytes) => {
                    on_scanned(&header);
                    self.last_append_ms = self.last_append_ms.max(now.wall.0);
                    recovery.crc = recovery
                        .crc
                        .map(|crc| add_batch_crc(crc, &rest[..batch_bytes], header.crc));
                    if let Some(segment) = self.segment_mut(recovery.segment)
                        && let Some(index) = segment.index.entries_mut()
                    {
                        index.note(
                            recovery.expected,
                            recovery.position,
                            header.max_timestamp_ms,
                        );
                    }
                    recovery.expected = next_offset(&header);
                    recovery.position += batch_bytes as u64;
                    recovery.scanned_bytes += batch_bytes as u64;
                    at += batch_bytes;
                }
                Checked::Short(needed_bytes) if !is_end_of_file => {
                    break Err(needed_bytes.max(SCAN_READ_BYTES));
                }
                Checked::Short(_) | Checked::Bad(_) => break Ok(rest),
            }
        };
        match end {
            Err(needed_bytes) => {
                self.recovery = Some(recovery);
                self.read_scan(needed_bytes, queue);
            }
            Ok(rest) => {
                let stale_bytes = rest
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |last| last as u64 + 1);
                // More than was read may be there, and none of it is looked at.
                let is_stale = stale_bytes > 0 || !is_end_of_file;
                self.recovery = Some(recovery);
                self.on_segment_end(stale_bytes, is_stale, queue);
            }
        }
    }

    /// As [`check_batch`], with what the state says: the epoch of the offset, and a cut under way.
    fn check_scanned(&self, rest: &[u8], expected: Offset) -> Checked {
        let state = self.keeper.state();
        let checked = check_batch(rest, expected);
        let Checked::Batch(header, _) = &checked else {
            return checked;
        };
        if state.cut_to.is_some_and(|to| next_offset(header) > to) {
            return Checked::Bad(String::from("cut off"));
        }
        match state.epoch_at(expected) {
            Some(epoch) if header.leader_epoch != epoch.to_wire() => Checked::Bad(format!(
                "epoch {} where {epoch} belongs",
                header.leader_epoch
            )),
            _ => checked,
        }
    }

    /// The batches of one segment end here.
    fn on_segment_end(&mut self, stale_bytes: u64, is_stale: bool, queue: &mut DiskQueue<'_>) {
        let cut_to = self.keeper.state().cut_to;
        let durable_end = self.keeper.state().durable_end;
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let (base, position, end) = (recovery.segment, recovery.position, recovery.expected);
        recovery.scanned.push(base);
        let next = self
            .segments
            .iter()
            .map(|segment| segment.base)
            .find(|other| *other > base);
        let is_cut_here = cut_to.is_some_and(|to| end >= to);
        match next {
            Some(_) if is_cut_here => {}
            Some(next) if next == end => {
                recovery.segment = next;
                recovery.position = 0;
                let crc = recovery.crc.replace(0);
                let last_append_ms = self.last_append_ms;
                if let Some(segment) = self.segment_mut(base) {
                    segment.bytes = position;
                    segment.crc = crc;
                    segment.is_closing = true;
                    segment.last_append_ms = Some(last_append_ms);
                }
                self.open_index(next, 0);
                return self.read_scan(SCAN_READ_BYTES, queue);
            }
            Some(next) => {
                let what = format!(
                    "the batches end at offset {end}, and the next segment begins at {next}"
                );
                return self.stop_corrupt(LogFile::Segment(base), position, what);
            }
            None => {}
        }
        if end < durable_end {
            let what =
                format!("the batches end at offset {end}, and were durable up to {durable_end}");
            return self.stop_corrupt(LogFile::Segment(base), position, what);
        }
        if end < self.keeper.state().start {
            return self.stop_before_start(end);
        }
        // A cut under way: the segments above go.
        while let Some(last) = self.segments.back()
            && last.base > base
        {
            if let Some(recovery) = &mut self.recovery {
                recovery.dead.extend(Segment::files(last.base));
            }
            self.segments.pop_back();
        }
        let file_bytes = self
            .recovery
            .as_ref()
            .map(|recovery| recovery.size_of(LogFile::Segment(base)).unwrap_or(position));
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        recovery.cut_bytes = stale_bytes;
        if is_stale {
            recovery.file_bytes = position;
            let request = DiskRequest::Truncate {
                file: self.file(LogFile::Segment(base)),
                length_bytes: position,
            };
            self.submit(queue, Planned::foreground(Task::RepairTail, request));
        } else {
            recovery.file_bytes = file_bytes.unwrap_or(position);
            self.repair(queue);
        }
    }

    /// The state claims a start that its batches do not reach: one of them is wrong.
    fn stop_before_start(&mut self, end: Offset) {
        let start = self.keeper.state().start;
        let what = format!("the log starts at offset {start}, and its batches end at {end}");
        self.stop_corrupt(LogFile::State, 0, what);
    }

    /// The stale tail is gone.
    pub(super) fn on_tail_repaired(&mut self, queue: &mut DiskQueue<'_>) {
        self.repair(queue);
    }

    /// Makes durable anew what was found: segments, state, and the folder that names them.
    fn repair(&mut self, queue: &mut DiskQueue<'_>) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let files = core::mem::take(&mut recovery.dead);
        let scanned = core::mem::take(&mut recovery.scanned);
        recovery.repairs = scanned.len() + 2;
        let scanned = scanned.into_iter().map(LogFile::Segment);
        for file in scanned.chain([LogFile::State]) {
            let request = DiskRequest::Sync {
                file: self.file(file),
            };
            self.submit(queue, Planned::foreground(Task::Repair, request));
        }
        let request = DiskRequest::Remove {
            partition: self.partition,
            files,
        };
        self.submit(queue, Planned::foreground(Task::Repair, request));
    }

    /// One repair is done.
    pub(super) fn on_repaired(&mut self, _now: Now) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        recovery.repairs -= 1;
        if recovery.repairs == 0 {
            self.finish_recovery(true);
        }
    }

    fn finish_recovery(&mut self, was_scanned: bool) {
        let Some(recovery) = self.recovery.take() else {
            return;
        };
        let checkpoint = self.keeper.state().checkpoint;
        let last_append_ms = self.last_append_ms;
        if let Some(segment) = self.segment_mut(recovery.segment) {
            segment.bytes = recovery.position;
            segment.last_append_ms = Some(last_append_ms);
            let mut tail = Tail::new(
                recovery.segment,
                recovery.position,
                recovery.expected,
                recovery.file_bytes,
            );
            tail.crc = recovery.crc;
            tail.first_append_ms = match recovery.position {
                0 => None,
                _ if checkpoint.segment == recovery.segment && checkpoint.first_append_ms > 0 => {
                    Some(checkpoint.first_append_ms)
                }
                // Later than true.
                _ => Some(last_append_ms),
            };
            self.tails.push_back(tail);
            self.has_begun = true;
        }
        self.dead_files.extend(recovery.dead);
        if self.keeper.state().cut_to.is_some() {
            let version = self.keeper.change(|state| state.cut_to = None);
            self.keeper.gate(version);
        }
        self.forget_epochs_without_records();
        self.bytes_since_checkpoint = recovery.scanned_bytes;
        self.is_snapshot_lost = recovery.rebuild.is_some();
        let (snapshot_offset, snapshot_lost) = match recovery.rebuild {
            Some(rebuild) => (rebuild.from, Some(rebuild.fault)),
            None => (checkpoint.offset, None),
        };
        self.told_durable_end = self.end();
        self.phase = LogPhase::Ready;
        self.outbox.push(LogProgress::Recovered(Recovered {
            start: self.start(),
            end: self.end(),
            epoch: self.epoch(),
            promised: self.promised(),
            producers_snapshot: recovery.snapshot,
            snapshot_offset,
            snapshot_lost,
            scanned_bytes: recovery.scanned_bytes,
            cut_bytes: recovery.cut_bytes,
            clean: !was_scanned,
        }));
    }

    /// An epoch can be durable before what was appended ahead of it is; where a crash takes that, the
    /// epoch begins above the end. Its promise stays.
    fn forget_epochs_without_records(&mut self) {
        let end = self.end();
        let history = &self.keeper.state().history;
        if history.last().is_some_and(|last| last.first_offset > end) {
            let version = self.keeper.change(|state| state.cut_history(end));
            self.keeper.gate(version);
        }
    }
}
