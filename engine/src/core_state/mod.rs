//! All state that one core owns, with one entry: [`CoreState::step`].
//!
//! The life of a publish: `Event::Request` → [`publishing`]: admit (disk level) → leader? epoch? →
//! producer table (new, repeat, gap, fenced) → append (offsets, epoch, staged block) → effect: one
//! durable write → the reply is parked → the write's completion arrives as `Event::Disk` → the
//! watermark moves → the reply leaves and waiting fetches wake.
//!
//! The life of a fetch: `Event::Request` → [`fetching`]: epoch and range checks, partition by
//! partition in the order asked → tail cache, or sparse index and a direct read → whole batches by
//! reference → reply. Nothing there: it is parked until a watermark moves or its wait ends.
//!
//! A group request goes to its coordinator ([`coordinating`]), whose records are appended to the
//! coordinator's own partition like any publish. Opening, settings, deletion, upkeep and the end
//! are in [`lifecycle`].
//!
//! Invariants:
//! 1. Every request is answered exactly once ([`Effect::Reply`]), cancelled fetches included.
//! 2. No two steps run at once, and a step never waits.
//! 3. The tail cache and reads in work never hold more than the core's byte budget; beside it stand
//!    only a few look-ups by time, each with one batch at most.

mod coordinating;
mod counters;
mod epochs;
mod fetching;
mod lifecycle;
mod lookups;
mod publishing;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::admission::ByteBudget;
use crate::disk::{DiskLevel, DiskResult, OperationId};
use crate::effect::{Effect, Effects, Event};
use crate::group;
use crate::identity::{BrokerId, CoreIndex, PartitionId};
use crate::log::{LogSettings, OperationIds, ReadId};
use crate::metadata::Image;
use crate::rejection::Rejection;
use crate::replica::{Replica, queue};
use crate::request::{Answer, FindOffset, Request, RequestId};
use crate::time::{Monotonic, Now};

pub use counters::Counters;

use coordinating::CoordinatorState;
use fetching::FetchInWork;

/// Waiting publishes are checked for their deadlines this often, in milliseconds.
const OVERDUE_CHECK_MS: u64 = 100;

/// Upkeep of idle logs (rolling, retention, checkpoints) takes a turn this often, in milliseconds.
const UPKEEP_MS: u64 = 1_000;

/// Most logs looked after in one turn of upkeep.
const UPKEEP_LOGS_MAX: usize = 256;

/// What one core is started with.
#[derive(Clone, Debug)]
pub struct CoreSettings {
    /// The broker.
    pub broker: BrokerId,
    /// Which of its cores this is.
    pub core: CoreIndex,
    /// Bytes that frames being read, requests in work and the tail cache may take together.
    pub memory_bytes: usize,
    /// The tail cache's share of it, at most.
    pub tail_cache_bytes: usize,
    /// What logs are set to where their topic says nothing.
    pub log: LogSettings,
    /// What coordinators are set to.
    pub group: group::Settings,
    /// A producer is forgotten this long after its last publish, in milliseconds of log time.
    pub producer_expiry_ms: u64,
}

impl CoreSettings {
    /// Defaults for a core of a broker.
    pub fn new(broker: BrokerId, core: CoreIndex) -> Self {
        Self {
            broker,
            core,
            memory_bytes: 1 << 30,
            tail_cache_bytes: 256 << 20,
            log: LogSettings::default(),
            group: group::Settings::default(),
            producer_expiry_ms: 7 * 24 * 3_600_000,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct CoreState {
    settings: CoreSettings,
    image: Image,
    replicas: BTreeMap<PartitionId, Replica>,
    removing: BTreeMap<PartitionId, Replica>,
    coordinators: BTreeMap<PartitionId, CoordinatorState>,
    operations: OperationIds,
    to_open: VecDeque<PartitionId>,
    recovering: BTreeSet<PartitionId>,
    level: DiskLevel,
    budget: ByteBudget,
    tail_order: VecDeque<PartitionId>,
    tail_bytes: usize,
    fetches: BTreeMap<RequestId, FetchInWork>,
    fetch_ends: BTreeSet<(Monotonic, RequestId)>,
    reads: BTreeMap<(PartitionId, ReadId), ReadPurpose>,
    /// Look-ups by time in work, and those that wait for them.
    look_ups: usize,
    look_ups_waiting: VecDeque<(RequestId, FindOffset)>,
    busy: BTreeSet<PartitionId>,
    /// Logs that were asked something in this step, and may have settled it without the disk.
    touched: BTreeSet<PartitionId>,
    next_overdue_check: Monotonic,
    next_upkeep: Monotonic,
    upkeep_cursor: Option<PartitionId>,
    stopping: bool,
    counters: Counters,
}

/// What a pending read is for.
#[derive(Clone, Copy, Debug)]
enum ReadPurpose {
    /// This slot of a fetch; with the bytes reserved for it.
    Fetch(RequestId, usize, usize),
    /// A look-up by time.
    Lookup(RequestId),
    /// The coordinator of the partition is loading.
    Load,
}

impl CoreState {
    /// A core that owns what `image` says it does; the effects begin to open it.
    ///
    /// `image` must already hold this start of the broker, so that its leader epochs are new ones.
    pub fn new(settings: CoreSettings, image: Image, now: Now, effects: &mut Effects) -> Self {
        let owned = image.replicas_on_core(settings.broker, settings.core);
        let to_open = owned
            .filter(|(_, partition, _)| partition.leader == settings.broker)
            .map(|(id, ..)| id)
            .collect();
        let mut state = Self {
            budget: ByteBudget::new(settings.memory_bytes),
            settings,
            image,
            replicas: BTreeMap::new(),
            removing: BTreeMap::new(),
            coordinators: BTreeMap::new(),
            operations: OperationIds::new(),
            to_open,
            recovering: BTreeSet::new(),
            level: DiskLevel::Normal,
            tail_order: VecDeque::new(),
            tail_bytes: 0,
            fetches: BTreeMap::new(),
            fetch_ends: BTreeSet::new(),
            reads: BTreeMap::new(),
            look_ups: 0,
            look_ups_waiting: VecDeque::new(),
            busy: BTreeSet::new(),
            touched: BTreeSet::new(),
            next_overdue_check: now.monotonic.plus_ms(OVERDUE_CHECK_MS),
            next_upkeep: now.monotonic.plus_ms(UPKEEP_MS),
            upkeep_cursor: None,
            stopping: false,
            counters: Counters::default(),
        };
        state.open_next(now, effects);
        state
    }

    /// Takes one event to its effects. `now` never goes back on its monotonic clock.
    pub fn step(&mut self, event: Event, now: Now, effects: &mut Effects) {
        match event {
            Event::Request { id, request } => self.on_request(id, request, now, effects),
            Event::Hurry(id) => self.on_hurry(id, now, effects),
            Event::Disk { operation, result } => self.on_disk(operation, result, now, effects),
            Event::Metadata(record) => self.on_metadata(&record, now, effects),
            Event::DiskLevel(level) => self.level = level,
            Event::Tick => self.on_tick(now, effects),
            Event::Stop => self.on_stop(now, effects),
        }
        self.settle_touched(now, effects);
    }

    /// Hears what logs have brought about without the disk: a look-up that the index alone answers,
    /// a stop with nothing to write. No completion would tell of it later.
    fn settle_touched(&mut self, now: Now, effects: &mut Effects) {
        while let Some(partition) = self.touched.pop_first() {
            let Some(replica) = self.replicas.get_mut(&partition) else {
                continue;
            };
            let mut progress = Vec::new();
            replica.log.drain_progress(&mut progress);
            for step in progress {
                self.on_progress(partition, step, now, effects);
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: Request, now: Now, effects: &mut Effects) {
        match request {
            Request::Publish(publish) => self.on_publish(id, publish, now, effects),
            Request::Fetch(fetch) => self.on_fetch(id, fetch, now, effects),
            Request::FindOffset(find) => self.on_find_offset(id, find, effects),
            Request::FindEpochEnd(find) => self.on_find_epoch_end(id, find, effects),
            Request::DescribePartition(partition) => self.on_describe(id, partition, effects),
            Request::Group(request) => self.on_group(id, request, now, effects),
        }
    }

    fn on_disk(
        &mut self,
        operation: OperationId,
        result: DiskResult,
        now: Now,
        effects: &mut Effects,
    ) {
        let Some(partition) = self.operations.finish(operation) else {
            self.counters.stray_completions += 1;
            return;
        };
        let mut progress = Vec::new();
        let place = if self.replicas.contains_key(&partition) {
            &mut self.replicas
        } else {
            &mut self.removing
        };
        let Some(replica) = place.get_mut(&partition) else {
            return;
        };
        let epoch = replica.epoch();
        let (log, scanned) = replica.scanned_table();
        // When a scanned batch was appended nobody knows any more: later than true, so that its
        // producer is not forgotten too early.
        let last_append_ms = log.last_append_ms().max(now.wall.0);
        let mut on_scanned = |header: &corelog_batch::BatchHeader| {
            if let Some(first) = crate::identity::Offset::from_wire(header.base_offset) {
                let batch_epoch =
                    crate::identity::LeaderEpoch::from_wire(header.leader_epoch).unwrap_or(epoch);
                scanned.replay(header, first, batch_epoch, last_append_ms);
            }
        };
        let mut queue = queue(&mut self.operations, effects);
        log.on_disk(
            operation,
            result,
            now,
            &mut on_scanned,
            &mut queue,
            &mut progress,
        );
        for step in progress {
            self.on_progress(partition, step, now, effects);
        }
    }

    fn on_tick(&mut self, now: Now, effects: &mut Effects) {
        self.end_fetch_waits(now, effects);
        self.tick_coordinators(now, effects);
        if now.monotonic >= self.next_overdue_check {
            self.next_overdue_check = now.monotonic.plus_ms(OVERDUE_CHECK_MS);
            self.refuse_overdue(now, effects);
        }
        if now.monotonic >= self.next_upkeep {
            self.next_upkeep = now.monotonic.plus_ms(UPKEEP_MS);
            self.look_after_logs(now, effects);
        }
    }

    /// When [`Event::Tick`] is due next.
    pub fn next_wake(&self) -> Monotonic {
        let fetch = self.fetch_ends.first().map(|(end, _)| *end);
        let overdue = if self.busy.is_empty() {
            None
        } else {
            Some(self.next_overdue_check)
        };
        let wakes = [fetch, overdue, self.next_coordinator_wake()];
        wakes
            .into_iter()
            .flatten()
            .fold(self.next_upkeep, Monotonic::min)
    }

    /// What the cluster knows, as this core has heard it.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Whether every log is open (or known to be broken) and every coordinator has loaded.
    pub fn is_ready(&self) -> bool {
        self.to_open.is_empty()
            && self.recovering.is_empty()
            && self.coordinators.values().all(CoordinatorState::is_loaded)
    }

    /// How far opening has come: logs open, logs in all.
    pub fn opened(&self) -> (usize, usize) {
        let all = self.replicas.len() + self.to_open.len();
        (self.replicas.len() - self.recovering.len(), all)
    }

    /// The core's budget of bytes; the frames that the shard reads are reserved in it too.
    pub fn budget(&mut self) -> &mut ByteBudget {
        &mut self.budget
    }

    /// Takes `bytes` of the budget, at the expense of the tail cache where need be.
    ///
    /// # Errors
    /// [`Rejection::Overloaded`] if they do not fit now.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Rejection> {
        while self.budget.used_bytes().saturating_add(bytes) > self.budget.limit_bytes() {
            if !self.forget_oldest_tail() {
                break;
            }
        }
        self.budget.reserve(bytes)
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The replicas of this core, in order, for metrics and descriptions.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values()
    }

    /// Bytes of the tail cache.
    pub fn tail_cache_bytes(&self) -> usize {
        self.tail_bytes
    }

    fn reply(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        if let Err(rejection) = &answer {
            self.counters.reject(*rejection);
        }
        effects.push(Effect::Reply { id, answer });
    }

    /// Keeps the tail cache within its share, and in the budget.
    fn remember_tail(&mut self, partition: PartitionId, batches: usize, bytes: usize) {
        for _ in 0..batches {
            self.tail_order.push_back(partition);
        }
        self.tail_bytes += bytes;
        while self.tail_bytes > self.settings.tail_cache_bytes
            && self.forget_oldest_tail_unreserved()
        {}
        // What the cache has grown by is taken from the budget; without room it shrinks instead.
        self.settle_tail();
    }

    fn settle_tail(&mut self) {
        loop {
            let reserved = self.counters.tail_reserved_bytes;
            if self.tail_bytes <= reserved {
                self.budget.release(reserved - self.tail_bytes);
                self.counters.tail_reserved_bytes = self.tail_bytes;
                return;
            }
            if self.budget.reserve(self.tail_bytes - reserved).is_ok() {
                self.counters.tail_reserved_bytes = self.tail_bytes;
                return;
            }
            if !self.forget_oldest_tail_unreserved() {
                return;
            }
        }
    }

    fn forget_oldest_tail(&mut self) -> bool {
        let forgotten = self.forget_oldest_tail_unreserved();
        self.settle_tail();
        forgotten
    }

    fn forget_oldest_tail_unreserved(&mut self) -> bool {
        let Some(partition) = self.tail_order.pop_front() else {
            return false;
        };
        let replica = self.replicas.get_mut(&partition);
        if let Some(bytes) = replica.and_then(Replica::forget_oldest_tail) {
            self.tail_bytes -= bytes;
        }
        true
    }
}
