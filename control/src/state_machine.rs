//! The image, as the committed log makes it, and those who follow it.

use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corelog_engine::metadata::{Image, MetadataRecord};
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder};
use tokio::sync::{mpsc, watch};

use crate::database::Database;
use crate::error::ControlError;
use crate::log_storage::blocking;
use crate::types::{
    Entry, Group, LogId, Membership, Outcome, Proposal, Snapshot, SnapshotMeta, StorageError,
    StorageIoError,
};

/// How far the log is applied: the index of its last applied entry. One entry may carry several
/// records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppliedIndex(pub u64);

/// A record as it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedRecord {
    /// The entry it stood in.
    pub index: AppliedIndex,
    /// The record.
    pub record: MetadataRecord,
}

/// An image and every record applied after it.
#[derive(Debug)]
pub struct Following {
    /// What was known at the start.
    pub image: Image,
    /// How far that image had come.
    pub index: AppliedIndex,
    /// What came after, in order. Read it steadily: while it is full, nothing more is applied. It
    /// ends when the control plane stops.
    pub records: mpsc::Receiver<AppliedRecord>,
}

/// The image and its followers, seen by the state machine and by readers.
#[derive(Clone)]
pub(crate) struct Shared {
    state: Arc<Mutex<State>>,
    applied: watch::Sender<AppliedIndex>,
}

struct State {
    image: Image,
    last_applied: Option<LogId>,
    membership: Membership,
    followers: Vec<mpsc::Sender<AppliedRecord>>,
}

impl Shared {
    fn new(image: Image, last_applied: Option<LogId>, membership: Membership) -> Self {
        let index = AppliedIndex(last_applied.map_or(0, |log_id| log_id.index));
        Self {
            state: Arc::new(Mutex::new(State {
                image,
                last_applied,
                membership,
                followers: Vec::new(),
            })),
            applied: watch::Sender::new(index),
        }
    }

    /// A panic while the lock was held ends the process in production, so a poisoned lock guards a
    /// state that nobody relies on any more.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Image) -> T) -> T {
        read(&self.lock().image)
    }

    pub(crate) fn applied(&self) -> watch::Receiver<AppliedIndex> {
        self.applied.subscribe()
    }

    pub(crate) fn follow(&self, records_waiting_max: usize) -> Following {
        let (sender, records) = mpsc::channel(records_waiting_max);
        let mut state = self.lock();
        state.followers.push(sender);
        Following {
            image: state.image.clone(),
            index: AppliedIndex(state.last_applied.map_or(0, |log_id| log_id.index)),
            records,
        }
    }

    /// Ends the followers' records.
    pub(crate) fn dismiss_followers(&self) {
        self.lock().followers.clear();
    }

    /// Applies one entry: what it answers, and what to tell to whom. The followers are those of the
    /// moment of applying: one that comes later has the records in its image.
    fn apply(&self, entry: Entry) -> Result<(Outcome, Told), AnyError> {
        let index = AppliedIndex(entry.log_id.index);
        let mut state = self.lock();
        let mut outcome = Outcome::default();
        let mut records = Vec::new();
        match entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Membership(membership) => {
                state.membership = Membership::new(Some(entry.log_id), membership);
            }
            EntryPayload::Normal(proposal) => {
                let decoded = decode(&proposal)?;
                for (record, number) in decoded.into_iter().zip(0..) {
                    match state.image.apply(&record) {
                        Ok(_) => records.push(AppliedRecord { index, record }),
                        Err(error) => outcome.refused.push((number, error.to_string())),
                    }
                }
            }
        }
        state.last_applied = Some(entry.log_id);
        let followers = if records.is_empty() {
            Vec::new()
        } else {
            state.followers.retain(|follower| !follower.is_closed());
            state.followers.clone()
        };
        Ok((outcome, Told { records, followers }))
    }
}

/// Records and those who hear of them.
struct Told {
    records: Vec<AppliedRecord>,
    followers: Vec<mpsc::Sender<AppliedRecord>>,
}

impl Told {
    /// Waits for room: a follower is never left behind, and one that is gone is passed over.
    async fn tell(self) {
        for follower in self.followers {
            for record in &self.records {
                if follower.send(record.clone()).await.is_err() {
                    break;
                }
            }
        }
    }
}

/// All or none: an entry that this build cannot read must stop it, since it would go on with
/// another image than the other members.
fn decode(proposal: &Proposal) -> Result<Vec<MetadataRecord>, AnyError> {
    let mut rest = proposal.records.as_slice();
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (record, behind) =
            MetadataRecord::decode_first(rest).map_err(|error| AnyError::new(&error))?;
        records.push(record);
        rest = behind;
    }
    Ok(records)
}

/// What consensus asks of the state it replicates.
pub(crate) struct StateMachine {
    database: Database,
    shared: Shared,
}

impl StateMachine {
    /// Begins with the newest snapshot. Blocks.
    pub(crate) fn load(database: Database) -> Result<Self, ControlError> {
        let snapshot = database.snapshot().map_err(ControlError::Storage)?;
        let shared = match snapshot {
            None => Shared::new(Image::new(), None, Membership::default()),
            Some((meta, bytes)) => Shared::new(
                Image::decode_snapshot(&bytes)?,
                meta.last_log_id,
                meta.last_membership,
            ),
        };
        Ok(Self { database, shared })
    }

    pub(crate) fn shared(&self) -> Shared {
        self.shared.clone()
    }
}

impl RaftStateMachine<Group> for StateMachine {
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let state = self.shared.lock();
        Ok((state.last_applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcome>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut outcomes = Vec::new();
        for entry in entries {
            let log_id = entry.log_id;
            let (outcome, told) = self
                .shared
                .apply(entry)
                .map_err(|error| StorageIoError::apply(log_id, error))?;
            outcomes.push(outcome);
            self.shared.applied.send_replace(AppliedIndex(log_id.index));
            told.tell().await;
        }
        Ok(outcomes)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let state = self.shared.lock();
        SnapshotBuilder {
            database: self.database.clone(),
            image: state.image.clone(),
            last_applied: state.last_applied,
            membership: state.membership.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    /// A follower of the image cannot be told of a jump, so all of them are dismissed and begin
    /// again.
    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let bytes = snapshot.into_inner();
        let image = Image::decode_snapshot(&bytes).map_err(|error| {
            StorageIoError::read_snapshot(Some(meta.signature()), AnyError::new(&error))
        })?;
        let stored = meta.clone();
        let saved = blocking(&self.database, move |database| {
            database.save_snapshot(&stored, &bytes)
        });
        saved
            .await
            .map_err(|error| StorageIoError::write_snapshot(Some(meta.signature()), error))?;
        let mut state = self.shared.lock();
        state.image = image;
        state.last_applied = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.followers.clear();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        let stored = blocking(&self.database, Database::snapshot).await;
        let stored = stored.map_err(|error| StorageIoError::read_snapshot(None, error))?;
        Ok(stored.map(|(meta, bytes)| Snapshot {
            meta,
            snapshot: Box::new(Cursor::new(bytes)),
        }))
    }
}

/// The image as it was when the snapshot was asked for.
pub(crate) struct SnapshotBuilder {
    database: Database,
    image: Image,
    last_applied: Option<LogId>,
    membership: Membership,
}

impl RaftSnapshotBuilder<Group> for SnapshotBuilder {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let snapshot_id = match self.last_applied {
            Some(log_id) => format!("{}-{}", log_id.leader_id, log_id.index),
            None => "0".to_string(),
        };
        let meta = SnapshotMeta {
            last_log_id: self.last_applied,
            last_membership: self.membership.clone(),
            snapshot_id,
        };
        let bytes = self.image.encode_snapshot();
        let (stored, copy) = (meta.clone(), bytes.clone());
        let saved = blocking(&self.database, move |database| {
            database.save_snapshot(&stored, &copy)
        });
        saved
            .await
            .map_err(|error| StorageIoError::write_snapshot(Some(meta.signature()), error))?;
        Ok(Snapshot {
            meta,
            snapshot: Box::new(Cursor::new(bytes)),
        })
    }
}
