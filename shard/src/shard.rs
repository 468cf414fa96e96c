//! One core of a broker: drives the engine's [`CoreState`] with what happens, performs what it
//! decides, and asks other cores about what they own.
//!
//! Invariants:
//! 1. The state is borrowed for one step at a time and never across a wait.
//! 2. Request ids carry the asking core in their upper bits, so that they are unique on the core
//!    that is asked.
//! 3. Every request that was taken is answered once, or its asker learns that the core has ended.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelog_engine::core_state::{CoreSettings, CoreState};
use corelog_engine::disk::DiskLevel;
use corelog_engine::effect::{Effect, Effects, Event, Report};
use corelog_engine::identity::{CoreIndex, PartitionId, Producer, TopicId};
use corelog_engine::metadata::decisions::{TopicDefaults, TopicRequest};
use corelog_engine::metadata::{Image, MetadataRecord, Refusal};
use corelog_engine::publish::{
    Inspection, Progress, PublishRefusal, PublishRules, VerifiedBatches,
};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Answer, Request, RequestId};
use corelog_engine::time::{Monotonic, Now};

use crate::counts::{Count, Counts, ShardRefusal};
use crate::disk::Disk;
use crate::disk_queue::{DiskQueue, DiskWork};
use crate::mesh::{CoreReport, CoreSenders, Face, ToCore, ToSupport, TopicAnswer};
use crate::stop_signal::{StopSignal, StopWait};
use crate::uring::channel::{LocalReply, Reply, SendError, Sender, local_reply, reply};
use crate::uring::{clock, next_turn, sleep, spawn_background, spawn_local};

mod asked;

pub use asked::Asked;
use asked::Wait;

/// The asking core stands above this bit of a request id.
const CORE_SHIFT: u32 = 48;

/// Compressed bodies are opened this many bytes at a time.
const INSPECTION_TURN_BYTES: usize = 256 << 10;

/// Whoever waits for room in the budget asks again after this long.
const BUDGET_RETRY: Duration = Duration::from_millis(1);

/// A core that has stopped lets its HTTP connections take their last answers for this long, in
/// milliseconds.
const LAST_ANSWERS_MS: u64 = 500;

/// What every connection of a broker needs to know.
#[derive(Clone, Debug)]
pub struct FaceSettings {
    /// The cluster, in hexadecimal.
    pub cluster: String,
    /// The broker.
    pub broker: corelog_engine::identity::BrokerId,
    /// Its zone.
    pub zone: String,
    /// Host name or address that clients are told.
    pub advertised_host: String,
    /// The Kafka port that clients are told.
    pub kafka_port: u16,
    /// The HTTP port that clients are told.
    pub http_port: u16,
    /// Whether a topic is made when a client first names it.
    pub auto_create_topics: bool,
    /// What topics get that do not say otherwise.
    pub defaults: TopicDefaults,
    /// Cores of this broker.
    pub cores: u16,
}

enum Waiting {
    Local(LocalReply<Answer>),
    Remote(Reply<Answer>),
}

/// One core. Its tasks share it by reference count.
pub struct Shard {
    core: CoreIndex,
    state: RefCell<CoreState>,
    /// Keyed by numbers of the broker's own: no client can choose ones that collide.
    waiting: RefCell<HashMap<RequestId, Waiting, ahash::RandomState>>,
    next_id: Cell<u64>,
    armed: Cell<Option<Monotonic>>,
    cores: CoreSenders,
    support: Sender<ToSupport>,
    disk: Rc<Disk>,
    disk_queue: RefCell<DiskQueue>,
    spare_effects: RefCell<Vec<Effects>>,
    /// Answered once every log is open.
    barriers: RefCell<Vec<Reply<()>>>,
    level: Cell<DiskLevel>,
    connections: [Cell<usize>; 2],
    stopping: Rc<StopSignal>,
    /// What the faces count.
    pub counts: Counts,
    settings: FaceSettings,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Shard({})", self.core)
    }
}

impl Shard {
    /// A core with what the image says it owns; opening begins at once.
    pub fn new(
        core: CoreSettings,
        image: Image,
        disk: Disk,
        cores: CoreSenders,
        support: Sender<ToSupport>,
        settings: FaceSettings,
    ) -> Rc<Self> {
        let index = core.core;
        let mut effects = Effects::new();
        let state = CoreState::new(core, image, clock::now(), &mut effects);
        let shard = Rc::new(Self {
            core: index,
            state: RefCell::new(state),
            waiting: RefCell::new(HashMap::with_hasher(ahash::RandomState::with_seeds(
                1, 2, 3, 4,
            ))),
            next_id: Cell::new(0),
            armed: Cell::new(None),
            cores,
            support,
            disk: Rc::new(disk),
            disk_queue: RefCell::default(),
            spare_effects: RefCell::default(),
            barriers: RefCell::default(),
            level: Cell::new(DiskLevel::Normal),
            connections: [Cell::new(0), Cell::new(0)],
            stopping: Rc::default(),
            counts: Counts::default(),
            settings,
        });
        shard.perform(&mut effects);
        shard.arm();
        shard
    }

    /// Which core this is.
    pub fn core(&self) -> CoreIndex {
        self.core
    }

    /// What connections need to know.
    pub fn settings(&self) -> &FaceSettings {
        &self.settings
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        clock::now()
    }

    /// Reads what the cluster knows, as this core has heard it.
    pub fn image<T>(&self, read: impl FnOnce(&Image) -> T) -> T {
        read(self.state.borrow().image())
    }

    /// Room on the disk.
    pub fn disk_level(&self) -> DiskLevel {
        self.level.get()
    }

    /// Whether the core takes no more work.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_given()
    }

    /// Ready once the core takes no more work.
    pub fn until_stopping(&self) -> StopWait {
        self.stopping.wait()
    }

    /// Takes an event to its effects and performs them.
    pub fn step(self: &Rc<Self>, event: Event) {
        let mut effects = self.spare_effects.borrow_mut().pop().unwrap_or_default();
        self.state
            .borrow_mut()
            .step(event, clock::now(), &mut effects);
        self.perform(&mut effects);
        self.spare_effects.borrow_mut().push(effects);
        self.answer_barriers();
        self.arm();
    }

    /// A new topic is only there once its logs are open: a publish that met one still opening
    /// would be refused while later ones in flight are taken.
    fn answer_barriers(&self) {
        if self.barriers.borrow().is_empty() || !self.state.borrow().is_ready() {
            return;
        }
        for done in self.barriers.borrow_mut().drain(..) {
            let _ = done.send(());
        }
    }

    fn perform(self: &Rc<Self>, effects: &mut Effects) {
        for effect in effects.drain(..) {
            match effect {
                Effect::Disk {
                    operation,
                    request,
                    background,
                } => self.disk_queue.borrow_mut().offer(DiskWork {
                    operation,
                    request,
                    background,
                }),
                Effect::Reply { id, answer } => self.answer(id, answer),
                Effect::Propose(record) => self.propose(record),
                Effect::Report(report) => tell(&report),
            }
        }
        self.perform_disk();
    }

    /// Begins what there is room for on the disk. Each that ends lets the next begin.
    fn perform_disk(self: &Rc<Self>) {
        loop {
            // Not in the head of a loop: there the borrow would last through its body.
            let Some(work) = self.disk_queue.borrow_mut().start() else {
                return;
            };
            let shard = Rc::clone(self);
            let background = work.background;
            let performed = async move {
                let result = shard.disk.perform(work.request).await;
                shard.disk_queue.borrow_mut().finish(background);
                let operation = work.operation;
                shard.step(Event::Disk { operation, result });
            };
            if background {
                spawn_background(performed).detach();
            } else {
                spawn_local(performed).detach();
            }
        }
    }

    fn answer(&self, id: RequestId, answer: Answer) {
        match self.waiting.borrow_mut().remove(&id) {
            // An asker that is gone is no error: its connection ended.
            Some(Waiting::Local(reply)) => drop(reply.send(answer)),
            Some(Waiting::Remote(reply)) => drop(reply.send(answer)),
            None => {}
        }
    }

    fn propose(self: &Rc<Self>, record: MetadataRecord) {
        let MetadataRecord::LogBegun { partition, log_id } = record else {
            return;
        };
        let support = self.support.clone();
        let wish = ToSupport::LogBegins { partition, log_id };
        if let Err(SendError::Full(wish)) = support.try_send(wish) {
            // As many wait here as this core has partitions, at most.
            spawn_local(async move { drop(support.send(wish).await) }).detach();
        }
    }

    /// Sees to it that the state's next tick comes in time.
    fn arm(self: &Rc<Self>) {
        let next = self.state.borrow().next_wake();
        if self.armed.get().is_some_and(|armed| armed <= next) {
            return;
        }
        self.armed.set(Some(next));
        let shard = Rc::clone(self);
        spawn_local(async move {
            let wait_us = next.0.saturating_sub(clock::monotonic().0);
            sleep(Duration::from_micros(wait_us.max(100))).await;
            if shard.armed.get() == Some(next) {
                shard.armed.set(None);
                shard.step(Event::Tick);
            }
        })
        .detach();
    }

    fn new_id(&self) -> RequestId {
        let counter = self.next_id.get();
        self.next_id.set(counter + 1);
        RequestId(u64::from(self.core.get()) << CORE_SHIFT | counter)
    }

    /// The core that owns a partition's replica on this broker.
    pub fn owner_of(&self, partition: PartitionId) -> Option<CoreIndex> {
        let broker = self.settings.broker;
        self.image(|image| image.replica(partition, broker).map(|replica| replica.core))
    }

    /// Asks the core that owns `partition`. The request has its place in that core's order when
    /// this returns; the answer comes later.
    pub fn ask(self: &Rc<Self>, partition: PartitionId, request: Request) -> Asked {
        match self.owner_of(partition) {
            Some(core) => self.ask_core(core, request),
            None => Asked::refused(Rejection::UnknownTopicOrPartition),
        }
    }

    /// Asks a core by its index.
    pub fn ask_core(self: &Rc<Self>, core: CoreIndex, request: Request) -> Asked {
        let id = self.new_id();
        if core == self.core {
            let (answer, wait) = local_reply();
            self.waiting.borrow_mut().insert(id, Waiting::Local(answer));
            self.step(Event::Request { id, request });
            return Asked {
                shard: Some(Rc::clone(self)),
                core,
                id,
                wait: Wait::Local(wait),
            };
        }
        let Some(inbox) = self.cores.get(usize::from(core.get())) else {
            return Asked::refused(Rejection::NotLeader);
        };
        let (answer, wait) = reply();
        match inbox.try_send(ToCore::Request {
            id,
            request,
            reply: answer,
        }) {
            Ok(()) => Asked {
                shard: Some(Rc::clone(self)),
                core,
                id,
                wait: Wait::Remote(wait),
            },
            Err(SendError::Full(_)) => {
                self.counts.refuse(ShardRefusal::CoreQueueFull);
                Asked::refused(Rejection::Overloaded)
            }
            Err(SendError::Closed(_)) => Asked::refused(Rejection::NotLeader),
        }
    }

    fn hurry(self: &Rc<Self>, core: CoreIndex, id: RequestId) {
        if core == self.core {
            self.step(Event::Hurry(id));
        } else if let Some(inbox) = self.cores.get(usize::from(core.get())) {
            // A full inbox: the wait ends by itself, at its own time.
            let _ = inbox.try_send(ToCore::Hurry(id));
        }
    }

    /// A message from another core or the support thread. `false`: the core is to end.
    pub fn on_message(self: &Rc<Self>, message: ToCore) -> Option<(crate::uring::Accepted, Face)> {
        match message {
            ToCore::Request { id, request, reply } => {
                self.waiting.borrow_mut().insert(id, Waiting::Remote(reply));
                self.step(Event::Request { id, request });
            }
            ToCore::Hurry(id) => self.step(Event::Hurry(id)),
            ToCore::Accepted(accepted, face) => return Some((accepted, face)),
            ToCore::Metadata(record) => self.step(Event::Metadata(record)),
            ToCore::Barrier(done) => {
                self.barriers.borrow_mut().push(done);
                self.answer_barriers();
            }
            ToCore::DiskLevel(level) => {
                self.level.set(level);
                self.step(Event::DiskLevel(level));
            }
            ToCore::HasLetGo(topic, reply) => {
                let has = self.state.borrow().has_let_go(topic);
                let _ = reply.send(has);
            }
            ToCore::Report(reply) => drop(reply.send(self.report())),
            ToCore::Stop => self.stopping.give(),
        }
        None
    }

    /// How this core stands.
    pub fn report(&self) -> CoreReport {
        let mut state = self.state.borrow_mut();
        let budget = (state.budget().used_bytes(), state.budget().limit_bytes());
        CoreReport {
            is_ready: state.is_ready() && !self.is_stopping(),
            opened: state.opened(),
            counters: state.counters().clone(),
            counted: self.counts.counted(),
            budget_bytes: budget,
            tail_cache_bytes: state.tail_cache_bytes(),
            connections: (self.connections[0].get(), self.connections[1].get()),
            partitions: state
                .replicas()
                .map(|replica| (replica.partition(), replica.describe()))
                .collect(),
            disk_operations: self.disk_queue.borrow().depths(),
            disk_level: self.level.get(),
        }
    }

    /// How every core stands, by index; one that has ended is left out.
    pub async fn report_all(&self) -> Vec<CoreReport> {
        let mut reports = Vec::with_capacity(self.cores.len());
        for (index, inbox) in self.cores.iter().enumerate() {
            if index == usize::from(self.core.get()) {
                reports.push(self.report());
                continue;
            }
            let (answer, wait) = reply();
            if inbox.send(ToCore::Report(answer)).await.is_ok()
                && let Ok(report) = wait.await
            {
                reports.push(report);
            }
        }
        reports
    }

    /// Makes a topic; answered once every core knows it.
    ///
    /// # Errors
    /// The refusal.
    pub async fn create_topic(&self, request: TopicRequest) -> TopicAnswer {
        self.wish(|answer| ToSupport::CreateTopic(request, answer))
            .await?
    }

    /// Deletes a topic; answered once every core knows it.
    ///
    /// # Errors
    /// The refusal.
    pub async fn delete_topic(&self, topic: TopicId) -> Result<(), Refusal> {
        self.wish(|answer| ToSupport::DeleteTopic(topic, answer))
            .await?
    }

    /// A producer identity: a new one, or the next epoch of `previous`.
    ///
    /// # Errors
    /// The refusal.
    pub async fn grant_producer(&self, previous: Option<Producer>) -> Result<Producer, Refusal> {
        self.wish(|answer| ToSupport::GrantProducer(previous, answer))
            .await?
    }

    async fn wish<T>(&self, make: impl FnOnce(Reply<T>) -> ToSupport) -> Result<T, Refusal> {
        let (answer, wait) = reply();
        match self.support.try_send(make(answer)) {
            Ok(()) => wait
                .await
                .map_err(|_| Refusal::new(Rejection::RequestTimedOut, "the broker is stopping")),
            Err(SendError::Full(_)) => {
                let what = "too many metadata changes are waiting; try again";
                self.counts.refuse(ShardRefusal::MetadataQueueFull);
                Err(Refusal::new(Rejection::Overloaded, what))
            }
            Err(SendError::Closed(_)) => Err(Refusal::new(
                Rejection::CoordinatorUnavailable,
                "the broker is stopping",
            )),
        }
    }

    /// Checks a publish, in turns.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn inspect(
        &self,
        bytes: Bytes,
        rules: PublishRules,
    ) -> Result<VerifiedBatches, PublishRefusal> {
        let mut inspection = Inspection::new(bytes, rules);
        loop {
            match inspection.turn(INSPECTION_TURN_BYTES)? {
                Progress::Done(batches) => return Ok(batches),
                Progress::More => next_turn().await,
            }
        }
    }

    /// Takes `bytes` of this core's budget, waiting for room: whoever reads a frame reads no
    /// further meanwhile, and so holds its sender back.
    ///
    /// # Errors
    /// [`Rejection::Overloaded`] if the whole budget is less.
    pub async fn reserve(self: &Rc<Self>, bytes: usize) -> Result<Reservation, Rejection> {
        if bytes > self.state.borrow_mut().budget().limit_bytes() {
            self.counts.refuse(ShardRefusal::AboveBudget);
            return Err(Rejection::Overloaded);
        }
        let mut has_waited = false;
        loop {
            if self.state.borrow_mut().reserve(bytes).is_ok() {
                return Ok(Reservation {
                    shard: Rc::clone(self),
                    bytes,
                });
            }
            if !has_waited {
                has_waited = true;
                self.counts.count(Count::BudgetWait);
            }
            sleep(BUDGET_RETRY).await;
        }
    }

    /// The inboxes of all cores, by index.
    pub fn core_senders(&self) -> &CoreSenders {
        &self.cores
    }

    /// Counts an open connection until the guard is dropped.
    pub fn count_connection(self: &Rc<Self>, face: Face) -> ConnectionCount {
        let cell = &self.connections[face as usize];
        cell.set(cell.get() + 1);
        ConnectionCount {
            shard: Rc::clone(self),
            face,
        }
    }

    /// Connections open on a face.
    pub fn connections(&self, face: Face) -> usize {
        self.connections[face as usize].get()
    }

    /// Finishes every log: refuses new publishes, writes checkpoints and clean marks. Comes back
    /// when that is done and the last HTTP answers are taken, or after `patience`.
    pub async fn finish(self: &Rc<Self>, patience: Duration) {
        self.stopping.give();
        self.step(Event::Stop);
        let end = self.now().monotonic.plus_ms(patience.as_millis() as u64);
        while !self.state.borrow().is_stopped() && self.now().monotonic < end {
            sleep(Duration::from_millis(1)).await;
        }
        // Their connections end by themselves; a client that does not take its answer is not waited for.
        let end = end.min(self.now().monotonic.plus_ms(LAST_ANSWERS_MS));
        while self.connections(Face::Http) > 0 && self.now().monotonic < end {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

fn tell(report: &Report) {
    match report {
        Report::LogStopped(partition, what) => {
            tracing::error!(%partition, what, "a partition's log is stopped: it takes no publishes until the cause is mended and the broker restarted");
        }
        Report::ProducersRebuilt(partition, what) => {
            tracing::warn!(%partition, what, "a producer snapshot was lost; the producer table was made from the log");
        }
        Report::Recovered {
            partition,
            scanned_bytes,
            cut_bytes,
        } if *cut_bytes > 0 => {
            tracing::info!(%partition, scanned_bytes, cut_bytes, "recovered; an unacknowledged tail was cut");
        }
        Report::Recovered {
            partition,
            scanned_bytes,
            ..
        } => tracing::debug!(%partition, scanned_bytes, "recovered"),
    }
}

/// Bytes of a core's budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    shard: Rc<Shard>,
    bytes: usize,
}

impl Reservation {
    /// Takes more of the budget, if it is there now. Whoever holds some already does not wait for more:
    /// two that did could wait for each other.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let has_grown = self.shard.state.borrow_mut().reserve(bytes).is_ok();
        if has_grown {
            self.bytes += bytes;
        }
        has_grown
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shard.state.borrow_mut().budget().release(self.bytes);
    }
}

/// An open connection, counted.
#[derive(Debug)]
pub struct ConnectionCount {
    shard: Rc<Shard>,
    face: Face,
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        let cell = &self.shard.connections[self.face as usize];
        cell.set(cell.get().saturating_sub(1));
    }
}
