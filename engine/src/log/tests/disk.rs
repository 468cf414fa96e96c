//! A disk in memory that forgets what was not made durable.
//!
//! Requests wait until the test completes them, in any order. A crash applies each waiting one wholly,
//! in part or not at all, and whatever of an extension was not made durable may go, too.

use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

use bytes::Bytes;

use super::random::Random;
use crate::disk::{DiskError, DiskReply, DiskRequest, DiskResult, LogFile, OperationId};
use crate::effect::Effect;
use crate::limits::BLOCK_BYTES;

const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug, Default)]
pub struct File {
    pub bytes: Vec<u8>,
    /// Up to here the length is durable.
    durable_bytes: usize,
    /// One past the last byte ever written that is not an extension's zero.
    written_bytes: usize,
}

/// Chooses requests.
pub type IsIt = fn(&DiskRequest) -> bool;

#[derive(Debug, Default)]
pub struct Disk {
    /// `None`: there is no folder.
    pub files: Option<BTreeMap<LogFile, File>>,
    pub waiting: Vec<(OperationId, DiskRequest)>,
    /// The next write, sync and such for which this is true fails so.
    pub fail_next: Option<(IsIt, DiskError)>,
    pub requests: Vec<DiskRequest>,
}

fn file_of(request: &DiskRequest) -> Option<LogFile> {
    match request {
        DiskRequest::Create { file, .. }
        | DiskRequest::Read { file, .. }
        | DiskRequest::Write { file, .. }
        | DiskRequest::Extend { file, .. }
        | DiskRequest::Sync { file }
        | DiskRequest::Truncate { file, .. }
        | DiskRequest::Replace { file, .. } => Some(file.file),
        _ => None,
    }
}

/// The blocks that a write or extension covers.
fn blocks(request: &DiskRequest) -> Option<(LogFile, u64, u64)> {
    match request {
        DiskRequest::Write { file, position, .. } => {
            let end = position.get() + request.write_bytes() as u64;
            Some((
                file.file,
                position.get(),
                end.next_multiple_of(BLOCK_BYTES as u64),
            ))
        }
        DiskRequest::Extend { file, from, to, .. } => Some((file.file, from.get(), to.get())),
        _ => None,
    }
}

impl Disk {
    /// Takes the disk requests out of `effects`.
    pub fn take(&mut self, effects: &mut Vec<Effect>) {
        for effect in effects.drain(..) {
            let Effect::Disk {
                operation, request, ..
            } = effect
            else {
                panic!("a log asks for nothing but its disk: {effect:?}");
            };
            request.assert_aligned();
            self.assert_disjoint(&request);
            self.assert_no_zeros_over_data(&request);
            self.requests.push(request.clone());
            self.waiting.push((operation, request));
        }
    }

    fn assert_disjoint(&self, new: &DiskRequest) {
        let Some((file, from, to)) = blocks(new) else {
            return;
        };
        for (_, other) in &self.waiting {
            if let Some((other_file, other_from, other_to)) = blocks(other) {
                assert!(
                    file != other_file || to <= other_from || other_to <= from,
                    "{new:?} overlaps {other:?}"
                );
            }
        }
    }

    fn assert_no_zeros_over_data(&self, new: &DiskRequest) {
        if let DiskRequest::Extend { file, from, .. } = new {
            let written = self.file(file.file).map_or(0, |file| file.written_bytes) as u64;
            assert!(from.get() >= written, "zeros over data: {new:?}");
        }
    }

    pub fn file(&self, file: LogFile) -> Option<&File> {
        self.files.as_ref()?.get(&file)
    }

    pub fn file_mut(&mut self, file: LogFile) -> &mut File {
        self.files.as_mut().unwrap().get_mut(&file).unwrap()
    }

    /// Completes the waiting request at `at`.
    pub fn complete(&mut self, at: usize) -> (OperationId, DiskResult) {
        let (operation, request) = self.waiting.remove(at);
        if let Some((is_it, error)) = &self.fail_next
            && is_it(&request)
        {
            let error = error.clone();
            self.fail_next = None;
            return (operation, Err(error));
        }
        (operation, self.perform(&request))
    }

    fn perform(&mut self, request: &DiskRequest) -> DiskResult {
        let missing = || Err(DiskError::Missing);
        if let Some(file) = file_of(request)
            && !matches!(
                request,
                DiskRequest::Create { .. } | DiskRequest::Replace { .. }
            )
            && self.file(file).is_none()
        {
            return missing();
        }
        match request {
            DiskRequest::List { .. } => {
                let files = self.files.as_ref().map(|files| {
                    files
                        .iter()
                        .map(|(name, file)| (*name, file.bytes.len() as u64))
                        .collect()
                });
                return Ok(DiskReply::Files(files));
            }
            DiskRequest::Create {
                file,
                written_bytes,
            } => {
                let files = self.files.get_or_insert_default();
                if files.contains_key(&file.file) {
                    return Err(DiskError::Failed(String::from("exists")));
                }
                let bytes = *written_bytes as usize;
                files.insert(
                    file.file,
                    File {
                        bytes: std::vec![0; bytes],
                        durable_bytes: bytes,
                        written_bytes: 0,
                    },
                );
            }
            DiskRequest::Read {
                file,
                position,
                length_bytes,
            } => {
                assert!(*length_bytes > 0, "an empty read: {request:?}");
                let bytes = &self.file(file.file).unwrap().bytes;
                let start = (position.get() as usize).min(bytes.len());
                let end = (start + length_bytes).min(bytes.len());
                return Ok(DiskReply::Bytes(Bytes::copy_from_slice(&bytes[start..end])));
            }
            DiskRequest::Write {
                file,
                position,
                parts,
            } => self.write(file.file, position.get() as usize, parts, |_| true),
            DiskRequest::Extend { file, from, to, .. } => {
                self.extend(file.file, from.get() as usize, to.get() as usize)
            }
            DiskRequest::Sync { file } => {
                let file = self.file_mut(file.file);
                file.durable_bytes = file.bytes.len();
            }
            DiskRequest::Truncate { file, length_bytes } => {
                let file = self.file_mut(file.file);
                file.bytes.resize(*length_bytes as usize, 0);
                file.durable_bytes = file.bytes.len();
                file.written_bytes = file.written_bytes.min(file.bytes.len());
            }
            DiskRequest::Replace { file, content } => {
                let new = File {
                    bytes: content.to_vec(),
                    durable_bytes: content.len(),
                    written_bytes: content.len(),
                };
                match &mut self.files {
                    Some(files) => files.insert(file.file, new),
                    None => return missing(),
                };
            }
            DiskRequest::Remove { files, .. } => {
                if let Some(there) = &mut self.files {
                    there.retain(|name, _| !files.contains(name));
                }
            }
            DiskRequest::RemoveFolder { .. } => self.files = None,
            DiskRequest::Turn { .. } => {}
        }
        Ok(DiskReply::Done)
    }

    fn write(
        &mut self,
        file: LogFile,
        position: usize,
        parts: &[Bytes],
        mut is_kept: impl FnMut(usize) -> bool,
    ) {
        let mut content: Vec<u8> = parts.concat();
        let data_end = position + content.len();
        content.resize(content.len().next_multiple_of(BLOCK_BYTES), 0);
        let file = self.file_mut(file);
        let end = position + content.len();
        if file.bytes.len() < end {
            file.bytes.resize(end, 0);
        }
        for (index, sector) in content.chunks(SECTOR_BYTES).enumerate() {
            if is_kept(index) {
                let at = position + index * SECTOR_BYTES;
                file.bytes[at..at + sector.len()].copy_from_slice(sector);
            }
        }
        file.durable_bytes = file.durable_bytes.max(end);
        file.written_bytes = file.written_bytes.max(data_end);
    }

    fn extend(&mut self, file: LogFile, from: usize, to: usize) {
        let file = self.file_mut(file);
        if file.bytes.len() < to {
            file.bytes.resize(to, 0);
        }
        file.bytes[from..to].fill(0);
    }

    /// Power fails: what is in flight lands, is torn, or is lost; in any order.
    pub fn crash(&mut self, random: &mut Random) {
        let mut waiting = std::mem::take(&mut self.waiting);
        while !waiting.is_empty() {
            let at = random.below(waiting.len() as u64) as usize;
            let (_, request) = waiting.swap_remove(at);
            match random.below(3) {
                0 => {}
                1 => {
                    let _ = self.perform(&request);
                }
                _ => self.perform_in_part(&request, random),
            }
        }
        for file in self.files.iter_mut().flat_map(|files| files.values_mut()) {
            let lost = file.bytes.len().saturating_sub(file.durable_bytes) as u64;
            let kept = file.bytes.len() - random.below(lost + 1) as usize;
            file.bytes.truncate(kept);
            file.durable_bytes = file.durable_bytes.min(kept);
        }
        self.fail_next = None;
    }

    fn perform_in_part(&mut self, request: &DiskRequest, random: &mut Random) {
        match request {
            DiskRequest::Write {
                file,
                position,
                parts,
            } if self.file(file.file).is_some() => {
                let file = file.file;
                self.write(file, position.get() as usize, parts, |_| {
                    random.below(2) == 0
                });
            }
            DiskRequest::Create { file, .. } => {
                let files = self.files.get_or_insert_default();
                if random.below(2) == 0 {
                    files.entry(file.file).or_default();
                }
            }
            DiskRequest::Remove { files, .. } => {
                if let Some(there) = &mut self.files {
                    there.retain(|name, _| !files.contains(name) || random.below(2) == 0);
                }
            }
            DiskRequest::RemoveFolder { .. } => {
                if let Some(there) = &mut self.files {
                    there.retain(|_, _| random.below(2) == 0);
                }
            }
            _ => {}
        }
    }
}
