//! What a core counts: plain numbers that only this core writes.

use crate::rejection::Rejection;

/// Counters of one core, since its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Publishes taken (appended or recognized as repeats).
    pub publishes: u64,
    /// Records appended.
    pub records_in: u64,
    /// Bytes of batches appended.
    pub bytes_in: u64,
    /// Fetches answered.
    pub fetches: u64,
    /// Bytes of batches handed to readers.
    pub bytes_out: u64,
    /// Partition reads served from memory.
    pub tail_reads: u64,
    /// Partition reads that went to the disk.
    pub disk_reads: u64,
    /// Publishes recognized as repeats.
    pub repeats: u64,
    /// Publishes by producers without state here.
    pub unknown_producers: u64,
    /// Publishes whose wait ended with an unknown outcome.
    pub timed_out: u64,
    /// Logs stopped by a fault.
    pub logs_stopped: u64,
    /// Producer tables made from the log because their snapshot was lost.
    pub producer_tables_rebuilt: u64,
    /// Completions that nobody waited for.
    pub stray_completions: u64,
    /// Bytes of the tail cache that are taken from the budget.
    pub tail_reserved_bytes: usize,
    /// Refusals by [`Rejection::index`].
    pub rejections: [u64; Rejection::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            publishes: 0,
            records_in: 0,
            bytes_in: 0,
            fetches: 0,
            bytes_out: 0,
            tail_reads: 0,
            disk_reads: 0,
            repeats: 0,
            unknown_producers: 0,
            timed_out: 0,
            logs_stopped: 0,
            producer_tables_rebuilt: 0,
            stray_completions: 0,
            tail_reserved_bytes: 0,
            rejections: [0; Rejection::ALL.len()],
        }
    }
}

impl Counters {
    /// Counts a refusal.
    pub fn reject(&mut self, rejection: Rejection) {
        self.rejections[rejection.index()] += 1;
    }
}
