//! Messages between cores, and between cores and the support thread. The one place that names the
//! channel library.
//!
//! A channel is bounded and goes one way; any number of senders, one receiver. The same kind
//! serves core to core and core to support thread: both ends work on any thread and any runtime.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::uring::core::{next_turn, note_activity, on_core};

/// Messages that a receiver takes without waiting before it gives the reactor a turn.
const MESSAGES_PER_TURN: u32 = 256;

/// The largest capacity of a channel.
pub const CAPACITY_MAX: usize = 1 << 20;

/// Why a message was not taken. It comes back to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError<T> {
    /// The channel holds as many messages as it may.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Full(_) => "the channel is full",
            Self::Closed(_) => "the receiver is gone",
        })
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}

/// The other side is gone: no message will come, or nobody takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the other side of the channel is gone")
    }
}

impl std::error::Error for Closed {}

/// A channel for `capacity` messages.
///
/// # Panics
/// If `capacity` is zero or above [`CAPACITY_MAX`].
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(
        (1..=CAPACITY_MAX).contains(&capacity),
        "a channel of {capacity} messages"
    );
    let (sender, receiver) = flume::bounded(capacity);
    (
        Sender { sender },
        Receiver {
            receiver,
            taken: Cell::new(0),
        },
    )
}

/// The sending side. Clones send into the same channel.
pub struct Sender<T> {
    sender: flume::Sender<T>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Sender({} of {:?} messages)",
            self.sender.len(),
            self.sender.capacity()
        )
    }
}

impl<T> Sender<T> {
    /// Sends without waiting.
    ///
    /// # Errors
    /// With the message, if the channel is full or the receiver gone.
    pub fn try_send(&self, message: T) -> Result<(), SendError<T>> {
        note_activity();
        self.sender.try_send(message).map_err(|error| match error {
            flume::TrySendError::Full(message) => SendError::Full(message),
            flume::TrySendError::Disconnected(message) => SendError::Closed(message),
        })
    }

    /// Sends, waiting for room. A waiting message counts against no bound, so whoever lets many
    /// tasks wait here bounds them elsewhere.
    ///
    /// # Errors
    /// With the message, if the receiver is gone.
    pub async fn send(&self, message: T) -> Result<(), SendError<T>> {
        note_activity();
        self.sender
            .send_async(message)
            .await
            .map_err(|error| SendError::Closed(error.0))
    }

    /// Messages in the channel.
    pub fn len(&self) -> usize {
        self.sender.len()
    }

    /// Whether no message is in the channel.
    pub fn is_empty(&self) -> bool {
        self.sender.is_empty()
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.sender.is_disconnected()
    }
}

/// The receiving side.
pub struct Receiver<T> {
    receiver: flume::Receiver<T>,
    /// Messages taken since it last waited.
    taken: Cell<u32>,
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Receiver({} of {:?} messages)",
            self.receiver.len(),
            self.receiver.capacity()
        )
    }
}

impl<T> Receiver<T> {
    /// The next message, waiting for it; [`Closed`] once all senders are gone and the channel is
    /// empty. Dropping the future loses no message.
    ///
    /// On a core, a receiver that never has to wait gives the reactor a turn now and then.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn recv(&self) -> Result<T, Closed> {
        note_activity();
        if self.taken.get() >= MESSAGES_PER_TURN && on_core() {
            self.taken.set(0);
            next_turn().await;
        }
        if let Some(message) = self.try_recv()? {
            self.taken.set(self.taken.get() + 1);
            return Ok(message);
        }
        self.taken.set(0);
        self.receiver.recv_async().await.map_err(|_| Closed)
    }

    /// The next message if one is there.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn try_recv(&self) -> Result<Option<T>, Closed> {
        match self.receiver.try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(flume::TryRecvError::Empty) => Ok(None),
            Err(flume::TryRecvError::Disconnected) => Err(Closed),
        }
    }

    /// The next message, blocking the thread. Not on a core.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Panics
    /// If this thread is a core.
    pub fn recv_blocking(&self) -> Result<T, Closed> {
        assert!(!on_core(), "a core does not block");
        self.receiver.recv().map_err(|_| Closed)
    }

    /// Messages in the channel.
    pub fn len(&self) -> usize {
        self.receiver.len()
    }

    /// Whether no message is in the channel.
    pub fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }
}

/// One answer, from any thread to any thread.
pub fn reply<T>() -> (Reply<T>, ReplyReceiver<T>) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    (Reply { sender }, ReplyReceiver { receiver })
}

/// The side that answers. Dropping it unanswered tells the asker [`Closed`].
#[derive(Debug)]
pub struct Reply<T> {
    sender: tokio::sync::oneshot::Sender<T>,
}

impl<T> Reply<T> {
    /// Answers.
    ///
    /// # Errors
    /// With the answer, if the asker no longer waits.
    pub fn send(self, answer: T) -> Result<(), T> {
        note_activity();
        self.sender.send(answer)
    }

    /// Whether the asker no longer waits.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// The side that asked: a future of the answer.
#[derive(Debug)]
pub struct ReplyReceiver<T> {
    receiver: tokio::sync::oneshot::Receiver<T>,
}

impl<T> Future for ReplyReceiver<T> {
    type Output = Result<T, Closed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(|answer| answer.map_err(|_| Closed))
    }
}

/// One answer between tasks of the same core: no atomics, no lock.
pub fn local_reply<T>() -> (LocalReply<T>, LocalReplyReceiver<T>) {
    let slot = Rc::new(RefCell::new(Slot {
        state: SlotState::Waiting,
        waker: None,
    }));
    (
        LocalReply {
            slot: Rc::clone(&slot),
        },
        LocalReplyReceiver { slot },
    )
}

struct Slot<T> {
    state: SlotState<T>,
    waker: Option<Waker>,
}

enum SlotState<T> {
    Waiting,
    Answered(T),
    /// The answer was taken, or will never come.
    Closed,
}

/// The side that answers, on the same core.
pub struct LocalReply<T> {
    slot: Rc<RefCell<Slot<T>>>,
}

impl<T> fmt::Debug for LocalReply<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LocalReply")
    }
}

impl<T> LocalReply<T> {
    /// Answers.
    ///
    /// # Errors
    /// With the answer, if the asker no longer waits.
    pub fn send(self, answer: T) -> Result<(), T> {
        if self.is_closed() {
            return Err(answer);
        }
        self.slot.borrow_mut().state = SlotState::Answered(answer);
        Ok(())
    }

    /// Whether the asker no longer waits.
    pub fn is_closed(&self) -> bool {
        Rc::strong_count(&self.slot) == 1
    }
}

impl<T> Drop for LocalReply<T> {
    fn drop(&mut self) {
        let mut slot = self.slot.borrow_mut();
        if matches!(slot.state, SlotState::Waiting) {
            slot.state = SlotState::Closed;
        }
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The side that asked, on the same core: a future of the answer.
pub struct LocalReplyReceiver<T> {
    slot: Rc<RefCell<Slot<T>>>,
}

impl<T> fmt::Debug for LocalReplyReceiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LocalReplyReceiver")
    }
}

impl<T> Future for LocalReplyReceiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.slot.borrow_mut();
        if matches!(slot.state, SlotState::Waiting) {
            slot.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match std::mem::replace(&mut slot.state, SlotState::Closed) {
            SlotState::Answered(answer) => Poll::Ready(Ok(answer)),
            SlotState::Waiting | SlotState::Closed => Poll::Ready(Err(Closed)),
        }
    }
}
