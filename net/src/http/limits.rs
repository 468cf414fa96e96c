//! Bounds of the HTTP face, beside those of `corelog_engine::limits`. Each is checked before memory
//! is reserved.

use corelog_engine::limits::FRAME_BYTES_MAX;

/// Longest path accepted, in bytes, before percent-decoding.
pub const PATH_BYTES_MAX: usize = 2_048;

/// Longest query accepted, in bytes.
pub const QUERY_BYTES_MAX: usize = 1_024;

/// Largest body of a publish, in bytes.
pub const PUBLISH_BODY_BYTES_MAX: usize = FRAME_BYTES_MAX;

/// Largest body of every other request, in bytes.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// Most messages in one publish. A message of a few bytes of JSON takes some hundreds in memory, so the
/// body's size alone is no bound.
pub const PUBLISH_MESSAGES_MAX: usize = 10_000;

/// Most headers of one published message, for the same reason.
pub const MESSAGE_HEADERS_MAX: usize = 100;

/// Longest `message_id`, in bytes.
pub const MESSAGE_ID_BYTES_MAX: usize = 256;

/// Most settings in the creation of one topic.
pub const TOPIC_SETTINGS_MAX: usize = 100;

/// Most topics named by one fetch or join.
pub const TOPICS_MAX: usize = 1_000;

/// Most partitions named by one fetch, commit or reset.
pub const PARTITIONS_MAX: usize = 20_000;

/// Messages in one fetch answer, unless the request says otherwise.
pub const FETCH_MESSAGES_DEFAULT: u32 = 500;

/// Most messages in one fetch answer.
pub const FETCH_MESSAGES_MAX: u32 = 10_000;

/// Keys, payloads and headers in one fetch answer, in bytes, unless the request says otherwise.
pub const FETCH_BYTES_DEFAULT: usize = 1 << 20;

/// Most of the same. JSON may make up to six times as much of it.
pub const FETCH_BYTES_MAX: usize = 16 << 20;

/// Lease of a group member, in milliseconds, unless the join says otherwise (Kafka's own default).
pub const LEASE_MS_DEFAULT: u32 = 45_000;

/// Names in one page of a listing, unless the query says otherwise.
pub const PAGE_DEFAULT: usize = 1_000;

/// Most names in one page of a listing.
pub const PAGE_MAX: usize = 10_000;

/// Longest explanation in a problem, in bytes; it may quote the request.
pub const DETAIL_BYTES_MAX: usize = 512;
