//! Finding brokers and leaders, and asking them.

use std::time::Duration;

use corelog_wire::{ErrorCode, MetadataRequest, Request};
use tokio::time::sleep;

use super::clock::Clock;
use super::connection::BrokerConnection;
use super::error::ClientError;
use crate::core::{ConnectionSettings, Metadata, TopicMetadata};

/// How a client behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// How each connection behaves.
    pub connection: ConnectionSettings,
    /// How long a connection may take to open, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long an answer may take, in milliseconds, beyond what the request itself allows the broker.
    pub request_timeout_ms: u64,
    /// How long a topic's leaders are waited for, in milliseconds.
    pub leader_timeout_ms: u64,
    /// How long to rest before trying again, in milliseconds.
    pub retry_backoff_ms: u64,
    /// Whether asking for a topic may create it, where the broker allows that.
    pub allow_auto_topic_creation: bool,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connection: ConnectionSettings::default(),
            connect_timeout_ms: 5_000,
            request_timeout_ms: 30_000,
            leader_timeout_ms: 15_000,
            retry_backoff_ms: 100,
            allow_auto_topic_creation: false,
        }
    }
}

/// A client: what is known of the cluster, and a connection to ask about it.
///
/// ```no_run
/// use corelog_client::transport::{Client, ClientSettings, NewTopic};
///
/// # async fn example() -> Result<(), corelog_client::transport::ClientError> {
/// let mut client = Client::connect("127.0.0.1:9092", ClientSettings::default()).await?;
/// client.create_topic(&NewTopic::new("orders", 4)).await?;
/// let topic = client.topic("orders").await?;
/// println!("{} partitions", topic.partitions.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    pub(super) settings: ClientSettings,
    pub(super) clock: Clock,
    bootstrap: Vec<String>,
    metadata: Metadata,
    any: Option<BrokerConnection>,
}

impl Client {
    /// Connects to the first of these addresses (`host:port`, separated by commas) that answers.
    ///
    /// # Errors
    /// What the last address met.
    pub async fn connect(bootstrap: &str, settings: ClientSettings) -> Result<Self, ClientError> {
        let bootstrap = bootstrap.split(',').map(str::trim).map(str::to_owned);
        let mut client = Self {
            settings,
            clock: Clock::default(),
            bootstrap: bootstrap.collect(),
            metadata: Metadata::default(),
            any: None,
        };
        client
            .call::<MetadataRequest>(&Metadata::request(Some(&[]), false))
            .await
            .map(|response| {
                client.metadata.apply(&response);
            })?;
        Ok(client)
    }

    /// What is known of the cluster.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The settings.
    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// Asks any broker. A connection that broke while idle is opened anew, once.
    ///
    /// # Errors
    /// What the call met; an answer's own codes are the caller's to read.
    pub async fn call<R: Request>(&mut self, request: &R) -> Result<R::Response, ClientError> {
        if let Some(mut connection) = self.any.take() {
            let timeout_ms = self.settings.request_timeout_ms;
            match connection.call(request, timeout_ms).await {
                Ok(response) => {
                    self.any = Some(connection);
                    return Ok(response);
                }
                Err(ClientError::Broken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = self.connect_any().await?;
        let response = connection
            .call(request, self.settings.request_timeout_ms)
            .await?;
        self.any = Some(connection);
        Ok(response)
    }

    /// Asks one broker, on a connection of its own.
    ///
    /// # Errors
    /// What the call met.
    pub async fn call_broker<R: Request>(
        &mut self,
        broker: i32,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        let mut connection = self.connect_to(broker).await?;
        connection
            .call(request, self.settings.request_timeout_ms)
            .await
    }

    /// A new connection to a broker that the metadata names.
    ///
    /// # Errors
    /// What opening met, or [`ClientError::Refused`] for a broker that is not known.
    pub async fn connect_to(&self, broker: i32) -> Result<BrokerConnection, ClientError> {
        let address = self.metadata.broker(broker);
        let address = address.ok_or_else(|| ClientError::Refused {
            what: format!("broker {broker}"),
            code: ErrorCode::BROKER_NOT_AVAILABLE,
            message: None,
        })?;
        self.connect_address(&address.host_port()).await
    }

    /// A new connection to an address.
    ///
    /// # Errors
    /// What opening met.
    pub async fn connect_address(&self, address: &str) -> Result<BrokerConnection, ClientError> {
        let settings = self.settings.connection.clone();
        BrokerConnection::open(address, settings, self.settings.connect_timeout_ms).await
    }

    /// Asks for these topics, or for all.
    ///
    /// # Errors
    /// What the call met.
    pub async fn refresh(&mut self, topics: Option<&[&str]>) -> Result<(), ClientError> {
        let create = self.settings.allow_auto_topic_creation;
        let request = Metadata::request(topics, create && topics.is_some());
        let response = self.call(&request).await?;
        self.metadata.apply(&response);
        Ok(())
    }

    /// A topic all of whose partitions have leaders, which are waited for.
    ///
    /// # Errors
    /// [`ClientError::NoTopic`], [`ClientError::NoLeader`], or what the call met.
    pub async fn topic(&mut self, name: &str) -> Result<&TopicMetadata, ClientError> {
        let give_up_ms = self.clock.now_ms() + self.settings.leader_timeout_ms;
        loop {
            self.refresh(Some(&[name])).await?;
            let is_led = |topic: &TopicMetadata| {
                let mut partitions = topic.partitions.keys();
                !topic.partitions.is_empty()
                    && partitions.all(|partition| self.metadata.leader(name, *partition).is_some())
            };
            let found = self.metadata.topic(name);
            let error = match found {
                None if !self.settings.allow_auto_topic_creation => {
                    return Err(ClientError::NoTopic { topic: name.into() });
                }
                None => ClientError::NoTopic { topic: name.into() },
                Some(topic) if is_led(topic) => break,
                Some(topic) if !topic.error.is_none() && !topic.error.is_retriable() => {
                    return Err(ClientError::Refused {
                        what: format!("topic {name}"),
                        code: topic.error,
                        message: None,
                    });
                }
                Some(_) => ClientError::NoLeader { topic: name.into() },
            };
            if self.clock.now_ms() >= give_up_ms {
                return Err(error);
            }
            sleep(Duration::from_millis(self.settings.retry_backoff_ms)).await;
        }
        let topic = self.metadata.topic(name);
        topic.ok_or_else(|| ClientError::NoTopic { topic: name.into() })
    }

    /// The first broker that answers: the addresses given at the start, then those that were learnt.
    async fn connect_any(&self) -> Result<BrokerConnection, ClientError> {
        let learnt = self.metadata.brokers().values();
        let learnt = learnt.map(|address| address.host_port());
        let mut last = None;
        for address in self.bootstrap.iter().cloned().chain(learnt) {
            match self.connect_address(&address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = last.or(Some(error)),
            }
        }
        Err(last.unwrap_or_else(|| ClientError::Connect {
            address: String::new(),
            error: std::io::Error::other("no address given"),
        }))
    }
}
