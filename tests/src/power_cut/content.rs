//! Sparse bytes of one file: blocks that were never written read as zeros and cost nothing.

use std::collections::BTreeMap;

/// Bytes in one stored block. Space is counted in these.
const BLOCK_BYTES: u64 = 4096;

/// The bytes and the length of a file at one moment.
#[derive(Clone, Debug, Default)]
pub struct Content {
    blocks: BTreeMap<u64, Box<[u8]>>,
    length: u64,
}

impl Content {
    /// Length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of space that the stored blocks take.
    pub fn allocated_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    /// Bytes of new space that writing `length` bytes at `offset` would take.
    pub fn new_bytes(&self, offset: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        let first = offset / BLOCK_BYTES;
        let last = (offset + length - 1) / BLOCK_BYTES;
        let held = self.blocks.range(first..=last).count() as u64;
        (last - first + 1 - held) * BLOCK_BYTES
    }

    /// At most `length` bytes from `offset`, fewer at the end of the file.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = self.length.min(offset.saturating_add(length as u64));
        if offset >= end {
            return Vec::new();
        }
        let mut bytes = vec![0; (end - offset) as usize];
        for (&index, block) in self
            .blocks
            .range(offset / BLOCK_BYTES..=(end - 1) / BLOCK_BYTES)
        {
            let block_start = index * BLOCK_BYTES;
            let from = offset.max(block_start);
            let to = end.min(block_start + BLOCK_BYTES);
            bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(
                &block[(from - block_start) as usize..(to - block_start) as usize],
            );
        }
        bytes
    }

    /// Puts `bytes` at `offset`; the file grows to hold them.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (at % BLOCK_BYTES) as usize;
            let count = rest.len().min(BLOCK_BYTES as usize - within);
            let block = self
                .blocks
                .entry(at / BLOCK_BYTES)
                .or_insert_with(|| vec![0; BLOCK_BYTES as usize].into_boxed_slice());
            block[within..within + count].copy_from_slice(&rest[..count]);
            at += count as u64;
            rest = &rest[count..];
        }
        self.length = self.length.max(at);
    }

    /// Zeros `length` bytes at `offset` that lie inside the file, freeing whole blocks.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = self.length.min(offset.saturating_add(length));
        if offset >= end {
            return;
        }
        let touched: Vec<u64> = self
            .blocks
            .range(offset / BLOCK_BYTES..=(end - 1) / BLOCK_BYTES)
            .map(|(&index, _)| index)
            .collect();
        for index in touched {
            let block_start = index * BLOCK_BYTES;
            let from = offset.max(block_start);
            let to = end.min(block_start + BLOCK_BYTES);
            if to - from == BLOCK_BYTES {
                self.blocks.remove(&index);
            } else if let Some(block) = self.blocks.get_mut(&index) {
                block[(from - block_start) as usize..(to - block_start) as usize].fill(0);
            }
        }
    }

    /// Sets the length; what is cut off is gone, what is added reads as zeros.
    pub fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.zero(length, self.length - length);
            let kept_blocks = length.div_ceil(BLOCK_BYTES);
            self.blocks.split_off(&kept_blocks);
        }
        self.length = length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_read_as_zeros_and_cost_no_space() {
        let mut content = Content::default();
        content.write(10_000, b"end");
        assert_eq!(content.read(9_999, 10), b"\0end");
        assert_eq!(content.allocated_bytes(), BLOCK_BYTES);
        assert_eq!(content.new_bytes(8_192, 4_097), BLOCK_BYTES);
    }

    #[test]
    fn bytes_cut_off_do_not_come_back_when_the_file_grows() {
        let mut content = Content::default();
        content.write(0, &[7; 5_000]);
        content.set_length(100);
        content.set_length(5_000);
        assert_eq!(content.read(0, 100), [7; 100]);
        assert_eq!(content.read(100, 4_900), [0; 4_900]);
    }
}
