//! Numbers for disk requests, and whose they are.

use hashbrown::HashMap;

use crate::disk::{DiskRequest, OperationId};
use crate::effect::{Effect, Effects};
use crate::identity::PartitionId;

/// Hands out the operation ids of one core and remembers which partition waits for which.
///
/// One per core, so that ids are unique within the core's life (they are never used again).
#[derive(Debug)]
pub struct OperationIds {
    last: u64,
    in_flight: HashMap<OperationId, PartitionId, ahash::RandomState>,
}

impl Default for OperationIds {
    fn default() -> Self {
        Self::new()
    }
}

impl OperationIds {
    /// None handed out yet. The hash is keyed by constants: ids are our own.
    pub fn new() -> Self {
        Self {
            last: 0,
            in_flight: HashMap::with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4)),
        }
    }

    /// A new id for a request of this partition.
    pub fn issue(&mut self, partition: PartitionId) -> OperationId {
        self.last += 1;
        let operation = OperationId(self.last);
        self.in_flight.insert(operation, partition);
        operation
    }

    /// The partition that waits for `operation`, which is then forgotten; `None` for an id that is
    /// not in flight.
    pub fn finish(&mut self, operation: OperationId) -> Option<PartitionId> {
        self.in_flight.remove(&operation)
    }

    /// Requests not answered yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

/// Where a log puts its disk requests: the core's ids and the effects of the present step.
#[derive(Debug)]
pub struct DiskQueue<'a> {
    /// The core's ids.
    pub operations: &'a mut OperationIds,
    /// The present step's effects.
    pub effects: &'a mut Effects,
}

impl DiskQueue<'_> {
    /// Puts `request` among the effects and returns its id.
    pub(super) fn push(
        &mut self,
        partition: PartitionId,
        request: DiskRequest,
        background: bool,
    ) -> OperationId {
        request.assert_aligned();
        let operation = self.operations.issue(partition);
        self.effects.push(Effect::Disk {
            operation,
            request,
            background,
        });
        operation
    }
}
