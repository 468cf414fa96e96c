//! What clients were told about records, and whether it can all be true.
//!
//! Rules of an undamaged partition ([`Ledger::is_strict`]):
//! 1. An offset is given once: never two batches at one offset, nor overlapping.
//! 2. A batch stands once: a repeat is answered with the first offset.
//! 3. Whoever reads an offset reads the same as everyone before, and as was published there.
//! 4. Watermark and log start never go back, and an acknowledged batch lies below the watermark.
//! 5. A producer's batches stand in the order of their sequences, without a gap.
//!
//! A damaged one may lose; it must never serve bytes that were not published to that partition.

use std::collections::BTreeMap;

use bytes::Bytes;
use corelog_batch::{BatchHeader, HEADER_BYTES};
use corelog_engine::identity::PartitionId;
use corelog_engine::metadata::TimestampType;

use super::batches::{Built, Signature, sequence_after};
use super::violation::{Checked, Violation, hold};

/// Names a batch that was sent.
pub type SentIndex = usize;

/// A batch that some client has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Where to.
    pub partition: PartitionId,
    /// What.
    pub built: Built,
    /// At which offset it was acknowledged or seen.
    pub offset: Option<u64>,
    /// Whether a client was told that it is kept.
    pub acknowledged: bool,
    /// Whether the broker's stamp is known, where it stamps.
    pub is_stamped: bool,
}

/// What is known of one partition.
#[derive(Debug, Default)]
pub struct Known {
    /// Batches by offset.
    pub placed: BTreeMap<u64, SentIndex>,
    /// Batches of a topic that the broker writes itself, as they were seen.
    pub internal: BTreeMap<u64, Bytes>,
    /// The highest watermark that anybody was told.
    pub watermark: u64,
    /// The highest log start that anybody was told.
    pub log_start: u64,
    /// One past the last acknowledged record.
    pub acknowledged_end: u64,
    /// The core has heard that the topic is gone.
    pub is_deleted: bool,
    /// Whether records may go by age or size.
    pub may_retain: bool,
    /// Whether the broker stamps the records.
    pub is_stamped: bool,
    is_internal: bool,
    damaged: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    sent: Vec<Sent>,
    by_body: BTreeMap<(u32, usize), Vec<SentIndex>>,
    partitions: BTreeMap<PartitionId, Known>,
}

fn body_print(bytes: &[u8]) -> (u32, usize) {
    let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
    (crc32c::crc32c(body), bytes.len())
}

/// Whether these are the same batch, but for what the broker stamps.
fn is_same(published: &[u8], served: &[u8], is_stamped: bool) -> bool {
    // Base offset and leader epoch are the broker's.
    let length = 8..12;
    let rest = 16..published.len();
    if published.len() != served.len() || published[length.clone()] != served[length] {
        return false;
    }
    if !is_stamped {
        return published[rest.clone()] == served[rest];
    }
    // So are checksum, the flag for append time and the largest stamp.
    let kept = [16..17, 23..35, 43..published.len()];
    kept.into_iter()
        .all(|range| published[range.clone()] == served[range])
        && published[21] == served[21]
        && published[22] == served[22] & !8
}

impl Ledger {
    /// A partition that exists from now on.
    pub fn open(
        &mut self,
        partition: PartitionId,
        is_internal: bool,
        may_retain: bool,
        stamps: TimestampType,
    ) {
        let known = self.partitions.entry(partition).or_default();
        known.is_internal = is_internal;
        known.may_retain |= may_retain;
        known.is_stamped = stamps == TimestampType::LogAppendTime;
    }

    /// The core has heard that the partition's topic is gone.
    pub fn delete(&mut self, partition: PartitionId) {
        if let Some(known) = self.partitions.get_mut(&partition) {
            known.is_deleted = true;
        }
    }

    /// Something of the partition's files was damaged: what it lost it may lose.
    pub fn damage(&mut self, partition: PartitionId) {
        if let Some(known) = self.partitions.get_mut(&partition) {
            known.damaged = true;
        }
    }

    /// Whether the partition must keep every promise.
    pub fn is_strict(&self, partition: PartitionId) -> bool {
        self.partitions
            .get(&partition)
            .is_some_and(|known| !known.damaged)
    }

    /// What is known of a partition.
    pub fn known(&self, partition: PartitionId) -> Option<&Known> {
        self.partitions.get(&partition)
    }

    /// All partitions, in order.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Known)> {
        self.partitions.iter().map(|(id, known)| (*id, known))
    }

    /// A batch that was sent.
    pub fn sent(&self, index: SentIndex) -> &Sent {
        &self.sent[index]
    }

    /// How many batches were made so far.
    pub fn next_tag(&self) -> u64 {
        self.sent.len() as u64
    }

    /// A client is about to send this, now or later, once or again.
    pub fn send(&mut self, partition: PartitionId, built: Built) -> SentIndex {
        let index = self.sent.len();
        let print = body_print(&built.bytes);
        self.by_body.entry(print).or_default().push(index);
        self.sent.push(Sent {
            partition,
            built,
            offset: None,
            acknowledged: false,
            is_stamped: false,
        });
        index
    }

    /// A client was told that these batches are kept, from this offset on.
    ///
    /// # Errors
    /// If that contradicts what is known.
    pub fn acknowledge(
        &mut self,
        batches: &[SentIndex],
        first_offset: u64,
        log_start: u64,
    ) -> Checked {
        let mut offset = first_offset;
        for index in batches {
            let partition = self.sent[*index].partition;
            self.place(partition, offset, *index)?;
            self.sent[*index].acknowledged = true;
            offset += self.sent[*index].built.stamps.len() as u64;
            if let Some(known) = self.partitions.get_mut(&partition) {
                hold(!known.is_deleted, "a deleted topic keeps nothing", || {
                    format!("{partition} acknowledged offset {first_offset}")
                })?;
                known.acknowledged_end = known.acknowledged_end.max(offset);
            }
        }
        let Some(partition) = batches.first().map(|index| self.sent[*index].partition) else {
            return Ok(());
        };
        self.see_log_start(partition, log_start)
    }

    /// Somebody was told a log start. Answers carry the one of the moment they were decided, which
    /// may be older than others'.
    fn see_log_start(&mut self, partition: PartitionId, log_start: u64) -> Checked {
        if let Some(known) = self.partitions.get_mut(&partition) {
            hold(
                log_start == 0 || known.may_retain || known.is_internal,
                "nothing is retained away that should be kept",
                || format!("log start {log_start} of {partition}"),
            )?;
            known.log_start = known.log_start.max(log_start);
        }
        Ok(())
    }

    /// Somebody was told watermark and log start, as they are now.
    ///
    /// # Errors
    /// If one of them went back.
    pub fn see_ends(&mut self, partition: PartitionId, log_start: u64, watermark: u64) -> Checked {
        let Some(known) = self.partitions.get_mut(&partition) else {
            return Ok(());
        };
        if !known.damaged {
            hold(
                watermark >= known.watermark,
                "a watermark never goes back",
                || format!("{partition}: {watermark} after {}", known.watermark),
            )?;
            hold(
                log_start >= known.log_start,
                "a log start never goes back",
                || format!("{partition}: {log_start} after {}", known.log_start),
            )?;
            hold(
                watermark >= known.acknowledged_end,
                "what is acknowledged lies below the watermark",
                || {
                    format!(
                        "{partition}: watermark {watermark}, acknowledged up to {}",
                        known.acknowledged_end
                    )
                },
            )?;
        }
        hold(
            log_start <= watermark,
            "the log start is not above the watermark",
            || format!("{partition}: {log_start} and {watermark}"),
        )?;
        known.watermark = watermark;
        self.see_log_start(partition, log_start)
    }

    /// As [`Ledger::see_ends`], for an answer whose parts were decided at several moments: they may
    /// be older than what others were told, but never below what was acknowledged or served.
    ///
    /// # Errors
    /// If they went back behind that.
    pub fn see_ends_lately(
        &mut self,
        partition: PartitionId,
        log_start: u64,
        watermark: u64,
    ) -> Checked {
        let Some(known) = self.partitions.get(&partition) else {
            return Ok(());
        };
        let newest_start = known.log_start;
        let newest = known.watermark.max(known.acknowledged_end);
        self.see_ends(
            partition,
            log_start.max(newest_start).min(watermark.max(newest)),
            watermark.max(newest),
        )
    }

    /// A reader was served these bytes for `asked`; gives the offset behind them.
    ///
    /// # Errors
    /// If they are not what stands there, or not one behind the other.
    pub fn read(
        &mut self,
        partition: PartitionId,
        asked: u64,
        watermark: u64,
        pieces: &[Bytes],
    ) -> Result<u64, Violation> {
        let mut next = None;
        for piece in pieces {
            for batch in corelog_batch::batches(piece.clone()) {
                let (header, bytes) = batch.map_err(|error| {
                    Violation::new(
                        "whole batches are served",
                        format!("{partition} at {asked}: {error}"),
                    )
                })?;
                next = Some(self.read_batch(partition, asked, watermark, next, &header, &bytes)?);
            }
        }
        Ok(next.unwrap_or(asked))
    }

    fn read_batch(
        &mut self,
        partition: PartitionId,
        asked: u64,
        watermark: u64,
        next: Option<u64>,
        header: &BatchHeader,
        bytes: &Bytes,
    ) -> Result<u64, Violation> {
        let base = header.base_offset as u64;
        let end = header.next_offset() as u64;
        let at = || format!("{partition}: batch {base}..{end} for {asked}");
        corelog_batch::verify_stored_batch(bytes)
            .map_err(|error| Violation::new("good batches are served", format!("{error}")))?;
        match next {
            Some(next) => hold(base == next, "offsets are dense", at)?,
            None => hold(
                base <= asked && asked < end,
                "the first batch contains the offset that was asked for",
                at,
            )?,
        }
        hold(
            end <= watermark,
            "only what is below the watermark is served",
            || format!("{} above {watermark}", at()),
        )?;
        if self.known(partition).is_some_and(|known| known.is_internal) {
            self.see_internal(partition, base, bytes)?;
            return Ok(end);
        }
        let index = self.find(partition, bytes).ok_or_else(|| {
            Violation::new(
                "what is served was published there",
                format!("{} was never sent", at()),
            )
        })?;
        self.place(partition, base, index)?;
        if self.known(partition).is_some_and(|known| known.is_stamped) {
            self.stamp(&[index], header.max_timestamp_ms);
        }
        Ok(end)
    }

    fn see_internal(&mut self, partition: PartitionId, base: u64, bytes: &Bytes) -> Checked {
        let Some(known) = self.partitions.get_mut(&partition) else {
            return Ok(());
        };
        let seen = known.internal.get(&base);
        let is_same = known.damaged || seen.is_none_or(|seen| seen == bytes);
        hold(is_same, "whoever reads an offset reads the same", || {
            format!("{partition} at {base} has changed")
        })?;
        known.internal.insert(base, bytes.clone());
        Ok(())
    }

    fn find(&self, partition: PartitionId, bytes: &[u8]) -> Option<SentIndex> {
        let is_stamped = self.known(partition)?.is_stamped;
        let candidates = self.by_body.get(&body_print(bytes))?;
        candidates.iter().copied().find(|index| {
            let sent = &self.sent[*index];
            sent.partition == partition && is_same(&sent.built.bytes, bytes, is_stamped)
        })
    }

    /// The batch stands at this offset.
    fn place(&mut self, partition: PartitionId, offset: u64, index: SentIndex) -> Checked {
        let Some(known) = self.partitions.get_mut(&partition) else {
            return Ok(());
        };
        let records = self.sent[index].built.stamps.len() as u64;
        if known.damaged {
            known.placed.insert(offset, index);
            self.sent[index].offset = Some(offset);
            return Ok(());
        }
        let stands = self.sent[index].offset;
        hold(
            stands.is_none_or(|stands| stands == offset),
            "a batch stands once",
            || format!("{partition}: batch {index} at {offset} and {stands:?}"),
        )?;
        let before = known.placed.range(..=offset).next_back();
        let is_clear = before.is_none_or(|(at, other)| {
            *at + self.sent[*other].built.stamps.len() as u64 <= offset
                || (*at == offset && *other == index)
        });
        let after = known.placed.range(offset + 1..).next();
        let is_clear = is_clear && after.is_none_or(|(at, _)| offset + records <= *at);
        hold(is_clear, "an offset is given once", || {
            format!(
                "{partition}: batch {index} ({records} records) at {offset}, between {before:?} and {after:?}"
            )
        })?;
        known.placed.insert(offset, index);
        self.sent[index].offset = Some(offset);
        Ok(())
    }

    /// The broker has stamped these.
    pub fn stamp(&mut self, batches: &[SentIndex], stamp_ms: i64) {
        for index in batches {
            let sent = &mut self.sent[*index];
            sent.built.stamps.fill(stamp_ms);
            sent.is_stamped = true;
        }
    }

    /// Whether everything from log start to watermark is known, batch by batch, stamps included.
    pub fn is_whole_with_stamps(&self, partition: PartitionId, from: u64, to: u64) -> bool {
        let Some(known) = self.known(partition) else {
            return false;
        };
        let mut placed = known.placed.values();
        self.is_whole(partition, from, to)
            && (!known.is_stamped || placed.all(|index| self.sent[*index].is_stamped))
    }

    /// Whether everything from log start to watermark is known, batch by batch.
    pub fn is_whole(&self, partition: PartitionId, from: u64, to: u64) -> bool {
        let Some(known) = self.known(partition) else {
            return false;
        };
        let containing = known.placed.range(..=from).next_back();
        let begin = containing.map_or(from, |(at, _)| *at);
        let mut next = from;
        for (at, index) in known.placed.range(begin..) {
            if *at > next || next >= to {
                break;
            }
            next = next.max(at + self.sent[*index].built.stamps.len() as u64);
        }
        next >= to
    }

    /// The records from `from` up to `to` with their stamps, as far as they are known.
    pub fn stamps(
        &self,
        partition: PartitionId,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, i64)> {
        let placed = self
            .known(partition)
            .into_iter()
            .flat_map(|known| &known.placed);
        placed
            .flat_map(|(at, index)| (*at..).zip(self.sent[*index].built.stamps.iter().copied()))
            .filter(move |(offset, _)| (from..to).contains(offset))
    }

    /// Every acknowledged batch of a partition was found in a reading of all of it, from `start` on:
    /// the batches of each producer follow each other.
    ///
    /// # Errors
    /// If something is missing.
    pub fn check_whole(&self, partition: PartitionId, start: u64, end: u64) -> Checked {
        let Some(known) = self.known(partition) else {
            return Ok(());
        };
        if known.damaged || known.is_internal {
            return Ok(());
        }
        hold(
            self.is_whole(partition, start, end),
            "offsets are dense",
            || format!("{partition} from {start} to {end}"),
        )?;
        let mut newest: BTreeMap<(i64, i16), (i32, u64)> = BTreeMap::new();
        for (at, index) in &known.placed {
            let Some(signature) = self.sent[*index].built.signature else {
                continue;
            };
            let Signature {
                id,
                epoch,
                sequence,
            } = signature;
            let records = self.sent[*index].built.stamps.len();
            let next = sequence_after(sequence, records);
            if let Some((expected, before)) = newest.insert((id, epoch), (next, *at)) {
                // Those in between may have gone by retention before anybody saw them.
                let is_next = expected == sequence || before < start;
                hold(
                    is_next,
                    "a producer's batches stand in order, without a gap",
                    || {
                        format!(
                            "{partition}: producer {id} epoch {epoch}: sequence {sequence} at {at} where {expected} belongs"
                        )
                    },
                )?;
            }
        }
        Ok(())
    }
}
