//! A small blocking client of the Kafka wire: one connection, one request at a time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use corelog_wire::frame::{decode_response, encode_request};
use corelog_wire::{
    DecodeLimits, ErrorCode, FetchPartition, FetchPartitionData, FetchRequest, FetchTopic,
    InitProducerIdRequest, OffsetCommitRequest, OffsetCommitRequestPartition,
    OffsetCommitRequestTopic, OffsetFetchRequest, OffsetFetchRequestTopic, PartitionProduceData,
    PartitionProduceResponse, ProduceRequest, Request, TopicProduceData,
};

/// The largest answer that is read.
const FRAME_BYTES_MAX: usize = 128 << 20;
/// How long an answer may take; long polls included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    correlation_id: i32,
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// The one element of an answer about one topic and partition.
fn only<T>(elements: Vec<T>, what: &str) -> io::Result<T> {
    let count = elements.len();
    let mut elements = elements.into_iter();
    match (elements.next(), count) {
        (Some(element), 1) => Ok(element),
        _ => Err(invalid(format!("{count} {what} in an answer about one"))),
    }
}

impl Connection {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            stream,
            correlation_id: 0,
        })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When the connection breaks, the answer takes too long, or is not of this request.
    pub fn ask<R: Request>(&mut self, request: &R, version: i16) -> io::Result<R::Response> {
        self.correlation_id += 1;
        let client_id = Some("corelog-tests".into());
        let frame = encode_request(self.correlation_id, client_id, version, request)
            .map_err(|error| invalid(error.to_string()))?;
        self.stream.write_all(&frame.into_bytes())?;
        let answer = self.frame()?;
        let (correlation_id, response) =
            decode_response::<R>(answer, version, DecodeLimits::RESPONSE)
                .map_err(|error| invalid(format!("{:?} v{version}: {error}", R::API)))?;
        if correlation_id != self.correlation_id {
            return Err(invalid("the answer belongs to another request"));
        }
        Ok(response)
    }

    fn frame(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            return Err(invalid(format!("an answer of {length} bytes")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(Bytes::from(frame))
    }

    /// A new producer id and its epoch.
    ///
    /// # Errors
    /// As [`Connection::ask`], and when it is refused.
    pub fn init_producer(&mut self) -> io::Result<(i64, i16)> {
        let answer = self.ask(&InitProducerIdRequest::default(), 4)?;
        match answer.error_code {
            ErrorCode::NONE => Ok((answer.producer_id, answer.producer_epoch)),
            refused => Err(invalid(format!("no producer id: {refused:?}"))),
        }
    }

    /// Publishes one batch and returns the partition's outcome.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> io::Result<PartitionProduceResponse> {
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: topic.into(),
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: batch.into(),
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        let topic = only(self.ask(&request, 9)?.responses, "topics")?;
        only(topic.partition_responses, "partitions")
    }

    /// Reads one partition from `offset` on, waiting a little where there is nothing.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> io::Result<FetchPartitionData> {
        let request = FetchRequest {
            max_wait_ms: 20,
            min_bytes: 1,
            max_bytes: 4 << 20,
            topics: vec![FetchTopic {
                topic: topic.into(),
                partitions: vec![FetchPartition {
                    partition,
                    fetch_offset: offset,
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                }],
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        };
        let topic = only(self.ask(&request, 11)?.responses, "topics")?;
        only(topic.partitions, "partitions")
    }

    /// Commits an offset for a group that has no members.
    ///
    /// # Errors
    /// As [`Connection::ask`], and when it is refused.
    pub fn commit(
        &mut self,
        group: &str,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> io::Result<()> {
        let request = OffsetCommitRequest {
            group_id: group.into(),
            topics: vec![OffsetCommitRequestTopic {
                name: topic.into(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: partition,
                    committed_offset: offset,
                    ..OffsetCommitRequestPartition::default()
                }],
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        let answer = self.ask(&request, 8)?;
        let topic = only(answer.topics, "topics")?;
        match only(topic.partitions, "partitions")?.error_code {
            ErrorCode::NONE => Ok(()),
            refused => Err(invalid(format!("commit of {group}: {refused:?}"))),
        }
    }

    /// The offset that a group has committed; -1 for none.
    ///
    /// # Errors
    /// As [`Connection::ask`], and when it is refused.
    pub fn committed(&mut self, group: &str, topic: &str, partition: i32) -> io::Result<i64> {
        let request = OffsetFetchRequest {
            group_id: group.into(),
            topics: Some(vec![OffsetFetchRequestTopic {
                name: topic.into(),
                partition_indexes: vec![partition],
            }]),
            ..OffsetFetchRequest::default()
        };
        let answer = self.ask(&request, 7)?;
        if answer.error_code != ErrorCode::NONE {
            return Err(invalid(format!(
                "offsets of {group}: {:?}",
                answer.error_code
            )));
        }
        let topic = only(answer.topics, "topics")?;
        let found = only(topic.partitions, "partitions")?;
        match found.error_code {
            ErrorCode::NONE => Ok(found.committed_offset),
            refused => Err(invalid(format!("offsets of {group}: {refused:?}"))),
        }
    }
}
