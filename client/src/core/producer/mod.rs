//! The producer: records to batches, batches to requests, answers to outcomes.
//!
//! The life of a record: [`ProducerCore::publish`] puts it into the open batch of its partition →
//! [`ProducerCore::next_request`] closes batches that are full or have lingered, gives them sequences and
//! packs them for one broker → [`ProducerCore::on_response`] or [`ProducerCore::on_send_failed`] settles
//! them or lets them wait for another attempt → [`ProducerCore::next_outcome`] tells what came of them.
//!
//! Invariants:
//! 1. Every record that was taken gets exactly one outcome.
//! 2. `No` is said only when no attempt can have been stored: each one was refused by an answer that
//!    excludes it, or none was made. Otherwise the outcome is `Yes` or `Unknown`.
//! 3. Bytes whose outcome is open never exceed [`ProducerSettings::buffered_bytes_max`].
//! 4. A batch that may be stored is never sent under another producer id.
//!
//! Sources: KIP-98 (idempotent producers), KIP-360 (starting over after lost state), KIP-480 (records
//! without a key stay with one partition until its batch is full).

mod answers;
mod partition_queue;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use corelog_batch::partition_for_key;
use corelog_wire::{
    InitProducerIdRequest, PartitionProduceData, ProduceRequest, Records, TopicProduceData,
    WireString,
};

use self::answers::failed;
use self::partition_queue::{PartitionQueue, ProducerIdentity};
use self::settings::IDEMPOTENT_BATCHES_IN_FLIGHT_MAX;
pub use self::settings::{
    BatchOutcome, Outcome, ProduceToSend, ProducerSettings, PublishFailure, PublishId,
    PublishRefusal, RecordToPublish, SendId,
};
use super::metadata::Metadata;

/// Acknowledged when the topic's own contract is met.
const ACKS_ALL: i16 = -1;

#[derive(Debug)]
struct TopicQueues {
    name: WireString,
    partition_count: NonZeroU32,
    queues: Vec<PartitionQueue>,
    /// Where records without a key go.
    sticky: u32,
}

#[derive(Debug)]
struct Send {
    broker: i32,
    /// Topic and partition of each batch.
    batches: Vec<(WireString, i32)>,
}

/// How it stands with the producer id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// Not needed.
    None,
    /// To be asked for. Batches in requests are awaited first, so that none is stored under the old id
    /// after its records have moved to the new one.
    Wanted,
    /// Asked for.
    Asked,
    /// In use.
    Known(ProducerIdentity),
    /// Taken over by another producer, or closed.
    Ended,
}

/// One producer.
///
/// ```no_run
/// use corelog_client::core::{Metadata, ProducerCore, ProducerSettings, RecordToPublish};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let metadata = Metadata::default();
/// let mut producer = ProducerCore::new(ProducerSettings::default());
/// producer.set_topic("orders", 4.try_into()?);
/// producer.publish(
///     &RecordToPublish {
///         topic: "orders",
///         partition: None,
///         key: Some(b"customer-7"),
///         value: Some(b"one tea"),
///         headers: &[],
///         timestamp_ms: 1_750_000_000_000,
///     },
///     0,
/// )?;
/// while let Some(send) = producer.next_request(&metadata, 5) {
///     // Give `send.request` to the connection of `send.broker`, and its answer to `on_response`.
///     # let _ = send;
/// }
/// while let Some(outcome) = producer.next_outcome() {
///     println!("{outcome:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProducerCore {
    settings: ProducerSettings,
    in_flight_max: usize,
    topics: BTreeMap<String, TopicQueues>,
    sends: BTreeMap<SendId, Send>,
    outcomes: VecDeque<BatchOutcome>,
    identity: Identity,
    buffered_bytes: usize,
    next_publish: u64,
    next_send: u64,
    flushing: bool,
    metadata_wanted: bool,
    /// Turned after each request, so that no partition starves.
    first_queue: usize,
}

impl ProducerCore {
    /// A producer that knows no topic.
    pub fn new(settings: ProducerSettings) -> Self {
        let wanted = settings.batches_in_flight_per_partition_max.max(1);
        let (identity, in_flight_max) = if settings.idempotent {
            (
                Identity::Wanted,
                wanted.min(IDEMPOTENT_BATCHES_IN_FLIGHT_MAX),
            )
        } else {
            (Identity::None, wanted)
        };
        Self {
            settings,
            in_flight_max,
            topics: BTreeMap::new(),
            sends: BTreeMap::new(),
            outcomes: VecDeque::new(),
            identity,
            buffered_bytes: 0,
            next_publish: 0,
            next_send: 0,
            flushing: false,
            metadata_wanted: false,
            first_queue: 0,
        }
    }

    /// Tells how many partitions a topic has. Fewer than before is ignored: topics do not shrink.
    pub fn set_topic(&mut self, name: &str, partition_count: NonZeroU32) {
        let topic = self
            .topics
            .entry(name.to_owned())
            .or_insert_with(|| TopicQueues {
                name: name.into(),
                partition_count,
                queues: Vec::new(),
                sticky: 0,
            });
        topic.partition_count = topic.partition_count.max(partition_count);
        let known = topic.queues.len() as i32;
        let count = i32::try_from(topic.partition_count.get()).unwrap_or(i32::MAX);
        topic.queues.extend((known..count).map(PartitionQueue::new));
    }

    /// Whether the topic's partitions are known.
    pub fn knows_topic(&self, name: &str) -> bool {
        self.topics.contains_key(name)
    }

    /// The topics whose partitions are known.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
    }

    /// Takes a record. Its outcome comes from [`ProducerCore::next_outcome`] under the id.
    ///
    /// # Errors
    /// See [`PublishRefusal`]; nothing is kept then.
    pub fn publish(
        &mut self,
        record: &RecordToPublish<'_>,
        now_ms: u64,
    ) -> Result<PublishId, PublishRefusal> {
        if self.identity == Identity::Ended {
            return Err(PublishRefusal::Ended);
        }
        let topic = self
            .topics
            .get_mut(record.topic)
            .ok_or(PublishRefusal::TopicUnknown)?;
        let partition = choose_partition(topic, record)?;
        let queue = topic
            .queues
            .get_mut(partition as usize)
            .ok_or(PublishRefusal::TopicUnknown)?;
        let buffered_with = self.buffered_bytes + queue.bytes_for(record);
        if buffered_with > self.settings.buffered_bytes_max && self.buffered_bytes > 0 {
            return Err(PublishRefusal::Full {
                buffered_bytes_max: self.settings.buffered_bytes_max,
            });
        }
        let id = PublishId(self.next_publish);
        let (bytes, closed) = queue.append(record, id, &self.settings, now_ms)?;
        self.next_publish += 1;
        self.buffered_bytes += bytes;
        if closed && record.partition.is_none() && record.key.is_none() {
            topic.sticky = (partition + 1) % topic.partition_count;
        }
        Ok(id)
    }

    /// Records taken so far.
    pub fn published(&self) -> u64 {
        self.next_publish
    }

    /// Bytes whose outcome is open.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// From now on nothing lingers, until everything taken so far is settled.
    pub fn flush(&mut self) {
        self.flushing = !self.is_settled();
    }

    /// Whether every record has its outcome.
    pub fn is_settled(&self) -> bool {
        self.queues().all(PartitionQueue::is_empty)
    }

    /// Whether leaders must be asked for. Says so once for each reason.
    pub fn take_metadata_wanted(&mut self) -> bool {
        std::mem::take(&mut self.metadata_wanted)
    }

    /// The request for a producer id, if one is needed now. Any broker answers it.
    pub fn producer_id_request(&mut self) -> Option<InitProducerIdRequest> {
        if self.identity != Identity::Wanted || self.queues().any(PartitionQueue::has_sent) {
            return None;
        }
        self.identity = Identity::Asked;
        Some(InitProducerIdRequest {
            transaction_timeout_ms: i32::MAX,
            ..InitProducerIdRequest::default()
        })
    }

    /// The request for a producer id got this answer, or none.
    pub fn on_producer_id(&mut self, answer: Option<(i64, i16)>) {
        let Some((id, epoch)) = answer else {
            self.identity = Identity::Wanted;
            return;
        };
        self.identity = Identity::Known(ProducerIdentity { id, epoch });
        let mut lost = Vec::new();
        for topic in self.topics.values_mut() {
            for queue in &mut topic.queues {
                let name = &topic.name;
                let batches = queue.start_over().into_iter();
                lost.extend(batches.map(|batch| (name.clone(), queue.partition, batch)));
            }
        }
        for (topic, partition, batch) in lost {
            let outcome = failed(batch.may_be_stored, PublishFailure::ProducerStateLost);
            self.settle(topic, partition, batch, outcome);
        }
    }

    /// The next request to send, to a broker that has room for one. Call until `None`.
    pub fn next_request(&mut self, metadata: &Metadata, now_ms: u64) -> Option<ProduceToSend> {
        self.expire(now_ms);
        let identity = match self.identity {
            Identity::None => None,
            Identity::Known(identity) => Some(identity),
            Identity::Wanted | Identity::Asked | Identity::Ended => return None,
        };
        if self.flushing {
            self.topics
                .values_mut()
                .flat_map(|topic| topic.queues.iter_mut())
                .for_each(PartitionQueue::close_open);
        }
        let (broker, due) = self.due_partitions(metadata, now_ms)?;
        let id = SendId(self.next_send);
        let mut batches = Vec::new();
        let mut topic_data: Vec<TopicProduceData> = Vec::new();
        let mut request_bytes = 0;
        for (name, partition) in due {
            let Some(topic) = self.topics.get_mut(name.as_str()) else {
                continue;
            };
            let Some(queue) = topic.queues.get_mut(partition as usize) else {
                continue;
            };
            let Some(batch) = queue.take_for(id, identity) else {
                continue;
            };
            request_bytes += batch.bytes();
            let data = PartitionProduceData {
                index: partition,
                records: Records::from(batch.share()),
            };
            match topic_data.last_mut() {
                Some(last) if last.name == topic.name => last.partition_data.push(data),
                _ => topic_data.push(TopicProduceData {
                    name: topic.name.clone(),
                    partition_data: vec![data],
                    ..TopicProduceData::default()
                }),
            }
            batches.push((topic.name.clone(), partition));
            if request_bytes >= self.settings.request_bytes_max {
                break;
            }
        }
        if batches.is_empty() {
            return None;
        }
        self.next_send += 1;
        self.first_queue = self.first_queue.wrapping_add(batches.len());
        self.sends.insert(id, Send { broker, batches });
        Some(ProduceToSend {
            id,
            broker,
            request: ProduceRequest {
                acks: ACKS_ALL,
                timeout_ms: self.settings.request_timeout_ms,
                topic_data,
                ..ProduceRequest::default()
            },
        })
    }

    /// The next outcome.
    pub fn next_outcome(&mut self) -> Option<BatchOutcome> {
        self.outcomes.pop_front()
    }

    /// When to call [`ProducerCore::next_request`] again if nothing else happens; `None`: not by time.
    pub fn wake_at_ms(&self) -> Option<u64> {
        let can_send = matches!(self.identity, Identity::None | Identity::Known(_));
        let deadline = |queue: &PartitionQueue| {
            let opened_ms = queue.oldest_opened_ms()?;
            Some(opened_ms.saturating_add(self.settings.delivery_timeout_ms))
        };
        let due = |queue: &PartitionQueue| {
            can_send.then(|| queue.due_ms(&self.settings, self.in_flight_max))?
        };
        self.queues()
            .filter(|queue| !queue.is_empty())
            .flat_map(|queue| [due(queue), deadline(queue)])
            .flatten()
            .min()
    }

    /// Ends the producer: what is open becomes `No` or `Unknown`.
    pub fn close(&mut self) {
        self.identity = Identity::Ended;
        self.sends.clear();
        let mut all = Vec::new();
        for topic in self.topics.values_mut() {
            for queue in &mut topic.queues {
                let in_request = queue.has_sent();
                for batch in queue.take_all() {
                    all.push((topic.name.clone(), queue.partition, in_request, batch));
                }
            }
        }
        for (topic, partition, in_request, batch) in all {
            let may_be_stored = batch.may_be_stored || in_request;
            let outcome = failed(may_be_stored, PublishFailure::Ended);
            self.settle(topic, partition, batch, outcome);
        }
    }

    fn queues(&self) -> impl Iterator<Item = &PartitionQueue> {
        self.topics.values().flat_map(|topic| &topic.queues)
    }

    /// A broker with room and its partitions that have something to send, beginning with another one each
    /// time.
    fn due_partitions(
        &mut self,
        metadata: &Metadata,
        now_ms: u64,
    ) -> Option<(i32, Vec<(WireString, i32)>)> {
        let mut due: Vec<(i32, WireString, i32)> = Vec::new();
        let mut leaderless = false;
        for (name, topic) in &self.topics {
            for queue in topic.queues.iter().filter(|queue| !queue.is_empty()) {
                let due_ms = queue.due_ms(&self.settings, self.in_flight_max);
                if due_ms.is_none_or(|due_ms| due_ms > now_ms) {
                    continue;
                }
                match metadata.leader(name, queue.partition) {
                    Some(leader) => due.push((leader, topic.name.clone(), queue.partition)),
                    None => leaderless = true,
                }
            }
        }
        self.metadata_wanted |= leaderless;
        due.retain(|(broker, _, _)| {
            let in_flight = self.sends.values().filter(|send| send.broker == *broker);
            in_flight.count() < self.settings.requests_in_flight_per_broker_max.max(1)
        });
        if due.is_empty() {
            return None;
        }
        let first = self.first_queue % due.len();
        due.rotate_left(first);
        let broker = due.first()?.0;
        let mut partitions: Vec<(WireString, i32)> = due
            .into_iter()
            .filter(|(leader, _, _)| *leader == broker)
            .map(|(_, topic, partition)| (topic, partition))
            .collect();
        // One entry for each topic in the request; the rotation within a topic stays.
        partitions.sort_by(|one, other| one.0.cmp(&other.0));
        Some((broker, partitions))
    }
}

fn choose_partition(
    topic: &TopicQueues,
    record: &RecordToPublish<'_>,
) -> Result<u32, PublishRefusal> {
    let partitions = topic.partition_count;
    match (record.partition, record.key) {
        (Some(partition), _) => u32::try_from(partition)
            .ok()
            .filter(|partition| *partition < partitions.get())
            .ok_or(PublishRefusal::PartitionUnknown {
                partition,
                partitions: partitions.get(),
            }),
        (None, Some(key)) => Ok(partition_for_key(key, partitions)),
        (None, None) => Ok(topic.sticky % partitions),
    }
}
