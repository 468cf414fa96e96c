//! Kafka record batches (format 2): parse, verify, split, stamp, open, iterate, build.
//!
//! The batch is the unit of everything in corelog: what a producer sends is what stands on disk, in
//! replicas and in fetch answers. This crate reads and writes that format and knows nothing else: no
//! clock, no file, no socket, no broker.
//!
//! The order in which untrusted bytes are meant to pass through it:
//!
//! 1. [`batches`] splits a concatenation without copying and names a torn tail.
//! 2. [`verify_producer_batch`] or [`verify_stored_batch`] checks one batch, CRC-32C included.
//! 3. [`stamp()`] gives an accepted batch its offset and epoch, outside the CRC.
//! 4. [`open()`] (or [`Opener`], in turns) takes the codec off, never past a stated limit.
//! 5. [`records()`], [`record_refs`] or [`scan_records`] read the records of the opened body.
//!
//! Invariants, kept by every module here:
//!
//! 1. No input makes a function panic; the exceptions are named under "Panics" and concern slices
//!    that the caller has verified before.
//! 2. No length, count or size that the input claims is reserved before it has been bounded by the
//!    bytes that are really there or by a limit that the caller gave.
//! 3. A batch is judged by magic, length and CRC together; a CRC of zero is a CRC like any other.
//!
//! The format: Kafka's protocol guide, "Record Batch" and "Record" (KIP-98, KIP-82 for headers).

mod build;
mod checksum;
mod compress;
mod error;
mod header;
mod lz4;
mod open;
mod partitioner;
mod records;
mod snappy;
mod split;
mod stamp;
mod varint;
mod verify;
mod walk;
mod xxhash32;

pub use build::{BatchBuilder, BatchOptions, BuildError};
pub use checksum::CrcShift;
pub use error::{BatchError, BatchErrorKind, BodyFault, RecordFault};
pub use header::{
    Attributes, BatchHeader, CRC_COVERS_FROM, Codec, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC,
    NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
    peek_batch_bytes,
};
pub use open::{Opener, Turn, open, zstd_window_bytes_max};
pub use partitioner::{murmur2, partition_for_key, to_positive};
pub use records::{
    Header, HeaderRef, HeaderRefs, OversizeRecord, Record, RecordHeaders, RecordRef, RecordRefs,
    RecordScan, Records, first_record_above, largest_record_bytes, record_refs, records,
    scan_records,
};
pub use split::{Batches, batches};
pub use stamp::{stamp, stamp_log_append_time};
pub use varint::RECORD_BYTES_MIN;
pub use verify::{BatchLimits, verify_producer_batch, verify_stored_batch};
pub use walk::{Walk, walk};
