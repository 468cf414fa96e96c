//! Splitting a concatenation of batches: a produce set, a fetch answer, a piece of a log.

use std::iter::FusedIterator;

use bytes::Bytes;

use crate::error::BatchError;
use crate::header::BatchHeader;

/// Splits `bytes` into batches without copying. Headers are parsed, bodies and CRCs are not looked at.
///
/// The first error ends the iteration: [`BatchError::Incomplete`] if the last batch is cut off, which in a
/// fetch answer is usual and means "fetch from there again"; anything else is damage.
pub fn batches(bytes: Bytes) -> Batches {
    Batches {
        rest: bytes,
        position: 0,
        failed: false,
    }
}

/// Iterator over the batches of a concatenation; see [`batches`].
#[derive(Clone, Debug)]
pub struct Batches {
    rest: Bytes,
    position: usize,
    failed: bool,
}

impl Batches {
    /// Position of the next batch: the bytes taken by all batches returned so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The bytes from that position on.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for Batches {
    type Item = Result<(BatchHeader, Bytes), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let header = match BatchHeader::parse(&self.rest) {
            Ok(header) => header,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        let batch_bytes = header.batch_bytes();
        if self.rest.len() < batch_bytes {
            self.failed = true;
            return Some(Err(BatchError::Incomplete {
                needed_bytes: batch_bytes,
                present_bytes: self.rest.len(),
            }));
        }
        let batch = self.rest.split_to(batch_bytes);
        self.position += batch_bytes;
        Some(Ok((header, batch)))
    }
}

impl FusedIterator for Batches {}
