//! What the cluster is: Metadata, DescribeCluster, FindCoordinator.

use corelog_engine::admission::{Action, Load};
use corelog_engine::metadata::decisions::TopicRequest;
use corelog_engine::metadata::topic_name::check_topic_name;
use corelog_engine::rejection::Rejection;
use corelog_net::kafka::cluster::{self, CLUSTER_OPERATIONS, CoordinatorKind};
use corelog_net::kafka::{TopicKey, node_id};
use corelog_wire::{
    DescribeClusterRequest, ErrorCode, FindCoordinatorRequest, FindCoordinatorResponse,
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic, Uuid,
    WireString,
};

use super::call::{Call, Pending};

/// First version of FindCoordinator with a list of keys (KIP-699).
const KEY_LIST_FROM: i16 = 4;

/// Metadata: brokers, topics, leaders. Topics that do not exist are made if request and broker
/// allow it; the answer then describes them.
pub(super) fn metadata(call: Call, request: MetadataRequest) -> Pending {
    let with_operations = request.include_topic_authorized_operations;
    if request.asks_for_all_topics(call.version) {
        let topics = call.shard.image(|image| {
            let readable = image
                .topics_of(call.tenant())
                .filter(|topic| call.authorize(Action::ReadTopic(&topic.name)).is_ok());
            readable
                .map(|topic| cluster::metadata_topic(topic, with_operations))
                .collect()
        });
        return call.ready(&metadata_response(&call, &request, topics));
    }
    let wanted = request.topics.clone().unwrap_or_default();
    let is_creating = request.allow_auto_topic_creation && call.shard.settings().auto_create_topics;
    let missing: Vec<WireString> = if is_creating {
        missing_topics(&call, &wanted)
    } else {
        Vec::new()
    };
    if missing.is_empty() {
        let topics = wanted
            .iter()
            .map(|topic| describe(&call, topic, with_operations))
            .collect();
        return call.ready(&metadata_response(&call, &request, topics));
    }
    Pending::later(async move {
        let mut refusals = Vec::new();
        for name in missing {
            match create(&call, &name).await {
                Ok(()) | Err(Rejection::TopicAlreadyExists) => {}
                Err(rejection) => refusals.push((name, rejection)),
            }
        }
        let topic = |wanted: &MetadataRequestTopic| {
            let refusal = refusals
                .iter()
                .find(|(name, _)| wanted.name.as_ref() == Some(name));
            match refusal {
                Some((name, rejection)) => {
                    cluster::metadata_refused(Some(name.clone()), Uuid::ZERO, *rejection)
                }
                None => describe(&call, wanted, with_operations),
            }
        };
        let topics = wanted.iter().map(topic).collect();
        call.answer(&metadata_response(&call, &request, topics))
    })
}

fn metadata_response(
    call: &Call,
    request: &MetadataRequest,
    topics: Vec<MetadataResponseTopic>,
) -> MetadataResponse {
    let settings = call.shard.settings();
    let mut response = MetadataResponse {
        brokers: call.shard.image(cluster::metadata_brokers),
        cluster_id: Some(WireString::from(settings.cluster.as_str())),
        controller_id: node_id(settings.broker),
        topics,
        ..MetadataResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}

fn key_of(topic: &MetadataRequestTopic) -> TopicKey {
    match &topic.name {
        Some(name) => TopicKey::Name(name.clone()),
        None => TopicKey::new(&WireString::default(), topic.topic_id, true),
    }
}

fn describe(
    call: &Call,
    wanted: &MetadataRequestTopic,
    with_operations: bool,
) -> MetadataResponseTopic {
    let described = call.shard.image(|image| {
        if let Some(name) = &wanted.name {
            check_topic_name(name).map_err(|refusal| refusal.rejection)?;
        }
        let topic = key_of(wanted).find(image, call.tenant())?;
        call.authorize(Action::ReadTopic(&topic.name))?;
        Ok(cluster::metadata_topic(topic, with_operations))
    });
    described.unwrap_or_else(|rejection| {
        cluster::metadata_refused(wanted.name.clone(), wanted.topic_id, rejection)
    })
}

fn missing_topics(call: &Call, wanted: &[MetadataRequestTopic]) -> Vec<WireString> {
    call.shard.image(|image| {
        let names = wanted.iter().filter_map(|topic| topic.name.clone());
        let missing = names.filter(|name| {
            image.topic_named(call.tenant(), name).is_none() && check_topic_name(name).is_ok()
        });
        missing.collect()
    })
}

async fn create(call: &Call, name: &str) -> Result<(), Rejection> {
    call.authorize(Action::AlterTopic(name))?;
    call.admit(Load::Creation)?;
    let request = TopicRequest {
        tenant: call.tenant().to_owned(),
        name: name.to_owned(),
        partitions: -1,
        replication_factor: -1,
        ..TopicRequest::default()
    };
    let created = call.shard.create_topic(request).await;
    created.map(drop).map_err(|refusal| refusal.rejection)
}

/// DescribeCluster: the brokers alone.
pub(super) fn describe_cluster(call: Call, request: DescribeClusterRequest) -> Pending {
    /// What clients call an endpoint of brokers, as opposed to controllers.
    const BROKERS: i8 = 1;
    let settings = call.shard.settings();
    let with_operations = request.include_cluster_authorized_operations;
    let mut response = call.shard.image(|image| {
        cluster::describe_cluster(image, &settings.cluster, settings.broker, with_operations)
    });
    if request.endpoint_type != BROKERS {
        response.error_code = ErrorCode::MISMATCHED_ENDPOINT_TYPE;
        response.error_message = Some(WireString::from_static("this listener is for brokers"));
    }
    call.ready(&response)
}

/// FindCoordinator: the broker that keeps a group.
pub(super) fn find_coordinator(call: Call, request: FindCoordinatorRequest) -> Pending {
    let kind = CoordinatorKind::from_code(request.key_type);
    let find = |key: &WireString| {
        let found = match call.authorize(Action::UseGroup(key)) {
            Ok(()) => call
                .shard
                .image(|image| cluster::find_coordinator(image, kind, key)),
            Err(rejection) => Err(rejection),
        };
        cluster::coordinator(key.clone(), found)
    };
    let response = if call.version >= KEY_LIST_FROM {
        FindCoordinatorResponse {
            coordinators: request.coordinator_keys.iter().map(find).collect(),
            ..FindCoordinatorResponse::default()
        }
    } else {
        cluster::single_coordinator(find(&request.key))
    };
    call.ready(&response)
}
