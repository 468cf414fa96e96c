//! What a topic's and the broker's settings say about one log.

use crate::limits::{
    CHECKPOINT_INTERVAL_BYTES, EXTEND_BYTES_MAX, EXTEND_BYTES_MIN, RESERVE_BYTES,
    SEGMENT_BYTES_DEFAULT, WRITE_BYTES_MAX,
};

/// Settings of one log. All of them may change while it lives ([`super::Log::set_settings`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A segment rolls before it would grow past this (topic setting `segment.bytes`).
    pub segment_bytes_max: u64,
    /// A segment rolls when its first batch is this old by append time (`segment.ms`).
    pub segment_ms: u64,
    /// Closed segments go when their last append is this old (`retention.ms`); `None`: never.
    pub retention_ms: Option<u64>,
    /// Closed segments go while the log is larger than this (`retention.bytes`); `None`: never.
    pub retention_bytes: Option<u64>,
    /// A checkpoint is due after this many appended bytes.
    pub checkpoint_bytes: u64,
    /// Most durable writes of one log in flight. At least one.
    pub writes_in_flight_max: usize,
    /// Most bytes in one durable write.
    pub write_bytes_max: usize,
    /// While the block at the log's end is being written, what lies behind that block starts a
    /// write of its own if it is at least this much; less gathers (the group commit).
    pub parallel_bytes_min: usize,
    /// Space is written ahead with zeros while the mean write is smaller than this. Before larger
    /// ones it is only reserved: zeros would cost as much as the data.
    pub extend_below_bytes: usize,
    /// First and largest stretch written ahead.
    pub extend_bytes: (u64, u64),
    /// First and largest stretch reserved ahead.
    pub reserve_bytes: (u64, u64),
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            segment_bytes_max: SEGMENT_BYTES_DEFAULT,
            segment_ms: 7 * 24 * 3_600_000,
            retention_ms: Some(7 * 24 * 3_600_000),
            retention_bytes: None,
            checkpoint_bytes: CHECKPOINT_INTERVAL_BYTES,
            writes_in_flight_max: 4,
            write_bytes_max: WRITE_BYTES_MAX,
            parallel_bytes_min: 256 << 10,
            extend_below_bytes: 64 << 10,
            extend_bytes: (EXTEND_BYTES_MIN, EXTEND_BYTES_MAX),
            reserve_bytes: RESERVE_BYTES,
        }
    }
}
