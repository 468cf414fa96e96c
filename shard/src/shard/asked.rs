//! A question to the core that owns a partition, and the wait for its answer.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use corelog_engine::identity::CoreIndex;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Answer, RequestId};

use super::Shard;
use crate::uring::channel::{LocalReplyReceiver, ReplyReceiver};

pub(super) enum Wait {
    Local(LocalReplyReceiver<Answer>),
    Remote(ReplyReceiver<Answer>),
    Refused(Rejection),
    Over,
}

/// A request that was asked: a future of its answer. Dropping it ends a waiting fetch.
pub struct Asked {
    pub(super) shard: Option<Rc<Shard>>,
    pub(super) core: CoreIndex,
    pub(super) id: RequestId,
    pub(super) wait: Wait,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Asked({:?} of core {})", self.id, self.core)
    }
}

impl Asked {
    pub(super) fn refused(rejection: Rejection) -> Self {
        Self {
            shard: None,
            core: CoreIndex::ZERO,
            id: RequestId(0),
            wait: Wait::Refused(rejection),
        }
    }

    /// Ends the wait of a fetch: its answer comes now, with what there is.
    pub fn hurry(&self) {
        if let Some(shard) = &self.shard
            && matches!(self.wait, Wait::Local(_) | Wait::Remote(_))
        {
            shard.hurry(self.core, self.id);
        }
    }
}

impl Future for Asked {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let polled = match &mut self.wait {
            Wait::Local(wait) => Pin::new(wait).poll(context),
            Wait::Remote(wait) => Pin::new(wait).poll(context),
            Wait::Refused(rejection) => return Poll::Ready(Err(*rejection)),
            Wait::Over => return Poll::Ready(Err(Rejection::NotLeader)),
        };
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answered) => {
                self.wait = Wait::Over;
                Poll::Ready(answered.unwrap_or(Err(Rejection::NotLeader)))
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.hurry();
    }
}
