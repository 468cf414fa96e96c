//! Which disk operations of a core are under way, and which wait.
//!
//! Invariants:
//! 1. At most [`IN_FLIGHT_MAX`] operations are under way, so that the cores of a broker do not fill the
//!    device's queue: a submission that finds it full is handed to a kernel worker, or blocks the core.
//! 2. Background work takes at most half of them and goes after everything else, so that removing and
//!    recovering never keep a publish waiting for a place.
//! 3. What waits is bounded by what the state asks for: a handful for each partition that the core owns, and
//!    reads within the byte budget.

use std::collections::VecDeque;

use corelog_engine::disk::{DiskRequest, OperationId};

/// Operations of one core that may be under way.
pub const IN_FLIGHT_MAX: usize = 128;
/// As many of them may be in the background.
const BACKGROUND_IN_FLIGHT_MAX: usize = IN_FLIGHT_MAX / 2;

/// One operation.
#[derive(Debug)]
pub struct DiskWork {
    /// What its completion is called.
    pub operation: OperationId,
    /// What is to be done.
    pub request: DiskRequest,
    /// Whether it may wait for everything else.
    pub background: bool,
}

/// The operations of one core.
#[derive(Debug, Default)]
pub struct DiskQueue {
    in_flight: usize,
    background_in_flight: usize,
    waiting: VecDeque<DiskWork>,
    background_waiting: VecDeque<DiskWork>,
}

impl DiskQueue {
    /// Takes an operation in. What [`DiskQueue::start`] gives next is to be begun at once.
    pub fn offer(&mut self, work: DiskWork) {
        if work.background {
            self.background_waiting.push_back(work);
        } else {
            self.waiting.push_back(work);
        }
    }

    /// The next operation to begin, if there is room for one.
    pub fn start(&mut self) -> Option<DiskWork> {
        if self.in_flight == IN_FLIGHT_MAX {
            return None;
        }
        let work = match self.waiting.pop_front() {
            Some(work) => work,
            None if self.background_in_flight < BACKGROUND_IN_FLIGHT_MAX => {
                self.background_waiting.pop_front()?
            }
            None => return None,
        };
        self.in_flight += 1;
        self.background_in_flight += usize::from(work.background);
        Some(work)
    }

    /// One that was begun is done.
    ///
    /// # Panics
    /// If none was under way.
    pub fn finish(&mut self, background: bool) {
        let under_way = if background {
            &mut self.background_in_flight
        } else {
            &mut self.in_flight
        };
        assert!(*under_way > 0, "invariant 1: an end without a beginning");
        *under_way -= 1;
        if background {
            assert!(
                self.in_flight > 0,
                "invariant 1: an end without a beginning"
            );
            self.in_flight -= 1;
        }
    }

    /// How many are under way, and how many wait.
    pub fn depths(&self) -> (usize, usize) {
        let waiting = self.waiting.len() + self.background_waiting.len();
        (self.in_flight, waiting)
    }
}

#[cfg(test)]
mod tests {
    use corelog_engine::identity::{PartitionId, PartitionIndex, TopicId};

    use super::*;

    fn work(operation: u64, background: bool) -> DiskWork {
        let partition = PartitionId {
            topic: TopicId([1; 16]),
            partition: PartitionIndex(0),
        };
        DiskWork {
            operation: OperationId(operation),
            request: DiskRequest::Turn { partition },
            background,
        }
    }

    fn started(queue: &mut DiskQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.start())
            .map(|work| work.operation.0)
            .collect()
    }

    #[test]
    fn no_more_is_under_way_than_may_and_ends_let_others_begin_in_order() {
        let mut queue = DiskQueue::default();
        let max = IN_FLIGHT_MAX as u64;
        for operation in 0..max + 3 {
            queue.offer(work(operation, false));
        }
        assert_eq!(started(&mut queue), (0..max).collect::<Vec<_>>());
        assert_eq!(queue.depths(), (IN_FLIGHT_MAX, 3));
        queue.finish(false);
        queue.finish(false);
        assert_eq!(started(&mut queue), [max, max + 1]);
    }

    #[test]
    fn background_work_takes_half_and_goes_last() {
        let mut queue = DiskQueue::default();
        for operation in 0..IN_FLIGHT_MAX as u64 {
            queue.offer(work(operation, true));
        }
        assert_eq!(started(&mut queue).len(), BACKGROUND_IN_FLIGHT_MAX);
        queue.offer(work(1_000, true));
        queue.offer(work(1_001, false));
        assert_eq!(started(&mut queue), [1_001]);
        queue.finish(true);
        queue.offer(work(1_002, false));
        // Room for one in the background again, and the other still goes first.
        assert_eq!(
            started(&mut queue),
            [1_002, BACKGROUND_IN_FLIGHT_MAX as u64]
        );
    }

    #[test]
    #[should_panic(expected = "invariant 1")]
    fn an_end_without_a_beginning_is_noticed() {
        DiskQueue::default().finish(false);
    }
}
