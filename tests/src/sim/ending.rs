//! The end of a run: faults cease, and within bounded time everything must be well again.

use corelog_engine::disk::DiskLevel;
use corelog_engine::effect::Event;
use corelog_engine::identity::{Offset, PartitionId};
use corelog_engine::log::LogPhase;
use corelog_engine::request::{Fetch, FetchPartition};
use corelog_engine::time::Monotonic;

use super::asked::Asked;
use super::faults::Faults;
use super::violation::{Checked, hold};
use super::world::{Life, World};

/// How long anything may take once nothing is wrong, in microseconds.
const PATIENCE_US: u64 = 120_000_000;

impl World {
    /// Faults cease; everything must come right.
    ///
    /// # Errors
    /// The first rule that did not hold.
    pub fn end(&mut self) -> Checked {
        self.note(&[19], || "from here on nothing goes wrong".to_string());
        self.is_ending = true;
        self.disk.faults = Faults::default();
        self.disk.is_full = false;
        self.revive();
        self.settle()?;
        self.wait("every publish is settled", |world| {
            world.undone_producer().is_none()
        })?;
        for partition in self.living() {
            self.probe(partition)?;
        }
        self.check_all()?;
        // And once more, from the disk alone.
        if self.chance.one_in(2) {
            self.crash();
        } else {
            let lives = self.lives();
            self.stop(u64::MAX)?;
            self.wait("the process stops", |world| {
                world.life.is_none() || world.lives() > lives
            })?;
        }
        self.settle()?;
        self.check_all()
    }

    fn settle(&mut self) -> Checked {
        self.wait("the core becomes ready", |world| {
            let is_ready = |life: &Life| life.core.is_ready();
            world.has_heard_all() && world.life.as_ref().is_some_and(is_ready)
        })?;
        self.step(Event::DiskLevel(DiskLevel::Normal))?;
        self.check_phases()
    }

    fn check_all(&mut self) -> Checked {
        self.wait("every fetch is answered", |world| {
            world.requests.values().all(|asked| !asked.is_fetch())
        })?;
        for partition in self.readable() {
            self.read_all(partition)?;
        }
        self.check_groups()?;
        self.check_budget()
    }

    /// A process that was stopped by a fault, or is about to end, ends and starts again.
    fn revive(&mut self) {
        let Some(life) = &mut self.life else {
            return;
        };
        let has_stopped = life
            .core
            .replicas()
            .any(|replica| matches!(replica.log.phase(), LogPhase::Failed | LogPhase::Corrupt));
        if has_stopped || life.is_stopping || !self.disk.refused.is_empty() || self.chance.one_in(2)
        {
            self.crash();
        } else if let Some(life) = &mut self.life {
            life.live_on();
        }
    }

    /// Lets things happen until `is_done`.
    fn wait(&mut self, what: &'static str, mut is_done: impl FnMut(&mut Self) -> bool) -> Checked {
        let until = self.now_us + PATIENCE_US;
        while !is_done(self) {
            let goes_on = self.now_us < until && self.happen()?;
            hold(
                goes_on,
                "once faults have ceased everything comes right in bounded time",
                || {
                    format!(
                        "{what}: not within {} s; {}",
                        PATIENCE_US / 1_000_000,
                        self.standing()
                    )
                },
            )?;
        }
        Ok(())
    }

    fn standing(&self) -> String {
        let Some(life) = &self.life else {
            return "no process".to_string();
        };
        let logs: Vec<String> = life
            .core
            .replicas()
            .map(|replica| {
                format!(
                    "{} {:?} {:?}",
                    replica.partition(),
                    replica.log.phase(),
                    replica.describe()
                )
            })
            .collect();
        format!("ready: {}; {}", life.core.is_ready(), logs.join("; "))
    }

    fn check_phases(&mut self) -> Checked {
        let Some(life) = &self.life else {
            return Ok(());
        };
        let phases: Vec<(PartitionId, LogPhase)> = life
            .core
            .replicas()
            .map(|replica| (replica.partition(), replica.log.phase()))
            .collect();
        for (partition, phase) in phases {
            let is_strict = self.is_strict(partition);
            hold(
                phase == LogPhase::Ready || !is_strict,
                "a partition that was not damaged is served after a start",
                || format!("{partition} is {phase:?}"),
            )?;
        }
        Ok(())
    }

    /// Partitions of clients' topics that must be served.
    fn living(&mut self) -> Vec<PartitionId> {
        let topics = self.control.image.topics().filter(|topic| !topic.internal);
        let all: Vec<PartitionId> = topics
            .flat_map(|topic| topic.iter().map(|(id, _)| id))
            .collect();
        all.into_iter()
            .filter(|partition| self.is_strict(*partition))
            .collect()
    }

    /// Partitions whose logs can be read, damaged or not.
    fn readable(&self) -> Vec<PartitionId> {
        let replicas = self.life.iter().flat_map(|life| life.core.replicas());
        replicas
            .filter(|replica| replica.check_readable().is_ok())
            .map(|replica| replica.partition())
            .collect()
    }

    /// A new batch is taken.
    fn probe(&mut self, partition: PartitionId) -> Checked {
        let sent = self.build_anonymous(partition, 1);
        let until = self.now_us + PATIENCE_US;
        let asked = Asked::Publish {
            client: usize::MAX,
            partition,
            batches: sent.clone(),
            is_fenced: false,
        };
        // Nobody signs it, so it is sent once: its deadline lies beyond all patience.
        self.publish(partition, &sent, asked)?;
        let is_open = |world: &Self| {
            let mut asked = world.requests.values();
            asked.any(|asked| {
                matches!(
                    asked,
                    Asked::Publish {
                        client: usize::MAX,
                        ..
                    }
                )
            })
        };
        while is_open(self) && self.now_us < until && self.happen()? {}
        hold(
            self.ledger.sent(sent[0]).acknowledged,
            "a partition that was not damaged takes publishes",
            || format!("{partition}; {}", self.standing()),
        )
    }

    /// Everything from log start to watermark is read and compared.
    fn read_all(&mut self, partition: PartitionId) -> Checked {
        let ends = self
            .life
            .as_ref()
            .and_then(|life| life.core.describe(partition));
        let Some(ends) = ends else {
            return Ok(());
        };
        let is_strict = self.is_strict(partition);
        self.ledger
            .see_ends(partition, ends.log_start.get(), ends.watermark.get())?;
        let mut next = ends.log_start.get();
        for _ in 0..100_000 {
            if next >= ends.watermark.get() {
                break;
            }
            let before = next;
            let asked = FetchPartition {
                partition,
                offset: Offset(next),
                bytes_max: 256 << 10,
                leader_epoch: None,
                last_fetched_epoch: None,
            };
            let fetch = Fetch {
                partitions: vec![asked],
                bytes_min: 0,
                bytes_max: 256 << 10,
                wait_until: Monotonic(self.now_us),
            };
            self.read_answer = None;
            self.ask_fetch(usize::MAX, fetch)?;
            self.wait("a fetch is answered", |world| {
                world.requests.values().all(|asked| !asked.is_fetch())
            })?;
            next = self.read_answer.unwrap_or(next);
            if next == before {
                // Room for a read may be missing for a moment; a damaged partition may refuse.
                hold(!is_strict, "what is below the watermark is served", || {
                    format!("{partition} at {next} of {:?}", ends)
                })?;
                return Ok(());
            }
        }
        // Retention may have moved on meanwhile.
        let start = self
            .ledger
            .known(partition)
            .map_or(0, |known| known.log_start);
        self.ledger
            .check_whole(partition, start, ends.watermark.get())
    }

    fn check_groups(&mut self) -> Checked {
        for client in 0..self.clients.len() {
            let Some(group) = self.clients.member(client).map(|member| member.group()) else {
                continue;
            };
            let coordinator = self.control.image.group_coordinator(group);
            if !coordinator.is_some_and(|partition| self.is_strict(partition)) {
                continue;
            }
            self.offsets_shown = 0;
            self.ask_offsets(client, group)?;
            self.wait("a coordinator answers", |world| {
                !world
                    .requests
                    .values()
                    .any(|asked| matches!(asked, Asked::Committed { .. }))
            })?;
            hold(
                self.offsets_shown > 0,
                "a coordinator that was not damaged serves its groups",
                || format!("{group}; {}", self.standing()),
            )?;
            self.wait("a member is inside its group", |world| {
                let member = world.clients.member(client);
                member.is_some_and(|member| member.is_settled())
            })?;
        }
        Ok(())
    }

    /// What was taken of the budget for reads is given back.
    fn check_budget(&mut self) -> Checked {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        let used = life.core.budget().used_bytes();
        let kept = life.core.tail_cache_bytes();
        hold(
            used == kept,
            "what was reserved for reads is given back",
            || format!("{used} bytes reserved, {kept} in the tail cache"),
        )
    }
}
