//! What a coordinator has promised and not yet delivered: requests without an answer, appends
//! without an outcome. Both are bounded.
//!
//! Invariants:
//! 1. A request is answered only while it is registered here, and answering removes it: nothing
//!    is answered twice, and nothing after its cancellation.
//! 2. What an append changes is kept with it and takes effect when it is reported committed.
//!    Successes come in the order of the tokens, which is the order of the log.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use super::expiry::ExpiryClock;
use super::record::StoredOffset;
use super::{AppendToken, GroupEffect, GroupEffects, GroupRecord, Settings};
use crate::identity::{Generation, PartitionId, TopicId};
use crate::rejection::Rejection;
use crate::request::{GroupResponse, Join, RequestId};
use crate::time::Now;

/// What is to happen when an append is committed.
#[derive(Debug)]
pub(super) enum Change {
    /// Offsets are stored; the answer was decided when they were checked.
    Offsets {
        id: RequestId,
        offsets: Vec<(PartitionId, StoredOffset)>,
        answer: Vec<(PartitionId, Result<(), Rejection>)>,
        /// The append also says that the group is empty since this generation.
        emptied: Option<Generation>,
    },
    /// The leader's assignment of a generation holds.
    Assignment {
        generation: Generation,
        assignments: BTreeMap<String, Bytes>,
    },
    /// The group is known to be empty since this generation.
    Emptied(Generation),
    /// Static ids pass on to members that came back.
    StaticReturns(Vec<(RequestId, Join)>),
    /// Generations up to this one may be given out.
    Generations(Generation),
    /// The group is gone, with its offsets.
    Deletion(Option<RequestId>),
    /// Offsets are gone.
    OffsetsRemoved {
        id: Option<RequestId>,
        partitions: Vec<PartitionId>,
        answer: Vec<(PartitionId, Result<(), Rejection>)>,
    },
    /// The topic's offsets are gone in every group.
    TopicForgotten(TopicId),
    /// A snapshot begins.
    SnapshotBegin,
    /// The next part of a snapshot is written.
    SnapshotPart,
    /// A snapshot is complete.
    SnapshotEnd,
}

/// An append without an outcome.
#[derive(Debug)]
pub(super) struct Append {
    pub group: Option<Arc<str>>,
    pub change: Change,
    /// The group's record that the append carries, if any.
    pub recorded: Option<Bytes>,
    pub bytes: usize,
}

/// Requests without an answer and appends without an outcome.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// With the group in which a join or sync waits.
    requests: BTreeMap<RequestId, Option<Arc<str>>>,
    appends: BTreeMap<AppendToken, Append>,
    append_bytes: usize,
    tokens: u64,
    committed: Option<AppendToken>,
}

impl Outstanding {
    /// Registers a request that will be answered.
    pub(super) fn register(&mut self, id: RequestId) {
        let before = self.requests.insert(id, None);
        assert!(before.is_none(), "a request id in use was given again");
    }

    /// Requests not yet answered.
    pub(super) fn requests_waiting(&self) -> usize {
        self.requests.len()
    }

    /// Notes in which group a request waits.
    pub(super) fn park(&mut self, id: RequestId, group: &Arc<str>) {
        if let Some(place) = self.requests.get_mut(&id) {
            *place = Some(group.clone());
        }
    }

    /// Whether the asker still waits for its answer.
    pub(super) fn is_waiting(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// Takes a request back without an answer; tells in which group it waited.
    pub(super) fn cancel(&mut self, id: RequestId) -> Option<Arc<str>> {
        self.requests.remove(&id).flatten()
    }

    /// Answers everybody with the same refusal.
    pub(super) fn reject_all(&mut self, rejection: Rejection, out: &mut GroupEffects) {
        for id in core::mem::take(&mut self.requests).into_keys() {
            out.push(GroupEffect::Reply {
                id,
                answer: Err(rejection),
            });
        }
        self.appends.clear();
        self.append_bytes = 0;
    }

    /// Takes out an append whose outcome is known.
    pub(super) fn settle(&mut self, token: AppendToken, committed: bool) -> Append {
        if committed {
            assert!(
                self.committed.is_none_or(|before| before < token),
                "appends were committed in another order than that of the log"
            );
            self.committed = Some(token);
        }
        let Some(append) = self.appends.remove(&token) else {
            panic_unknown_append(token)
        };
        self.append_bytes -= append.bytes;
        append
    }

    /// Whether a commit's outcome is open.
    pub(super) fn has_commits(&self) -> bool {
        self.appends
            .values()
            .any(|append| matches!(append.change, Change::Offsets { .. }))
    }
}

#[allow(clippy::panic)]
fn panic_unknown_append(token: AppendToken) -> ! {
    panic!("{token:?} was reported twice or never asked for")
}

/// One call's surroundings, handed down to what it changes.
pub(super) struct Turn<'a> {
    pub settings: &'a Settings,
    pub outstanding: &'a mut Outstanding,
    pub clock: &'a ExpiryClock,
    pub forgetting: &'a BTreeSet<TopicId>,
    /// Bytes that all other groups take.
    pub bytes_elsewhere: usize,
    pub now: Now,
    pub out: &'a mut GroupEffects,
}

impl Turn<'_> {
    /// Answers a request, unless it was cancelled.
    pub(super) fn reply(&mut self, id: RequestId, answer: Result<GroupResponse, Rejection>) {
        if self.outstanding.requests.remove(&id).is_some() {
            self.out.push(GroupEffect::Reply { id, answer });
        }
    }

    /// Refuses a request, unless it was cancelled.
    pub(super) fn reject(&mut self, id: RequestId, rejection: Rejection) {
        self.reply(id, Err(rejection));
    }

    /// Asks for an append.
    ///
    /// # Errors
    /// [`Rejection::CoordinatorUnavailable`] if too many are without an outcome (clients try
    /// again on it in every call), [`Rejection::RecordListTooLarge`] if it does not fit one batch.
    pub(super) fn append(
        &mut self,
        group: Option<&Arc<str>>,
        records: Vec<GroupRecord>,
        recorded: Option<Bytes>,
        change: Change,
    ) -> Result<AppendToken, Rejection> {
        let bytes: usize = records.iter().map(GroupRecord::bytes_len).sum();
        let parts = matches!(change, Change::SnapshotPart);
        let more = if parts {
            self.settings.snapshot_part_bytes
        } else {
            0
        };
        if bytes > self.settings.append_bytes_max.saturating_add(more) {
            return Err(Rejection::RecordListTooLarge);
        }
        let waiting = &mut *self.outstanding;
        if waiting.appends.len() >= self.settings.appends_waiting_max
            || waiting.append_bytes.saturating_add(bytes) > self.settings.append_bytes_waiting_max
        {
            return Err(Rejection::CoordinatorUnavailable);
        }
        let token = AppendToken(waiting.tokens);
        waiting.tokens += 1;
        waiting.append_bytes += bytes;
        let append = Append {
            group: group.cloned(),
            change,
            recorded,
            bytes,
        };
        waiting.appends.insert(token, append);
        self.out.push(GroupEffect::Append { token, records });
        Ok(token)
    }
}
