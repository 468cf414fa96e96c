//! One broker with one core, its disk, its clients and the clock: what happens next, and what the core
//! makes of it.
//!
//! Everything that will happen stands in one queue, by time and then by order of entry, so a seed
//! has one future.

use std::collections::BTreeMap;

use corelog_engine::core_state::CoreState;
use corelog_engine::disk::{DiskLevel, OperationId};
use corelog_engine::effect::{Effect, Effects, Event, Report};
use corelog_engine::identity::{LeaderEpoch, PartitionId};
use corelog_engine::log::LogPhase;
use corelog_engine::metadata::{MetadataRecord, OFFSETS_TOPIC};
use corelog_engine::request::{Request, RequestId};
use corelog_engine::time::{Monotonic, Now, Wall};

use super::asked::Asked;
use super::chance::Chance;
use super::clients::Clients;
use super::control_plane::ControlPlane;
use super::describe;
use super::disk::Disk;
use super::group_ledger::GroupLedger;
use super::ledger::Ledger;
use super::plan::Plan;
use super::teeth::Tooth;
use super::trace::Trace;
use super::violation::{Checked, hold};

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Coming {
    /// A disk request of this life completes.
    DiskDone(u64, OperationId),
    /// The core of this life hears the next record of metadata.
    Metadata(u64),
    /// A timer of the core of this life.
    Tick(u64),
    /// A proposal reaches the control plane.
    Proposal(MetadataRecord),
    /// A client acts.
    Turn(usize),
    /// The process starts.
    Start,
    /// There is room on the disk again.
    Room,
}

/// One life of the process.
#[derive(Debug)]
pub(super) struct Life {
    pub core: CoreState,
    /// Records of metadata that it has heard.
    heard: usize,
    /// Steps until it ends.
    steps_left: u64,
    ends_in_order: bool,
    pub is_stopping: bool,
    /// Whether the stop began when everything was in order.
    stops_ready: bool,
    /// By when a stop must have come to its end.
    stops_until_us: u64,
    tick_at: u64,
    /// When it was first seen ready.
    pub ready_at: Option<u64>,
    /// A clean end went before: nothing should be left to scan.
    after_clean_stop: bool,
}

/// See the module.
#[derive(Debug)]
pub struct World {
    pub(super) plan: Plan,
    pub(super) chance: Chance,
    /// What happened.
    pub trace: Trace,
    pub(super) now_us: u64,
    pub(super) wall_ms: u64,
    queue: BTreeMap<(u64, u64), Coming>,
    order: u64,
    pub(super) life: Option<Life>,
    lives: u64,
    pub(super) disk: Disk,
    pub(super) control: ControlPlane,
    pub(super) clients: Clients,
    pub(super) ledger: Ledger,
    pub(super) groups: GroupLedger,
    /// The process and epoch in which each partition last took something.
    pub(super) epochs: BTreeMap<PartitionId, (u64, LeaderEpoch)>,
    pub(super) requests: BTreeMap<RequestId, Asked>,
    last_request: u64,
    was_clean_stop: bool,
    /// Nothing is done to the process any more.
    pub(super) is_ending: bool,
    /// Where the last reading of a whole partition goes on.
    pub(super) read_answer: Option<u64>,
    /// Questions for stored offsets that were answered with some, or none, but not refused.
    pub(super) offsets_shown: u64,
}

/// Longest time that a stop in order may take, in microseconds.
const STOP_US_MAX: u64 = 120_000_000;

/// What the wall's clock says at the start, in milliseconds.
const WALL_BASE_MS: u64 = 1_700_000_000_000;

const RULE_STOPPED: &str = "a log stops only for a fault of its disk";

impl Life {
    /// It does not end by itself any more.
    pub(super) fn live_on(&mut self) {
        self.steps_left = u64::MAX;
    }
}

impl World {
    /// The world before its first event.
    pub fn new(plan: Plan, chance: Chance, trace: Trace) -> Self {
        let mut world = Self {
            clients: Clients::default(),
            chance,
            trace,
            now_us: 1_000_000,
            wall_ms: WALL_BASE_MS,
            queue: BTreeMap::new(),
            order: 0,
            life: None,
            lives: 0,
            disk: Disk::default(),
            control: ControlPlane::default(),
            ledger: Ledger::default(),
            groups: GroupLedger::default(),
            epochs: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            was_clean_stop: false,
            is_ending: false,
            read_answer: None,
            offsets_shown: 0,
            plan,
        };
        world.disk.faults = world.plan.faults;
        world.disk.lies.tooth = world.plan.tooth;
        world.schedule(0, Coming::Start);
        world.populate();
        world
    }

    /// The clocks.
    pub(super) fn now(&self) -> Now {
        Now {
            monotonic: Monotonic(self.now_us),
            wall: Wall(self.wall_ms + self.now_us / 1_000),
        }
    }

    /// The clocks as the core sees them.
    fn core_now(&self) -> Now {
        let now = self.now();
        let us = match self.plan.tooth {
            Some(Tooth::StepsBack) => {
                let stepped_us = self.wall_ms as i64 - WALL_BASE_MS as i64;
                self.now_us.saturating_add_signed(stepped_us * 1_000)
            }
            _ => self.now_us,
        };
        Now {
            monotonic: Monotonic(us),
            ..now
        }
    }

    /// Whether a promise is broken in secret.
    pub(super) fn breaks(&self, tooth: Tooth) -> bool {
        self.plan.tooth == Some(tooth)
    }

    pub(super) fn schedule(&mut self, after_us: u64, coming: Coming) {
        self.order += 1;
        let at = self.now_us + after_us;
        self.queue.insert((at, self.order), coming);
    }

    pub(super) fn note(&mut self, facts: &[u64], line: impl FnOnce() -> String) {
        let (at_us, life) = (self.now_us, self.lives);
        self.trace.note(at_us, facts, || {
            format!("{at_us:>9} us, life {life}: {}", line())
        });
    }

    /// Whether the broken rules of a partition count.
    pub(super) fn is_strict(&mut self, partition: PartitionId) -> bool {
        if self.disk.damaged.contains(&partition) {
            self.ledger.damage(partition);
        }
        self.ledger.is_strict(partition)
    }

    /// How often the process has started.
    pub(super) fn lives(&self) -> u64 {
        self.lives
    }

    /// Whether the core has heard every record.
    pub(super) fn has_heard_all(&mut self) -> bool {
        let life = self.life.as_ref();
        life.is_some_and(|life| life.heard == self.control.len())
    }

    /// Lets everything happen until the core has taken its steps.
    ///
    /// # Errors
    /// The first rule that did not hold.
    pub fn run(&mut self) -> Checked {
        while self.trace.events() < self.plan.steps {
            if !self.happen()? {
                break;
            }
            self.interfere()?;
        }
        Ok(())
    }

    /// The next thing happens; false if nothing is left to happen.
    ///
    /// # Errors
    /// If a rule did not hold.
    pub(super) fn happen(&mut self) -> Result<bool, super::violation::Violation> {
        let Some(((at, _), coming)) = self.queue.pop_first() else {
            return Ok(false);
        };
        self.now_us = self.now_us.max(at);
        match coming {
            Coming::DiskDone(life, operation) if life == self.lives => {
                let result = self.disk.complete(operation, &mut self.chance);
                if let (Some(result), Some(_)) = (result, &self.life) {
                    self.note(&[1, operation.0], || describe::result(operation, &result));
                    self.step(Event::Disk { operation, result })?;
                }
            }
            Coming::Metadata(life) if life == self.lives => self.hear()?,
            Coming::Tick(life) if life == self.lives && self.life.is_some() => {
                self.note(&[2], || "tick".to_string());
                if !self.breaks(Tooth::LosesTicks) {
                    if let Some(life) = &mut self.life {
                        life.tick_at = u64::MAX;
                    }
                    self.step(Event::Tick)?;
                }
            }
            Coming::Proposal(record) => self.decide(record),
            Coming::Turn(client) => self.turn(client)?,
            Coming::Start if self.life.is_none() => self.start()?,
            Coming::Room => self.make_room()?,
            Coming::DiskDone(..) | Coming::Metadata(_) | Coming::Tick(_) | Coming::Start => {}
        }
        Ok(true)
    }

    fn decide(&mut self, proposal: MetadataRecord) {
        for record in self.control.decide(proposal) {
            self.commit(record);
        }
    }

    /// Orders a record of metadata; the core hears it later.
    pub(super) fn commit(&mut self, record: MetadataRecord) {
        self.note(&[3], || format!("metadata {}", describe::record(&record)));
        if self.control.commit(record) && self.life.is_some() {
            let after = self.chance.skewed(self.plan.metadata_us);
            self.schedule(after, Coming::Metadata(self.lives));
        }
        self.open_new_partitions();
    }

    fn open_new_partitions(&mut self) {
        for topic in self.control.image.topics() {
            for (id, _) in topic.iter() {
                let settings = &topic.settings;
                let retains = settings.retention_ms.is_some() || settings.retention_bytes.is_some();
                let is_internal = topic.name == OFFSETS_TOPIC;
                self.ledger
                    .open(id, is_internal, retains, settings.timestamp_type);
            }
        }
    }

    /// The core hears the next record.
    fn hear(&mut self) -> Checked {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        let Some(record) = self.control.record(life.heard).cloned() else {
            return Ok(());
        };
        life.heard += 1;
        let deleted = match &record {
            MetadataRecord::TopicDeleted { topic } => Some(*topic),
            _ => None,
        };
        self.note(&[4], || format!("hears {}", describe::record(&record)));
        self.step(Event::Metadata(record))?;
        let gone: Vec<PartitionId> = self
            .ledger
            .partitions()
            .map(|(id, _)| id)
            .filter(|id| Some(id.topic) == deleted)
            .collect();
        gone.into_iter().for_each(|id| self.ledger.delete(id));
        Ok(())
    }

    /// The process starts on what the disk holds.
    fn start(&mut self) -> Checked {
        self.lives += 1;
        self.groups.restart();
        if !self.breaks(Tooth::KeepsEpochs) {
            self.control.start_broker(&mut self.chance);
        }
        self.open_new_partitions();
        let gone: Vec<PartitionId> = self
            .ledger
            .partitions()
            .map(|(id, _)| id)
            .filter(|id| self.control.image.partition(*id).is_none())
            .collect();
        gone.into_iter().for_each(|id| self.ledger.delete(id));
        let mut effects = Effects::new();
        let (settings, image) = (self.plan.core.clone(), self.control.image.clone());
        self.note(&[5], || "starts".to_string());
        let core = CoreState::new(settings, image, self.core_now(), &mut effects);
        let steps_left = match self.is_ending {
            true => u64::MAX,
            false => self.chance.between(1, 2 * self.plan.life_steps),
        };
        self.life = Some(Life {
            core,
            heard: self.control.len(),
            steps_left,
            ends_in_order: self.chance.one_in(self.plan.stop_one_in),
            is_stopping: false,
            stops_ready: false,
            stops_until_us: u64::MAX,
            tick_at: u64::MAX,
            ready_at: None,
            after_clean_stop: std::mem::take(&mut self.was_clean_stop),
        });
        if self.disk.is_full && self.chance.one_in(2) {
            self.deal_all(effects)?;
            return self.step(Event::DiskLevel(DiskLevel::Full));
        }
        self.deal_all(effects)
    }

    fn deal_all(&mut self, effects: Effects) -> Checked {
        for effect in effects {
            self.deal(effect)?;
        }
        self.arm_tick();
        Ok(())
    }

    /// The core takes one step; then its effects are dealt out, all of them unless the process ends
    /// in the middle.
    pub(super) fn step(&mut self, event: Event) -> Checked {
        let now = self.core_now();
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        let mut effects = Effects::new();
        life.core.step(event, now, &mut effects);
        self.trace.count();
        life.steps_left = life.steps_left.saturating_sub(1);
        let budget = *life.core.budget();
        hold(
            budget.used_bytes() <= budget.limit_bytes()
                && life.core.tail_cache_bytes() <= self.plan.core.tail_cache_bytes,
            "a core keeps to its budget",
            || format!("{budget:?}"),
        )?;
        if life.ready_at.is_none() && life.core.is_ready() {
            life.ready_at = Some(self.now_us);
        }
        let is_over = life.steps_left == 0;
        if is_over && life.ends_in_order && !life.is_stopping {
            // Long enough to stop, or not.
            let steps = match self.chance.one_in(3) {
                true => self.chance.between(1, 30),
                false => u64::MAX,
            };
            self.deal_all(effects)?;
            return self.stop(steps);
        }
        if is_over {
            let dealt = self.chance.below(effects.len() as u64 + 1) as usize;
            effects.truncate(dealt);
            for effect in effects {
                self.deal(effect)?;
            }
            self.crash();
            return Ok(());
        }
        self.deal_all(effects)?;
        self.finish_stop()
    }

    /// The process is asked to stop, and has so many steps for it.
    pub(super) fn stop(&mut self, steps: u64) -> Checked {
        let now_us = self.now_us;
        if let Some(life) = &mut self.life {
            life.is_stopping = true;
            life.stops_ready = life.core.is_ready();
            life.stops_until_us = now_us + STOP_US_MAX;
            life.steps_left = steps;
        }
        self.note(&[6], || "stop".to_string());
        self.step(Event::Stop)
    }

    fn arm_tick(&mut self) {
        let core_now_us = self.core_now().monotonic.0;
        let Some(life) = &mut self.life else {
            return;
        };
        let wakes_in = life.core.next_wake().0.saturating_sub(core_now_us);
        let wake = self.now_us.saturating_add(wakes_in);
        if wake < life.tick_at {
            life.tick_at = wake;
            let late = self.chance.skewed(20_000);
            let after = wake - self.now_us + late;
            self.schedule(after, Coming::Tick(self.lives));
        }
    }

    fn deal(&mut self, effect: Effect) -> Checked {
        match effect {
            Effect::Disk {
                operation,
                request,
                background,
            } => {
                self.note(&[7, operation.0, u64::from(background)], || {
                    describe::request(operation, &request)
                });
                let partition = request.partition();
                hold(
                    self.ledger.known(partition).is_some(),
                    "a core touches only what it owns",
                    || describe::request(operation, &request),
                )?;
                self.disk.submit(operation, request, &mut self.chance);
                let longest = self.plan.disk_us * if background { 4 } else { 1 };
                let after = self.chance.skewed(longest);
                self.schedule(after, Coming::DiskDone(self.lives, operation));
                Ok(())
            }
            Effect::Reply { id, answer } => {
                self.note(&[8, id.0], || {
                    format!("answers {} {}", id.0, describe::answer(&answer))
                });
                let asked = self.requests.remove(&id);
                hold(asked.is_some(), "a request is answered once", || {
                    format!("request {}", id.0)
                })?;
                match asked {
                    Some(asked) => self.on_answer(id, asked, answer),
                    None => Ok(()),
                }
            }
            Effect::Propose(record) => {
                self.note(&[9], || format!("proposes {}", describe::record(&record)));
                let after = self.chance.skewed(self.plan.metadata_us);
                self.schedule(after, Coming::Proposal(record));
                Ok(())
            }
            Effect::Report(report) => self.on_report(&report),
        }
    }

    fn on_report(&mut self, report: &Report) -> Checked {
        self.note(&[10], || format!("reports {report:?}"));
        match report {
            Report::LogStopped(partition, what) => {
                let excused = self.disk.refused.contains(partition) || !self.is_strict(*partition);
                hold(excused, RULE_STOPPED, || format!("{partition}: {what}"))
            }
            Report::ProducersRebuilt(partition, what) => {
                // A read of the snapshot that failed is such a fault, too.
                let excused = self.disk.refused.contains(partition) || !self.is_strict(*partition);
                hold(
                    excused,
                    "producers are rebuilt only after a fault of their disk",
                    || format!("{partition}: {what}"),
                )
            }
            Report::Recovered {
                partition,
                scanned_bytes,
                ..
            } => {
                let after_clean = self.life.as_ref().is_some_and(|life| life.after_clean_stop);
                let is_strict = self.is_strict(*partition);
                hold(
                    *scanned_bytes == 0 || !after_clean || !is_strict,
                    "after a stop in order nothing is scanned",
                    || format!("{partition}: {scanned_bytes} bytes"),
                )
            }
        }
    }

    /// Power goes, or the process is killed.
    pub(super) fn crash(&mut self) {
        self.note(&[11], || "crashes".to_string());
        self.disk.crash(&mut self.chance);
        self.end_life();
    }

    /// The core of this life is no more. What it proposed may be on its way still.
    fn end_life(&mut self) {
        self.life = None;
        let chance = &mut self.chance;
        self.queue.retain(|_, coming| match coming {
            Coming::Proposal(..) => chance.one_in(2),
            Coming::DiskDone(..) | Coming::Metadata(_) | Coming::Tick(_) => false,
            _ => true,
        });
        for (id, asked) in std::mem::take(&mut self.requests) {
            self.on_lost(id, asked);
        }
        let after = self.chance.skewed(2_000_000);
        self.schedule(after, Coming::Start);
    }

    /// If a stop in order has come to its end the process ends.
    fn finish_stop(&mut self) -> Checked {
        let Some(life) = &self.life else {
            return Ok(());
        };
        if !life.is_stopping {
            return Ok(());
        }
        if !life.core.is_stopped() {
            let phases = || {
                let replicas = life.core.replicas();
                let phases = replicas.map(|one| (one.partition().to_string(), one.log.phase()));
                format!("{:?}", phases.collect::<Vec<_>>())
            };
            return hold(
                self.now_us < life.stops_until_us,
                "a stop in order comes to its end in bounded time",
                phases,
            );
        }
        let waiting = self.requests.iter().find(|(_, asked)| asked.is_fetch());
        hold(
            waiting.is_none(),
            "no fetch waits when a core has stopped",
            || format!("{waiting:?}"),
        )?;
        let all_clean = life
            .core
            .replicas()
            .all(|replica| replica.log.phase() == LogPhase::Stopped);
        self.was_clean_stop = life.stops_ready && all_clean && self.disk.refused.is_empty();
        self.note(&[12], || "has stopped".to_string());
        // Removals of deleted topics may still be on their way.
        self.disk.crash(&mut self.chance);
        self.end_life();
        Ok(())
    }

    fn make_room(&mut self) -> Checked {
        self.disk.is_full = false;
        self.note(&[13], || "there is room again".to_string());
        self.step(Event::DiskLevel(DiskLevel::Normal))
    }

    /// Something is done to disk, clock or topics, by chance.
    fn interfere(&mut self) -> Checked {
        if self.chance.one_in(self.plan.rot_one_in) && self.disk.rot(&mut self.chance) {
            self.note(&[14], || "a stored byte rots".to_string());
        }
        if self.chance.one_in(self.plan.full_one_in) && !self.disk.is_full {
            self.disk.is_full = true;
            self.note(&[15], || "the disk is full".to_string());
            let after = self.chance.skewed(3_000_000);
            self.schedule(after, Coming::Room);
            if self.chance.one_in(2) {
                self.step(Event::DiskLevel(DiskLevel::Full))?;
            }
        }
        if self.chance.one_in(self.plan.wall_step_one_in) {
            let step = self.chance.skewed(36 * 3_600_000);
            self.wall_ms = match self.chance.one_in(2) {
                true => WALL_BASE_MS + step,
                false => WALL_BASE_MS - step,
            };
            self.note(&[16], || "the wall's clock steps".to_string());
        }
        if self.chance.one_in(self.plan.admin_one_in) {
            self.administer();
        }
        Ok(())
    }

    /// The request goes to the core, if there is one.
    pub(super) fn ask(&mut self, request: Request, asked: Asked) -> Checked {
        if self.life.is_none() {
            return Ok(());
        }
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.note(&[17, id.0], || {
            format!("asks {} {}", id.0, describe::asked(&request))
        });
        self.on_asking(id, &asked);
        self.requests.insert(id, asked);
        self.step(Event::Request { id, request })
    }
}
