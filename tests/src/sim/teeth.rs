//! Promises of the world that are broken in secret, one kind in a run: a checker that lets one of them
//! pass has no teeth.
//!
//! Each kind takes away what a rule of the engine rests on, or what it would do: a write that is
//! reported durable and is not stands for an engine that answers without a durable write; a producer
//! snapshot that is empty for an engine that forgets its producers. Nobody is told which partition
//! suffers, so every rule is held against all of them.

use std::collections::BTreeSet;

use bytes::Bytes;
use clap::ValueEnum;
use corelog_engine::disk::{DiskReply, DiskRequest, DiskResult, FileId, LogFile};
use corelog_engine::limits::BLOCK_BYTES;
use corelog_engine::producer::ProducerTable;

use super::chance::Chance;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Tooth {
    /// One write of a segment in eight never lands.
    LosesWrites,
    /// One write of a state file in three never lands.
    LosesStateWrites,
    /// Writes of segments are durable with the next crash, or not, sector by sector.
    CachesWrites,
    /// A new file is forgotten by the next crash, one in two: its directory was not synced.
    ForgetsNewFiles,
    /// A small file that took another's place is torn by the next crash, one in two.
    TearsSmallFiles,
    /// Nothing is cut off.
    CutsNothing,
    /// One request in thirty fails, is done in part, and is reported done.
    HidesFailures,
    /// A removal takes the oldest segment that should have stayed along, one in two.
    RemovesTooMuch,
    /// What a checkpoint keeps of producers is empty.
    ForgetsProducers,
    /// One read in twenty comes back with a bit turned over.
    FlipsReads,
    /// One write in eight lands elsewhere in the same folder.
    MisdirectsWrites,
    /// Zeros ahead of the data begin a block too early.
    ZerosTooMuch,
    /// One listing in four lacks a segment.
    ListsTooLittle,
    /// One request in 150 never completes.
    LosesCompletions,
    /// No timer fires but the first.
    LosesTicks,
    /// Publishes are acknowledged as soon as they are in memory.
    AcknowledgesEarly,
    /// The core's monotonic clock steps with the wall's.
    StepsBack,
    /// A batch is left out of a fetch's answer where another follows.
    ServesTooLittle,
    /// A start does not begin a new epoch.
    KeepsEpochs,
}

impl Tooth {
    /// Every kind.
    pub const ALL: [Self; 19] = [
        Self::LosesWrites,
        Self::LosesStateWrites,
        Self::CachesWrites,
        Self::ForgetsNewFiles,
        Self::TearsSmallFiles,
        Self::CutsNothing,
        Self::HidesFailures,
        Self::RemovesTooMuch,
        Self::ForgetsProducers,
        Self::FlipsReads,
        Self::MisdirectsWrites,
        Self::ZerosTooMuch,
        Self::ListsTooLittle,
        Self::LosesCompletions,
        Self::LosesTicks,
        Self::AcknowledgesEarly,
        Self::StepsBack,
        Self::ServesTooLittle,
        Self::KeepsEpochs,
    ];
}

/// What the disk has promised falsely since the last crash.
#[derive(Debug, Default)]
pub(super) struct Lies {
    /// What it lies about.
    pub tooth: Option<Tooth>,
    /// Files that the next crash forgets or tears.
    pub doubtful: BTreeSet<FileId>,
}

/// How the disk deals with one request.
pub(super) enum Deed {
    /// As it should.
    Honest,
    /// Not at all, and says that it has.
    Nothing,
    /// In part, and says that it has.
    InPart,
    /// Elsewhere, and says that it has.
    Elsewhere,
    /// This request instead.
    Instead(DiskRequest),
    /// As it should, but nothing is sure before the next sync.
    Unsure,
}

fn is_write_of(request: &DiskRequest, is_file: impl Fn(&LogFile) -> bool) -> bool {
    matches!(request, DiskRequest::Write { file, .. } if is_file(&file.file))
}

fn is_segment(file: &LogFile) -> bool {
    matches!(file, LogFile::Segment(_))
}

impl Lies {
    /// Whether a request's completion never arrives.
    pub fn loses_completion(&self, chance: &mut Chance) -> bool {
        self.tooth == Some(Tooth::LosesCompletions) && chance.one_in(150)
    }

    /// What becomes of a request that does not fail.
    pub fn deed(&mut self, request: &DiskRequest, chance: &mut Chance) -> Deed {
        let Some(tooth) = self.tooth else {
            return Deed::Honest;
        };
        match (tooth, request) {
            (Tooth::LosesWrites, _) if is_write_of(request, is_segment) && chance.one_in(8) => {
                Deed::Nothing
            }
            (Tooth::LosesStateWrites, _)
                if is_write_of(request, |file| *file == LogFile::State) && chance.one_in(3) =>
            {
                Deed::Nothing
            }
            (Tooth::CachesWrites, _) if is_write_of(request, is_segment) => Deed::Unsure,
            (Tooth::ForgetsNewFiles, DiskRequest::Create { file, .. })
            | (Tooth::TearsSmallFiles, DiskRequest::Replace { file, .. }) => {
                self.doubtful.insert(*file);
                Deed::Honest
            }
            (Tooth::CutsNothing, DiskRequest::Truncate { .. }) => Deed::Nothing,
            (
                Tooth::HidesFailures,
                DiskRequest::Write { .. }
                | DiskRequest::Create { .. }
                | DiskRequest::Replace { .. }
                | DiskRequest::Truncate { .. },
            ) if chance.one_in(30) => Deed::InPart,
            (Tooth::ForgetsProducers, DiskRequest::Replace { file, .. })
                if matches!(file.file, LogFile::Producers(_)) =>
            {
                Deed::Instead(DiskRequest::Replace {
                    file: *file,
                    content: ProducerTable::default().snapshot(),
                })
            }
            (Tooth::MisdirectsWrites, DiskRequest::Write { .. }) if chance.one_in(8) => {
                Deed::Elsewhere
            }
            _ => Deed::Honest,
        }
    }

    /// What is told of a request that was done.
    pub fn told(&self, result: DiskResult, chance: &mut Chance) -> DiskResult {
        match (self.tooth, result) {
            (Some(Tooth::FlipsReads), Ok(DiskReply::Bytes(bytes)))
                if !bytes.is_empty() && chance.one_in(20) =>
            {
                let mut bytes = bytes.to_vec();
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << chance.below(8);
                Ok(DiskReply::Bytes(Bytes::from(bytes)))
            }
            (Some(Tooth::ListsTooLittle), Ok(DiskReply::Files(Some(mut files))))
                if chance.one_in(4) =>
            {
                if let Some(at) = files.iter().position(|(file, _)| is_segment(file)) {
                    files.remove(at);
                }
                Ok(DiskReply::Files(Some(files)))
            }
            (_, result) => result,
        }
    }

    /// Where zeros begin that should begin at `from`.
    pub fn zeros_from(&self, from: usize) -> usize {
        match self.tooth {
            Some(Tooth::ZerosTooMuch) => from.saturating_sub(BLOCK_BYTES),
            _ => from,
        }
    }

    /// Whether a removal takes another segment along.
    pub fn removes_too_much(&self, chance: &mut Chance) -> bool {
        self.tooth == Some(Tooth::RemovesTooMuch) && chance.one_in(2)
    }
}
