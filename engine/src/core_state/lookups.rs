//! Offsets by name or time, and descriptions of partitions.

use super::{CoreState, ReadPurpose};
use crate::effect::Effects;
use crate::identity::{LeaderEpoch, PartitionId};
use crate::limits::{LOOK_UPS_AT_ONCE_MAX, LOOK_UPS_WAITING_MAX};
use crate::log::{FoundRecord, LogFault, Started, TimeQuery};
use crate::rejection::Rejection;
use crate::replica::{Replica, queue, rejection_of};
use crate::request::{Answer, FindOffset, FoundOffset, OffsetQuery, RequestId, Response};

impl CoreState {
    pub(super) fn on_find_offset(
        &mut self,
        id: RequestId,
        find: FindOffset,
        effects: &mut Effects,
    ) {
        let by_time = !matches!(find.by, OffsetQuery::Earliest | OffsetQuery::Latest);
        if by_time && self.look_ups >= LOOK_UPS_AT_ONCE_MAX {
            if self.look_ups_waiting.len() >= LOOK_UPS_WAITING_MAX {
                return self.reply(id, Err(Rejection::Overloaded), effects);
            }
            return self.look_ups_waiting.push_back((id, find));
        }
        match self.find_offset(id, &find, effects) {
            Ok(Some(found)) => self.reply(id, Ok(Response::OffsetFound(found)), effects),
            Ok(None) => {}
            Err(rejection) => self.reply(id, Err(rejection), effects),
        }
    }

    /// `None`: the disk is asked, the answer comes later.
    fn find_offset(
        &mut self,
        id: RequestId,
        find: &FindOffset,
        effects: &mut Effects,
    ) -> Result<Option<FoundOffset>, Rejection> {
        let absent = self.absent(find.partition);
        let replica = self.replicas.get_mut(&find.partition).ok_or(absent)?;
        replica.check_epoch(find.leader_epoch)?;
        replica.check_readable()?;
        let query = match find.by {
            OffsetQuery::Earliest => return Ok(Some(named(replica, replica.log.start()))),
            OffsetQuery::Latest => return Ok(Some(named(replica, replica.watermark()))),
            OffsetQuery::MaxTimestamp => TimeQuery::Largest,
            OffsetQuery::AtOrAfterMs(time_ms) => {
                TimeQuery::AtOrAfterMs(i64::try_from(time_ms).unwrap_or(i64::MAX))
            }
        };
        let up_to = replica.watermark();
        self.touched.insert(find.partition);
        let mut disk = queue(&mut self.operations, effects);
        match replica.log.find_time(query, up_to, &mut disk) {
            Started::Ready(found) => Ok(Some(found_offset(found))),
            Started::Pending(read) => {
                self.reads
                    .insert((find.partition, read), ReadPurpose::Lookup(id));
                self.look_ups += 1;
                Ok(None)
            }
        }
    }

    pub(super) fn finish_lookup(
        &mut self,
        id: RequestId,
        result: Result<Option<FoundRecord>, LogFault>,
        effects: &mut Effects,
    ) {
        let answer = match result {
            Ok(found) => Ok(Response::OffsetFound(found_offset(found))),
            Err(fault) => Err(rejection_of(&fault)),
        };
        self.end_look_up(id, answer, effects);
    }

    /// A look-up by time is over, and the next ones have their turn.
    pub(super) fn end_look_up(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        self.reply(id, answer, effects);
        self.look_ups -= 1;
        while self.look_ups < LOOK_UPS_AT_ONCE_MAX
            && let Some((id, find)) = self.look_ups_waiting.pop_front()
        {
            self.on_find_offset(id, find, effects);
        }
    }

    pub(super) fn on_describe(
        &mut self,
        id: RequestId,
        partition: PartitionId,
        effects: &mut Effects,
    ) {
        let answer = match self.replicas.get(&partition) {
            Some(replica) => replica
                .check_readable()
                .map(|()| Response::Partition(replica.describe())),
            None => Err(self.absent(partition)),
        };
        self.reply(id, answer, effects);
    }
}

fn named(replica: &Replica, offset: crate::identity::Offset) -> FoundOffset {
    FoundOffset {
        offset: Some(offset),
        timestamp_ms: None,
        leader_epoch: Some(epoch_at(replica)),
    }
}

fn epoch_at(replica: &Replica) -> LeaderEpoch {
    replica.log.last_record_epoch().unwrap_or(replica.epoch())
}

fn found_offset(found: Option<FoundRecord>) -> FoundOffset {
    match found {
        Some(record) => FoundOffset {
            offset: Some(record.offset),
            timestamp_ms: u64::try_from(record.timestamp_ms).ok(),
            leader_epoch: Some(record.leader_epoch),
        },
        None => FoundOffset {
            offset: None,
            timestamp_ms: None,
            leader_epoch: None,
        },
    }
}

/// Used by descriptions of partitions elsewhere.
impl CoreState {
    /// What a partition of this core holds, without a request.
    pub fn describe(&self, partition: PartitionId) -> Option<crate::request::PartitionDescription> {
        self.replicas.get(&partition).map(Replica::describe)
    }
}
