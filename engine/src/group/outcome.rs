//! What an append's outcome does to its group, and what a start and a vanished asker do.

use super::outstanding::{Append, Change, Turn};
use super::settings::RETRY_MS;
use super::state::Group;
use crate::rejection::Rejection;
use crate::request::{GroupResponse, RequestId};
use crate::time::Now;

impl Group {
    /// The log's word on an append about this group; a deletion that succeeded is not its own
    /// affair any more.
    pub(super) fn appended(
        &mut self,
        append: Append,
        result: Result<(), Rejection>,
        turn: &mut Turn<'_>,
    ) {
        self.appends_waiting -= 1;
        if let Some(recorded) = append.recorded {
            self.records_waiting -= 1;
            if result.is_ok() {
                self.set_recorded(recorded);
            }
        }
        match append.change {
            Change::Offsets {
                id,
                offsets,
                answer,
                emptied,
            } => {
                if result.is_ok() {
                    for (partition, stored) in offsets {
                        self.put_offset(partition, stored);
                    }
                }
                if let Some(generation) = emptied {
                    self.emptied(generation, result.is_ok(), turn);
                }
                turn.reply(id, result.map(|()| GroupResponse::Committed(answer)));
            }
            Change::OffsetsRemoved {
                id,
                partitions,
                answer,
            } => {
                if result.is_ok() {
                    for partition in partitions {
                        self.remove_offset(partition);
                    }
                }
                if let Some(id) = id {
                    turn.reply(id, result.map(|()| GroupResponse::OffsetsDeleted(answer)));
                }
            }
            Change::Assignment {
                generation,
                assignments,
            } => self.assigned(generation, assignments, result, turn),
            Change::Emptied(generation) => self.emptied(generation, result.is_ok(), turn),
            Change::StaticReturns(returns) => self.static_ids_passed_on(returns, result, turn),
            Change::Generations(upto) => self.generations_reserved(upto, result, turn),
            Change::Deletion(id) => self.deletion_failed(id, result, turn),
            Change::TopicForgotten(_)
            | Change::SnapshotBegin
            | Change::SnapshotPart
            | Change::SnapshotEnd => {}
        }
        self.pass_static_ids_on(turn);
    }

    fn deletion_failed(
        &mut self,
        id: Option<RequestId>,
        result: Result<(), Rejection>,
        turn: &mut Turn<'_>,
    ) {
        self.deleting = false;
        self.wake_by(turn.now.monotonic.plus_ms(RETRY_MS));
        if let (Some(id), Err(rejection)) = (id, result) {
            turn.reject(id, rejection);
        }
    }

    /// The log has been read: its members begin a session.
    pub(super) fn loaded(&mut self, turn: &Turn<'_>) {
        for member in self.members.values_mut() {
            let timeout_ms = u64::from(member.session_timeout_ms);
            member.session_ends = turn.now.monotonic.plus_ms(timeout_ms);
        }
        self.plan_wakes(turn);
    }

    /// Whoever waited with this join or sync is gone; its session runs again.
    pub(super) fn asker_gone(&mut self, id: RequestId, now: Now) {
        let waiting = self
            .members
            .iter()
            .find(|(_, member)| member.join_waiting == Some(id) || member.sync_waiting == Some(id));
        let Some(member_id) = waiting.map(|(member_id, _)| member_id.clone()) else {
            return;
        };
        self.change_member(&member_id, |member| {
            let _join = member.join_waiting.take_if(|waiting| *waiting == id);
            let _sync = member.sync_waiting.take_if(|waiting| *waiting == id);
        });
        self.renew_session(&member_id, now.monotonic);
    }
}
