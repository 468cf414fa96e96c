//! Group requests: handed to the coordinator that owns them, whose records are appended to its own
//! partition.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchHeader, BatchOptions};

use super::{CoreState, ReadPurpose};
use crate::effect::{Effect, Effects, Report};
use crate::group::{AppendToken, Coordinator, GroupEffect, GroupEffects, GroupLoad, GroupRecord};
use crate::identity::{Offset, PartitionId, TopicId};
use crate::limits::{BATCH_BYTES_MAX, BATCH_OPENED_BYTES_MAX, SCAN_READ_BYTES};
use crate::log::{LogFault, LogPhase, Pieces, Started};
use crate::publish::VerifiedBatches;
use crate::rejection::Rejection;
use crate::replica::{Waiter, queue};
use crate::request::{GroupRequest, RequestId, Response};
use crate::time::{Monotonic, Now};

/// One coordinator and how far it has read its log.
#[derive(Debug)]
pub(super) struct CoordinatorState {
    coordinator: Coordinator,
    loading: Option<Offset>,
    broken: bool,
}

impl CoordinatorState {
    pub(super) fn is_loaded(&self) -> bool {
        self.loading.is_none()
    }
}

impl CoreState {
    pub(super) fn on_group(
        &mut self,
        id: RequestId,
        request: GroupRequest,
        now: Now,
        effects: &mut Effects,
    ) {
        let partition = request.coordinator;
        let Some(state) = self.coordinator(partition) else {
            return self.reply(id, Err(self.no_coordinator(partition)), effects);
        };
        if state.broken {
            return self.reply(id, Err(Rejection::CoordinatorUnavailable), effects);
        }
        let mut out = GroupEffects::new();
        state.coordinator.handle(id, request, now, &mut out);
        self.perform_group(partition, out, now, effects);
    }

    /// The coordinator of a partition, told what the core's others hold.
    fn coordinator(&mut self, partition: PartitionId) -> Option<&mut CoordinatorState> {
        let others = self.coordinators.iter().filter(|(of, _)| **of != partition);
        let elsewhere: GroupLoad = others.map(|(_, state)| state.coordinator.load()).sum();
        let state = self.coordinators.get_mut(&partition)?;
        state.coordinator.set_elsewhere(elsewhere);
        Some(state)
    }

    /// Why nobody coordinates for a partition.
    fn no_coordinator(&self, partition: PartitionId) -> Rejection {
        if self.image.partition(partition).is_none() {
            return Rejection::NotCoordinator;
        }
        match self.replicas.get(&partition).map(|it| it.log.phase()) {
            // Its log was stopped before it could be read: loading will not end.
            Some(LogPhase::Corrupt | LogPhase::Failed) => Rejection::CoordinatorUnavailable,
            _ => Rejection::CoordinatorLoading,
        }
    }

    /// An append of the coordinator is committed at this offset, or failed.
    pub(super) fn on_group_appended(
        &mut self,
        partition: PartitionId,
        token: u64,
        outcome: Result<Offset, Rejection>,
        now: Now,
        effects: &mut Effects,
    ) {
        let out = self.tell_appended(partition, AppendToken(token), outcome, now);
        self.perform_group(partition, out, now, effects);
    }

    fn tell_appended(
        &mut self,
        partition: PartitionId,
        token: AppendToken,
        outcome: Result<Offset, Rejection>,
        now: Now,
    ) -> GroupEffects {
        let mut out = GroupEffects::new();
        if let Some(state) = self.coordinator(partition) {
            state.coordinator.appended(token, outcome, now, &mut out);
        }
        out
    }

    pub(super) fn tick_coordinators(&mut self, now: Now, effects: &mut Effects) {
        let due = |state: &CoordinatorState| {
            state
                .coordinator
                .next_wake()
                .is_some_and(|wake| wake <= now.monotonic)
        };
        let partitions: Vec<PartitionId> = self
            .coordinators
            .iter()
            .filter(|(_, state)| due(state))
            .map(|(partition, _)| *partition)
            .collect();
        for partition in partitions {
            let Some(state) = self.coordinator(partition) else {
                continue;
            };
            let mut out = GroupEffects::new();
            state.coordinator.tick(now, &mut out);
            self.perform_group(partition, out, now, effects);
        }
    }

    pub(super) fn next_coordinator_wake(&self) -> Option<Monotonic> {
        self.coordinators
            .values()
            .filter_map(|state| state.coordinator.next_wake())
            .min()
    }

    pub(super) fn cancel_group_request(&mut self, id: RequestId, now: Now) {
        for state in self.coordinators.values_mut() {
            state.coordinator.cancel(id, now);
        }
    }

    pub(super) fn forget_topic_offsets(&mut self, topic: TopicId, now: Now, effects: &mut Effects) {
        let partitions: Vec<PartitionId> = self.coordinators.keys().copied().collect();
        for partition in partitions {
            let Some(state) = self
                .coordinators
                .get_mut(&partition)
                .filter(|state| state.is_loaded())
            else {
                continue;
            };
            let mut out = GroupEffects::new();
            state.coordinator.forget_topic(topic, now, &mut out);
            self.perform_group(partition, out, now, effects);
        }
    }

    /// What follows from an append that is refused at once comes after everything decided before it,
    /// so that appends reach the log in the order of their tokens.
    fn perform_group(
        &mut self,
        partition: PartitionId,
        out: GroupEffects,
        now: Now,
        effects: &mut Effects,
    ) {
        let mut to_do = VecDeque::from(out);
        while let Some(effect) = to_do.pop_front() {
            match effect {
                GroupEffect::Reply { id, answer } => {
                    self.reply(id, answer.map(Response::Group), effects)
                }
                GroupEffect::Append { token, records } => {
                    if let Err(refused) =
                        self.append_group(partition, token, &records, now, effects)
                    {
                        to_do.extend(self.tell_appended(partition, token, Err(refused), now));
                    }
                }
                GroupEffect::MoveLogStart(offset) => {
                    if let Some(replica) = self.replicas.get_mut(&partition) {
                        let mut disk = queue(&mut self.operations, effects);
                        replica.log.delete_before(offset, &mut disk);
                        self.touched.insert(partition);
                    }
                }
            }
        }
    }

    fn append_group(
        &mut self,
        partition: PartitionId,
        token: AppendToken,
        records: &[GroupRecord],
        now: Now,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let batches = build(records, now).ok_or(Rejection::MessageTooLarge)?;
        self.place(
            partition,
            batches,
            Waiter::Coordinator(token.0),
            Monotonic(u64::MAX),
            now,
            effects,
        )
    }

    /// A partition of the offsets topic is open: its coordinator reads it from the start.
    pub(super) fn begin_loading(
        &mut self,
        partition: PartitionId,
        now: Now,
        effects: &mut Effects,
    ) {
        let Some(replica) = self.replicas.get(&partition) else {
            return;
        };
        let state = CoordinatorState {
            coordinator: Coordinator::new(self.settings.group.clone(), now),
            loading: Some(replica.log.start()),
            broken: false,
        };
        self.coordinators.insert(partition, state);
        self.load_more(partition, now, effects);
    }

    fn load_more(&mut self, partition: PartitionId, now: Now, effects: &mut Effects) {
        loop {
            let Some(replica) = self.replicas.get_mut(&partition) else {
                return;
            };
            let Some(state) = self.coordinators.get_mut(&partition) else {
                return;
            };
            let Some(from) = state.loading else { return };
            // What recovery found is durable, and with one voter that is committed, also before the
            // metadata has heard that the log has begun.
            let up_to = replica.log.durable_end();
            if from >= up_to {
                state.loading = None;
                let mut out = GroupEffects::new();
                state.coordinator.loaded(now, &mut out);
                // Topics may have gone while nobody coordinated.
                for topic in state.coordinator.topics() {
                    if self.image.topic(topic).is_none() {
                        state.coordinator.forget_topic(topic, now, &mut out);
                    }
                }
                return self.perform_group(partition, out, now, effects);
            }
            let mut disk = queue(&mut self.operations, effects);
            self.touched.insert(partition);
            match replica.log.read(from, SCAN_READ_BYTES, up_to, &mut disk) {
                Started::Pending(read) => {
                    self.reads.insert((partition, read), ReadPurpose::Load);
                    return;
                }
                Started::Ready(pieces) => {
                    if let Err(what) = state.replay(&pieces) {
                        return self.break_coordinator(partition, what, effects);
                    }
                }
            }
        }
    }

    pub(super) fn on_loaded_part(
        &mut self,
        partition: PartitionId,
        result: Result<Pieces, LogFault>,
        now: Now,
        effects: &mut Effects,
    ) {
        let Some(state) = self.coordinators.get_mut(&partition) else {
            return;
        };
        let replayed = match result {
            Ok(pieces) => state.replay(&pieces),
            Err(fault) => Err(alloc::format!("{fault}")),
        };
        match replayed {
            Ok(()) => self.load_more(partition, now, effects),
            Err(what) => self.break_coordinator(partition, what, effects),
        }
    }

    /// Groups whose log cannot be read are not served: unreadable is never taken for empty.
    fn break_coordinator(
        &mut self,
        partition: PartitionId,
        what: alloc::string::String,
        effects: &mut Effects,
    ) {
        if let Some(state) = self.coordinators.get_mut(&partition) {
            state.loading = None;
            state.broken = true;
        }
        self.counters.logs_stopped += 1;
        effects.push(Effect::Report(Report::LogStopped(partition, what)));
    }

    /// The replica of a coordinator's partition can no longer append.
    pub(super) fn resign_coordinator(&mut self, partition: PartitionId, effects: &mut Effects) {
        let Some(mut state) = self.coordinators.remove(&partition) else {
            return;
        };
        let mut out = GroupEffects::new();
        state.coordinator.resign(&mut out);
        for effect in out {
            if let GroupEffect::Reply { id, answer } = effect {
                self.reply(id, answer.map(Response::Group), effects);
            }
        }
        state.loading = None;
        state.broken = true;
        self.coordinators.insert(partition, state);
    }
}

impl CoordinatorState {
    fn replay(&mut self, pieces: &Pieces) -> Result<(), alloc::string::String> {
        let Some(mut next) = self.loading else {
            return Ok(());
        };
        for piece in pieces {
            for batch in corelog_batch::batches(piece.clone()) {
                let (header, bytes) = batch.map_err(|error| alloc::format!("{error}"))?;
                next = self.replay_batch(&header, &bytes, next)?;
            }
        }
        if self.loading == Some(next) {
            return Err(alloc::string::String::from(
                "a read of the offsets log brought nothing",
            ));
        }
        self.loading = Some(next);
        Ok(())
    }

    fn replay_batch(
        &mut self,
        header: &BatchHeader,
        bytes: &Bytes,
        from: Offset,
    ) -> Result<Offset, alloc::string::String> {
        let body = corelog_batch::open(bytes, BATCH_OPENED_BYTES_MAX)
            .map_err(|error| alloc::format!("{error}"))?;
        for record in corelog_batch::records(header, body) {
            let record = record.map_err(|error| alloc::format!("{error}"))?;
            // The log start may lie inside a batch.
            if record.offset(header) < from.to_wire() {
                continue;
            }
            let Some(key) = &record.key else { continue };
            self.coordinator
                .replay(key, record.value.as_ref())
                .map_err(|error| alloc::format!("{error:?}"))?;
        }
        Offset::from_wire(header.next_offset())
            .ok_or_else(|| alloc::string::String::from("a negative offset"))
    }
}

fn build(records: &[GroupRecord], now: Now) -> Option<VerifiedBatches> {
    let options = BatchOptions {
        batch_bytes_max: BATCH_BYTES_MAX,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    let stamp = i64::try_from(now.wall.0).unwrap_or(0);
    for record in records {
        builder
            .append(stamp, Some(&record.key), record.value.as_deref(), &[])
            .ok()?;
    }
    Some(VerifiedBatches::own(builder.build().ok()?.freeze()))
}
