//! Frames off a stream: each in memory of its own and of its exact size.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelog_engine::limits::FRAME_BYTES_MAX;
use corelog_wire::frame::frame_length;

use super::answer_queue::AnswerQueue;
use super::call::End;
use crate::uring::{Stream, timeout};

/// A connection without requests, unanswered or new, lives this long (Kafka:
/// `connections.max.idle.ms`).
const IDLE_MAX: Duration = Duration::from_secs(600);

/// A frame, once begun, must come within this time and a second for each [`BYTES_PER_SECOND_MIN`].
const FRAME_PATIENCE: Duration = Duration::from_secs(30);

/// Whoever sends slower than this, in bytes a second, holds memory for too long.
const BYTES_PER_SECOND_MIN: usize = 256 << 10;

/// Bytes taken off the stream at a time where the frame's length is not known yet: small requests
/// come with one call, and little of a large one is copied.
const RECEIVE_BYTES: usize = 4 << 10;

const PREFIX_BYTES: usize = 4;

/// Reads frames.
pub(super) struct FrameReader {
    stream: Stream,
    received: Box<[u8; RECEIVE_BYTES]>,
    start: usize,
    end: usize,
}

impl FrameReader {
    /// A reader of the stream, which nobody else may read.
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            received: Box::new([0; RECEIVE_BYTES]),
            start: 0,
            end: 0,
        }
    }

    /// The length of the next frame, once it has come.
    ///
    /// # Errors
    /// The end of the connection: closed, idle, broken, or a length that no frame may have.
    pub async fn next_length(&mut self, queue: &AnswerQueue) -> Result<usize, End> {
        while self.end == self.start {
            let Some(read) = timeout(IDLE_MAX, self.receive()).await else {
                if queue.is_idle() {
                    return Err(End::Idle);
                }
                continue;
            };
            read?;
        }
        let whole = async {
            while self.end - self.start < PREFIX_BYTES {
                self.receive().await?;
            }
            Ok(())
        };
        match timeout(FRAME_PATIENCE, whole).await {
            Some(Ok(())) => {}
            Some(Err(end)) => return Err(end),
            None => return Err(End::SlowSender),
        }
        let mut prefix = [0; PREFIX_BYTES];
        prefix.copy_from_slice(&self.received[self.start..self.start + PREFIX_BYTES]);
        self.start += PREFIX_BYTES;
        frame_length(prefix, FRAME_BYTES_MAX).map_err(End::Frame)
    }

    async fn receive(&mut self) -> Result<(), End> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == RECEIVE_BYTES {
            self.received.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match self.stream.read(&mut self.received[self.end..]).await? {
            0 => Err(End::Closed),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }

    /// The frame whose length was read, alone in its memory.
    ///
    /// # Errors
    /// The end of the connection: closed, broken, or too slow.
    pub async fn frame(&mut self, length: usize) -> Result<Bytes, End> {
        let mut frame = BytesMut::with_capacity(length);
        let early = (self.end - self.start).min(length);
        frame.extend_from_slice(&self.received[self.start..self.start + early]);
        self.start += early;
        if early < length {
            let patience =
                FRAME_PATIENCE + Duration::from_secs((length / BYTES_PER_SECOND_MIN) as u64);
            let rest = self.stream.read_exact_into(&mut frame, length - early);
            match timeout(patience, rest).await {
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(End::from(error)),
                None => return Err(End::SlowSender),
            }
        }
        Ok(frame.freeze())
    }
}
