//! One group: its members, its offsets, and what of it is on record.
//!
//! Invariants:
//! 1. `members` that keep a static id and `instances` name each other.
//! 2. All members share at least one protocol.
//! 3. `bytes`, `members_bytes`, `joining` and `offers` are what counting anew finds.
//! 4. `recorded` is the value of the newest record of this group in the log.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use super::outstanding::{Change, Turn};
use super::rebalance::Phase;
use super::record::{Key, RecordedGroup, RecordedMember, StoredOffset};
use super::settings::NAME_BYTES_MAX;
use super::{AppendToken, GroupRecord};
use crate::identity::{Generation, PartitionId};
use crate::rejection::Rejection;
use crate::request::{GroupState, Join, MemberFence, RequestId};
use crate::time::Monotonic;

/// What a group, a member and an offset take beside their texts and blobs, in bytes, about.
const GROUP_BYTES: usize = 512;
const MEMBER_BYTES: usize = 384;
const OFFSET_BYTES: usize = 128;

/// A member of a group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout_ms: u32,
    pub rebalance_timeout_ms: u32,
    /// In its order of preference, with metadata.
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
    /// The newest generation that it was told to be in.
    pub generation: Option<Generation>,
    pub session_ends: Monotonic,
    pub join_waiting: Option<RequestId>,
    pub sync_waiting: Option<RequestId>,
    /// Whether it has its assignment of this generation.
    pub synced: bool,
}

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub id: Arc<str>,
    pub phase: Phase,
    pub generation: Generation,
    /// Generations up to this one may have been given out, also before a restart.
    pub spent: Generation,
    /// Generations up to this one are on record as given out, so they may be.
    pub reserved: Generation,
    pub reserving: bool,
    pub protocol_type: String,
    pub protocol: String,
    pub leader: Option<String>,
    pub members: BTreeMap<String, Member>,
    pub instances: BTreeMap<String, String>,
    /// Ids given to members that must come back with them, and until when.
    pub given_ids: BTreeMap<String, Monotonic>,
    pub offsets: BTreeMap<PartitionId, StoredOffset>,
    /// Since when the group has had no members, if it ever had some.
    pub empty_since_ms: Option<u64>,
    pub recorded: Option<Bytes>,
    /// The group has become empty, and the log does not say so yet.
    pub empty_unrecorded: bool,
    pub emptying: bool,
    /// The leader's assignment is being appended.
    pub assigning: bool,
    /// Static ids are being passed on.
    pub returning: bool,
    /// Appends of this group that carry its record and have no outcome.
    pub records_waiting: usize,
    /// Appends of this group without an outcome.
    pub appends_waiting: usize,
    /// Joins of returned static members that wait for `records_waiting` to fall to zero.
    pub returns: Vec<(RequestId, Join)>,
    /// What the joins of returned static members take, in bytes, about.
    pub returns_bytes: usize,
    pub deleting: bool,
    /// Members without an assignment at this moment are removed.
    pub sync_deadline: Option<Monotonic>,
    /// What the group takes, in bytes, about.
    pub bytes: usize,
    /// What its members take of that.
    pub members_bytes: usize,
    /// Members whose join waits.
    pub joining: usize,
    /// How many members offer each protocol.
    pub offers: BTreeMap<String, usize>,
    /// The wake that stands in the coordinator's timetable.
    pub planned_wake: Option<Monotonic>,
    /// The wake that should.
    pub wanted_wake: Option<Monotonic>,
}

impl Member {
    pub(super) fn new(join: Join, session_ends: Monotonic) -> Self {
        Self {
            instance_id: join.instance_id,
            client_id: cut(join.client_id),
            client_host: cut(join.client_host),
            session_timeout_ms: join.session_timeout_ms,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            protocols: join.protocols,
            assignment: Bytes::new(),
            generation: None,
            session_ends,
            join_waiting: None,
            sync_waiting: None,
            synced: false,
        }
    }

    fn recorded(recorded: RecordedMember, generation: Generation) -> Self {
        Self {
            instance_id: recorded.instance_id,
            client_id: recorded.client_id,
            client_host: recorded.client_host,
            session_timeout_ms: recorded.session_timeout_ms,
            rebalance_timeout_ms: recorded.rebalance_timeout_ms,
            protocols: recorded.protocols,
            assignment: recorded.assignment,
            generation: Some(generation),
            session_ends: Monotonic::default(),
            join_waiting: None,
            sync_waiting: None,
            synced: true,
        }
    }

    /// Whether a join or sync of it waits; its session does not end meanwhile.
    pub(super) fn is_waiting(&self) -> bool {
        self.join_waiting.is_some() || self.sync_waiting.is_some()
    }

    /// The metadata for a protocol.
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        let offered = self.protocols.iter().find(|(name, _)| name == protocol);
        offered.map_or_else(Bytes::new, |(_, metadata)| metadata.clone())
    }

    /// Whether it offers a protocol.
    pub(super) fn offers(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    /// What it offers, each name once.
    fn protocol_names(&self) -> impl Iterator<Item = &str> {
        let names = self.protocols.iter().map(|(name, _)| name.as_str());
        names.enumerate().filter_map(|(at, name)| {
            let again = self.protocols[..at]
                .iter()
                .any(|(before, _)| before == name);
            (!again).then_some(name)
        })
    }

    pub(super) fn bytes(&self, id: &str) -> usize {
        let protocols: usize = self
            .protocols
            .iter()
            .map(|(name, metadata)| name.len() + metadata.len() + 64)
            .sum();
        MEMBER_BYTES
            + id.len()
            + self
                .instance_id
                .as_ref()
                .map_or(0, |instance| 2 * instance.len() + id.len())
            + self.client_id.len()
            + self.client_host.len()
            + self.assignment.len()
            + protocols
    }
}

/// Cuts a text that serves descriptions only.
fn cut(mut text: String) -> String {
    if text.len() > NAME_BYTES_MAX {
        text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
    }
    text
}

fn given_bytes(id: &str) -> usize {
    OFFSET_BYTES + id.len()
}

fn offset_bytes(stored: &StoredOffset) -> usize {
    OFFSET_BYTES + stored.metadata.len()
}

impl Group {
    pub(super) fn new(id: Arc<str>) -> Self {
        let bytes = GROUP_BYTES + id.len();
        Self {
            id,
            phase: Phase::Empty,
            generation: Generation::ZERO,
            spent: Generation::ZERO,
            reserved: Generation::ZERO,
            reserving: false,
            protocol_type: String::new(),
            protocol: String::new(),
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            given_ids: BTreeMap::new(),
            offsets: BTreeMap::new(),
            empty_since_ms: None,
            recorded: None,
            empty_unrecorded: false,
            emptying: false,
            assigning: false,
            returning: false,
            records_waiting: 0,
            appends_waiting: 0,
            returns: Vec::new(),
            returns_bytes: 0,
            deleting: false,
            sync_deadline: None,
            bytes,
            members_bytes: 0,
            joining: 0,
            offers: BTreeMap::new(),
            planned_wake: None,
            wanted_wake: None,
        }
    }

    /// The state to show.
    pub(super) fn state(&self) -> GroupState {
        match self.phase {
            _ if self.deleting => GroupState::Dead,
            Phase::Empty => GroupState::Empty,
            Phase::PreparingRebalance { .. } => GroupState::PreparingRebalance,
            Phase::CompletingRebalance => GroupState::CompletingRebalance,
            Phase::Stable => GroupState::Stable,
        }
    }

    /// Whether an append about the group has no outcome yet.
    pub(super) fn is_busy(&self) -> bool {
        self.deleting || self.appends_waiting > 0
    }

    /// Whether the log knows more of the group than offsets.
    pub(super) fn is_on_record(&self) -> bool {
        self.recorded.is_some() || self.reserved > Generation::ZERO
    }

    /// Whether nothing would be lost with it.
    pub(super) fn is_void(&self) -> bool {
        self.phase == Phase::Empty
            && self.offsets.is_empty()
            && self.given_ids.is_empty()
            && !self.is_busy()
            && !self.is_on_record()
            && !self.empty_unrecorded
    }

    /// Asks for an append about this group; see [`Turn::append`].
    pub(super) fn append(
        &mut self,
        records: Vec<GroupRecord>,
        recorded: Option<Bytes>,
        change: Change,
        turn: &mut Turn<'_>,
    ) -> Result<AppendToken, Rejection> {
        let with_record = recorded.is_some();
        let token = turn.append(Some(&self.id), records, recorded, change)?;
        self.appends_waiting += 1;
        self.records_waiting += usize::from(with_record);
        Ok(token)
    }

    /// Makes sure that the group is looked at by then.
    pub(super) fn wake_by(&mut self, at: Monotonic) {
        self.wanted_wake = Some(self.wanted_wake.map_or(at, |wanted| wanted.min(at)));
    }

    /// Refuses whoever is not a member, or is a static one whose id another member has now.
    pub(super) fn check_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), Rejection> {
        if let Some(instance) = instance_id {
            match self.instances.get(instance) {
                None => return Err(Rejection::UnknownMember),
                Some(holder) if holder != member_id => return Err(Rejection::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) {
            Ok(())
        } else {
            Err(Rejection::UnknownMember)
        }
    }

    /// Refuses whoever is not a member of the present generation.
    pub(super) fn check_fence(&self, fence: &MemberFence) -> Result<(), Rejection> {
        self.check_member(&fence.member_id, fence.instance_id.as_deref())?;
        let told = self
            .members
            .get(&fence.member_id)
            .and_then(|member| member.generation);
        if fence.generation == self.generation && told == Some(self.generation) {
            Ok(())
        } else {
            Err(Rejection::IllegalGeneration)
        }
    }

    /// Gives a member a full session from now.
    pub(super) fn renew_session(&mut self, member_id: &str, now: Monotonic) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.session_ends = now.plus_ms(u64::from(member.session_timeout_ms));
            let ends = member.session_ends;
            self.wake_by(ends);
        }
    }

    /// Adds a member, or puts another in its place.
    pub(super) fn put_member(&mut self, id: String, member: Member) {
        self.take_member(&id);
        self.count_in(&id, &member);
        if let Some(instance) = &member.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(id.clone());
        }
        let ends = member.session_ends;
        self.members.insert(id, member);
        self.wake_by(ends);
    }

    /// Takes a member out without telling anybody.
    pub(super) fn take_member(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        self.count_out(id, &member);
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        Some(member)
    }

    /// Removes a member; its waiting requests are refused.
    pub(super) fn remove_member(&mut self, id: &str, turn: &mut Turn<'_>) {
        if let Some(member) = self.take_member(id) {
            for waiting in [member.join_waiting, member.sync_waiting]
                .into_iter()
                .flatten()
            {
                turn.reject(waiting, Rejection::UnknownMember);
            }
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// Changes what a member offers, has or waits for; not its static id.
    pub(super) fn change_member<R>(
        &mut self,
        id: &str,
        change: impl FnOnce(&mut Member) -> R,
    ) -> Option<R> {
        let (id, mut member) = self.members.remove_entry(id)?;
        self.count_out(&id, &member);
        let result = change(&mut member);
        self.count_in(&id, &member);
        self.members.insert(id, member);
        Some(result)
    }

    fn count_in(&mut self, id: &str, member: &Member) {
        let bytes = member.bytes(id);
        self.bytes += bytes;
        self.members_bytes += bytes;
        self.joining += usize::from(member.join_waiting.is_some());
        for name in member.protocol_names() {
            match self.offers.get_mut(name) {
                Some(count) => *count += 1,
                None => {
                    self.offers.insert(String::from(name), 1);
                }
            }
        }
    }

    fn count_out(&mut self, id: &str, member: &Member) {
        let bytes = member.bytes(id);
        self.bytes -= bytes;
        self.members_bytes -= bytes;
        self.joining -= usize::from(member.join_waiting.is_some());
        for name in member.protocol_names() {
            if let Some(count) = self.offers.get_mut(name) {
                *count -= 1;
            }
        }
        self.offers.retain(|_, count| *count > 0);
    }

    /// Gives an id to a member that must come back with it.
    pub(super) fn give_id(&mut self, id: String, ends: Monotonic) {
        self.bytes += given_bytes(&id);
        self.given_ids.insert(id, ends);
        self.wake_by(ends);
    }

    /// Takes back a given id.
    pub(super) fn take_given_id(&mut self, id: &str) {
        if self.given_ids.remove(id).is_some() {
            self.bytes -= given_bytes(id);
        }
    }

    /// Counts a join that waits for a static id to pass on, or no longer does.
    pub(super) fn count_return(&mut self, join: &Join, waits: bool) {
        let protocols = join
            .protocols
            .iter()
            .map(|(name, blob)| name.len() + blob.len() + 64);
        let bytes = MEMBER_BYTES + join.new_member_id.len() + protocols.sum::<usize>();
        if waits {
            self.returns_bytes += bytes;
            self.bytes += bytes;
        } else {
            self.returns_bytes -= bytes;
            self.bytes -= bytes;
        }
    }

    pub(super) fn put_offset(&mut self, partition: PartitionId, stored: StoredOffset) {
        self.bytes += offset_bytes(&stored);
        if let Some(before) = self.offsets.insert(partition, stored) {
            self.bytes -= offset_bytes(&before);
        }
    }

    pub(super) fn remove_offset(&mut self, partition: PartitionId) {
        if let Some(before) = self.offsets.remove(&partition) {
            self.bytes -= offset_bytes(&before);
        }
    }

    pub(super) fn set_recorded(&mut self, recorded: Bytes) {
        self.bytes += recorded.len();
        if let Some(before) = self.recorded.replace(recorded) {
            self.bytes -= before.len();
        }
    }

    /// What the group takes, in bytes, about, counted anew.
    #[cfg(test)]
    pub(super) fn count_bytes(&self) -> usize {
        let members: usize = self
            .members
            .iter()
            .map(|(id, member)| member.bytes(id))
            .sum();
        let offsets: usize = self.offsets.values().map(offset_bytes).sum();
        let recorded = self.recorded.as_ref().map_or(0, Bytes::len);
        let given: usize = self.given_ids.keys().map(|id| given_bytes(id)).sum();
        GROUP_BYTES + self.id.len() + members + offsets + recorded + given + self.returns_bytes
    }

    /// The group as its next record keeps it.
    pub(super) fn image(&self) -> RecordedGroup {
        let members = self.members.iter().map(|(id, member)| RecordedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            session_timeout_ms: member.session_timeout_ms,
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            protocols: member.protocols.clone(),
            assignment: member.assignment.clone(),
        });
        RecordedGroup {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            empty_since_ms: self.empty_since_ms,
            members: members.collect(),
        }
    }

    /// The record of this group.
    pub(super) fn record(&self, value: Bytes) -> GroupRecord {
        Key::Group(String::from(&*self.id)).with(value)
    }

    /// Becomes what a record of the log says.
    pub(super) fn restore(&mut self, value: Bytes, recorded: RecordedGroup) {
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            self.take_member(&id);
        }
        self.phase = if recorded.members.is_empty() {
            Phase::Empty
        } else {
            Phase::Stable
        };
        self.generation = recorded.generation;
        self.spent = self.spent.max(recorded.generation);
        self.protocol_type = recorded.protocol_type;
        self.protocol = recorded.protocol;
        self.empty_since_ms = recorded.empty_since_ms;
        for mut member in recorded.members {
            let id = core::mem::take(&mut member.member_id);
            self.put_member(id, Member::recorded(member, recorded.generation));
        }
        self.leader = recorded.leader;
        self.set_recorded(value);
    }
}
