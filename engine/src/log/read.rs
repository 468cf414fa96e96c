//! Reads of whole batches: from what is staged, or from a segment by its index.

use alloc::string::String;

use bytes::Bytes;
use corelog_batch::BatchHeader;

use super::Log;
use super::batch_check::{Checked, check_batch, check_header, next_offset};
use super::operations::DiskQueue;
use super::progress::{LogFault, LogProgress, Pieces, ReadId, Started};
use super::segment::Index;
use super::task::{Planned, Task};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::{Offset, Position};
use crate::limits::{BLOCK_BYTES, FETCH_BYTES_MAX};

/// Places where reads stopped, so that the next one goes on without an index.
const CURSORS_MAX: usize = 4;
/// A segment of at most this many bytes is read from its start.
const WITHOUT_INDEX_BYTES_MAX: u64 = 64 << 10;

/// Where the batch of an offset begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub base: Offset,
    pub offset: Offset,
    pub position: u64,
}

/// A read on its way.
#[derive(Debug)]
pub(super) struct PendingRead {
    id: ReadId,
    base: Offset,
    offset: Offset,
    bytes_max: usize,
    up_to: Offset,
    /// Of a cut, which only wants to know where the batch of `offset` begins.
    is_locating: bool,
    step: Step,
}

/// What to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The offset of the batch at `position`.
    expected: Offset,
    position: u64,
    length: usize,
    /// An index file said so, which proves nothing.
    is_hint: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Waits for the segment's index.
    Index,
    Planned(Place),
    Reading(Place),
}

impl PendingRead {
    pub(super) fn holds(&self, base: Offset) -> bool {
        self.base == base
    }

    pub(super) fn waits_for_index(&self) -> Option<Offset> {
        (self.step == Step::Index).then_some(self.base)
    }
}

/// What a piece of a segment gave.
enum Walked {
    /// Served bytes, where they begin, and where the next batch does.
    Served {
        bytes: Bytes,
        first: Cursor,
        next: Cursor,
    },
    /// Nothing yet: read on from there, at least so much.
    More { from: Cursor, needed_bytes: usize },
    /// Not what belongs there.
    Bad {
        position: u64,
        what: String,
        is_first: bool,
    },
}

impl Log {
    /// Reads whole batches from the one that contains `offset` on, all below `up_to`, at most
    /// `bytes_max` bytes; the first batch comes even if it is larger. Less than that may come (a read
    /// stays within a segment, and within what is durable or what is not); nothing comes only for
    /// `offset` at or past `up_to`. Every batch served from the disk has had its CRC checked.
    ///
    /// # Panics
    /// If `offset` is below [`Log::start`] or `up_to` is above [`Log::end`].
    pub fn read(
        &mut self,
        offset: Offset,
        bytes_max: usize,
        up_to: Offset,
        queue: &mut DiskQueue<'_>,
    ) -> Started<Pieces> {
        assert!(offset >= self.start(), "a read below the log start");
        assert!(up_to <= self.end(), "a read past the log's end");
        if offset >= up_to {
            return Started::Ready(Pieces::new());
        }
        if offset >= self.durable_end() {
            return Started::Ready(self.read_staged(offset, bytes_max, up_to));
        }
        let id = self.start_read(offset, bytes_max, up_to, false);
        self.advance(queue);
        Started::Pending(id)
    }

    /// A read that finds where the batch of `offset` begins, for a cut.
    pub(super) fn locate(&mut self, offset: Offset) {
        self.start_read(offset, 1, self.durable_end(), true);
    }

    fn start_read(
        &mut self,
        offset: Offset,
        bytes_max: usize,
        up_to: Offset,
        is_locating: bool,
    ) -> ReadId {
        self.next_read += 1;
        let id = ReadId(self.next_read);
        self.reads.push(PendingRead {
            id,
            base: self.segment_of(offset).unwrap_or(Offset::ZERO),
            offset,
            bytes_max: bytes_max.min(FETCH_BYTES_MAX),
            up_to,
            is_locating,
            step: Step::Index,
        });
        id
    }

    fn read_staged(&self, offset: Offset, bytes_max: usize, up_to: Offset) -> Pieces {
        let mut pieces = Pieces::new();
        let mut bytes = 0;
        let staged = self.tails.iter().flat_map(|tail| tail.staged().iter());
        for batch in staged.skip_while(|batch| batch.end_offset <= offset) {
            let is_over =
                batch.end_offset > up_to || (bytes > 0 && bytes + batch.bytes.len() > bytes_max);
            if is_over {
                break;
            }
            bytes += batch.bytes.len();
            pieces.push(batch.bytes.clone());
        }
        pieces
    }

    /// Issues every read whose place is known.
    pub(super) fn advance_reads(&mut self, queue: &mut DiskQueue<'_>) {
        for at in 0..self.reads.len() {
            let Some(read) = self.reads.get(at) else {
                break;
            };
            let (base, id) = (read.base, read.id);
            let place = match &read.step {
                Step::Reading(_) => continue,
                Step::Planned(place) => Some(*place),
                Step::Index => self.place(base, read.offset, read.bytes_max),
            };
            let Some(mut place) = place else {
                continue;
            };
            let left = self.durable_end_of(base).0.saturating_sub(place.position);
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            place.length = place.length.max(BLOCK_BYTES).min(left);
            let request = DiskRequest::Read {
                file: self.file(LogFile::Segment(base)),
                position: Position(place.position),
                length_bytes: place.length,
            };
            let length = place.length;
            self.submit(
                queue,
                Planned::foreground(Task::Read { id, length }, request),
            );
            if let Some(read) = self.reads.get_mut(at) {
                read.step = Step::Reading(place);
            }
        }
    }

    /// Where to read from, if that is known without the segment's index or its index is in memory.
    fn place(&mut self, base: Offset, offset: Offset, bytes_max: usize) -> Option<Place> {
        let known = self
            .cursors
            .iter()
            .find(|cursor| cursor.base == base && cursor.offset == offset);
        if let Some(cursor) = known {
            return Some(Place {
                expected: offset,
                position: cursor.position,
                length: bytes_max,
                is_hint: false,
            });
        }
        let durable_bytes = self.durable_end_of(base).0;
        self.index_uses += 1;
        let used = self.index_uses;
        let segment = self.segment_mut(base)?;
        if let Some(stretch) = segment
            .index
            .entries()
            .and_then(|index| index.floor(offset))
        {
            segment.index_used = used;
            let skipped = match stretch.offset == offset {
                true => 0,
                false => stretch.end_position.unwrap_or(durable_bytes) - stretch.position,
            };
            return Some(Place {
                expected: stretch.offset,
                position: stretch.position,
                length: bytes_max.saturating_add(skipped as usize),
                is_hint: matches!(segment.index, Index::Whole { is_read: true, .. }),
            });
        }
        (durable_bytes <= WITHOUT_INDEX_BYTES_MAX).then_some(Place {
            expected: base,
            position: 0,
            length: durable_bytes as usize,
            is_hint: false,
        })
    }

    /// Bytes for a read.
    pub(super) fn on_read(&mut self, id: ReadId, bytes: Result<Bytes, DiskError>, length: usize) {
        let Some(at) = self.reads.iter().position(|read| read.id == id) else {
            return;
        };
        let Some(read) = self.reads.get(at) else {
            return;
        };
        let base = read.base;
        let Step::Reading(place) = read.step else {
            return;
        };
        let walked = match bytes {
            Ok(bytes) => {
                let is_cut_off = bytes.len() < length;
                self.walk(read, place, &bytes, is_cut_off)
            }
            Err(DiskError::Missing) => Walked::Bad {
                position: 0,
                what: String::from("the segment is missing"),
                is_first: false,
            },
            Err(error) => {
                let read = self.reads.swap_remove(at);
                return self.finish_read(read, Err(LogFault::Disk(error)));
            }
        };
        match walked {
            Walked::Served { bytes, first, next } => {
                let read = self.reads.swap_remove(at);
                self.remember(next);
                if read.is_locating {
                    self.on_located(first);
                } else {
                    // Empty where `up_to` lies within the first batch.
                    let pieces = core::iter::once(bytes).filter(|piece| !piece.is_empty());
                    self.finish_read(read, Ok(pieces.collect()));
                }
            }
            Walked::More { from, needed_bytes } => {
                if let Some(read) = self.reads.get_mut(at) {
                    read.step = Step::Planned(Place {
                        expected: from.offset,
                        position: from.position,
                        length: needed_bytes.max(read.bytes_max),
                        is_hint: false,
                    });
                }
            }
            Walked::Bad { is_first: true, .. } if place.is_hint => {
                // The index file lied; the segment itself is asked.
                if let Some(segment) = self.segment_mut(base) {
                    segment.index = Index::OnDisk;
                    segment.rebuild = true;
                }
                if let Some(read) = self.reads.get_mut(at) {
                    read.step = Step::Index;
                }
            }
            Walked::Bad { position, what, .. } => {
                let fault = self.corruption(LogFile::Segment(base), position, what);
                let read = self.reads.swap_remove(at);
                self.finish_read(read, Err(fault));
            }
        }
    }

    fn finish_read(&mut self, read: PendingRead, result: Result<Pieces, LogFault>) {
        match result {
            Err(fault) if read.is_locating => self.fail(fault),
            result => self.outbox.push(LogProgress::Read(read.id, result)),
        }
    }

    fn remember(&mut self, cursor: Cursor) {
        if self.cursors.contains(&cursor) {
            return;
        }
        if self.cursors.len() >= CURSORS_MAX {
            self.cursors.remove(0);
        }
        self.cursors.push(cursor);
    }

    /// Every read of the segment ends with this fault.
    pub(super) fn fail_reads_of(&mut self, base: Offset, fault: &LogFault) {
        let mut at = 0;
        while let Some(read) = self.reads.get(at) {
            if read.base == base && read.step == Step::Index {
                let read = self.reads.swap_remove(at);
                self.finish_read(read, Err(fault.clone()));
            } else {
                at += 1;
            }
        }
    }

    /// Steps over batches that end at or below the wanted offset, then takes whole ones.
    fn walk(&self, read: &PendingRead, place: Place, bytes: &Bytes, is_cut_off: bool) -> Walked {
        let (limit, segment_end) = self.durable_end_of(read.base);
        let end = segment_end.min(read.up_to);
        let mut served: Option<(usize, Cursor)> = None;
        let mut at = 0;
        let mut expected = place.expected;
        loop {
            let here = Cursor {
                base: read.base,
                offset: expected,
                position: place.position + at as u64,
            };
            let rest = bytes.get(at..).unwrap_or_default();
            let is_skipped = |header: &BatchHeader| next_offset(header) <= read.offset;
            let checked = match (served, check_header(rest, expected)) {
                _ if expected >= end => Checked::Bad(String::from("the batches end too early")),
                (None, Checked::Batch(header, batch_bytes)) if is_skipped(&header) => {
                    if batch_bytes <= rest.len() {
                        at += batch_bytes;
                        expected = next_offset(&header);
                        continue;
                    }
                    Checked::Short(batch_bytes)
                }
                (None, Checked::Batch(header, _)) if next_offset(&header) > segment_end => {
                    Checked::Bad(String::from("a batch reaches into the next segment"))
                }
                (_, Checked::Batch(..)) => check_batch(rest, expected),
                (_, other) => other,
            };
            match (checked, served) {
                (Checked::Batch(header, batch_bytes), first) => {
                    let (start, first) = first.unwrap_or((at, here));
                    let taken = at - start;
                    let is_over = next_offset(&header) > end
                        || (taken > 0 && taken + batch_bytes > read.bytes_max);
                    if is_over {
                        return Walked::Served {
                            bytes: bytes.slice(start..at),
                            first,
                            next: here,
                        };
                    }
                    served = Some((start, first));
                    at += batch_bytes;
                    expected = next_offset(&header);
                }
                (_, Some((start, first))) => {
                    return Walked::Served {
                        bytes: bytes.slice(start..at),
                        first,
                        next: here,
                    };
                }
                (Checked::Short(needed_bytes), None) => {
                    if is_cut_off || here.position + needed_bytes as u64 > limit {
                        return Walked::Bad {
                            position: here.position,
                            what: String::from("the segment ends within a batch"),
                            is_first: at == 0,
                        };
                    }
                    return Walked::More {
                        from: here,
                        needed_bytes,
                    };
                }
                (Checked::Bad(what), None) => {
                    return Walked::Bad {
                        position: here.position,
                        what,
                        is_first: at == 0,
                    };
                }
            }
        }
    }
}
