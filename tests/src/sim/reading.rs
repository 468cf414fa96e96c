//! Readers: fetches that go on and that jump, long polls, look-ups by time, descriptions.

use std::collections::BTreeMap;

use corelog_engine::effect::Event;
use corelog_engine::identity::{Offset, PartitionId};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{
    Answer, Fetch, FetchPartition, FetchRefusal, Fetched, FindOffset, OffsetQuery, Request,
    RequestId, Response,
};
use corelog_engine::time::Monotonic;

use super::asked::Asked;
use super::clients::{mismatched, unexpected};
use super::teeth::Tooth;
use super::violation::{Checked, hold};
use super::world::World;

/// A reader of any partition.
#[derive(Debug, Default)]
pub(super) struct Reader {
    positions: BTreeMap<PartitionId, u64>,
    pub waits_for: Option<RequestId>,
}

impl World {
    pub(super) fn read(&mut self, client: usize) -> Checked {
        let waits_for = self
            .clients
            .reader(client)
            .and_then(|reader| reader.waits_for);
        if let Some(id) = waits_for {
            if self.chance.one_in(10) {
                self.note(&[18, id.0], || format!("hurries {}", id.0));
                return self.step(Event::Hurry(id));
            }
            return Ok(());
        }
        if self.is_ending {
            return Ok(());
        }
        // Also of partitions that are gone.
        let all: Vec<PartitionId> = self.ledger.partitions().map(|(id, _)| id).collect();
        if all.is_empty() {
            return Ok(());
        }
        match self.chance.below(10) {
            0..7 => self.fetch(client, &all),
            7 | 8 => {
                let partition = self.chance.pick(&all);
                self.look_up(partition)
            }
            _ => {
                let partition = self.chance.pick(&all);
                self.ask(
                    Request::DescribePartition(partition),
                    Asked::Describe { partition },
                )
            }
        }
    }

    fn fetch(&mut self, client: usize, all: &[PartitionId]) -> Checked {
        let mut partitions: Vec<FetchPartition> = Vec::new();
        for _ in 0..self.chance.between(1, 3) {
            let partition = self.chance.pick(all);
            if partitions.iter().any(|one| one.partition == partition) {
                continue;
            }
            let watermark = self
                .ledger
                .known(partition)
                .map_or(0, |known| known.watermark);
            let jump = self.chance.below(watermark + 3);
            let Some(reader) = self.clients.reader(client) else {
                return Ok(());
            };
            let position = reader.positions.entry(partition).or_insert(jump);
            if self.chance.one_in(8) {
                *position = jump;
            }
            partitions.push(FetchPartition {
                partition,
                offset: Offset(*position),
                bytes_max: self.chance.pick(&[1, 3_000, 20_000, 300_000]),
                leader_epoch: None,
                last_fetched_epoch: None,
            });
        }
        let wait_ms = self.chance.pick(&[0, 0, 100, 2_000]);
        let fetch = Fetch {
            partitions,
            bytes_min: self.chance.pick(&[0, 1, 10_000]),
            bytes_max: self.chance.pick(&[4_000, 500_000]),
            wait_until: Monotonic(self.now_us).plus_ms(wait_ms),
        };
        self.ask_fetch(client, fetch)
    }

    pub(super) fn ask_fetch(&mut self, client: usize, fetch: Fetch) -> Checked {
        let partitions = fetch.partitions.clone();
        let is_gone = |id: &PartitionId| self.ledger.known(*id).is_some_and(|one| one.is_deleted);
        let gone = partitions.iter().map(|one| one.partition).filter(is_gone);
        let asked = Asked::Fetch {
            client,
            gone: gone.collect(),
            partitions,
        };
        self.ask(Request::Fetch(fetch), asked)
    }

    pub(super) fn on_fetched(
        &mut self,
        client: usize,
        asked: &[FetchPartition],
        gone: &[PartitionId],
        answer: Answer,
    ) -> Checked {
        if let Some(reader) = self.clients.reader(client) {
            reader.waits_for = None;
        }
        let parts = match answer {
            Ok(Response::Fetched(parts)) => parts,
            Ok(other) => return Err(mismatched(&other)),
            Err(Rejection::Overloaded) => return Ok(()),
            Err(other) => return Err(unexpected(asked[0].partition, other)),
        };
        hold(
            parts.len() == asked.len(),
            "every partition of a fetch is answered",
            || format!("{} of {}", parts.len(), asked.len()),
        )?;
        for (part, asked) in parts.iter().zip(asked) {
            let next = match &part.result {
                Ok(fetched) => Some(self.on_part(asked, gone, fetched)?),
                Err(refusal) => self.on_part_refused(client, asked, refusal)?,
            };
            self.read_answer = next;
            if let (Some(next), Some(reader)) = (next, self.clients.reader(client)) {
                reader.positions.insert(asked.partition, next);
            }
        }
        Ok(())
    }

    /// Gives the offset to go on from.
    pub(super) fn on_part(
        &mut self,
        asked: &FetchPartition,
        gone: &[PartitionId],
        fetched: &Fetched,
    ) -> Result<u64, super::violation::Violation> {
        let partition = asked.partition;
        self.is_strict(partition);
        // What was gathered before the topic went may go out after.
        hold(
            !gone.contains(&partition),
            "a deleted topic serves nothing",
            || partition.to_string(),
        )?;
        let (start, watermark) = (fetched.log_start.get(), fetched.watermark.get());
        // Parts of one answer may have been gathered one after the other.
        self.ledger.see_ends_lately(partition, start, watermark)?;
        let mut batches = fetched.batches.clone();
        if self.breaks(Tooth::ServesTooLittle) && batches.len() > 1 {
            batches.remove(batches.len() - 2);
        }
        self.ledger
            .read(partition, asked.offset.get(), watermark, &batches)
    }

    fn on_part_refused(
        &mut self,
        client: usize,
        asked: &FetchPartition,
        refusal: &FetchRefusal,
    ) -> Result<Option<u64>, super::violation::Violation> {
        let partition = asked.partition;
        let is_strict = self.is_strict(partition);
        match refusal.rejection {
            Rejection::NotLeader | Rejection::UnknownTopicOrPartition => Ok(None),
            Rejection::StorageError => {
                let excused = !is_strict || self.disk.refused.contains(&partition);
                hold(excused, "a sound partition serves its readers", || {
                    format!("{asked:?}: {refusal:?}")
                })?;
                Ok(None)
            }
            Rejection::OffsetOutOfRange => {
                let (start, watermark) = match (refusal.log_start, refusal.watermark) {
                    (Some(start), Some(watermark)) => (start.get(), watermark.get()),
                    _ => (0, 0),
                };
                self.ledger.see_ends_lately(partition, start, watermark)?;
                let asked_for = asked.offset.get();
                hold(
                    !is_strict || asked_for < start || asked_for > watermark,
                    "an offset between log start and watermark is in range",
                    || format!("{asked:?}: {refusal:?}"),
                )?;
                match client {
                    usize::MAX => Ok(Some(start)),
                    _ => Ok(Some(self.chance.between(start, watermark))),
                }
            }
            other => Err(unexpected(partition, other)),
        }
    }

    fn look_up(&mut self, partition: PartitionId) -> Checked {
        let ends = self
            .life
            .as_ref()
            .and_then(|life| life.core.describe(partition));
        let ends = ends.map(|ends| (ends.log_start.get(), ends.watermark.get()));
        let (start, watermark) = ends.unwrap_or((0, 0));
        let stamps: Vec<(u64, i64)> = self.ledger.stamps(partition, start, watermark).collect();
        let by = if self.chance.one_in(3) || stamps.is_empty() {
            OffsetQuery::MaxTimestamp
        } else {
            let (_, near) = self.chance.pick(&stamps);
            let time_ms = near + self.chance.below(3) as i64 - 1;
            OffsetQuery::AtOrAfterMs(time_ms.max(0) as u64)
        };
        let is_known = self
            .ledger
            .is_whole_with_stamps(partition, start, watermark)
            && self.is_strict(partition);
        let found = is_known.then(|| PlainScan {
            by,
            start,
            watermark,
            found: scan(&stamps, by),
        });
        let find = FindOffset {
            partition,
            by,
            leader_epoch: None,
        };
        self.ask(
            Request::FindOffset(find),
            Asked::LookUp { partition, found },
        )
    }

    pub(super) fn on_looked_up(
        &mut self,
        partition: PartitionId,
        expected: Option<PlainScan>,
        answer: Answer,
    ) -> Checked {
        let found = match answer {
            Ok(Response::OffsetFound(found)) => found,
            Ok(other) => return Err(mismatched(&other)),
            Err(
                Rejection::NotLeader | Rejection::UnknownTopicOrPartition | Rejection::Overloaded,
            ) => return Ok(()),
            Err(Rejection::StorageError) => {
                let excused = !self.is_strict(partition) || self.disk.refused.contains(&partition);
                return hold(excused, "a sound partition serves its readers", || {
                    format!("{partition}: look-up")
                });
            }
            Err(other) => return Err(unexpected(partition, other)),
        };
        let Some(expected) = expected else {
            return Ok(());
        };
        let found = found
            .offset
            .zip(found.timestamp_ms)
            .map(|(offset, stamp)| (offset.get(), stamp as i64));
        hold(
            found == expected.found
                || !self.is_strict(partition)
                || self.was_true_meanwhile(partition, &expected, found),
            "a look-up by time finds what a plain scan finds",
            || format!("{partition}: {found:?}, but {expected:?}"),
        )
    }

    /// A look-up that had to wait for others finds what a plain scan finds at the moment it begins, which
    /// may be any between question and answer.
    fn was_true_meanwhile(
        &self,
        partition: PartitionId,
        asked: &PlainScan,
        found: Option<(u64, i64)>,
    ) -> bool {
        let life = self.life.as_ref();
        let Some(ends) = life.and_then(|life| life.core.describe(partition)) else {
            return false;
        };
        let (start, watermark) = (ends.log_start.get(), ends.watermark.get());
        if !self
            .ledger
            .is_whole_with_stamps(partition, asked.start, watermark)
        {
            return true;
        }
        let stamps: Vec<(u64, i64)> = self
            .ledger
            .stamps(partition, asked.start, watermark)
            .collect();
        let is_true = |from: u64, to: u64| {
            let within: Vec<(u64, i64)> = stamps
                .iter()
                .filter(|(offset, _)| (from..to).contains(offset))
                .copied()
                .collect();
            scan(&within, asked.by) == found
        };
        [asked.start, start]
            .into_iter()
            .any(|from| (asked.watermark..=watermark).any(|to| is_true(from, to)))
    }

    pub(super) fn on_described(&mut self, partition: PartitionId, answer: Answer) -> Checked {
        self.is_strict(partition);
        match answer {
            Ok(Response::Partition(ends)) => {
                let (start, watermark) = (ends.log_start.get(), ends.watermark.get());
                self.ledger.see_ends(partition, start, watermark)
            }
            Ok(other) => Err(mismatched(&other)),
            Err(
                Rejection::NotLeader | Rejection::UnknownTopicOrPartition | Rejection::StorageError,
            ) => Ok(()),
            Err(other) => Err(unexpected(partition, other)),
        }
    }
}

/// What a plain scan found when a look-up was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainScan {
    by: OffsetQuery,
    start: u64,
    watermark: u64,
    found: Option<(u64, i64)>,
}

/// What a plain scan finds.
fn scan(stamps: &[(u64, i64)], by: OffsetQuery) -> Option<(u64, i64)> {
    match by {
        OffsetQuery::AtOrAfterMs(time_ms) => stamps
            .iter()
            .find(|(_, stamp)| *stamp >= time_ms as i64)
            .copied(),
        _ => stamps
            .iter()
            .max_by_key(|(offset, stamp)| (*stamp, std::cmp::Reverse(*offset)))
            .copied(),
    }
}
