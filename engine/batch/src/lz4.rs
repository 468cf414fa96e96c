//! The LZ4 frame format (version 1.6.x), read block by block.
//!
//! The frame is walked here and only its blocks go to the library, because the library's frame reader
//! reserves 4 to 12 MiB on the word of a 7-byte header and takes a frame that ends between two blocks for
//! complete.
//!
//! Invariants:
//!
//! 1. A block is given room for at most what its bytes can expand to (255 times), the frame's block size, and
//!    one byte more than the output limit allows; whichever is least.
//! 2. A frame without an end mark is truncated, whatever was read.

use lz4_flex::block::{DecompressError, decompress_into_with_dict};

use crate::error::BodyFault;
use crate::open::{Output, StepFault};
use crate::xxhash32::xxhash32;

const FRAME_MAGIC: u32 = 0x184d_2204;
/// How far back a match can reach.
const WINDOW_BYTES: usize = 64 * 1024;
/// No LZ4 block expands further.
const RATIO_MAX: usize = 255;
const STORED_BIT: u32 = 1 << 31;

/// Where the reading of one frame stands.
#[derive(Debug)]
pub(crate) struct Lz4Frame {
    block_bytes_max: usize,
    linked_blocks: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_bytes: Option<u64>,
}

impl Lz4Frame {
    /// Reads the frame header and returns it with the bytes it took.
    pub(crate) fn start(input: &[u8]) -> Result<(Lz4Frame, usize), BodyFault> {
        let mut input_left = input;
        let magic = u32::from_le_bytes(take(&mut input_left)?);
        if magic != FRAME_MAGIC {
            return Err(BodyFault::Malformed("no LZ4 frame starts here"));
        }
        let [flags, block_descriptor] = take(&mut input_left)?;
        if flags >> 6 != 1 || flags & 0b10 != 0 {
            return Err(BodyFault::Malformed("unknown LZ4 frame version"));
        }
        if flags & 1 != 0 {
            return Err(BodyFault::Malformed("LZ4 dictionaries are not supported"));
        }
        if block_descriptor & 0b1000_1111 != 0 {
            return Err(BodyFault::Malformed("reserved LZ4 frame bits are set"));
        }
        let block_bytes_max = match block_descriptor >> 4 {
            4 => 64 * 1024,
            5 => 256 * 1024,
            6 => 1024 * 1024,
            7 => 4 * 1024 * 1024,
            _ => return Err(BodyFault::Malformed("unknown LZ4 block size")),
        };
        let content_bytes = if flags & (1 << 3) != 0 {
            Some(u64::from_le_bytes(take(&mut input_left)?))
        } else {
            None
        };
        let descriptor_end = input.len() - input_left.len();
        let [checksum] = take(&mut input_left)?;
        let descriptor = input.get(4..descriptor_end).unwrap_or_default();
        if (xxhash32(descriptor) >> 8) as u8 != checksum {
            return Err(BodyFault::Malformed("LZ4 frame header checksum"));
        }
        let frame = Lz4Frame {
            block_bytes_max,
            linked_blocks: flags & (1 << 5) == 0,
            block_checksums: flags & (1 << 4) != 0,
            content_checksum: flags & (1 << 2) != 0,
            content_bytes,
        };
        Ok((frame, input.len() - input_left.len()))
    }

    /// Reads one block, or the end of the frame. Returns the bytes taken and whether the frame has ended.
    pub(crate) fn block(
        &self,
        input: &[u8],
        output: &mut Output,
    ) -> Result<(usize, bool), StepFault> {
        let mut input_left = input;
        let mark = u32::from_le_bytes(take(&mut input_left)?);
        if mark == 0 {
            self.check_end(&mut input_left, output)?;
            return Ok((input.len() - input_left.len(), true));
        }
        let stored = mark & STORED_BIT != 0;
        let block_bytes = (mark & !STORED_BIT) as usize;
        if block_bytes > self.block_bytes_max {
            return Err(BodyFault::Malformed("LZ4 block above the frame's block size").into());
        }
        let (block, rest) = input_left
            .split_at_checked(block_bytes)
            .ok_or(BodyFault::Truncated)?;
        input_left = rest;
        if self.block_checksums && u32::from_le_bytes(take(&mut input_left)?) != xxhash32(block) {
            return Err(BodyFault::Malformed("LZ4 block checksum").into());
        }
        if stored {
            output.extend(block)?;
        } else {
            self.decompress(block, output)?;
        }
        Ok((input.len() - input_left.len(), false))
    }

    fn decompress(&self, block: &[u8], output: &mut Output) -> Result<(), StepFault> {
        let room_wanted = self.block_bytes_max.min(block.len() * RATIO_MAX);
        let window_bytes = if self.linked_blocks { WINDOW_BYTES } else { 0 };
        let (window, room) = output.window_and_room(window_bytes, room_wanted);
        let room_bytes = room.len();
        let written = match decompress_into_with_dict(block, room, window) {
            Ok(written) => written,
            Err(DecompressError::OutputTooSmall { .. }) if room_bytes < room_wanted => {
                return Err(StepFault::OutputLimit);
            }
            Err(_) => return Err(BodyFault::Malformed("LZ4 block").into()),
        };
        output.commit(room_bytes, written)
    }

    fn check_end(&self, input_left: &mut &[u8], output: &Output) -> Result<(), BodyFault> {
        if self
            .content_bytes
            .is_some_and(|bytes| bytes != output.as_slice().len() as u64)
        {
            return Err(BodyFault::Malformed("LZ4 content size"));
        }
        if self.content_checksum
            && u32::from_le_bytes(take(input_left)?) != xxhash32(output.as_slice())
        {
            return Err(BodyFault::Malformed("LZ4 content checksum"));
        }
        Ok(())
    }
}

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], BodyFault> {
    let (taken, rest) = input.split_first_chunk().ok_or(BodyFault::Truncated)?;
    *input = rest;
    Ok(*taken)
}
