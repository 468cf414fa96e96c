//! The requests of one connection that are not answered yet, in order.
//!
//! Invariant: at most [`REQUESTS_MAX`] requests, and unless there is one alone at most
//! [`REQUEST_BYTES_MAX`] bytes of them, are unanswered at a time. Whoever reads waits for room before
//! the next frame's memory is reserved, and so holds the sender back.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::call::Pending;
use crate::shard::Reservation;

/// Most requests of one connection that may be unanswered.
const REQUESTS_MAX: usize = 64;

/// Most bytes of them.
const REQUEST_BYTES_MAX: usize = 32 << 20;

/// One request that is not answered yet.
pub(super) struct Unanswered {
    /// Its answer to be.
    pub pending: Pending,
    /// The bytes that it takes of the core's budget until its answer is sent.
    pub reserved: Reservation,
    /// Bytes of its frame.
    pub bytes: usize,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Unanswered>,
    /// Requests unanswered: those in the queue and the one whose answer is awaited.
    requests: usize,
    bytes: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_closed: bool,
}

/// The queue, shared by the task that reads and the one that writes.
#[derive(Clone, Default)]
pub(super) struct AnswerQueue {
    waiting: Rc<RefCell<Waiting>>,
}

impl AnswerQueue {
    /// Whether no request is unanswered.
    pub fn is_idle(&self) -> bool {
        self.waiting.borrow().requests == 0
    }

    /// Waits until a request of this size may be read. `false`: nothing will be answered any more.
    pub async fn room(&self, bytes: usize) -> bool {
        poll_fn(|context| {
            let mut waiting = self.waiting.borrow_mut();
            if waiting.is_closed {
                return Poll::Ready(false);
            }
            let fits =
                waiting.requests < REQUESTS_MAX && waiting.bytes + bytes <= REQUEST_BYTES_MAX;
            if fits || waiting.requests == 0 {
                return Poll::Ready(true);
            }
            waiting.reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Adds the next request.
    pub fn push(&self, request: Unanswered) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.requests += 1;
        waiting.bytes += request.bytes;
        waiting.queue.push_back(request);
        if let Some(writer) = waiting.writer.take() {
            writer.wake();
        }
    }

    /// The next request, waiting for it.
    pub async fn next(&self) -> Unanswered {
        poll_fn(|context| {
            let mut waiting = self.waiting.borrow_mut();
            match waiting.queue.pop_front() {
                Some(request) => Poll::Ready(request),
                None => {
                    waiting.writer = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Nothing will be answered any more.
    pub fn close(&self) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.is_closed = true;
        if let Some(reader) = waiting.reader.take() {
            reader.wake();
        }
    }

    /// A request of this size is answered.
    pub fn answered(&self, bytes: usize) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.requests -= 1;
        waiting.bytes -= bytes;
        if let Some(reader) = waiting.reader.take() {
            reader.wake();
        }
    }
}
