//! One task that turns waiting wishes into log entries: it runs their decisions one after another,
//! each on an image that has all records before it, and stores what came together as one entry,
//! with one sync.
//!
//! A refusal waits for the entry too: it may rest on a record that is not stored yet.

use corelog_engine::metadata::{Image, MetadataRecord, Refusal};
use openraft::Raft;
use openraft::error::{ClientWriteError, RaftError};
use tokio::sync::{mpsc, oneshot};

use crate::error::ControlError;
use crate::state_machine::{AppliedIndex, Shared};
use crate::types::{Group, Proposal};

/// Largest body of one log entry, in bytes; a single decision may fill it alone.
pub(crate) const ENTRY_BYTES_MAX: usize = 16 << 20;

/// An entry takes no further decision above this size, in bytes.
const ENTRY_BYTES_ENOUGH: usize = 1 << 20;

/// Most decisions in one entry.
const DECISIONS_PER_ENTRY_MAX: usize = 4_096;

/// A decision, run where its place among the others is settled.
pub(crate) type Decision = Box<dyn FnOnce(&Image) -> Result<Vec<MetadataRecord>, Refusal> + Send>;

/// A decision and the one who waits for it.
pub(crate) struct Wish {
    pub(crate) decision: Decision,
    pub(crate) answer: oneshot::Sender<Result<AppliedIndex, ControlError>>,
}

/// The task's state.
pub(crate) struct Proposer {
    raft: Raft<Group>,
    shared: Shared,
    wishes: mpsc::Receiver<Wish>,
    /// The applied image, plus what the entry in the making will change.
    ahead: Image,
}

/// An entry in the making.
#[derive(Default)]
struct Batch {
    records: Vec<u8>,
    record_count: u32,
    waiting: Vec<Waiting>,
}

struct Waiting {
    answer: oneshot::Sender<Result<AppliedIndex, ControlError>>,
    /// What is known already; `Ok` if it depends on the entry.
    verdict: Result<(), ControlError>,
    /// Its records by their numbers within the entry.
    records: std::ops::Range<u32>,
}

impl Proposer {
    pub(crate) fn new(raft: Raft<Group>, shared: Shared, wishes: mpsc::Receiver<Wish>) -> Self {
        let ahead = shared.read(Image::clone);
        Self {
            raft,
            shared,
            wishes,
            ahead,
        }
    }

    /// Until nobody can wish any more.
    pub(crate) async fn run(mut self) {
        while let Some(first) = self.wishes.recv().await {
            let mut batch = Batch::default();
            batch.take(first, &mut self.ahead);
            while batch.has_room() {
                match self.wishes.try_recv() {
                    Ok(wish) => batch.take(wish, &mut self.ahead),
                    Err(_) => break,
                }
            }
            self.store(batch).await;
        }
    }

    async fn store(&mut self, batch: Batch) {
        if batch.record_count == 0 {
            let index = *self.shared.applied().borrow();
            batch.answer(index, &[]);
            return;
        }
        let proposal = Proposal {
            records: batch.records,
        };
        let waiting = Batch {
            records: Vec::new(),
            ..batch
        };
        match self.raft.client_write(proposal).await {
            Ok(written) => {
                let refused = written.data.refused;
                if !refused.is_empty() {
                    self.ahead = self.shared.read(Image::clone);
                }
                waiting.answer(AppliedIndex(written.log_id.index), &refused);
            }
            Err(error) => {
                tracing::error!(%error, "metadata records were not stored");
                self.ahead = self.shared.read(Image::clone);
                waiting.fail(&error);
            }
        }
    }
}

impl Batch {
    fn has_room(&self) -> bool {
        self.records.len() < ENTRY_BYTES_ENOUGH && self.waiting.len() < DECISIONS_PER_ENTRY_MAX
    }

    /// Runs a decision and takes its records. The first that does not fit the image ends it; those
    /// before it stand.
    fn take(&mut self, wish: Wish, ahead: &mut Image) {
        let first = self.record_count;
        let verdict = match (wish.decision)(ahead) {
            Err(refusal) => Err(ControlError::Refused(refusal)),
            Ok(records) => self.take_records(&records, ahead),
        };
        self.waiting.push(Waiting {
            answer: wish.answer,
            verdict,
            records: first..self.record_count,
        });
    }

    fn take_records(
        &mut self,
        records: &[MetadataRecord],
        ahead: &mut Image,
    ) -> Result<(), ControlError> {
        let encoded: Vec<Vec<u8>> = records.iter().map(MetadataRecord::encode).collect();
        let bytes = encoded.iter().map(Vec::len).sum();
        if bytes > ENTRY_BYTES_MAX {
            return Err(ControlError::TooLarge(bytes));
        }
        for (record, encoded) in records.iter().zip(encoded) {
            ahead.apply(record).map_err(ControlError::NotApplied)?;
            self.records.extend_from_slice(&encoded);
            self.record_count += 1;
        }
        Ok(())
    }

    fn answer(self, index: AppliedIndex, refused: &[(u32, String)]) {
        for waiting in self.waiting {
            let own = refused
                .iter()
                .find(|(number, _)| waiting.records.contains(number));
            let answer = match (waiting.verdict, own) {
                (Err(error), _) => Err(error),
                (Ok(()), Some((_, why))) => Err(ControlError::Overtaken(why.clone())),
                (Ok(()), None) => Ok(index),
            };
            // Whoever asked may have gone; the record stands all the same.
            let _ = waiting.answer.send(answer);
        }
    }

    fn fail(self, error: &RaftError<u64, ClientWriteError<u64, openraft::BasicNode>>) {
        for waiting in self.waiting {
            let _ = waiting
                .answer
                .send(Err(ControlError::Stopped(error.to_string())));
        }
    }
}
