//! Tests of groups, against a log that commits, fails or holds back appends as told.
#![allow(clippy::unwrap_used, clippy::panic)]

mod durability;
mod expiry;
mod fences;
mod format;
mod membership;
mod random;
mod snapshots;
mod static_members;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use super::*;
use crate::identity::{Generation, Offset, PartitionId, PartitionIndex};
use crate::request::{
    Commit, GroupDescription, GroupState, Join, Joined, LeavingMember, MemberFence, OffsetToCommit,
    OffsetsWanted, Sync,
};
use crate::time::Wall;

type Answer = Result<GroupResponse, Rejection>;

/// A coordinator with its log.
struct World {
    coordinator: Coordinator,
    settings: Settings,
    now: Now,
    /// Committed records, batch by batch; a batch takes one offset here.
    log: Vec<Vec<GroupRecord>>,
    /// Batches before this one are gone.
    log_start: usize,
    waiting: VecDeque<(AppendToken, Vec<GroupRecord>)>,
    answers: BTreeMap<RequestId, Answer>,
    /// In which order they left.
    answered: Vec<RequestId>,
    /// Whether appends are committed at once.
    commits: bool,
    requests: u64,
}

impl World {
    fn new() -> Self {
        Self::with(Settings {
            initial_rebalance_delay_ms: 0,
            ..Settings::default()
        })
    }

    fn with(settings: Settings) -> Self {
        let now = Now {
            monotonic: Monotonic(1_000_000),
            wall: Wall(1_700_000_000_000),
        };
        let mut world = Self {
            coordinator: Coordinator::new(settings.clone(), now),
            settings,
            now,
            log: Vec::new(),
            log_start: 0,
            waiting: VecDeque::new(),
            answers: BTreeMap::new(),
            answered: Vec::new(),
            commits: true,
            requests: 0,
        };
        world.load();
        world
    }

    /// Reads the log into a new coordinator; appends without an outcome are lost.
    fn restart(&mut self) {
        self.coordinator = Coordinator::new(self.settings.clone(), self.now);
        self.waiting.clear();
        self.replay();
        self.load();
    }

    fn replay(&mut self) {
        for batch in &self.log[self.log_start..] {
            for record in batch {
                self.coordinator
                    .replay(&record.key, record.value.as_ref())
                    .unwrap();
            }
        }
    }

    fn load(&mut self) {
        let mut out = Vec::new();
        self.coordinator.loaded(self.now, &mut out);
        self.perform(out);
    }

    fn perform(&mut self, out: GroupEffects) {
        for effect in out {
            match effect {
                GroupEffect::Reply { id, answer } => {
                    self.answered.push(id);
                    assert!(
                        self.answers.insert(id, answer).is_none(),
                        "{id:?} was answered twice"
                    );
                }
                GroupEffect::Append { token, records } => {
                    assert!(!records.is_empty());
                    self.waiting.push_back((token, records));
                }
                GroupEffect::MoveLogStart(offset) => {
                    let start = usize::try_from(offset.0).unwrap();
                    assert!(start >= self.log_start && start < self.log.len());
                    self.log_start = start;
                }
            }
        }
        if self.commits {
            self.commit_all();
        }
    }

    /// Commits the oldest append that waits.
    fn commit_one(&mut self) -> bool {
        let Some((token, records)) = self.waiting.pop_front() else {
            return false;
        };
        let offset = Offset(self.log.len() as u64);
        self.log.push(records);
        let mut out = Vec::new();
        self.coordinator
            .appended(token, Ok(offset), self.now, &mut out);
        self.perform(out);
        true
    }

    fn commit_all(&mut self) {
        while self.commit_one() {}
    }

    /// Refuses the oldest append that waits.
    fn fail_one(&mut self, rejection: Rejection) -> bool {
        let Some((token, _)) = self.waiting.pop_front() else {
            return false;
        };
        let mut out = Vec::new();
        self.coordinator
            .appended(token, Err(rejection), self.now, &mut out);
        self.perform(out);
        true
    }

    /// Asks; the answer may come later.
    fn ask(&mut self, group: &str, action: GroupAction) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        let request = GroupRequest {
            coordinator: partition(0, 0),
            group: group.to_string(),
            action,
        };
        let mut out = Vec::new();
        self.coordinator.handle(id, request, self.now, &mut out);
        self.perform(out);
        id
    }

    /// Asks for what is answered at once.
    fn ask_now(&mut self, group: &str, action: GroupAction) -> Answer {
        let id = self.ask(group, action);
        self.answer(id)
    }

    fn answer(&mut self, id: RequestId) -> Answer {
        self.answers
            .remove(&id)
            .unwrap_or_else(|| panic!("{id:?} has no answer"))
    }

    fn is_waiting(&self, id: RequestId) -> bool {
        !self.answers.contains_key(&id)
    }

    fn joined(&mut self, id: RequestId) -> Joined {
        match self.answer(id) {
            Ok(GroupResponse::Joined(joined)) => joined,
            other => panic!("{other:?}"),
        }
    }

    fn assignment(&mut self, id: RequestId) -> Bytes {
        match self.answer(id) {
            Ok(GroupResponse::Synced { assignment, .. }) => assignment,
            other => panic!("{other:?}"),
        }
    }

    fn rejection(&mut self, id: RequestId) -> Rejection {
        self.answer(id).unwrap_err()
    }

    /// Lets time pass, with timers served as soon as they are due.
    fn pass_ms(&mut self, ms: u64) {
        let until = self.now.monotonic.plus_ms(ms);
        while let Some(at) = self.coordinator.next_wake().filter(|at| *at <= until) {
            let at = at.max(self.now.monotonic);
            self.sleep_ms(at.0.saturating_sub(self.now.monotonic.0).div_ceil(1_000));
            self.tick();
        }
        self.sleep_ms(until.ms_since(self.now.monotonic));
    }

    /// Lets time pass without a tick.
    fn sleep_ms(&mut self, ms: u64) {
        self.now.monotonic = self.now.monotonic.plus_ms(ms);
        self.now.wall.0 += ms;
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.coordinator.tick(self.now, &mut out);
        self.perform(out);
    }

    fn describe(&mut self, group: &str) -> GroupDescription {
        match self.ask_now(group, GroupAction::Describe) {
            Ok(GroupResponse::Described(description)) => description,
            other => panic!("{other:?}"),
        }
    }

    fn state(&mut self, group: &str) -> GroupState {
        self.describe(group).state
    }

    fn heartbeat(&mut self, group: &str, fence: &MemberFence) -> Result<(), Rejection> {
        self.ask_now(group, GroupAction::Heartbeat(fence.clone()))
            .map(drop)
    }

    /// A commit of `offset` to partition 0 of topic 1.
    fn commit(
        &mut self,
        group: &str,
        fence: Option<&MemberFence>,
        offset: u64,
    ) -> Result<(), Rejection> {
        match self.ask_now(group, commit(fence, partition(1, 0), offset))? {
            GroupResponse::Committed(results) => results[0].1,
            other => panic!("{other:?}"),
        }
    }

    fn offsets(&mut self, group: &str) -> Vec<(PartitionId, u64)> {
        let wanted = OffsetsWanted {
            fence: None,
            partitions: None,
        };
        match self.ask_now(group, GroupAction::Committed(wanted)) {
            Ok(GroupResponse::Offsets(offsets)) => offsets
                .iter()
                .map(|stored| (stored.partition, stored.offset.0))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    /// The offset of partition 0 of topic 1.
    fn offset(&mut self, group: &str) -> Option<u64> {
        let offsets = self.offsets(group);
        offsets
            .iter()
            .find(|(at, _)| *at == partition(1, 0))
            .map(|(_, offset)| *offset)
    }

    /// A stable group of these members; their fences.
    fn stable(&mut self, group: &str, members: &[&str]) -> Vec<MemberFence> {
        self.stable_of(group, members.iter().map(|name| join(name)).collect())
    }

    fn stable_of(&mut self, group: &str, joins: Vec<Join>) -> Vec<MemberFence> {
        let mut joining: Vec<(Join, RequestId)> = Vec::new();
        for join in joins {
            let id = self.ask(group, GroupAction::Join(join.clone()));
            let mut again = Vec::new();
            for (earlier, id) in &joining {
                let mut earlier = earlier.clone();
                let id = *id;
                if !self.is_waiting(id) {
                    earlier.member_id = self.joined(id).member_id;
                    let id = self.ask(group, GroupAction::Join(earlier.clone()));
                    again.push((earlier, id));
                } else {
                    again.push((earlier, id));
                }
            }
            again.push((join, id));
            joining = again;
        }
        let mut joined: Vec<(Option<String>, Joined)> = Vec::new();
        for (join, id) in joining {
            joined.push((join.instance_id, self.joined(id)));
        }
        self.sync_all(group, &joined)
    }

    /// Lets all of a generation sync.
    fn sync_all(&mut self, group: &str, joined: &[(Option<String>, Joined)]) -> Vec<MemberFence> {
        let mut fences = Vec::new();
        let mut syncs = Vec::new();
        let all: Vec<String> = joined
            .iter()
            .map(|(_, joined)| joined.member_id.clone())
            .collect();
        for (instance, joined) in joined {
            let fence = fence(joined, instance.as_deref());
            let assignments = all
                .iter()
                .filter(|_| joined.leader == joined.member_id)
                .map(|id| (id.clone(), Bytes::from(format!("for {id}"))))
                .collect();
            syncs.push((
                self.ask(group, sync(&fence, assignments)),
                joined.member_id.clone(),
            ));
            fences.push(fence);
        }
        for (id, member) in syncs {
            assert_eq!(self.assignment(id), format!("for {member}"));
        }
        assert_eq!(self.state(group), GroupState::Stable);
        fences
    }
}

fn partition(topic: u8, index: u32) -> PartitionId {
    PartitionId {
        topic: topic_id(topic),
        partition: PartitionIndex(index),
    }
}

fn topic_id(topic: u8) -> TopicId {
    TopicId([topic; 16])
}

/// A first join of a consumer whose member id will be its name.
fn join(name: &str) -> Join {
    Join {
        member_id: String::new(),
        new_member_id: name.to_string(),
        instance_id: None,
        member_id_required: false,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".to_string(),
        protocols: vec![(
            "range".to_string(),
            Bytes::from(format!("metadata of {name}")),
        )],
        client_id: "client".to_string(),
        client_host: "host".to_string(),
    }
}

/// A join of a static member.
fn static_join(name: &str, instance: &str) -> Join {
    Join {
        instance_id: Some(instance.to_string()),
        protocols: vec![("range".to_string(), Bytes::from_static(b"static"))],
        ..join(name)
    }
}

/// A join of one who is a member already.
fn rejoin(name: &str) -> Join {
    Join {
        member_id: name.to_string(),
        ..join(name)
    }
}

fn offering(join: Join, protocols: &[&str]) -> Join {
    let protocols = protocols
        .iter()
        .map(|name| (name.to_string(), Bytes::new()));
    Join {
        protocols: protocols.collect(),
        ..join
    }
}

fn fence(joined: &Joined, instance: Option<&str>) -> MemberFence {
    MemberFence {
        generation: joined.generation,
        member_id: joined.member_id.clone(),
        instance_id: instance.map(ToString::to_string),
    }
}

fn sync(fence: &MemberFence, assignments: Vec<(String, Bytes)>) -> GroupAction {
    GroupAction::Sync(Sync {
        fence: fence.clone(),
        protocol_type: None,
        protocol: None,
        assignments,
    })
}

fn commit(fence: Option<&MemberFence>, partition: PartitionId, offset: u64) -> GroupAction {
    GroupAction::Commit(Commit {
        fence: fence.cloned(),
        offsets: vec![OffsetToCommit {
            partition,
            offset: Offset(offset),
            leader_epoch: None,
            metadata: String::new(),
        }],
    })
}

fn leave(member: &str) -> GroupAction {
    GroupAction::Leave(vec![LeavingMember {
        member_id: member.to_string(),
        instance_id: None,
    }])
}
