//! The virtual disk: files of sectors, what of them a crash would leave, and requests that complete
//! late and in any order.
//!
//! A request takes effect when it completes. What had not completed at a crash may have taken effect
//! whole, in part or not at all, each request for itself: of a write any subset of its sectors lands;
//! of zeros written ahead nothing is sure before a sync, not even after they completed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use corelog_engine::disk::{
    DiskError, DiskReply, DiskRequest, DiskResult, FileId, LogFile, OperationId,
};
use corelog_engine::identity::PartitionId;
use corelog_engine::limits::BLOCK_BYTES;

use super::chance::Chance;
use super::faults::{Faults, WriteFault};
use super::teeth::{Deed, Lies, Tooth};

/// The unit that lands whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// One file as readers see it, and what of that is not sure to survive.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub bytes: Vec<u8>,
    /// The file is at least this long after a crash.
    sure_bytes: usize,
    /// Sectors that a crash may turn back into what is kept here.
    unsure: BTreeMap<usize, [u8; SECTOR_BYTES]>,
}

#[derive(Debug)]
struct InFlight {
    request: DiskRequest,
    /// What a read saw that looked early.
    seen: Option<DiskResult>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Disk {
    pub(super) folders: BTreeMap<PartitionId, BTreeMap<LogFile, File>>,
    in_flight: BTreeMap<OperationId, InFlight>,
    /// What goes wrong.
    pub faults: Faults,
    /// No room for anything that takes up new space.
    pub is_full: bool,
    /// Partitions of which something on the disk is wrong for good, by a media fault.
    pub damaged: BTreeSet<PartitionId>,
    /// Partitions that were refused something since the last start.
    pub refused: BTreeSet<PartitionId>,
    /// Promises that it breaks in secret.
    pub(super) lies: Lies,
}

fn failed(what: &str) -> DiskResult {
    Err(DiskError::Failed(what.to_string()))
}

/// Sectors that a write covers, padding included.
fn padded(parts: &[Bytes]) -> Vec<u8> {
    let mut content = parts.concat();
    content.resize(content.len().next_multiple_of(BLOCK_BYTES), 0);
    content
}

impl File {
    fn grow(&mut self, bytes: usize) {
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
    }

    /// Writes sectors for which `lands` says so.
    fn write(&mut self, at: usize, content: &[u8], mut lands: impl FnMut(usize) -> bool) {
        self.grow(at + content.len());
        for (index, sector) in content.chunks(SECTOR_BYTES).enumerate() {
            if lands(index) {
                let from = at + index * SECTOR_BYTES;
                self.bytes[from..from + sector.len()].copy_from_slice(sector);
                self.unsure.remove(&(from / SECTOR_BYTES));
            }
        }
    }

    fn settle(&mut self, bytes: usize) {
        self.sure_bytes = self.sure_bytes.max(bytes);
    }

    fn zero(&mut self, from: usize, to: usize) {
        self.grow(to);
        for sector in from / SECTOR_BYTES..to / SECTOR_BYTES {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let mut before = [0; SECTOR_BYTES];
            before.copy_from_slice(&self.bytes[range.clone()]);
            if before != [0; SECTOR_BYTES] {
                self.unsure.entry(sector).or_insert(before);
            }
            self.bytes[range].fill(0);
        }
    }

    fn truncate(&mut self, bytes: usize) {
        self.grow(bytes);
        self.bytes.truncate(bytes);
        self.sure_bytes = bytes;
        self.unsure
            .retain(|sector, _| sector * SECTOR_BYTES < bytes);
    }

    fn sync(&mut self) {
        self.sure_bytes = self.bytes.len();
        self.unsure.clear();
    }

    fn crash(&mut self, chance: &mut Chance) {
        for (sector, before) in std::mem::take(&mut self.unsure) {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            if chance.one_in(2)
                && let Some(now) = self.bytes.get_mut(range)
            {
                now.copy_from_slice(&before);
            }
        }
        if self.bytes.len() > self.sure_bytes {
            let sectors = (self.bytes.len() - self.sure_bytes).div_ceil(SECTOR_BYTES) as u64;
            let kept = match chance.below(3) {
                0 => 0,
                1 => sectors,
                _ => chance.below(sectors + 1),
            };
            let kept = self.sure_bytes + kept as usize * SECTOR_BYTES;
            self.bytes.truncate(kept.max(self.sure_bytes));
        }
        self.sure_bytes = self.bytes.len();
    }
}

impl Disk {
    /// Takes a request on. It takes effect when it completes; a read may look at once.
    ///
    /// # Panics
    /// If the engine breaks what it promises about requests.
    pub fn submit(&mut self, operation: OperationId, request: DiskRequest, chance: &mut Chance) {
        request.assert_aligned();
        if let DiskRequest::Write { file, .. } | DiskRequest::Extend { file, .. } = &request {
            let range = blocks_of(&request);
            let clear = self.in_flight.values().all(|other| match &other.request {
                DiskRequest::Write { file: of, .. } | DiskRequest::Extend { file: of, .. } => {
                    let taken = blocks_of(&other.request);
                    of != file || range.end <= taken.start || taken.end <= range.start
                }
                _ => true,
            });
            assert!(clear, "two writes of one block in flight: {request:?}");
        }
        let looks = matches!(request, DiskRequest::Read { .. }) && chance.one_in(2);
        let seen = looks.then(|| self.perform(&request));
        let before = self.in_flight.insert(operation, InFlight { request, seen });
        assert!(before.is_none(), "an operation id used twice");
    }

    /// Lets a request complete; `None` if it is not in flight.
    pub fn complete(&mut self, operation: OperationId, chance: &mut Chance) -> Option<DiskResult> {
        let InFlight { request, seen } = self.in_flight.remove(&operation)?;
        if self.lies.loses_completion(chance) {
            return None;
        }
        let partition = request.partition();
        if self.is_full && self.takes_space(&request) {
            self.refused.insert(partition);
            if chance.one_in(2) {
                self.perform_in_part(&request, chance);
            }
            return Some(Err(DiskError::Full));
        }
        if self.faults.fails(&request, chance) {
            self.refused.insert(partition);
            self.perform_in_part(&request, chance);
            return Some(failed("input/output error"));
        }
        let result = match (seen, self.faults.of_write(&request, chance)) {
            (Some(seen), _) => seen,
            (None, None) => self.perform_or_lie(&request, chance),
            (None, Some(fault)) => {
                self.damaged.insert(partition);
                self.perform_wrongly(&request, fault, chance)
            }
        };
        Some(self.lies.told(result, chance))
    }

    /// Performs a request, unless a promise about it is to be broken in secret.
    fn perform_or_lie(&mut self, request: &DiskRequest, chance: &mut Chance) -> DiskResult {
        match self.lies.deed(request, chance) {
            Deed::Honest => {
                let result = self.perform(request);
                if let DiskRequest::Remove { partition, .. } = request
                    && self.lies.removes_too_much(chance)
                    && let Some(held) = self.folders.get_mut(partition)
                {
                    let oldest = held.keys().copied();
                    let oldest = oldest.filter(|file| matches!(file, LogFile::Segment(_)));
                    oldest.min().map(|file| held.remove(&file));
                }
                result
            }
            Deed::Nothing => Ok(DiskReply::Done),
            Deed::InPart => {
                self.perform_in_part(request, chance);
                Ok(DiskReply::Done)
            }
            Deed::Elsewhere => self.perform_wrongly(request, WriteFault::Misdirected, chance),
            Deed::Instead(other) => self.perform(&other),
            Deed::Unsure => self.perform_unsurely(request),
        }
    }

    /// A write is in a cache that a crash empties, sector by sector.
    fn perform_unsurely(&mut self, request: &DiskRequest) -> DiskResult {
        let DiskRequest::Write {
            file,
            position,
            parts,
        } = request
        else {
            return self.perform(request);
        };
        let content = padded(parts);
        let at = position.get() as usize;
        let held = self.file_mut(file).ok_or(DiskError::Missing)?;
        held.grow(at + content.len());
        let mut before = held.unsure.clone();
        for sector in at / SECTOR_BYTES..(at + content.len()) / SECTOR_BYTES {
            let mut old = [0; SECTOR_BYTES];
            old.copy_from_slice(&held.bytes[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES]);
            before.entry(sector).or_insert(old);
        }
        held.write(at, &content, |_| true);
        held.unsure = before;
        Ok(DiskReply::Done)
    }

    /// What is in flight, in order of issue.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn takes_space(&self, request: &DiskRequest) -> bool {
        match request {
            DiskRequest::Create { .. } | DiskRequest::Replace { .. } => true,
            DiskRequest::Write { file, .. } | DiskRequest::Extend { file, .. } => {
                let held = self.file(file).map_or(0, |held| held.bytes.len());
                blocks_of(request).end > held as u64
            }
            _ => false,
        }
    }

    pub(super) fn file(&self, file: &FileId) -> Option<&File> {
        self.folders.get(&file.partition)?.get(&file.file)
    }

    fn file_mut(&mut self, file: &FileId) -> Option<&mut File> {
        self.folders.get_mut(&file.partition)?.get_mut(&file.file)
    }

    fn perform(&mut self, request: &DiskRequest) -> DiskResult {
        match request {
            DiskRequest::List { partition } => {
                let files = self.folders.get(partition).map(|files| {
                    let size = |(name, file): (&LogFile, &File)| (*name, file.bytes.len() as u64);
                    files.iter().map(size).collect()
                });
                return Ok(DiskReply::Files(files));
            }
            DiskRequest::Read {
                file,
                position,
                length_bytes,
            } => {
                let held = self.file(file).ok_or(DiskError::Missing)?;
                let from = (position.get() as usize).min(held.bytes.len());
                let to = (from + length_bytes).min(held.bytes.len());
                return Ok(DiskReply::Bytes(Bytes::copy_from_slice(
                    &held.bytes[from..to],
                )));
            }
            DiskRequest::Create {
                file,
                written_bytes,
            } => {
                let files = self.folders.entry(file.partition).or_default();
                if files.contains_key(&file.file) {
                    return failed("the file exists");
                }
                let mut new = File::default();
                new.grow(*written_bytes as usize);
                new.sync();
                files.insert(file.file, new);
            }
            DiskRequest::Write {
                file,
                position,
                parts,
            } => {
                let content = padded(parts);
                let at = position.get() as usize;
                let held = self.file_mut(file).ok_or(DiskError::Missing)?;
                held.write(at, &content, |_| true);
                held.settle(at + content.len());
            }
            DiskRequest::Extend { file, from, to, .. } => {
                let zeros_from = self.lies.zeros_from(from.get() as usize);
                let held = self.file_mut(file).ok_or(DiskError::Missing)?;
                held.zero(zeros_from, to.get() as usize);
            }
            DiskRequest::Sync { file } => self.file_mut(file).ok_or(DiskError::Missing)?.sync(),
            DiskRequest::Truncate { file, length_bytes } => {
                let held = self.file_mut(file).ok_or(DiskError::Missing)?;
                held.truncate(*length_bytes as usize);
            }
            DiskRequest::Replace { file, content } => {
                let files = self.folders.get_mut(&file.partition);
                let files = files.ok_or(DiskError::Missing)?;
                let mut new = File {
                    bytes: content.to_vec(),
                    ..File::default()
                };
                new.sync();
                files.insert(file.file, new);
            }
            DiskRequest::Remove { partition, files } => {
                if let Some(held) = self.folders.get_mut(partition) {
                    held.retain(|name, _| !files.contains(name));
                }
            }
            DiskRequest::RemoveFolder { partition } => {
                self.folders.remove(partition);
            }
            DiskRequest::Turn { .. } => {}
        }
        Ok(DiskReply::Done)
    }

    /// A part of a request takes effect: it failed, or power went.
    fn perform_in_part(&mut self, request: &DiskRequest, chance: &mut Chance) {
        match request {
            DiskRequest::Write {
                file,
                position,
                parts,
            } => {
                let content = padded(parts);
                let at = position.get() as usize;
                let Some(held) = self.file_mut(file) else {
                    return;
                };
                let before = held.bytes.len();
                held.write(at, &content, |_| chance.one_in(2));
                // Data and size reach the disk apart.
                let sectors = held.bytes.len().saturating_sub(before) / SECTOR_BYTES;
                let kept = chance.below(sectors as u64 + 1) as usize * SECTOR_BYTES;
                held.bytes.truncate(before + kept);
            }
            DiskRequest::Extend { file, from, to, .. } => {
                let blocks = (to.get() - from.get()) / BLOCK_BYTES as u64;
                let some = from.get() + chance.below(blocks + 1) * BLOCK_BYTES as u64;
                if let Some(held) = self.file_mut(file) {
                    held.zero(from.get() as usize, some as usize);
                }
            }
            DiskRequest::Create {
                file,
                written_bytes,
            } => {
                if chance.one_in(3) {
                    return;
                }
                let files = self.folders.entry(file.partition).or_default();
                if chance.one_in(2) && !files.contains_key(&file.file) {
                    let sectors = written_bytes / SECTOR_BYTES as u64;
                    let mut new = File::default();
                    new.grow(chance.below(sectors + 1) as usize * SECTOR_BYTES);
                    files.insert(file.file, new);
                }
            }
            DiskRequest::Remove { partition, files } => {
                if let Some(held) = self.folders.get_mut(partition) {
                    held.retain(|name, _| !files.contains(name) || chance.one_in(2));
                }
            }
            DiskRequest::RemoveFolder { partition } => {
                let Some(held) = self.folders.get_mut(partition) else {
                    return;
                };
                held.retain(|_, _| chance.one_in(2));
                if held.is_empty() && chance.one_in(2) {
                    self.folders.remove(partition);
                }
            }
            DiskRequest::Truncate { .. } | DiskRequest::Replace { .. } => {
                if chance.one_in(2) {
                    let _ = self.perform(request);
                }
            }
            DiskRequest::List { .. }
            | DiskRequest::Read { .. }
            | DiskRequest::Sync { .. }
            | DiskRequest::Turn { .. } => {}
        }
    }

    /// A write is reported durable and is not where it belongs.
    fn perform_wrongly(
        &mut self,
        request: &DiskRequest,
        fault: WriteFault,
        chance: &mut Chance,
    ) -> DiskResult {
        let DiskRequest::Write { file, parts, .. } = request else {
            return self.perform(request);
        };
        if self.file(file).is_none() {
            return Err(DiskError::Missing);
        }
        if fault == WriteFault::Misdirected {
            let content = padded(parts);
            let files = self.folders.entry(file.partition).or_default();
            let at = chance.below(files.len() as u64) as usize;
            if let Some(other) = files.values_mut().nth(at) {
                let blocks = (other.bytes.len() / BLOCK_BYTES) as u64;
                let to = chance.below(blocks + 1) as usize * BLOCK_BYTES;
                other.write(to, &content, |_| true);
                other.settle(to + content.len());
            }
        }
        Ok(DiskReply::Done)
    }

    /// Power goes: what is in flight lands, is torn or is lost, in any order.
    pub fn crash(&mut self, chance: &mut Chance) {
        let mut waiting: Vec<DiskRequest> = std::mem::take(&mut self.in_flight)
            .into_values()
            .map(|waiting| waiting.request)
            .collect();
        while !waiting.is_empty() {
            let at = chance.below(waiting.len() as u64) as usize;
            let request = waiting.swap_remove(at);
            if self.is_full && self.takes_space(&request) {
                continue;
            }
            match chance.below(3) {
                0 => {}
                1 => {
                    let _ = self.perform(&request);
                }
                _ => self.perform_in_part(&request, chance),
            }
        }
        for file in self.folders.values_mut().flat_map(BTreeMap::values_mut) {
            file.crash(chance);
        }
        self.forget_doubtful(chance);
        self.refused.clear();
    }

    /// What was promised falsely about whole files comes out.
    fn forget_doubtful(&mut self, chance: &mut Chance) {
        for file in std::mem::take(&mut self.lies.doubtful) {
            if chance.one_in(2) {
                continue;
            }
            let tears = self.lies.tooth == Some(Tooth::TearsSmallFiles);
            if let (true, Some(held)) = (tears, self.file_mut(&file)) {
                let kept = chance.below(held.bytes.len() as u64) as usize;
                held.bytes.truncate(kept);
            } else if let Some(files) = self.folders.get_mut(&file.partition) {
                files.remove(&file.file);
            }
        }
    }

    /// A bit of what is stored turns over, or a sector is lost. False if nothing is stored.
    pub fn rot(&mut self, chance: &mut Chance) -> bool {
        let stored: Vec<(PartitionId, LogFile)> = self
            .folders
            .iter()
            .flat_map(|(partition, files)| {
                let filled = files.iter().filter(|(_, file)| !file.bytes.is_empty());
                filled.map(|(name, _)| (*partition, *name))
            })
            .collect();
        if stored.is_empty() {
            return false;
        }
        let (partition, name) = chance.pick(&stored);
        let file = FileId {
            partition,
            file: name,
        };
        let Some(held) = self.file_mut(&file) else {
            return false;
        };
        let at = chance.below(held.bytes.len() as u64) as usize;
        if chance.one_in(8) {
            let sector = at / SECTOR_BYTES * SECTOR_BYTES;
            let end = (sector + SECTOR_BYTES).min(held.bytes.len());
            held.bytes[sector..end].fill(0);
        } else {
            held.bytes[at] ^= 1 << chance.below(8);
        }
        self.damaged.insert(partition);
        true
    }
}

fn blocks_of(request: &DiskRequest) -> std::ops::Range<u64> {
    match request {
        DiskRequest::Write { position, .. } => {
            let bytes = request.write_bytes().next_multiple_of(BLOCK_BYTES) as u64;
            position.get()..position.get() + bytes
        }
        DiskRequest::Extend { from, to, .. } => from.get()..to.get(),
        _ => 0..0,
    }
}
