//! What the broker has promised: acknowledged publishes, records shown to readers, acknowledged commits.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Partition and offset.
pub type Place = (i32, i64);

/// Names a record's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u64);

impl Digest {
    /// The digest of a record.
    pub fn of(key: &[u8], value: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        value.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// A group's commits on one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Commits {
    /// The newest that was acknowledged.
    pub acknowledged: i64,
    /// The newest that was asked for.
    pub attempted: i64,
}

/// Everything promised so far.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Every record ever sent.
    pub attempted: HashSet<Digest>,
    /// Records whose publish was acknowledged.
    pub stored: BTreeMap<Place, Digest>,
    /// Records that a reader saw.
    pub seen: BTreeMap<Place, Digest>,
    /// Commits by partition.
    pub commits: BTreeMap<i32, Commits>,
    /// What should not have happened, in words.
    pub violations: Vec<String>,
}

/// [`Promises`], shared by the threads of a load.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Promises>);

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Promises> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of everything promised so far.
    pub fn promises(&self) -> Promises {
        self.lock().clone()
    }

    /// How many records were acknowledged.
    pub fn stored_count(&self) -> usize {
        self.lock().stored.len()
    }

    /// These records are about to be sent.
    pub fn attempt(&self, records: &[Digest]) {
        self.lock().attempted.extend(records);
    }

    /// These records were acknowledged, the first at `offset`.
    pub fn store(&self, partition: i32, offset: i64, records: &[Digest]) {
        let mut promises = self.lock();
        for (offset, record) in (offset..).zip(records) {
            if let Some(other) = promises.stored.insert((partition, offset), *record)
                && other != *record
            {
                let what = format!("offset {offset} of partition {partition} was given twice");
                promises.violations.push(what);
            }
        }
    }

    /// A reader saw this record.
    pub fn see(&self, place: Place, record: Digest) {
        let mut promises = self.lock();
        let before = promises.seen.insert(place, record);
        if before.is_some_and(|before| before != record) {
            let what = format!("a reader saw {place:?} change");
            promises.violations.push(what);
        }
    }

    /// One past the last record seen of a partition.
    pub fn seen_end(&self, partition: i32) -> i64 {
        let promises = self.lock();
        let of_partition = (partition, 0)..(partition + 1, 0);
        let last = promises.seen.range(of_partition).next_back();
        last.map_or(0, |((_, offset), _)| offset + 1)
    }

    /// A commit is about to be sent, or was acknowledged.
    pub fn commit(&self, partition: i32, offset: i64, is_acknowledged: bool) {
        let mut promises = self.lock();
        let commits = promises.commits.entry(partition).or_default();
        commits.attempted = commits.attempted.max(offset);
        if is_acknowledged {
            commits.acknowledged = offset;
        }
    }

    /// Something happened that must not.
    pub fn violate(&self, what: String) {
        self.lock().violations.push(what);
    }
}
