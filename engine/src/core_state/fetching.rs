//! Fetches: served from memory or disk, or parked until there is something.

use alloc::vec::Vec;

use bytes::Bytes;

use super::epochs::{EpochHistory, divergence};
use super::{CoreState, ReadPurpose};
use crate::effect::Effects;
use crate::identity::{Offset, PartitionId};
use crate::limits::{FETCH_BYTES_MAX, FETCHES_WAITING_PER_CORE_MAX};
use crate::log::{LogFault, Pieces, ReadId, Started};
use crate::rejection::Rejection;
use crate::replica::{Replica, queue, rejection_of};
use crate::request::{
    EpochEnd, Fetch, FetchPartition, FetchRefusal, Fetched, FetchedPartition, RequestId, Response,
};
use crate::time::Now;

/// A fetch that has begun and is not answered.
#[derive(Debug)]
pub(super) struct FetchInWork {
    fetch: Fetch,
    slots: Vec<Slot>,
    pending: usize,
    hurried: bool,
    /// Bytes appended to its partitions since it was parked.
    news_bytes: usize,
}

#[derive(Debug)]
enum Slot {
    Pending,
    Done(Result<Fetched, FetchRefusal>),
}

/// What a round over a fetch's partitions has left of its allowance.
struct Allowance {
    left_bytes: usize,
    gathered_bytes: usize,
}

impl CoreState {
    pub(super) fn on_fetch(
        &mut self,
        id: RequestId,
        fetch: Fetch,
        now: Now,
        effects: &mut Effects,
    ) {
        if self.fetches.len() >= FETCHES_WAITING_PER_CORE_MAX {
            return self.reply(id, Err(Rejection::Overloaded), effects);
        }
        let work = FetchInWork {
            slots: Vec::new(),
            pending: 0,
            hurried: self.stopping,
            news_bytes: 0,
            fetch,
        };
        self.serve(id, work, now, effects);
    }

    /// Goes over the partitions once; then answers, waits for the disk, or parks.
    fn serve(&mut self, id: RequestId, mut work: FetchInWork, now: Now, effects: &mut Effects) {
        let mut allowance = Allowance {
            left_bytes: work.fetch.bytes_max.min(FETCH_BYTES_MAX),
            gathered_bytes: 0,
        };
        work.slots.clear();
        work.pending = 0;
        for index in 0..work.fetch.partitions.len() {
            let asked = work.fetch.partitions[index];
            let slot = self.serve_partition(id, index, &asked, &mut allowance, effects);
            work.pending += usize::from(matches!(slot, Slot::Pending));
            work.slots.push(slot);
        }
        if work.pending > 0 {
            self.fetches.insert(id, work);
        } else {
            self.answer_or_park(id, work, now, effects);
        }
    }

    fn serve_partition(
        &mut self,
        id: RequestId,
        index: usize,
        asked: &FetchPartition,
        allowance: &mut Allowance,
        effects: &mut Effects,
    ) -> Slot {
        let absent = self.absent(asked.partition);
        let Some(replica) = self.replicas.get_mut(&asked.partition) else {
            return Slot::Done(Err(FetchRefusal {
                rejection: absent,
                log_start: None,
                watermark: None,
            }));
        };
        match check_range(replica, asked) {
            Ok(None) => {}
            Ok(Some(diverging)) => {
                return Slot::Done(Ok(Fetched {
                    diverging: Some(diverging),
                    ..fetched(replica, Pieces::new())
                }));
            }
            Err(rejection) => return Slot::Done(Err(refusal(replica, rejection))),
        }
        let bytes_max = asked.bytes_max.min(allowance.left_bytes);
        let watermark = replica.watermark();
        if asked.offset >= watermark || bytes_max == 0 {
            return Slot::Done(Ok(fetched(replica, Pieces::new())));
        }
        if let Some(pieces) = replica.read_tail(asked.offset, bytes_max, watermark) {
            self.counters.tail_reads += 1;
            allowance.take(pieces.iter().map(Bytes::len).sum());
            return Slot::Done(Ok(fetched(replica, pieces)));
        }
        self.serve_from_disk(id, index, asked, bytes_max, allowance, effects)
    }

    fn serve_from_disk(
        &mut self,
        id: RequestId,
        index: usize,
        asked: &FetchPartition,
        bytes_max: usize,
        allowance: &mut Allowance,
        effects: &mut Effects,
    ) -> Slot {
        let has_room = self.reserve(bytes_max).is_ok();
        let absent = self.absent(asked.partition);
        let Some(replica) = self.replicas.get_mut(&asked.partition) else {
            return Slot::Done(Err(FetchRefusal {
                rejection: absent,
                log_start: None,
                watermark: None,
            }));
        };
        if !has_room {
            // No room for a read now: what others have goes out, this partition's turn comes again.
            return Slot::Done(Ok(fetched(replica, Pieces::new())));
        }
        let watermark = replica.watermark();
        self.counters.disk_reads += 1;
        self.touched.insert(asked.partition);
        let mut disk = queue(&mut self.operations, effects);
        match replica
            .log
            .read(asked.offset, bytes_max, watermark, &mut disk)
        {
            Started::Ready(pieces) => {
                self.budget.release(bytes_max);
                allowance.take(pieces.iter().map(Bytes::len).sum());
                Slot::Done(Ok(fetched(replica, pieces)))
            }
            Started::Pending(read) => {
                allowance.take(bytes_max);
                self.reads.insert(
                    (asked.partition, read),
                    ReadPurpose::Fetch(id, index, bytes_max),
                );
                Slot::Pending
            }
        }
    }

    /// A read from the disk is done.
    pub(super) fn on_read(
        &mut self,
        partition: PartitionId,
        read: ReadId,
        result: Result<Pieces, LogFault>,
        now: Now,
        effects: &mut Effects,
    ) {
        match self.reads.remove(&(partition, read)) {
            Some(ReadPurpose::Fetch(id, index, reserved_bytes)) => {
                self.budget.release(reserved_bytes);
                self.finish_slot(partition, id, index, result, now, effects);
            }
            Some(ReadPurpose::Load) => self.on_loaded_part(partition, result, now, effects),
            Some(ReadPurpose::Lookup(_)) | None => self.counters.stray_completions += 1,
        }
    }

    fn finish_slot(
        &mut self,
        partition: PartitionId,
        id: RequestId,
        index: usize,
        result: Result<Pieces, LogFault>,
        now: Now,
        effects: &mut Effects,
    ) {
        let slot = match (result, self.replicas.get(&partition)) {
            (Ok(pieces), Some(replica)) => Ok(fetched(replica, pieces)),
            (Err(fault), Some(replica)) => Err(refusal(replica, rejection_of(&fault))),
            (_, None) => Err(FetchRefusal {
                rejection: self.absent(partition),
                log_start: None,
                watermark: None,
            }),
        };
        let Some(work) = self.fetches.get_mut(&id) else {
            return;
        };
        assert!(
            matches!(work.slots[index], Slot::Pending),
            "a slot of a fetch is filled twice"
        );
        work.slots[index] = Slot::Done(slot);
        work.pending -= 1;
        if work.pending == 0
            && let Some(work) = self.fetches.remove(&id)
        {
            self.answer_or_park(id, work, now, effects);
        }
    }

    fn answer_or_park(
        &mut self,
        id: RequestId,
        mut work: FetchInWork,
        now: Now,
        effects: &mut Effects,
    ) {
        let enough = work.fetch.bytes_min.max(1);
        let over = work.hurried || now.monotonic >= work.fetch.wait_until;
        if over || work.gathered_bytes() >= enough || work.has_to_be_told() {
            return self.answer_fetch(id, work, effects);
        }
        self.fetch_ends.insert((work.fetch.wait_until, id));
        for asked in &work.fetch.partitions {
            if let Some(replica) = self.replicas.get_mut(&asked.partition) {
                replica.fetches.insert(id);
            }
        }
        work.news_bytes = work.gathered_bytes();
        work.slots.clear();
        self.fetches.insert(id, work);
    }

    fn answer_fetch(&mut self, id: RequestId, work: FetchInWork, effects: &mut Effects) {
        self.counters.fetches += 1;
        self.counters.bytes_out += work.gathered_bytes() as u64;
        let asked = work.fetch.partitions.iter().map(|asked| asked.partition);
        let parts = asked
            .zip(work.slots)
            .filter_map(|(partition, slot)| match slot {
                Slot::Done(result) => Some(FetchedPartition { partition, result }),
                Slot::Pending => None,
            });
        let parts: Vec<FetchedPartition> = parts.collect();
        self.reply(id, Ok(Response::Fetched(parts)), effects);
    }

    fn unpark(&mut self, id: RequestId) -> Option<FetchInWork> {
        if self.fetches.get(&id).is_none_or(|work| work.pending > 0) {
            return None;
        }
        let work = self.fetches.remove(&id)?;
        self.fetch_ends.remove(&(work.fetch.wait_until, id));
        for asked in &work.fetch.partitions {
            if let Some(replica) = self.replicas.get_mut(&asked.partition) {
                replica.fetches.remove(&id);
            }
        }
        Some(work)
    }

    /// The watermark of a partition has moved, or the partition is gone.
    pub(super) fn wake_fetches(&mut self, partition: PartitionId, now: Now, effects: &mut Effects) {
        let Some(replica) = self.replicas.get(&partition) else {
            return;
        };
        if replica.fetches.is_empty() {
            return;
        }
        let waiting: Vec<RequestId> = replica.fetches.iter().copied().collect();
        for id in waiting {
            if self.has_enough(id, partition)
                && let Some(work) = self.unpark(id)
            {
                self.serve(id, work, now, effects);
            }
        }
    }

    /// Whether a parked fetch is worth another round: its partition has news, and with that at
    /// least as much as it waits for. What the news amounts to is estimated from memory; a
    /// partition without its news in memory counts as enough.
    fn has_enough(&mut self, id: RequestId, partition: PartitionId) -> bool {
        let (Some(work), Some(replica)) =
            (self.fetches.get_mut(&id), self.replicas.get(&partition))
        else {
            return false;
        };
        if work.fetch.bytes_min <= 1 {
            return true;
        }
        let Some(asked) = work
            .fetch
            .partitions
            .iter()
            .find(|asked| asked.partition == partition)
        else {
            return false;
        };
        let news = replica.read_tail(asked.offset, work.fetch.bytes_min, replica.watermark());
        match news {
            Some(pieces) => {
                work.news_bytes = work
                    .news_bytes
                    .saturating_add(pieces.iter().map(Bytes::len).sum());
                work.news_bytes >= work.fetch.bytes_min
            }
            None => true,
        }
    }

    pub(super) fn on_hurry(&mut self, id: RequestId, now: Now, effects: &mut Effects) {
        self.cancel_group_request(id, now);
        if let Some(work) = self.fetches.get_mut(&id) {
            work.hurried = true;
        }
        if let Some(work) = self.unpark(id) {
            self.serve(id, work, now, effects);
        }
    }

    pub(super) fn end_fetch_waits(&mut self, now: Now, effects: &mut Effects) {
        while let Some(&(end, id)) = self.fetch_ends.first() {
            if end > now.monotonic {
                return;
            }
            self.fetch_ends.remove(&(end, id));
            if let Some(work) = self.unpark(id) {
                self.serve(id, work, now, effects);
            }
        }
    }

    /// Ends every wait, when the core stops.
    pub(super) fn hurry_all(&mut self, now: Now, effects: &mut Effects) {
        let all: Vec<RequestId> = self.fetches.keys().copied().collect();
        for id in all {
            self.on_hurry(id, now, effects);
        }
    }

    /// The partition is gone: reads of it in work find nothing, and its waiting fetches look again.
    pub(super) fn abandon_reads(
        &mut self,
        partition: PartitionId,
        waiting: Vec<RequestId>,
        now: Now,
        effects: &mut Effects,
    ) {
        for id in waiting {
            if let Some(work) = self.unpark(id) {
                self.serve(id, work, now, effects);
            }
        }
        let from = (partition, ReadId(0));
        let until = (partition, ReadId(u64::MAX));
        let reads: Vec<ReadId> = self
            .reads
            .range(from..=until)
            .map(|((_, read), _)| *read)
            .collect();
        for read in reads {
            match self.reads.get(&(partition, read)) {
                Some(ReadPurpose::Lookup(id)) => {
                    let id = *id;
                    self.reads.remove(&(partition, read));
                    let gone = Err(Rejection::UnknownTopicOrPartition);
                    self.end_look_up(id, gone, effects);
                }
                Some(ReadPurpose::Load) => {
                    self.reads.remove(&(partition, read));
                }
                _ => self.on_read(partition, read, Ok(Pieces::new()), now, effects),
            }
        }
    }
}

impl Allowance {
    fn take(&mut self, bytes: usize) {
        self.gathered_bytes += bytes;
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}

impl FetchInWork {
    fn gathered_bytes(&self) -> usize {
        let done = self.slots.iter().map(|slot| match slot {
            Slot::Done(Ok(fetched)) => fetched.batches.iter().map(Bytes::len).sum(),
            _ => 0,
        });
        done.sum()
    }

    /// Whether a partition has an answer that no wait makes better.
    fn has_to_be_told(&self) -> bool {
        let is_final = |slot: &Slot| match slot {
            Slot::Done(Ok(fetched)) => fetched.diverging.is_some(),
            Slot::Done(Err(_)) => true,
            Slot::Pending => false,
        };
        self.slots.is_empty() || self.slots.iter().any(is_final)
    }
}

/// Whether there is something to read at the offset; else, where the asker's log leaves this one.
fn check_range(replica: &Replica, asked: &FetchPartition) -> Result<Option<EpochEnd>, Rejection> {
    replica.check_epoch(asked.leader_epoch)?;
    replica.check_readable()?;
    if asked.offset < replica.log.start() {
        return Err(Rejection::OffsetOutOfRange);
    }
    if let Some(last) = asked.last_fetched_epoch {
        let end = EpochHistory::of(replica, last).end_of(last);
        if let Some(diverging) = divergence(end, last, asked.offset)? {
            return Ok(Some(diverging));
        }
    }
    // Between watermark and log end is "not yet", never "out of range".
    if asked.offset > replica.log.end() {
        return Err(Rejection::OffsetOutOfRange);
    }
    Ok(None)
}

fn refusal(replica: &Replica, rejection: Rejection) -> FetchRefusal {
    let known = replica.check_readable().is_ok();
    let known = |offset: Offset| known.then_some(offset);
    FetchRefusal {
        rejection,
        log_start: known(replica.log.start()),
        watermark: known(replica.watermark()),
    }
}

fn fetched(replica: &Replica, batches: Pieces) -> Fetched {
    Fetched {
        watermark: replica.watermark(),
        log_start: replica.log.start(),
        batches,
        diverging: None,
    }
}
