//! Snappy in its two forms: one raw block (librdkafka and others), or the xerial framing of the Java client
//! (a 16-byte header, then raw blocks that each carry their length).
//!
//! Invariants:
//!
//! 1. A block states its opened size. Room for it is made only if the block's own bytes could expand that far
//!    and the output limit allows it.

use crate::error::BodyFault;
use crate::open::{Output, StepFault};

/// First bytes of a body in xerial framing; no raw block starts so.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic, version and oldest compatible version.
const XERIAL_HEADER: [u8; 16] = [
    0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1,
];
/// Opened bytes per block, as the Java client's default.
const BLOCK_BYTES: usize = 32 * 1024;
/// The densest Snappy element gives 64 bytes for 3.
const RATIO_MAX: usize = 22;

/// Bytes of the framing header if `body` is framed, `None` if it is one raw block.
pub(crate) fn framing_header_bytes(body: &[u8]) -> Option<usize> {
    (body.starts_with(&XERIAL_MAGIC) && body.len() >= XERIAL_HEADER.len())
        .then_some(XERIAL_HEADER.len())
}

/// Opens the framed block at the start of `input` and returns the bytes it took.
pub(crate) fn open_framed_block(input: &[u8], output: &mut Output) -> Result<usize, StepFault> {
    let (length, rest) = input.split_first_chunk::<4>().ok_or(BodyFault::Truncated)?;
    let length = usize::try_from(i32::from_be_bytes(*length))
        .map_err(|_| BodyFault::Malformed("negative Snappy block length"))?;
    let block = rest.get(..length).ok_or(BodyFault::Truncated)?;
    open_raw_block(block, output)?;
    Ok(4 + length)
}

/// Opens a raw block that is all of `block`.
pub(crate) fn open_raw_block(block: &[u8], output: &mut Output) -> Result<(), StepFault> {
    let opened_bytes = snap::raw::decompress_len(block)
        .map_err(|_| BodyFault::Malformed("Snappy block header"))?;
    if opened_bytes > block.len().saturating_mul(RATIO_MAX) {
        return Err(BodyFault::Malformed("Snappy block claims more than it can hold").into());
    }
    let (_, room) = output.window_and_room(0, opened_bytes);
    let room_bytes = room.len();
    if room_bytes < opened_bytes {
        return Err(StepFault::OutputLimit);
    }
    let written = snap::raw::Decoder::new()
        .decompress(block, room)
        .map_err(|_| BodyFault::Malformed("Snappy block"))?;
    output.commit(room_bytes, written)
}

/// Appends `body` to `out` in xerial framing, which every client reads.
pub(crate) fn write_framed(body: &[u8], out: &mut Vec<u8>) -> Result<(), snap::Error> {
    out.extend_from_slice(&XERIAL_HEADER);
    let mut encoder = snap::raw::Encoder::new();
    for block in body.chunks(BLOCK_BYTES) {
        let length_at = out.len();
        let block_at = length_at + 4;
        out.resize(block_at + snap::raw::max_compress_len(block.len()), 0);
        let written = encoder.compress(block, &mut out[block_at..])?;
        out.truncate(block_at + written);
        // A block of 32 KiB never grows past an i32.
        out[length_at..block_at].copy_from_slice(&(written as i32).to_be_bytes());
    }
    Ok(())
}
