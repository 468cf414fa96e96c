//! Kills and power cuts under load.

use std::time::Duration;

use corelog_tests::broker::{Broker, Options};
use corelog_tests::crash::ledger::Promises;
use corelog_tests::crash::load::{Addresses, Load};
use corelog_tests::crash::{PARTITIONS, TOPIC, check};
use corelog_tests::http::Connection;
use corelog_tests::power_cut::seeded::Seeded;
use corelog_tests::{message_api, power_cut};

use super::Disk;

/// Power cuts on one disk; the next ones begin with an empty one.
const CUTS_PER_DISK: u64 = 5;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn crashes() -> u64 {
    number("CORELOG_CRASHES", 50)
}

fn addresses(broker: &Broker) -> Addresses {
    Addresses {
        kafka: broker.kafka_address(),
        http: broker.http_address(),
    }
}

fn create_topic(broker: &Broker) {
    let mut http = Connection::open(&broker.http_address()).unwrap();
    message_api::create_topic(&mut http, TOPIC, PARTITIONS.unsigned_abs()).unwrap();
}

fn sleep_up_to(ms: u64, random: &mut Seeded) {
    std::thread::sleep(Duration::from_millis(random.below(ms + 1)));
}

/// Everything promised before the last start is there.
fn assert_kept(broker: &Broker, load: &Load, promises: &Promises, round: &str) {
    let now = || load.ledger().promises();
    let violations = check::check(&broker.kafka_address(), promises, &now).unwrap();
    assert!(violations.is_empty(), "{round}:\n{}", violations.join("\n"));
}

#[test]
#[ignore = "needs the release binary: ./test --only crashes"]
fn nothing_promised_is_lost_or_changed_by_kills() {
    let seed = number("CORELOG_SEED", 1);
    let mut random = Seeded::new(seed);
    let mut broker = Broker::start(Options::default()).unwrap();
    create_topic(&broker);
    let load = Load::start(&addresses(&broker), seed);
    for round in 0..crashes() {
        sleep_up_to(500, &mut random);
        broker.kill9().unwrap();
        let promises = load.ledger().promises();
        if random.below(4) == 0 {
            // Again, while it recovers.
            broker.spawn().unwrap();
            sleep_up_to(100, &mut random);
            broker.kill9().unwrap();
        }
        let ready_after = broker.restart().unwrap();
        assert_kept(
            &broker,
            &load,
            &promises,
            &format!("seed {seed}, kill {round}"),
        );
        let stored = promises.stored.len();
        eprintln!("kill {round}: {stored} records kept, ready after {ready_after:?}");
    }
    finish(broker, load, seed);
}

#[test]
#[ignore = "needs the release binary, /dev/fuse and the right to mount: ./test --only crashes"]
fn nothing_promised_is_lost_or_changed_by_power_cuts() {
    let seed = number("CORELOG_SEED", 1);
    for disk in 0..crashes().div_ceil(CUTS_PER_DISK) {
        cut_one_disk(seed.wrapping_mul(1_000).wrapping_add(disk), disk % 3 != 0);
    }
}

/// Cuts the power several times under one broker. With chance, unsynced writes survive, are lost or torn, each for
/// itself; without, all of them are lost.
fn cut_one_disk(seed: u64, with_chance: bool) {
    let mut random = Seeded::new(seed);
    let disk = Disk::new(power_cut::Options {
        seed: with_chance.then_some(seed),
        ..power_cut::Options::default()
    });
    let mut broker = disk.start_broker();
    create_topic(&broker);
    let load = Load::start(&addresses(&broker), seed);
    for round in 0..CUTS_PER_DISK {
        sleep_up_to(800, &mut random);
        disk.power().cut();
        broker.kill9().unwrap();
        let promises = load.ledger().promises();
        disk.power().restore();
        let ready_after = broker.restart().unwrap();
        assert_kept(
            &broker,
            &load,
            &promises,
            &format!("disk {seed}, cut {round}"),
        );
        let stored = promises.stored.len();
        eprintln!("disk {seed}, cut {round}: {stored} records kept, ready after {ready_after:?}");
    }
    finish(broker, load, seed);
}

/// Ends the load, then checks it all once more, over a clean stop too.
fn finish(mut broker: Broker, load: Load, seed: u64) {
    assert!(
        load.ledger().stored_count() > 0,
        "nothing was ever acknowledged"
    );
    let ledger = load.stop();
    let promises = ledger.promises();
    for end in ["at the end", "after a clean stop"] {
        let now = || ledger.promises();
        let violations = check::check(&broker.kafka_address(), &promises, &now).unwrap();
        assert!(
            violations.is_empty(),
            "seed {seed} {end}:\n{}",
            violations.join("\n")
        );
        assert!(broker.stop().unwrap().success());
        broker.restart().unwrap();
    }
}
