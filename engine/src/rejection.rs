//! Expected refusals: each has one Kafka code, one HTTP status, one metric label and a retry class.

use core::fmt;

/// Whether, and when, the same request may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Not without changing the request.
    Never,
    /// After refreshing metadata or finding the coordinator again.
    AfterRefresh,
    /// Later, as it is.
    Later,
}

macro_rules! rejections {
    ($($(#[$doc:meta])* $name:ident, $code:literal, $status:literal, $label:literal, $retry:ident, $text:literal;)*) => {
        /// An expected refusal of a request or of a part of one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rejection {
            $($(#[$doc])* $name,)*
        }

        impl Rejection {
            /// Every refusal there is, for metrics and references.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The Kafka error code.
            pub const fn kafka_code(self) -> i16 {
                match self { $(Self::$name => $code,)* }
            }

            /// The HTTP status.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The metric label, and the `type` of an HTTP error body.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Whether to try again.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)* }
            }

            /// What it means and what to do, in a sentence.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

rejections! {
    /// The offset lies below the log start or past the log's end.
    OffsetOutOfRange, 1, 416, "offset_out_of_range", Never, "the offset is outside what the partition retains; reset to one that is";
    /// A batch fails its checksum or its own structure.
    CorruptMessage, 2, 400, "corrupt_message", Never, "the batch does not match its checksum or its lengths";
    /// No such topic or partition.
    UnknownTopicOrPartition, 3, 404, "unknown_topic_or_partition", AfterRefresh, "no such topic or partition; create it, or refresh metadata";
    /// This replica does not lead the partition, or has not begun to.
    NotLeader, 6, 503, "not_leader_or_follower", AfterRefresh, "this broker does not lead the partition now; refresh metadata and try again";
    /// It was not done in time; its outcome is unknown.
    RequestTimedOut, 7, 504, "request_timed_out", Later, "no answer in time; a publish may or may not have been stored";
    /// A batch or record above the limit.
    MessageTooLarge, 10, 413, "message_too_large", Never, "a record is above inline_bytes_max (256 KiB) or a batch above its limit; larger bodies belong in object storage";
    /// Committed metadata above its limit.
    OffsetMetadataTooLarge, 12, 413, "offset_metadata_too_large", Never, "the metadata string of a committed offset is too long";
    /// The coordinator is still reading its log.
    CoordinatorLoading, 14, 503, "coordinator_load_in_progress", Later, "the group's coordinator is loading; try again shortly";
    /// There is no coordinator now.
    CoordinatorUnavailable, 15, 503, "coordinator_not_available", AfterRefresh, "the group's coordinator is not available; try again shortly";
    /// Another core or broker coordinates this group.
    NotCoordinator, 16, 503, "not_coordinator", AfterRefresh, "this broker does not coordinate the group; find its coordinator again";
    /// A topic name outside the rules.
    InvalidTopic, 17, 400, "invalid_topic", Never, "a topic name is 1 to 249 of a-z A-Z 0-9 . _ -, not . or .., and internal topics cannot be written";
    /// More in one request than allowed.
    RecordListTooLarge, 18, 413, "record_list_too_large", Never, "the request carries more than one batch limit allows; send less at a time";
    /// An acks value other than -1, 0 and 1.
    InvalidRequiredAcks, 21, 400, "invalid_required_acks", Never, "acks must be -1 (all), 0 or 1";
    /// A member of an older generation.
    IllegalGeneration, 22, 409, "illegal_generation", Never, "the group has moved on to another generation; join again";
    /// Members of a group share no protocol.
    InconsistentGroupProtocol, 23, 409, "inconsistent_group_protocol", Never, "the member shares no protocol with its group";
    /// An empty or oversize group id.
    InvalidGroupId, 24, 400, "invalid_group_id", Never, "a group id must not be empty";
    /// No such member in the group now.
    UnknownMember, 25, 404, "unknown_member_id", Never, "the group does not know this member; join again";
    /// A session timeout outside the limits.
    InvalidSessionTimeout, 26, 400, "invalid_session_timeout", Never, "the session timeout is outside 500 ms to 30 min";
    /// The group is between generations.
    RebalanceInProgress, 27, 409, "rebalance_in_progress", Later, "the group is rebalancing; join again";
    /// The principal may not do this.
    TopicAuthorizationFailed, 29, 403, "topic_authorization_failed", Never, "the principal may not do this to the topic";
    /// The principal may not use this group.
    GroupAuthorizationFailed, 30, 403, "group_authorization_failed", Never, "the principal may not use the group";
    /// A time stamp outside the bounds.
    InvalidTimestamp, 32, 400, "invalid_timestamp", Never, "a record's time stamp is too far ahead of the broker's clock";
    /// A mechanism that is not offered.
    UnsupportedSaslMechanism, 33, 400, "unsupported_sasl_mechanism", Never, "that SASL mechanism is not offered";
    /// A version that is not built.
    UnsupportedVersion, 35, 400, "unsupported_version", Never, "that version of the request is not supported";
    /// The topic exists.
    TopicAlreadyExists, 36, 409, "topic_already_exists", Never, "a topic of that name exists";
    /// A partition count outside the limits.
    InvalidPartitions, 37, 400, "invalid_partitions", Never, "the partition count is outside its limits";
    /// More replicas than brokers.
    InvalidReplicationFactor, 38, 400, "invalid_replication_factor", Never, "the replication factor is larger than the number of brokers or zero";
    /// An assignment of replicas that cannot be.
    InvalidReplicaAssignment, 39, 400, "invalid_replica_assignment", Never, "the replica assignment names unknown brokers or leaves partitions out";
    /// A configuration value outside its rules.
    InvalidConfig, 40, 400, "invalid_config", Never, "a configuration key is unknown or its value outside its rules";
    /// A request that contradicts itself.
    InvalidRequest, 42, 400, "invalid_request", Never, "the request contradicts itself or the protocol";
    /// A message format that is not stored.
    UnsupportedForMessageFormat, 43, 400, "unsupported_for_message_format", Never, "only record batches of format 2 are stored";
    /// Refused by policy: disk level or quota.
    PolicyViolation, 44, 507, "policy_violation", Later, "refused while the broker is short of disk; free space or raise retention limits";
    /// A gap in a producer's sequence.
    OutOfOrderSequence, 45, 409, "out_of_order_sequence_number", Never, "the producer's sequence leaves a gap";
    /// A repeat older than what is remembered: stored, at an unknown offset.
    DuplicateSequence, 46, 409, "duplicate_sequence_number", Never, "the batch was stored before, at an offset no longer remembered";
    /// An older producer epoch.
    InvalidProducerEpoch, 47, 409, "invalid_producer_epoch", Never, "a newer epoch of this producer exists";
    /// Transactions are not built.
    TransactionalIdAuthorizationFailed, 53, 403, "transactional_id_authorization_failed", Never, "transactions are not supported";
    /// The log's disk failed, or its bytes are bad.
    StorageError, 56, 503, "storage_error", AfterRefresh, "the partition's log is stopped after a disk error or corruption; see the broker's log";
    /// A producer id without state here.
    UnknownProducer, 59, 409, "unknown_producer_id", Never, "the producer is not known here; ask for a new producer id";
    /// The group has members.
    NonEmptyGroup, 68, 409, "non_empty_group", Never, "the group has members";
    /// No such group.
    GroupIdNotFound, 69, 404, "group_id_not_found", Never, "no such group";
    /// No such fetch session.
    FetchSessionIdNotFound, 70, 404, "fetch_session_id_not_found", AfterRefresh, "no such fetch session";
    /// A fetch session's epoch out of step.
    InvalidFetchSessionEpoch, 71, 409, "invalid_fetch_session_epoch", AfterRefresh, "the fetch session's epoch is out of step";
    /// The client's leader epoch is older.
    FencedLeaderEpoch, 74, 409, "fenced_leader_epoch", AfterRefresh, "the request names an older leader epoch";
    /// The client's leader epoch is newer.
    UnknownLeaderEpoch, 75, 503, "unknown_leader_epoch", AfterRefresh, "the request names a newer leader epoch than this broker knows";
    /// A codec this request version may not carry.
    UnsupportedCompressionType, 76, 400, "unsupported_compression_type", Never, "zstd needs newer produce and fetch versions";
    /// The follower has not caught up to this offset.
    OffsetNotAvailable, 78, 503, "offset_not_available", Later, "the offset is not committed yet; try again shortly";
    /// The joining member must come back with the id it was given.
    MemberIdRequired, 79, 409, "member_id_required", Later, "join again with the member id given";
    /// The group has as many members, or as much of them, as it may.
    GroupFull, 81, 409, "group_max_size_reached", Never, "the group has as many members as it may; let some leave, or use another group";
    /// Another member took this static id.
    FencedInstanceId, 82, 409, "fenced_instance_id", Never, "another member has this static id now";
    /// A record that the topic's rules refuse.
    InvalidRecord, 87, 400, "invalid_record", Never, "a record breaks the topic's rules";
    /// Too much is waiting already: the named, counted answer of every full queue.
    Overloaded, 89, 429, "throttling_quota_exceeded", Later, "too much is in work already; try again after a pause";
    /// A newer incarnation of the producer exists.
    ProducerFenced, 90, 409, "producer_fenced", Never, "a newer incarnation of this producer exists";
    /// No topic has this id.
    UnknownTopicId, 100, 404, "unknown_topic_id", AfterRefresh, "no topic has that id; refresh metadata";
    /// Name and id of a topic disagree.
    InconsistentTopicId, 103, 409, "inconsistent_topic_id", AfterRefresh, "the topic was deleted and made again; refresh metadata";
    /// Refused while the disk is full.
    StorageFull, 56, 507, "storage_full", Later, "the broker's disk is full; publishes wait until space is free";
    /// A commit past the end of the log, refused on HTTP and to the native client.
    CommitPastEnd, 1, 409, "commit_past_end", Never, "the offset to commit lies past the partition's end";
}

impl Rejection {
    /// Its place in [`Rejection::ALL`], for arrays of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
