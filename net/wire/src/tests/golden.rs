//! Frames spelled out byte by byte from the protocol description, checked in both directions.

use bytes::Bytes;

use crate::api::{ApiKey, Message, Request};
use crate::error::DecodeError;
use crate::error_code::ErrorCode;
use crate::frame::{
    decode_api_versions_response, decode_request_header, decode_response, encode_request,
    encode_response, encode_unsupported_api_versions,
};
use crate::limits::DecodeLimits;
use crate::messages::*;
use crate::primitives::{Records, Uuid, WireString};

const LIMITS: DecodeLimits = DecodeLimits::REQUEST;

/// Bytes from hexadecimal digits; `'text'` stands for its ASCII bytes.
fn bytes_of(lines: &[&str]) -> Bytes {
    let mut bytes = Vec::new();
    for token in lines.iter().flat_map(|line| line.split_whitespace()) {
        if let Some(text) = token.strip_prefix('\'') {
            bytes.extend_from_slice(text.trim_end_matches('\'').as_bytes());
            continue;
        }
        for at in (0..token.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&token[at..at + 2], 16).unwrap());
        }
    }
    bytes.into()
}

/// Puts the length before a frame.
fn framed(frame: &Bytes) -> Bytes {
    let length = i32::try_from(frame.len()).unwrap().to_be_bytes();
    [&length[..], frame].concat().into()
}

fn assert_request<R: Request + PartialEq + std::fmt::Debug>(
    lines: &[&str],
    version: i16,
    client_id: Option<&str>,
    request: &R,
) {
    let frame = bytes_of(lines);
    let client_id = client_id.map(WireString::from);
    let encoded = encode_request(7, client_id.clone(), version, request).unwrap();
    assert_eq!(encoded.into_bytes(), framed(&frame));
    let (header, body) = decode_request_header(frame, LIMITS).unwrap();
    assert_eq!(header.api, R::API);
    assert_eq!((header.version, header.correlation_id), (version, 7));
    assert_eq!(header.client_id, client_id);
    assert_eq!(R::decode(body, version, LIMITS).as_ref(), Ok(request));
}

fn assert_response<R: Request>(lines: &[&str], version: i16, response: &R::Response)
where
    R::Response: PartialEq + std::fmt::Debug,
{
    let frame = bytes_of(lines);
    let encoded = encode_response(7, version, response).unwrap();
    assert_eq!(encoded.into_bytes(), framed(&frame));
    let (correlation_id, decoded) = decode_response::<R>(frame, version, LIMITS).unwrap();
    assert_eq!((correlation_id, &decoded), (7, response));
}

#[test]
fn api_versions_request_0_is_a_header_alone() {
    let lines = ["0012 0000 00000007", "0003 'cli'"];
    assert_request(&lines, 0, Some("cli"), &ApiVersionsRequest::default());
    let lines = ["0012 0000 00000007", "ffff"];
    assert_request(&lines, 0, None, &ApiVersionsRequest::default());
}

#[test]
fn api_versions_request_3_has_a_flexible_header_with_a_plain_client_id() {
    let request = ApiVersionsRequest {
        client_software_name: "librdkafka".into(),
        client_software_version: "2.0.2".into(),
    };
    let lines = [
        "0012 0003 00000007",
        "0003 'cli' 00",
        "0b 'librdkafka'",
        "06 '2.0.2'",
        "00",
    ];
    assert_request(&lines, 3, Some("cli"), &request);
}

#[test]
fn api_versions_response_3_has_a_plain_header_and_leaves_out_default_tags() {
    let api_keys = vec![ApiVersion {
        api_key: 0,
        min_version: 0,
        max_version: 13,
    }];
    let mut response = ApiVersionsResponse {
        api_keys,
        ..Default::default()
    };
    let body = "00000007 0000 02 0000 0000 000d 00 00000000";
    assert_response::<ApiVersionsRequest>(&[body, "00"], 3, &response);
    response.finalized_features_epoch = 5;
    let tags = "01 01 08 0000000000000005";
    assert_response::<ApiVersionsRequest>(&[body, tags], 3, &response);
}

#[test]
fn an_unsupported_api_versions_request_is_answered_in_version_0() {
    let frame = bytes_of(&["00000007 0023", "00000001", "0012 0000 0004"]);
    let encoded = encode_unsupported_api_versions(7).unwrap().into_bytes();
    assert_eq!(encoded, framed(&frame));
    let (_, response) = decode_api_versions_response(frame, 4, LIMITS).unwrap();
    assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(response.api_keys[0].max_version, 4);
}

#[test]
fn metadata_1_asks_for_all_with_null_and_for_none_with_empty() {
    let header = "0003 0001 00000007 ffff";
    let all = MetadataRequest::default();
    assert!(all.asks_for_all_topics(1));
    assert_request(&[header, "ffffffff"], 1, None, &all);
    let none = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    assert!(!none.asks_for_all_topics(1) && none.asks_for_all_topics(0));
    assert_request(&[header, "00000000"], 1, None, &none);
    let one = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some("logs".into()),
            ..Default::default()
        }]),
        ..Default::default()
    };
    assert_request(&[header, "00000001 0004 'logs'"], 1, None, &one);
}

#[test]
fn metadata_response_1() {
    let response = MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: "h".into(),
            port: 9092,
            rack: None,
        }],
        controller_id: 1,
        topics: vec![MetadataResponseTopic {
            name: Some("t".into()),
            partitions: vec![MetadataResponsePartition {
                leader_id: 1,
                replica_nodes: vec![1, 2],
                isr_nodes: vec![1],
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let lines = [
        "00000007",
        "00000001 00000001 0001 'h' 00002384 ffff",
        "00000001",
        "00000001 0000 0001 't' 00",
        "00000001 0000 00000000 00000001",
        "00000002 00000001 00000002",
        "00000001 00000001",
    ];
    assert_response::<MetadataRequest>(&lines, 1, &response);
}

fn produce_request(topic: TopicProduceData) -> ProduceRequest {
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..Default::default()
    }
}

fn produce_partition(records: &'static [u8]) -> PartitionProduceData {
    PartitionProduceData {
        index: 2,
        records: Records::from(Bytes::from_static(records)),
    }
}

#[test]
fn produce_7() {
    let request = produce_request(TopicProduceData {
        name: "t".into(),
        partition_data: vec![produce_partition(b"batch")],
        ..Default::default()
    });
    let lines = [
        "0000 0007 00000007 0003 'cli'",
        "ffff ffff 00007530",
        "00000001 0001 't'",
        "00000001 00000002 00000005 'batch'",
    ];
    assert_request(&lines, 7, Some("cli"), &request);
}

#[test]
fn produce_9_is_flexible_and_13_names_topics_by_id() {
    let request = produce_request(TopicProduceData {
        name: "t".into(),
        partition_data: vec![produce_partition(b"batch")],
        ..Default::default()
    });
    let lines = [
        "0000 0009 00000007 0003 'cli' 00",
        "00 ffff 00007530",
        "02 02 't'",
        "02 00000002 06 'batch' 00",
        "00 00",
    ];
    assert_request(&lines, 9, Some("cli"), &request);
    let request = produce_request(TopicProduceData {
        topic_id: Uuid([0xab; 16]),
        partition_data: vec![produce_partition(b"batch")],
        ..Default::default()
    });
    let lines = [
        "0000 000d 00000007 0003 'cli' 00",
        "00 ffff 00007530",
        "02 abababababababababababababababab",
        "02 00000002 06 'batch' 00",
        "00 00",
    ];
    assert_request(&lines, 13, Some("cli"), &request);
}

#[test]
fn produce_response_10_names_the_new_leader_in_tags() {
    let response = ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: "t".into(),
            partition_responses: vec![PartitionProduceResponse {
                index: 2,
                error_code: ErrorCode::NOT_LEADER_OR_FOLLOWER,
                base_offset: -1,
                current_leader: LeaderIdAndEpoch {
                    leader_id: 3,
                    leader_epoch: 4,
                },
                ..Default::default()
            }],
            ..Default::default()
        }],
        node_endpoints: vec![NodeEndpoint {
            node_id: 3,
            host: "h".into(),
            port: 9092,
            rack: None,
        }],
        ..Default::default()
    };
    let lines = [
        "00000007 00",
        "02 02 't'",
        "02 00000002 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00",
        "01 00 09 00000003 00000004 00",
        "00",
        "00000000",
        "01 00 0d 02 00000003 02 'h' 00002384 00 00",
    ];
    assert_response::<ProduceRequest>(&lines, 10, &response);
}

fn fetch_request(topic: FetchTopic) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 0x0010_0000,
        isolation_level: 1,
        topics: vec![topic],
        ..Default::default()
    }
}

fn fetch_partition() -> FetchPartition {
    FetchPartition {
        partition: 2,
        fetch_offset: 9,
        partition_max_bytes: 0x0001_0000,
        ..Default::default()
    }
}

#[test]
fn fetch_11() {
    let request = fetch_request(FetchTopic {
        topic: "t".into(),
        partitions: vec![fetch_partition()],
        ..Default::default()
    });
    let lines = [
        "0001 000b 00000007 ffff",
        "ffffffff 000001f4 00000001 00100000 01 00000000 ffffffff",
        "00000001 0001 't'",
        "00000001 00000002 ffffffff 0000000000000009 ffffffffffffffff 00010000",
        "00000000 0000",
    ];
    assert_request(&lines, 11, None, &request);
}

#[test]
fn fetch_12_is_flexible_13_has_ids_and_15_has_the_replica_in_a_tag() {
    let request = fetch_request(FetchTopic {
        topic: "t".into(),
        partitions: vec![fetch_partition()],
        ..Default::default()
    });
    let session = "000001f4 00000001 00100000 01 00000000 ffffffff";
    let partition =
        "02 00000002 ffffffff 0000000000000009 ffffffff ffffffffffffffff 00010000 00 00";
    let lines = [
        "0001 000c 00000007 ffff 00",
        "ffffffff",
        session,
        "02 02 't'",
        partition,
        "01 01 00",
    ];
    assert_request(&lines, 12, None, &request);
    let mut request = fetch_request(FetchTopic {
        topic_id: Uuid([0xab; 16]),
        partitions: vec![fetch_partition()],
        ..Default::default()
    });
    let topic = "02 abababababababababababababababab";
    let lines = [
        "0001 000d 00000007 ffff 00",
        "ffffffff",
        session,
        topic,
        partition,
        "01 01 00",
    ];
    assert_request(&lines, 13, None, &request);
    request.replica_state.replica_id = 5;
    let lines = [
        "0001 000f 00000007 ffff 00",
        session,
        topic,
        partition,
        "01 01 01 01 0d 00000005 ffffffffffffffff 00",
    ];
    assert_request(&lines, 15, None, &request);
}

#[test]
fn fetch_response_12_with_records() {
    let response = FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: "t".into(),
            partitions: vec![FetchPartitionData {
                partition_index: 2,
                high_watermark: 10,
                last_stable_offset: 10,
                log_start_offset: 0,
                records: Records::from(Bytes::from_static(b"batch")),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let lines = [
        "00000007 00",
        "00000000 0000 00000000",
        "02 02 't'",
        "02 00000002 0000 000000000000000a 000000000000000a 0000000000000000",
        "00 ffffffff 06 'batch' 00",
        "00 00",
    ];
    assert_response::<FetchRequest>(&lines, 12, &response);
}

#[test]
fn join_group_5() {
    let request = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"meta"),
        }],
        ..Default::default()
    };
    let lines = [
        "000b 0005 00000007 ffff",
        "0001 'g' 00002710 0000ea60 0000 ffff",
        "0008 'consumer'",
        "00000001 0005 'range' 00000004 'meta'",
    ];
    assert_request(&lines, 5, None, &request);
    let response = JoinGroupResponse {
        error_code: ErrorCode::MEMBER_ID_REQUIRED,
        protocol_name: Some(WireString::default()),
        member_id: "m".into(),
        ..Default::default()
    };
    let lines = [
        "00000007 00000000 004f ffffffff",
        "0000 0000 0001 'm'",
        "00000000",
    ];
    assert_response::<JoinGroupRequest>(&lines, 5, &response);
}

#[test]
fn create_topics_4() {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: "t".into(),
            num_partitions: 6,
            replication_factor: 3,
            configs: vec![CreatableTopicConfig {
                name: "k".into(),
                value: Some("v".into()),
            }],
            ..Default::default()
        }],
        timeout_ms: 1_000,
        validate_only: true,
    };
    let lines = [
        "0013 0004 00000007 ffff",
        "00000001 0001 't' 00000006 0003 00000000",
        "00000001 0001 'k' 0001 'v'",
        "000003e8 01",
    ];
    assert_request(&lines, 4, None, &request);
}

#[test]
fn create_topics_5_never_answers_null_configs_but_accepts_them() {
    let response = CreateTopicsResponse {
        topics: vec![CreatableTopicResult {
            name: "t".into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let topic = "00000007 00 00000000 02 02 't' 0000 00 ffffffff ffff";
    assert_response::<CreateTopicsRequest>(&[topic, "01 00 00"], 5, &response);
    let null_configs = bytes_of(&[topic, "00 00 00"]);
    let decoded = decode_response::<CreateTopicsRequest>(null_configs, 5, LIMITS);
    assert_eq!(decoded, Ok((7, response)));
}

#[test]
fn unknown_tagged_fields_are_skipped_and_out_of_order_ones_refused() {
    let heartbeat = ["02 'g' 00000001 02 'm' 00"];
    let decode = |tags: &str| {
        let body = bytes_of(&[heartbeat[0], tags]);
        HeartbeatRequest::decode(body, 4, LIMITS)
    };
    assert_eq!(decode("00"), decode("02 05 03 ffffff 09 00"));
    assert!(decode("00").is_ok());
    assert_eq!(decode("02 05 00 05 00"), Err(DecodeError::TagOutOfOrder(5)));
    assert!(matches!(
        decode("01 05 03 ffff"),
        Err(DecodeError::Truncated { .. })
    ));
}

#[test]
fn a_tagged_field_longer_than_its_type_is_refused() {
    let body = "0000 01 00 00000000";
    let decode = |tags: &str| {
        ApiVersionsResponse::decode(bytes_of(&[&body[..8], "00000000", tags]), 3, LIMITS)
    };
    assert!(decode("01 01 08 0000000000000005").is_ok());
    assert_eq!(
        decode("01 01 09 000000000000000500"),
        Err(DecodeError::TaggedFieldSize { tag: 1, left: 1 })
    );
}

#[test]
fn fields_whose_loss_would_change_the_request_are_refused() {
    let request = MetadataRequest {
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    assert!(request.encode(3).is_err());
    assert!(request.encode(4).is_ok());
    assert_eq!(MetadataRequest::API, ApiKey::Metadata);
}
