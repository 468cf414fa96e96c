//! One file: what a reader sees now, what survives a power cut, and the changes between the two.
//!
//! Invariants:
//! 1. `unsynced` holds, oldest first, every change that `current` has and `durable` lacks, except those that a
//!    failed sync dropped: like Linux, a failed sync forgets the changes, and a later one that succeeds does not
//!    bring them back.
//! 2. A durable write wins over every older unsynced write of the same bytes, also after a cut.

use bytes::Bytes;

use super::content::Content;
use super::seeded::Seeded;

/// The unit that a disk writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes put at an offset.
    Write {
        /// Where the bytes start.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// A new length.
    Length(u64),
    /// A range of zeros.
    Zero {
        /// Where the zeros start.
        offset: u64,
        /// How many they are.
        length: u64,
    },
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Change::Write { offset, bytes } => content.write(*offset, bytes),
            Change::Length(length) => content.set_length(*length),
            Change::Zero { offset, length } => content.zero(*offset, *length),
        }
    }
}

/// The three states of one file.
#[derive(Clone, Debug, Default)]
pub struct File {
    current: Content,
    durable: Content,
    unsynced: Vec<Change>,
}

impl File {
    /// A file whose bytes are durable already.
    pub fn from_durable(bytes: &[u8]) -> Self {
        let mut durable = Content::default();
        durable.write(0, bytes);
        Self {
            current: durable.clone(),
            durable,
            unsynced: Vec::new(),
        }
    }

    /// What a reader sees.
    pub fn current(&self) -> &Content {
        &self.current
    }

    /// What a power cut leaves at the least.
    pub fn durable(&self) -> &Content {
        &self.durable
    }

    /// Changes that a power cut may forget.
    pub fn unsynced_count(&self) -> usize {
        self.unsynced.len()
    }

    /// Makes a change that a power cut may forget.
    pub fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    /// Makes a write that is durable at once, as `O_DSYNC` asks.
    ///
    /// Older writes elsewhere in the file stay unsynced. An unsynced change of length or of zeros becomes durable
    /// with everything before it, since the length is needed to read the write back.
    pub fn write_durably(&mut self, offset: u64, bytes: &[u8]) {
        let metadata_end = self
            .unsynced
            .iter()
            .rposition(|change| !matches!(change, Change::Write { .. }))
            .map_or(0, |last| last + 1);
        for change in self.unsynced.drain(..metadata_end) {
            change.apply(&mut self.durable);
        }
        let end = offset + bytes.len() as u64;
        let older = std::mem::take(&mut self.unsynced);
        self.unsynced = older
            .into_iter()
            .flat_map(|change| outside(change, offset, end))
            .collect();
        self.durable.write(offset, bytes);
        self.current.write(offset, bytes);
    }

    /// Makes every change durable.
    pub fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Forgets the unsynced changes while readers still see them: what Linux does when a sync fails.
    pub fn fail_sync(&mut self) {
        self.unsynced.clear();
    }

    /// Goes back to what was durable. With a source of chance some unsynced changes survive, whole or torn at
    /// sectors; without one none does. `in_flight` are writes that were under way.
    pub fn cut(&mut self, in_flight: Vec<Change>, chance: Option<&mut Seeded>) {
        let mut unsynced = std::mem::take(&mut self.unsynced);
        unsynced.extend(in_flight);
        if let Some(chance) = chance {
            for change in unsynced {
                survive(&change, &mut self.durable, chance);
            }
        }
        self.current = self.durable.clone();
    }
}

/// The parts of an older write that a newer one from `start` to `end` leaves standing.
fn outside(change: Change, start: u64, end: u64) -> Vec<Change> {
    let Change::Write { offset, bytes } = change else {
        return vec![change];
    };
    let own_end = offset + bytes.len() as u64;
    let mut parts = Vec::new();
    if offset < start {
        let length = (start.min(own_end) - offset) as usize;
        parts.push(Change::Write {
            offset,
            bytes: bytes.slice(..length),
        });
    }
    if own_end > end {
        let from = end.max(offset);
        parts.push(Change::Write {
            offset: from,
            bytes: bytes.slice((from - offset) as usize..),
        });
    }
    parts
}

/// Lets one unsynced change survive wholly, in part or not at all.
fn survive(change: &Change, durable: &mut Content, chance: &mut Seeded) {
    let fate = chance.below(4);
    if fate == 0 {
        return;
    }
    let Change::Write { offset, bytes } = change else {
        change.apply(durable);
        return;
    };
    if fate == 1 {
        change.apply(durable);
        return;
    }
    let end = offset + bytes.len() as u64;
    let sectors = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
    // Fate 2 cuts the write off behind some sector; fate 3 leaves any set of its sectors.
    let prefix_end = sectors.start + chance.below(sectors.end - sectors.start + 1);
    for sector in sectors {
        let kept = match fate {
            2 => sector < prefix_end,
            _ => chance.below(2) == 0,
        };
        if kept {
            let from = (sector * SECTOR_BYTES).max(*offset);
            let to = ((sector + 1) * SECTOR_BYTES).min(end);
            durable.write(
                from,
                &bytes[(from - offset) as usize..(to - offset) as usize],
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, bytes: &[u8]) -> Change {
        Change::Write {
            offset,
            bytes: Bytes::copy_from_slice(bytes),
        }
    }

    #[test]
    fn durable_write_wins_over_an_older_unsynced_one_after_a_cut() {
        for seed in 0..64 {
            let mut file = File::default();
            file.change(write(0, &[1; 2048]));
            file.write_durably(512, &[2; 512]);
            file.cut(Vec::new(), Some(&mut Seeded::new(seed)));
            assert_eq!(file.current().read(512, 512), [2; 512], "seed {seed}");
        }
    }

    #[test]
    fn failed_sync_forgets_and_the_next_success_does_not_bring_it_back() {
        let mut file = File::default();
        file.change(write(0, b"lost"));
        file.fail_sync();
        assert_eq!(file.current().read(0, 4), b"lost");
        file.sync();
        file.cut(Vec::new(), None);
        assert_eq!(file.current().length(), 0);
    }

    #[test]
    fn unsynced_writes_can_be_lost_kept_and_torn_at_sectors() {
        let (mut lost, mut kept, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let mut file = File::from_durable(&[1; 2048]);
            file.change(write(0, &[2; 2048]));
            file.cut(Vec::new(), Some(&mut Seeded::new(seed)));
            let after = file.current().read(0, 2048);
            for sector in after.chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]));
            }
            match after.iter().filter(|byte| **byte == 2).count() {
                0 => lost += 1,
                2048 => kept += 1,
                _ => torn += 1,
            }
        }
        assert!(lost > 10 && kept > 10 && torn > 10, "{lost} {kept} {torn}");
    }
}
