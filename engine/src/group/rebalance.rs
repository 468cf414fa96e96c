//! The phases of a group and the steps between them.
//!
//! ```text
//! Empty --join--> PreparingRebalance --all came, or time is up--> CompletingRebalance
//!   ^                  ^   |                                        |          |
//!   |                  |   +--nobody is left--> Empty               | the      |
//!   |                  |                                            | leader's |
//!   |                  +-----a member comes, goes or changes--------+ sync is  |
//!   |                  |                                              on record|
//!   +--nobody is left--+---------------------- Stable <------------------------+
//! ```
//!
//! Invariants:
//! 1. A generation is given out once: before its first member hears of it, the log says that it
//!    may have been given out, so no restart gives it out again. (A restart between a generation's
//!    joins and its assignment leads back to the one before, with the members and the assignment
//!    that it had; the lost one is nobody's.)
//! 2. A member hears its assignment after the log holds it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use super::outstanding::{Change, Turn};
use super::record::{Key, encode_generation};
use super::settings::{GENERATION_BLOCK, RETRY_MS};
use super::state::{Group, Member};
use crate::identity::Generation;
use crate::rejection::Rejection;
use crate::request::{GroupResponse, Joined, JoinedMember, RequestId};
use crate::time::Monotonic;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No members.
    Empty,
    /// Members are joining.
    PreparingRebalance {
        /// Who has not joined by then is left behind.
        deadline: Monotonic,
        /// Set while a group that was empty waits for further members.
        gathering: Option<Gathering>,
    },
    /// The generation has begun and waits for its leader's assignment.
    CompletingRebalance,
    /// Everyone's assignment is on record.
    Stable,
}

/// A group that was empty waits a little for those who start together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gathering {
    /// No extension goes past this.
    ends: Monotonic,
    /// Somebody came since the last deadline.
    grew: bool,
}

impl Group {
    /// The longest time that a member may take to join again, in milliseconds.
    fn rebalance_timeout_ms(&self) -> u64 {
        let longest = self
            .members
            .values()
            .map(|member| member.rebalance_timeout_ms)
            .max();
        u64::from(longest.unwrap_or(0))
    }

    /// A member is new or has changed what it offers: everybody must join again.
    pub(super) fn rebalance(&mut self, turn: &mut Turn<'_>) {
        match self.phase {
            Phase::PreparingRebalance {
                deadline,
                gathering,
            } => {
                let gathering = gathering.map(|gathering| Gathering {
                    grew: true,
                    ..gathering
                });
                self.phase = Phase::PreparingRebalance {
                    deadline,
                    gathering,
                };
                self.complete_join_if_all_came(turn);
            }
            Phase::Empty | Phase::CompletingRebalance | Phase::Stable => {
                self.begin_join_phase(turn)
            }
        }
    }

    /// Members were removed.
    pub(super) fn members_changed(&mut self, turn: &mut Turn<'_>) {
        match self.phase {
            Phase::Empty => {}
            Phase::PreparingRebalance { .. } => self.complete_join_if_all_came(turn),
            Phase::CompletingRebalance | Phase::Stable => self.begin_join_phase(turn),
        }
    }

    fn begin_join_phase(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let timeout_ms = self.rebalance_timeout_ms();
        let delay_ms = turn.settings.initial_rebalance_delay_ms.min(timeout_ms);
        let gathers = self.phase == Phase::Empty && delay_ms > 0;
        let deadline = now.plus_ms(if gathers { delay_ms } else { timeout_ms });
        self.phase = Phase::PreparingRebalance {
            deadline,
            gathering: gathers.then(|| Gathering {
                ends: now.plus_ms(timeout_ms),
                grew: false,
            }),
        };
        self.sync_deadline = None;
        self.assigning = false;
        self.empty_since_ms = None;
        self.empty_unrecorded = false;
        self.refuse_syncs(Rejection::RebalanceInProgress, turn);
        self.wake_by(deadline);
        if !self.members.is_empty() {
            self.reserve_generation(turn);
        }
        self.complete_join_if_all_came(turn);
    }

    /// Takes the waiting requests of all members of one kind, and starts their sessions anew.
    fn take_waiting(
        &mut self,
        now: Monotonic,
        take: impl Fn(&mut Member) -> Option<RequestId>,
    ) -> Vec<(String, RequestId)> {
        let mut taken = Vec::new();
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            if let Some(request) = self.change_member(&id, &take).flatten() {
                self.renew_session(&id, now);
                taken.push((id, request));
            }
        }
        taken
    }

    /// Refuses waiting syncs.
    pub(super) fn refuse_syncs(&mut self, rejection: Rejection, turn: &mut Turn<'_>) {
        let waiting = self.take_waiting(turn.now.monotonic, |member| member.sync_waiting.take());
        for (_, id) in waiting {
            turn.reject(id, rejection);
        }
    }

    /// Refuses waiting joins, and gives everybody the whole time to join again.
    fn send_joins_away(&mut self, rejection: Rejection, turn: &mut Turn<'_>) {
        let waiting = self.take_waiting(turn.now.monotonic, |member| member.join_waiting.take());
        for (_, id) in waiting {
            turn.reject(id, rejection);
        }
        if matches!(self.phase, Phase::PreparingRebalance { .. }) {
            let timeout_ms = self.rebalance_timeout_ms().max(RETRY_MS);
            self.extend_join_phase(timeout_ms, turn);
        }
    }

    /// The generation that the next rebalance begins.
    fn next_generation(&self) -> Generation {
        let last = self.generation.max(self.spent).get();
        Generation(if last >= i32::MAX as u32 { 1 } else { last + 1 })
    }

    /// Puts on record that the next generation may be given out, unless it is.
    fn reserve_generation(&mut self, turn: &mut Turn<'_>) {
        let next = self.next_generation();
        if next <= self.reserved || self.reserving {
            return;
        }
        let upto = Generation(
            next.get()
                .saturating_add(GENERATION_BLOCK - 1)
                .min(i32::MAX as u32),
        );
        let record = Key::Generation(String::from(&*self.id)).with(encode_generation(upto));
        match self.append(vec![record], None, Change::Generations(upto), turn) {
            Ok(_) => self.reserving = true,
            Err(rejection) => self.send_joins_away(rejection, turn),
        }
    }

    /// The log's word on a reservation.
    pub(super) fn generations_reserved(
        &mut self,
        upto: Generation,
        result: Result<(), Rejection>,
        turn: &mut Turn<'_>,
    ) {
        self.reserving = false;
        match result {
            Ok(()) => {
                self.reserved = self.reserved.max(upto);
                self.complete_join_if_all_came(turn);
                self.end_join_phase_if_due(turn);
            }
            Err(rejection) => self.send_joins_away(rejection, turn),
        }
    }

    /// Ends the join phase early once nobody is missing.
    pub(super) fn complete_join_if_all_came(&mut self, turn: &mut Turn<'_>) {
        let Phase::PreparingRebalance { gathering, .. } = self.phase else {
            return;
        };
        let all_came =
            gathering.is_none() && self.given_ids.is_empty() && self.joining == self.members.len();
        if self.members.is_empty() {
            self.become_empty(turn);
        } else if all_came {
            self.begin_generation(turn);
        }
    }

    /// Ends the join phase, or a stretch of gathering, when its time is up.
    pub(super) fn end_join_phase_if_due(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let Phase::PreparingRebalance {
            deadline,
            gathering,
        } = self.phase
        else {
            return;
        };
        if now < deadline {
            return;
        }
        match gathering {
            Some(Gathering { ends, grew: true }) if now < ends => {
                let delay_ms = turn.settings.initial_rebalance_delay_ms;
                let deadline = now.plus_ms(delay_ms).min(ends);
                let gathering = Some(Gathering { ends, grew: false });
                self.phase = Phase::PreparingRebalance {
                    deadline,
                    gathering,
                };
                self.wake_by(deadline);
            }
            _ => self.begin_generation(turn),
        }
    }

    /// Keeps the join phase open for a while longer.
    fn extend_join_phase(&mut self, by_ms: u64, turn: &Turn<'_>) {
        let deadline = turn.now.monotonic.plus_ms(by_ms);
        self.phase = Phase::PreparingRebalance {
            deadline,
            gathering: None,
        };
        self.wake_by(deadline);
    }

    /// Begins the next generation with those who came. A static member that did not stays until
    /// its session ends (KIP-345); others are left behind.
    fn begin_generation(&mut self, turn: &mut Turn<'_>) {
        let left_behind: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| member.join_waiting.is_none() && member.instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in left_behind {
            self.remove_member(&id, turn);
        }
        if self.members.is_empty() {
            return self.become_empty(turn);
        }
        if self.joining == 0 {
            let timeout_ms = self.rebalance_timeout_ms().max(RETRY_MS);
            return self.extend_join_phase(timeout_ms, turn);
        }
        if self.next_generation() > self.reserved {
            self.extend_join_phase(RETRY_MS, turn);
            return self.reserve_generation(turn);
        }
        self.elect_leader();
        self.protocol = self.choose_protocol();
        self.generation = self.next_generation();
        self.spent = self.generation;
        self.phase = Phase::CompletingRebalance;
        let deadline = turn
            .now
            .monotonic
            .plus_ms(self.rebalance_timeout_ms().max(RETRY_MS));
        self.sync_deadline = Some(deadline);
        self.wake_by(deadline);
        self.answer_joins(turn);
    }

    /// Keeps the leader if it came, else takes the first that did.
    fn elect_leader(&mut self) {
        let came = |id: &String| {
            self.members
                .get(id)
                .is_some_and(|member| member.join_waiting.is_some())
        };
        if !self.leader.as_ref().is_some_and(came) {
            self.leader = self.members.keys().find(|id| came(id)).cloned();
        }
    }

    /// The protocol that most members prefer among those that all of them offer; the first by
    /// name if several are.
    pub(super) fn choose_protocol(&self) -> String {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        let offered_by_all = |name: &&str| self.offers.get(*name) == Some(&self.members.len());
        for member in self.members.values() {
            let mut preferred = member.protocols.iter().map(|(name, _)| name.as_str());
            if let Some(vote) = preferred.find(offered_by_all) {
                *votes.entry(vote).or_default() += 1;
            }
        }
        let most = votes.values().max().copied().unwrap_or(0);
        let winner = votes.into_iter().find(|(_, count)| *count == most);
        winner.map_or_else(String::new, |(name, _)| String::from(name))
    }

    fn answer_joins(&mut self, turn: &mut Turn<'_>) {
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            self.change_member(&id, |member| {
                member.assignment = Bytes::new();
                member.synced = false;
            });
            self.renew_session(&id, turn.now.monotonic);
        }
        let waiting = self.take_waiting(turn.now.monotonic, |member| member.join_waiting.take());
        for (member_id, request) in waiting {
            self.answer_join(request, &member_id, false, turn);
        }
    }

    /// Tells a member of the present generation.
    pub(super) fn answer_join(
        &mut self,
        request: RequestId,
        member_id: &str,
        skip_assignment: bool,
        turn: &mut Turn<'_>,
    ) {
        let generation = self.generation;
        if let Some(member) = self.members.get_mut(member_id) {
            member.generation = Some(generation);
        }
        let leader = self.leader.clone().unwrap_or_default();
        let members = if leader == member_id {
            self.joined_members()
        } else {
            Vec::new()
        };
        let joined = Joined {
            generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader,
            member_id: String::from(member_id),
            members,
            skip_assignment,
        };
        turn.reply(request, Ok(GroupResponse::Joined(joined)));
    }

    fn joined_members(&self) -> Vec<JoinedMember> {
        let members = self.members.iter().map(|(id, member)| JoinedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(&self.protocol),
        });
        members.collect()
    }

    /// Nobody is left. The log must say so before anything rests on it: see
    /// [`Group::empty_record`].
    fn become_empty(&mut self, turn: &mut Turn<'_>) {
        self.phase = Phase::Empty;
        self.generation = self.next_generation();
        self.spent = self.generation;
        self.protocol = String::new();
        self.leader = None;
        self.sync_deadline = None;
        self.empty_since_ms = Some(turn.clock.stamp_ms(turn.now));
        self.empty_unrecorded = true;
        self.emptying = false;
        self.record_empty(turn);
        self.plan_wakes(turn);
    }

    /// Puts on record that the group is empty. A failure is made good later.
    pub(super) fn record_empty(&mut self, turn: &mut Turn<'_>) {
        if self.emptying || self.deleting {
            return;
        }
        let value = self.image().encode();
        let record = self.record(value.clone());
        let change = Change::Emptied(self.generation);
        match self.append(vec![record], Some(value), change, turn) {
            Ok(_) => self.emptying = true,
            Err(_) => self.wake_by(turn.now.monotonic.plus_ms(RETRY_MS)),
        }
    }

    /// The log's word on a record that says that the group is empty since `generation`.
    pub(super) fn emptied(&mut self, generation: Generation, committed: bool, turn: &Turn<'_>) {
        if self.phase != Phase::Empty || self.generation != generation {
            return;
        }
        self.emptying = false;
        if committed {
            self.empty_unrecorded = false;
        } else {
            self.wake_by(turn.now.monotonic.plus_ms(RETRY_MS));
        }
    }
}
