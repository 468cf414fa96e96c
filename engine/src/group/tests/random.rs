//! Random lives: whatever happens, the log rebuilds what was shown.

use proptest::prelude::*;

use super::*;

/// What may happen next. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Join {
        group: u8,
        name: u8,
        instance: Option<u8>,
        required: bool,
    },
    Rejoin {
        group: u8,
        member: u8,
        changed: bool,
    },
    Sync {
        group: u8,
        member: u8,
    },
    Heartbeat {
        group: u8,
        member: u8,
    },
    Leave {
        group: u8,
        member: u8,
    },
    Commit {
        group: u8,
        member: Option<u8>,
        topic: u8,
        offset: u16,
    },
    Delete {
        group: u8,
    },
    DeleteOffsets {
        group: u8,
        topic: u8,
    },
    ForgetTopic {
        topic: u8,
    },
    Cancel {
        request: u8,
    },
    CommitAppends {
        count: u8,
    },
    FailAppend,
    Pass {
        ms: u32,
    },
    Snapshot,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let number = any::<u8>;
    prop_oneof![
        6 => (number(), number(), proptest::option::of(0_u8..3), any::<bool>())
            .prop_map(|(group, name, instance, required)| Step::Join { group, name, instance, required }),
        6 => (number(), number(), any::<bool>())
            .prop_map(|(group, member, changed)| Step::Rejoin { group, member, changed }),
        8 => (number(), number()).prop_map(|(group, member)| Step::Sync { group, member }),
        3 => (number(), number()).prop_map(|(group, member)| Step::Heartbeat { group, member }),
        2 => (number(), number()).prop_map(|(group, member)| Step::Leave { group, member }),
        8 => (number(), proptest::option::weighted(0.7, number()), number(), any::<u16>())
            .prop_map(|(group, member, topic, offset)| Step::Commit { group, member, topic, offset }),
        1 => number().prop_map(|group| Step::Delete { group }),
        1 => (number(), number()).prop_map(|(group, topic)| Step::DeleteOffsets { group, topic }),
        1 => number().prop_map(|topic| Step::ForgetTopic { topic }),
        1 => number().prop_map(|request| Step::Cancel { request }),
        16 => number().prop_map(|count| Step::CommitAppends { count }),
        2 => Just(Step::FailAppend),
        4 => (0_u32..40_000).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Restart),
    ]
}

/// A world with what the members of its groups believe.
struct Life {
    world: World,
    asked: Vec<RequestId>,
    fences: Vec<MemberFence>,
    /// The newest generation told to anybody, by group incarnation.
    told: BTreeMap<String, Generation>,
}

impl Life {
    fn group(number: u8) -> String {
        format!("g{}", number % 2)
    }

    fn member(&self, number: u8) -> MemberFence {
        let unknown = MemberFence {
            generation: Generation(1),
            member_id: "nobody".to_string(),
            instance_id: None,
        };
        let count = self.fences.len().max(1);
        self.fences
            .iter()
            .rev()
            .nth(usize::from(number) % count.min(6))
            .cloned()
            .unwrap_or(unknown)
    }

    fn ask(&mut self, group: &str, action: GroupAction) {
        let instance = match &action {
            GroupAction::Join(join) => join.instance_id.clone(),
            _ => None,
        };
        let id = self.world.ask(group, action);
        self.asked.push(id);
        let _unused = instance;
    }

    /// Learns from new answers.
    fn read_answers(&mut self) {
        for (_, answer) in core::mem::take(&mut self.world.answers) {
            if let Ok(GroupResponse::Joined(joined)) = answer {
                let instance = joined
                    .member_id
                    .split_once('+')
                    .map(|(_, instance)| instance);
                self.fences.push(fence(&joined, instance));
            }
        }
    }

    fn live(&mut self, number: usize, step: &Step) {
        match step {
            Step::Join {
                group,
                name,
                instance,
                required,
            } => {
                let name = match instance {
                    None => format!("m{number}-{name}"),
                    Some(instance) => format!("m{number}-{name}+i{instance}"),
                };
                let join = Join {
                    instance_id: instance.map(|instance| format!("i{instance}")),
                    member_id_required: *required,
                    rebalance_timeout_ms: 15_000,
                    ..static_join(&name, "")
                };
                self.ask(&Self::group(*group), GroupAction::Join(join));
            }
            Step::Rejoin {
                group,
                member,
                changed,
            } => {
                let fence = self.member(*member);
                let join = Join {
                    member_id: fence.member_id,
                    instance_id: fence.instance_id,
                    ..static_join("unused", "")
                };
                let join = if *changed {
                    offering(join, &["range", "sticky"])
                } else {
                    join
                };
                self.ask(&Self::group(*group), GroupAction::Join(join));
            }
            Step::Sync { group, member } => {
                let fence = self.member(*member);
                let known = self.fences.iter().map(|fence| fence.member_id.clone());
                let text = Bytes::from(format!("{number}"));
                let assignments = known.map(|id| (id, text.clone())).collect();
                self.ask(&Self::group(*group), sync(&fence, assignments));
            }
            Step::Heartbeat { group, member } => {
                let fence = self.member(*member);
                self.ask(&Self::group(*group), GroupAction::Heartbeat(fence));
            }
            Step::Leave { group, member } => {
                let id = self.member(*member).member_id;
                self.ask(&Self::group(*group), leave(&id));
            }
            Step::Commit {
                group,
                member,
                topic,
                offset,
            } => {
                let fence = member.map(|member| self.member(member));
                let at = partition(topic % 3, u32::from(*topic) / 64);
                let action = commit(fence.as_ref(), at, u64::from(*offset));
                self.ask(&Self::group(*group), action);
            }
            Step::Delete { group } => self.ask(&Self::group(*group), GroupAction::Delete),
            Step::DeleteOffsets { group, topic } => {
                let partitions = vec![partition(topic % 3, 0), partition(topic % 3, 1)];
                self.ask(&Self::group(*group), GroupAction::DeleteOffsets(partitions));
            }
            Step::ForgetTopic { topic } => {
                let mut out = Vec::new();
                let topic = topic_id(topic % 3);
                self.world
                    .coordinator
                    .forget_topic(topic, self.world.now, &mut out);
                self.world.perform(out);
            }
            Step::Cancel { request } => {
                let count = self.asked.len().max(1);
                if let Some(id) = self.asked.get(usize::from(*request) % count) {
                    self.world.coordinator.cancel(*id, self.world.now);
                }
            }
            Step::CommitAppends { count } => {
                for _ in 0..*count % 8 {
                    self.world.commit_one();
                }
            }
            Step::FailAppend => drop(self.world.fail_one(Rejection::PolicyViolation)),
            Step::Pass { ms } => self.world.pass_ms(u64::from(*ms)),
            Step::Snapshot => {
                let mut out = Vec::new();
                self.world
                    .coordinator
                    .begin_snapshot(self.world.now, &mut out);
                self.world.perform(out);
            }
            Step::Restart => {
                self.world.answers.clear();
                self.world.restart();
            }
        }
        self.read_answers();
        self.check();
    }

    /// What always holds.
    fn check(&mut self) {
        let coordinator = &self.world.coordinator;
        let mut bytes = 0;
        for (id, group) in &coordinator.groups {
            assert_eq!(group.bytes, group.count_bytes(), "{id}");
            bytes += group.bytes;
            let joining = group
                .members
                .values()
                .filter(|member| member.join_waiting.is_some());
            assert_eq!(group.joining, joining.count());
            for (instance, holder) in &group.instances {
                assert_eq!(group.members[holder].instance_id.as_ref(), Some(instance));
            }
            let named = group
                .members
                .values()
                .filter(|member| member.instance_id.is_some());
            assert_eq!(group.instances.len(), named.count());
            if !group.members.is_empty() {
                let shared = group
                    .offers
                    .values()
                    .any(|count| *count == group.members.len());
                assert!(shared, "members of {id} share no protocol");
                assert!(
                    group
                        .leader
                        .as_ref()
                        .is_some_and(|leader| group.members.contains_key(leader))
                );
            }
            assert_eq!(
                group.members.is_empty(),
                group.phase == rebalance::Phase::Empty
            );
            assert!(
                group.planned_wake.is_some() || group.appends_waiting > 0,
                "{id} sleeps"
            );
        }
        assert_eq!(coordinator.bytes, bytes);
        let planned = coordinator
            .groups
            .values()
            .filter(|group| group.planned_wake.is_some());
        assert_eq!(coordinator.wakes.len(), planned.count());
        let requests = coordinator.requests_waiting();
        assert!(requests <= self.asked.len());
    }
}

impl World {
    /// All groups and offsets, as shown.
    pub(super) fn everything(&mut self) -> Vec<String> {
        let names: Vec<String> = self
            .coordinator
            .groups
            .keys()
            .map(|name| name.to_string())
            .collect();
        let mut all = Vec::new();
        for name in names {
            all.push(format!(
                "{name}: {:?} {:?}",
                self.describe(&name),
                self.offsets(&name)
            ));
        }
        all
    }

    /// Offsets of all groups, and the groups between rebalances, as shown.
    fn settled(&mut self, rebalancing: &[String]) -> Vec<String> {
        let all = self.everything();
        let names: Vec<String> = self
            .coordinator
            .groups
            .keys()
            .map(|name| name.to_string())
            .collect();
        let mut settled = Vec::new();
        for (name, shown) in names.into_iter().zip(all) {
            let offsets = self.offsets(&name);
            if !rebalancing.contains(&name) {
                settled.push(shown);
            } else if !offsets.is_empty() {
                settled.push(format!("{name}: {offsets:?}"));
            }
        }
        settled
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replay_equals_live_state(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::with(Settings {
            initial_rebalance_delay_ms: 50,
            snapshot_part_bytes: 100,
            snapshot_interval_bytes: 2_000,
            ..Settings::default()
        });
        world.commits = false;
        let mut life = Life { world, asked: Vec::new(), fences: Vec::new(), told: BTreeMap::new() };
        for (number, step) in steps.iter().enumerate() {
            life.live(number, step);
        }
        let _told = &life.told;
        // Everything in flight lands, and what failed is tried again; then a new coordinator
        // reads the log.
        life.world.commit_all();
        for _ in 0..5 {
            life.world.pass_ms(1_001);
            life.world.commit_all();
        }
        life.read_answers();
        life.check();
        let rebalancing: Vec<String> = life.world.coordinator.groups.iter()
            .filter(|(_, group)| matches!(
                group.phase,
                rebalance::Phase::PreparingRebalance { .. } | rebalance::Phase::CompletingRebalance
            ) || group.recorded.is_none())
            .map(|(name, _)| name.to_string())
            .collect();
        let live = life.world.settled(&rebalancing);
        life.world.restart();
        let replayed = life.world.settled(&rebalancing);
        prop_assert_eq!(live, replayed);
    }
}
