//! One connection to one broker.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use corelog_wire::{EncodedBytes, Request};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::ClientError;
use crate::core::{Answer, Connection, ConnectionSettings, RequestId, ServedVersions};

/// Chunks that one write takes.
const CHUNKS_PER_WRITE: usize = 64;

/// A connection that knows the broker's versions.
///
/// Requests are queued by [`BrokerConnection::send`] and written while [`BrokerConnection::answer`] is
/// polled. Dropping a future loses nothing: the next one goes on where it stood.
#[derive(Debug)]
pub struct BrokerConnection {
    address: String,
    stream: TcpStream,
    core: Connection,
    /// What is still to be written.
    outgoing: VecDeque<Bytes>,
    /// Whether any byte was written since it was opened, besides the hello.
    has_written: bool,
}

impl BrokerConnection {
    /// Connects to `host:port` and asks for the versions.
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::Timeout`], or what the hello met.
    pub async fn open(
        address: &str,
        settings: ConnectionSettings,
        timeout_ms: u64,
    ) -> Result<Self, ClientError> {
        let limit = Duration::from_millis(timeout_ms);
        let opened = timeout(limit, Self::open_without_limit(address, settings)).await;
        opened.unwrap_or_else(|_| {
            Err(ClientError::Timeout {
                address: address.to_owned(),
                what: "the connection",
                waited_ms: timeout_ms,
            })
        })
    }

    async fn open_without_limit(
        address: &str,
        settings: ConnectionSettings,
    ) -> Result<Self, ClientError> {
        let failed = |error| ClientError::Connect {
            address: address.to_owned(),
            error,
        };
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut connection = Self {
            address: address.to_owned(),
            stream,
            core: Connection::new(settings),
            outgoing: VecDeque::new(),
            has_written: false,
        };
        let hello = connection.core.hello();
        let mut bytes = connection.said(hello)?;
        loop {
            connection.queue(bytes);
            let answer = connection.answer().await?;
            let taken = connection.core.take_versions(answer);
            match connection.said(taken)? {
                None => break,
                Some(again) => bytes = again,
            }
        }
        connection.has_written = false;
        Ok(connection)
    }

    /// Where it leads.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What the broker serves.
    pub fn versions(&self) -> Option<&ServedVersions> {
        self.core.versions()
    }

    /// Whether another request may be queued.
    pub fn can_send(&self) -> bool {
        self.core.can_send()
    }

    /// Requests that wait for their answers.
    pub fn requests_in_flight(&self) -> usize {
        self.core.requests_in_flight()
    }

    /// Whether any byte of any request may have reached the broker.
    pub fn has_written(&self) -> bool {
        self.has_written
    }

    /// Queues a request; polling for answers writes it.
    ///
    /// # Errors
    /// [`ClientError::Protocol`]; the connection can still be used.
    pub fn send<R: Request>(&mut self, request: &R) -> Result<RequestId, ClientError> {
        let (id, bytes) = {
            let asked = self.core.request(request);
            self.said(asked)?
        };
        self.queue(bytes);
        Ok(id)
    }

    /// The next answer. Answers come in the order of the requests.
    ///
    /// # Errors
    /// [`ClientError::Broken`] or [`ClientError::Protocol`]; the connection must then be dropped, and
    /// requests without an answer may have been served.
    pub async fn answer(&mut self) -> Result<Answer, ClientError> {
        poll_fn(|context| self.poll_answer(context)).await
    }

    /// As [`BrokerConnection::answer`], for those who poll several connections at once.
    ///
    /// # Errors
    /// As [`BrokerConnection::answer`].
    pub fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Answer, ClientError>> {
        loop {
            if let Err(error) = self.write(context) {
                return Poll::Ready(Err(self.broken(error)));
            }
            let next = self.core.next_answer();
            if let Some(answer) = self.said(next)? {
                return Poll::Ready(Ok(answer));
            }
            ready!(self.stream.poll_read_ready(context)).map_err(|error| self.broken(error))?;
            match self.stream.try_read_buf(self.core.room()) {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Poll::Ready(Err(self.broken(error)));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(self.broken(error))),
            }
        }
    }

    /// Sends a request and waits for its answer, which must be the only one.
    ///
    /// # Errors
    /// As [`BrokerConnection::send`] and [`BrokerConnection::answer`], and [`ClientError::Timeout`].
    ///
    /// # Panics
    /// If other requests wait for their answers.
    pub async fn call<R: Request>(
        &mut self,
        request: &R,
        timeout_ms: u64,
    ) -> Result<R::Response, ClientError> {
        assert_eq!(self.core.requests_in_flight(), 0, "calls do not overlap");
        self.send(request)?;
        let answer = timeout(Duration::from_millis(timeout_ms), self.answer()).await;
        let answer = answer.map_err(|_| ClientError::Timeout {
            address: self.address.clone(),
            what: R::API.name(),
            waited_ms: timeout_ms,
        })??;
        self.decode::<R>(answer)
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`ClientError::Protocol`].
    pub fn decode<R: Request>(&self, answer: Answer) -> Result<R::Response, ClientError> {
        self.said(answer.decode::<R>())
    }

    fn queue(&mut self, bytes: EncodedBytes) {
        self.outgoing.extend(bytes.into_chunks());
    }

    /// Writes what the socket takes.
    fn write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.poll_write_ready(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(result) => result?,
            }
            let mut slices = [IoSlice::new(&[]); CHUNKS_PER_WRITE];
            let mut count = 0;
            for (slice, chunk) in slices.iter_mut().zip(&self.outgoing) {
                *slice = IoSlice::new(chunk);
                count += 1;
            }
            let written = self
                .stream
                .try_write_vectored(slices.get(..count).unwrap_or_default());
            match written {
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        self.has_written |= written > 0;
        while let Some(chunk) = self.outgoing.front_mut() {
            if written < chunk.len() {
                chunk.advance(written);
                return;
            }
            written -= chunk.len();
            self.outgoing.pop_front();
        }
    }

    fn broken(&self, error: io::Error) -> ClientError {
        ClientError::Broken {
            address: self.address.clone(),
            error,
        }
    }

    fn said<T>(&self, result: Result<T, crate::core::ConnectionError>) -> Result<T, ClientError> {
        result.map_err(|error| ClientError::Protocol {
            address: self.address.clone(),
            error,
        })
    }
}
