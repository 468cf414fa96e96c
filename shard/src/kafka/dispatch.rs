//! Which handler serves which call.

use bytes::Bytes;
use corelog_wire::{ApiKey, DecodeLimits, Message, Reader, WireString};

use super::call::{Call, End, Pending};
use super::connection::Connection;
use super::{
    api_versions, cluster, configs, fetch, group_offsets, groups, offsets, produce, topics,
};

/// What is served, and so advertised.
pub(super) const fn is_served(api: ApiKey) -> bool {
    match api {
        ApiKey::Produce
        | ApiKey::Fetch
        | ApiKey::ListOffsets
        | ApiKey::Metadata
        | ApiKey::OffsetCommit
        | ApiKey::OffsetFetch
        | ApiKey::FindCoordinator
        | ApiKey::JoinGroup
        | ApiKey::Heartbeat
        | ApiKey::LeaveGroup
        | ApiKey::SyncGroup
        | ApiKey::DescribeGroups
        | ApiKey::ListGroups
        | ApiKey::ApiVersions
        | ApiKey::CreateTopics
        | ApiKey::DeleteTopics
        | ApiKey::InitProducerId
        | ApiKey::OffsetForLeaderEpoch
        | ApiKey::DescribeConfigs
        | ApiKey::DeleteGroups
        | ApiKey::DescribeCluster => true,
        ApiKey::SaslHandshake
        | ApiKey::SaslAuthenticate
        | ApiKey::DeleteRecords
        | ApiKey::CreatePartitions => false,
    }
}

/// Begins a request.
///
/// # Errors
/// Why the connection ends: a malformed body, or a call that is not served.
pub(super) async fn begin(
    connection: &Connection,
    call: Call,
    api: ApiKey,
    client_id: Option<WireString>,
    body: Bytes,
) -> Result<Pending, End> {
    let version = call.version;
    Ok(match api {
        ApiKey::Produce => {
            // Nothing but the records may hold on to the frame.
            drop(client_id);
            return produce::produce(call, body).await;
        }
        ApiKey::Fetch => fetch::fetch(connection, call, decode(body, version)?).await,
        ApiKey::ListOffsets => offsets::list_offsets(call, decode(body, version)?),
        ApiKey::Metadata => cluster::metadata(call, decode(body, version)?),
        ApiKey::OffsetCommit => group_offsets::commit(call, decode(body, version)?),
        ApiKey::OffsetFetch => group_offsets::fetch(call, decode(body, version)?),
        ApiKey::FindCoordinator => cluster::find_coordinator(call, decode(body, version)?),
        ApiKey::JoinGroup => groups::join(call, client_id, decode(body, version)?),
        ApiKey::Heartbeat => groups::heartbeat(call, decode(body, version)?),
        ApiKey::LeaveGroup => groups::leave(call, decode(body, version)?),
        ApiKey::SyncGroup => groups::sync(call, decode(body, version)?),
        ApiKey::DescribeGroups => groups::describe(call, decode(body, version)?),
        ApiKey::ListGroups => groups::list(call, decode(body, version)?),
        ApiKey::DeleteGroups => groups::delete(call, decode(body, version)?),
        ApiKey::ApiVersions => api_versions::api_versions(call, decode(body, version)?),
        ApiKey::CreateTopics => topics::create(call, decode(body, version)?),
        ApiKey::DeleteTopics => topics::delete(call, decode(body, version)?),
        ApiKey::InitProducerId => offsets::init_producer_id(call, decode(body, version)?),
        ApiKey::OffsetForLeaderEpoch => offsets::epoch_ends(call, decode(body, version)?),
        ApiKey::DescribeConfigs => configs::describe(call, decode(body, version)?),
        ApiKey::DescribeCluster => cluster::describe_cluster(call, decode(body, version)?),
        ApiKey::SaslHandshake
        | ApiKey::SaslAuthenticate
        | ApiKey::DeleteRecords
        | ApiKey::CreatePartitions => return Err(End::NotServed(api.name())),
    })
}

/// Bytes behind the last field are passed over, as Kafka does: librdkafka's question for all topics
/// leaves three.
fn decode<M: Message>(body: Bytes, version: i16) -> Result<M, End> {
    let mut reader = Reader::new(body, DecodeLimits::REQUEST);
    M::read_body(&mut reader, version).map_err(End::Body)
}
