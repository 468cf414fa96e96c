//! Joins: how a member comes into its group, stays in it, and comes back.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::Settings;
use super::outstanding::{Change, Turn};
use super::rebalance::Phase;
use super::record::RecordedGroup;
use super::settings::{NAME_BYTES_MAX, PROTOCOLS_MAX};
use super::state::{Group, Member};
use crate::limits::MEMBER_BLOB_BYTES_MAX;
use crate::rejection::Rejection;
use crate::request::{GroupResponse, Join, RequestId};

/// Refuses a join that is out of bounds in itself.
pub(super) fn check_join(join: &Join, settings: &Settings) -> Result<(), Rejection> {
    if !settings
        .session_timeout_ms
        .contains(&join.session_timeout_ms)
    {
        return Err(Rejection::InvalidSessionTimeout);
    }
    if join.protocol_type.is_empty() || join.protocols.is_empty() {
        return Err(Rejection::InconsistentGroupProtocol);
    }
    let names = [&join.member_id, &join.new_member_id, &join.protocol_type];
    let too_long = names
        .into_iter()
        .chain(&join.instance_id)
        .chain(join.protocols.iter().map(|(name, _)| name))
        .any(|name| name.len() > NAME_BYTES_MAX);
    let needs_id = join.member_id.is_empty() && join.new_member_id.is_empty();
    let no_instance = join.instance_id.as_ref().is_some_and(String::is_empty);
    if too_long || needs_id || no_instance || join.protocols.len() > PROTOCOLS_MAX {
        return Err(Rejection::InvalidRequest);
    }
    let blobs = join.protocols.iter().map(|(_, metadata)| metadata.len());
    if blobs.max().unwrap_or(0) > MEMBER_BLOB_BYTES_MAX {
        return Err(Rejection::RecordListTooLarge);
    }
    Ok(())
}

impl Group {
    /// Handles a join.
    pub(super) fn join(&mut self, id: RequestId, join: Join, turn: &mut Turn<'_>) {
        match self.admit_join(&join, turn) {
            Err(rejection) => turn.reject(id, rejection),
            Ok(()) if join.member_id.is_empty() => self.join_without_id(id, join, turn),
            Ok(()) if self.given_ids.contains_key(&join.member_id) => {
                self.take_given_id(&join.member_id);
                let member_id = join.member_id.clone();
                self.join_as_new(id, member_id, join, turn);
            }
            Ok(()) => self.join_again(id, join, turn),
        }
    }

    /// Whether the join may go on: an acceptable member, a protocol shared with the others, and
    /// room.
    fn admit_join(&self, join: &Join, turn: &Turn<'_>) -> Result<(), Rejection> {
        if self.deleting {
            return Err(Rejection::CoordinatorUnavailable);
        }
        let instance = join.instance_id.as_deref();
        let is_given = self.given_ids.contains_key(&join.member_id);
        if is_given && instance.is_some() {
            return Err(Rejection::InvalidRequest);
        }
        let holder = instance.and_then(|instance| self.instances.get(instance));
        let replaced = match holder {
            Some(holder) if join.member_id.is_empty() => Some(holder.as_str()),
            _ if join.member_id.is_empty() || is_given => None,
            _ => {
                self.check_member(&join.member_id, instance)?;
                Some(join.member_id.as_str())
            }
        };
        if !self.shares_protocol(join, replaced) {
            return Err(Rejection::InconsistentGroupProtocol);
        }
        let is_new = replaced.is_none() && !is_given;
        if is_new && self.members.len() + self.given_ids.len() >= turn.settings.members_max {
            return Err(Rejection::GroupFull);
        }
        let more = Member::new(join.clone(), turn.now.monotonic).bytes(&join.new_member_id);
        let before = replaced.and_then(|id| Some(self.members.get(id)?.bytes(id)));
        let more = more.saturating_sub(before.unwrap_or(0));
        if self.members_bytes + self.returns_bytes + more > turn.settings.group_members_bytes_max {
            return Err(Rejection::GroupFull);
        }
        if turn.bytes_elsewhere + self.bytes + more > turn.settings.bytes_max {
            return Err(Rejection::Overloaded);
        }
        Ok(())
    }

    /// Whether the others offer one of the protocols, all of them.
    fn shares_protocol(&self, join: &Join, replaced: Option<&str>) -> bool {
        let replaced = replaced.and_then(|id| self.members.get(id));
        let others = self.members.len() - usize::from(replaced.is_some());
        let offered_by_others = |name: &str| {
            let offers = self.offers.get(name).copied().unwrap_or(0);
            let own = replaced.is_some_and(|member| member.offers(name));
            offers - usize::from(own) == others
        };
        let mut offered = join.protocols.iter().map(|(name, _)| name.as_str());
        others == 0 || (join.protocol_type == self.protocol_type && offered.any(offered_by_others))
    }

    /// Whether a member, or one that was when the log last heard of the group, has the static id.
    fn is_return(&self, join: &Join) -> bool {
        let Some(instance) = &join.instance_id else {
            return false;
        };
        let recorded = || {
            let image = self.recorded_image()?;
            let mut members = image.members.iter();
            members
                .find(|member| member.instance_id == join.instance_id)
                .map(drop)
        };
        self.instances.contains_key(instance) || recorded().is_some()
    }

    fn join_without_id(&mut self, id: RequestId, join: Join, turn: &mut Turn<'_>) {
        if self.is_return(&join) {
            return self.join_as_returned(id, join, turn);
        }
        let member_id = join.new_member_id.clone();
        if self.members.contains_key(&member_id) || self.given_ids.contains_key(&member_id) {
            return turn.reject(id, Rejection::InvalidRequest);
        }
        if join.member_id_required && join.instance_id.is_none() {
            let timeout_ms = u64::from(join.session_timeout_ms);
            let ends = turn.now.monotonic.plus_ms(timeout_ms);
            self.give_id(member_id.clone(), ends);
            return turn.reply(id, Ok(GroupResponse::MemberIdRequired(member_id)));
        }
        self.join_as_new(id, member_id, join, turn);
    }

    fn join_as_new(&mut self, id: RequestId, member_id: String, join: Join, turn: &mut Turn<'_>) {
        if self.members.is_empty() {
            self.protocol_type = join.protocol_type.clone();
        }
        let ends = turn
            .now
            .monotonic
            .plus_ms(u64::from(join.session_timeout_ms));
        let mut member = Member::new(join, ends);
        member.join_waiting = Some(id);
        turn.outstanding.park(id, &self.id);
        self.put_member(member_id, member);
        self.rebalance(turn);
    }

    /// A member of this group joins again.
    fn join_again(&mut self, id: RequestId, join: Join, turn: &mut Turn<'_>) {
        let member_id = join.member_id.clone();
        let unchanged = self
            .members
            .get(&member_id)
            .is_some_and(|member| member.protocols == join.protocols);
        let knows_already = match self.phase {
            Phase::CompletingRebalance => unchanged,
            Phase::Stable => unchanged && self.leader.as_ref() != Some(&member_id),
            Phase::Empty | Phase::PreparingRebalance { .. } => false,
        };
        self.renew_session(&member_id, turn.now.monotonic);
        if knows_already {
            return self.answer_join(id, &member_id, false, turn);
        }
        self.wait_for_rebalance(id, &member_id, join, turn);
    }

    /// Takes over what the member offers now, and lets its join wait for the next generation.
    fn wait_for_rebalance(
        &mut self,
        id: RequestId,
        member_id: &str,
        join: Join,
        turn: &mut Turn<'_>,
    ) {
        if self.members.len() == 1 {
            self.protocol_type = join.protocol_type;
        }
        let before = self.change_member(member_id, |member| {
            member.protocols = join.protocols;
            member.session_timeout_ms = join.session_timeout_ms;
            member.rebalance_timeout_ms = join.rebalance_timeout_ms;
            member.join_waiting.replace(id)
        });
        if let Some(before) = before.flatten() {
            turn.reject(before, Rejection::RebalanceInProgress);
        }
        turn.outstanding.park(id, &self.id);
        self.rebalance(turn);
    }

    /// A static member comes back without its member id (KIP-345): it takes its static id over
    /// from its former self. Where the log knows that one, it must first know the new one, or a
    /// restart would let the former self in again.
    fn join_as_returned(&mut self, id: RequestId, join: Join, turn: &mut Turn<'_>) {
        if self.members.contains_key(&join.new_member_id) {
            return turn.reject(id, Rejection::InvalidRequest);
        }
        let earlier = self
            .returns
            .iter()
            .position(|(_, waiting)| waiting.instance_id == join.instance_id);
        if let Some(earlier) = earlier {
            let (before, join) = self.returns.remove(earlier);
            self.count_return(&join, false);
            turn.reject(before, Rejection::FencedInstanceId);
        }
        self.count_return(&join, true);
        self.returns.push((id, join));
        turn.outstanding.park(id, &self.id);
        self.pass_static_ids_on(turn);
    }

    /// Lets all returned static members in that wait, unless the outcome of another record of
    /// the group is open: the next must stand on it.
    pub(super) fn pass_static_ids_on(&mut self, turn: &mut Turn<'_>) {
        if self.returns.is_empty() || self.records_waiting > 0 {
            return;
        }
        let mut returns = Vec::with_capacity(self.returns.len());
        for (id, join) in core::mem::take(&mut self.returns) {
            if turn.outstanding.is_waiting(id) {
                returns.push((id, join));
            } else {
                self.count_return(&join, false);
            }
        }
        let Some(mut image) = self.recorded_image() else {
            return self.static_ids_passed_on(returns, Ok(()), turn);
        };
        let mut changed = false;
        for (_, join) in &returns {
            changed |= pass_on_in_image(&mut image, join);
        }
        if !changed {
            return self.static_ids_passed_on(returns, Ok(()), turn);
        }
        let value = image.encode();
        let record = self.record(value.clone());
        let ids: Vec<RequestId> = returns.iter().map(|(id, _)| *id).collect();
        let change = Change::StaticReturns(returns);
        match self.append(vec![record], Some(value), change, turn) {
            Ok(_) => self.returning = true,
            Err(rejection) => {
                // No other return is counted: none waits, and none is being appended.
                self.bytes -= core::mem::take(&mut self.returns_bytes);
                ids.into_iter().for_each(|id| turn.reject(id, rejection));
            }
        }
    }

    /// What the log keeps of the group, if it keeps members.
    fn recorded_image(&self) -> Option<RecordedGroup> {
        let image = RecordedGroup::decode(self.recorded.as_ref()?);
        // Only what was encoded or replayed here is kept as recorded.
        assert!(image.is_ok(), "a group's own record cannot be read");
        image.ok().filter(|image| !image.members.is_empty())
    }

    /// The log's word on static ids that pass on.
    pub(super) fn static_ids_passed_on(
        &mut self,
        returns: Vec<(RequestId, Join)>,
        result: Result<(), Rejection>,
        turn: &mut Turn<'_>,
    ) {
        self.returning = false;
        for (id, join) in returns {
            self.count_return(&join, false);
            match result {
                Ok(()) => self.take_former_place(id, join, turn),
                Err(rejection) => turn.reject(id, rejection),
            }
        }
    }

    fn take_former_place(&mut self, id: RequestId, join: Join, turn: &mut Turn<'_>) {
        let instance = join.instance_id.as_deref().unwrap_or_default();
        let member_id = join.new_member_id.clone();
        let Some(former_id) = self.instances.get(instance).cloned() else {
            // The former self went meanwhile.
            return match self.admit_join(&join, turn) {
                Ok(()) if !turn.outstanding.is_waiting(id) => {}
                Ok(()) => self.join_as_new(id, member_id, join, turn),
                Err(rejection) => turn.reject(id, rejection),
            };
        };
        let was_leader = self.leader.as_ref() == Some(&former_id);
        let Some(mut member) = self.take_member(&former_id) else {
            return turn.reject(id, Rejection::UnknownMember);
        };
        let waiting = [member.join_waiting.take(), member.sync_waiting.take()];
        for waiting in waiting.into_iter().flatten() {
            turn.reject(waiting, Rejection::FencedInstanceId);
        }
        let unchanged = member.protocols == join.protocols;
        member.generation = None;
        self.put_member(member_id.clone(), member);
        if was_leader {
            self.leader = Some(member_id.clone());
        }
        self.renew_session(&member_id, turn.now.monotonic);
        if !self.shares_protocol(&join, Some(&member_id)) {
            // The others changed while the log was asked.
            turn.reject(id, Rejection::InconsistentGroupProtocol);
        } else if !turn.outstanding.is_waiting(id) {
            // The asker went while the log was asked; its next try takes the id over again.
        } else if self.phase == Phase::Stable && unchanged {
            self.answer_join(id, &member_id, was_leader, turn);
        } else {
            self.wait_for_rebalance(id, &member_id, join, turn);
        }
    }
}

/// Gives the static id of a returned member to its new self in what the log keeps.
fn pass_on_in_image(image: &mut RecordedGroup, join: &Join) -> bool {
    let former = image
        .members
        .iter_mut()
        .find(|member| member.instance_id == join.instance_id);
    let Some(former) = former else {
        return false;
    };
    if image.leader.as_ref() == Some(&former.member_id) {
        image.leader = Some(join.new_member_id.clone());
    }
    former.member_id = join.new_member_id.clone();
    true
}
