//! Whether the bytes at some place of a log are the batch that belongs there.

use alloc::format;
use alloc::string::String;

use corelog_batch::{BatchError, BatchHeader};

use crate::identity::Offset;
use crate::limits::BATCH_BYTES_MAX;

/// What stands at a place of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// The batch that belongs there, and its size.
    Batch(BatchHeader, usize),
    /// The bytes end before the batch does, which needs so many of them.
    Short(usize),
    /// No batch, or not the one that belongs there.
    Bad(String),
}

/// Looks at the start of `bytes`: magic, length and CRC together, and the offset by continuity. A CRC of
/// zero is one like any other.
pub(super) fn check_batch(bytes: &[u8], expected: Offset) -> Checked {
    let header = match BatchHeader::parse(bytes) {
        Ok(header) => header,
        Err(BatchError::Incomplete { needed_bytes, .. }) => return Checked::Short(needed_bytes),
        Err(error) => return Checked::Bad(format!("no batch: {error}")),
    };
    if let Err(what) = follows(&header, expected) {
        return Checked::Bad(what);
    }
    let batch_bytes = header.batch_bytes();
    let Some(batch) = bytes.get(..batch_bytes) else {
        return Checked::Short(batch_bytes);
    };
    match corelog_batch::verify_stored_batch(batch) {
        Ok(header) => Checked::Batch(header, batch_bytes),
        Err(error) => Checked::Bad(format!("bad batch: {error}")),
    }
}

/// As [`check_batch`], without the CRC: for batches that are only stepped over.
pub(super) fn check_header(bytes: &[u8], expected: Offset) -> Checked {
    match BatchHeader::parse(bytes) {
        Ok(header) => match follows(&header, expected) {
            Ok(()) => Checked::Batch(header, header.batch_bytes()),
            Err(what) => Checked::Bad(what),
        },
        Err(BatchError::Incomplete { needed_bytes, .. }) => Checked::Short(needed_bytes),
        Err(error) => Checked::Bad(format!("no batch: {error}")),
    }
}

/// The offset at which the batch after this one begins.
pub(super) fn next_offset(header: &BatchHeader) -> Offset {
    // Verified or checked by `follows`: neither negative nor beyond the range.
    Offset::from_wire(header.next_offset()).unwrap_or(Offset::ZERO)
}

fn follows(header: &BatchHeader, expected: Offset) -> Result<(), String> {
    if header.base_offset != expected.to_wire() {
        return Err(format!(
            "offset {} where {expected} belongs",
            header.base_offset
        ));
    }
    if header.last_offset_delta < 0 || header.next_offset() <= header.base_offset {
        return Err(format!("last offset delta {}", header.last_offset_delta));
    }
    if header.batch_bytes() > BATCH_BYTES_MAX {
        return Err(format!(
            "a batch of {} bytes where {BATCH_BYTES_MAX} are allowed",
            header.batch_bytes()
        ));
    }
    Ok(())
}
