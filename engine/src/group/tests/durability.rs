//! State moves with the log only: failed appends, restarts, handovers.

use super::*;

#[test]
fn a_failed_commit_leaves_no_trace() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commit("g", Some(&fences[0]), 5).unwrap();
    world.commits = false;
    for (failure, told) in [
        (Rejection::NotLeader, Rejection::NotCoordinator),
        (Rejection::StorageError, Rejection::NotCoordinator),
        (
            Rejection::PolicyViolation,
            Rejection::CoordinatorUnavailable,
        ),
        (
            Rejection::RequestTimedOut,
            Rejection::CoordinatorUnavailable,
        ),
    ] {
        let id = world.ask("g", commit(Some(&fences[0]), partition(1, 0), 40));
        assert!(world.is_waiting(id));
        assert_eq!(world.offset("g"), Some(5));
        world.fail_one(failure);
        assert_eq!(world.rejection(id), told);
        assert_eq!(world.offset("g"), Some(5));
    }
    let id = world.ask("g", commit(None, partition(1, 0), 1));
    assert_eq!(world.rejection(id), Rejection::UnknownMember);
    let id = world.ask("h", commit(None, partition(1, 0), 1));
    world.fail_one(Rejection::PolicyViolation);
    assert_eq!(world.rejection(id), Rejection::CoordinatorUnavailable);
    assert_eq!(world.state("h"), GroupState::Dead);
    assert_eq!(world.coordinator.size().0, 1);
}

#[test]
fn a_failed_assignment_can_be_given_again() {
    let mut world = World::new();
    let a = world.ask("g", GroupAction::Join(join("a")));
    let joined = world.joined(a);
    let fence = fence(&joined, None);
    world.commits = false;
    let id = world.ask(
        "g",
        sync(&fence, vec![("a".to_string(), Bytes::from_static(b"1"))]),
    );
    assert!(world.is_waiting(id));
    assert_eq!(world.state("g"), GroupState::CompletingRebalance);
    world.fail_one(Rejection::PolicyViolation);
    assert_eq!(world.rejection(id), Rejection::CoordinatorUnavailable);
    assert_eq!(world.state("g"), GroupState::CompletingRebalance);
    let description = world.describe("g");
    assert!(description.members[0].assignment.is_empty());
    // Clients join again after that, and learn where they are.
    let again = world.ask("g", GroupAction::Join(rejoin("a")));
    assert_eq!(world.joined(again), joined);
    world.commits = true;
    let id = world.ask(
        "g",
        sync(&fence, vec![("a".to_string(), Bytes::from_static(b"2"))]),
    );
    assert_eq!(world.assignment(id), "2");
}

#[test]
fn a_failed_deletion_leaves_the_group() {
    let mut world = World::new();
    world.commit("g", None, 5).unwrap();
    world.commits = false;
    let id = world.ask("g", GroupAction::Delete);
    assert_eq!(
        world.commit("g", None, 6),
        Err(Rejection::CoordinatorUnavailable)
    );
    let join = world.ask("g", GroupAction::Join(join("a")));
    assert_eq!(world.rejection(join), Rejection::CoordinatorUnavailable);
    world.fail_one(Rejection::PolicyViolation);
    assert_eq!(world.rejection(id), Rejection::CoordinatorUnavailable);
    assert_eq!(world.offset("g"), Some(5));
    let id = world.ask("g", GroupAction::DeleteOffsets(vec![partition(1, 0)]));
    world.fail_one(Rejection::PolicyViolation);
    assert_eq!(world.rejection(id), Rejection::CoordinatorUnavailable);
    assert_eq!(world.offset("g"), Some(5));
    world.commits = true;
    assert!(
        world
            .ask_now("g", GroupAction::DeleteOffsets(vec![partition(1, 0)]))
            .is_ok()
    );
    assert_eq!(world.offset("g"), None);
    assert_eq!(world.coordinator.size().0, 0);
}

#[test]
fn no_generation_is_told_before_the_log_has_reserved_it() {
    let mut world = World::new();
    world.commits = false;
    let id = world.ask("g", GroupAction::Join(join("a")));
    assert!(world.is_waiting(id));
    world.fail_one(Rejection::PolicyViolation);
    assert_eq!(world.rejection(id), Rejection::CoordinatorUnavailable);
    let id = world.ask("g", GroupAction::Join(rejoin("a")));
    world.pass_ms(3_000);
    assert!(world.is_waiting(id));
    world.commit_all();
    assert_eq!(world.joined(id).generation, Generation(1));
}

#[test]
fn members_and_assignments_survive_a_restart() {
    let mut world = World::new();
    let fences = world.stable("g", &["a", "b"]);
    world.commit("g", Some(&fences[1]), 5).unwrap();
    let before = world.describe("g");
    world.restart();
    let after = world.describe("g");
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    // A full session from the start.
    world.pass_ms(9_999);
    assert_eq!(world.heartbeat("g", &fences[0]), Ok(()));
    assert_eq!(world.commit("g", Some(&fences[1]), 6), Ok(()));
    assert_eq!(world.offset("g"), Some(6));
    let id = world.ask("g", sync(&fences[1], vec![]));
    assert_eq!(world.assignment(id), "for b");
    world.pass_ms(10_001);
    assert_eq!(world.state("g"), GroupState::Empty);
}

#[test]
fn generations_never_go_back_over_restarts() {
    let mut world = World::new();
    let mut newest = Generation::ZERO;
    for round in 0..200 {
        let id = world.ask("g", GroupAction::Join(join(&format!("m{round}"))));
        let joined = world.joined(id);
        assert!(joined.generation > newest, "round {round}");
        newest = joined.generation;
        match round % 3 {
            0 => drop(world.sync_all("g", &[(None, joined.clone())])),
            1 => drop(world.ask_now("g", leave(&joined.member_id))),
            _ => {}
        }
        if round % 5 == 0 {
            world.restart();
        }
        world.pass_ms(60_000);
        assert_eq!(world.state("g"), GroupState::Empty);
        assert!(world.describe("g").generation >= newest || round % 3 == 2 || round % 5 == 0);
    }
}

#[test]
fn a_commit_to_an_empty_group_carries_what_it_rests_on() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commits = false;
    // The member goes, and the log does not learn it.
    world.pass_ms(10_001);
    assert_eq!(world.state("g"), GroupState::Empty);
    world.fail_one(Rejection::PolicyViolation);
    let id = world.ask("g", commit(None, partition(1, 0), 100));
    assert_eq!(world.waiting.len(), 1);
    world.commit_one();
    assert!(world.answer(id).is_ok());
    world.restart();
    assert_eq!(
        world.commit("g", Some(&fences[0]), 40),
        Err(Rejection::UnknownMember)
    );
    assert_eq!(world.offset("g"), Some(100));
}

#[test]
fn an_unrecorded_emptiness_is_recorded_later() {
    let mut world = World::new();
    world.stable("g", &["a"]);
    world.commits = false;
    world.pass_ms(10_001);
    for _ in 0..3 {
        assert_eq!(world.waiting.len(), 1);
        world.fail_one(Rejection::PolicyViolation);
        assert_eq!(world.waiting.len(), 0);
        world.pass_ms(1_001);
    }
    world.commit_all();
    world.pass_ms(5_000);
    assert_eq!(world.waiting.len(), 0);
    world.restart();
    assert_eq!(world.state("g"), GroupState::Empty);
}

#[test]
fn an_old_coordinator_does_not_answer() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commits = false;
    let commit = world.ask("g", commit(Some(&fences[0]), partition(1, 0), 9));
    let join = world.ask("g", GroupAction::Join(join("b")));
    let mut out = Vec::new();
    world.coordinator.resign(&mut out);
    world.perform(out);
    assert_eq!(world.rejection(commit), Rejection::NotCoordinator);
    assert_eq!(world.rejection(join), Rejection::NotCoordinator);
    // The outcome comes late, and nobody hears of it.
    world.commit_all();
    world.tick();
    assert!(world.answers.is_empty());
    assert_eq!(world.coordinator.next_wake(), None);
    assert_eq!(
        world.heartbeat("g", &fences[0]),
        Err(Rejection::NotCoordinator)
    );
}

#[test]
fn a_coordinator_loads_before_it_serves() {
    let mut world = World::new();
    let fences = world.stable("g", &["a"]);
    world.commit("g", Some(&fences[0]), 5).unwrap();
    world.coordinator = Coordinator::new(world.settings.clone(), world.now);
    let refused = world.ask_now("g", GroupAction::Describe);
    assert_eq!(refused.unwrap_err(), Rejection::CoordinatorLoading);
    world.replay();
    assert_eq!(
        world.commit("g", Some(&fences[0]), 6),
        Err(Rejection::CoordinatorLoading)
    );
    world.load();
    assert_eq!(world.offset("g"), Some(5));
    assert_eq!(world.commit("g", Some(&fences[0]), 6), Ok(()));
}

#[test]
fn waiting_appends_are_bounded() {
    let mut world = World::with(Settings {
        appends_waiting_max: 3,
        ..Settings::default()
    });
    world.commits = false;
    let ids: Vec<RequestId> = (0..5)
        .map(|at| world.ask("g", commit(None, partition(1, at), 1)))
        .collect();
    assert!(world.is_waiting(ids[2]));
    assert_eq!(world.rejection(ids[3]), Rejection::CoordinatorUnavailable);
    world.commit_all();
    assert!(world.answer(ids[0]).is_ok());
    assert_eq!(world.offsets("g").len(), 3);
}

#[test]
fn a_commit_is_checked_offset_by_offset() {
    let mut world = World::with(Settings {
        offsets_max: 2,
        ..Settings::default()
    });
    let offset = |index: u32, metadata: String| OffsetToCommit {
        partition: partition(1, index),
        offset: Offset(1),
        leader_epoch: None,
        metadata,
    };
    let offsets = vec![
        offset(0, "x".repeat(4_097)),
        offset(1, "x".repeat(4_096)),
        offset(2, String::new()),
        offset(3, String::new()),
    ];
    let commit = Commit {
        fence: None,
        offsets,
    };
    let results = match world.ask_now("g", GroupAction::Commit(commit)) {
        Ok(GroupResponse::Committed(results)) => results,
        other => panic!("{other:?}"),
    };
    let results: Vec<_> = results.into_iter().map(|(_, result)| result).collect();
    assert_eq!(
        results,
        [
            Err(Rejection::OffsetMetadataTooLarge),
            Ok(()),
            Ok(()),
            Err(Rejection::Overloaded)
        ]
    );
    assert_eq!(
        world.offsets("g"),
        [(partition(1, 1), 1), (partition(1, 2), 1)]
    );
}

#[test]
fn a_deleted_topic_takes_its_offsets_along() {
    let mut world = World::new();
    for group in ["g", "h"] {
        for topic in [1, 2] {
            world
                .ask_now(group, commit(None, partition(topic, 0), 5))
                .unwrap();
        }
    }
    world.commits = false;
    let before = world.ask("g", commit(None, partition(1, 7), 5));
    let mut out = Vec::new();
    world
        .coordinator
        .forget_topic(topic_id(1), world.now, &mut out);
    world.perform(out);
    assert_eq!(
        world.commit("g", None, 9),
        Err(Rejection::UnknownTopicOrPartition)
    );
    world.commit_one();
    assert!(world.answer(before).is_ok());
    world.fail_one(Rejection::PolicyViolation);
    world.commits = true;
    world.pass_ms(1_001);
    for _ in 0..2 {
        for group in ["g", "h"] {
            assert_eq!(world.offsets(group), [(partition(2, 0), 5)]);
        }
        world.restart();
    }
    assert_eq!(
        world.coordinator.topics().into_iter().collect::<Vec<_>>(),
        [topic_id(2)]
    );
}

#[test]
fn offsets_of_an_unknown_group_are_none_without_an_error() {
    let mut world = World::new();
    assert_eq!(world.offsets("never seen"), []);
    assert_eq!(world.coordinator.size().0, 0);
}
