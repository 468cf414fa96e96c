//! Static members (KIP-345): they come back under the same static id.

use super::*;

fn returns(world: &mut World, name: &str, instance: &str) -> RequestId {
    world.ask("g", GroupAction::Join(static_join(name, instance)))
}

fn two(world: &mut World) -> Vec<MemberFence> {
    world.stable_of("g", vec![static_join("a1", "a"), static_join("b1", "b")])
}

#[test]
fn a_returned_static_member_keeps_its_assignment_without_a_rebalance() {
    let mut world = World::new();
    let fences = two(&mut world);
    let id = returns(&mut world, "b2", "b");
    let joined = world.joined(id);
    assert_eq!(joined.generation, fences[1].generation);
    assert!(!joined.skip_assignment);
    assert_eq!(world.state("g"), GroupState::Stable);
    let id = world.ask("g", sync(&fence(&joined, Some("b")), vec![]));
    assert_eq!(world.assignment(id), "for b1");
    assert_eq!(world.heartbeat("g", &fences[0]), Ok(()));
}

#[test]
fn a_returned_static_leader_is_told_not_to_assign() {
    let mut world = World::new();
    two(&mut world);
    let id = returns(&mut world, "a2", "a");
    let joined = world.joined(id);
    assert_eq!(joined.leader, "a2");
    assert!(joined.skip_assignment);
    assert_eq!(joined.members.len(), 2);
}

#[test]
fn a_returned_static_member_with_other_protocols_begins_a_rebalance() {
    let mut world = World::new();
    let fences = two(&mut world);
    let changed = offering(static_join("b2", "b"), &["range", "sticky"]);
    let b = world.ask("g", GroupAction::Join(changed));
    assert_eq!(world.state("g"), GroupState::PreparingRebalance);
    let a = Join {
        member_id: "a1".to_string(),
        ..static_join("a1", "a")
    };
    let a = world.ask("g", GroupAction::Join(a));
    let (a, b) = (world.joined(a), world.joined(b));
    assert!(a.generation > fences[0].generation);
    world.sync_all(
        "g",
        &[(Some("a".to_string()), a), (Some("b".to_string()), b)],
    );
}

#[test]
fn a_static_member_that_is_away_stays_until_its_session_ends() {
    let mut world = World::new();
    let fences = two(&mut world);
    world.pass_ms(9_000);
    assert_eq!(world.heartbeat("g", &fences[0]), Ok(()));
    assert_eq!(world.describe("g").members.len(), 2);
    world.pass_ms(2_000);
    assert_eq!(world.describe("g").members.len(), 1);
}

#[test]
fn a_static_id_passes_on_only_with_the_log() {
    let mut world = World::new();
    let fences = two(&mut world);
    world.commits = false;
    let id = returns(&mut world, "a2", "a");
    assert!(world.is_waiting(id));
    // Until the log has it, the former self is the member.
    assert_eq!(world.heartbeat("g", &fences[0]), Ok(()));
    world.fail_one(Rejection::PolicyViolation);
    assert_eq!(world.rejection(id), Rejection::CoordinatorUnavailable);
    assert_eq!(world.heartbeat("g", &fences[0]), Ok(()));
    let id = returns(&mut world, "a3", "a");
    world.commit_all();
    assert_eq!(world.joined(id).member_id, "a3");
    assert_eq!(
        world.heartbeat("g", &fences[0]),
        Err(Rejection::FencedInstanceId)
    );
    world.restart();
    assert_eq!(
        world.heartbeat("g", &fences[0]),
        Err(Rejection::FencedInstanceId)
    );
}

#[test]
fn static_members_that_return_together_all_stay() {
    let mut world = World::new();
    let names: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
    let joins = names
        .iter()
        .map(|name| static_join(&format!("{name}-1"), name))
        .collect();
    let fences = world.stable_of("g", joins);
    world.commits = false;
    let ids: Vec<RequestId> = names
        .iter()
        .map(|name| {
            world.ask(
                "g",
                GroupAction::Join(static_join(&format!("{name}-2"), name)),
            )
        })
        .collect();
    // Two appends: the first to return, then all others together.
    assert!(world.commit_one());
    assert!(world.commit_one());
    assert!(!world.commit_one());
    for id in ids {
        assert_eq!(world.joined(id).generation, fences[0].generation);
    }
    assert_eq!(world.state("g"), GroupState::Stable);
    let before = world.describe("g");
    world.restart();
    assert_eq!(members_of(&world.describe("g")), members_of(&before));
    assert!(
        before
            .members
            .iter()
            .all(|member| member.member_id.ends_with("-2"))
    );
}

#[test]
fn a_static_member_that_returns_in_a_rebalance_is_fenced_over_a_restart() {
    let mut world = World::new();
    let fences = two(&mut world);
    world.ask("g", GroupAction::Join(static_join("c1", "c")));
    assert_eq!(world.state("g"), GroupState::PreparingRebalance);
    let waiting = returns(&mut world, "b2", "b");
    assert!(world.is_waiting(waiting));
    world.restart();
    assert_eq!(
        world.commit("g", Some(&fences[1]), 40),
        Err(Rejection::FencedInstanceId)
    );
    assert_eq!(world.commit("g", Some(&fences[0]), 1), Ok(()));
}

#[test]
fn a_static_id_that_expired_and_was_taken_stays_taken_over_a_restart() {
    let mut world = World::new();
    let fences = two(&mut world);
    world.pass_ms(6_000);
    world.heartbeat("g", &fences[1]).unwrap();
    world.pass_ms(6_000);
    // The first has expired; another takes its id, and the generation is lost.
    assert_eq!(
        world.heartbeat("g", &fences[0]),
        Err(Rejection::UnknownMember)
    );
    let waiting = returns(&mut world, "a2", "a");
    assert!(world.is_waiting(waiting));
    world.restart();
    assert_eq!(
        world.commit("g", Some(&fences[0]), 40),
        Err(Rejection::FencedInstanceId)
    );
    let back = Join {
        member_id: "a2".to_string(),
        ..static_join("a2", "a")
    };
    let id = world.ask("g", GroupAction::Join(back));
    assert!(
        world.is_waiting(id),
        "it leads, so its join begins a rebalance"
    );
}

#[test]
fn a_group_that_a_static_member_is_coming_back_to_is_not_deleted() {
    let mut world = World::new();
    world.stable_of("g", vec![static_join("a1", "a")]);
    world.commits = false;
    world.pass_ms(10_001);
    assert_eq!(world.state("g"), GroupState::Empty);
    let waiting = returns(&mut world, "a2", "a");
    let refused = world.ask_now("g", GroupAction::Delete);
    assert_eq!(refused.unwrap_err(), Rejection::NonEmptyGroup);
    world.fail_one(Rejection::PolicyViolation);
    world.commit_all();
    assert_eq!(world.joined(waiting).member_id, "a2");
}

#[test]
fn the_newest_of_two_returns_wins() {
    let mut world = World::new();
    two(&mut world);
    world.commits = false;
    let first = returns(&mut world, "a2", "a");
    let second = returns(&mut world, "a3", "a");
    let third = returns(&mut world, "a4", "a");
    assert_eq!(world.rejection(second), Rejection::FencedInstanceId);
    world.commit_all();
    let (first, third) = (world.joined(first), world.joined(third));
    let (first, third) = (fence(&first, Some("a")), fence(&third, Some("a")));
    assert_eq!(
        world.heartbeat("g", &first),
        Err(Rejection::FencedInstanceId)
    );
    assert_eq!(world.heartbeat("g", &third), Ok(()));
}

#[test]
fn a_leader_cannot_assign_while_a_static_id_changes_hands() {
    let mut world = World::new();
    two(&mut world);
    // A rebalance up to the point where the leader is to assign.
    let rejoin = |name: &str, instance: &str| Join {
        member_id: name.to_string(),
        ..static_join(name, instance)
    };
    let a = world.ask("g", GroupAction::Join(rejoin("a1", "a")));
    let b = world.ask("g", GroupAction::Join(rejoin("b1", "b")));
    let a = fence(&world.joined(a), Some("a"));
    world.joined(b);
    assert_eq!(world.state("g"), GroupState::CompletingRebalance);
    world.commits = false;
    let back = returns(&mut world, "b2", "b");
    let refused = world.ask_now("g", sync(&a, vec![]));
    assert_eq!(refused.unwrap_err(), Rejection::RebalanceInProgress);
    world.commit_all();
    assert_eq!(world.state("g"), GroupState::PreparingRebalance);
    assert!(world.is_waiting(back));
}

#[test]
fn an_administrator_removes_a_static_member_by_its_static_id() {
    let mut world = World::new();
    two(&mut world);
    let leaving = LeavingMember {
        member_id: String::new(),
        instance_id: Some("b".to_string()),
    };
    world
        .ask_now("g", GroupAction::Leave(vec![leaving]))
        .unwrap();
    assert_eq!(world.describe("g").members.len(), 1);
}

fn members_of(description: &GroupDescription) -> Vec<(&str, &Bytes)> {
    let members = description.members.iter();
    members
        .map(|member| (member.member_id.as_str(), &member.assignment))
        .collect()
}
