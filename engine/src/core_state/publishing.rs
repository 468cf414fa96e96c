//! Publishes: from admission to the parked reply.

use alloc::vec::Vec;

use super::CoreState;
use crate::admission::{Load, admit};
use crate::effect::Effects;
use crate::identity::PartitionId;
use crate::publish::VerifiedBatches;
use crate::rejection::Rejection;
use crate::replica::{Placed, Waiter, WaitingPublish, queue};
use crate::request::{Publish, RequestId, Response};
use crate::time::{Monotonic, Now};

impl CoreState {
    pub(super) fn on_publish(
        &mut self,
        id: RequestId,
        publish: Publish,
        now: Now,
        effects: &mut Effects,
    ) {
        if let Err(rejection) = self.begin_publish(id, publish, now, effects) {
            self.reply(id, Err(rejection), effects);
        }
    }

    fn begin_publish(
        &mut self,
        id: RequestId,
        publish: Publish,
        now: Now,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        if self.stopping {
            return Err(Rejection::NotLeader);
        }
        admit(self.level, Load::Publish)?;
        let replica = self
            .replicas
            .get(&publish.partition)
            .ok_or_else(|| self.absent(publish.partition))?;
        replica.check_epoch(publish.leader_epoch)?;
        self.place(
            publish.partition,
            publish.batches,
            Waiter::Request(id),
            publish.deadline,
            now,
            effects,
        )?;
        // A repeat of what is committed already is answered at once.
        self.answer_committed(publish.partition, now, effects);
        Ok(())
    }

    /// Why a partition has no replica here.
    pub(super) fn absent(&self, partition: PartitionId) -> Rejection {
        if self.image.partition(partition).is_some() {
            // Still to be opened, or owned by another core: the asker's metadata is not this core's.
            Rejection::NotLeader
        } else {
            Rejection::UnknownTopicOrPartition
        }
    }

    /// Appends to a partition of this core, for a client or for a coordinator. Answers nobody: a
    /// coordinator that is in the middle of its effects must not hear of other appends.
    pub(super) fn place(
        &mut self,
        partition: PartitionId,
        batches: VerifiedBatches,
        waiter: Waiter,
        deadline: Monotonic,
        now: Now,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let (bytes, records, count) = (
            batches.bytes().len(),
            batches.record_count(),
            batches.batches().len(),
        );
        let replica = self
            .replicas
            .get_mut(&partition)
            .ok_or(Rejection::NotLeader)?;
        let mut disk = queue(&mut self.operations, effects);
        let placed = replica.place(batches, waiter, deadline, now, &mut disk)?;
        self.counters.unknown_producers += core::mem::take(&mut replica.unknown_producers);
        self.busy.insert(partition);
        self.touched.insert(partition);
        self.counters.publishes += 1;
        match placed {
            Placed::Appended { tail_bytes } => {
                self.counters.records_in += records;
                self.counters.bytes_in += bytes as u64;
                self.remember_tail(partition, count, tail_bytes);
            }
            Placed::Repeat => self.counters.repeats += 1,
        }
        Ok(())
    }

    /// The watermark may have moved: answers the publishes it has passed, wakes the fetches that
    /// wait for it.
    pub(super) fn on_watermark(&mut self, partition: PartitionId, now: Now, effects: &mut Effects) {
        self.answer_committed(partition, now, effects);
        self.wake_fetches(partition, now, effects);
    }

    fn answer_committed(&mut self, partition: PartitionId, now: Now, effects: &mut Effects) {
        while let Some(replica) = self.replicas.get_mut(&partition) {
            let Some(waiting) = replica.next_committed() else {
                if replica.waiting() == 0 {
                    self.busy.remove(&partition);
                }
                return;
            };
            self.answer_waiting(partition, waiting, Ok(()), now, effects);
        }
    }

    /// The log can no longer keep what it was given: everyone who waits hears so.
    pub(super) fn refuse_waiting(
        &mut self,
        partition: PartitionId,
        rejection: Rejection,
        now: Now,
        effects: &mut Effects,
    ) {
        let Some(replica) = self.replicas.get_mut(&partition) else {
            return;
        };
        let waiting = replica.take_all_waiting();
        self.busy.remove(&partition);
        self.refuse_all(partition, waiting, rejection, now, effects);
    }

    pub(super) fn refuse_overdue(&mut self, now: Now, effects: &mut Effects) {
        let busy: Vec<PartitionId> = self.busy.iter().copied().collect();
        for partition in busy {
            let Some(replica) = self.replicas.get_mut(&partition) else {
                continue;
            };
            let overdue = replica.take_overdue(now.monotonic);
            self.counters.timed_out += overdue.len() as u64;
            self.refuse_all(partition, overdue, Rejection::RequestTimedOut, now, effects);
        }
    }

    pub(super) fn refuse_all(
        &mut self,
        partition: PartitionId,
        waiting: Vec<WaitingPublish>,
        rejection: Rejection,
        now: Now,
        effects: &mut Effects,
    ) {
        for publish in waiting {
            self.answer_waiting(partition, publish, Err(rejection), now, effects);
        }
    }

    fn answer_waiting(
        &mut self,
        partition: PartitionId,
        waiting: WaitingPublish,
        outcome: Result<(), Rejection>,
        now: Now,
        effects: &mut Effects,
    ) {
        match waiting.waiter {
            Waiter::Request(id) => {
                let answer = outcome.map(|()| Response::Published(waiting.published));
                self.reply(id, answer, effects);
            }
            Waiter::Coordinator(token) => {
                let outcome = outcome.map(|()| waiting.published.first_offset);
                self.on_group_appended(partition, token, outcome, now, effects)
            }
        }
    }
}
