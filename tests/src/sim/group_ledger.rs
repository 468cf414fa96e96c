//! What members of groups were told, and whether it can all be true.
//!
//! Rules of a group whose coordinator's partition is undamaged:
//! 1. A generation is given to one membership. It never falls below one whose assignments anybody
//!    was told; only a start of the process may take back one that never came so far.
//! 2. Once a newer generation was given out, nobody of an older one can commit.
//! 3. Nobody whose session has ended can commit.
//! 4. Nobody whose static id another member was given can commit.
//! 5. An acknowledged commit, and one that somebody has seen, is seen by everybody after, unless a
//!    later one came over it.

use std::collections::BTreeMap;

use corelog_engine::identity::PartitionId;

use super::violation::{Checked, hold};

/// What is known of one stored offset's commits. They are numbered in the order in which they
/// reached the core, which is the order in which they are stored.
#[derive(Debug, Default)]
struct Commits {
    /// Nobody may see an older one.
    floor: u64,
    /// Numbers that were refused for good: nobody may see them.
    refused: Vec<u64>,
}

/// What is known of one group.
#[derive(Debug, Default)]
struct Group {
    /// Who leads which generation.
    leaders: BTreeMap<u32, String>,
    /// The newest generation that a member was told since the process started.
    told: u32,
    /// The newest generation whose assignments a member was told.
    assigned: u32,
    commits: BTreeMap<PartitionId, Commits>,
}

/// Why a commit must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MustRefuse {
    /// No reason.
    No,
    /// A newer generation was given out.
    OlderGeneration,
    /// The member's session has ended.
    SessionEnded,
    /// Another member has taken over the static id.
    Replaced,
}

/// See the module.
#[derive(Debug, Default)]
pub struct GroupLedger {
    groups: BTreeMap<String, Group>,
    last_number: u64,
}

impl GroupLedger {
    /// A number for a commit that reaches the core now.
    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The newest generation that counts: nobody of an older one may commit.
    pub fn generation(&self, group: &str) -> u32 {
        let group = self.groups.get(group);
        group.map_or(0, |group| group.told.max(group.assigned))
    }

    /// The process has started again.
    pub fn restart(&mut self) {
        for group in self.groups.values_mut() {
            group.told = 0;
        }
    }

    /// A member was told its generation.
    ///
    /// # Errors
    /// If the generation was given to others before, or has fallen.
    pub fn joined(
        &mut self,
        name: &str,
        generation: u32,
        leader: &str,
        has_static_members: bool,
    ) -> Checked {
        let group = self.groups.entry(name.to_string()).or_default();
        let newest = group.told.max(group.assigned);
        hold(generation >= newest, "a generation never falls", || {
            format!("{name}: {generation} after {newest}")
        })?;
        let known = group.leaders.entry(generation);
        let known = known.or_insert_with(|| leader.to_string());
        // A leader that comes back under its static id has another name then.
        let is_same = known == leader || has_static_members;
        hold(is_same, "a generation is given once", || {
            format!("{name}: {generation} led by {known} and by {leader}")
        })?;
        group.told = generation;
        Ok(())
    }

    /// A member was told its part in a generation.
    pub fn assigned(&mut self, name: &str, generation: u32) {
        let group = self.groups.entry(name.to_string()).or_default();
        group.assigned = group.assigned.max(generation);
    }

    /// A commit was answered for one partition.
    ///
    /// # Errors
    /// If it was taken and had to be refused.
    pub fn committed(
        &mut self,
        name: &str,
        partition: PartitionId,
        number: u64,
        must: MustRefuse,
    ) -> Checked {
        let rule = match must {
            MustRefuse::OlderGeneration => "a member of an older generation cannot commit",
            MustRefuse::Replaced => "a member whose static id another has cannot commit",
            _ => "a member whose session has ended cannot commit",
        };
        hold(must == MustRefuse::No, rule, || {
            format!("{name}: commit {number} to {partition}")
        })?;
        let commits = self.commits(name, partition);
        commits.floor = commits.floor.max(number);
        Ok(())
    }

    /// A commit was refused and will never be seen.
    pub fn refused(&mut self, name: &str, partition: PartitionId, number: u64) {
        self.commits(name, partition).refused.push(number);
    }

    fn commits(&mut self, name: &str, partition: PartitionId) -> &mut Commits {
        let group = self.groups.entry(name.to_string()).or_default();
        group.commits.entry(partition).or_default()
    }

    /// What must be seen at least by a question that reaches the core now: by partition.
    pub fn floors(&self, name: &str) -> BTreeMap<PartitionId, u64> {
        let group = self.groups.get(name);
        let commits = group.into_iter().flat_map(|group| &group.commits);
        commits
            .map(|(partition, commits)| (*partition, commits.floor))
            .collect()
    }

    /// Somebody was told the stored offsets: the number of the commit of each partition.
    ///
    /// # Errors
    /// If an older one is seen than there was when the question came, or one that was refused.
    pub fn seen(
        &mut self,
        name: &str,
        floors: &BTreeMap<PartitionId, u64>,
        seen: &BTreeMap<PartitionId, u64>,
        is_gone: impl Fn(PartitionId) -> bool,
    ) -> Checked {
        for (partition, floor) in floors {
            let number = seen.get(partition).copied().unwrap_or(0);
            hold(
                number >= *floor || is_gone(*partition),
                "a commit is seen by everybody after",
                || format!("{name}: {partition} shows {number} after {floor}"),
            )?;
        }
        for (partition, number) in seen {
            let commits = self.commits(name, *partition);
            hold(
                !commits.refused.contains(number),
                "a refused commit is never seen",
                || format!("{name}: {partition} shows {number}"),
            )?;
            commits.floor = commits.floor.max(*number);
        }
        Ok(())
    }

    /// The coordinator's partition was damaged: what was known of the group is forgotten.
    pub fn forget(&mut self, name: &str) {
        self.groups.remove(name);
    }
}
