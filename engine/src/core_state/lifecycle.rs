//! Opening logs, following the metadata, upkeep, and the end.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::Bound;

use super::{CoreState, ReadPurpose, UPKEEP_LOGS_MAX};
use crate::effect::{Effect, Effects, Report};
use crate::identity::{PartitionId, TopicId};
use crate::limits::RECOVERIES_AT_ONCE_MAX;
use crate::log::{LogFault, LogPhase, LogProgress, Recovered};
use crate::metadata::{Applied, MetadataRecord, OFFSETS_TOPIC, Topic};
use crate::rejection::Rejection;
use crate::replica::{Replica, queue, rejection_of};
use crate::time::Now;

impl CoreState {
    /// Opens logs, some at a time. The offsets topic's come in their turn like the others.
    pub(super) fn open_next(&mut self, now: Now, effects: &mut Effects) {
        while self.recovering.len() < RECOVERIES_AT_ONCE_MAX {
            let Some(id) = self.to_open.pop_front() else {
                return;
            };
            let Some(topic) = self.image.topic(id.topic) else {
                continue;
            };
            let Some(partition) = topic.partition(id.partition) else {
                continue;
            };
            let Some(known) = partition.replica_on(self.settings.broker) else {
                continue;
            };
            let mut disk = queue(&mut self.operations, effects);
            let replica = Replica::open(
                id,
                known,
                partition.leader_epoch,
                topic,
                &self.settings.log,
                &mut disk,
            );
            let is_open = replica.log.phase() != LogPhase::Recovering;
            self.replicas.insert(id, replica);
            if is_open {
                self.on_open(id, now, effects);
            } else {
                self.recovering.insert(id);
            }
        }
    }

    fn on_open(&mut self, partition: PartitionId, now: Now, effects: &mut Effects) {
        if self.keeps_offsets(partition.topic) {
            self.begin_loading(partition, now, effects);
        }
    }

    fn keeps_offsets(&self, topic: TopicId) -> bool {
        self.image
            .topic(topic)
            .is_some_and(|topic| topic.internal && topic.name == OFFSETS_TOPIC)
    }

    /// Something came of a log's disk request.
    pub(super) fn on_progress(
        &mut self,
        partition: PartitionId,
        progress: LogProgress,
        now: Now,
        effects: &mut Effects,
    ) {
        match progress {
            LogProgress::Recovered(recovered) => {
                self.on_recovered(partition, &recovered, now, effects)
            }
            LogProgress::DurableEnd(_) => {
                self.on_watermark(partition, now, effects);
                self.checkpoint_if_due(partition, effects);
            }
            LogProgress::Read(read, result) => self.on_read(partition, read, result, now, effects),
            LogProgress::Found(read, result) => {
                if let Some(ReadPurpose::Lookup(id)) = self.reads.remove(&(partition, read)) {
                    self.finish_lookup(id, result, effects);
                }
            }
            LogProgress::Failed(fault) => self.on_log_failed(partition, &fault, now, effects),
            LogProgress::Removed => {
                self.removing.remove(&partition);
            }
            LogProgress::Begun => self.propose_begun(partition, effects),
            LogProgress::Promised(_)
            | LogProgress::Start(_)
            | LogProgress::Checkpointed(_)
            | LogProgress::Cut(_)
            | LogProgress::NoRoom
            | LogProgress::Stopped => {}
        }
    }

    /// The folder, the state and the first segment are durable. Only now may the metadata call a
    /// missing log a loss; a record that came before them could outlive a crash that they do not.
    fn propose_begun(&mut self, partition: PartitionId, effects: &mut Effects) {
        if let Some(replica) = self
            .replicas
            .get_mut(&partition)
            .filter(|replica| !replica.begun())
        {
            let log_id = replica.log.log_id();
            effects.push(Effect::Propose(MetadataRecord::LogBegun {
                partition,
                log_id,
            }));
        }
    }

    fn on_recovered(
        &mut self,
        partition: PartitionId,
        recovered: &Recovered,
        now: Now,
        effects: &mut Effects,
    ) {
        self.recovering.remove(&partition);
        let Some(replica) = self.replicas.get_mut(&partition) else {
            return self.open_next(now, effects);
        };
        match replica.recovered(recovered) {
            Ok(begins) => {
                if let Some(fault) = &recovered.snapshot_lost {
                    self.counters.producer_tables_rebuilt += 1;
                    effects.push(Effect::Report(Report::ProducersRebuilt(
                        partition,
                        fault.to_string(),
                    )));
                }
                let log_id = replica.log.log_id();
                effects.push(Effect::Report(Report::Recovered {
                    partition,
                    scanned_bytes: recovered.scanned_bytes,
                    cut_bytes: recovered.cut_bytes,
                }));
                if begins {
                    effects.push(Effect::Propose(MetadataRecord::LogBegun {
                        partition,
                        log_id,
                    }));
                }
                self.on_open(partition, now, effects);
            }
            // The log has stopped and tells it next. The replica stays, to refuse and to be deleted.
            Err(_) => {
                self.touched.insert(partition);
            }
        }
        self.open_next(now, effects);
    }

    /// A fault is final for its log: who waits hears of it, who may still read does.
    fn on_log_failed(
        &mut self,
        partition: PartitionId,
        fault: &LogFault,
        now: Now,
        effects: &mut Effects,
    ) {
        self.counters.logs_stopped += 1;
        effects.push(Effect::Report(Report::LogStopped(
            partition,
            fault.to_string(),
        )));
        self.recovering.remove(&partition);
        self.refuse_waiting(partition, rejection_of(fault), now, effects);
        self.resign_coordinator(partition, effects);
        self.wake_fetches(partition, now, effects);
        self.open_next(now, effects);
    }

    /// The next record of the metadata log.
    pub(super) fn on_metadata(&mut self, record: &MetadataRecord, now: Now, effects: &mut Effects) {
        // A record that lost its race has changed nothing anywhere.
        let Ok(applied) = self.image.apply(record) else {
            return;
        };
        match applied {
            Applied::TopicCreated(topic) => self.open_topic(topic, None, now, effects),
            Applied::PartitionsAdded(first) => {
                self.open_topic(first.topic, Some(first), now, effects)
            }
            Applied::TopicDeleted(topic) => self.remove_topic(&topic, now, effects),
            Applied::TopicSettings(topic) => self.change_settings(topic),
            Applied::LogBegun(partition) => self.on_begun(partition, now, effects),
            Applied::Nothing
            | Applied::FeatureLevel(_)
            | Applied::Broker(_)
            | Applied::BrokerStarted(_)
            | Applied::CoresChanged(_)
            | Applied::ProducerIds { .. } => {}
        }
    }

    fn open_topic(
        &mut self,
        topic: TopicId,
        from: Option<PartitionId>,
        now: Now,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.image.topic(topic) else {
            return;
        };
        let (broker, core) = (self.settings.broker, self.settings.core);
        let ours = topic.iter().filter(|(id, partition)| {
            let owned = partition
                .replica_on(broker)
                .is_some_and(|replica| replica.core == core);
            owned && partition.leader == broker && from.is_none_or(|first| *id >= first)
        });
        let ours: Vec<PartitionId> = ours.map(|(id, _)| id).collect();
        self.to_open.extend(ours);
        self.open_next(now, effects);
    }

    fn change_settings(&mut self, topic: TopicId) {
        let Some(topic) = self.image.topic(topic) else {
            return;
        };
        for (_, replica) in self.replicas.range_mut(partitions_of(topic.id)) {
            replica.set_topic(topic, &self.settings.log);
        }
    }

    fn remove_topic(&mut self, topic: &Topic, now: Now, effects: &mut Effects) {
        self.to_open.retain(|id| id.topic != topic.id);
        let ids: Vec<PartitionId> = self
            .replicas
            .range(partitions_of(topic.id))
            .map(|(id, _)| *id)
            .collect();
        for partition in ids {
            self.refuse_waiting(partition, Rejection::UnknownTopicOrPartition, now, effects);
            let Some(mut replica) = self.replicas.remove(&partition) else {
                continue;
            };
            self.recovering.remove(&partition);
            while let Some(bytes) = replica.forget_oldest_tail() {
                self.tail_bytes -= bytes;
            }
            self.tail_order.retain(|owner| *owner != partition);
            let waiting: Vec<_> = replica.fetches.iter().copied().collect();
            let mut disk = queue(&mut self.operations, effects);
            replica.log.remove(&mut disk);
            self.removing.insert(partition, replica);
            self.abandon_reads(partition, waiting, now, effects);
            self.coordinators.remove(&partition);
        }
        self.settle_tail();
        self.forget_topic_offsets(topic.id, now, effects);
        self.open_next(now, effects);
    }

    /// Whether nothing of a deleted topic is left here: its folders are gone, and nothing will make
    /// them again.
    pub fn has_let_go(&self, topic: TopicId) -> bool {
        let of_it = || partitions_of(topic);
        self.image.topic(topic).is_none()
            && self.replicas.range(of_it()).next().is_none()
            && self.removing.range(of_it()).next().is_none()
    }

    fn on_begun(&mut self, partition: PartitionId, now: Now, effects: &mut Effects) {
        if let Some(replica) = self.replicas.get_mut(&partition) {
            replica.set_begun();
            self.on_watermark(partition, now, effects);
        }
    }

    fn checkpoint_if_due(&mut self, partition: PartitionId, effects: &mut Effects) {
        let Some(replica) = self.replicas.get_mut(&partition) else {
            return;
        };
        if replica.log.phase() == LogPhase::Ready && replica.log.checkpoint_due() {
            let snapshot = replica.producers_snapshot(self.settings.producer_expiry_ms);
            let mut disk = queue(&mut self.operations, effects);
            replica.log.checkpoint(snapshot, &mut disk);
            self.touched.insert(partition);
        }
    }

    /// Some logs at a time, round and round: rolling by age, retention, checkpoints.
    pub(super) fn look_after_logs(&mut self, now: Now, effects: &mut Effects) {
        // A removal that the disk refused is tried again.
        for replica in self.removing.values_mut() {
            let mut disk = queue(&mut self.operations, effects);
            replica.log.tick(now, &mut disk);
        }
        let from = self.upkeep_cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let turn = self
            .replicas
            .range((from, Bound::Unbounded))
            .take(UPKEEP_LOGS_MAX);
        let turn: Vec<PartitionId> = turn.map(|(id, _)| *id).collect();
        self.upkeep_cursor = if turn.len() < UPKEEP_LOGS_MAX {
            None
        } else {
            turn.last().copied()
        };
        for partition in turn {
            let Some(replica) = self.replicas.get_mut(&partition) else {
                continue;
            };
            if replica.log.phase() != LogPhase::Ready {
                continue;
            }
            let mut disk = queue(&mut self.operations, effects);
            replica.log.tick(now, &mut disk);
            replica.log.retain(now, &mut disk);
            self.touched.insert(partition);
            self.checkpoint_if_due(partition, effects);
        }
    }

    pub(super) fn on_stop(&mut self, now: Now, effects: &mut Effects) {
        self.stopping = true;
        self.to_open.clear();
        self.hurry_all(now, effects);
        let ids: Vec<PartitionId> = self.replicas.keys().copied().collect();
        for partition in ids {
            self.resign_coordinator(partition, effects);
            let Some(replica) = self.replicas.get_mut(&partition) else {
                continue;
            };
            if replica.log.phase() == LogPhase::Ready {
                let snapshot = replica.producers_snapshot(self.settings.producer_expiry_ms);
                let mut disk = queue(&mut self.operations, effects);
                replica.log.stop(snapshot, &mut disk);
                self.touched.insert(partition);
            }
        }
    }

    /// Whether [`crate::effect::Event::Stop`] is done: every log is finished or can do nothing more,
    /// and nobody waits for a read.
    pub fn is_stopped(&self) -> bool {
        let finished = |replica: &Replica| {
            matches!(
                replica.log.phase(),
                LogPhase::Stopped | LogPhase::Failed | LogPhase::Corrupt | LogPhase::Removed
            ) || replica.log.phase() == LogPhase::Recovering
        };
        self.stopping
            && self.fetches.is_empty()
            && self.reads.is_empty()
            && self.replicas.values().all(finished)
    }
}

fn partitions_of(topic: TopicId) -> core::ops::RangeInclusive<PartitionId> {
    use crate::identity::PartitionIndex;
    let at = |partition| PartitionId {
        topic,
        partition: PartitionIndex(partition),
    };
    at(0)..=at(u32::MAX)
}
