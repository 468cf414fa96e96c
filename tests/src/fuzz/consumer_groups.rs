//! The records of the offsets topic: a coordinator reads them back whatever they say.

use bytes::Bytes;
use corelog_engine::group::{Coordinator, GroupEffect, GroupEffects, GroupRecord, Settings};
use corelog_engine::identity::{LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicId};
use corelog_engine::request::{
    Commit, GroupAction, GroupRequest, GroupResponse, Join, MemberFence, OffsetToCommit, RequestId,
    Sync,
};
use corelog_engine::time::{Monotonic, Now, Wall};

use super::{Allowance, Target, note, note_result};

/// Steps of one coordinator's own work (snapshots, expiry) that are followed.
const STEPS_MAX: usize = 64;

pub(super) const TARGETS: &[Target] = &[Target {
    name: "group_replay",
    run: replay,
    samples,
    dictionary: &[&[0xc7, 1], &[0xc8, 1], &[0x81], &[0xff, 0xff]],
    repair: Some(repair),
    allowance: Allowance {
        allocation_per_input_byte: 64,
        ..Allowance::DEFAULT
    },
}];

fn now(seconds: u64) -> Now {
    Now {
        monotonic: Monotonic(1_000_000 * (1 + seconds)),
        wall: Wall(1_700_000_000_000 + 1_000 * seconds),
    }
}

fn settings() -> Settings {
    Settings {
        initial_rebalance_delay_ms: 0,
        snapshot_part_bytes: 300,
        ..Settings::default()
    }
}

/// Records as key length, key, value length (all ones: none), value.
fn records(bytes: &[u8]) -> Vec<GroupRecord> {
    let mut rest = bytes;
    let mut records = Vec::new();
    while let Some(key) = take(&mut rest) {
        let Some(value) = take(&mut rest) else { break };
        records.push(GroupRecord {
            key: key.unwrap_or_default(),
            value,
        });
    }
    records
}

/// A piece with its length in front; `None` at the end.
fn take(rest: &mut &[u8]) -> Option<Option<Bytes>> {
    let (length, behind) = rest.split_first_chunk::<2>()?;
    let length = u16::from_be_bytes(*length);
    *rest = behind;
    if length == u16::MAX {
        return Some(None);
    }
    let (piece, behind) = rest.split_at_checked(usize::from(length))?;
    *rest = behind;
    Some(Some(Bytes::copy_from_slice(piece)))
}

fn written(records: &[GroupRecord]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend_from_slice(&(record.key.len() as u16).to_be_bytes());
        out.extend_from_slice(&record.key);
        let length = record
            .value
            .as_ref()
            .map_or(u16::MAX, |value| value.len() as u16);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(record.value.as_deref().unwrap_or_default());
    }
    out
}

/// Gives every piece a length that fits.
fn repair(bytes: &mut Vec<u8>) {
    let mut start = 0;
    while bytes.len() >= start + 2 {
        let claimed = u16::from_be_bytes([bytes[start], bytes[start + 1]]);
        let rest = bytes.len() - start - 2;
        let length = match claimed {
            u16::MAX => 0,
            _ if usize::from(claimed) > rest => {
                let fitting = rest.min(60_000);
                bytes[start..start + 2].copy_from_slice(&(fitting as u16).to_be_bytes());
                fitting
            }
            _ => usize::from(claimed),
        };
        start += 2 + length;
    }
}

/// Refused or read; what was read can be served, expires, and comes back out of its own snapshot.
fn replay(bytes: &[u8]) {
    let records = records(bytes);
    let mut coordinator = Coordinator::new(settings(), now(0));
    for record in &records {
        let replayed = coordinator.replay(&record.key, record.value.as_ref());
        note_result(&replayed);
        if replayed.is_err() {
            return;
        }
    }
    note(records.len());
    let mut world = World::serving(coordinator);
    let size = world.coordinator.size();
    note(size);
    let mut effects = Vec::new();
    world.coordinator.begin_snapshot(now(1), &mut effects);
    world.perform(effects, now(1));
    let mut again = Coordinator::new(settings(), now(1));
    for record in &world.log[world.log_start..] {
        let replayed = again.replay(&record.key, record.value.as_ref());
        assert!(replayed.is_ok(), "own records are refused: {replayed:?}");
    }
    let again = World::serving(again);
    assert_eq!(
        again.coordinator.size(),
        world.coordinator.size(),
        "a snapshot lost something"
    );
    let mut seconds = 1;
    for _ in 0..STEPS_MAX {
        seconds += 600_000;
        let mut effects = Vec::new();
        world.coordinator.tick(now(seconds), &mut effects);
        world.perform(effects, now(seconds));
    }
}

/// A coordinator with a log that commits at once.
struct World {
    coordinator: Coordinator,
    log: Vec<GroupRecord>,
    log_start: usize,
    answers: Vec<Option<GroupResponse>>,
}

impl World {
    fn serving(mut coordinator: Coordinator) -> Self {
        let mut effects = Vec::new();
        coordinator.loaded(now(0), &mut effects);
        let mut world = Self {
            coordinator,
            log: Vec::new(),
            log_start: 0,
            answers: Vec::new(),
        };
        world.perform(effects, now(0));
        world
    }

    fn perform(&mut self, effects: GroupEffects, now: Now) {
        let mut waiting = std::collections::VecDeque::from(effects);
        let mut steps = 0;
        while let Some(effect) = waiting.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "a coordinator that never rests");
            match effect {
                GroupEffect::Reply { answer, .. } => self.answers.push(answer.ok()),
                GroupEffect::Append { token, records } => {
                    let offset = Offset(self.log.len() as u64);
                    self.log.extend(records);
                    let mut further = Vec::new();
                    self.coordinator
                        .appended(token, Ok(offset), now, &mut further);
                    waiting.extend(further);
                }
                GroupEffect::MoveLogStart(offset) => self.log_start = offset.get() as usize,
            }
        }
    }

    fn ask(&mut self, group: &str, action: GroupAction) -> Option<GroupResponse> {
        let id = RequestId(self.answers.len() as u64 + 1);
        let request = GroupRequest {
            coordinator: partition(0),
            group: group.to_owned(),
            action,
        };
        let mut effects = Vec::new();
        self.coordinator.handle(id, request, now(0), &mut effects);
        self.perform(effects, now(0));
        let mut effects = Vec::new();
        self.coordinator.tick(now(0), &mut effects);
        self.perform(effects, now(0));
        self.answers.last().cloned().flatten()
    }
}

fn partition(index: u32) -> PartitionId {
    PartitionId {
        topic: TopicId([7; 16]),
        partition: PartitionIndex(index),
    }
}

fn join(world: &mut World, group: &str) -> Option<MemberFence> {
    let join = Join {
        member_id: String::new(),
        new_member_id: "a".to_owned(),
        instance_id: Some("i".to_owned()),
        member_id_required: false,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"metadata"))],
        client_id: "client".to_owned(),
        client_host: "host".to_owned(),
    };
    match world.ask(group, GroupAction::Join(join))? {
        GroupResponse::Joined(joined) => Some(MemberFence {
            generation: joined.generation,
            member_id: "a".to_owned(),
            instance_id: Some("i".to_owned()),
        }),
        _ => None,
    }
}

fn commit(world: &mut World, group: &str, fence: Option<MemberFence>, offset: u64) {
    let offset = OffsetToCommit {
        partition: partition(1),
        offset: Offset(offset),
        leader_epoch: Some(LeaderEpoch(3)),
        metadata: "note".to_owned(),
    };
    let offsets = vec![offset];
    world.ask(group, GroupAction::Commit(Commit { fence, offsets }));
}

fn samples() -> Vec<Vec<u8>> {
    let mut world = World::serving(Coordinator::new(settings(), now(0)));
    if let Some(fence) = join(&mut world, "members") {
        let sync = Sync {
            fence: fence.clone(),
            protocol_type: None,
            protocol: None,
            assignments: vec![("a".to_owned(), Bytes::from_static(b"assignment"))],
        };
        world.ask("members", GroupAction::Sync(sync));
        commit(&mut world, "members", Some(fence), 8);
    }
    commit(&mut world, "alone", None, 5);
    commit(&mut world, "deleted", None, 5);
    world.ask("deleted", GroupAction::Delete);
    let plain = written(&world.log);
    let mut effects = Vec::new();
    world
        .coordinator
        .forget_topic(TopicId([7; 16]), now(0), &mut effects);
    world.coordinator.begin_snapshot(now(0), &mut effects);
    world.perform(effects, now(0));
    let mut samples: Vec<_> = world
        .log
        .iter()
        .map(|record| written(std::slice::from_ref(record)))
        .collect();
    samples.extend([
        plain,
        written(&world.log),
        written(&world.log[world.log_start..]),
    ]);
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_hold_members_offsets_and_a_snapshot() {
        let samples = samples();
        assert!(samples.len() > 8, "{}", samples.len());
        let plain = &samples[samples.len() - 3];
        assert!(plain.windows(10).any(|bytes| bytes == b"assignment"));
    }
}
