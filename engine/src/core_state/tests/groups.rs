//! What the coordinators of one core may hold together.

use super::harness::{BILLS, Broker, ORDERS, partition};
use crate::rejection::Rejection;

#[test]
fn bytes_of_groups_are_bounded_for_all_coordinators_of_a_core_together() {
    let mut broker = Broker::with(|settings| settings.group.bytes_max = 6_000);
    let note = "x".repeat(3_000);
    broker.commit_noted(0, partition(BILLS, 0), &note).unwrap();
    // The other one would have room by itself.
    let refused = broker.commit_noted(1, partition(BILLS, 0), &note);
    assert_eq!(refused.unwrap_err(), Rejection::Overloaded);
    broker
        .commit_noted(1, partition(BILLS, 0), "short")
        .unwrap();
    // The bound holds after a start, too, and what was stored before is served.
    broker.restart(|_| {});
    let refused = broker.commit_noted(1, partition(ORDERS, 0), &note);
    assert_eq!(refused.unwrap_err(), Rejection::Overloaded);
    assert_eq!(broker.committed(0).unwrap(), [BILLS]);
    // Room that one gives back is there for the other.
    broker.delete_group(0).unwrap();
    broker.commit_noted(1, partition(ORDERS, 0), &note).unwrap();
}

#[test]
fn groups_are_counted_for_all_coordinators_of_a_core_together() {
    let mut broker = Broker::with(|settings| settings.group.groups_max = 1);
    broker.commit_offset(0, partition(BILLS, 0)).unwrap();
    let refused = broker.commit_offset(1, partition(BILLS, 0));
    assert_eq!(refused.unwrap_err(), Rejection::Overloaded);
    broker.delete_group(0).unwrap();
    broker.commit_offset(1, partition(BILLS, 0)).unwrap();
}
