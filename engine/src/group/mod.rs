//! Consumer groups: Kafka's classic group protocol (join, sync, heartbeat, leave) and committed
//! offsets, for one partition of the internal offsets topic.
//!
//! A commit's life: [`Coordinator::handle`] checks the fence (member, static id, generation) and
//! each offset, and asks for an append of one record per offset; when that is committed,
//! [`Coordinator::appended`] stores the offsets and the answer leaves. If it fails, nothing has
//! changed and the answer says so. A rebalance's life stands at the head of `rebalance`.
//!
//! The caller appends what it is asked to, in the order of the tokens, to the partition that the
//! coordinator stands for, and reads that log back into [`Coordinator::replay`] at the next start.
//! A snapshot now and then keeps the log short; see `snapshot`.
//!
//! Invariants:
//! 1. A member of an expired or older generation cannot move its group's offsets
//!    (`docs/REPLICATION.md`, invariant 4); `offsets` keeps it.
//! 2. Nothing that a restart would forget is told to anybody: offsets, assignments, changes of
//!    static ids and deletions are answered once the log holds them.
//! 3. No decision rests on a timer having been served in time, and none but retention on the
//!    wall's clock.
//! 4. Each request is answered once, unless it is cancelled.

mod assignment;
mod describe;
mod effect;
mod expiry;
mod join;
mod load;
mod offsets;
mod outcome;
mod outstanding;
mod rebalance;
mod record;
mod replay;
mod settings;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

pub use effect::{AppendToken, GroupEffect, GroupEffects, GroupRecord};
pub use load::GroupLoad;
pub use replay::ReplayError;
pub use settings::Settings;

use self::expiry::ExpiryClock;
use self::outstanding::{Append, Change, Outstanding, Turn};
use self::record::Key;
use self::replay::Touched;
use self::settings::{NAME_BYTES_MAX, RETRY_MS, WAKES_PER_TICK_MAX};
use self::snapshot::SnapshotSchedule;
use self::state::Group;
use crate::identity::{Offset, TopicId};
use crate::rejection::Rejection;
use crate::request::{GroupAction, GroupRequest, GroupResponse, RequestId};
use crate::time::{Monotonic, Now};

/// Whether a coordinator serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// Not before it has read its log.
    Loading,
    /// Yes.
    Serving,
    /// Not any more.
    Resigned,
}

/// All groups of one partition of the offsets topic.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    service: Service,
    clock: ExpiryClock,
    groups: BTreeMap<Arc<str>, Group>,
    /// When to look at which group.
    wakes: BTreeSet<(Monotonic, Arc<str>)>,
    outstanding: Outstanding,
    touched: Touched,
    snapshots: SnapshotSchedule,
    /// Topics whose offsets are going.
    forgetting: BTreeSet<TopicId>,
    /// Those of them whose record could not be appended, and when to try again.
    forgetting_failed: Option<Monotonic>,
    /// What all groups take, in bytes, about.
    bytes: usize,
    /// What the other coordinators of the core hold.
    elsewhere: GroupLoad,
}

impl Coordinator {
    /// A coordinator that is still to read its log; it refuses requests until
    /// [`Coordinator::loaded`].
    pub fn new(settings: Settings, now: Now) -> Self {
        Self {
            settings,
            service: Service::Loading,
            clock: ExpiryClock::new(now),
            groups: BTreeMap::new(),
            wakes: BTreeSet::new(),
            outstanding: Outstanding::default(),
            touched: Touched::default(),
            snapshots: SnapshotSchedule::default(),
            forgetting: BTreeSet::new(),
            forgetting_failed: None,
            bytes: 0,
            elsewhere: GroupLoad::default(),
        }
    }

    /// Takes over the next record of the partition's log, from the log start on, in order, none
    /// left out.
    ///
    /// # Errors
    /// If the record is malformed or of a newer version; the partition must not be served then.
    ///
    /// # Panics
    /// If the coordinator serves already.
    pub fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), ReplayError> {
        assert!(
            self.service == Service::Loading,
            "a record was replayed into a serving coordinator"
        );
        let (groups, touched) = (&mut self.groups, &mut self.touched);
        replay::apply(groups, touched, &mut self.snapshots, key, value)
    }

    /// The log has been read to its committed end: serves from now on. Members known from the log
    /// get a full session.
    pub fn loaded(&mut self, now: Now, out: &mut GroupEffects) {
        if self.service != Service::Loading {
            return;
        }
        self.service = Service::Serving;
        self.clock = ExpiryClock::new(now);
        self.touched = Touched::default();
        self.groups.retain(|_, group| !group.is_void());
        self.bytes = self.groups.values().map(|group| group.bytes).sum();
        for name in self.groups.keys().cloned().collect::<Vec<_>>() {
            self.in_group(&name, now, out, |group, turn| group.loaded(turn));
        }
    }

    /// Handles a request about a group; the answer is an effect, now or later.
    ///
    /// # Panics
    /// If a request with this id is still to be answered.
    pub fn handle(
        &mut self,
        id: RequestId,
        request: GroupRequest,
        now: Now,
        out: &mut GroupEffects,
    ) {
        if let Err(rejection) = self.admit(&request) {
            let answer = Err(rejection);
            return out.push(GroupEffect::Reply { id, answer });
        }
        self.outstanding.register(id);
        let name: Arc<str> = Arc::from(request.group);
        self.wake_if_due(&name, now, out);
        if let GroupAction::List = request.action {
            let listed = self.groups.values().map(Group::list).collect();
            return self
                .turn(now, out)
                .reply(id, Ok(GroupResponse::Listed(listed)));
        }
        if !self.groups.contains_key(&name) {
            let answer = match self.answer_without_group(&request.action) {
                Some(answer) => answer,
                None if self.is_full() => Err(Rejection::Overloaded),
                None => {
                    let group = Group::new(name.clone());
                    self.bytes += group.bytes;
                    self.groups.insert(name.clone(), group);
                    return self.act(id, &name, request.action, now, out);
                }
            };
            return self.turn(now, out).reply(id, answer);
        }
        self.act(id, &name, request.action, now, out);
    }

    /// Reports what became of an append: committed, with its first record at this offset, or not.
    /// Successes must come in the order of the tokens; `Err` must mean that the records are not in the log and never will be, or that this replica has
    /// stopped leading the partition for good (follow with [`Coordinator::resign`]).
    ///
    /// # Panics
    /// If the append was reported before, was never asked for, or comes out of order.
    pub fn appended(
        &mut self,
        token: AppendToken,
        result: Result<Offset, Rejection>,
        now: Now,
        out: &mut GroupEffects,
    ) {
        if self.service != Service::Serving {
            return;
        }
        let append = self.outstanding.settle(token, result.is_ok());
        let offset = result.map_err(append_rejection);
        let result = offset.map(drop);
        match append.change {
            Change::SnapshotBegin | Change::SnapshotPart | Change::SnapshotEnd => {
                self.advance_snapshot(offset, append.bytes, now, out);
            }
            Change::TopicForgotten(topic) => {
                self.topic_forgotten(topic, result, now);
                self.count_committed(append.bytes, result);
            }
            _ => {
                self.count_committed(append.bytes, result);
                if let Some(name) = append.group.clone() {
                    self.group_appended(&name, append, result, now, out);
                }
            }
        }
        self.begin_snapshot_if_due(now, out);
    }

    /// Serves timers that are due.
    pub fn tick(&mut self, now: Now, out: &mut GroupEffects) {
        if self.service != Service::Serving {
            return;
        }
        for _ in 0..WAKES_PER_TICK_MAX {
            match self.wakes.first() {
                Some((at, name)) if *at <= now.monotonic => {
                    let name = name.clone();
                    self.wake_if_due(&name, now, out);
                }
                _ => break,
            }
        }
        if self.forgetting_failed.is_some_and(|at| at <= now.monotonic) {
            self.forgetting_failed = None;
            for topic in self.forgetting.clone() {
                self.append_forgotten(topic, now, out);
            }
        }
        self.begin_snapshot_if_due(now, out);
    }

    /// When [`Coordinator::tick`] is due next.
    pub fn next_wake(&self) -> Option<Monotonic> {
        if self.service != Service::Serving {
            return None;
        }
        let groups = self.wakes.first().map(|(at, _)| *at);
        let snapshot = self.snapshots.due(&self.settings);
        [groups, snapshot, self.forgetting_failed]
            .into_iter()
            .flatten()
            .min()
    }

    /// The asker is gone: no answer will leave for this request. What it asked for may still
    /// happen.
    pub fn cancel(&mut self, id: RequestId, now: Now) {
        let Some(name) = self.outstanding.cancel(id) else {
            return;
        };
        self.in_group(&name, now, &mut Vec::new(), |group, turn| {
            group.asker_gone(id, turn.now)
        });
    }

    /// This replica no longer leads the partition: everybody waiting is told so, and nothing is
    /// served any more.
    pub fn resign(&mut self, out: &mut GroupEffects) {
        self.service = Service::Resigned;
        self.outstanding.reject_all(Rejection::NotCoordinator, out);
        self.groups.clear();
        self.wakes.clear();
        self.bytes = 0;
    }

    /// A topic is gone: so are its offsets. Commits to it are refused from now on until they are,
    /// and are the caller's to refuse afterwards.
    pub fn forget_topic(&mut self, topic: TopicId, now: Now, out: &mut GroupEffects) {
        if self.service != Service::Serving || self.forgetting.contains(&topic) {
            return;
        }
        let has_offsets = self.groups.values().any(|group| group.has_topic(topic));
        if has_offsets || self.outstanding.has_commits() {
            self.forgetting.insert(topic);
            self.append_forgotten(topic, now, out);
        }
    }

    /// Topics that any group has offsets of, for [`Coordinator::forget_topic`] after a start.
    pub fn topics(&self) -> BTreeSet<TopicId> {
        let partitions = self.groups.values().flat_map(|group| group.offsets.keys());
        partitions.map(|partition| partition.topic).collect()
    }

    /// Begins a snapshot now, unless one is being written. Otherwise they begin by themselves.
    pub fn begin_snapshot(&mut self, now: Now, out: &mut GroupEffects) {
        if self.service == Service::Serving && self.snapshots.is_idle() {
            let (schedule, mut turn) = self.snapshot_turn(now, out);
            schedule.begin(&mut turn);
        }
    }

    /// Bytes of records in the log since the newest complete snapshot began.
    pub fn bytes_since_snapshot(&self) -> u64 {
        self.snapshots.bytes_since()
    }

    /// Groups, and what they take in bytes, about.
    pub fn size(&self) -> (usize, usize) {
        (self.groups.len(), self.bytes)
    }

    /// Requests that have no answer yet.
    pub fn requests_waiting(&self) -> usize {
        self.outstanding.requests_waiting()
    }

    /// Whether requests are served.
    pub fn is_serving(&self) -> bool {
        self.service == Service::Serving
    }

    /// Whether there is no room for another group.
    fn is_full(&self) -> bool {
        self.elsewhere.groups + self.groups.len() >= self.settings.groups_max
    }

    /// Refuses what cannot be looked at.
    fn admit(&self, request: &GroupRequest) -> Result<(), Rejection> {
        match self.service {
            Service::Loading => return Err(Rejection::CoordinatorLoading),
            Service::Resigned => return Err(Rejection::NotCoordinator),
            Service::Serving => {}
        }
        let is_listing = matches!(request.action, GroupAction::List);
        if !is_listing && (request.group.is_empty() || request.group.len() > NAME_BYTES_MAX) {
            return Err(Rejection::InvalidGroupId);
        }
        let waiting = self.elsewhere.requests + self.outstanding.requests_waiting();
        if waiting >= self.settings.requests_waiting_max {
            return Err(Rejection::CoordinatorUnavailable);
        }
        match &request.action {
            GroupAction::Join(join) => join::check_join(join, &self.settings),
            _ => Ok(()),
        }
    }

    /// The answer about a group that is not there; `None` if the action makes it.
    fn answer_without_group(
        &self,
        action: &GroupAction,
    ) -> Option<Result<GroupResponse, Rejection>> {
        Some(match action {
            GroupAction::Join(join) if join.member_id.is_empty() => return None,
            GroupAction::Commit(commit) if commit.fence.is_none() => return None,
            GroupAction::Join(_) | GroupAction::Sync(_) | GroupAction::Heartbeat(_) => {
                Err(Rejection::UnknownMember)
            }
            GroupAction::Commit(_) => Err(Rejection::IllegalGeneration),
            GroupAction::Leave(leaving) => {
                Ok(GroupResponse::Left(vec![
                    Err(Rejection::UnknownMember);
                    leaving.len()
                ]))
            }
            GroupAction::Committed(_) => Ok(GroupResponse::Offsets(Vec::new())),
            GroupAction::Describe => Ok(GroupResponse::Described(describe::dead())),
            GroupAction::List => Ok(GroupResponse::Listed(Vec::new())),
            GroupAction::Delete | GroupAction::DeleteOffsets(_) => Err(Rejection::GroupIdNotFound),
        })
    }

    /// Lets a group act.
    fn act(
        &mut self,
        id: RequestId,
        name: &Arc<str>,
        action: GroupAction,
        now: Now,
        out: &mut GroupEffects,
    ) {
        self.in_group(name, now, out, |group, turn| match action {
            GroupAction::Join(join) => group.join(id, join, turn),
            GroupAction::Sync(sync) => group.sync(id, sync, turn),
            GroupAction::Heartbeat(fence) => {
                let alive = group.heartbeat(&fence, turn).map(|()| GroupResponse::Alive);
                turn.reply(id, alive);
            }
            GroupAction::Leave(leaving) => {
                let left = group.leave(leaving, turn);
                turn.reply(id, Ok(GroupResponse::Left(left)));
            }
            GroupAction::Commit(commit) => group.commit(id, commit, turn),
            GroupAction::Committed(wanted) => turn.reply(id, group.committed(&wanted)),
            GroupAction::Describe => {
                turn.reply(id, Ok(GroupResponse::Described(group.describe())));
            }
            GroupAction::List => turn.reply(id, Ok(GroupResponse::Listed(vec![group.list()]))),
            GroupAction::Delete => group.delete(Some(id), turn),
            GroupAction::DeleteOffsets(partitions) => group.delete_offsets(id, partitions, turn),
        });
    }

    /// An append about a group has its outcome.
    fn group_appended(
        &mut self,
        name: &Arc<str>,
        append: Append,
        result: Result<(), Rejection>,
        now: Now,
        out: &mut GroupEffects,
    ) {
        if let (Change::Deletion(id), Ok(())) = (&append.change, result) {
            self.remove_group(name);
            if let Some(id) = *id {
                self.turn(now, out).reply(id, Ok(GroupResponse::Deleted));
            }
        } else if self.groups.contains_key(name) {
            self.in_group(name, now, out, |group, turn| {
                group.appended(append, result, turn)
            });
        } else if let Change::Offsets { id, .. } | Change::OffsetsRemoved { id: Some(id), .. } =
            append.change
        {
            // It failed, and was reported after the group's deletion, which came later.
            self.turn(now, out).reject(
                id,
                result.err().unwrap_or(Rejection::CoordinatorUnavailable),
            );
        }
    }

    /// Runs `change` on a group that is there, and brings timetable and sums up to date.
    fn in_group(
        &mut self,
        name: &Arc<str>,
        now: Now,
        out: &mut GroupEffects,
        change: impl FnOnce(&mut Group, &mut Turn<'_>),
    ) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let bytes_of_others = self.bytes - group.bytes;
        let mut turn = Turn {
            settings: &self.settings,
            outstanding: &mut self.outstanding,
            clock: &self.clock,
            forgetting: &self.forgetting,
            bytes_elsewhere: self.elsewhere.bytes + bytes_of_others,
            now,
            out,
        };
        change(group, &mut turn);
        if group.planned_wake.is_none() && group.wanted_wake.is_none() {
            group.plan_wakes(&turn);
        }
        self.bytes = bytes_of_others + group.bytes;
        if group.is_void() {
            return self.remove_group(name);
        }
        let sooner = match (group.wanted_wake, group.planned_wake) {
            (Some(wanted), Some(planned)) => wanted < planned,
            (wanted, _) => wanted.is_some(),
        };
        if sooner {
            if let Some(planned) = group.planned_wake {
                self.wakes.remove(&(planned, name.clone()));
            }
            group.planned_wake = group.wanted_wake;
            if let Some(wanted) = group.wanted_wake {
                self.wakes.insert((wanted, name.clone()));
            }
        }
    }

    fn remove_group(&mut self, name: &Arc<str>) {
        if let Some(group) = self.groups.remove(name) {
            self.bytes -= group.bytes;
            if let Some(planned) = group.planned_wake {
                self.wakes.remove(&(planned, name.clone()));
            }
        }
    }

    /// Serves a group's timer if it is due.
    fn wake_if_due(&mut self, name: &Arc<str>, now: Now, out: &mut GroupEffects) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        if let Some(planned) = group
            .planned_wake
            .take_if(|planned| *planned <= now.monotonic)
        {
            self.wakes.remove(&(planned, name.clone()));
            self.in_group(name, now, out, |group, turn| group.wake(turn));
        }
    }

    /// The surroundings of what concerns no group.
    fn turn<'a>(&'a mut self, now: Now, out: &'a mut GroupEffects) -> Turn<'a> {
        Turn {
            settings: &self.settings,
            outstanding: &mut self.outstanding,
            clock: &self.clock,
            forgetting: &self.forgetting,
            bytes_elsewhere: self.elsewhere.bytes + self.bytes,
            now,
            out,
        }
    }

    fn snapshot_turn<'a>(
        &'a mut self,
        now: Now,
        out: &'a mut GroupEffects,
    ) -> (&'a mut SnapshotSchedule, Turn<'a>) {
        let turn = Turn {
            settings: &self.settings,
            outstanding: &mut self.outstanding,
            clock: &self.clock,
            forgetting: &self.forgetting,
            bytes_elsewhere: self.elsewhere.bytes + self.bytes,
            now,
            out,
        };
        (&mut self.snapshots, turn)
    }

    fn begin_snapshot_if_due(&mut self, now: Now, out: &mut GroupEffects) {
        if self
            .snapshots
            .due(&self.settings)
            .is_some_and(|at| at <= now.monotonic)
        {
            self.begin_snapshot(now, out);
        }
    }

    fn advance_snapshot(
        &mut self,
        result: Result<Offset, Rejection>,
        bytes: usize,
        now: Now,
        out: &mut GroupEffects,
    ) {
        let groups = core::mem::take(&mut self.groups);
        let (schedule, mut turn) = self.snapshot_turn(now, out);
        schedule.advance(result, bytes, &groups, &mut turn);
        self.groups = groups;
    }

    fn count_committed(&mut self, bytes: usize, result: Result<(), Rejection>) {
        if result.is_ok() {
            self.snapshots.committed(bytes);
        }
    }

    fn append_forgotten(&mut self, topic: TopicId, now: Now, out: &mut GroupEffects) {
        let records = vec![Key::Topic(topic).alone()];
        let change = Change::TopicForgotten(topic);
        if self
            .turn(now, out)
            .append(None, records, None, change)
            .is_err()
        {
            self.forgetting_failed = Some(now.monotonic.plus_ms(RETRY_MS));
        }
    }

    fn topic_forgotten(&mut self, topic: TopicId, result: Result<(), Rejection>, now: Now) {
        if result.is_err() {
            self.forgetting_failed = Some(now.monotonic.plus_ms(RETRY_MS));
            return;
        }
        self.forgetting.remove(&topic);
        let names: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for name in names {
            self.in_group(&name, now, &mut Vec::new(), |group, _| {
                group.forget_topic(topic)
            });
        }
    }
}

/// The refusal that a client gets when its coordinator could not append. Kafka's clients try
/// again on each of them, in every call.
fn append_rejection(rejection: Rejection) -> Rejection {
    match rejection {
        Rejection::NotLeader | Rejection::StorageError => Rejection::NotCoordinator,
        _ => Rejection::CoordinatorUnavailable,
    }
}
