//! ListOffsets, OffsetForLeaderEpoch and InitProducerId.

use corelog_engine::identity::{
    LeaderEpoch, Offset, PartitionId, Producer, ProducerEpoch, ProducerId,
};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{EpochEnd, FindEpochEnd, FoundOffset, OffsetQuery};
use corelog_wire::{
    InitProducerIdRequest, InitProducerIdResponse, LeaderEpochEndOffset, ListOffsetsPartition,
    ListOffsetsPartitionResponse, OffsetForLeaderPartition,
};

use super::error_code;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// What one partition of a ListOffsets request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetWish {
    /// To be looked up.
    Query(OffsetQuery),
    /// The end of the tiered part; nothing is tiered, so there is none.
    Nothing,
}

impl OffsetWish {
    /// What a time says.
    ///
    /// # Errors
    /// [`Rejection::UnsupportedVersion`] for a time without meaning, as Kafka.
    pub fn of(partition: &ListOffsetsPartition) -> Result<Self, Rejection> {
        Ok(Self::Query(match partition.timestamp {
            LATEST => OffsetQuery::Latest,
            EARLIEST | EARLIEST_LOCAL => OffsetQuery::Earliest,
            MAX_TIMESTAMP => OffsetQuery::MaxTimestamp,
            LATEST_TIERED => return Ok(Self::Nothing),
            time_ms => match u64::try_from(time_ms) {
                Ok(time_ms) => OffsetQuery::AtOrAfterMs(time_ms),
                Err(_) => return Err(Rejection::UnsupportedVersion),
            },
        }))
    }
}

/// The epoch the client believes in, if it said.
pub fn believed_epoch(partition: &ListOffsetsPartition) -> Option<LeaderEpoch> {
    LeaderEpoch::from_wire(partition.current_leader_epoch)
}

/// The answer for one partition; `None` where there is no such offset.
pub fn found(
    partition_index: i32,
    outcome: Result<Option<FoundOffset>, Rejection>,
) -> ListOffsetsPartitionResponse {
    let mut response = ListOffsetsPartitionResponse {
        partition_index,
        ..ListOffsetsPartitionResponse::default()
    };
    match outcome {
        Err(rejection) => response.error_code = error_code(rejection),
        Ok(None) => {}
        Ok(Some(found)) => {
            let timestamp = found.timestamp_ms.map(i64::try_from).and_then(Result::ok);
            response.offset = found.offset.map_or(-1, Offset::to_wire);
            response.timestamp = timestamp.unwrap_or(-1);
            if found.offset.is_some() {
                response.leader_epoch = found.leader_epoch.map_or(-1, LeaderEpoch::to_wire);
            }
        }
    }
    response
}

/// What one partition of an OffsetForLeaderEpoch asks the engine.
///
/// # Errors
/// [`Rejection::InvalidRequest`] for an epoch below zero, which no record has.
pub fn epoch_wish(
    id: PartitionId,
    partition: &OffsetForLeaderPartition,
) -> Result<FindEpochEnd, Rejection> {
    Ok(FindEpochEnd {
        partition: id,
        epoch: LeaderEpoch::from_wire(partition.leader_epoch).ok_or(Rejection::InvalidRequest)?,
        leader_epoch: LeaderEpoch::from_wire(partition.current_leader_epoch),
    })
}

/// The answer for one partition; -1 and -1 without an error where the end is not known.
pub fn epoch_end(
    partition: i32,
    outcome: Result<Option<EpochEnd>, Rejection>,
) -> LeaderEpochEndOffset {
    let mut response = LeaderEpochEndOffset {
        partition,
        ..LeaderEpochEndOffset::default()
    };
    match outcome {
        Err(rejection) => response.error_code = error_code(rejection),
        Ok(None) => {}
        Ok(Some(found)) => {
            response.leader_epoch = found.epoch.to_wire();
            response.end_offset = found.end.to_wire();
        }
    }
    response
}

/// The producer whose epoch is to rise (KIP-360), or `None` for a new one.
///
/// # Errors
/// [`Rejection::TransactionalIdAuthorizationFailed`]: transactions are not built;
/// [`Rejection::InvalidRequest`]: half an identity.
pub fn previous_producer(request: &InitProducerIdRequest) -> Result<Option<Producer>, Rejection> {
    if request.transactional_id.is_some() {
        return Err(Rejection::TransactionalIdAuthorizationFailed);
    }
    match (
        u64::try_from(request.producer_id),
        u16::try_from(request.producer_epoch),
    ) {
        (Err(_), Err(_)) => Ok(None),
        (Ok(id), Ok(epoch)) => Ok(Some(Producer {
            id: ProducerId(id),
            epoch: ProducerEpoch(epoch),
        })),
        _ => Err(Rejection::InvalidRequest),
    }
}

/// The answer to InitProducerId.
pub fn granted(outcome: Result<Producer, Rejection>) -> InitProducerIdResponse {
    match outcome {
        Ok(producer) => InitProducerIdResponse {
            producer_id: i64::try_from(producer.id.get()).unwrap_or(i64::MAX),
            producer_epoch: i16::try_from(producer.epoch.get()).unwrap_or(i16::MAX),
            ..InitProducerIdResponse::default()
        },
        Err(rejection) => InitProducerIdResponse {
            error_code: error_code(rejection),
            producer_epoch: -1,
            ..InitProducerIdResponse::default()
        },
    }
}
