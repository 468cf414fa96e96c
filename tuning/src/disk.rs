//! The disk: durable appends into written extents, and reads, by block size and depth.

use serde::{Deserialize, Serialize};

use crate::latency::Latencies;

/// One combination to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCell {
    /// Size of each write or read, in bytes.
    pub block_bytes: usize,
    /// How many are in flight at a time.
    pub in_flight: usize,
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// The combinations, each for appends and for reads.
    pub cells: Vec<DiskCell>,
    /// How long each combination is measured, in milliseconds.
    pub cell_ms: u64,
    /// Bytes of the file that is measured on. Appends go round in it, over written extents.
    pub file_bytes: u64,
}

impl DiskPlan {
    /// Block sizes of 4 KiB, 64 KiB and 1 MiB with 1 and 4 in flight, in about `seconds` in all.
    pub fn standard(seconds: u64) -> Self {
        let sizes = [4 << 10, 64 << 10, 1 << 20];
        let cells = sizes.into_iter().flat_map(|block_bytes| {
            [1, 4].map(|in_flight| DiskCell {
                block_bytes,
                in_flight,
            })
        });
        let cells: Vec<DiskCell> = cells.collect();
        let measured = 2 * cells.len() as u64;
        Self {
            cell_ms: (seconds.max(1) * 1_000 / measured).max(100),
            cells,
            file_bytes: 512 << 20,
        }
    }
}

/// What one combination gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskFigure {
    /// Size of each write or read, in bytes.
    pub block_bytes: usize,
    /// How many were in flight at a time.
    pub in_flight: usize,
    /// 10^6 bytes per second.
    pub mb_per_s: f64,
    /// Median latency of one write or read, in microseconds.
    pub p50_us: u64,
    /// 99 of 100 took at most this, in microseconds.
    pub p99_us: u64,
}

impl DiskFigure {
    /// The figure of a cell that took `elapsed_us` for what `latencies` holds.
    pub fn new(cell: DiskCell, latencies: &Latencies, elapsed_us: u64) -> Self {
        let bytes = latencies.count() as f64 * cell.block_bytes as f64;
        Self {
            block_bytes: cell.block_bytes,
            in_flight: cell.in_flight,
            mb_per_s: bytes / elapsed_us.max(1) as f64,
            p50_us: latencies.at_quantile(0.5),
            p99_us: latencies.at_quantile(0.99),
        }
    }
}

/// What a disk gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Durable appends (direct, each write on stable storage when it completes).
    pub append: Vec<DiskFigure>,
    /// Reads past every cache of this machine.
    pub read: Vec<DiskFigure>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_plan_fits_its_time() {
        let plan = DiskPlan::standard(12);
        assert_eq!(plan.cells.len(), 6);
        assert_eq!(plan.cell_ms * 12, 12_000);
    }

    #[test]
    fn a_figure_counts_decimal_megabytes() {
        let mut latencies = Latencies::new();
        (0..1_000).for_each(|_| latencies.record(500));
        let figure = DiskFigure::new(
            DiskCell {
                block_bytes: 1_000_000,
                in_flight: 1,
            },
            &latencies,
            1_000_000,
        );
        assert!((figure.mb_per_s - 1_000.0).abs() < 1e-9);
    }
}
