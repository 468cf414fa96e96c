//! Who asks: producers, readers and members of groups; and who changes topics.

use corelog_engine::identity::PartitionId;
use corelog_engine::metadata::{DEFAULT_TENANT, MetadataRecord, OFFSETS_TOPIC};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Answer, RequestId, Response};

use super::asked::Asked;
use super::membership::Member;
use super::producing::Producer;
use super::reading::Reader;
use super::violation::{Checked, Violation};
use super::world::{Coming, World};

/// One client.
#[derive(Debug)]
pub(super) enum Client {
    Producer(Producer),
    Reader(Reader),
    Member(Member),
}

/// All clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    all: Vec<Client>,
}

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn producer(&mut self, client: usize) -> Option<&mut Producer> {
        match self.all.get_mut(client) {
            Some(Client::Producer(producer)) => Some(producer),
            _ => None,
        }
    }

    pub(super) fn reader(&mut self, client: usize) -> Option<&mut Reader> {
        match self.all.get_mut(client) {
            Some(Client::Reader(reader)) => Some(reader),
            _ => None,
        }
    }

    pub(super) fn member(&mut self, client: usize) -> Option<&mut Member> {
        match self.all.get_mut(client) {
            Some(Client::Member(member)) => Some(member),
            _ => None,
        }
    }

    pub(super) fn producers(&self) -> impl Iterator<Item = &Producer> {
        self.all.iter().filter_map(|client| match client {
            Client::Producer(producer) => Some(producer),
            _ => None,
        })
    }
}

impl World {
    /// Makes topics and clients.
    pub(super) fn populate(&mut self) {
        let settings = self.plan.offsets_topic.clone();
        // Topics need a broker; its process starts later.
        self.control.start_broker(&mut self.chance);
        let partitions = self.plan.offsets_partitions;
        let record = self
            .control
            .topic(OFFSETS_TOPIC, partitions, settings, &mut self.chance);
        self.commit(record);
        for topic in self.plan.topics.clone() {
            let record = self.control.topic(
                topic.name,
                topic.partitions,
                topic.settings,
                &mut self.chance,
            );
            self.commit(record);
        }
        let (idempotent, anonymous, readers, members) = self.plan.clients;
        for number in 0..idempotent + anonymous {
            let topic = self.chance.below(self.plan.topics.len() as u64) as usize;
            let topic = &self.plan.topics[topic];
            let partition = self.chance.below(u64::from(topic.partitions)) as u32;
            let id = (number < idempotent).then_some(1_000 + number as i64);
            // Whoever is unknown may start anywhere, also where sequences wrap.
            let sequence = self.chance.pick(&[0, 0, i32::MAX - 20]);
            let producer = Producer::new(topic.name, partition, id, sequence);
            self.clients.all.push(Client::Producer(producer));
        }
        for _ in 0..readers {
            self.clients.all.push(Client::Reader(Reader::default()));
        }
        for number in 0..members {
            let member = Member::new(number, &mut self.chance);
            self.clients.all.push(Client::Member(member));
        }
        for client in 0..self.clients.len() {
            self.schedule(client as u64, Coming::Turn(client));
        }
    }

    /// A client acts, and will act again.
    pub(super) fn turn(&mut self, client: usize) -> Checked {
        let pause = 1 + self.chance.skewed(self.plan.pause_us);
        self.schedule(pause, Coming::Turn(client));
        if self.life.is_none() {
            return Ok(());
        }
        match self.clients.all.get(client) {
            Some(Client::Producer(_)) => self.produce(client),
            Some(Client::Reader(_)) => self.read(client),
            Some(Client::Member(_)) => self.take_part(client),
            None => Ok(()),
        }
    }

    /// An answer reaches whoever asked.
    pub(super) fn on_answer(&mut self, id: RequestId, asked: Asked, answer: Answer) -> Checked {
        match asked {
            Asked::Publish {
                client,
                partition,
                batches,
                is_fenced,
            } => self.on_published(client, id, partition, &batches, is_fenced, answer),
            Asked::Fetch {
                client,
                partitions,
                gone,
            } => self.on_fetched(client, &partitions, &gone, answer),
            Asked::LookUp { partition, found } => self.on_looked_up(partition, found, answer),
            Asked::Describe { partition } => self.on_described(partition, answer),
            Asked::Membership { client } => self.on_membership(client, answer),
            Asked::Commit {
                client,
                partition,
                number,
                must,
            } => self.on_committed(client, partition, number, must, answer),
            Asked::Committed { client, floors } => self.on_offsets(client, &floors, answer),
        }
    }

    /// The process has ended before an answer.
    pub(super) fn on_lost(&mut self, id: RequestId, asked: Asked) {
        match asked {
            Asked::Publish { client, .. } => self.on_publish_unknown(client, id),
            Asked::Fetch { client, .. } => {
                if let Some(reader) = self.clients.reader(client) {
                    reader.waits_for = None;
                }
            }
            Asked::Membership { client } => {
                if let Some(member) = self.clients.member(client) {
                    member.rejoin();
                }
            }
            Asked::Commit { .. }
            | Asked::Committed { .. }
            | Asked::LookUp { .. }
            | Asked::Describe { .. } => {}
        }
    }

    /// A request is on its way to the core.
    pub(super) fn on_asking(&mut self, id: RequestId, asked: &Asked) {
        match asked {
            Asked::Publish {
                client,
                batches,
                is_fenced: false,
                ..
            } => {
                if let (Some(producer), Some(batch)) =
                    (self.clients.producer(*client), batches.first())
                {
                    producer.sent(*batch, id);
                }
            }
            Asked::Fetch { client, .. } => {
                if let Some(reader) = self.clients.reader(*client) {
                    reader.waits_for = Some(id);
                }
            }
            _ => {}
        }
    }

    /// A topic is deleted, made again or set otherwise.
    pub(super) fn administer(&mut self) {
        let at = self.chance.below(self.plan.topics.len() as u64) as usize;
        let topic = self.plan.topics[at].clone();
        let known = self.control.image.topic_named(DEFAULT_TENANT, topic.name);
        let known = known.map(|known| (known.id, known.settings.clone()));
        let partitions = self.control.image.topic_named(DEFAULT_TENANT, topic.name);
        let partitions = partitions.map_or(0, |known| known.partition_count());
        let record = match known {
            None => self.control.topic(
                topic.name,
                topic.partitions,
                topic.settings,
                &mut self.chance,
            ),
            Some((id, mut settings)) if self.chance.one_in(2) => {
                settings.retention_bytes = self.chance.pick(&[None, Some(16 << 10)]);
                settings.segment_bytes = self.chance.pick(&[8 << 10, 128 << 10]);
                MetadataRecord::TopicSettingsChanged {
                    topic: id,
                    settings,
                }
            }
            Some((id, _)) if partitions < 4 && self.chance.one_in(3) => {
                self.control.more_partitions(id, 1, &mut self.chance)
            }
            Some((id, _)) => MetadataRecord::TopicDeleted { topic: id },
        };
        self.commit(record);
    }
}

/// The answer of a partition that is to be served has this shape, or is a refusal that a client may
/// try again after.
pub(super) fn unexpected(partition: PartitionId, rejection: Rejection) -> Violation {
    Violation::new(
        "a good request is served, or refused for now",
        format!("{partition}: {rejection:?}"),
    )
}

/// The answer is of another kind than the request.
pub(super) fn mismatched(response: &Response) -> Violation {
    Violation::new(
        "an answer is of its request's kind",
        format!("{response:?}"),
    )
}
