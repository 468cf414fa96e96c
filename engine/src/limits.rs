//! Every bound in one place. Each is checked before memory is reserved.

/// Direct I/O works in blocks of this many bytes; positions and lengths of writes are multiples.
pub const BLOCK_BYTES: usize = 4096;

/// Largest frame accepted on the Kafka and HTTP listeners, in bytes. One produce request may carry
/// many batches.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Largest single record batch, in bytes (Kafka: `max.message.bytes`, there 1 MiB).
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// Largest body that one compressed batch may open to, in bytes.
pub const BATCH_OPENED_BYTES_MAX: usize = 64 << 20;

/// Largest record kept inline (key, value and headers), in bytes; larger bodies belong in object
/// storage.
pub const INLINE_BYTES_MAX: usize = 256 << 10;

/// Longest topic name, in bytes (Kafka's own limit).
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Most partitions one topic may have.
pub const TOPIC_PARTITIONS_MAX: u32 = 10_000;

/// Most partitions that one broker may hold.
pub const BROKER_PARTITIONS_MAX: u32 = 100_000;

/// Slots for each partition at a topic's creation.
pub const SLOTS_PER_PARTITION: u32 = 64;

/// Partitions of the internal topic of group offsets.
pub const OFFSETS_TOPIC_PARTITIONS: u32 = 16;

/// Most producers remembered per partition; beyond it the longest idle one is forgotten.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 10_000;

/// Batches remembered per producer for recognizing repeats (Kafka: five).
pub const PRODUCER_BATCHES: usize = 5;

/// Most publishes of one partition that may wait for durability.
pub const PUBLISHES_WAITING_PER_PARTITION_MAX: usize = 4_096;

/// Most bytes of one partition that may wait for their durable write.
pub const STAGED_BYTES_PER_PARTITION_MAX: usize = 64 << 20;

/// Most bytes in one durable write.
pub const WRITE_BYTES_MAX: usize = 8 << 20;

/// Most fetches that may wait on one core.
pub const FETCHES_WAITING_PER_CORE_MAX: usize = 100_000;

/// Most bytes one fetch answer may carry.
pub const FETCH_BYTES_MAX: usize = 64 << 20;

/// Longest wait of a fetch, in milliseconds.
pub const FETCH_WAIT_MS_MAX: u64 = 300_000;

/// Most groups one core coordinates.
pub const GROUPS_PER_CORE_MAX: usize = 100_000;

/// Most members of one group.
pub const GROUP_MEMBERS_MAX: usize = 10_000;

/// Largest metadata or assignment blob of one group member, in bytes.
pub const MEMBER_BLOB_BYTES_MAX: usize = 1 << 20;

/// Longest metadata string of one committed offset, in bytes (Kafka: 4096).
pub const OFFSET_METADATA_BYTES_MAX: usize = 4096;

/// Shortest and longest session timeouts of group members, in milliseconds.
pub const SESSION_TIMEOUT_MS: core::ops::RangeInclusive<u32> = 500..=1_800_000;

/// A producer's timestamp may lie at most this far ahead of the broker's clock, in milliseconds
/// (one hour, as Kafka's `message.timestamp.after.max.ms` is commonly set).
pub const TIMESTAMP_AHEAD_MS_MAX: u64 = 3_600_000;

/// Size to which a segment grows before it rolls, in bytes, unless its topic says otherwise.
pub const SEGMENT_BYTES_DEFAULT: u64 = 1 << 30;

/// First stretch of a new segment that is written with zeros, in bytes.
pub const EXTEND_BYTES_MIN: u64 = 64 << 10;

/// Largest stretch written with zeros at a time, in bytes. A write that reaches into it waits for it.
pub const EXTEND_BYTES_MAX: u64 = 4 << 20;

/// First and largest stretch reserved at a time, in bytes.
pub const RESERVE_BYTES: (u64, u64) = (16 << 20, 128 << 20);

/// One sparse index entry stands for at least this many bytes of log.
pub const INDEX_INTERVAL_BYTES: u64 = 16 << 10;

/// A recovery checkpoint is due after this many bytes appended.
pub const CHECKPOINT_INTERVAL_BYTES: u64 = 64 << 20;

/// Partitions that one core recovers at the same time.
pub const RECOVERIES_AT_ONCE_MAX: usize = 64;

/// Bytes read at a time by recovery and other scans.
pub const SCAN_READ_BYTES: usize = 1 << 20;

/// Bytes that a look-up by time opens and looks at in one turn, about.
pub const LOOK_UP_TURN_BYTES: usize = 256 << 10;

/// Most look-ups by time that one core has in work; each may hold one opened batch.
pub const LOOK_UPS_AT_ONCE_MAX: usize = 4;

/// Most look-ups by time that wait on one core for others to end.
pub const LOOK_UPS_WAITING_MAX: usize = 10_000;

/// Producer ids handed to a broker with one metadata record.
pub const PRODUCER_ID_BLOCK: u64 = 1_000;
