//! A look-up's way through one stretch of a segment: pieces are read, their batches checked, and those
//! that may hold the record are opened, all in turns.
//!
//! Invariants:
//! 1. One step reads at most a piece of [`SCAN_READ_BYTES`], or one batch where that is larger.
//! 2. One turn opens and looks at about [`LOOK_UP_TURN_BYTES`], and one step of the codec or one record
//!    more; a turn always gets on, so that a batch is done after finitely many.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use corelog_batch::{BatchHeader, Codec, Opener, Records, Turn};

use super::batch_check::{Checked, check_batch, next_offset};
use super::find_time::Search;
use super::index::Stretch;
use super::progress::FoundRecord;
use crate::identity::{LeaderEpoch, Offset};
use crate::limits::{BATCH_OPENED_BYTES_MAX, LOOK_UP_TURN_BYTES, SCAN_READ_BYTES};

/// A record without anything in it costs as much to look at as so many bytes to open.
const RECORD_COST_BYTES: usize = 32;

/// What a look-up needs next.
#[derive(Debug)]
pub(super) enum Needs {
    /// So many bytes from there.
    Bytes { position: u64, length: usize },
    /// Another turn.
    Turn,
    /// Nothing more of this stretch.
    Nothing,
    /// Bad bytes, at this position.
    Fault { position: u64, what: String },
}

/// One stretch on its way.
#[derive(Debug)]
pub(super) struct LookThrough {
    /// Stretches still to be scanned, the next one last.
    pub left: Vec<Stretch>,
    /// The index came from a file.
    pub is_read: bool,
    pub stretch: Stretch,
    /// Where it ends.
    end: u64,
    /// The next batch, and what was read from there on.
    position: u64,
    expected: Offset,
    bytes: Bytes,
    is_end_of_file: bool,
    batch: Option<Box<OpenBatch>>,
}

#[derive(Debug)]
struct OpenBatch {
    header: BatchHeader,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Closed(Opener),
    Open(Records),
}

impl LookThrough {
    pub fn new(left: Vec<Stretch>, is_read: bool, stretch: Stretch, segment_end: u64) -> Self {
        Self {
            left,
            is_read,
            end: stretch.end_position.unwrap_or(segment_end).min(segment_end),
            position: stretch.position,
            expected: stretch.offset,
            stretch,
            bytes: Bytes::new(),
            is_end_of_file: false,
            batch: None,
        }
    }

    /// The bytes it needed, of which `length` were asked for.
    pub fn take(&mut self, bytes: Bytes, length: usize) {
        self.is_end_of_file = bytes.len() < length;
        self.bytes = bytes;
    }

    /// Gets on by one turn.
    pub fn turn(&mut self, search: &mut Search) -> Needs {
        let mut budget = LOOK_UP_TURN_BYTES;
        loop {
            if let Some(batch) = &mut self.batch {
                match batch.turn(search, &mut budget) {
                    Ok(true) => {
                        let header = batch.header;
                        self.batch = None;
                        self.step_over(&header);
                    }
                    Ok(false) => return Needs::Turn,
                    Err(what) => return self.fault(what),
                }
            }
            let is_over = self.position >= self.end || self.expected >= search.up_to;
            if is_over || search.is_answered() {
                return Needs::Nothing;
            }
            match check_batch(&self.bytes, self.expected) {
                Checked::Batch(header, batch_bytes) => {
                    budget = budget.saturating_sub(batch_bytes);
                    if let Err(what) = self.begin(header, batch_bytes, search) {
                        return self.fault(what);
                    }
                }
                Checked::Short(needed_bytes) => {
                    let room = self.end - self.position;
                    if self.is_end_of_file || needed_bytes as u64 > room {
                        return self.fault(String::from("the segment ends within a batch"));
                    }
                    let piece = needed_bytes.max(SCAN_READ_BYTES);
                    return Needs::Bytes {
                        position: self.position,
                        length: usize::try_from(room).map_or(piece, |room| room.min(piece)),
                    };
                }
                Checked::Bad(what) => return self.fault(what),
            }
            if budget == 0 {
                return Needs::Turn;
            }
        }
    }

    /// The batch at this place: opened if it may hold the answer, else stepped over.
    fn begin(
        &mut self,
        header: BatchHeader,
        batch_bytes: usize,
        search: &Search,
    ) -> Result<(), String> {
        if !search.may_hold(self.expected, header.max_timestamp_ms) {
            self.step_over(&header);
            return Ok(());
        }
        let batch = self.bytes.slice(..batch_bytes);
        let opener = Opener::new(&batch, BATCH_OPENED_BYTES_MAX)
            .map_err(|error| format!("a batch that cannot be opened: {error}"))?;
        let body = Body::Closed(opener);
        self.batch = Some(Box::new(OpenBatch { header, body }));
        Ok(())
    }

    /// The batch at this place is done.
    fn step_over(&mut self, header: &BatchHeader) {
        self.bytes = self.bytes.slice(header.batch_bytes()..);
        self.position += header.batch_bytes() as u64;
        self.expected = next_offset(header);
    }

    fn fault(&self, what: String) -> Needs {
        Needs::Fault {
            position: self.position,
            what,
        }
    }
}

impl OpenBatch {
    /// Opens and looks until the budget is used up. True once the batch is done.
    fn turn(&mut self, search: &mut Search, budget: &mut usize) -> Result<bool, String> {
        loop {
            match &mut self.body {
                Body::Closed(opener) => {
                    let turn = opener.turn(*budget);
                    match turn.map_err(|error| format!("a batch that cannot be opened: {error}"))? {
                        Turn::More => return Ok(false),
                        Turn::Done(body) => {
                            if self.header.codec() != Ok(Codec::None) {
                                *budget = budget.saturating_sub(body.len());
                            }
                            self.body = Body::Open(corelog_batch::records(&self.header, body));
                        }
                    }
                }
                Body::Open(records) => return look(records, &self.header, search, budget),
            }
        }
    }
}

/// Looks at the records of one batch; true once there is no more to look at.
fn look(
    records: &mut Records,
    header: &BatchHeader,
    search: &mut Search,
    budget: &mut usize,
) -> Result<bool, String> {
    for record in records {
        let record = record.map_err(|error| format!("a record that cannot be read: {error}"))?;
        search.offer(FoundRecord {
            offset: Offset::from_wire(record.offset(header)).unwrap_or_default(),
            timestamp_ms: record.timestamp_ms(header),
            leader_epoch: LeaderEpoch::from_wire(header.leader_epoch).unwrap_or_default(),
        });
        if search.is_answered() {
            return Ok(true);
        }
        *budget = budget.saturating_sub(RECORD_COST_BYTES);
        if *budget == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}
