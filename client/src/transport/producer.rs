//! The producer on sockets.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::task::{Context, Poll};

use corelog_wire::{InitProducerIdRequest, ProduceRequest};
use tokio::time::timeout_at;

use super::client::Client;
use super::connection::BrokerConnection;
use super::error::ClientError;
use crate::core::{
    Answer, BatchOutcome, ProducerCore, ProducerSettings, PublishId, PublishRefusal,
    RecordToPublish, SendId,
};

/// A connection to a leader and the requests on it, oldest first, with the time at which each is given up.
#[derive(Debug)]
struct Leader {
    connection: BrokerConnection,
    sends: VecDeque<(SendId, u64)>,
}

/// Publishes records.
///
/// It works while one of its futures is polled; dropping one loses nothing. An application that publishes
/// rarely calls [`Producer::flush`] after each burst, or polls [`Producer::drive`] meanwhile.
///
/// ```no_run
/// use corelog_client::core::{Outcome, ProducerSettings, RecordToPublish};
/// use corelog_client::transport::{Client, ClientSettings, Producer, wall_ms};
///
/// # async fn example() -> Result<(), corelog_client::transport::ClientError> {
/// let client = Client::connect("127.0.0.1:9092", ClientSettings::default()).await?;
/// let mut producer = Producer::new(client, ProducerSettings::default());
/// for order in ["one tea", "two coffees"] {
///     producer
///         .publish(&RecordToPublish {
///             topic: "orders",
///             partition: None,
///             key: Some(b"customer-7"),
///             value: Some(order.as_bytes()),
///             headers: &[],
///             timestamp_ms: wall_ms(),
///         })
///         .await?;
/// }
/// producer.flush().await?;
/// while let Some(batch) = producer.next_outcome() {
///     match batch.outcome {
///         Outcome::Yes { base_offset } => println!("stored at {base_offset:?}"),
///         Outcome::No(reason) => println!("not stored: {reason}"),
///         Outcome::Unknown(reason) => println!("perhaps stored: {reason}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Producer {
    client: Client,
    core: ProducerCore,
    leaders: BTreeMap<i32, Leader>,
    /// Nothing is asked of brokers before, after a failure.
    rests_until_ms: u64,
    request_timeout_ms: u64,
    /// A producer id is being asked for. Still set when a future was dropped meanwhile.
    asks_producer_id: bool,
    /// The request that is being queued. Still set when a future was dropped meanwhile.
    queuing: Option<SendId>,
}

/// What a poll came to.
enum Happened {
    Answered(i32, Answer),
    Broke(i32),
}

impl Producer {
    /// A producer over this client.
    pub fn new(client: Client, settings: ProducerSettings) -> Self {
        let broker_ms = u64::try_from(settings.request_timeout_ms).unwrap_or(0);
        Self {
            request_timeout_ms: client.settings().request_timeout_ms + broker_ms,
            client,
            core: ProducerCore::new(settings),
            leaders: BTreeMap::new(),
            rests_until_ms: 0,
            asks_producer_id: false,
            queuing: None,
        }
    }

    /// Takes a record. Waits while the buffer is full; outcomes that come meanwhile are kept for
    /// [`Producer::next_outcome`].
    ///
    /// # Errors
    /// [`ClientError::NoTopic`], or a record that can never be taken.
    pub async fn publish(
        &mut self,
        record: &RecordToPublish<'_>,
    ) -> Result<PublishId, ClientError> {
        loop {
            match self.core.publish(record, self.client.clock.now_ms()) {
                Ok(id) => return Ok(id),
                Err(PublishRefusal::TopicUnknown) => self.learn_topic(record.topic).await?,
                Err(PublishRefusal::Full { .. }) => self.work().await?,
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }

    /// Takes a record if there is room, without waiting.
    ///
    /// # Errors
    /// See [`PublishRefusal`].
    pub fn try_publish(
        &mut self,
        record: &RecordToPublish<'_>,
    ) -> Result<PublishId, PublishRefusal> {
        self.core.publish(record, self.client.clock.now_ms())
    }

    /// Sends what lingers and waits until every record has its outcome.
    ///
    /// # Errors
    /// What keeps outcomes from coming at all; after the delivery timeout each record has one.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        self.core.flush();
        while !self.core.is_settled() {
            self.work().await?;
        }
        Ok(())
    }

    /// Sends what is due and takes what has arrived, without waiting for anything. For use between
    /// publishes, so that batches leave while others fill.
    ///
    /// # Errors
    /// As [`Producer::flush`].
    pub async fn turn(&mut self) -> Result<(), ClientError> {
        self.send_due().await?;
        poll_fn(|context| {
            while let Poll::Ready(one) = self.poll_leaders(context) {
                self.take(one);
            }
            Poll::Ready(())
        })
        .await;
        Ok(())
    }

    /// The next outcome that has come.
    pub fn next_outcome(&mut self) -> Option<BatchOutcome> {
        self.core.next_outcome()
    }

    /// Bytes whose outcome is open.
    pub fn buffered_bytes(&self) -> usize {
        self.core.buffered_bytes()
    }

    /// Sends and takes answers for as long as it is polled; it comes back only with an error. For use beside
    /// a source of records, in `tokio::select!`.
    ///
    /// # Errors
    /// As [`Producer::flush`].
    pub async fn drive(&mut self) -> Result<(), ClientError> {
        loop {
            self.work().await?;
        }
    }

    /// Sends what is due, then waits for an answer or for the next thing to become due.
    async fn work(&mut self) -> Result<(), ClientError> {
        self.send_due().await?;
        let now_ms = self.client.clock.now_ms();
        // What is due already and was not sent waits for an answer, a leader or the end of the rest.
        let due_ms = self.core.wake_at_ms().filter(|due_ms| *due_ms > now_ms);
        let rest_ms = now_ms + self.client.settings.retry_backoff_ms;
        let overdue_ms = self
            .leaders
            .values()
            .filter_map(|leader| leader.sends.front().map(|send| send.1))
            .min();
        let wake_ms = [Some(rest_ms), due_ms, overdue_ms]
            .into_iter()
            .flatten()
            .min();
        let wake = self.client.clock.instant(wake_ms.unwrap_or(rest_ms)).into();
        let polled = timeout_at(wake, poll_fn(|context| self.poll_leaders(context))).await;
        if let Ok(one) = polled {
            self.take(one);
        }
        self.give_up_overdue();
        Ok(())
    }

    /// Gets a producer id and leaders where they are needed, and queues every request that is due.
    async fn send_due(&mut self) -> Result<(), ClientError> {
        let now_ms = self.client.clock.now_ms();
        if std::mem::take(&mut self.asks_producer_id) {
            self.core.on_producer_id(None);
        }
        if let Some(id) = self.queuing.take() {
            self.core.on_send_failed(id, false, now_ms);
        }
        if now_ms < self.rests_until_ms {
            return Ok(());
        }
        if let Some(request) = self.core.producer_id_request() {
            self.learn_producer_id(&request).await?;
        }
        if self.core.take_metadata_wanted() {
            self.learn_leaders().await;
        }
        loop {
            let now_ms = self.client.clock.now_ms();
            let Some(send) = self.core.next_request(self.client.metadata(), now_ms) else {
                return Ok(());
            };
            self.queuing = Some(send.id);
            let queued = self.queue(send.broker, &send.request).await;
            self.queuing = None;
            let deadline_ms = now_ms.saturating_add(self.request_timeout_ms);
            match (queued, self.leaders.get_mut(&send.broker)) {
                (Ok(()), Some(leader)) => leader.sends.push_back((send.id, deadline_ms)),
                (Err(error), _) if !error.is_of_connection() => return Err(error),
                _ => {
                    self.rest();
                    self.core.on_send_failed(send.id, false, now_ms);
                    return Ok(());
                }
            }
        }
    }

    async fn queue(&mut self, broker: i32, request: &ProduceRequest) -> Result<(), ClientError> {
        let leader = match self.leaders.get_mut(&broker) {
            Some(leader) => leader,
            None => {
                let connection = self.client.connect_to(broker).await?;
                self.leaders.entry(broker).or_insert(Leader {
                    connection,
                    sends: VecDeque::new(),
                })
            }
        };
        leader.connection.send(request).map(|_| ())
    }

    /// The first answer or break of any leader's connection.
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
        match happened {
            Happened::Answered(broker, answer) => {
                let Some(leader) = self.leaders.get_mut(&broker) else {
                    return;
                };
                let Some((id, _)) = leader.sends.pop_front() else {
                    return;
                };
                match leader.connection.decode::<ProduceRequest>(answer) {
                    Ok(response) => self.core.on_response(id, &response, now_ms),
                    Err(_) => {
                        leader.sends.push_front((id, 0));
                        self.drop_leader(broker, now_ms);
                    }
                }
            }
            Happened::Broke(broker) => self.drop_leader(broker, now_ms),
        }
    }

    /// Drops a connection; what was on it may have been stored.
    fn drop_leader(&mut self, broker: i32, now_ms: u64) {
        let Some(leader) = self.leaders.remove(&broker) else {
            return;
        };
        let written = leader.connection.has_written();
        for (id, _) in leader.sends {
            self.core.on_send_failed(id, written, now_ms);
        }
        self.rest();
    }

    fn give_up_overdue(&mut self) {
        let now_ms = self.client.clock.now_ms();
        let is_overdue = |leader: &Leader| {
            let oldest = leader.sends.front();
            oldest.is_some_and(|(_, deadline_ms)| *deadline_ms <= now_ms)
        };
        let overdue: Vec<i32> = self
            .leaders
            .iter()
            .filter(|(_, leader)| is_overdue(leader))
            .map(|(broker, _)| *broker)
            .collect();
        for broker in overdue {
            self.drop_leader(broker, now_ms);
        }
    }

    fn rest(&mut self) {
        let now_ms = self.client.clock.now_ms();
        self.rests_until_ms = now_ms + self.client.settings.retry_backoff_ms;
    }

    async fn learn_topic(&mut self, name: &str) -> Result<(), ClientError> {
        self.client.topic(name).await?;
        let count = self.client.metadata().partition_count(name);
        let count = count.ok_or_else(|| ClientError::NoTopic { topic: name.into() })?;
        self.core.set_topic(name, count);
        Ok(())
    }

    async fn learn_leaders(&mut self) {
        let topics: Vec<String> = self.core.topics().map(str::to_owned).collect();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        // A failure is not the end: records have the delivery timeout.
        if self.client.refresh(Some(&names)).await.is_err() {
            self.rest();
        }
        for name in names {
            if let Some(count) = self.client.metadata().partition_count(name) {
                self.core.set_topic(name, count);
            }
        }
    }

    async fn learn_producer_id(
        &mut self,
        request: &InitProducerIdRequest,
    ) -> Result<(), ClientError> {
        self.asks_producer_id = true;
        let answer = self.client.call(request).await;
        self.asks_producer_id = false;
        match answer {
            Ok(response) if response.error_code.is_none() => {
                let identity = (response.producer_id, response.producer_epoch);
                self.core.on_producer_id(Some(identity));
                Ok(())
            }
            Ok(response) if response.error_code.is_retriable() => {
                self.core.on_producer_id(None);
                self.rest();
                Ok(())
            }
            Ok(response) => {
                self.core.on_producer_id(None);
                ClientError::check(|| "a producer id".to_owned(), response.error_code)
            }
            Err(error) if error.is_of_connection() => {
                self.core.on_producer_id(None);
                self.rest();
                Ok(())
            }
            Err(error) => {
                self.core.on_producer_id(None);
                Err(error)
            }
        }
    }
}
