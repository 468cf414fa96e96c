//! Producers. One with an identity sends each batch until it knows that it is kept, at most five of
//! them on their way, as Kafka's own clients do.

use std::collections::VecDeque;

use bytes::BytesMut;
use corelog_engine::identity::{LeaderEpoch, PartitionId};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Answer, Publish, Request, RequestId, Response};
use corelog_engine::time::Monotonic;

use super::asked::Asked;
use super::batches::{self, Signature, sequence_after};
use super::clients::{mismatched, unexpected};
use super::ledger::SentIndex;
use super::teeth::Tooth;
use super::violation::{Checked, Violation, hold};
use super::world::World;

/// Most batches of a producer that are not known to be kept.
const WINDOW: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// To be sent, perhaps again.
    Waiting,
    OnItsWay(RequestId),
    Kept,
}

/// A producer of one partition.
#[derive(Debug)]
pub(super) struct Producer {
    topic: &'static str,
    number: u32,
    /// Its id, unless it is anonymous.
    id: Option<i64>,
    epoch: i16,
    sequence: i32,
    /// The incarnation that it publishes to.
    target: Option<PartitionId>,
    window: VecDeque<(SentIndex, Fate)>,
    /// Something of this incarnation and epoch is kept.
    has_begun: bool,
}

impl Producer {
    pub(super) fn new(topic: &'static str, number: u32, id: Option<i64>, sequence: i32) -> Self {
        Self {
            topic,
            number,
            id,
            epoch: 0,
            sequence,
            target: None,
            window: VecDeque::new(),
            has_begun: false,
        }
    }

    pub(super) fn sent(&mut self, batch: SentIndex, id: RequestId) {
        if let Some((_, fate)) = self.window.iter_mut().find(|(index, _)| *index == batch) {
            *fate = Fate::OnItsWay(id);
        }
    }

    /// Whether everything that it sent is known to be kept.
    pub(super) fn is_done(&self) -> bool {
        self.window.is_empty()
    }

    pub(super) fn target(&self) -> Option<PartitionId> {
        self.target
    }

    fn settle(&mut self, id: RequestId, fate: Fate) -> Option<usize> {
        let at = self
            .window
            .iter()
            .position(|(_, known)| *known == Fate::OnItsWay(id))?;
        self.window[at].1 = fate;
        let open = self
            .window
            .iter()
            .position(|(_, fate)| *fate != Fate::Kept)
            .unwrap_or(self.window.len());
        while self.window.front().map(|(_, fate)| *fate) == Some(Fate::Kept) {
            self.window.pop_front();
        }
        Some(at.saturating_sub(open))
    }

    /// Begins anew under another id: nobody knows what became of the last batches.
    fn start_over(&mut self) {
        self.id = self.id.map(|id| id + 1_000);
        self.epoch = 0;
        self.sequence = 0;
        self.window.clear();
        self.has_begun = false;
    }

    /// The batch to be sent next: the first that waits, nothing behind it before it.
    fn next(&self) -> Option<SentIndex> {
        if !self.has_begun
            && self
                .window
                .iter()
                .any(|(_, fate)| matches!(fate, Fate::OnItsWay(_)))
        {
            return None;
        }
        let waiting = self.window.iter().find(|(_, fate)| *fate == Fate::Waiting);
        waiting.map(|(index, _)| *index)
    }
}

impl World {
    pub(super) fn produce(&mut self, client: usize) -> Checked {
        let Some(producer) = self.clients.producer(client) else {
            return Ok(());
        };
        let target = self.control.partition(producer.topic, producer.number);
        if target != producer.target {
            producer.target = target;
            producer.window.clear();
            producer.has_begun = false;
        }
        let (Some(target), Some(producer)) = (target, self.clients.producer(client)) else {
            return Ok(());
        };
        if producer.id.is_none() {
            return self.publish_anonymously(client, target);
        }
        if producer.epoch > 0 && producer.has_begun && self.chance.one_in(20) {
            return self.publish_fenced(client, target);
        }
        self.make_batches(client, target);
        for _ in 0..WINDOW {
            let next = self.clients.producer(client).and_then(|one| one.next());
            let Some(next) = next else {
                return Ok(());
            };
            if self.chance.one_in(4) {
                return Ok(());
            }
            let asked = Asked::Publish {
                client,
                partition: target,
                batches: vec![next],
                is_fenced: false,
            };
            self.publish(target, &[next], asked)?;
            if self.life.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn make_batches(&mut self, client: usize, target: PartitionId) {
        if self.is_ending {
            return;
        }
        let bumps = self.chance.one_in(30);
        let wanted = self.chance.between(1, WINDOW as u64) as usize;
        let wall_ms = self.now().wall.0;
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        if bumps && producer.window.is_empty() && producer.has_begun {
            producer.epoch += 1;
            producer.sequence = 0;
            producer.has_begun = false;
        }
        while let Some(producer) = self.clients.producer(client)
            && producer.window.len() < wanted
        {
            let signature = producer.id.map(|id| Signature {
                id,
                epoch: producer.epoch,
                sequence: producer.sequence,
            });
            let tag = self.ledger.next_tag();
            let sizes = self.plan.sizes;
            let built = batches::build(tag, signature, wall_ms, sizes, &mut self.chance);
            producer.sequence = sequence_after(producer.sequence, built.stamps.len());
            let index = self.ledger.send(target, built);
            producer.window.push_back((index, Fate::Waiting));
        }
    }

    fn publish_anonymously(&mut self, client: usize, target: PartitionId) -> Checked {
        if self.is_ending {
            return Ok(());
        }
        let count = self.chance.pick(&[1, 1, 2, 3, 8]);
        let sent = self.build_anonymous(target, count);
        let asked = Asked::Publish {
            client,
            partition: target,
            batches: sent.clone(),
            is_fenced: false,
        };
        self.publish(target, &sent, asked)
    }

    /// New batches that nobody signs.
    pub(super) fn build_anonymous(&mut self, target: PartitionId, count: u64) -> Vec<SentIndex> {
        let wall_ms = self.now().wall.0;
        let sizes = self.plan.sizes;
        let mut sent = Vec::new();
        for _ in 0..count {
            let tag = self.ledger.next_tag();
            let built = batches::build(tag, None, wall_ms, sizes, &mut self.chance);
            sent.push(self.ledger.send(target, built));
        }
        sent
    }

    /// An earlier incarnation of the producer, which does not know of the newer one, goes on.
    fn publish_fenced(&mut self, client: usize, target: PartitionId) -> Checked {
        let wall_ms = self.now().wall.0;
        let tag = self.ledger.next_tag();
        let sizes = self.plan.sizes;
        let Some(producer) = self.clients.producer(client) else {
            return Ok(());
        };
        let signature = producer.id.map(|id| Signature {
            id,
            epoch: producer.epoch - 1,
            sequence: 7,
        });
        let built = batches::build(tag, signature, wall_ms, sizes, &mut self.chance);
        let index = self.ledger.send(target, built);
        let asked = Asked::Publish {
            client,
            partition: target,
            batches: vec![index],
            is_fenced: true,
        };
        self.publish(target, &[index], asked)
    }

    /// Sends batches to a partition.
    pub(super) fn publish(
        &mut self,
        target: PartitionId,
        sent: &[SentIndex],
        asked: Asked,
    ) -> Checked {
        let mut bytes = BytesMut::new();
        for index in sent {
            bytes.extend_from_slice(&self.ledger.sent(*index).built.bytes);
        }
        let patience_ms = match self.is_ending {
            true => 3_600_000,
            false => self.chance.pick(&[60, 500, 30_000]),
        };
        let epoch = self.control.image.partition(target);
        let epoch = epoch.map(|known| known.leader_epoch);
        let says_epoch = self.chance.one_in(4);
        let request = Request::Publish(Publish {
            partition: target,
            batches: batches::inspect(bytes.freeze()),
            leader_epoch: epoch.filter(|_| says_epoch),
            deadline: Monotonic(self.now_us).plus_ms(patience_ms),
        });
        let end_before = self.log_end(target);
        self.ask(request, asked)?;
        match (end_before, self.log_end(target)) {
            (Some(before), Some(after))
                if before < after && self.breaks(Tooth::AcknowledgesEarly) =>
            {
                self.ledger.acknowledge(sent, before, 0)
            }
            _ => Ok(()),
        }
    }

    /// One past what the core has taken for a partition, durable or not.
    fn log_end(&self, partition: PartitionId) -> Option<u64> {
        let core = &self.life.as_ref()?.core;
        core.describe(partition).map(|ends| ends.log_end.get())
    }

    pub(super) fn on_published(
        &mut self,
        client: usize,
        id: RequestId,
        partition: PartitionId,
        sent: &[SentIndex],
        is_fenced: bool,
        answer: Answer,
    ) -> Checked {
        let published = match answer {
            Ok(Response::Published(published)) => published,
            Ok(other) => return Err(mismatched(&other)),
            Err(rejection) => {
                return self.on_publish_refused(client, id, partition, is_fenced, rejection);
            }
        };
        let is_strict = self.is_strict(partition);
        hold(
            !is_fenced || !is_strict,
            "a fenced producer cannot publish",
            || format!("{partition}: {published:?}"),
        )?;
        self.ledger.acknowledge(
            sent,
            published.first_offset.get(),
            published.log_start.get(),
        )?;
        if let Some(stamp) = published.append_time_ms {
            self.ledger.stamp(sent, stamp as i64);
        }
        let leader_epoch = self
            .control
            .image
            .partition(partition)
            .map(|known| known.leader_epoch);
        hold(
            leader_epoch.is_none_or(|epoch: LeaderEpoch| published.leader_epoch <= epoch),
            "nothing is kept in an epoch that has not begun",
            || format!("{partition}: {published:?}"),
        )?;
        if !published.repeat {
            let here = (self.lives(), published.leader_epoch);
            let before = self.epochs.insert(partition, here);
            hold(
                before.is_none_or(|(life, epoch)| match life == here.0 {
                    true => epoch == here.1,
                    false => epoch < here.1,
                }),
                "every process keeps what it takes in an epoch of its own",
                || format!("{partition}: {here:?} after {before:?}"),
            )?;
        }
        if let Some(producer) = self.clients.producer(client)
            && producer.settle(id, Fate::Kept).is_some()
        {
            producer.has_begun = true;
        }
        Ok(())
    }

    fn on_publish_refused(
        &mut self,
        client: usize,
        id: RequestId,
        partition: PartitionId,
        is_fenced: bool,
        rejection: Rejection,
    ) -> Checked {
        let is_strict = self.is_strict(partition);
        let place = self
            .clients
            .producer(client)
            .and_then(|producer| producer.settle(id, Fate::Waiting));
        let is_own = place.is_some() && !is_fenced;
        match rejection {
            Rejection::NotLeader
            | Rejection::RequestTimedOut
            | Rejection::UnknownTopicOrPartition
            | Rejection::StorageError
            | Rejection::StorageFull
            | Rejection::Overloaded
            | Rejection::FencedLeaderEpoch
            | Rejection::UnknownLeaderEpoch => Ok(()),
            Rejection::InvalidProducerEpoch if is_fenced => Ok(()),
            Rejection::OutOfOrderSequence if is_own && place > Some(0) => Ok(()),
            Rejection::OutOfOrderSequence
            | Rejection::DuplicateSequence
            | Rejection::InvalidProducerEpoch => {
                hold(
                    !is_own || !is_strict,
                    "a producer that keeps to the rules is never refused its sequence",
                    || format!("{partition}: {rejection:?} for place {place:?}"),
                )?;
                if is_own && let Some(producer) = self.clients.producer(client) {
                    producer.start_over();
                }
                Ok(())
            }
            other => Err(unexpected(partition, other)),
        }
    }

    pub(super) fn on_publish_unknown(&mut self, client: usize, id: RequestId) {
        if let Some(producer) = self.clients.producer(client) {
            producer.settle(id, Fate::Waiting);
        }
    }

    /// Whether every producer of a partition that must keep its promises knows what it wants to.
    pub(super) fn undone_producer(&mut self) -> Option<Violation> {
        let open: Vec<PartitionId> = self
            .clients
            .producers()
            .filter(|producer| !producer.is_done())
            .filter_map(Producer::target)
            .collect();
        let partition = open
            .into_iter()
            .find(|partition| self.is_strict(*partition))?;
        Some(Violation::new(
            "every producer hears in the end that its batches are kept",
            format!("one of {partition} does not"),
        ))
    }
}
