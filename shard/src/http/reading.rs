//! Fetched batches to messages, in turns and within the budget.

use bytes::Bytes;
use corelog_batch::batches;
use corelog_engine::identity::{Offset, PartitionIndex};
use corelog_engine::rejection::Rejection;
use corelog_net::http::{Message, MessageReader, NextBatch, OpeningBatch, ReadFault};

use super::exchange::WORK_BYTES_MAX;
use crate::shard::Reservation;
use crate::uring::next_turn;

/// Compressed batches are opened this many bytes at a time.
const OPENING_TURN_BYTES: usize = 256 << 10;

/// Opens batches of several partitions, with a turn for others after every so many bytes, and takes what
/// its reader has room for. The memory of what it opens is held in the budget as it grows.
pub(super) struct Reading {
    reader: MessageReader,
    held: Reservation,
    worked_bytes: usize,
}

impl Reading {
    /// With a hold on the budget, of whatever size, that grows with what is opened.
    pub(super) fn new(reader: MessageReader, held: Reservation) -> Self {
        Self {
            reader,
            held,
            worked_bytes: 0,
        }
    }

    /// What was read, and the hold on its memory.
    pub(super) fn finish(self) -> (Vec<Message>, Reservation) {
        (self.reader.into_messages(), self.held)
    }

    /// Reads one partition from `next` on, which is moved along.
    ///
    /// # Errors
    /// What stopped it, and an explanation.
    pub(super) async fn read(
        &mut self,
        topic: &str,
        partition: PartitionIndex,
        next: &mut Offset,
        regions: Vec<Bytes>,
    ) -> Result<(), (Rejection, Option<String>)> {
        let tell = |fault: ReadFault| (fault.rejection(), Some(fault.to_string()));
        for region in regions {
            let mut batches = batches(region);
            loop {
                let mut batch = match self.reader.next_batch(*next, &mut batches).map_err(tell)? {
                    NextBatch::Open(batch) => batch,
                    NextBatch::End(end) => {
                        *next = end;
                        break;
                    }
                };
                *next = batch.from();
                let Some(body) = self.open(&mut batch).await.map_err(tell)? else {
                    return self.stop_for_memory();
                };
                let taken = self.reader.take(topic, partition, &batch, body);
                *next = taken.map_err(tell)?;
            }
        }
        Ok(())
    }

    /// The body of a batch; `None` if the budget has no room for it now.
    async fn open(&mut self, batch: &mut OpeningBatch) -> Result<Option<Bytes>, ReadFault> {
        let mut held_bytes = 0;
        loop {
            let body = batch.turn(OPENING_TURN_BYTES)?;
            let (memory_bytes, worked_bytes) = match &body {
                Some(body) => (batch.body_memory_bytes(body), body.len()),
                None => (batch.memory_bytes(), OPENING_TURN_BYTES),
            };
            if memory_bytes > held_bytes {
                let more_bytes = memory_bytes - held_bytes;
                if !self.held.try_grow(more_bytes) {
                    return Ok(None);
                }
                held_bytes = memory_bytes;
            }
            self.worked_bytes += worked_bytes;
            if self.worked_bytes >= WORK_BYTES_MAX {
                self.worked_bytes = 0;
                next_turn().await;
            }
            if body.is_some() {
                return Ok(body);
            }
        }
    }

    /// The answer has what was read before; without anything it says why.
    fn stop_for_memory(&mut self) -> Result<(), (Rejection, Option<String>)> {
        if self.reader.close() {
            return Ok(());
        }
        let why = "the broker has no memory to open the next batch now; try again";
        Err((Rejection::Overloaded, Some(why.to_owned())))
    }
}
