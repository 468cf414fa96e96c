//! One connection: a task that reads and begins requests, and one that sends their answers.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use corelog_engine::admission::Principal;
use corelog_wire::frame::{HeaderError, decode_request_header, encode_unsupported_api_versions};
use corelog_wire::{ApiKey, DecodeLimits};

use super::answer_queue::{AnswerQueue, Unanswered};
use super::call::{Answered, Call, End, Pending};
use super::dispatch;
use super::fetch_sessions::FetchSessions;
use super::frame_reader::FrameReader;
use crate::shard::Shard;
use crate::uring::{Stream, spawn_local};

/// What the handlers of one connection share.
pub(super) struct Connection {
    /// The core that reads it.
    pub shard: Rc<Shard>,
    /// On whose behalf it asks.
    pub principal: Rc<Principal>,
    /// Its fetch sessions: a client keeps to one connection for a session's life, or starts over.
    pub sessions: Rc<FetchSessions>,
    /// Turns with each fetch, so that another partition comes first.
    pub fetch_turn: Cell<usize>,
    stream: Stream,
}

/// Serves a connection and says why it ended.
pub(super) async fn serve(shard: &Rc<Shard>, stream: Stream) -> End {
    let connection = Connection {
        shard: Rc::clone(shard),
        principal: Rc::new(Principal::anonymous()),
        sessions: Rc::new(FetchSessions::new(Rc::clone(shard))),
        fetch_turn: Cell::new(0),
        stream: stream.clone(),
    };
    let queue = AnswerQueue::default();
    let written: Rc<Cell<Option<End>>> = Rc::default();
    let writer = spawn_local(write(stream, queue.clone(), Rc::clone(&written)));
    let read = read(&connection, &queue).await;
    // Nobody is left to hear the answers; waiting fetches and joins end with them.
    writer.cancel().await;
    written.take().unwrap_or(read)
}

async fn read(connection: &Connection, queue: &AnswerQueue) -> End {
    let mut reader = FrameReader::new(connection.stream.clone());
    loop {
        if let Err(end) = read_one(connection, queue, &mut reader).await {
            return end;
        }
    }
}

async fn read_one(
    connection: &Connection,
    queue: &AnswerQueue,
    reader: &mut FrameReader,
) -> Result<(), End> {
    let bytes = reader.next_length(queue).await?;
    if connection.shard.is_stopping() {
        return Err(End::Stopping);
    }
    if !queue.room(bytes).await {
        return Err(End::Closed);
    }
    let reserved = connection
        .shard
        .reserve(bytes)
        .await
        .map_err(|_| End::TooLarge(bytes))?;
    let frame = reader.frame(bytes).await?;
    let pending = begin(connection, frame).await?;
    queue.push(Unanswered {
        pending,
        reserved,
        bytes,
    });
    Ok(())
}

/// Decodes a request and begins it: when this returns, its parts have their places in the order of
/// the cores that own them.
async fn begin(connection: &Connection, frame: Bytes) -> Result<Pending, End> {
    let (header, body) = match decode_request_header(frame, DecodeLimits::REQUEST) {
        Ok(decoded) => decoded,
        Err(HeaderError::UnsupportedVersion {
            api: ApiKey::ApiVersions,
            correlation_id,
            ..
        }) => {
            let answer =
                encode_unsupported_api_versions(correlation_id).map_err(End::Unwritable)?;
            return Ok(Pending::Ready(Answered::Frame(answer, None)));
        }
        Err(error) => return Err(End::Header(error)),
    };
    let call = Call {
        shard: Rc::clone(&connection.shard),
        principal: Rc::clone(&connection.principal),
        peer: connection.stream.peer_address(),
        version: header.version,
        correlation_id: header.correlation_id,
    };
    dispatch::begin(connection, call, header.api, header.client_id, body).await
}

/// Sends the answers in order. However it ends, the reading task learns it from the stream.
async fn write(stream: Stream, queue: AnswerQueue, ended: Rc<Cell<Option<End>>>) {
    loop {
        let Unanswered {
            pending,
            reserved,
            bytes,
        } = queue.next().await;
        let answered = match pending {
            Pending::Ready(answered) => answered,
            Pending::Later(answer) => answer.await,
        };
        let sent = match answered {
            Answered::Frame(encoded, held) => {
                let sent = stream.write_all_parts(&mut encoded.into_chunks()).await;
                drop(held);
                sent.map_err(End::from)
            }
            Answered::Nothing => Ok(()),
            Answered::End(end) => Err(end),
        };
        drop(reserved);
        queue.answered(bytes);
        if let Err(end) = sent {
            ended.set(Some(end));
            queue.close();
            return stream.abort();
        }
    }
}
