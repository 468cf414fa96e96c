//! Opening the control plane, and what others do with it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelog_engine::identity::BrokerId;
use corelog_engine::metadata::{Image, MetadataRecord, Refusal};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::database::{Database, Release};
use crate::error::ControlError;
use crate::log_storage::LogStorage;
use crate::network::NoPeers;
use crate::proposer::{Proposer, Wish};
use crate::state_machine::{AppliedIndex, Following, Shared, StateMachine};
use crate::types::Group;

/// Name of the redb file within the directory.
pub const METADATA_FILE_NAME: &str = "metadata.redb";

/// A group of one elects itself at once; this long it may take to say that something is wrong.
const ELECTION_WAIT: Duration = Duration::from_secs(30);

/// How the control plane runs.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// Where the metadata is kept; made if it is not there.
    pub directory: PathBuf,
    /// This broker.
    pub broker: BrokerId,
    /// A snapshot is taken, and the log before it removed, after this many entries.
    pub snapshot_entries: u64,
    /// Most proposals that may wait.
    pub proposals_waiting_max: usize,
    /// Most applied records that may wait for one follower.
    pub records_waiting_max: usize,
}

impl ControlOptions {
    /// The usual ones.
    pub fn new(directory: impl Into<PathBuf>, broker: BrokerId) -> Self {
        Self {
            directory: directory.into(),
            broker,
            snapshot_entries: 5_000,
            proposals_waiting_max: 16_384,
            records_waiting_max: 16_384,
        }
    }
}

/// The control plane of one broker; clones are handles to the same. Dropping all of them without
/// [`Control::shutdown`] loses nothing.
#[derive(Clone)]
pub struct Control {
    raft: Raft<Group>,
    shared: Shared,
    wishes: mpsc::Sender<Wish>,
    overloads: Arc<AtomicU64>,
    records_waiting_max: usize,
    proposer: Arc<JoinHandle<()>>,
    release: Release,
}

impl Control {
    /// Opens the metadata of a broker, makes it a group of one if it is new, and comes back when
    /// everything that was ever answered is in the image.
    ///
    /// # Errors
    /// [`ControlError::InUse`], [`ControlError::OtherBroker`], [`ControlError::Decode`] (also for what
    /// a newer build has written), [`ControlError::Storage`].
    pub async fn open(options: ControlOptions) -> Result<Self, ControlError> {
        let path = options.directory.join(METADATA_FILE_NAME);
        let opened = tokio::task::spawn_blocking(move || {
            let database = Database::open(&path)?;
            let state_machine = StateMachine::load(database.clone())?;
            Ok::<_, ControlError>((state_machine, LogStorage(database)))
        });
        let (state_machine, log) = opened.await.map_err(stopped)??;
        let release = log.0.release();
        let shared = state_machine.shared();
        let node = u64::from(options.broker.0);
        let config = Arc::new(config(&options)?);
        let raft = Raft::new(node, config, NoPeers, log, state_machine)
            .await
            .map_err(stopped)?;
        lead(&raft, node).await?;
        let (wishes, waiting) = mpsc::channel(options.proposals_waiting_max);
        let proposer = Proposer::new(raft.clone(), shared.clone(), waiting);
        Ok(Self {
            raft,
            shared,
            wishes,
            overloads: Arc::default(),
            records_waiting_max: options.records_waiting_max,
            proposer: Arc::new(tokio::spawn(proposer.run())),
            release,
        })
    }

    /// Reads the image as it is applied now.
    pub fn read<T>(&self, read: impl FnOnce(&Image) -> T) -> T {
        self.shared.read(read)
    }

    /// Says how far the log is applied, and when it goes on.
    pub fn applied(&self) -> watch::Receiver<AppliedIndex> {
        self.shared.applied()
    }

    /// A copy of the image, and every record after it.
    pub fn follow(&self) -> Following {
        self.shared.follow(self.records_waiting_max)
    }

    /// How many entries the log keeps; a snapshot removes those before it.
    pub fn log_entries_kept(&self) -> u64 {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let end = metrics.last_log_index.map_or(0, |index| index + 1);
        let start = metrics.purged.map_or(0, |log_id| log_id.index + 1);
        end.saturating_sub(start)
    }

    /// How many proposals have been turned away with [`ControlError::Overloaded`].
    pub fn overloads(&self) -> u64 {
        self.overloads.load(Ordering::Relaxed)
    }

    /// Stores records; comes back when they are durable and applied. They stand in one entry, in
    /// order; the first that does not fit the image ends them, those before it stand.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn propose(
        &self,
        records: Vec<MetadataRecord>,
    ) -> Result<AppliedIndex, ControlError> {
        let decided = self.decide(move |_| Ok((records, ()))).await;
        decided.map(|(index, ())| index)
    }

    /// Runs a decision on the image that has every record proposed before, stores its records, and
    /// comes back with what else it gave when they are durable and applied. Decisions run one after
    /// another and must not block.
    ///
    /// # Errors
    /// [`ControlError::Refused`] with the decision's refusal; else see [`ControlError`].
    pub async fn decide<T, F>(&self, decision: F) -> Result<(AppliedIndex, T), ControlError>
    where
        T: Send + 'static,
        F: FnOnce(&Image) -> Result<(Vec<MetadataRecord>, T), Refusal> + Send + 'static,
    {
        let (give, given) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let wish = Wish {
            decision: Box::new(move |image| {
                let (records, value) = decision(image)?;
                // Whoever asked may have gone; the decision stands all the same.
                let _ = give.send(value);
                Ok(records)
            }),
            answer,
        };
        self.wishes.try_send(wish).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                self.overloads.fetch_add(1, Ordering::Relaxed);
                ControlError::Overloaded
            }
            mpsc::error::TrySendError::Closed(_) => stopped("it was shut down"),
        })?;
        let index = answered.await.map_err(stopped)??;
        Ok((index, given.await.map_err(stopped)?))
    }

    /// Ends it in order; afterwards the metadata may be opened again. Proposals that wait get
    /// [`ControlError::Stopped`].
    ///
    /// # Errors
    /// [`ControlError::Stopped`] if it had ended by a failure.
    pub async fn shutdown(self) -> Result<(), ControlError> {
        self.proposer.abort();
        self.shared.dismiss_followers();
        self.raft.shutdown().await.map_err(stopped)?;
        let release = self.release.clone();
        drop(self);
        release.wait().await
    }
}

fn stopped(error: impl std::fmt::Display) -> ControlError {
    ControlError::Stopped(error.to_string())
}

/// Heartbeats go to nobody in a group of one; a slow tick keeps an idle broker idle.
fn config(options: &ControlOptions) -> Result<Config, ControlError> {
    let config = Config {
        cluster_name: "corelog".to_string(),
        heartbeat_interval: 1_000,
        election_timeout_min: 3_000,
        election_timeout_max: 6_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(options.snapshot_entries),
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    };
    config.validate().map_err(stopped)
}

/// Becomes the leader and waits until everything committed before is applied.
async fn lead(raft: &Raft<Group>, node: u64) -> Result<(), ControlError> {
    if raft.is_initialized().await.map_err(stopped)? {
        let voters = raft.with_raft_state(|state| {
            let membership = state.membership_state.effective();
            membership.voter_ids().collect::<Vec<u64>>()
        });
        let members = voters.await.map_err(stopped)?;
        if !members.contains(&node) {
            return Err(ControlError::OtherBroker {
                broker: node,
                members,
            });
        }
        raft.trigger().elect().await.map_err(stopped)?;
    } else {
        let members = BTreeMap::from([(node, BasicNode::default())]);
        raft.initialize(members).await.map_err(stopped)?;
    }
    let wait = raft.wait(Some(ELECTION_WAIT));
    wait.current_leader(node, "a group of one leads itself")
        .await
        .map_err(stopped)?;
    raft.ensure_linearizable().await.map_err(stopped)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use openraft::{CommittedLeaderId, EntryPayload};

    use super::*;
    use crate::entry_bytes;
    use crate::types::{Entry, LogId, Proposal};

    /// Consensus reads everything that it has to apply at once.
    #[tokio::test]
    async fn a_start_applies_a_log_of_many_thousand_entries() {
        let name = format!("corelog-control-many-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let options = ControlOptions::new(&directory, BrokerId(1));
        let control = Control::open(options.clone()).await.unwrap();
        let first = control.applied().borrow().0 + 1;
        control.shutdown().await.unwrap();
        let database = Database::open(&directory.join(METADATA_FILE_NAME)).unwrap();
        let leader = database.vote().unwrap().unwrap().leader_id;
        let encode = |index| {
            let entry = Entry {
                log_id: LogId::new(CommittedLeaderId::new(leader.term, leader.node_id), index),
                payload: EntryPayload::Normal(Proposal::default()),
            };
            (index, entry_bytes::encode(&entry).unwrap())
        };
        let entries: Vec<_> = (first..first + 20_000).map(encode).collect();
        database.append(&entries).unwrap();
        let release = database.release();
        drop(database);
        release.wait().await.unwrap();
        let control = Control::open(options).await.unwrap();
        assert!(control.applied().borrow().0 >= first + 20_000 - 1);
        let _ = std::fs::remove_dir_all(&directory);
    }
}
