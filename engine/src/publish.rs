//! Producer batches, checked once on the core that accepted them.

use alloc::vec::Vec;

use bytes::Bytes;

/// Where one checked batch lies within a publish's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedBatch {
    /// Its header as the producer sent it.
    pub header: corelog_batch::BatchHeader,
    /// First byte within the publish.
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
}

/// One or more whole producer batches whose structure, checksum and record sizes have been
/// checked. Only the inspection of this module makes one, so whoever holds it need not look again.
#[derive(Clone, Debug)]
pub struct VerifiedBatches {
    bytes: Bytes,
    batches: Vec<VerifiedBatch>,
}

impl VerifiedBatches {
    /// The concatenated batches.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The batches, in order.
    pub fn batches(&self) -> &[VerifiedBatch] {
        &self.batches
    }
}
