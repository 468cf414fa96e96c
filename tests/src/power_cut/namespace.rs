//! Names: directories as they are now, as a power cut leaves them, and the changes between the two.
//!
//! Invariants:
//! 1. A name is durable only once its directory was synced; syncing the file does nothing for its name.
//! 2. A rename is durable wholly or not at all: syncing either directory makes both halves durable.
//! 3. Changes become durable by chance only in their order, as a journal writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use super::seeded::Seeded;

/// Number of a file or directory; never used again.
pub type Inode = u64;

/// The directory at the top.
pub const ROOT: Inode = 1;

/// A name in a directory.
pub type Place = (Inode, OsString);

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
enum Change {
    Add(Place, Inode),
    Remove(Place),
    Move(Place, Place, Inode),
}

impl Change {
    fn directories(&self) -> Vec<Inode> {
        match self {
            Change::Add((directory, _), _) | Change::Remove((directory, _)) => vec![*directory],
            Change::Move((from, _), (to, _), _) => vec![*from, *to],
        }
    }

    fn apply(&self, names: &mut BTreeMap<Place, Inode>) {
        match self {
            Change::Add(place, inode) => {
                names.insert(place.clone(), *inode);
            }
            Change::Remove(place) => {
                names.remove(place);
            }
            Change::Move(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
        }
    }
}

/// All names of the file system.
#[derive(Debug, Default)]
pub struct Namespace {
    current: BTreeMap<Place, Inode>,
    durable: BTreeMap<Place, Inode>,
    unsynced: Vec<Change>,
}

impl Namespace {
    /// The inode that a name stands for now.
    pub fn find(&self, directory: Inode, name: &OsStr) -> Option<Inode> {
        self.current.get(&(directory, name.to_owned())).copied()
    }

    /// The names in a directory, in order.
    pub fn list(&self, directory: Inode) -> impl Iterator<Item = (&OsStr, Inode)> {
        entries(&self.current, directory)
    }

    /// The names in a directory that a power cut leaves, in order.
    pub fn list_durable(&self, directory: Inode) -> impl Iterator<Item = (&OsStr, Inode)> {
        entries(&self.durable, directory)
    }

    /// Changes that a power cut may forget.
    pub fn unsynced_count(&self) -> usize {
        self.unsynced.len()
    }

    /// Adds a name that is durable already.
    pub fn add_durably(&mut self, directory: Inode, name: &OsStr, inode: Inode) {
        self.current.insert((directory, name.to_owned()), inode);
        self.durable.insert((directory, name.to_owned()), inode);
    }

    /// Gives an inode a name.
    pub fn add(&mut self, directory: Inode, name: &OsStr, inode: Inode) {
        self.change(Change::Add((directory, name.to_owned()), inode));
    }

    /// Takes a name away.
    pub fn remove(&mut self, directory: Inode, name: &OsStr) {
        self.change(Change::Remove((directory, name.to_owned())));
    }

    /// Moves a name, over another one if that exists.
    pub fn rename(&mut self, from: Place, to: Place, inode: Inode) {
        self.change(Change::Move(from, to, inode));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    /// Makes the names of a directory durable, and whatever its renames need.
    pub fn sync(&mut self, directory: Inode) {
        let mut directories = BTreeSet::from([directory]);
        let mut chosen = vec![false; self.unsynced.len()];
        for (change, chosen) in self.unsynced.iter().zip(&mut chosen).rev() {
            let touched = change.directories();
            if touched.iter().any(|one| directories.contains(one)) {
                directories.extend(touched);
                *chosen = true;
            }
        }
        let changes = std::mem::take(&mut self.unsynced);
        for (change, chosen) in changes.into_iter().zip(chosen) {
            if chosen {
                change.apply(&mut self.durable);
            } else {
                self.unsynced.push(change);
            }
        }
    }

    /// Goes back to what was durable; with a source of chance the oldest unsynced changes may survive.
    pub fn cut(&mut self, chance: Option<&mut Seeded>) {
        let changes = std::mem::take(&mut self.unsynced);
        if let Some(chance) = chance {
            let kept = chance.below(changes.len() as u64 + 1) as usize;
            for change in &changes[..kept] {
                change.apply(&mut self.durable);
            }
        }
        self.current = self.durable.clone();
    }

    /// Every inode that a name stands for, now or after a cut.
    pub fn named(&self) -> BTreeSet<Inode> {
        let pending = self.unsynced.iter().filter_map(|change| match change {
            Change::Add(_, inode) | Change::Move(_, _, inode) => Some(*inode),
            Change::Remove(_) => None,
        });
        self.current
            .values()
            .chain(self.durable.values())
            .copied()
            .chain(pending)
            .collect()
    }
}

fn entries(
    names: &BTreeMap<Place, Inode>,
    directory: Inode,
) -> impl Iterator<Item = (&OsStr, Inode)> {
    names
        .range((directory, OsString::new())..(directory + 1, OsString::new()))
        .map(|((_, name), inode)| (name.as_os_str(), *inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn rename_between_directories_is_durable_wholly_when_either_is_synced() {
        for synced in [10, 11] {
            let mut names = Namespace::default();
            names.add_durably(10, name("a"), 5);
            names.rename((10, "a".into()), (11, "b".into()), 5);
            names.sync(synced);
            names.cut(None);
            assert_eq!(names.find(10, name("a")), None);
            assert_eq!(names.find(11, name("b")), Some(5));
        }
    }

    #[test]
    fn sync_of_one_directory_leaves_the_names_of_others_unsynced() {
        let mut names = Namespace::default();
        names.add(10, name("kept"), 5);
        names.add(11, name("lost"), 6);
        names.sync(10);
        names.cut(None);
        assert_eq!(names.find(10, name("kept")), Some(5));
        assert_eq!(names.find(11, name("lost")), None);
    }

    #[test]
    fn chance_keeps_changes_of_names_in_their_order_only() {
        for seed in 0..50 {
            let mut names = Namespace::default();
            names.add(ROOT, name("first"), 5);
            names.add(ROOT, name("second"), 6);
            names.cut(Some(&mut Seeded::new(seed)));
            let first = names.find(ROOT, name("first")).is_some();
            let second = names.find(ROOT, name("second")).is_some();
            assert!(first || !second, "seed {seed}");
        }
    }
}
