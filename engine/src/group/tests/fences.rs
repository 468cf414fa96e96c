//! Who may move a group's offsets: invariant 4 of `docs/REPLICATION.md`.

use super::*;

/// Everything a stale member may try, with what it is told.
fn try_all(world: &mut World, fence: &MemberFence) -> [Result<(), Rejection>; 4] {
    [
        world.commit("g", Some(fence), 40),
        world.heartbeat("g", fence),
        world.ask_now("g", sync(fence, vec![])).map(drop),
        world
            .ask_now(
                "g",
                GroupAction::Committed(OffsetsWanted {
                    fence: Some(fence.clone()),
                    partitions: None,
                }),
            )
            .map(drop),
    ]
}

#[test]
fn expired_member_cannot_commit() {
    let mut world = World::new();
    let fences = world.stable("g", &["a", "b"]);
    world.pass_ms(6_000);
    world.heartbeat("g", &fences[1]).unwrap();
    // A pauses past its session; no timer is served meanwhile.
    world.sleep_ms(6_000);
    assert_eq!(
        world.commit("g", Some(&fences[0]), 40),
        Err(Rejection::UnknownMember)
    );
    let b = world.ask("g", GroupAction::Join(rejoin("b")));
    let joined = [(None, world.joined(b))];
    let b = world.sync_all("g", &joined);
    assert_eq!(world.commit("g", Some(&b[0]), 100), Ok(()));
    assert_eq!(
        try_all(&mut world, &fences[0]),
        [Err(Rejection::UnknownMember); 4]
    );
    let mut guessed = fences[0].clone();
    guessed.generation = b[0].generation;
    assert_eq!(
        try_all(&mut world, &guessed),
        [Err(Rejection::UnknownMember); 4]
    );
    assert_eq!(world.offset("g"), Some(100));
}

#[test]
fn older_generation_cannot_commit() {
    let mut world = World::new();
    let old = world.stable("g", &["a"]);
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    let joined = [(None, world.joined(a))];
    let new = world.sync_all("g", &joined);
    assert_eq!(world.commit("g", Some(&new[0]), 100), Ok(()));
    assert_eq!(
        try_all(&mut world, &old[0]),
        [Err(Rejection::IllegalGeneration); 4]
    );
    let mut newer = new[0].clone();
    newer.generation = Generation(newer.generation.0 + 1);
    assert_eq!(
        try_all(&mut world, &newer),
        [Err(Rejection::IllegalGeneration); 4]
    );
    assert_eq!(world.offset("g"), Some(100));
}

#[test]
fn nobody_commits_past_a_group_with_members() {
    let mut world = World::new();
    world.commit("g", None, 5).unwrap();
    let fences = world.stable("g", &["a"]);
    assert_eq!(world.commit("g", None, 40), Err(Rejection::UnknownMember));
    world.ask("g", GroupAction::Join(join("b")));
    assert_eq!(world.state("g"), GroupState::PreparingRebalance);
    assert_eq!(world.commit("g", None, 40), Err(Rejection::UnknownMember));
    world.ask("g", GroupAction::Join(rejoin("a")));
    assert_eq!(world.state("g"), GroupState::CompletingRebalance);
    assert_eq!(world.commit("g", None, 40), Err(Rejection::UnknownMember));
    assert_eq!(world.offset("g"), Some(5));
    world.ask_now("g", leave("a")).unwrap();
    world.ask_now("g", leave("b")).unwrap();
    assert_eq!(world.commit("g", None, 6), Ok(()));
    assert_eq!(
        world.commit("g", Some(&fences[0]), 40),
        Err(Rejection::UnknownMember)
    );
    assert_eq!(world.offset("g"), Some(6));
}

#[test]
fn a_fenced_commit_to_a_group_that_is_not_there_is_refused() {
    let mut world = World::new();
    let fence = MemberFence {
        generation: Generation(1),
        member_id: "a".to_string(),
        instance_id: None,
    };
    assert_eq!(
        world.commit("g", Some(&fence), 1),
        Err(Rejection::IllegalGeneration)
    );
    assert_eq!(world.heartbeat("g", &fence), Err(Rejection::UnknownMember));
    assert_eq!(world.coordinator.size().0, 0);
}

#[test]
fn a_commit_between_generations_is_told_to_wait() {
    let mut world = World::new();
    let a = world.ask("g", GroupAction::Join(join("a")));
    let a = fence(&world.joined(a), None);
    assert_eq!(world.state("g"), GroupState::CompletingRebalance);
    assert_eq!(
        world.commit("g", Some(&a), 1),
        Err(Rejection::RebalanceInProgress)
    );
}

#[test]
fn a_member_commits_while_its_generation_prepares_the_next() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    let b = world.ask("g", GroupAction::Join(join("b")));
    assert_eq!(world.state("g"), GroupState::PreparingRebalance);
    assert_eq!(world.commit("g", Some(&fences[0]), 9), Ok(()));
    // The newcomer is not of this generation, even if it guesses its number.
    let guessed = MemberFence {
        member_id: "b".to_string(),
        ..fences[0].clone()
    };
    assert_eq!(
        world.commit("g", Some(&guessed), 40),
        Err(Rejection::IllegalGeneration)
    );
    assert!(world.is_waiting(b));
    assert_eq!(world.offset("g"), Some(9));
}

#[test]
fn a_static_id_taken_over_fences_its_former_self_on_every_path() {
    let mut world = World::new();
    let fences = world.stable_of("g", vec![static_join("a1", "a"), static_join("b1", "b")]);
    let again = world.ask("g", GroupAction::Join(static_join("a2", "a")));
    let joined = world.joined(again);
    let new = fence(&joined, Some("a"));
    assert_eq!(world.commit("g", Some(&new), 100), Ok(()));
    assert_eq!(
        try_all(&mut world, &fences[0]),
        [Err(Rejection::FencedInstanceId); 4]
    );
    let mut nameless = fences[0].clone();
    nameless.instance_id = None;
    assert_eq!(
        try_all(&mut world, &nameless),
        [Err(Rejection::UnknownMember); 4]
    );
    let mut stranger = fences[0].clone();
    stranger.instance_id = Some("c".to_string());
    assert_eq!(
        try_all(&mut world, &stranger),
        [Err(Rejection::UnknownMember); 4]
    );
    let mut borrowed = fences[1].clone();
    borrowed.instance_id = Some("a".to_string());
    assert_eq!(
        try_all(&mut world, &borrowed),
        [Err(Rejection::FencedInstanceId); 4]
    );
    let rejoin = Join {
        member_id: "a1".to_string(),
        ..static_join("a1", "a")
    };
    let id = world.ask("g", GroupAction::Join(rejoin));
    assert_eq!(world.rejection(id), Rejection::FencedInstanceId);
    let leaving = LeavingMember {
        member_id: "a1".to_string(),
        instance_id: Some("a".to_string()),
    };
    let left = world
        .ask_now("g", GroupAction::Leave(vec![leaving]))
        .unwrap();
    assert!(
        matches!(left, GroupResponse::Left(results) if results == [Err(Rejection::FencedInstanceId)])
    );
    assert_eq!(world.offset("g"), Some(100));
}

#[test]
fn an_old_generation_stays_fenced_over_a_restart() {
    let mut world = World::new();
    let old = world.stable("g", &["a", "b"]);
    // A generation begins, is told to its members, and is forgotten by the restart.
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    let b = world.ask("g", GroupAction::Join(rejoin("b")));
    assert!(!world.is_waiting(b));
    let lost = fence(&world.joined(a), None);
    assert!(lost.generation > old[0].generation);
    world.restart();
    assert_eq!(
        world.heartbeat("g", &lost),
        Err(Rejection::IllegalGeneration)
    );
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    let b = world.ask("g", GroupAction::Join(rejoin("b")));
    let joined = [(None, world.joined(a)), (None, world.joined(b))];
    assert!(joined[0].1.generation > lost.generation);
    world.sync_all("g", &joined);
    assert_eq!(
        world.commit("g", Some(&lost), 40),
        Err(Rejection::IllegalGeneration)
    );
    assert_eq!(
        world.commit("g", Some(&old[0]), 40),
        Err(Rejection::IllegalGeneration)
    );
    assert_eq!(world.offset("g"), None);
}

#[test]
fn a_commit_appended_before_the_generation_moved_stands() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commits = false;
    let commit = world.ask("g", commit(Some(&fences[0]), partition(1, 0), 9));
    world.ask("g", GroupAction::Join(join("b")));
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    assert!(!world.is_waiting(a));
    assert_eq!(world.offset("g"), None);
    world.commit_all();
    assert!(world.answer(commit).is_ok());
    assert_eq!(world.offset("g"), Some(9));
}

#[test]
fn a_wall_clock_that_steps_changes_nothing_about_sessions() {
    for step_ms in [-3_600_000_i64, 3_600_000, 365 * 86_400_000] {
        let mut world = World::new();
        let fences = world.stable("g", &["a"]);
        world.now.wall.0 = world.now.wall.0.saturating_add_signed(step_ms);
        world.pass_ms(9_000);
        assert_eq!(world.heartbeat("g", &fences[0]), Ok(()));
        world.now.wall.0 = world.now.wall.0.saturating_add_signed(-step_ms);
        world.pass_ms(9_999);
        assert_eq!(world.commit("g", Some(&fences[0]), 1), Ok(()));
        world.now.wall.0 = world.now.wall.0.saturating_add_signed(step_ms);
        world.pass_ms(10_000);
        assert_eq!(
            world.commit("g", Some(&fences[0]), 2),
            Err(Rejection::UnknownMember)
        );
    }
}
