//! The redb file: log entries, the vote, how far the log is purged, and the newest snapshot.
//!
//! Every write is one transaction that is on stable storage when it returns; only how far the log is
//! known to be committed may be forgotten. Calls block and belong on the blocking threads of the
//! runtime. After a failed write redb refuses every further one, so a
//! failed sync is final here too.

use std::fs::{self, File};
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redb::{
    Builder, Database as Redb, DatabaseError, Durability, ReadableDatabase, ReadableTable,
    TableDefinition,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::entry_bytes;
use crate::error::ControlError;
use crate::types::{Entry, LogId, SnapshotMeta, Vote};

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");

const FORMAT: &str = "format";
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const PURGED: &str = "purged";
const SNAPSHOT_META: &str = "snapshot_meta";
const SNAPSHOT: &str = "snapshot";

const FORMAT_VERSION: u32 = 1;

/// Pages that redb may keep in memory, in bytes; the image itself is kept by its readers.
const CACHE_BYTES: usize = 8 << 20;

/// Longest wait for the last user of a file that is to be closed.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// What failed, in words: it ends in an error of the consensus library, which keeps text only.
pub(crate) type Failure = String;

/// The open file; clones share it.
#[derive(Clone)]
pub(crate) struct Database(Arc<OpenFile>);

/// The open file, and then the sign that it is closed: fields go in this order.
struct OpenFile {
    redb: Redb,
    closed: watch::Sender<()>,
}

/// Knows when the last user of the file has let go of it and it is closed.
#[derive(Clone)]
pub(crate) struct Release(watch::Receiver<()>);

impl Release {
    /// # Errors
    /// [`ControlError::Stopped`] if somebody holds on to it.
    pub(crate) async fn wait(mut self) -> Result<(), ControlError> {
        // Nothing is ever sent, so what ends the wait is the end of the sender.
        let closed = tokio::time::timeout(CLOSE_WAIT, self.0.changed()).await;
        closed
            .map(|_| ())
            .map_err(|_| ControlError::Stopped("the metadata file is still in use".to_string()))
    }
}

fn failure(error: impl std::fmt::Display) -> Failure {
    error.to_string()
}

impl Database {
    /// Opens the file, or makes it durably. Repairs what a crash has left.
    pub(crate) fn open(path: &Path) -> Result<Self, ControlError> {
        let storage = |error: &dyn std::fmt::Display| {
            ControlError::Storage(format!("{}: {error}", path.display()))
        };
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(|error| storage(&error))?;
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let redb = builder.create(path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => ControlError::InUse(path.to_path_buf()),
            other => storage(&other),
        })?;
        let database = Self(Arc::new(OpenFile {
            redb,
            closed: watch::Sender::new(()),
        }));
        database.check_format().map_err(|error| storage(&error))?;
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| storage(&error))?;
        Ok(database)
    }

    /// Tells when the file is closed.
    pub(crate) fn release(&self) -> Release {
        Release(self.0.closed.subscribe())
    }

    /// The tables exist and have a format that this build knows.
    fn check_format(&self) -> Result<(), Failure> {
        let version = self.write(|log_and_state| {
            let state = &mut log_and_state.state;
            let stored = state.get(FORMAT).map_err(failure)?;
            let stored = stored.map(|bytes| bytes.value().to_vec());
            if let Some(bytes) = stored {
                return Ok(bytes);
            }
            let version = FORMAT_VERSION.to_le_bytes();
            state.insert(FORMAT, version.as_slice()).map_err(failure)?;
            Ok(version.to_vec())
        })?;
        match <[u8; 4]>::try_from(version.as_slice()).map(u32::from_le_bytes) {
            Ok(FORMAT_VERSION) => Ok(()),
            Ok(version) if version > FORMAT_VERSION => Err(format!(
                "the metadata store has format version {version}, this build reads up to \
                 {FORMAT_VERSION}: start a newer corelog on it"
            )),
            _ => Err("the metadata store has no readable format version".into()),
        }
    }

    /// One durable transaction.
    fn write<T>(
        &self,
        change: impl FnOnce(&mut Tables<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.write_with(Durability::Immediate, change)
    }

    fn write_with<T>(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut Tables<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut transaction = self.0.redb.begin_write().map_err(failure)?;
        let durable = transaction.set_durability(durability);
        durable.map_err(failure)?;
        let result = {
            let mut tables = Tables {
                log: transaction.open_table(LOG).map_err(failure)?,
                state: transaction.open_table(STATE).map_err(failure)?,
            };
            change(&mut tables)?
        };
        transaction.commit().map_err(failure)?;
        Ok(result)
    }

    /// Stores entries behind those that are there.
    pub(crate) fn append(&self, entries: &[(u64, Vec<u8>)]) -> Result<(), Failure> {
        self.write(|tables| {
            for (index, bytes) in entries {
                let inserted = tables.log.insert(*index, bytes.as_slice());
                inserted.map_err(failure)?;
            }
            Ok(())
        })
    }

    /// Removes the entries from `index` on.
    pub(crate) fn truncate(&self, index: u64) -> Result<(), Failure> {
        self.write(|tables| {
            let kept = tables.log.retain_in(index.., |_, _| false);
            kept.map_err(failure)
        })
    }

    /// Removes the entries up to and with `upto`, and remembers it.
    pub(crate) fn purge(&self, upto: &LogId) -> Result<(), Failure> {
        let bytes = to_bytes(upto)?;
        self.write(|tables| {
            let inserted = tables.state.insert(PURGED, bytes.as_slice());
            inserted.map_err(failure)?;
            let kept = tables.log.retain_in(..=upto.index, |_, _| false);
            kept.map_err(failure)
        })
    }

    /// The last purged and the last stored entry.
    pub(crate) fn log_ends(&self) -> Result<(Option<LogId>, Option<LogId>), Failure> {
        let purged = self.state(PURGED)?;
        let purged = purged.as_deref().map(from_bytes::<LogId>).transpose()?;
        let transaction = self.0.redb.begin_read().map_err(failure)?;
        let log = transaction.open_table(LOG).map_err(failure)?;
        let last = match log.last().map_err(failure)? {
            Some((index, bytes)) => Some(entry_bytes::decode(index.value(), bytes.value())?.log_id),
            None => purged,
        };
        Ok((purged, last))
    }

    /// Entries in this range. Consensus wants all of them at once; a snapshot is taken often enough
    /// that they are few.
    pub(crate) fn entries(&self, range: impl RangeBounds<u64>) -> Result<Vec<Entry>, Failure> {
        let transaction = self.0.redb.begin_read().map_err(failure)?;
        let log = transaction.open_table(LOG).map_err(failure)?;
        let bounds: (Bound<u64>, Bound<u64>) =
            (range.start_bound().cloned(), range.end_bound().cloned());
        let stored = log.range::<u64>(bounds).map_err(failure)?;
        let mut entries = Vec::new();
        for entry in stored {
            let (index, bytes) = entry.map_err(failure)?;
            entries.push(entry_bytes::decode(index.value(), bytes.value())?);
        }
        Ok(entries)
    }

    pub(crate) fn save_vote(&self, vote: &Vote) -> Result<(), Failure> {
        let bytes = to_bytes(vote)?;
        self.write(|tables| {
            let inserted = tables.state.insert(VOTE, bytes.as_slice());
            inserted.map_err(failure).map(|_| ())
        })
    }

    pub(crate) fn vote(&self) -> Result<Option<Vote>, Failure> {
        let vote = self.state(VOTE)?;
        vote.as_deref().map(from_bytes).transpose()
    }

    /// Notes how far the log is known to be committed. It becomes durable with the next entry: a
    /// start that finds an older one applies the rest when it leads.
    pub(crate) fn save_committed(&self, committed: Option<LogId>) -> Result<(), Failure> {
        let bytes = to_bytes(&committed)?;
        self.write_with(Durability::None, |tables| {
            let inserted = tables.state.insert(COMMITTED, bytes.as_slice());
            inserted.map_err(failure).map(|_| ())
        })
    }

    pub(crate) fn committed(&self) -> Result<Option<LogId>, Failure> {
        let committed = self.state(COMMITTED)?;
        let committed = committed.as_deref().map(from_bytes::<Option<LogId>>);
        Ok(committed.transpose()?.flatten())
    }

    /// Stores a snapshot in place of the one before.
    pub(crate) fn save_snapshot(&self, meta: &SnapshotMeta, image: &[u8]) -> Result<(), Failure> {
        let meta = to_bytes(meta)?;
        self.write(|tables| {
            let inserted = tables.state.insert(SNAPSHOT_META, meta.as_slice());
            inserted.map_err(failure)?;
            let inserted = tables.state.insert(SNAPSHOT, image);
            inserted.map_err(failure).map(|_| ())
        })
    }

    /// The newest snapshot.
    pub(crate) fn snapshot(&self) -> Result<Option<(SnapshotMeta, Vec<u8>)>, Failure> {
        match (self.state(SNAPSHOT_META)?, self.state(SNAPSHOT)?) {
            (Some(meta), Some(image)) => Ok(Some((from_bytes(&meta)?, image))),
            (None, None) => Ok(None),
            _ => Err("one half of the metadata snapshot is missing".into()),
        }
    }

    fn state(&self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        let transaction = self.0.redb.begin_read().map_err(failure)?;
        let state = transaction.open_table(STATE).map_err(failure)?;
        let stored = state.get(key).map_err(failure)?;
        Ok(stored.map(|bytes| bytes.value().to_vec()))
    }
}

struct Tables<'transaction> {
    log: redb::Table<'transaction, u64, &'static [u8]>,
    state: redb::Table<'transaction, &'static str, &'static [u8]>,
}

fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(failure)
}

fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(failure)
}
