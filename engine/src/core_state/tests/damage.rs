//! Damaged files: what they stop, and what goes on beside them.

use super::harness::{BILLS, Broker, OFFSETS, ORDERS, partition};
use crate::disk::{DiskError, DiskRequest, LogFile};
use crate::effect::Report;
use crate::identity::Offset;
use crate::log::LogPhase;
use crate::rejection::Rejection;

const SEGMENT: LogFile = LogFile::Segment(Offset(0));

/// Three records, a checkpoint after them, and one more where the stop was not clean.
fn with_snapshot() -> Broker {
    let mut broker = Broker::new();
    for sequence in 0..3 {
        broker.publish(partition(ORDERS, 0), sequence).unwrap();
    }
    broker.publish(partition(ORDERS, 1), 0).unwrap();
    broker.stop_and_restart(|_| {});
    broker
}

fn is_rebuilt(broker: &Broker) -> bool {
    let tells = |report: &Report| {
        matches!(report, Report::ProducersRebuilt(of, what)
            if *of == partition(ORDERS, 0) && what.contains(".producers"))
    };
    broker.reports.iter().any(tells) && broker.core.counters().producer_tables_rebuilt == 1
}

#[test]
fn a_lost_producer_snapshot_is_made_from_the_log() {
    let orders = partition(ORDERS, 0);
    type Damage = fn(&mut Broker, LogFile);
    let damages: [Damage; 4] = [
        |broker, file| broker.damage(partition(ORDERS, 0), file, 40),
        |broker, file| {
            let disk = broker.disks.get_mut(&partition(ORDERS, 0)).unwrap();
            disk.file_mut(file).bytes.clear();
        },
        |broker, file| {
            let disk = broker.disks.get_mut(&partition(ORDERS, 0)).unwrap();
            disk.files.as_mut().unwrap().remove(&file);
        },
        |broker, _| {
            let disk = broker.disks.get_mut(&partition(ORDERS, 0)).unwrap();
            let is_it = |request: &DiskRequest| {
                matches!(request, DiskRequest::Read { file, .. }
                    if matches!(file.file, LogFile::Producers(_)))
            };
            disk.fail_next = Some((is_it, DiskError::Failed("EIO".into())));
        },
    ];
    for damage in damages {
        for is_clean in [true, false] {
            let mut broker = with_snapshot();
            if !is_clean {
                broker.publish(orders, 3).unwrap();
            }
            let file = broker.producers_file(orders);
            broker.restart(|broker| damage(broker, file));
            assert!(is_rebuilt(&broker), "{:?}", broker.reports);
            let last = if is_clean { 2 } else { 3 };
            // A repeat is still one, a gap is still a gap, and the next is taken.
            let repeat = broker.publish(orders, last).unwrap();
            assert_eq!(
                (repeat.repeat, repeat.first_offset),
                (true, Offset(last as u64))
            );
            let gap = broker.publish(orders, last + 2);
            assert_eq!(gap.unwrap_err(), Rejection::OutOfOrderSequence);
            // A snapshot is written anew without any append, so that the next start is a quick one.
            broker.pass_ms(3_000);
            broker.restart(|_| {});
            assert_eq!(broker.core.counters().producer_tables_rebuilt, 0);
            assert!(broker.publish(orders, last).unwrap().repeat);
            assert!(!broker.publish(orders, last + 1).unwrap().repeat);
            assert!(broker.fetch(orders, 0).unwrap() > 0);
        }
    }
}

#[test]
fn a_lost_producer_snapshot_is_written_anew_by_a_stop() {
    let orders = partition(ORDERS, 0);
    let mut broker = with_snapshot();
    let file = broker.producers_file(orders);
    broker.restart(|broker| broker.damage(orders, file, 40));
    assert!(is_rebuilt(&broker));
    broker.stop_and_restart(|_| {});
    assert_eq!(broker.core.counters().producer_tables_rebuilt, 0);
    assert!(broker.publish(orders, 2).unwrap().repeat);
}

#[test]
fn a_damaged_log_is_refused_as_damaged_and_can_be_deleted() {
    let orders = partition(ORDERS, 0);
    let mut broker = with_snapshot();
    let file = broker.producers_file(orders);
    broker.restart(|broker| {
        // Nothing says any more what the producers were.
        broker.damage(orders, file, 40);
        broker.damage(orders, SEGMENT, 100);
    });
    assert_eq!(
        broker.publish(orders, 3).unwrap_err(),
        Rejection::StorageError
    );
    assert_eq!(
        broker.fetch(orders, 0).unwrap_err(),
        Rejection::StorageError
    );
    assert_eq!(broker.core.counters().logs_stopped, 1);
    assert!(broker.core.is_ready());
    // Others are served.
    broker.publish(partition(ORDERS, 1), 1).unwrap();
    broker.publish(partition(BILLS, 0), 0).unwrap();
    assert!(broker.fetch(partition(ORDERS, 1), 0).unwrap() > 0);
    broker.delete(ORDERS);
    broker.run();
    assert_eq!(broker.files(orders), None);
    assert_eq!(
        broker.publish(orders, 3).unwrap_err(),
        Rejection::UnknownTopicOrPartition
    );
}

#[test]
fn a_producer_snapshot_that_holds_no_table_stops_its_log_and_no_other() {
    // Its checksum holds: no damage of the disk, so nothing says that the log has the same.
    let orders = partition(ORDERS, 0);
    let mut broker = with_snapshot();
    let file = broker.producers_file(orders);
    broker.restart(|broker| {
        let bytes = &mut broker.disks.get_mut(&orders).unwrap().file_mut(file).bytes;
        // The version of the table within the frame: head, offset, magic, version.
        bytes[20 + 8 + 4 + 1] = 9;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[20..]);
        bytes[16..20].copy_from_slice(&crc.to_be_bytes());
    });
    assert_eq!(
        broker.publish(orders, 3).unwrap_err(),
        Rejection::StorageError
    );
    assert_eq!(
        broker.fetch(orders, 0).unwrap_err(),
        Rejection::StorageError
    );
    let stopped = broker.reports.iter().any(|report| {
        matches!(report, Report::LogStopped(of, what) if *of == orders && what.contains("version 9"))
    });
    assert!(stopped, "{:?}", broker.reports);
    assert_eq!(broker.core.counters().logs_stopped, 1);
    assert!(broker.core.is_ready());
    broker.delete(ORDERS);
    broker.run();
    assert_eq!(broker.files(orders), None);
}

#[test]
fn groups_of_a_damaged_offsets_partition_have_no_coordinator_and_others_have() {
    let mut broker = Broker::new();
    broker.publish(partition(BILLS, 0), 0).unwrap();
    for coordinator in 0..2 {
        broker
            .commit_offset(coordinator, partition(BILLS, 0))
            .unwrap();
    }
    // At rest the state is damaged, so that recovery stops; or the records, so that loading does.
    for file in [LogFile::State, SEGMENT] {
        broker.stop_and_restart(|broker| {
            let damaged = partition(OFFSETS, 0);
            let bytes = &mut broker.disks.get_mut(&damaged).unwrap().file_mut(file).bytes;
            let middle = bytes.len() / 2;
            for at in [70, middle + 70] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1;
                }
            }
        });
        let refused = broker.committed(0).unwrap_err();
        assert_eq!(refused, Rejection::CoordinatorUnavailable, "{file:?}");
        let refused = broker.commit_offset(0, partition(BILLS, 0)).unwrap_err();
        assert_eq!(refused, Rejection::CoordinatorUnavailable, "{file:?}");
        assert_eq!(broker.committed(1).unwrap(), [BILLS]);
        broker.commit_offset(1, partition(BILLS, 0)).unwrap();
        assert!(broker.core.is_ready());
        if file == LogFile::State {
            let phase = |broker: &Broker| {
                let mut replicas = broker.core.replicas();
                let found = replicas.find(|replica| replica.partition() == partition(OFFSETS, 0));
                found.map(|replica| replica.log.phase())
            };
            assert_eq!(phase(&broker), Some(LogPhase::Corrupt));
            // Mended.
            broker.restart(|broker| {
                let damaged = partition(OFFSETS, 0);
                let bytes = &mut broker.disks.get_mut(&damaged).unwrap().file_mut(file).bytes;
                let middle = bytes.len() / 2;
                for at in [70, middle + 70] {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1;
                    }
                }
            });
            assert_eq!(broker.committed(0).unwrap(), [BILLS]);
        }
    }
}

#[test]
fn offsets_of_a_topic_deleted_while_nobody_coordinated_go_at_the_next_start() {
    let mut broker = Broker::new();
    for topic in [ORDERS, BILLS] {
        broker.publish(partition(topic, 0), 0).unwrap();
        for coordinator in 0..2 {
            broker
                .commit_offset(coordinator, partition(topic, 0))
                .unwrap();
        }
    }
    assert_eq!(broker.committed(0).unwrap(), [ORDERS, BILLS]);
    // The deletion is in the metadata; the core ended before it heard of it.
    broker.restart(|broker| broker.delete_unheard(ORDERS));
    for coordinator in 0..2 {
        assert_eq!(broker.committed(coordinator).unwrap(), [BILLS]);
    }
    // And for good: the log itself says so.
    broker.restart(|_| {});
    for coordinator in 0..2 {
        assert_eq!(broker.committed(coordinator).unwrap(), [BILLS]);
    }
}

#[test]
fn a_removal_that_the_disk_refuses_is_tried_again() {
    let orders = partition(ORDERS, 0);
    let mut broker = with_snapshot();
    let is_it = |request: &DiskRequest| matches!(request, DiskRequest::RemoveFolder { .. });
    let disk = broker.disks.get_mut(&orders).unwrap();
    disk.fail_next = Some((is_it, DiskError::Failed("EIO".into())));
    assert!(!broker.core.has_let_go(ORDERS));
    broker.delete(ORDERS);
    assert!(!broker.core.has_let_go(ORDERS));
    broker.run();
    assert!(broker.files(orders).is_some());
    assert!(!broker.core.has_let_go(ORDERS));
    broker.pass_ms(2_000);
    assert_eq!(broker.files(orders), None);
    assert!(broker.core.has_let_go(ORDERS));
}
