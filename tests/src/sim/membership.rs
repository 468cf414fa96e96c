//! Members of groups: they join, take their part, commit, fall asleep past their sessions, and come
//! back; some commit without being members.

use std::collections::BTreeMap;

use bytes::Bytes;
use corelog_engine::effect::Event;
use corelog_engine::identity::{Generation, Offset, PartitionId};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    Answer, Commit, GroupAction, GroupRequest, GroupResponse, Join, LeavingMember, MemberFence,
    OffsetToCommit, OffsetsWanted, Request, Response, Sync,
};

use super::asked::Asked;
use super::chance::Chance;
use super::clients::{mismatched, unexpected};
use super::group_ledger::MustRefuse;
use super::violation::{Checked, Violation};
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// Not a member, or to join again.
    Outside,
    /// An answer to a join or sync is awaited.
    Waiting,
    /// Has joined and is to sync.
    Joined,
    /// Has its part.
    Inside,
}

/// A member of a group, or one who only commits.
#[derive(Debug)]
pub(super) struct Member {
    group: &'static str,
    /// Never joins.
    is_alone: bool,
    wants_id: bool,
    /// Kept over restarts of the client.
    static_id: Option<String>,
    session_ms: u32,
    stand: Stand,
    member_id: String,
    generation: u32,
    leads: bool,
    others: Vec<String>,
    /// A fence that was good once.
    old_fence: Option<MemberFence>,
    /// When it last asked or was answered, in microseconds.
    last_heard_us: u64,
    sleeps_until_us: u64,
    joins: u64,
    number: u64,
}

/// Names of all groups.
const GROUPS: [&str; 3] = ["billing", "search", "fixed"];
/// The group whose members have static ids.
const FIXED: &str = "fixed";

impl Member {
    pub(super) fn new(number: u64, chance: &mut Chance) -> Self {
        let is_alone = chance.one_in(4);
        let group = match is_alone {
            true => "alone",
            false => chance.pick(&GROUPS),
        };
        Self {
            group,
            is_alone,
            wants_id: chance.one_in(2),
            static_id: (group == FIXED).then(|| format!("static-{number}")),
            session_ms: chance.pick(&[500, 2_000, 10_000]),
            stand: Stand::Outside,
            member_id: String::new(),
            generation: 0,
            leads: false,
            others: Vec::new(),
            old_fence: None,
            last_heard_us: 0,
            sleeps_until_us: 0,
            joins: 0,
            number,
        }
    }

    pub(super) fn rejoin(&mut self) {
        self.stand = Stand::Outside;
    }

    pub(super) fn group(&self) -> &'static str {
        self.group
    }

    /// Whether it has its part, or never wants one.
    pub(super) fn is_settled(&self) -> bool {
        self.is_alone || self.stand == Stand::Inside
    }

    fn fence(&self) -> MemberFence {
        MemberFence {
            generation: Generation(self.generation),
            member_id: self.member_id.clone(),
            instance_id: self.static_id.clone(),
        }
    }
}

impl World {
    pub(super) fn take_part(&mut self, client: usize) -> Checked {
        let now_us = self.now_us;
        let Some(member) = self.clients.member(client) else {
            return Ok(());
        };
        if member.sleeps_until_us > now_us {
            return Ok(());
        }
        if member.stand == Stand::Waiting {
            return self.wait_or_leave(client);
        }
        if member.is_alone {
            return match self.is_ending {
                true => Ok(()),
                false if self.chance.one_in(3) => self.ask_offsets(client, "alone"),
                false => self.commit_offset(client, None),
            };
        }
        match member.stand {
            Stand::Outside => self.join(client),
            Stand::Joined => self.sync(client),
            Stand::Inside => self.live(client),
            Stand::Waiting => Ok(()),
        }
    }

    /// The connection of a waiting member breaks now and then; nobody answers it any more.
    fn wait_or_leave(&mut self, client: usize) -> Checked {
        if self.is_ending || !self.chance.one_in(20) {
            return Ok(());
        }
        let is_its =
            |asked: &Asked| matches!(asked, Asked::Membership { client: of } if *of == client);
        let waiting = self.requests.iter().find(|(_, asked)| is_its(asked));
        let Some(id) = waiting.map(|(id, _)| *id) else {
            return Ok(());
        };
        self.requests.remove(&id);
        if let Some(member) = self.clients.member(client) {
            member.rejoin();
        }
        self.note(&[20, id.0], || format!("gives up {}", id.0));
        self.step(Event::Hurry(id))
    }

    fn join(&mut self, client: usize) -> Checked {
        let Some(member) = self.clients.member(client) else {
            return Ok(());
        };
        member.joins += 1;
        member.stand = Stand::Waiting;
        let join = Join {
            member_id: member.member_id.clone(),
            new_member_id: format!("member-{}-{}", member.number, member.joins),
            instance_id: member.static_id.clone(),
            member_id_required: member.wants_id,
            session_timeout_ms: member.session_ms,
            rebalance_timeout_ms: 3_000,
            protocol_type: String::from("consumer"),
            protocols: vec![(String::from("range"), Bytes::from_static(b"all"))],
            client_id: String::from("simulated"),
            client_host: String::from("nowhere"),
        };
        self.ask_group(
            client,
            GroupAction::Join(join),
            Asked::Membership { client },
        )
    }

    fn sync(&mut self, client: usize) -> Checked {
        let Some(member) = self.clients.member(client) else {
            return Ok(());
        };
        member.stand = Stand::Waiting;
        let others = std::mem::take(&mut member.others);
        let part = |id: String| (id, Bytes::from_static(b"some"));
        let sync = Sync {
            fence: member.fence(),
            protocol_type: None,
            protocol: None,
            assignments: match member.leads {
                true => others.into_iter().map(part).collect(),
                false => Vec::new(),
            },
        };
        self.ask_group(
            client,
            GroupAction::Sync(sync),
            Asked::Membership { client },
        )
    }

    fn live(&mut self, client: usize) -> Checked {
        let now_us = self.now_us;
        let dice = self.chance.below(20);
        let nap_us = self.chance.below(4_000_000);
        let Some(member) = self.clients.member(client) else {
            return Ok(());
        };
        let group = member.group;
        let fence = member.fence();
        match dice {
            0..7 => self.ask_group(
                client,
                GroupAction::Heartbeat(fence),
                Asked::Membership { client },
            ),
            7..14 if !self.is_ending => self.commit_offset(client, Some(fence)),
            14 | 15 => self.ask_offsets(client, group),
            16 if !self.is_ending => {
                member.sleeps_until_us = now_us + nap_us;
                if member.static_id.is_some() {
                    // It starts anew and does not know who it was.
                    member.old_fence = Some(fence);
                    member.member_id = String::new();
                    member.rejoin();
                }
                Ok(())
            }
            17 if !self.is_ending => {
                let leaving = LeavingMember {
                    member_id: std::mem::take(&mut member.member_id),
                    instance_id: member.static_id.clone(),
                };
                member.stand = Stand::Outside;
                member.old_fence = Some(fence);
                let action = GroupAction::Leave(vec![leaving]);
                self.ask_group(client, action, Asked::Membership { client })
            }
            18 | 19 if !self.is_ending => match member.old_fence.clone() {
                Some(old) => self.commit_offset(client, Some(old)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn commit_offset(&mut self, client: usize, fence: Option<MemberFence>) -> Checked {
        let topics = self.control.image.topics().filter(|topic| !topic.internal);
        let all: Vec<PartitionId> = topics
            .flat_map(|topic| topic.iter().map(|(id, _)| id))
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let partition = self.chance.pick(&all);
        let number = self.groups.number();
        let must = self.must_refuse(client, fence.as_ref());
        let commit = Commit {
            fence,
            offsets: vec![OffsetToCommit {
                partition,
                offset: Offset(number),
                leader_epoch: None,
                metadata: number.to_string(),
            }],
        };
        let asked = Asked::Commit {
            client,
            partition,
            number,
            must,
        };
        self.ask_group(client, GroupAction::Commit(commit), asked)
    }

    /// Why a commit that reaches the core now must be refused.
    fn must_refuse(&mut self, client: usize, fence: Option<&MemberFence>) -> MustRefuse {
        let Some(fence) = fence else {
            return MustRefuse::No;
        };
        let now_us = self.now_us;
        let ready_us = self.life.as_ref().and_then(|life| life.ready_at);
        let Some(member) = self.clients.member(client) else {
            return MustRefuse::No;
        };
        let session_us = u64::from(member.session_ms) * 1_000;
        let is_own = member.member_id == fence.member_id;
        let heard_us = member.last_heard_us;
        let group = member.group;
        let is_replaced = member.static_id.is_some()
            && !is_own
            && !member.member_id.is_empty()
            && matches!(member.stand, Stand::Joined | Stand::Inside);
        // After a start everybody gets a full session once the log is read.
        let has_ended =
            |ready_us: u64| now_us > ready_us + session_us && now_us > heard_us + session_us;
        if self.groups.generation(group) > fence.generation.0 {
            MustRefuse::OlderGeneration
        } else if is_own && ready_us.is_some_and(has_ended) {
            MustRefuse::SessionEnded
        } else if is_replaced {
            MustRefuse::Replaced
        } else {
            MustRefuse::No
        }
    }

    pub(super) fn ask_offsets(&mut self, client: usize, group: &str) -> Checked {
        let floors = self.groups.floors(group);
        let wanted = OffsetsWanted {
            fence: None,
            partitions: None,
        };
        let action = GroupAction::Committed(wanted);
        self.ask_group(client, action, Asked::Committed { client, floors })
    }

    fn ask_group(&mut self, client: usize, action: GroupAction, asked: Asked) -> Checked {
        let now_us = self.now_us;
        let says_who = !matches!(action, GroupAction::Committed(_));
        let Some(member) = self.clients.member(client) else {
            return Ok(());
        };
        let group = member.group;
        if says_who {
            member.last_heard_us = now_us;
        }
        let Some(coordinator) = self.control.image.group_coordinator(group) else {
            return Ok(());
        };
        let request = GroupRequest {
            coordinator,
            group: group.to_string(),
            action,
        };
        self.ask(Request::Group(request), asked)
    }

    /// Whether what is known of a group counts.
    fn is_group_strict(&mut self, group: &str) -> bool {
        let coordinator = self.control.image.group_coordinator(group);
        let is_strict = coordinator.is_some_and(|partition| self.is_strict(partition));
        if !is_strict {
            self.groups.forget(group);
        }
        is_strict
    }

    pub(super) fn on_membership(&mut self, client: usize, answer: Answer) -> Checked {
        let now_us = self.now_us;
        let Some(member) = self.clients.member(client) else {
            return Ok(());
        };
        member.last_heard_us = now_us;
        let group = member.group;
        match answer {
            Ok(Response::Group(GroupResponse::Joined(joined))) => {
                member.old_fence = (member.generation > 0).then(|| member.fence());
                member.member_id = joined.member_id.clone();
                member.generation = joined.generation.0;
                member.leads = joined.leader == joined.member_id;
                member.others = joined
                    .members
                    .into_iter()
                    .map(|one| one.member_id)
                    .collect();
                member.stand = Stand::Joined;
                if self.is_group_strict(group) {
                    let generation = joined.generation.0;
                    self.groups
                        .joined(group, generation, &joined.leader, group == FIXED)?;
                }
                Ok(())
            }
            Ok(Response::Group(GroupResponse::MemberIdRequired(id))) => {
                member.member_id = id;
                member.stand = Stand::Outside;
                Ok(())
            }
            Ok(Response::Group(GroupResponse::Synced { .. })) => {
                member.stand = Stand::Inside;
                let generation = member.generation;
                if self.is_group_strict(group) {
                    self.groups.assigned(group, generation);
                }
                Ok(())
            }
            Ok(Response::Group(GroupResponse::Alive | GroupResponse::Left(_))) => Ok(()),
            Ok(other) => Err(mismatched(&other)),
            Err(Rejection::UnknownMember | Rejection::FencedInstanceId) => {
                member.member_id = String::new();
                member.stand = Stand::Outside;
                Ok(())
            }
            Err(rejection) => {
                member.stand = Stand::Outside;
                self.check_group_refusal(client, rejection)
            }
        }
    }

    fn check_group_refusal(&mut self, client: usize, rejection: Rejection) -> Checked {
        match rejection {
            Rejection::RebalanceInProgress
            | Rejection::IllegalGeneration
            | Rejection::UnknownMember
            | Rejection::FencedInstanceId
            | Rejection::CoordinatorLoading
            | Rejection::CoordinatorUnavailable
            | Rejection::NotCoordinator
            | Rejection::Overloaded => Ok(()),
            other => {
                let group = self
                    .clients
                    .member(client)
                    .map_or("", |member| member.group);
                match self.control.image.group_coordinator(group) {
                    Some(partition) => Err(unexpected(partition, other)),
                    None => Ok(()),
                }
            }
        }
    }

    pub(super) fn on_committed(
        &mut self,
        client: usize,
        partition: PartitionId,
        number: u64,
        must: MustRefuse,
        answer: Answer,
    ) -> Checked {
        let now_us = self.now_us;
        let Some(member) = self.clients.member(client) else {
            return Ok(());
        };
        member.last_heard_us = now_us;
        let group = member.group;
        let is_strict = self.is_group_strict(group);
        let outcome = match answer {
            Ok(Response::Group(GroupResponse::Committed(parts))) => match parts.first() {
                Some((of, outcome)) if *of == partition => *outcome,
                _ => return Err(Violation::new("a commit is answered part by part", group)),
            },
            Ok(other) => return Err(mismatched(&other)),
            Err(rejection) => Err(rejection),
        };
        match outcome {
            Ok(()) if is_strict => self.groups.committed(group, partition, number, must),
            Ok(()) => Ok(()),
            Err(rejection) => {
                let is_final = matches!(
                    rejection,
                    Rejection::IllegalGeneration
                        | Rejection::UnknownMember
                        | Rejection::FencedInstanceId
                        | Rejection::RebalanceInProgress
                        | Rejection::UnknownTopicOrPartition
                );
                if is_final && is_strict {
                    self.groups.refused(group, partition, number);
                }
                if let Some(member) = self.clients.member(client)
                    && !member.is_alone
                    && member.stand == Stand::Inside
                    && rejection != Rejection::RebalanceInProgress
                {
                    member.stand = Stand::Outside;
                }
                match rejection {
                    Rejection::UnknownTopicOrPartition => Ok(()),
                    other => self.check_group_refusal(client, other),
                }
            }
        }
    }

    pub(super) fn on_offsets(
        &mut self,
        client: usize,
        floors: &BTreeMap<PartitionId, u64>,
        answer: Answer,
    ) -> Checked {
        let Some(member) = self.clients.member(client) else {
            return Ok(());
        };
        let group = member.group;
        let offsets = match answer {
            Ok(Response::Group(GroupResponse::Offsets(offsets))) => offsets,
            Ok(other) => return Err(mismatched(&other)),
            Err(rejection) => return self.check_group_refusal(client, rejection),
        };
        self.offsets_shown += 1;
        if !self.is_group_strict(group) {
            return Ok(());
        }
        let mut seen = BTreeMap::new();
        for offset in offsets {
            let number = offset.metadata.parse::<u64>().unwrap_or(0);
            if number != offset.offset.get() {
                return Err(Violation::new(
                    "an offset is stored with its own note",
                    format!("{group}: {offset:?}"),
                ));
            }
            seen.insert(offset.partition, number);
        }
        let image = &self.control.image;
        let is_gone = |partition| image.partition(partition).is_none();
        self.groups.seen(group, floors, &seen, is_gone)
    }
}
