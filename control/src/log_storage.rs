//! What consensus asks of its log, on redb.

use std::fmt::Debug;
use std::ops::RangeBounds;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogState, OptionalSend, RaftLogReader};

use crate::database::{Database, Failure};
use crate::entry_bytes;
use crate::types::{Entry, Group, LogId, StorageError, StorageIoError, Vote};

/// The log and the vote. Consensus calls it one call after another, so writes do not overtake.
#[derive(Clone)]
pub(crate) struct LogStorage(pub(crate) Database);

/// Runs `work` where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    database: &Database,
    work: impl FnOnce(&Database) -> Result<T, Failure> + Send + 'static,
) -> Result<T, AnyError> {
    let database = database.clone();
    let done = tokio::task::spawn_blocking(move || work(&database)).await;
    match done {
        Ok(result) => result.map_err(AnyError::error),
        Err(error) => Err(AnyError::error(error)),
    }
}

impl RaftLogReader<Group> for LogStorage {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let read = blocking(&self.0, move |database| database.entries(range)).await;
        read.map_err(|error| StorageIoError::read_logs(error).into())
    }
}

impl RaftLogStorage<Group> for LogStorage {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Group>, StorageError> {
        let ends = blocking(&self.0, Database::log_ends).await;
        let (last_purged_log_id, last_log_id) = ends.map_err(StorageIoError::read_logs)?;
        Ok(LogState {
            last_purged_log_id,
            last_log_id,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        let saved = blocking(&self.0, move |database| database.save_vote(&vote)).await;
        saved.map_err(|error| StorageIoError::write_vote(error).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let vote = blocking(&self.0, Database::vote).await;
        vote.map_err(|error| StorageIoError::read_vote(error).into())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        let saved = blocking(&self.0, move |database| database.save_committed(committed)).await;
        saved.map_err(|error| StorageIoError::write(error).into())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        let committed = blocking(&self.0, Database::committed).await;
        committed.map_err(|error| StorageIoError::read(error).into())
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Group>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encode = |entry: Entry| Ok((entry.log_id.index, entry_bytes::encode(&entry)?));
        let encoded: Result<Vec<_>, Failure> = entries.into_iter().map(encode).collect();
        let encoded =
            encoded.map_err(|error| StorageIoError::write_logs(AnyError::error(error)))?;
        let stored = blocking(&self.0, move |database| database.append(&encoded)).await;
        match stored {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                callback.log_io_completed(Err(std::io::Error::other(error.to_string())));
                Err(StorageIoError::write_logs(error).into())
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let cut = blocking(&self.0, move |database| database.truncate(log_id.index)).await;
        cut.map_err(|error| StorageIoError::write_logs(error).into())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let purged = blocking(&self.0, move |database| database.purge(&log_id)).await;
        purged.map_err(|error| StorageIoError::write_logs(error).into())
    }
}
