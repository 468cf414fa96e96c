//! Committed offsets.
//!
//! Invariants:
//! 1. A member of an older generation, one whose session has ended and one whose static id another
//!    has taken cannot move the group's offsets; nor can anybody without a session while the
//!    group has members.
//! 2. An offset is shown after the log holds it.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::outstanding::{Change, Turn};
use super::rebalance::Phase;
use super::record::{Key, StoredOffset};
use super::state::Group;
use crate::identity::{PartitionId, PartitionIndex, TopicId};
use crate::limits::OFFSET_METADATA_BYTES_MAX;
use crate::rejection::Rejection;
use crate::request::{
    Commit, CommittedOffset, GroupResponse, MemberFence, OffsetToCommit, OffsetsWanted, RequestId,
};

impl Group {
    /// Handles a commit.
    pub(super) fn commit(&mut self, id: RequestId, commit: Commit, turn: &mut Turn<'_>) {
        if let Err(rejection) = self.admit_commit(commit.fence.as_ref()) {
            return turn.reject(id, rejection);
        }
        if let Some(fence) = &commit.fence {
            self.renew_session(&fence.member_id, turn.now.monotonic);
        }
        let mut room = self.room_for_offsets(turn);
        let mut offsets = Vec::new();
        let mut answer = Vec::with_capacity(commit.offsets.len());
        for wanted in commit.offsets {
            let result = self.check_offset(&wanted, &mut room, turn);
            answer.push((wanted.partition, result));
            if result.is_ok() {
                offsets.push((wanted.partition, stored(wanted, turn)));
            }
        }
        if offsets.is_empty() {
            return turn.reply(id, Ok(GroupResponse::Committed(answer)));
        }
        self.append_offsets(id, offsets, answer, turn);
    }

    /// Whether this asker may move the group's offsets now.
    fn admit_commit(&self, fence: Option<&MemberFence>) -> Result<(), Rejection> {
        if self.deleting {
            return Err(Rejection::CoordinatorUnavailable);
        }
        match fence {
            None if self.phase == Phase::Empty => Ok(()),
            None => Err(Rejection::UnknownMember),
            Some(fence) => {
                self.check_fence(fence)?;
                match self.phase {
                    Phase::CompletingRebalance => Err(Rejection::RebalanceInProgress),
                    Phase::Empty | Phase::PreparingRebalance { .. } | Phase::Stable => Ok(()),
                }
            }
        }
    }

    /// How many further offsets, and bytes of them, there is room for.
    fn room_for_offsets(&self, turn: &Turn<'_>) -> (usize, usize) {
        let count = turn.settings.offsets_max.saturating_sub(self.offsets.len());
        let used = turn.bytes_elsewhere + self.bytes;
        (count, turn.settings.bytes_max.saturating_sub(used))
    }

    fn check_offset(
        &self,
        wanted: &OffsetToCommit,
        room: &mut (usize, usize),
        turn: &Turn<'_>,
    ) -> Result<(), Rejection> {
        if wanted.metadata.len() > OFFSET_METADATA_BYTES_MAX {
            return Err(Rejection::OffsetMetadataTooLarge);
        }
        if turn.forgetting.contains(&wanted.partition.topic) {
            return Err(Rejection::UnknownTopicOrPartition);
        }
        let (count, bytes) = match self.offsets.get(&wanted.partition) {
            Some(before) => (
                0,
                wanted.metadata.len().saturating_sub(before.metadata.len()),
            ),
            None => (1, wanted.metadata.len() + 128),
        };
        if count > room.0 || bytes > room.1 {
            return Err(Rejection::Overloaded);
        }
        *room = (room.0 - count, room.1 - bytes);
        Ok(())
    }

    fn append_offsets(
        &mut self,
        id: RequestId,
        offsets: Vec<(PartitionId, StoredOffset)>,
        answer: Vec<(PartitionId, Result<(), Rejection>)>,
        turn: &mut Turn<'_>,
    ) {
        let mut records = Vec::with_capacity(offsets.len() + 1);
        let (mut recorded, mut emptied) = (None, None);
        if self.empty_unrecorded {
            // Whoever commits to an empty group rests on its being empty: were that lost in a
            // restart, members that have gone could commit over this.
            let value = self.image().encode();
            records.push(self.record(value.clone()));
            (recorded, emptied) = (Some(value), Some(self.generation));
        }
        for (partition, stored) in &offsets {
            let key = Key::Offset(String::from(&*self.id), *partition);
            records.push(key.with(stored.encode()));
        }
        let change = Change::Offsets {
            id,
            offsets,
            answer,
            emptied,
        };
        if let Err(rejection) = self.append(records, recorded, change, turn) {
            turn.reject(id, rejection);
        }
    }

    /// Handles a question for offsets.
    pub(super) fn committed(&self, wanted: &OffsetsWanted) -> Result<GroupResponse, Rejection> {
        if let Some(fence) = &wanted.fence {
            self.check_fence(fence)?;
        }
        let offsets = match &wanted.partitions {
            None => self.offsets.iter().map(shown).collect(),
            Some(partitions) => partitions
                .iter()
                .filter_map(|partition| self.offsets.get_key_value(partition))
                .map(shown)
                .collect(),
        };
        Ok(GroupResponse::Offsets(offsets))
    }

    /// Handles a removal of offsets.
    pub(super) fn delete_offsets(
        &mut self,
        id: RequestId,
        partitions: Vec<PartitionId>,
        turn: &mut Turn<'_>,
    ) {
        if self.deleting {
            return turn.reject(id, Rejection::CoordinatorUnavailable);
        }
        if self.phase != Phase::Empty {
            return turn.reject(id, Rejection::NonEmptyGroup);
        }
        let answer = partitions
            .iter()
            .map(|partition| (*partition, Ok(())))
            .collect();
        let records = partitions
            .iter()
            .map(|partition| Key::Offset(String::from(&*self.id), *partition).alone())
            .collect::<Vec<_>>();
        if records.is_empty() {
            return turn.reply(id, Ok(GroupResponse::OffsetsDeleted(answer)));
        }
        let change = Change::OffsetsRemoved {
            id: Some(id),
            partitions,
            answer,
        };
        if let Err(rejection) = self.append(records, None, change, turn) {
            turn.reject(id, rejection);
        }
    }

    /// Whether the group has offsets of a topic.
    pub(super) fn has_topic(&self, topic: TopicId) -> bool {
        self.offsets.range(partitions_of(topic)).next().is_some()
    }

    /// Drops the offsets of a topic.
    pub(super) fn forget_topic(&mut self, topic: TopicId) {
        let partitions = self.offsets.range(partitions_of(topic));
        for partition in partitions
            .map(|(partition, _)| *partition)
            .collect::<Vec<_>>()
        {
            self.remove_offset(partition);
        }
    }

    /// Handles a removal of the group, asked for or (`None`) due: one record says that the group
    /// is gone with its offsets.
    pub(super) fn delete(&mut self, id: Option<RequestId>, turn: &mut Turn<'_>) {
        let refusal = match self.phase {
            _ if self.deleting => Some(Rejection::CoordinatorUnavailable),
            // Returned static members wait to come in: their record must not follow the removal.
            Phase::Empty if self.returns.is_empty() && !self.returning => None,
            _ => Some(Rejection::NonEmptyGroup),
        };
        let result = match refusal {
            Some(rejection) => Err(rejection),
            None => {
                let record = Key::Group(String::from(&*self.id)).alone();
                self.append(vec![record], None, Change::Deletion(id), turn)
            }
        };
        match (result, id) {
            (Ok(_), _) => self.deleting = true,
            (Err(rejection), Some(id)) => turn.reject(id, rejection),
            (Err(_), None) => {}
        }
    }
}

fn partitions_of(topic: TopicId) -> core::ops::RangeInclusive<PartitionId> {
    let partition = |index| PartitionId {
        topic,
        partition: PartitionIndex(index),
    };
    partition(0)..=partition(u32::MAX)
}

fn stored(wanted: OffsetToCommit, turn: &Turn<'_>) -> StoredOffset {
    StoredOffset {
        offset: wanted.offset,
        leader_epoch: wanted.leader_epoch,
        metadata: wanted.metadata,
        commit_time_ms: turn.clock.stamp_ms(turn.now),
    }
}

fn shown((partition, stored): (&PartitionId, &StoredOffset)) -> CommittedOffset {
    CommittedOffset {
        partition: *partition,
        offset: stored.offset,
        leader_epoch: stored.leader_epoch,
        metadata: stored.metadata.clone(),
        commit_time_ms: stored.commit_time_ms,
    }
}
