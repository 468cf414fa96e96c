//! Syncs and heartbeats: how a generation gets its assignment, and how members stay in it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use super::outstanding::{Change, Turn};
use super::rebalance::Phase;
use super::state::Group;
use crate::identity::Generation;
use crate::limits::MEMBER_BLOB_BYTES_MAX;
use crate::rejection::Rejection;
use crate::request::{GroupResponse, LeavingMember, MemberFence, RequestId, Sync};

impl Group {
    /// Handles a sync.
    pub(super) fn sync(&mut self, id: RequestId, sync: Sync, turn: &mut Turn<'_>) {
        if let Err(rejection) = self.admit_sync(&sync) {
            return turn.reject(id, rejection);
        }
        let member_id = sync.fence.member_id;
        self.renew_session(&member_id, turn.now.monotonic);
        match self.phase {
            Phase::Empty => turn.reject(id, Rejection::UnknownMember),
            Phase::PreparingRebalance { .. } => turn.reject(id, Rejection::RebalanceInProgress),
            Phase::Stable => {
                self.members
                    .entry(member_id.clone())
                    .and_modify(|member| member.synced = true);
                self.answer_sync(id, &member_id, turn);
            }
            Phase::CompletingRebalance => {
                self.wait_for_assignment(id, &member_id, turn);
                if self.leader.as_ref() == Some(&member_id) && !self.assigning {
                    self.assign(sync.assignments, turn);
                }
            }
        }
    }

    fn admit_sync(&self, sync: &Sync) -> Result<(), Rejection> {
        self.check_fence(&sync.fence)?;
        let other_type = sync
            .protocol_type
            .as_ref()
            .is_some_and(|given| *given != self.protocol_type);
        let other_protocol = sync
            .protocol
            .as_ref()
            .is_some_and(|given| *given != self.protocol);
        if other_type || other_protocol {
            return Err(Rejection::InconsistentGroupProtocol);
        }
        let blobs = sync
            .assignments
            .iter()
            .map(|(_, assignment)| assignment.len());
        if blobs.max().unwrap_or(0) > MEMBER_BLOB_BYTES_MAX {
            return Err(Rejection::RecordListTooLarge);
        }
        Ok(())
    }

    fn wait_for_assignment(&mut self, id: RequestId, member_id: &str, turn: &mut Turn<'_>) {
        let before = self.change_member(member_id, |member| member.sync_waiting.replace(id));
        if let Some(before) = before.flatten() {
            turn.reject(before, Rejection::RebalanceInProgress);
        }
        turn.outstanding.park(id, &self.id);
    }

    /// The leader has assigned: on record first, then to everybody who waits.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>, turn: &mut Turn<'_>) {
        if self.returning {
            // A static id is changing hands, which begins a rebalance in a moment.
            return self.refuse_syncs(Rejection::RebalanceInProgress, turn);
        }
        let mut image = self.image();
        let mut assignments: BTreeMap<String, Bytes> = assignments.into_iter().collect();
        assignments.retain(|member_id, _| self.members.contains_key(member_id));
        for member in &mut image.members {
            let assigned = assignments.get(&member.member_id);
            member.assignment = assigned.cloned().unwrap_or_default();
        }
        let more: usize = assignments.values().map(Bytes::len).sum();
        if turn.bytes_elsewhere + self.bytes + 2 * more > turn.settings.bytes_max {
            return self.refuse_syncs(Rejection::CoordinatorUnavailable, turn);
        }
        let value = image.encode();
        let record = self.record(value.clone());
        let change = Change::Assignment {
            generation: self.generation,
            assignments,
        };
        match self.append(vec![record], Some(value), change, turn) {
            Ok(_) => self.assigning = true,
            Err(rejection) => self.refuse_syncs(rejection, turn),
        }
    }

    /// The log's word on an assignment.
    pub(super) fn assigned(
        &mut self,
        generation: Generation,
        assignments: BTreeMap<String, Bytes>,
        result: Result<(), Rejection>,
        turn: &mut Turn<'_>,
    ) {
        if self.phase != Phase::CompletingRebalance || self.generation != generation {
            return;
        }
        self.assigning = false;
        if let Err(rejection) = result {
            return self.refuse_syncs(rejection, turn);
        }
        self.phase = Phase::Stable;
        for (member_id, assignment) in assignments {
            self.change_member(&member_id, |member| member.assignment = assignment);
        }
        for member_id in self.members.keys().cloned().collect::<Vec<_>>() {
            let waiting = self.change_member(&member_id, |member| member.sync_waiting.take());
            if let Some(id) = waiting.flatten() {
                self.members
                    .entry(member_id.clone())
                    .and_modify(|member| member.synced = true);
                self.renew_session(&member_id, turn.now.monotonic);
                self.answer_sync(id, &member_id, turn);
            }
        }
    }

    fn answer_sync(&self, id: RequestId, member_id: &str, turn: &mut Turn<'_>) {
        let member = self.members.get(member_id);
        let synced = GroupResponse::Synced {
            assignment: member.map_or_else(Bytes::new, |member| member.assignment.clone()),
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
        };
        turn.reply(id, Ok(synced));
    }

    /// Removes members that have not asked for their assignment in time.
    pub(super) fn end_sync_phase_if_due(&mut self, turn: &mut Turn<'_>) {
        if self
            .sync_deadline
            .is_none_or(|deadline| turn.now.monotonic < deadline)
        {
            return;
        }
        self.sync_deadline = None;
        let missing: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| !member.synced && member.sync_waiting.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        if missing.is_empty() {
            return;
        }
        for member_id in missing {
            self.remove_member(&member_id, turn);
        }
        self.members_changed(turn);
    }

    /// Handles a heartbeat.
    pub(super) fn heartbeat(
        &mut self,
        fence: &MemberFence,
        turn: &Turn<'_>,
    ) -> Result<(), Rejection> {
        self.check_member(&fence.member_id, fence.instance_id.as_deref())?;
        if fence.generation != self.generation {
            return Err(Rejection::IllegalGeneration);
        }
        self.renew_session(&fence.member_id, turn.now.monotonic);
        match self.phase {
            Phase::PreparingRebalance { .. } => Err(Rejection::RebalanceInProgress),
            Phase::Empty | Phase::CompletingRebalance | Phase::Stable => Ok(()),
        }
    }

    /// Handles a leave, member by member.
    pub(super) fn leave(
        &mut self,
        leaving: Vec<LeavingMember>,
        turn: &mut Turn<'_>,
    ) -> Vec<Result<(), Rejection>> {
        let mut left = false;
        let mut results = Vec::with_capacity(leaving.len());
        for member in leaving {
            let result = self.find_leaving(&member);
            if let Ok(member_id) = &result {
                self.take_given_id(member_id);
                left |= self.members.contains_key(member_id);
                self.remove_member(member_id, turn);
            }
            results.push(result.map(drop));
        }
        if left {
            self.members_changed(turn);
        } else {
            self.complete_join_if_all_came(turn);
        }
        results
    }

    fn find_leaving(&self, leaving: &LeavingMember) -> Result<String, Rejection> {
        let instance = leaving.instance_id.as_deref();
        if self.given_ids.contains_key(&leaving.member_id) && instance.is_none() {
            return Ok(leaving.member_id.clone());
        }
        if let (true, Some(instance)) = (leaving.member_id.is_empty(), instance) {
            let holder = self.instances.get(instance).cloned();
            return holder.ok_or(Rejection::UnknownMember);
        }
        self.check_member(&leaving.member_id, instance)?;
        Ok(leaving.member_id.clone())
    }
}
