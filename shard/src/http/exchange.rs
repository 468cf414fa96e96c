//! One request and what its handler may ask for: who asks, the body, topics by name, other cores.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use corelog_engine::admission::{Action, Load, Principal, admit, authorize};
use corelog_engine::identity::{PartitionId, PartitionIndex, TopicId};
use corelog_engine::metadata::{Image, Topic};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    Answer, GroupAction, GroupRequest, GroupResponse, PartitionDescription, Request, Response,
};
use corelog_net::http::Problem;
use hyper::body::Incoming;

use super::body::{BodyRules, read_body};
use crate::shard::{Asked, Reservation, Shard};
use crate::uring::core::blocking;

/// Requests to other cores that one HTTP request has under way. Their inboxes hold
/// [`crate::mesh::INBOX_MESSAGES_MAX`], for everybody.
const ASKED_AT_ONCE_MAX: usize = 1_000;

/// Work on more bytes than this at once would hold up the core's other connections.
pub(super) const WORK_BYTES_MAX: usize = 512 << 10;

thread_local! {
    static TURNS: Cell<u32> = const { Cell::new(0) };
}

/// Counts the requests of this core: a number that rises from one to the next.
pub(super) fn next_number() -> u32 {
    TURNS.with(|turns| {
        turns.set(turns.get().wrapping_add(1));
        turns.get()
    })
}

/// One request in work.
pub(super) struct Exchange {
    /// The core that serves the connection.
    pub(super) shard: Rc<Shard>,
    /// Who asks.
    pub(super) principal: Principal,
    /// Where from.
    pub(super) client_host: String,
    /// With what, as it says itself.
    pub(super) client_id: String,
    /// The body, until it is read.
    pub(super) body: Option<(Incoming, BodyRules)>,
    /// The body's share of the budget.
    pub(super) body_held: Vec<Reservation>,
    /// The answer's share of the budget, kept until it is sent.
    pub(super) answer_held: Option<Reservation>,
}

/// What handlers need of a topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopicFacts {
    /// Its incarnation.
    pub(super) id: TopicId,
    /// How many partitions.
    pub(super) partitions: u32,
    /// Largest batch.
    pub(super) batch_bytes_max: usize,
}

impl Exchange {
    /// Whether the asker may do this.
    pub(super) fn authorize(&self, action: Action<'_>) -> Result<(), Problem> {
        Ok(authorize(&self.principal, action)?)
    }

    /// Whether there is room for it.
    pub(super) fn admit(&self, load: Load) -> Result<(), Problem> {
        Ok(admit(self.shard.disk_level(), load)?)
    }

    /// Reads the body. `copies` says how many times its size the request takes in work.
    pub(super) async fn read_body(&mut self, copies: usize) -> Result<Bytes, Problem> {
        let Some((body, mut rules)) = self.body.take() else {
            return Ok(Bytes::new());
        };
        rules.copies = copies;
        let read = read_body(&self.shard, body, &rules).await?;
        self.body_held = read.held;
        Ok(read.bytes)
    }

    /// Reads the metadata.
    pub(super) fn image<T>(&self, read: impl FnOnce(&Image, &str) -> T) -> T {
        self.shard
            .image(|image| read(image, &self.principal.tenant))
    }

    /// The topic of that name.
    pub(super) fn topic(&self, name: &str) -> Result<TopicFacts, Rejection> {
        self.image(|image, tenant| image.topic_named(tenant, name).map(facts))
            .ok_or(Rejection::UnknownTopicOrPartition)
    }

    /// The partition of that topic and number.
    pub(super) fn partition(
        &self,
        topic: &str,
        partition: PartitionIndex,
    ) -> Result<PartitionId, Rejection> {
        let topic = self.topic(topic)?;
        if partition.get() >= topic.partitions {
            return Err(Rejection::UnknownTopicOrPartition);
        }
        Ok(PartitionId {
            topic: topic.id,
            partition,
        })
    }

    /// Asks about each of the partitions; the answers are in their order.
    pub(super) async fn ask_each(
        &self,
        partitions: &[PartitionId],
        request: impl Fn(PartitionId) -> Request,
    ) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(partitions.len());
        for some in partitions.chunks(ASKED_AT_ONCE_MAX) {
            let ask = |&partition| self.shard.ask(partition, request(partition));
            let asked: Vec<Asked> = some.iter().map(ask).collect();
            for answer in asked {
                answers.push(answer.await);
            }
        }
        answers
    }

    /// What each of the partitions holds, in their order.
    pub(super) async fn describe_each(
        &self,
        partitions: &[PartitionId],
    ) -> Vec<Result<PartitionDescription, Rejection>> {
        let answers = self.ask_each(partitions, Request::DescribePartition).await;
        let described = answers.into_iter().map(|answer| match answer? {
            Response::Partition(description) => Ok(description),
            _ => Err(Rejection::UnknownTopicOrPartition),
        });
        described.collect()
    }

    /// Asks the group's coordinator.
    pub(super) async fn ask_group(
        &self,
        group: &str,
        action: GroupAction,
    ) -> Result<GroupResponse, Rejection> {
        let coordinator = self
            .shard
            .image(|image| image.group_coordinator(group))
            .ok_or(Rejection::CoordinatorUnavailable)?;
        let request = GroupRequest {
            coordinator,
            group: group.to_owned(),
            action,
        };
        match self.shard.ask(coordinator, Request::Group(request)).await? {
            Response::Group(response) => Ok(response),
            _ => Err(Rejection::CoordinatorUnavailable),
        }
    }
}

fn facts(topic: &Topic) -> TopicFacts {
    TopicFacts {
        id: topic.id,
        partitions: topic.partition_count(),
        batch_bytes_max: topic.settings.max_message_bytes as usize,
    }
}

/// Computes here what concerns few bytes, and beside the reactor what would hold it up.
pub(super) async fn compute<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes > WORK_BYTES_MAX {
        blocking(work).await
    } else {
        work()
    }
}
