//! Producers: what is known of them is what the log holds of them.

use corelog_batch::{BatchBuilder, BatchOptions};

use super::harness::{Broker, ORDERS, partition};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::identity::{Offset, PartitionId};
use crate::publish::VerifiedBatches;
use crate::rejection::Rejection;
use crate::request::{Publish, Request, RequestId, Response};
use crate::time::Monotonic;

/// Sends one record and lets nothing happen.
fn send(broker: &mut Broker, to: PartitionId, producer_id: i64, sequence: i32) -> RequestId {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchOptions::default()
    });
    builder.append(1_000, None, Some(b"value"), &[]).unwrap();
    broker.send(Request::Publish(Publish {
        partition: to,
        batches: VerifiedBatches::own(builder.build().unwrap().freeze()),
        leader_epoch: None,
        deadline: Monotonic(u64::MAX),
    }))
}

#[test]
fn a_publish_refused_for_want_of_room_leaves_its_producer_where_it_was() {
    let orders = partition(ORDERS, 0);
    let mut broker = Broker::new();
    let mut sent = std::vec::Vec::new();
    let refused = (0..1_000_000).find(|sequence| {
        let id = send(&mut broker, orders, 7, *sequence);
        match broker.answer(id) {
            Some(answer) => {
                assert_eq!(answer.unwrap_err(), Rejection::Overloaded);
                true
            }
            None => {
                sent.push(id);
                false
            }
        }
    });
    let refused = refused.unwrap();
    broker.run();
    for (offset, id) in (0..).zip(sent) {
        let Some(Ok(Response::Published(published))) = broker.answer(id) else {
            panic!("publish {offset} is not kept");
        };
        assert_eq!(published.first_offset, Offset(offset));
    }
    let gap = broker.publish(orders, refused + 1);
    assert_eq!(gap.unwrap_err(), Rejection::OutOfOrderSequence);
    let again = broker.publish(orders, refused).unwrap();
    assert_eq!(
        (again.repeat, again.first_offset),
        (false, Offset(refused as u64))
    );
}

#[test]
fn a_write_that_failed_leaves_its_producer_where_the_log_is() {
    let is_data = |request: &DiskRequest| {
        matches!(request, DiskRequest::Write { file, .. }
            if matches!(file.file, LogFile::Segment(_)))
    };
    let orders = partition(ORDERS, 0);
    let mut broker = Broker::new();
    broker.publish(orders, 0).unwrap();
    let disk = broker.disks.get_mut(&orders).unwrap();
    disk.fail_next = Some((is_data, DiskError::Failed("EIO".into())));
    assert_eq!(
        broker.publish(orders, 1).unwrap_err(),
        Rejection::StorageError
    );
    broker.restart(|_| {});
    // Neither a repeat of what is not there, nor a gap.
    let gap = broker.publish(orders, 2);
    assert_eq!(gap.unwrap_err(), Rejection::OutOfOrderSequence);
    let again = broker.publish(orders, 1).unwrap();
    assert_eq!((again.repeat, again.first_offset), (false, Offset(1)));
    assert!(broker.publish(orders, 1).unwrap().repeat);
}

#[test]
fn a_forgotten_producer_goes_on_and_is_counted() {
    let orders = partition(ORDERS, 0);
    let mut broker = Broker::with(|settings| settings.producer_expiry_ms = 5_000);
    for sequence in 0..3 {
        broker.publish(orders, sequence).unwrap();
    }
    broker.pass_ms(6_000);
    // Log time moves with somebody else's publish.
    let other = send(&mut broker, orders, 8, 0);
    broker.run();
    assert!(broker.answer(other).unwrap().is_ok());
    broker.stop_and_restart(|_| {});
    assert_eq!(broker.core.counters().unknown_producers, 0);
    let next = broker.publish(orders, 3).unwrap();
    assert_eq!((next.repeat, next.first_offset), (false, Offset(4)));
    assert_eq!(broker.core.counters().unknown_producers, 1);
    // From here on it is known again.
    assert!(broker.publish(orders, 3).unwrap().repeat);
    let gap = broker.publish(orders, 5);
    assert_eq!(gap.unwrap_err(), Rejection::OutOfOrderSequence);
    assert_eq!(broker.core.counters().unknown_producers, 1);
}
