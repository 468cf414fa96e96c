//! The life of a group: members come, stay, change and go.

use super::*;

#[test]
fn one_member_lives_through_a_whole_group() {
    let mut world = World::new();
    assert_eq!(world.state("g"), GroupState::Dead);
    let id = world.ask("g", GroupAction::Join(join("a")));
    let joined = world.joined(id);
    assert_eq!(joined.leader, "a");
    assert_eq!(joined.protocol, "range");
    assert_eq!(joined.protocol_type, "consumer");
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.members[0].metadata, "metadata of a");
    assert_eq!(world.state("g"), GroupState::CompletingRebalance);
    let fence = fence(&joined, None);
    assert_eq!(world.heartbeat("g", &fence), Ok(()));
    let id = world.ask(
        "g",
        sync(&fence, vec![("a".to_string(), Bytes::from_static(b"all"))]),
    );
    assert_eq!(world.assignment(id), "all");
    assert_eq!(world.state("g"), GroupState::Stable);
    assert_eq!(world.commit("g", Some(&fence), 7), Ok(()));
    assert_eq!(world.offset("g"), Some(7));
    let left = world.ask_now("g", leave("a")).unwrap();
    assert!(matches!(left, GroupResponse::Left(results) if results == [Ok(())]));
    let description = world.describe("g");
    assert_eq!(description.state, GroupState::Empty);
    assert!(description.generation > joined.generation);
    assert_eq!(world.offset("g"), Some(7));
    assert!(world.ask_now("g", GroupAction::Delete).is_ok());
    assert_eq!(world.state("g"), GroupState::Dead);
    assert_eq!(world.offset("g"), None);
}

#[test]
fn two_members_share_a_generation_and_only_the_leader_sees_both() {
    let mut world = World::new();
    let first = world.ask("g", GroupAction::Join(join("a")));
    let first = world.joined(first);
    let second = world.ask("g", GroupAction::Join(join("b")));
    assert!(world.is_waiting(second));
    let old = fence(&first, None);
    assert_eq!(
        world.heartbeat("g", &old),
        Err(Rejection::RebalanceInProgress)
    );
    let again = world.ask("g", GroupAction::Join(rejoin("a")));
    let (a, b) = (world.joined(again), world.joined(second));
    assert_eq!(a.generation, b.generation);
    assert!(a.generation > first.generation);
    assert_eq!((a.leader.as_str(), b.leader.as_str()), ("a", "a"));
    assert_eq!((a.members.len(), b.members.len()), (2, 0));
    // The follower's sync waits for the leader's.
    let follower = world.ask("g", sync(&fence(&b, None), vec![]));
    assert!(world.is_waiting(follower));
    let assignments = vec![
        ("a".to_string(), Bytes::from_static(b"1")),
        ("b".to_string(), Bytes::from_static(b"2")),
        ("nobody".to_string(), Bytes::from_static(b"3")),
    ];
    let leader = world.ask("g", sync(&fence(&a, None), assignments));
    assert_eq!(world.assignment(leader), "1");
    assert_eq!(world.assignment(follower), "2");
    let description = world.describe("g");
    assert_eq!(description.members.len(), 2);
    assert_eq!(description.members[1].assignment, "2");
}

#[test]
fn three_members_become_two_when_one_leaves() {
    let mut world = World::new();
    let fences = world.stable("g", &["a", "b", "c"]);
    world.ask_now("g", leave("b")).unwrap();
    assert_eq!(
        world.heartbeat("g", &fences[0]),
        Err(Rejection::RebalanceInProgress)
    );
    assert_eq!(
        world.heartbeat("g", &fences[1]),
        Err(Rejection::UnknownMember)
    );
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    assert!(world.is_waiting(a));
    let c = world.ask("g", GroupAction::Join(rejoin("c")));
    let joined = [(None, world.joined(a)), (None, world.joined(c))];
    assert!(joined[0].1.generation > fences[0].generation);
    world.sync_all("g", &joined);
}

#[test]
fn an_expired_member_makes_way() {
    let mut world = World::new();
    let fences = world.stable("g", &["a", "b"]);
    world.pass_ms(6_000);
    assert_eq!(world.heartbeat("g", &fences[0]), Ok(()));
    world.pass_ms(6_000);
    assert_eq!(world.state("g"), GroupState::PreparingRebalance);
    assert_eq!(
        world.heartbeat("g", &fences[1]),
        Err(Rejection::UnknownMember)
    );
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    let joined = [(None, world.joined(a))];
    world.sync_all("g", &joined);
}

#[test]
fn members_that_do_not_join_again_are_left_behind() {
    let mut world = World::new();
    let fences = world.stable("g", &["a", "b", "c"]);
    let d = world.ask("g", GroupAction::Join(join("d")));
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    for _ in 0..5 {
        world.pass_ms(6_000);
        // They live, but do not join.
        for fence in &fences[1..] {
            let alive = world.heartbeat("g", fence);
            assert!(matches!(
                alive,
                Err(Rejection::RebalanceInProgress | Rejection::UnknownMember)
            ));
        }
    }
    let (a, d) = (world.joined(a), world.joined(d));
    assert_eq!(a.members.len(), 2);
    world.sync_all("g", &[(None, a), (None, d)]);
    assert_eq!(
        world.heartbeat("g", &fences[1]),
        Err(Rejection::UnknownMember)
    );
}

#[test]
fn consumers_started_together_meet_in_one_generation() {
    let mut world = World::with(Settings {
        initial_rebalance_delay_ms: 100,
        ..Settings::default()
    });
    let a = world.ask("g", GroupAction::Join(join("a")));
    world.pass_ms(60);
    let b = world.ask("g", GroupAction::Join(join("b")));
    world.pass_ms(60);
    // The wait was extended, as somebody came in it.
    assert!(world.is_waiting(a) && world.is_waiting(b));
    world.pass_ms(100);
    let joined = [(None, world.joined(a)), (None, world.joined(b))];
    assert_eq!(joined[0].1.generation, joined[1].1.generation);
    world.sync_all("g", &joined);
}

#[test]
fn gathering_ends_at_the_rebalance_timeout() {
    let mut world = World::with(Settings {
        initial_rebalance_delay_ms: 1_000,
        ..Settings::default()
    });
    let mut waiting = Vec::new();
    for number in 0..10 {
        let short = Join {
            rebalance_timeout_ms: 3_000,
            ..join(&format!("m{number}"))
        };
        waiting.push(world.ask("g", GroupAction::Join(short)));
        world.pass_ms(400);
    }
    assert!(!world.is_waiting(waiting[0]));
}

#[test]
fn a_new_member_must_come_back_with_its_id() {
    let mut world = World::new();
    let required = Join {
        member_id_required: true,
        ..join("a")
    };
    let answer = world
        .ask_now("g", GroupAction::Join(required.clone()))
        .unwrap();
    assert!(matches!(answer, GroupResponse::MemberIdRequired(id) if id == "a"));
    assert_eq!(world.state("g"), GroupState::Empty);
    let back = Join {
        member_id: "a".to_string(),
        ..required
    };
    let id = world.ask("g", GroupAction::Join(back));
    assert_eq!(world.joined(id).member_id, "a");
}

#[test]
fn a_given_id_expires_and_leaves_no_group() {
    let mut world = World::new();
    let required = Join {
        member_id_required: true,
        ..join("a")
    };
    world
        .ask_now("g", GroupAction::Join(required.clone()))
        .unwrap();
    world.pass_ms(10_001);
    assert_eq!(world.state("g"), GroupState::Dead);
    let back = Join {
        member_id: "a".to_string(),
        ..required
    };
    let id = world.ask("g", GroupAction::Join(back));
    assert_eq!(world.rejection(id), Rejection::UnknownMember);
    assert!(world.log.is_empty());
}

#[test]
fn a_rebalance_waits_for_given_ids() {
    let mut world = World::new();
    world.stable("g", &["a"]);
    let required = Join {
        member_id_required: true,
        ..join("b")
    };
    world
        .ask_now("g", GroupAction::Join(required.clone()))
        .unwrap();
    // A leader that joins again begins a rebalance.
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    assert!(world.is_waiting(a));
    let back = Join {
        member_id: "b".to_string(),
        ..required
    };
    let b = world.ask("g", GroupAction::Join(back));
    let joined = [(None, world.joined(a)), (None, world.joined(b))];
    world.sync_all("g", &joined);
}

#[test]
fn a_follower_that_joins_again_unchanged_does_not_disturb() {
    let mut world = World::new();
    let fences = world.stable("g", &["a", "b"]);
    let id = world.ask("g", GroupAction::Join(rejoin("b")));
    assert_eq!(world.joined(id).generation, fences[1].generation);
    assert_eq!(world.state("g"), GroupState::Stable);
    let changed = offering(rejoin("b"), &["range", "other"]);
    let id = world.ask("g", GroupAction::Join(changed));
    assert!(world.is_waiting(id));
    assert_eq!(world.state("g"), GroupState::PreparingRebalance);
}

#[test]
fn the_protocol_most_prefer_among_those_all_offer_is_chosen() {
    let mut world = World::with(Settings {
        initial_rebalance_delay_ms: 100,
        ..Settings::default()
    });
    let joins = [
        offering(join("a"), &["only-a", "sticky", "range"]),
        offering(join("b"), &["sticky", "range"]),
        offering(join("c"), &["range", "sticky"]),
    ];
    let ids = joins.map(|join| world.ask("g", GroupAction::Join(join)));
    let stranger = world.ask("g", GroupAction::Join(offering(join("d"), &["only-a"])));
    assert_eq!(
        world.rejection(stranger),
        Rejection::InconsistentGroupProtocol
    );
    let other_type = Join {
        protocol_type: "connect".to_string(),
        ..join("e")
    };
    let other_type = world.ask("g", GroupAction::Join(other_type));
    assert_eq!(
        world.rejection(other_type),
        Rejection::InconsistentGroupProtocol
    );
    world.pass_ms(300);
    for id in ids {
        assert_eq!(world.joined(id).protocol, "sticky");
    }
}

#[test]
fn a_leader_that_never_assigns_is_removed() {
    let mut world = World::new();
    let a = world.ask("g", GroupAction::Join(join("a")));
    let a = fence(&world.joined(a), None);
    for _ in 0..6 {
        world.pass_ms(6_000);
        let _alive = world.heartbeat("g", &a);
    }
    assert_eq!(world.heartbeat("g", &a), Err(Rejection::UnknownMember));
    assert_eq!(world.state("g"), GroupState::Empty);
}

#[test]
fn a_second_join_of_a_member_takes_the_place_of_the_first() {
    let mut world = World::new();
    world.stable("g", &["a", "b"]);
    let first = world.ask("g", GroupAction::Join(rejoin("a")));
    let second = world.ask("g", GroupAction::Join(rejoin("a")));
    assert_eq!(world.rejection(first), Rejection::RebalanceInProgress);
    assert!(world.is_waiting(second));
}

#[test]
fn a_cancelled_join_is_not_answered_and_its_member_expires() {
    let mut world = World::new();
    world.stable("g", &["a"]);
    let b = world.ask("g", GroupAction::Join(join("b")));
    world.coordinator.cancel(b, world.now);
    for _ in 0..3 {
        world.pass_ms(5_000);
        let fence = MemberFence {
            generation: world.describe("g").generation,
            member_id: "a".to_string(),
            instance_id: None,
        };
        let _alive = world.heartbeat("g", &fence);
    }
    let a = world.ask("g", GroupAction::Join(rejoin("a")));
    assert_eq!(world.joined(a).members.len(), 1);
    assert!(world.is_waiting(b));
    assert_eq!(world.coordinator.requests_waiting(), 0);
}

#[test]
fn joins_out_of_bounds_are_refused() {
    let mut world = World::with(Settings {
        members_max: 2,
        groups_max: 2,
        initial_rebalance_delay_ms: 0,
        ..Settings::default()
    });
    let refused = |world: &mut World, group: &str, join: Join| {
        let id = world.ask(group, GroupAction::Join(join));
        world.rejection(id)
    };
    let short = Join {
        session_timeout_ms: 1,
        ..join("a")
    };
    assert_eq!(
        refused(&mut world, "g", short),
        Rejection::InvalidSessionTimeout
    );
    assert_eq!(
        refused(&mut world, "", join("a")),
        Rejection::InvalidGroupId
    );
    let nothing = offering(join("a"), &[]);
    assert_eq!(
        refused(&mut world, "g", nothing),
        Rejection::InconsistentGroupProtocol
    );
    let long = join(&"x".repeat(10_000));
    assert_eq!(refused(&mut world, "g", long), Rejection::InvalidRequest);
    let large = Join {
        protocols: vec![("range".to_string(), Bytes::from(vec![0; (1 << 20) + 1]))],
        ..join("a")
    };
    assert_eq!(
        refused(&mut world, "g", large),
        Rejection::RecordListTooLarge
    );
    assert_eq!(
        refused(&mut world, "g", rejoin("a")),
        Rejection::UnknownMember
    );
    assert_eq!(world.coordinator.size().0, 0);
    world.stable("g", &["a", "b"]);
    assert_eq!(refused(&mut world, "g", join("c")), Rejection::GroupFull);
    world.commit("h", None, 1).unwrap();
    assert_eq!(refused(&mut world, "i", join("c")), Rejection::Overloaded);
    assert_eq!(world.commit("i", None, 1), Err(Rejection::Overloaded));
}

#[test]
fn bytes_of_all_groups_are_bounded() {
    let mut world = World::with(Settings {
        initial_rebalance_delay_ms: 0,
        bytes_max: 3 << 20,
        ..Settings::default()
    });
    let large = |name: &str| Join {
        protocols: vec![("range".to_string(), Bytes::from(vec![0; 1 << 20]))],
        ..join(name)
    };
    let mut refused = 0;
    for number in 0..10 {
        let id = world.ask(&format!("g{number}"), GroupAction::Join(large("a")));
        match world.answer(id) {
            Ok(_) => {}
            Err(rejection) => {
                assert_eq!(rejection, Rejection::Overloaded);
                refused += 1;
            }
        }
    }
    assert!(refused >= 7, "{refused}");
    assert!(world.coordinator.size().1 <= 3 << 20);
}

#[test]
fn groups_are_listed_in_order() {
    let mut world = World::new();
    world.commit("b", None, 1).unwrap();
    world.stable("a", &["m"]);
    let listed = match world.ask_now("", GroupAction::List) {
        Ok(GroupResponse::Listed(listed)) => listed,
        other => panic!("{other:?}"),
    };
    let shown: Vec<_> = listed
        .iter()
        .map(|one| (one.group.as_str(), one.protocol_type.as_str(), one.state))
        .collect();
    assert_eq!(
        shown,
        [
            ("a", "consumer", GroupState::Stable),
            ("b", "", GroupState::Empty)
        ]
    );
}

#[test]
fn a_group_with_members_is_not_deleted() {
    let mut world = World::new();
    world.stable("g", &["a"]);
    let refused = world.ask_now("g", GroupAction::Delete);
    assert_eq!(refused.unwrap_err(), Rejection::NonEmptyGroup);
    let refused = world.ask_now("g", GroupAction::DeleteOffsets(vec![partition(1, 0)]));
    assert_eq!(refused.unwrap_err(), Rejection::NonEmptyGroup);
    let unknown = world.ask_now("h", GroupAction::Delete);
    assert_eq!(unknown.unwrap_err(), Rejection::GroupIdNotFound);
}
