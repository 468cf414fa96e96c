//! Hardware measurements: what to measure, and what the figures mean. The measuring itself is done
//! by the broker's own code (`corelog-shard`), so that it finds what the broker will find.

pub mod disk;
pub mod latency;

pub use disk::{DiskCell, DiskFigure, DiskPlan, DiskReport};
pub use latency::Latencies;
