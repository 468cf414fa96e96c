//! Snapshots keep the log short and lose nothing.

use super::*;

fn small() -> Settings {
    Settings {
        initial_rebalance_delay_ms: 0,
        snapshot_part_bytes: 300,
        snapshot_interval_bytes: u64::MAX,
        ..Settings::default()
    }
}

fn begin(world: &mut World) {
    let mut out = Vec::new();
    world.coordinator.begin_snapshot(world.now, &mut out);
    world.perform(out);
}

fn filled() -> World {
    let mut world = World::with(small());
    for number in 0..10 {
        let group = format!("g{number}");
        world.stable(&group, &["a", "b"]);
    }
    for number in 0..10 {
        for index in 0..20 {
            let at = partition(1, index);
            world
                .ask_now(&format!("s{number}"), commit(None, at, u64::from(index)))
                .unwrap();
        }
    }
    world
}

#[test]
fn a_restart_from_a_snapshot_finds_everything() {
    let mut world = filled();
    let before = world.everything();
    let size = world.log.len();
    begin(&mut world);
    assert!(world.log_start >= size);
    assert!(
        world.log.len() - world.log_start > 20,
        "the snapshot has parts"
    );
    assert_eq!(world.coordinator.bytes_since_snapshot(), 0);
    world.restart();
    assert_eq!(world.everything(), before);
    assert_eq!(world.coordinator.bytes_since_snapshot(), 0);
}

#[test]
fn appends_between_the_parts_win() {
    let mut world = filled();
    world.commits = false;
    begin(&mut world);
    let mut round = 0;
    while !world.waiting.is_empty() {
        // In flight while the part before it is committed and the next one is made.
        for number in 0..10 {
            let at = partition(1, round % 20);
            world.ask(
                &format!("s{number}"),
                commit(None, at, 1_000 + u64::from(round)),
            );
        }
        match round {
            3 => drop(world.ask("s9", GroupAction::Delete)),
            5 => drop(world.ask("s8", GroupAction::DeleteOffsets(vec![partition(1, 19)]))),
            7 => drop(world.ask("g9", leave("a"))),
            _ => {}
        }
        let waiting = world.waiting.len();
        for _ in 0..waiting {
            world.commit_one();
        }
        round += 1;
        assert!(round < 1_000);
        if world.log_start > 0 {
            break;
        }
    }
    world.commit_all();
    assert!(world.log_start > 0);
    world.commits = true;
    let offsets: Vec<_> = (0..10)
        .map(|number| world.offsets(&format!("s{number}")))
        .collect();
    world.restart();
    let after: Vec<_> = (0..10)
        .map(|number| world.offsets(&format!("s{number}")))
        .collect();
    assert_eq!(after, offsets);
    assert_eq!(world.state("g0"), GroupState::Stable);
}

#[test]
fn what_lies_before_a_snapshot_does_not_matter() {
    let mut world = filled();
    world.commits = false;
    begin(&mut world);
    // A copy of what has just been removed falls behind the removal.
    for number in 0..10 {
        world.commit_one();
        world.ask(&format!("s{number}"), GroupAction::Delete);
        world.ask(
            &format!("s{number}"),
            GroupAction::DeleteOffsets(vec![partition(1, 3)]),
        );
        world.ask("g1", commit(None, partition(2, 0), 1));
    }
    world.commit_all();
    world.commits = true;
    let first = world.log_start;
    assert!(first > 0);
    begin(&mut world);
    let newest = world.log_start;
    assert!(newest > first);
    let before = world.everything();
    for start in 0..=newest {
        world.log_start = start;
        world.restart();
        assert_eq!(world.everything(), before, "from {start}");
    }
}

#[test]
fn an_append_in_flight_when_a_snapshot_begins_is_in_it() {
    let mut world = World::with(small());
    world.commits = false;
    let first = world.ask("g", commit(None, partition(1, 0), 5));
    let failing = world.ask("h", commit(None, partition(1, 0), 6));
    begin(&mut world);
    world.commit_one();
    world.fail_one(Rejection::PolicyViolation);
    world.commit_all();
    assert!(world.answer(first).is_ok() && world.answer(failing).is_err());
    assert!(world.log_start > 0);
    world.restart();
    assert_eq!(world.offset("g"), Some(5));
    assert_eq!(world.offset("h"), None);
}

#[test]
fn an_unfinished_snapshot_moves_nothing() {
    let mut world = filled();
    let before = world.everything();
    world.commits = false;
    begin(&mut world);
    for _ in 0..5 {
        world.commit_one();
    }
    assert_eq!(world.log_start, 0);
    world.restart();
    world.commits = true;
    assert_eq!(world.everything(), before);
    // The next one is whole.
    begin(&mut world);
    assert!(world.log_start > 0);
    world.restart();
    assert_eq!(world.everything(), before);
}

#[test]
fn a_failed_part_gives_the_snapshot_up_and_another_follows() {
    let mut world = World::with(Settings {
        snapshot_interval_bytes: 1_000,
        ..small()
    });
    world.commits = false;
    for index in 0..100 {
        world.ask("g", commit(None, partition(1, index), 1));
    }
    while world.waiting.len() > 1 {
        world.commit_one();
    }
    world.commit_one();
    let parts = world.waiting.len();
    assert_eq!(parts, 1);
    world.fail_one(Rejection::PolicyViolation);
    assert!(world.waiting.is_empty());
    assert_eq!(world.log_start, 0);
    world.commits = true;
    world.pass_ms(1_001);
    assert!(world.log_start > 0);
    world.restart();
    assert_eq!(world.offsets("g").len(), 100);
}

#[test]
fn snapshots_begin_by_themselves_and_the_log_stays_short() {
    let mut world = World::with(Settings {
        snapshot_interval_bytes: 10_000,
        ..small()
    });
    let fences = world.stable("g", &["a"]);
    for offset in 0..10_000 {
        world.commit("g", Some(&fences[0]), offset).unwrap();
    }
    let kept: usize = world.log[world.log_start..]
        .iter()
        .flatten()
        .map(GroupRecord::bytes_len)
        .sum();
    assert!(kept < 15_000, "{kept}");
    assert!(world.coordinator.bytes_since_snapshot() <= 10_100);
    world.restart();
    assert!(world.coordinator.bytes_since_snapshot() <= 10_100);
    assert_eq!(world.offset("g"), Some(9_999));
    assert_eq!(world.heartbeat("g", &fences[0]), Ok(()));
}
