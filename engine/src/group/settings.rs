//! What an operator may set, and the bounds of coordinators.
//!
//! Groups, their bytes and their requests are bounded for all coordinators of a core together
//! ([`super::GroupLoad`]). Appends are bounded for each coordinator, since each waits for the disk of
//! its own partition: a core has [`OFFSETS_TOPIC_PARTITIONS`](crate::limits::OFFSETS_TOPIC_PARTITIONS)
//! of them at most.

use core::ops::RangeInclusive;

use crate::limits;

/// Longest group id, member id, static id, protocol name or client id, in bytes. Longer ids are
/// refused; client ids and hosts, which serve descriptions only, are cut.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Most protocols one member may offer.
pub const PROTOCOLS_MAX: usize = 64;

/// Generations reserved in the log at a time.
pub const GENERATION_BLOCK: u32 = 64;

/// A failed append of the coordinator's own is tried again after this long, in milliseconds.
pub const RETRY_MS: u64 = 1_000;

/// Most groups whose timers are served in one tick; the next tick is due at once.
pub const WAKES_PER_TICK_MAX: usize = 256;

/// Most offsets removed by one append.
pub const REMOVALS_PER_APPEND_MAX: usize = 4_096;

/// Settings and bounds of coordinators. All are `start` settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// An empty group waits this long for further members after its first one (Kafka:
    /// `group.initial.rebalance.delay.ms`), in milliseconds.
    pub initial_rebalance_delay_ms: u64,
    /// Offsets of a group that has been empty for this long go (Kafka: `offsets.retention.minutes`),
    /// in milliseconds.
    pub offsets_retention_ms: u64,
    /// A group without members and offsets goes after this long, in milliseconds.
    pub empty_group_ms: u64,
    /// Nothing expires in the first such time after loading, in milliseconds: a wall clock that
    /// was wrong at the start has been set by then.
    pub first_expiry_ms: u64,
    /// Accepted session timeouts, in milliseconds.
    pub session_timeout_ms: RangeInclusive<u32>,
    /// Most groups on one core.
    pub groups_max: usize,
    /// Most members of one group, those that have only been given an id included.
    pub members_max: usize,
    /// Most stored offsets of one group.
    pub offsets_max: usize,
    /// Most bytes that the members of one group may bring: ids, protocols, metadata.
    pub group_members_bytes_max: usize,
    /// Most bytes of all groups on one core, members and offsets together.
    pub bytes_max: usize,
    /// Most bytes of one append.
    pub append_bytes_max: usize,
    /// Most appends not yet reported back.
    pub appends_waiting_max: usize,
    /// Most bytes of appends not yet reported back.
    pub append_bytes_waiting_max: usize,
    /// Most requests on one core not yet answered.
    pub requests_waiting_max: usize,
    /// A snapshot is due after this many bytes of records, or twice its own size if that is more.
    pub snapshot_interval_bytes: u64,
    /// Bytes of one part of a snapshot; one group's record may be larger.
    pub snapshot_part_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            initial_rebalance_delay_ms: 100,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            empty_group_ms: 600_000,
            first_expiry_ms: 600_000,
            session_timeout_ms: limits::SESSION_TIMEOUT_MS,
            groups_max: limits::GROUPS_PER_CORE_MAX,
            members_max: limits::GROUP_MEMBERS_MAX,
            offsets_max: limits::BROKER_PARTITIONS_MAX as usize,
            group_members_bytes_max: 4 << 20,
            bytes_max: 256 << 20,
            append_bytes_max: 6 << 20,
            appends_waiting_max: limits::PUBLISHES_WAITING_PER_PARTITION_MAX / 2,
            append_bytes_waiting_max: limits::STAGED_BYTES_PER_PARTITION_MAX / 2,
            requests_waiting_max: 100_000,
            snapshot_interval_bytes: 16 << 20,
            snapshot_part_bytes: 1 << 20,
        }
    }
}
