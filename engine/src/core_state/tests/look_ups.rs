//! Look-ups by time: how many at once.

use std::vec::Vec;

use super::harness::{Broker, ORDERS, partition};
use crate::disk::LogFile;
use crate::identity::Offset;
use crate::limits::LOOK_UPS_AT_ONCE_MAX;
use crate::rejection::Rejection;
use crate::request::{FindOffset, OffsetQuery, Request, RequestId, Response};

fn find(broker: &mut Broker) -> RequestId {
    broker.send(Request::FindOffset(FindOffset {
        partition: partition(ORDERS, 0),
        by: OffsetQuery::AtOrAfterMs(500),
        leader_epoch: None,
    }))
}

#[test]
fn look_ups_by_time_wait_for_each_other_and_all_are_answered() {
    let mut broker = Broker::new();
    broker.publish(partition(ORDERS, 0), 0).unwrap();
    let asked: Vec<RequestId> = (0..20).map(|_| find(&mut broker)).collect();
    let reads = broker.disks[&partition(ORDERS, 0)].waiting.len();
    assert!(reads <= LOOK_UPS_AT_ONCE_MAX, "{reads} at once");
    broker.run();
    for id in asked {
        match broker.answer(id) {
            Some(Ok(Response::OffsetFound(found))) => assert_eq!(found.offset, Some(Offset(0))),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn look_ups_that_wait_for_a_deleted_or_damaged_log_are_answered_too() {
    let mut broker = Broker::new();
    broker.publish(partition(ORDERS, 0), 0).unwrap();
    let asked: Vec<RequestId> = (0..20).map(|_| find(&mut broker)).collect();
    broker.damage(partition(ORDERS, 0), LogFile::Segment(Offset(0)), 70);
    broker.run();
    for id in asked {
        assert_eq!(
            broker.answer(id).unwrap().unwrap_err(),
            Rejection::StorageError
        );
    }
    let asked: Vec<RequestId> = (0..20).map(|_| find(&mut broker)).collect();
    broker.delete(ORDERS);
    broker.run();
    for id in asked {
        let refused = broker.answer(id).unwrap().unwrap_err();
        assert_eq!(refused, Rejection::UnknownTopicOrPartition);
    }
}
