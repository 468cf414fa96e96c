//! The support thread: what is not the message path. It runs the control plane on tokio, hands its
//! records to the cores in order, grants producer ids, and watches the room on the disk.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use corelog_control::{AppliedIndex, AppliedRecord, Control, ControlError, ControlOptions};
use corelog_engine::disk::DiskLevel;
use corelog_engine::identity::{LogId, PartitionId, Producer, ProducerEpoch, ProducerId, TopicId};
use corelog_engine::limits::PRODUCER_ID_BLOCK;
use corelog_engine::metadata::decisions::{
    self, BrokerStart, TopicDefaults, TopicPlan, TopicRequest,
};
use corelog_engine::metadata::{Image, Refusal};
use corelog_engine::rejection::Rejection;
use tokio::sync::{Mutex, mpsc, watch};

use crate::data_directory::{self, Leftovers};
use crate::mesh::{CoreSenders, ToCore, ToSupport};
use crate::randomness::random_id;
use crate::uring::channel::{Receiver, reply};

/// How often the room on the disk is looked at.
const SPACE_CHECK: Duration = Duration::from_millis(500);

/// A proposal turned away for overload is tried again after this long.
const RETRY: Duration = Duration::from_millis(20);

/// Whether the cores have let go of a deleted topic is asked after this long first, and at most.
const DELETION_CHECK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// What the support thread is started with.
#[derive(Clone, Debug)]
pub struct SupportOptions {
    /// The data directory.
    pub data_dir: PathBuf,
    /// This start of the broker.
    pub start: BrokerStart,
    /// What topics get that do not say otherwise.
    pub defaults: TopicDefaults,
    /// Below this many free bytes no topics are made.
    pub disk_low_bytes: u64,
    /// Below this many free bytes nothing is published.
    pub disk_full_bytes: u64,
}

/// The running thread.
#[derive(Debug)]
pub struct SupportThread {
    thread: thread::JoinHandle<Result<(), ControlError>>,
}

impl SupportThread {
    /// Waits for its end.
    ///
    /// # Errors
    /// If the control plane did not end in order.
    pub fn join(self) -> io::Result<()> {
        match self.thread.join() {
            Ok(ended) => ended.map_err(io::Error::other),
            Err(_) => Err(io::Error::other("the support thread panicked")),
        }
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Starts the thread, opens the metadata, makes this start of the broker known, and returns the
/// image that the cores begin with.
///
/// # Errors
/// If the metadata cannot be opened, or refuses this broker.
pub fn start(
    options: SupportOptions,
    wishes: Receiver<ToSupport>,
    cores: CoreSenders,
) -> io::Result<(SupportThread, Image)> {
    let (give, given) = std::sync::mpsc::sync_channel(1);
    let thread = thread::Builder::new()
        .name(String::from("support"))
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = runtime.map_err(|error| ControlError::Storage(error.to_string()))?;
            runtime.block_on(async move {
                match open(&options).await {
                    Ok((control, following)) => {
                        let leftovers = leftovers(&options, &following.image);
                        let _ = give.send(Ok(following.image));
                        let records = following.records;
                        run(control, records, options, leftovers, wishes, cores).await
                    }
                    Err(error) => {
                        let _ = give.send(Err(io::Error::other(error.to_string())));
                        Err(error)
                    }
                }
            })
        })?;
    let image = given
        .recv()
        .map_err(|_| io::Error::other("the support thread ended before it started"))??;
    Ok((SupportThread { thread }, image))
}

async fn open(
    options: &SupportOptions,
) -> Result<(Control, corelog_control::Following), ControlError> {
    let directory = options.data_dir.join("control");
    crate::data_directory::create_all(&directory)
        .map_err(|error| ControlError::Storage(error.to_string()))?;
    let control = Control::open(ControlOptions::new(directory, options.start.broker)).await?;
    let start = options.start.clone();
    control
        .decide(move |image| Ok((decisions::start_broker(image, &start)?, ())))
        .await?;
    let defaults = options.defaults.clone();
    control
        .decide(move |image| {
            Ok((
                decisions::ensure_offsets_topic(image, &defaults, &mut random_id)?,
                (),
            ))
        })
        .await?;
    let following = control.follow();
    Ok((control, following))
}

/// What the process before this one left behind. The image has everything that was decided before.
fn leftovers(options: &SupportOptions, image: &Image) -> Leftovers {
    let is_known = |topic| image.topic(topic).is_some();
    let found = match data_directory::leftovers(&options.data_dir, is_known) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "deletions that a crash cut off are left to a later start");
            return Leftovers::default();
        }
    };
    if let Some(first) = found.unexplained.first() {
        tracing::warn!(
            folders = found.unexplained.len(),
            first,
            "there are folders in topics/ that the metadata does not know; they are left alone"
        );
    }
    found
}

/// What the thread's tasks share.
struct Support {
    control: Control,
    options: SupportOptions,
    cores: CoreSenders,
    distributed: watch::Receiver<AppliedIndex>,
    level: watch::Receiver<DiskLevel>,
    producer_ids: Mutex<VecDeque<(u64, u64)>>,
    /// One at a time from its mark to its record, so that no other one takes the mark away.
    deleting: Mutex<()>,
}

async fn run(
    control: Control,
    records: mpsc::Receiver<AppliedRecord>,
    options: SupportOptions,
    leftovers: Leftovers,
    wishes: Receiver<ToSupport>,
    cores: CoreSenders,
) -> Result<(), ControlError> {
    let (progress, distributed) = watch::channel(AppliedIndex(0));
    let (watched, level) = watch::channel(DiskLevel::Normal);
    tokio::spawn(distribute(records, cores.clone(), progress));
    tokio::spawn(watch_space(options.clone(), cores.clone(), watched));
    let support = Support {
        control: control.clone(),
        options,
        cores,
        distributed,
        level,
        producer_ids: Mutex::default(),
        deleting: Mutex::default(),
    };
    let support = Arc::new(support);
    // No core has anything of these open.
    for topic in leftovers.deleted {
        tokio::spawn(Arc::clone(&support).finish_deletion(topic));
    }
    while let Ok(wish) = wishes.recv().await {
        match wish {
            ToSupport::Stop => break,
            wish => {
                tokio::spawn(Arc::clone(&support).serve(wish));
            }
        }
    }
    control.shutdown().await
}

/// Hands every record to every core, in order. A slow core holds the others back, and with them
/// the control plane: nobody misses a record.
async fn distribute(
    mut records: mpsc::Receiver<AppliedRecord>,
    cores: CoreSenders,
    progress: watch::Sender<AppliedIndex>,
) {
    while let Some(AppliedRecord { index, record }) = records.recv().await {
        for core in &cores {
            if core.send(ToCore::Metadata(record.clone())).await.is_err() {
                return;
            }
        }
        progress.send_replace(index);
    }
}

async fn watch_space(
    options: SupportOptions,
    cores: CoreSenders,
    watched: watch::Sender<DiskLevel>,
) {
    let mut level = DiskLevel::Normal;
    loop {
        let found = match free_bytes(&options.data_dir) {
            Ok(free) => level_of(free, level, &options),
            // Unreadable is not empty: stay where we are.
            Err(_) => level,
        };
        if found != level {
            level = found;
            tracing::warn!(level = ?level, "the room on the disk has changed");
            watched.send_replace(level);
            for core in &cores {
                let _ = core.send(ToCore::DiskLevel(level)).await;
            }
        }
        tokio::time::sleep(SPACE_CHECK).await;
    }
}

/// A level is left only once there is a tenth more room than it takes to enter it.
fn level_of(free: u64, present: DiskLevel, options: &SupportOptions) -> DiskLevel {
    let below = |threshold: u64, level: DiskLevel| {
        let slack = if present >= level { threshold / 10 } else { 0 };
        free < threshold.saturating_add(slack)
    };
    if below(options.disk_full_bytes, DiskLevel::Full) {
        DiskLevel::Full
    } else if below(options.disk_low_bytes, DiskLevel::Low) {
        DiskLevel::Low
    } else {
        DiskLevel::Normal
    }
}

fn free_bytes(path: &Path) -> io::Result<u64> {
    crate::uring::directory::space_now(path).map(|space| space.available_bytes)
}

impl Support {
    async fn serve(self: Arc<Self>, wish: ToSupport) {
        match wish {
            ToSupport::LogBegins { partition, log_id } => self.begin_log(partition, log_id).await,
            ToSupport::CreateTopic(request, reply) => {
                let _ = reply.send(self.create_topic(request).await);
            }
            ToSupport::DeleteTopic(topic, reply) => {
                let _ = reply.send(self.delete_topic(topic).await);
            }
            ToSupport::GrantProducer(previous, reply) => {
                let _ = reply.send(self.grant_producer(previous).await);
            }
            ToSupport::Stop => {}
        }
    }

    async fn begin_log(&self, partition: PartitionId, log_id: LogId) {
        loop {
            let decided = self
                .control
                .decide(move |image| Ok((decisions::begin_log(image, partition, log_id)?, ())))
                .await;
            match decided {
                Err(ControlError::Overloaded) => tokio::time::sleep(RETRY).await,
                Err(error) => {
                    return tracing::error!(%partition, %error, "the first append of a log was not recorded");
                }
                Ok(_) => return,
            }
        }
    }

    async fn create_topic(&self, request: TopicRequest) -> Result<TopicPlan, Refusal> {
        let defaults = self.options.defaults.clone();
        let level = *self.level.borrow();
        let decided = self.control.decide(move |image| {
            let mut plan =
                decisions::create_topic(image, &request, &defaults, level, &mut random_id)?;
            let records = std::mem::take(&mut plan.records);
            let changes = !records.is_empty();
            Ok((records, (plan, changes)))
        });
        let (index, (plan, changes)) = decided.await.map_err(refusal)?;
        if changes {
            self.everyone_knows(index).await;
        }
        Ok(plan)
    }

    /// See `data_directory` for what stands on the disk meanwhile.
    async fn delete_topic(self: &Arc<Self>, topic: TopicId) -> Result<(), Refusal> {
        let one = self.deleting.lock().await;
        let is_there = |image: &Image| image.topic(topic).is_some();
        if self.control.read(is_there)
            && let Err(error) = self.on_disk(topic, data_directory::mark_deletion).await
        {
            // A disk that takes nothing more must still be able to delete. Only should a crash come
            // before the folders are gone do they stay.
            tracing::warn!(%topic, %error, "a deletion could not be marked");
        }
        let decided = self
            .control
            .decide(move |image| Ok((decisions::delete_topic(image, topic)?, ())))
            .await;
        if let Err(ControlError::Refused(_) | ControlError::Overloaded) = &decided
            && self.control.read(is_there)
            && let Err(error) = self.on_disk(topic, data_directory::unmark_deletion).await
        {
            tracing::warn!(%topic, %error, "the mark of a refused deletion stays until the next start");
        }
        drop(one);
        let (index, ()) = decided.map_err(refusal)?;
        self.everyone_knows(index).await;
        tokio::spawn(Arc::clone(self).finish_deletion(topic));
        Ok(())
    }

    /// Waits until no core has anything of a deleted topic, then removes what is left of it.
    async fn finish_deletion(self: Arc<Self>, topic: TopicId) {
        let (mut pause, pause_max) = DELETION_CHECK;
        while !self.has_let_go(topic).await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(pause_max);
        }
        if let Err(error) = self.on_disk(topic, data_directory::finish_deletion).await {
            tracing::warn!(%topic, %error, "what is left of a deleted topic is left to the next start");
        }
    }

    async fn has_let_go(&self, topic: TopicId) -> bool {
        for core in &self.cores {
            let (answer, wait) = reply();
            let asked = core.send(ToCore::HasLetGo(topic, answer)).await;
            if asked.is_err() || !wait.await.unwrap_or(false) {
                return false;
            }
        }
        true
    }

    async fn on_disk(
        &self,
        topic: TopicId,
        act: fn(&Path, TopicId) -> io::Result<()>,
    ) -> io::Result<()> {
        let root = self.options.data_dir.clone();
        let done = tokio::task::spawn_blocking(move || act(&root, topic)).await;
        done.map_err(io::Error::other)?
    }

    /// Waits until every core has taken the entry in: what is answered after it is seen everywhere.
    async fn everyone_knows(&self, index: AppliedIndex) {
        let mut distributed = self.distributed.clone();
        if distributed
            .wait_for(|reached| *reached >= index)
            .await
            .is_err()
        {
            return;
        }
        for core in &self.cores {
            let (done, wait) = reply();
            if core.send(ToCore::Barrier(done)).await.is_ok() {
                let _ = wait.await;
            }
        }
    }

    /// A new id, or the next epoch of one; an id whose epochs are used up gives way to a new one. The last epoch
    /// is never given out: whoever asks twice with the one before it would share it with another.
    async fn grant_producer(&self, previous: Option<Producer>) -> Result<Producer, Refusal> {
        if let Some(known) =
            previous.filter(|known| known.epoch.get() + 1 < ProducerEpoch::MAX.get())
        {
            let is_granted = self
                .control
                .read(|image| known.id < image.next_producer_id());
            if !is_granted {
                return Err(Refusal::new(
                    Rejection::UnknownProducer,
                    format!("producer id {} was never given out", known.id),
                ));
            }
            return Ok(Producer {
                id: known.id,
                epoch: ProducerEpoch(known.epoch.get() + 1),
            });
        }
        let mut blocks = self.producer_ids.lock().await;
        if blocks.is_empty() {
            blocks.push_back(self.grant_block().await?);
        }
        let Some(block) = blocks.front_mut() else {
            return Err(no_producer_ids());
        };
        let id = ProducerId(block.0);
        block.0 += 1;
        if block.0 == block.1 {
            blocks.pop_front();
        }
        Ok(Producer {
            id,
            epoch: ProducerEpoch::ZERO,
        })
    }

    async fn grant_block(&self) -> Result<(u64, u64), Refusal> {
        let broker = self.options.start.broker;
        let decided = self.control.decide(move |image| {
            let first = image.next_producer_id().get();
            Ok((
                decisions::grant_producer_ids(image, broker, PRODUCER_ID_BLOCK)?,
                first,
            ))
        });
        let (_, first) = decided.await.map_err(refusal)?;
        Ok((first, first + PRODUCER_ID_BLOCK))
    }
}

fn no_producer_ids() -> Refusal {
    Refusal::new(
        Rejection::CoordinatorUnavailable,
        "no producer ids are left",
    )
}

fn refusal(error: ControlError) -> Refusal {
    match error {
        ControlError::Refused(refusal) => refusal,
        ControlError::Overloaded => Refusal::new(Rejection::Overloaded, error.to_string()),
        other => Refusal::new(Rejection::RequestTimedOut, other.to_string()),
    }
}
