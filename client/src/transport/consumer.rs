//! The consumer on sockets, alone or in a group.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Context, Poll};

use corelog_wire::{
    ApiKey, FetchRequest, FindCoordinatorRequest, JoinGroupRequest, ListOffsetsRequest,
    OffsetCommitRequest, OffsetFetchResponse, Request, SyncGroupRequest,
};
use tokio::time::timeout_at;

use super::client::Client;
use super::connection::BrokerConnection;
use super::error::ClientError;
use crate::core::{
    Answer, Assignment, ConsumedBatch, ConsumedRecords, ConsumerCore, ConsumerSettings, FetchId,
    GroupAction, GroupMember, GroupSettings, StartAt,
};

/// A connection to a leader and the requests on it, oldest first.
#[derive(Debug)]
struct Leader {
    connection: BrokerConnection,
    requests: std::collections::VecDeque<FetchId>,
    /// When its oldest request is given up.
    deadline_ms: u64,
}

#[derive(Debug)]
struct Membership {
    member: GroupMember,
    settings: GroupSettings,
    connection: Option<BrokerConnection>,
    /// Where partitions begin for which the group has stored nothing.
    start: StartAt,
}

/// Reads partitions, chosen by the caller or by a group.
///
/// It works while one of its futures is polled. In a group, heartbeats leave from [`Consumer::next`]: call
/// it again before the session timeout has passed. Records that were handed out before a call of `next`
/// count as processed by then; [`Consumer::commit`] stores how far that is.
///
/// ```no_run
/// use corelog_client::core::{ConsumerSettings, GroupSettings, StartAt};
/// use corelog_client::transport::{Client, ClientSettings, Consumer};
///
/// # async fn example() -> Result<(), corelog_client::transport::ClientError> {
/// let client = Client::connect("127.0.0.1:9092", ClientSettings::default()).await?;
/// let mut consumer = Consumer::new(client, ConsumerSettings::default());
/// consumer.join(GroupSettings::new("billing", &["orders"]), StartAt::Earliest);
/// while let Some(batch) = consumer.next(10_000).await? {
///     for record in &batch.records {
///         println!("{:?}", record.value);
///     }
///     consumer.commit().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Consumer {
    client: Client,
    core: ConsumerCore,
    leaders: BTreeMap<i32, Leader>,
    membership: Option<Membership>,
    rests_until_ms: u64,
    fetch_timeout_ms: u64,
}

enum Happened {
    Answered(i32, Answer),
    Broke(i32),
}

impl Consumer {
    /// A consumer that reads nothing yet.
    pub fn new(client: Client, settings: ConsumerSettings) -> Self {
        let broker_ms = u64::try_from(settings.max_wait_ms).unwrap_or(0);
        Self {
            fetch_timeout_ms: client.settings().request_timeout_ms + broker_ms,
            client,
            core: ConsumerCore::new(settings),
            leaders: BTreeMap::new(),
            membership: None,
            rests_until_ms: 0,
        }
    }

    /// Reads all partitions of a topic from `start` on.
    ///
    /// # Errors
    /// [`ClientError::NoTopic`], [`ClientError::NoLeader`], or what the call met.
    pub async fn assign_topic(&mut self, topic: &str, start: StartAt) -> Result<(), ClientError> {
        let metadata = self.client.topic(topic).await?;
        let partitions: Vec<i32> = metadata.partitions.keys().copied().collect();
        for partition in partitions {
            self.core.assign(topic, partition, start);
        }
        Ok(())
    }

    /// Reads one partition from `start` on.
    ///
    /// # Errors
    /// As [`Consumer::assign_topic`].
    pub async fn assign(
        &mut self,
        topic: &str,
        partition: i32,
        start: StartAt,
    ) -> Result<(), ClientError> {
        self.client.topic(topic).await?;
        self.core.assign(topic, partition, start);
        Ok(())
    }

    /// Joins a group, which gives this consumer its partitions. `start`: where partitions begin for which
    /// the group has stored no position.
    pub fn join(&mut self, settings: GroupSettings, start: StartAt) {
        self.membership = Some(Membership {
            member: GroupMember::new(settings.clone()),
            settings,
            connection: None,
            start,
        });
    }

    /// The records of the next batch; `None` when `wait_ms` have passed without any.
    ///
    /// # Errors
    /// What stops a partition, the group or the client. Other partitions go on in the next call.
    pub async fn next(&mut self, wait_ms: u64) -> Result<Option<ConsumedRecords>, ClientError> {
        let give_up_ms = self.client.clock.now_ms().saturating_add(wait_ms);
        loop {
            self.take_part().await?;
            if let Some(records) = self.core.next_records()? {
                return Ok(Some(records));
            }
            if !self.work(give_up_ms).await? {
                return Ok(None);
            }
        }
    }

    /// As [`Consumer::next`], with the batch as it came, neither verified nor opened.
    ///
    /// # Errors
    /// As [`Consumer::next`].
    pub async fn next_batch(&mut self, wait_ms: u64) -> Result<Option<ConsumedBatch>, ClientError> {
        let give_up_ms = self.client.clock.now_ms().saturating_add(wait_ms);
        loop {
            self.take_part().await?;
            if let Some(batch) = self.core.next_batch()? {
                self.send_due().await?;
                return Ok(Some(batch));
            }
            if !self.work(give_up_ms).await? {
                return Ok(None);
            }
        }
    }

    /// Whether every partition has been read up to the end that its broker last told.
    pub fn is_at_end(&self) -> bool {
        self.core.is_at_end()
            && (self.membership.as_ref()).is_none_or(|membership| membership.member.is_stable())
    }

    /// Where each partition stands: topic, partition and the next offset to hand out.
    pub fn positions(&self) -> impl Iterator<Item = (&str, i32, i64)> {
        self.core.positions()
    }

    /// Stores in the group how far this consumer has read. Without a group nothing happens.
    ///
    /// # Errors
    /// [`ClientError::Group`] when the group has moved on or refuses, or what the call met; the records
    /// since the last commit are then read again.
    pub async fn commit(&mut self) -> Result<(), ClientError> {
        let Some(membership) = &self.membership else {
            return Ok(());
        };
        let request = membership.member.commit_request(self.core.positions());
        self.send_commit(request).await
    }

    /// Stores in the group how far this consumer has read, but `next_offset` for this partition: for those who
    /// processed only part of a batch.
    ///
    /// # Errors
    /// As [`Consumer::commit`].
    pub async fn commit_at(
        &mut self,
        topic: &str,
        partition: i32,
        next_offset: i64,
    ) -> Result<(), ClientError> {
        let Some(membership) = &self.membership else {
            return Ok(());
        };
        let positions = self.core.positions().map(|position| match position {
            (name, index, _) if name == topic && index == partition => (name, index, next_offset),
            position => position,
        });
        let request = membership.member.commit_request(positions);
        self.send_commit(request).await
    }

    async fn send_commit(&mut self, request: OffsetCommitRequest) -> Result<(), ClientError> {
        let now_ms = self.client.clock.now_ms();
        let Some(membership) = &mut self.membership else {
            return Ok(());
        };
        if request.topics.is_empty() || membership.member.generation() < 0 {
            return Ok(());
        }
        // Taken out, so that a dropped future leaves no connection with half a conversation.
        let Some(mut connection) = membership.connection.take() else {
            return Ok(());
        };
        let timeout_ms = self.client.settings.request_timeout_ms;
        let response = match connection.call(&request, timeout_ms).await {
            Ok(response) => response,
            Err(error) => {
                membership.member.on_connection_lost(now_ms);
                return Err(error);
            }
        };
        membership.connection = Some(connection);
        for topic in response.topics {
            for partition in topic.partitions {
                membership.member.on_commit(partition.error_code, now_ms)?;
            }
        }
        Ok(())
    }

    /// Leaves the group, so that its other members need not wait for the session timeout.
    ///
    /// # Errors
    /// What the call met; the group notices by the timeout then.
    pub async fn leave(&mut self) -> Result<(), ClientError> {
        let Some(mut membership) = self.membership.take() else {
            return Ok(());
        };
        let request = membership.member.leave_request();
        if let (Some(request), Some(connection)) = (request, &mut membership.connection) {
            let timeout_ms = self.client.settings.request_timeout_ms;
            connection.call(&request, timeout_ms).await?;
        }
        Ok(())
    }

    /// Does what the group asks for now.
    async fn take_part(&mut self) -> Result<(), ClientError> {
        loop {
            let now_ms = self.client.clock.now_ms();
            let Some(membership) = &mut self.membership else {
                return Ok(());
            };
            let action = membership
                .member
                .next_action(self.client.metadata(), now_ms)?;
            match action {
                GroupAction::WaitUntil(_) => return Ok(()),
                GroupAction::NeedMetadata(topics) => {
                    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
                    self.client.refresh(Some(&topics)).await?;
                }
                GroupAction::FindCoordinator(request) => self.find_coordinator(&request).await?,
                GroupAction::Join(request) => self.join_generation(&request).await?,
                GroupAction::Sync(request) => self.sync(&request).await?,
                GroupAction::Heartbeat(request) => {
                    let response = self.call_coordinator(&request, 0).await?;
                    if let (Some(response), Some(membership)) = (response, &mut self.membership) {
                        let now_ms = self.client.clock.now_ms();
                        let code = response.error_code;
                        membership.member.on_heartbeat(code, now_ms)?;
                    }
                }
            }
        }
    }

    async fn find_coordinator(
        &mut self,
        request: &FindCoordinatorRequest,
    ) -> Result<(), ClientError> {
        let answer = self.client.call(request).await;
        let now_ms = self.client.clock.now_ms();
        let Some(membership) = &mut self.membership else {
            return Ok(());
        };
        membership.connection = None;
        match answer {
            Ok(response) => Ok(membership.member.on_coordinator(&response, now_ms)?),
            Err(error) if error.is_of_connection() => {
                membership.member.on_connection_lost(now_ms);
                // A first connection that fails is told at once; later ones are tried again.
                if membership.member.generation() < 0 {
                    return Err(error);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Stores what was read in the generation that ends, then joins the next one.
    async fn join_generation(&mut self, request: &JoinGroupRequest) -> Result<(), ClientError> {
        // Left behind already: others read it again from the last commit.
        let _ = self.commit().await;
        let still_joining = self
            .membership
            .as_ref()
            .is_some_and(|membership| membership.member.coordinator().is_some());
        if !still_joining {
            return Ok(());
        }
        let waits_ms = u64::try_from(request.rebalance_timeout_ms).unwrap_or(0);
        let response = self.call_coordinator(request, waits_ms).await?;
        let now_ms = self.client.clock.now_ms();
        if let (Some(response), Some(membership)) = (response, &mut self.membership) {
            membership.member.on_join(response, now_ms)?;
        }
        Ok(())
    }

    async fn sync(&mut self, request: &SyncGroupRequest) -> Result<(), ClientError> {
        let response = self.call_coordinator(request, 0).await?;
        let now_ms = self.client.clock.now_ms();
        let Some(membership) = &mut self.membership else {
            return Ok(());
        };
        if let Some(response) = response {
            membership.member.on_sync(response, now_ms)?;
        }
        let Some(assignment) = membership.member.take_assignment() else {
            return Ok(());
        };
        let topics: Vec<&str> = assignment
            .topics
            .iter()
            .map(|topic| topic.topic.as_str())
            .collect();
        self.core.unassign_all();
        self.client.refresh(Some(&topics)).await?;
        let fetch = match &self.membership {
            Some(membership) => membership.member.offset_fetch_request(&assignment),
            None => return Ok(()),
        };
        match self.call_coordinator(&fetch, 0).await? {
            Some(stored) => self.begin(&assignment, &stored),
            // The coordinator is gone, and with it this generation: the next one assigns anew.
            None => Ok(()),
        }
    }

    /// Begins each partition where the group stopped.
    fn begin(
        &mut self,
        assignment: &Assignment,
        stored: &OffsetFetchResponse,
    ) -> Result<(), ClientError> {
        let Some(membership) = &self.membership else {
            return Ok(());
        };
        let group = &membership.settings.group;
        ClientError::check(|| format!("positions of group {group}"), stored.error_code)?;
        for (topic, partition) in assignment.partitions() {
            let found = stored
                .topics
                .iter()
                .filter(|stored| stored.name == *topic)
                .flat_map(|stored| &stored.partitions)
                .find(|stored| stored.partition_index == partition);
            if let Some(found) = found {
                let what = || format!("position of group {group} in {topic}/{partition}");
                ClientError::check(what, found.error_code)?;
            }
            let offset = found.map(|found| found.committed_offset);
            let start = match offset.filter(|offset| *offset >= 0) {
                Some(offset) => StartAt::Offset(offset),
                None => membership.start,
            };
            self.core.assign(topic, partition, start);
        }
        Ok(())
    }

    /// Asks the coordinator; `None` if its connection was lost, after which it is looked up again.
    async fn call_coordinator<R: Request>(
        &mut self,
        request: &R,
        waits_ms: u64,
    ) -> Result<Option<R::Response>, ClientError> {
        let Some(membership) = &mut self.membership else {
            return Ok(None);
        };
        let taken = membership.connection.take();
        let address = membership.member.coordinator();
        let address = address
            .map(|address| address.host_port())
            .unwrap_or_default();
        let called = async {
            let mut connection = match taken {
                Some(connection) => connection,
                None => self.client.connect_address(&address).await?,
            };
            let timeout_ms = self.client.settings.request_timeout_ms + waits_ms;
            let response = connection.call(request, timeout_ms).await?;
            membership.connection = Some(connection);
            Ok::<_, ClientError>(Some(response))
        };
        match called.await {
            Ok(response) => Ok(response),
            Err(error) if error.is_of_connection() => {
                let now_ms = self.client.clock.now_ms();
                membership.member.on_connection_lost(now_ms);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends what is due and waits for one answer, the group's next act or `give_up_ms`; `false`: the last.
    async fn work(&mut self, give_up_ms: u64) -> Result<bool, ClientError> {
        self.send_due().await?;
        let now_ms = self.client.clock.now_ms();
        if now_ms >= give_up_ms {
            return Ok(false);
        }
        let act_ms = match &mut self.membership {
            Some(membership) => match membership
                .member
                .next_action(self.client.metadata(), now_ms)?
            {
                GroupAction::WaitUntil(at_ms) => at_ms,
                _ => return Ok(true),
            },
            None => u64::MAX,
        };
        let rest_ms = now_ms + self.client.settings.retry_backoff_ms;
        let due_ms = match self.core.wake_at_ms() {
            Some(at_ms) if at_ms > now_ms => at_ms,
            // Due already and not sent: it waits for a leader or for the end of the rest.
            Some(_) => rest_ms,
            None => u64::MAX,
        };
        let waiting = self
            .leaders
            .values()
            .filter(|leader| !leader.requests.is_empty());
        let deadline_ms = waiting.map(|leader| leader.deadline_ms).min();
        let wake_ms = give_up_ms
            .min(act_ms)
            .min(due_ms)
            .min(deadline_ms.unwrap_or(u64::MAX));
        let wake_ms = wake_ms.min(now_ms + self.fetch_timeout_ms);
        let wake = self.client.clock.instant(wake_ms).into();
        let polled = timeout_at(wake, poll_fn(|context| self.poll_leaders(context))).await;
        if let Ok(happened) = polled {
            self.take(happened);
        }
        self.give_up_overdue();
        Ok(true)
    }

    /// Queues every request that is due.
    async fn send_due(&mut self) -> Result<(), ClientError> {
        if self.client.clock.now_ms() < self.rests_until_ms {
            return Ok(());
        }
        if self.core.take_metadata_wanted() {
            self.learn_leaders().await;
        }
        loop {
            let now_ms = self.client.clock.now_ms();
            let metadata = self.client.metadata();
            let sent = if let Some(query) = self.core.next_offset_query(metadata, now_ms) {
                (
                    query.id,
                    self.queue(query.broker, query.id, &query.request).await,
                )
            } else if let Some(fetch) = self.core.next_fetch(metadata, now_ms) {
                (
                    fetch.id,
                    self.queue(fetch.broker, fetch.id, &fetch.request).await,
                )
            } else {
                return Ok(());
            };
            match sent {
                (_, Ok(())) => {}
                (id, Err(error)) if error.is_of_connection() => {
                    self.core.on_failed(id, now_ms);
                    self.rest();
                    return Ok(());
                }
                (_, Err(error)) => return Err(error),
            }
        }
    }

    async fn queue<R: Request>(
        &mut self,
        broker: i32,
        id: FetchId,
        request: &R,
    ) -> Result<(), ClientError> {
        let deadline_ms = self.client.clock.now_ms() + self.fetch_timeout_ms;
        let leader = match self.leaders.get_mut(&broker) {
            Some(leader) => leader,
            None => {
                let connection = self.client.connect_to(broker).await?;
                self.leaders.entry(broker).or_insert(Leader {
                    connection,
                    requests: std::collections::VecDeque::new(),
                    deadline_ms,
                })
            }
        };
        leader.connection.send(request)?;
        leader.requests.push_back(id);
        leader.deadline_ms = deadline_ms;
        Ok(())
    }

    fn poll_leaders(&mut self, context: &mut Context<'_>) -> Poll<Happened> {
        for (broker, leader) in &mut self.leaders {
            match leader.connection.poll_answer(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(answer)) => return Poll::Ready(Happened::Answered(*broker, answer)),
                Poll::Ready(Err(_)) => return Poll::Ready(Happened::Broke(*broker)),
            }
        }
        Poll::Pending
    }

    fn take(&mut self, happened: Happened) {
        let now_ms = self.client.clock.now_ms();
        let (broker, answer) = match happened {
            Happened::Answered(broker, answer) => (broker, answer),
            Happened::Broke(broker) => return self.drop_leader(broker),
        };
        let Some(leader) = self.leaders.get_mut(&broker) else {
            return;
        };
        leader.deadline_ms = now_ms + self.fetch_timeout_ms;
        let Some(id) = leader.requests.pop_front() else {
            return;
        };
        let readable = if answer.api == ApiKey::Fetch {
            let response = leader.connection.decode::<FetchRequest>(answer);
            response.map(|response| self.core.on_fetch(id, response, now_ms))
        } else {
            let response = leader.connection.decode::<ListOffsetsRequest>(answer);
            response.map(|response| self.core.on_offsets(id, &response, now_ms))
        };
        if readable.is_err() {
            self.core.on_failed(id, now_ms);
            self.drop_leader(broker);
        }
    }

    fn drop_leader(&mut self, broker: i32) {
        let now_ms = self.client.clock.now_ms();
        if let Some(leader) = self.leaders.remove(&broker) {
            for id in leader.requests {
                self.core.on_failed(id, now_ms);
            }
        }
        self.rest();
    }

    fn give_up_overdue(&mut self) {
        let now_ms = self.client.clock.now_ms();
        let is_overdue =
            |leader: &Leader| !leader.requests.is_empty() && leader.deadline_ms <= now_ms;
        let overdue: Vec<i32> = self
            .leaders
            .iter()
            .filter(|(_, leader)| is_overdue(leader))
            .map(|(broker, _)| *broker)
            .collect();
        for broker in overdue {
            self.drop_leader(broker);
        }
    }

    fn rest(&mut self) {
        let now_ms = self.client.clock.now_ms();
        self.rests_until_ms = now_ms + self.client.settings.retry_backoff_ms;
    }

    async fn learn_leaders(&mut self) {
        let topics: Vec<String> = self.core.topics();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        // A failure is not the end: the partitions wait for the broker.
        if self.client.refresh(Some(&names)).await.is_err() {
            self.rest();
        }
    }
}
