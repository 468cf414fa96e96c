//! The requests that are built, their versions, and which messages belong to them.
//!
//! Invariant: no version is advertised above what is built, and below it only for Produce, where
//! older librdkafka drops compression when the range starts at 3 (KAFKA-18659).

use bytes::Bytes;

use crate::error::{DecodeError, EncodeError};
use crate::limits::DecodeLimits;
use crate::messages::*;
use crate::primitives::{EncodedBytes, Form, Reader, Value, Writer};

/// The versions of one API; all ends are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiVersionRange {
    /// The API.
    pub api: ApiKey,
    /// Lowest version to advertise.
    pub advertised_min: i16,
    /// Lowest version that is built: those below are refused.
    pub built_min: i16,
    /// Highest version that is built and advertised.
    pub max: i16,
    /// Lowest flexible version (KIP-482); above `max` if there is none.
    pub flexible_min: i16,
}

/// A request or response body.
pub trait Message: Value + Default {
    /// The API that it belongs to.
    const API: ApiKey;

    /// Reads a body, all of it.
    ///
    /// # Errors
    /// A version that is not built, or bytes that are not such a body.
    fn decode(body: Bytes, version: i16, limits: DecodeLimits) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body, limits);
        let message = Self::read_body(&mut reader, version)?;
        reader.finish()?;
        Ok(message)
    }

    /// Reads a body from where `reader` stands and leaves what follows it.
    ///
    /// # Errors
    /// As [`Message::decode`], without the check for trailing bytes.
    fn read_body(reader: &mut Reader, version: i16) -> Result<Self, DecodeError> {
        let form = Self::API
            .form(version)
            .ok_or(DecodeError::UnsupportedVersion {
                api_key: Self::API.code(),
                version,
            })?;
        Self::read(reader, form, false)
    }

    /// Writes a body where `writer` stands. Errors appear at [`Writer::finish`].
    fn write_body(&self, writer: &mut Writer, version: i16) {
        match Self::API.form(version) {
            Some(form) => self.write(writer, form, false),
            None => writer.refuse(EncodeError::UnsupportedVersion {
                api_key: Self::API.code(),
                version,
            }),
        }
    }

    /// A body alone, without header and frame length.
    ///
    /// # Errors
    /// A version that is not built, or a message that this version cannot carry.
    fn encode(&self, version: i16) -> Result<EncodedBytes, EncodeError> {
        let mut writer = Writer::body();
        self.write_body(&mut writer, version);
        writer.finish()
    }
}

/// A request body.
pub trait Request: Message {
    /// What answers it.
    type Response: Response;
}

/// A response body.
pub trait Response: Message {}

macro_rules! apis {
    ($(
        $(#[$meta:meta])*
        $name:ident = $key:literal, advertised $advertised:literal to $max:literal,
            built from $built:literal, flexible from $flexible:literal:
            $request:ident => $response:ident;
    )*) => {
        /// The APIs that are built, by Kafka's names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i16)]
        pub enum ApiKey {
            $($(#[$meta])* $name = $key,)*
        }

        /// All APIs that are built, in order of their keys.
        pub const API_VERSIONS: &[ApiVersionRange] = &[$(ApiVersionRange {
            api: ApiKey::$name,
            advertised_min: $advertised,
            built_min: $built,
            max: $max,
            flexible_min: $flexible,
        },)*];

        impl ApiKey {
            /// The API of a numeric key, if it is built.
            pub const fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($key => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The versions of this API.
            pub const fn versions(self) -> ApiVersionRange {
                match self {
                    $(Self::$name => ApiVersionRange {
                        api: self,
                        advertised_min: $advertised,
                        built_min: $built,
                        max: $max,
                        flexible_min: $flexible,
                    },)*
                }
            }

            /// Kafka's name of this API.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }

        $(
            impl Message for $request {
                const API: ApiKey = ApiKey::$name;
            }

            impl Request for $request {
                type Response = $response;
            }

            impl Message for $response {
                const API: ApiKey = ApiKey::$name;
            }

            impl Response for $response {}

            impl From<$response> for AnyResponse {
                fn from(response: $response) -> Self {
                    Self::$name(response)
                }
            }
        )*

        /// A request of any kind.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "made once, matched at once, never stored")]
        pub enum AnyRequest {
            $($(#[$meta])* $name($request),)*
        }

        impl AnyRequest {
            /// Reads the body of a request.
            ///
            /// # Errors
            /// As [`Message::decode`].
            pub fn decode(
                api: ApiKey,
                version: i16,
                body: Bytes,
                limits: DecodeLimits,
            ) -> Result<Self, DecodeError> {
                match api {
                    $(ApiKey::$name => $request::decode(body, version, limits).map(Self::$name),)*
                }
            }

            /// The API of this request.
            pub const fn api(&self) -> ApiKey {
                match self {
                    $(Self::$name(_) => ApiKey::$name,)*
                }
            }
        }

        /// A response of any kind.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "made once, matched at once, never stored")]
        pub enum AnyResponse {
            $($(#[$meta])* $name($response),)*
        }

        impl AnyResponse {
            /// Reads the body of a response.
            ///
            /// # Errors
            /// As [`Message::decode`].
            pub fn decode(
                api: ApiKey,
                version: i16,
                body: Bytes,
                limits: DecodeLimits,
            ) -> Result<Self, DecodeError> {
                match api {
                    $(ApiKey::$name => $response::decode(body, version, limits).map(Self::$name),)*
                }
            }

            /// The API of this response.
            pub const fn api(&self) -> ApiKey {
                match self {
                    $(Self::$name(_) => ApiKey::$name,)*
                }
            }

            /// Writes the body where `writer` stands.
            pub fn write_body(&self, writer: &mut Writer, version: i16) {
                match self {
                    $(Self::$name(response) => response.write_body(writer, version),)*
                }
            }
        }

        /// Calls a test for every message at every version that is built.
        #[cfg(test)]
        pub(crate) fn for_each_message(visitor: &mut impl crate::tests::MessageVisitor) {
            for range in API_VERSIONS {
                for version in range.built_min..=range.max {
                    match range.api {
                        $(ApiKey::$name => {
                            visitor.visit::<$request>(version, true);
                            visitor.visit::<$response>(version, false);
                        })*
                    }
                }
            }
        }
    };
}

apis! {
    /// Appends record batches.
    Produce = 0, advertised 0 to 13, built from 3, flexible from 9:
        ProduceRequest => ProduceResponse;
    /// Reads record batches.
    Fetch = 1, advertised 4 to 18, built from 4, flexible from 12:
        FetchRequest => FetchResponse;
    /// Finds offsets by time.
    ListOffsets = 2, advertised 1 to 10, built from 1, flexible from 6:
        ListOffsetsRequest => ListOffsetsResponse;
    /// Describes brokers and topics.
    Metadata = 3, advertised 0 to 13, built from 0, flexible from 9:
        MetadataRequest => MetadataResponse;
    /// Stores the positions of a group.
    OffsetCommit = 8, advertised 2 to 10, built from 2, flexible from 8:
        OffsetCommitRequest => OffsetCommitResponse;
    /// Reads the positions of groups.
    OffsetFetch = 9, advertised 1 to 10, built from 1, flexible from 6:
        OffsetFetchRequest => OffsetFetchResponse;
    /// Finds the coordinator of a group or transactional id.
    FindCoordinator = 10, advertised 0 to 6, built from 0, flexible from 3:
        FindCoordinatorRequest => FindCoordinatorResponse;
    /// Joins a group.
    JoinGroup = 11, advertised 0 to 9, built from 0, flexible from 6:
        JoinGroupRequest => JoinGroupResponse;
    /// Keeps a member alive.
    Heartbeat = 12, advertised 0 to 4, built from 0, flexible from 4:
        HeartbeatRequest => HeartbeatResponse;
    /// Leaves a group.
    LeaveGroup = 13, advertised 0 to 5, built from 0, flexible from 4:
        LeaveGroupRequest => LeaveGroupResponse;
    /// Distributes assignments.
    SyncGroup = 14, advertised 0 to 5, built from 0, flexible from 4:
        SyncGroupRequest => SyncGroupResponse;
    /// Describes groups.
    DescribeGroups = 15, advertised 0 to 6, built from 0, flexible from 5:
        DescribeGroupsRequest => DescribeGroupsResponse;
    /// Lists groups.
    ListGroups = 16, advertised 0 to 5, built from 0, flexible from 3:
        ListGroupsRequest => ListGroupsResponse;
    /// Chooses an authentication mechanism. It has no flexible version.
    SaslHandshake = 17, advertised 0 to 1, built from 0, flexible from 2:
        SaslHandshakeRequest => SaslHandshakeResponse;
    /// Lists versions.
    ApiVersions = 18, advertised 0 to 4, built from 0, flexible from 3:
        ApiVersionsRequest => ApiVersionsResponse;
    /// Creates topics.
    CreateTopics = 19, advertised 0 to 7, built from 0, flexible from 5:
        CreateTopicsRequest => CreateTopicsResponse;
    /// Deletes topics.
    DeleteTopics = 20, advertised 0 to 6, built from 0, flexible from 4:
        DeleteTopicsRequest => DeleteTopicsResponse;
    /// Deletes records at the start of partitions.
    DeleteRecords = 21, advertised 0 to 2, built from 0, flexible from 2:
        DeleteRecordsRequest => DeleteRecordsResponse;
    /// Gives out producer ids.
    InitProducerId = 22, advertised 0 to 5, built from 0, flexible from 2:
        InitProducerIdRequest => InitProducerIdResponse;
    /// Finds the ends of epochs.
    OffsetForLeaderEpoch = 23, advertised 2 to 4, built from 2, flexible from 4:
        OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse;
    /// Reads settings.
    DescribeConfigs = 32, advertised 1 to 4, built from 1, flexible from 4:
        DescribeConfigsRequest => DescribeConfigsResponse;
    /// Carries the messages of an authentication mechanism.
    SaslAuthenticate = 36, advertised 0 to 2, built from 0, flexible from 2:
        SaslAuthenticateRequest => SaslAuthenticateResponse;
    /// Adds partitions.
    CreatePartitions = 37, advertised 0 to 3, built from 0, flexible from 2:
        CreatePartitionsRequest => CreatePartitionsResponse;
    /// Deletes groups.
    DeleteGroups = 42, advertised 0 to 2, built from 0, flexible from 2:
        DeleteGroupsRequest => DeleteGroupsResponse;
    /// Describes brokers.
    DescribeCluster = 60, advertised 0 to 2, built from 0, flexible from 0:
        DescribeClusterRequest => DescribeClusterResponse;
}

impl ApiKey {
    /// The numeric key.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether this version is built.
    pub const fn is_built(self, version: i16) -> bool {
        let range = self.versions();
        range.built_min <= version && version <= range.max
    }

    /// How this version is written, if it is built.
    pub const fn form(self, version: i16) -> Option<Form> {
        if !self.is_built(version) {
            return None;
        }
        let flexible = version >= self.versions().flexible_min;
        Some(Form { version, flexible })
    }

    /// Version of the request header: 2 with tagged fields for flexible versions, else 1. (Version
    /// 0, without a client id, belongs to a request between brokers that is not built.)
    pub const fn request_header_version(self, version: i16) -> i16 {
        if version >= self.versions().flexible_min {
            2
        } else {
            1
        }
    }

    /// Version of the response header: 1 with tagged fields for flexible versions, else 0. That of
    /// ApiVersions is always 0, since its reader cannot know yet what the broker speaks.
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self {
            Self::ApiVersions => 0,
            _ if version >= self.versions().flexible_min => 1,
            _ => 0,
        }
    }
}
