//! Random lives: whatever happens, the log rebuilds what was shown.

use proptest::prelude::*;

use super::*;

/// What may happen next. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Join {
        group: u8,
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
    Drive {
        group: u8,
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
        6 => (number(), proptest::option::of(0_u8..3), any::<bool>())
            .prop_map(|(group, instance, required)| Step::Join { group, instance, required }),
        6 => (number(), number(), any::<bool>())
            .prop_map(|(group, member, changed)| Step::Rejoin { group, member, changed }),
        8 => (number(), number()).prop_map(|(group, member)| Step::Sync { group, member }),
        4 => number().prop_map(|group| Step::Drive { group }),
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

/// A world, what the members of its groups believe, and what must hold of it.
struct Life {
    world: World,
    asked: BTreeMap<RequestId, Asked>,
    /// Fences that members were told, by group, the newest last.
    fences: BTreeMap<String, Vec<MemberFence>>,
    /// The generations told to anybody, by group.
    told: BTreeMap<String, BTreeSet<Generation>>,
    /// The newest generation of which anybody got an assignment, by group.
    assigned: BTreeMap<String, Generation>,
    /// Who was told last that it holds a static id, by group and static id.
    holders: BTreeMap<(String, String), String>,
}

/// A request whose answer is still to be judged.
struct Asked {
    group: String,
    generation: Generation,
    /// A commit of one who had been overtaken when it asked.
    overtaken: bool,
}

impl Life {
    fn new(world: World) -> Self {
        Self {
            world,
            asked: BTreeMap::new(),
            fences: BTreeMap::new(),
            told: BTreeMap::new(),
            assigned: BTreeMap::new(),
            holders: BTreeMap::new(),
        }
    }

    fn group(number: u8) -> String {
        format!("g{}", number % 2)
    }

    /// One of those who were told something lately.
    fn member(&self, group: &str, number: u8) -> MemberFence {
        let fences = self.fences.get(group).map_or(&[][..], Vec::as_slice);
        let lately = fences.len().clamp(1, 6);
        let place = fences.iter().rev().nth(usize::from(number) % lately);
        place.cloned().unwrap_or(MemberFence {
            generation: Generation(1),
            member_id: "nobody".to_string(),
            instance_id: None,
        })
    }

    fn is_overtaken(&self, group: &str, fence: &MemberFence) -> bool {
        let newer = self
            .assigned
            .get(group)
            .is_some_and(|newest| fence.generation < *newest);
        let replaced = fence.instance_id.clone().is_some_and(|instance| {
            let holder = self.holders.get(&(group.to_string(), instance));
            holder.is_some_and(|holder| *holder != fence.member_id)
        });
        newer || replaced
    }

    fn ask(&mut self, group: &str, action: GroupAction) {
        let (generation, overtaken) = match &action {
            GroupAction::Sync(sync) => (sync.fence.generation, false),
            GroupAction::Commit(commit) => {
                let fence = commit.fence.as_ref();
                let overtaken = fence.is_some_and(|fence| self.is_overtaken(group, fence));
                (Generation::ZERO, overtaken)
            }
            _ => (Generation::ZERO, false),
        };
        let id = self.world.ask(group, action);
        let asked = Asked {
            group: group.to_string(),
            generation,
            overtaken,
        };
        self.asked.insert(id, asked);
        self.read_answers();
    }

    /// Learns from new answers, and judges them.
    fn read_answers(&mut self) {
        for id in core::mem::take(&mut self.world.answered) {
            let Some(answer) = self.world.answers.remove(&id) else {
                continue;
            };
            let asked = self.asked.remove(&id).unwrap();
            let Ok(answer) = answer else {
                continue;
            };
            let group = asked.group;
            let fences = self.fences.entry(group.clone()).or_default();
            match answer {
                GroupResponse::MemberIdRequired(member_id) => fences.push(MemberFence {
                    generation: Generation::ZERO,
                    member_id,
                    instance_id: None,
                }),
                GroupResponse::Joined(joined) => {
                    // A restart may lead back to the one on record; a new one is above all.
                    let told = self.told.entry(group.clone()).or_default();
                    let newest = told.last().copied().unwrap_or_default();
                    let is_new = told.insert(joined.generation);
                    assert!(
                        !is_new || joined.generation > newest,
                        "a generation was given twice"
                    );
                    let instance = joined
                        .member_id
                        .split_once('+')
                        .map(|(_, instance)| instance);
                    fences.push(fence(&joined, instance));
                    if let Some(instance) = instance {
                        let place = (group, instance.to_string());
                        self.holders.insert(place, joined.member_id);
                    }
                }
                GroupResponse::Synced { .. } => {
                    let newest = self.assigned.entry(group).or_default();
                    *newest = asked.generation.max(*newest);
                }
                GroupResponse::Committed(results) => {
                    let stored = results.iter().any(|(_, result)| result.is_ok());
                    assert!(
                        !(asked.overtaken && stored),
                        "an overtaken member moved an offset"
                    );
                }
                _ => {}
            }
        }
        // A group that is gone begins anew, with other member ids.
        let groups = &self.world.coordinator.groups;
        let is_there = |group: &String| groups.contains_key(group.as_str());
        self.told.retain(|group, _| is_there(group));
        self.assigned.retain(|group, _| is_there(group));
        self.holders.retain(|(group, _), _| is_there(group));
    }

    /// Everybody joins again and syncs.
    fn drive(&mut self, number: usize, group: &str) {
        let members = self.world.describe(group).members;
        for member in &members {
            let join = Join {
                member_id: member.member_id.clone(),
                instance_id: member.instance_id.clone(),
                rebalance_timeout_ms: 15_000,
                ..static_join("unused", "")
            };
            self.ask(group, GroupAction::Join(join));
        }
        self.world.commit_all();
        self.world.pass_ms(60);
        self.read_answers();
        for member in self.world.describe(group).members {
            self.sync(number, group, |fence| fence.member_id == member.member_id);
        }
    }

    fn sync(&mut self, number: usize, group: &str, is_asker: impl Fn(&MemberFence) -> bool) {
        let fences = self.fences.get(group).cloned().unwrap_or_default();
        let Some(asker) = fences.iter().rev().find(|fence| is_asker(fence)) else {
            return;
        };
        let text = Bytes::from(format!("assigned in step {number}"));
        let assignments = fences
            .iter()
            .map(|fence| (fence.member_id.clone(), text.clone()));
        self.ask(group, sync(asker, assignments.collect()));
    }

    fn live(&mut self, number: usize, step: &Step) {
        match step {
            Step::Join {
                group,
                instance,
                required,
            } => {
                let name = match instance {
                    None => format!("m{number}"),
                    Some(instance) => format!("m{number}+i{instance}"),
                };
                let join = Join {
                    instance_id: instance.map(|instance| format!("i{instance}")),
                    member_id_required: *required,
                    rebalance_timeout_ms: 15_000,
                    ..with_protocols(static_join(&name, ""), number, *required)
                };
                self.ask(&Self::group(*group), GroupAction::Join(join));
            }
            Step::Rejoin {
                group,
                member,
                changed,
            } => {
                let group = Self::group(*group);
                let fence = self.member(&group, *member);
                let join = Join {
                    member_id: fence.member_id,
                    instance_id: fence.instance_id,
                    ..with_protocols(static_join("unused", ""), number, *changed)
                };
                self.ask(&group, GroupAction::Join(join));
            }
            Step::Sync { group, member } => {
                let group = Self::group(*group);
                let asker = self.member(&group, *member);
                self.sync(number, &group, |fence| *fence == asker);
            }
            Step::Drive { group } => self.drive(number, &Self::group(*group)),
            Step::Heartbeat { group, member } => {
                let group = Self::group(*group);
                let fence = self.member(&group, *member);
                self.ask(&group, GroupAction::Heartbeat(fence));
            }
            Step::Leave { group, member } => {
                let group = Self::group(*group);
                let id = self.member(&group, *member).member_id;
                self.ask(&group, leave(&id));
            }
            Step::Commit {
                group,
                member,
                topic,
                offset,
            } => {
                let group = Self::group(*group);
                let fence = member.map(|member| self.member(&group, member));
                let at = partition(topic % 3, u32::from(*topic) / 64);
                let action = commit(fence.as_ref(), at, u64::from(*offset));
                self.ask(&group, action);
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
                let id = self
                    .asked
                    .keys()
                    .nth(usize::from(*request) % count)
                    .copied();
                if let Some(id) = id {
                    self.world.coordinator.cancel(id, self.world.now);
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
                self.world.restart();
                self.asked.clear();
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

/// Offers that mostly, and not always, agree.
fn with_protocols(join: Join, number: usize, changed: bool) -> Join {
    match (changed, number % 3) {
        (false, _) => join,
        (true, 0) => offering(join, &["sticky"]),
        (true, 1) => offering(join, &["range", "sticky"]),
        (true, _) => offering(join, &["sticky", "range", "sticky"]),
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
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replay_equals_live_state(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::with(Settings {
            initial_rebalance_delay_ms: 50,
            snapshot_part_bytes: 100,
            snapshot_interval_bytes: 2_000,
            ..Settings::default()
        });
        world.commits = false;
        let mut life = Life::new(world);
        for (number, step) in steps.iter().enumerate() {
            life.live(number, step);
        }
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
        let newest = life.world.log_start;
        for start in [newest, newest.saturating_sub(1), newest / 2, 0] {
            life.world.log_start = start;
            life.world.restart();
            let replayed = life.world.settled(&rebalancing);
            prop_assert_eq!(&live, &replayed);
        }
    }
}
