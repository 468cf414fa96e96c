//! Everything that a reader does with bytes it does not trust, in one call: for fuzz targets and for
//! `log verify`.

use bytes::Bytes;

use crate::error::BatchError;
use crate::open::open;
use crate::records::scan_records;
use crate::split::batches;
use crate::verify::verify_stored_batch;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Whole batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes that the batches take.
    pub bytes: usize,
}

/// Splits `bytes` into batches, verifies each, opens it to at most `output_bytes_max` bytes and reads every
/// record.
///
/// # Errors
///
/// The first thing that is wrong, with what was found before it.
pub fn walk(bytes: Bytes, output_bytes_max: usize) -> Result<Walk, (Walk, BatchError)> {
    let mut walk = Walk::default();
    for batch in batches(bytes) {
        let found = batch.and_then(|(_, batch)| {
            let header = verify_stored_batch(&batch)?;
            let body = open(&batch, output_bytes_max)?;
            scan_records(&header, &body)?;
            Ok(header)
        });
        match found {
            Ok(header) => {
                walk.batches += 1;
                walk.records += u64::try_from(header.record_count).unwrap_or(0);
                walk.bytes += header.batch_bytes();
            }
            Err(error) => return Err((walk, error)),
        }
    }
    Ok(walk)
}
