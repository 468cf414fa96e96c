//! Consumer groups: the classic group protocol and the offsets, for one partition of the internal
//! offsets topic.

mod effect;
mod settings;

pub use effect::{AppendToken, GroupEffect, GroupEffects, GroupRecord};
pub use settings::Settings;

use bytes::Bytes;

use crate::identity::TopicId;
use crate::rejection::Rejection;
use crate::request::{GroupRequest, RequestId};
use crate::time::{Monotonic, Now};

/// Why a record of the log cannot be used. The partition must not be served then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// Written by a newer version of corelog.
    Newer {
        /// Which format.
        what: &'static str,
        /// The version found.
        version: u8,
    },
    /// Not a record of this format, or one whose lengths disagree.
    Malformed {
        /// What was wrong.
        what: &'static str,
    },
}

/// All groups of one partition of the offsets topic.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
}

impl Coordinator {
    /// A coordinator that is still to read its log; it refuses requests until
    /// [`Coordinator::loaded`].
    pub fn new(settings: Settings, _now: Now) -> Self {
        Self { settings }
    }

    /// Takes over the next record of the partition's log, from the log start on, in order, none
    /// left out.
    ///
    /// # Errors
    /// If the record is malformed or of a newer version; the partition must not be served then.
    pub fn replay(&mut self, _key: &Bytes, _value: Option<&Bytes>) -> Result<(), ReplayError> {
        Ok(())
    }

    /// The log has been read to its committed end: serves from now on. Members known from the log
    /// get a full session.
    pub fn loaded(&mut self, _now: Now, _out: &mut GroupEffects) {}

    /// Handles a request about a group; the answer is an effect, now or later.
    pub fn handle(
        &mut self,
        id: RequestId,
        _request: GroupRequest,
        _now: Now,
        out: &mut GroupEffects,
    ) {
        out.push(GroupEffect::Reply {
            id,
            answer: Err(Rejection::CoordinatorLoading),
        });
    }

    /// Reports what became of an append. Successes must come in the order of the tokens; `Err`
    /// must mean that the records are not in the log and never will be, or that this replica has
    /// stopped leading the partition.
    pub fn appended(
        &mut self,
        _token: AppendToken,
        _result: Result<(), Rejection>,
        _now: Now,
        _out: &mut GroupEffects,
    ) {
    }

    /// Serves timers that are due.
    pub fn tick(&mut self, _now: Now, _out: &mut GroupEffects) {}

    /// When [`Coordinator::tick`] is due next.
    pub fn next_wake(&self) -> Option<Monotonic> {
        None
    }

    /// The asker is gone: no answer will leave for this request.
    pub fn cancel(&mut self, _id: RequestId, _now: Now) {}

    /// This replica no longer leads the partition: everybody waiting is told so, and nothing is
    /// served any more.
    pub fn resign(&mut self, _out: &mut GroupEffects) {}

    /// A topic is gone: so are its offsets.
    pub fn forget_topic(&mut self, _topic: TopicId, _now: Now, _out: &mut GroupEffects) {}

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
