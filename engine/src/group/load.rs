//! What the coordinators of one core hold together: their bounds are the core's.

use super::Coordinator;

/// What one coordinator holds, or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLoad {
    /// Groups.
    pub groups: usize,
    /// Bytes of groups, members and offsets, about.
    pub bytes: usize,
    /// Requests not yet answered.
    pub requests: usize,
}

impl core::iter::Sum for GroupLoad {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::default(), |sum, one| Self {
            groups: sum.groups + one.groups,
            bytes: sum.bytes + one.bytes,
            requests: sum.requests + one.requests,
        })
    }
}

impl Coordinator {
    /// What it holds.
    pub fn load(&self) -> GroupLoad {
        GroupLoad {
            groups: self.groups.len(),
            bytes: self.bytes,
            requests: self.outstanding.requests_waiting(),
        }
    }

    /// Tells it what the other coordinators of its core hold, before it is asked anything: its bounds
    /// are those of all of them together. What is in the log already is taken over whatever they say.
    pub fn set_elsewhere(&mut self, elsewhere: GroupLoad) {
        self.elsewhere = elsewhere;
    }
}
