//! How often the virtual disk does what to whom.

use corelog_engine::disk::DiskRequest;

use super::chance::Chance;

/// What becomes of a write that is reported durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// It never lands.
    Lost,
    /// It lands elsewhere in the same partition's folder.
    Misdirected,
}

/// Faults, each once in so many requests; zero: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Durable requests that fail.
    pub failed_one_in: u64,
    /// Reads that fail.
    pub failed_read_one_in: u64,
    /// Writes that are lost.
    pub lost_one_in: u64,
    /// Writes that land elsewhere.
    pub misdirected_one_in: u64,
}

impl Faults {
    /// Whether this request fails.
    pub fn fails(&self, request: &DiskRequest, chance: &mut Chance) -> bool {
        match request {
            DiskRequest::Read { .. } => chance.one_in(self.failed_read_one_in),
            // A listing that fails is a broken machine.
            DiskRequest::List { .. } | DiskRequest::Turn { .. } => false,
            _ => chance.one_in(self.failed_one_in),
        }
    }

    /// What becomes of this request if it is a write.
    pub fn of_write(&self, request: &DiskRequest, chance: &mut Chance) -> Option<WriteFault> {
        if !matches!(request, DiskRequest::Write { .. }) {
            return None;
        }
        if chance.one_in(self.lost_one_in) {
            Some(WriteFault::Lost)
        } else if chance.one_in(self.misdirected_one_in) {
            Some(WriteFault::Misdirected)
        } else {
            None
        }
    }
}
