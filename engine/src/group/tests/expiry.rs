//! Offsets go when their group has long been empty, and not before.

use super::*;

const DAY_MS: u64 = 86_400_000;

#[test]
fn offsets_of_a_group_long_empty_expire() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commit("g", Some(&fences[0]), 5).unwrap();
    world.ask_now("g", leave("a")).unwrap();
    world.pass_ms(7 * DAY_MS - 1_000);
    assert_eq!(world.offset("g"), Some(5));
    world.pass_ms(3_600_000);
    assert_eq!(world.state("g"), GroupState::Dead);
    world.restart();
    assert_eq!(world.state("g"), GroupState::Dead);
}

#[test]
fn offsets_do_not_expire_while_the_group_lives_or_rebalances() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commit("g", Some(&fences[0]), 5).unwrap();
    for _ in 0..(8 * DAY_MS / 9_000_000) {
        for _ in 0..1_000 {
            world.sleep_ms(9_000);
            world.heartbeat("g", &fences[0]).unwrap();
        }
        world.tick();
    }
    assert_eq!(world.offset("g"), Some(5));
    // A rebalance at the very moment at which they would have expired.
    world.ask("g", GroupAction::Join(join("b")));
    assert_eq!(world.state("g"), GroupState::PreparingRebalance);
    world.pass_ms(9_000);
    assert_eq!(world.offset("g"), Some(5));
}

#[test]
fn the_time_empty_counts_over_restarts() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commit("g", Some(&fences[0]), 5).unwrap();
    world.ask_now("g", leave("a")).unwrap();
    for _ in 0..6 {
        world.pass_ms(DAY_MS);
        world.restart();
        assert_eq!(world.offset("g"), Some(5));
    }
    world.pass_ms(DAY_MS + 3_600_000);
    assert_eq!(world.offset("g"), None);
}

#[test]
fn offsets_without_members_expire_by_their_commits() {
    let mut world = World::new();
    world
        .ask_now("g", commit(None, partition(1, 0), 5))
        .unwrap();
    world.pass_ms(4 * DAY_MS);
    world
        .ask_now("g", commit(None, partition(1, 1), 6))
        .unwrap();
    world.pass_ms(4 * DAY_MS);
    assert_eq!(world.offsets("g"), [(partition(1, 1), 6)]);
    world.pass_ms(4 * DAY_MS);
    assert_eq!(world.coordinator.size().0, 0);
    world.restart();
    assert_eq!(world.coordinator.size().0, 0);
}

#[test]
fn a_commit_keeps_the_offsets_of_an_empty_group_that_it_touches() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commit("g", Some(&fences[0]), 5).unwrap();
    world.ask_now("g", leave("a")).unwrap();
    world.pass_ms(4 * DAY_MS);
    world.commit("g", None, 6).unwrap();
    world.pass_ms(4 * DAY_MS);
    assert_eq!(world.offset("g"), Some(6));
}

#[test]
fn a_wall_clock_that_jumps_a_year_expires_nothing() {
    for jump_ms in [365 * DAY_MS as i64, -365 * DAY_MS as i64] {
        let mut world = World::new();
        world.commit("g", None, 5).unwrap();
        world.now.wall.0 = world.now.wall.0.saturating_add_signed(jump_ms);
        world.pass_ms(DAY_MS);
        world
            .ask_now("g", commit(None, partition(1, 1), 5))
            .unwrap();
        world.now.wall.0 = world.now.wall.0.saturating_add_signed(-jump_ms);
        world.pass_ms(DAY_MS);
        assert_eq!(world.offsets("g").len(), 2);
    }
}

#[test]
fn a_failed_expiry_is_tried_again() {
    let mut world = World::new();
    world.commit("g", None, 5).unwrap();
    world.commits = false;
    world.pass_ms(7 * DAY_MS + 3_600_000);
    assert_eq!(world.waiting.len(), 1);
    world.fail_one(Rejection::PolicyViolation);
    assert_eq!(world.offset("g"), Some(5));
    world.commits = true;
    world.pass_ms(3_600_000);
    assert_eq!(world.offset("g"), None);
}

#[test]
fn an_empty_group_without_offsets_goes_sooner() {
    let mut world = World::new();
    world.stable("g", &["a"]);
    world.ask_now("g", leave("a")).unwrap();
    world.pass_ms(599_000);
    assert_eq!(world.state("g"), GroupState::Empty);
    world.pass_ms(10_000);
    assert_eq!(world.state("g"), GroupState::Dead);
}
