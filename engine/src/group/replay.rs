//! Rebuilding a coordinator's groups from the log of its partition.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use bytes::Bytes;

use super::record::{Key, RecordedGroup, StoredOffset, decode_generation};
use super::snapshot::SnapshotSchedule;
use super::state::Group;
use crate::identity::TopicId;

/// Why a record of the log cannot be used. The partition must not be served then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// Written by a newer version of corelog.
    Newer {
        /// Which format.
        what: &'static str,
        /// The version found.
        version: u8,
    },
    /// Not a record of this format, or one whose lengths disagree.
    Malformed {
        /// What was wrong.
        what: &'static str,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { what, version } => write!(
                f,
                "{what} of version {version}: the offsets topic was written by a newer corelog; start that one"
            ),
            Self::Malformed { what } => write!(f, "malformed {what} in the offsets topic"),
        }
    }
}

/// What has been written since a snapshot began, while it is not complete: its copies of these
/// may be older, and do not count.
#[derive(Debug, Default)]
pub(super) struct Touched {
    is_open: bool,
    keys: BTreeSet<Key>,
    groups: BTreeSet<String>,
    topics: BTreeSet<TopicId>,
}

impl Touched {
    fn note(&mut self, key: &Key, is_removal: bool) {
        if !self.is_open {
            return;
        }
        match key {
            Key::Group(group) if is_removal => {
                self.groups.insert(group.clone());
            }
            Key::Topic(topic) => {
                self.topics.insert(*topic);
            }
            _ => {
                self.keys.insert(key.clone());
            }
        }
    }

    /// Whether a copy counts. One whose snapshot began before the log does counts for nothing: a
    /// newer snapshot follows, as the log begins at or before a complete one.
    fn lets_in(&self, key: &Key) -> bool {
        let covered = match key {
            Key::Group(group) | Key::Generation(group) => self.groups.contains(group),
            Key::Offset(group, partition) => {
                self.groups.contains(group) || self.topics.contains(&partition.topic)
            }
            Key::Topic(_) | Key::SnapshotBegin | Key::SnapshotEnd => false,
        };
        self.is_open && !covered && !self.keys.contains(key)
    }
}

/// Applies one record of the log.
pub(super) fn apply(
    groups: &mut BTreeMap<Arc<str>, Group>,
    touched: &mut Touched,
    schedule: &mut SnapshotSchedule,
    key_bytes: &Bytes,
    value: Option<&Bytes>,
) -> Result<(), ReplayError> {
    let (key, is_copy) = Key::decode(key_bytes)?;
    let bytes = key_bytes.len() + value.map_or(0, Bytes::len);
    schedule.replayed(&key, is_copy, bytes as u64);
    match &key {
        Key::SnapshotBegin => {
            *touched = Touched {
                is_open: true,
                ..Touched::default()
            };
        }
        Key::SnapshotEnd => *touched = Touched::default(),
        _ if is_copy && !touched.lets_in(&key) => return Ok(()),
        _ if is_copy => {}
        _ => touched.note(&key, value.is_none()),
    }
    let name = match &key {
        Key::Group(name) | Key::Generation(name) | Key::Offset(name, _) => name.as_str(),
        Key::Topic(topic) => {
            groups
                .values_mut()
                .for_each(|group| group.forget_topic(*topic));
            return Ok(());
        }
        Key::SnapshotBegin | Key::SnapshotEnd => return Ok(()),
    };
    let Some(value) = value else {
        match &key {
            Key::Offset(_, partition) => {
                if let Some(group) = groups.get_mut(name) {
                    group.remove_offset(*partition);
                }
            }
            _ => drop(groups.remove(name)),
        }
        return Ok(());
    };
    if !groups.contains_key(name) {
        let id: Arc<str> = Arc::from(name);
        groups.insert(id.clone(), Group::new(id));
    }
    let Some(group) = groups.get_mut(name) else {
        return Ok(());
    };
    match key {
        Key::Group(_) => {
            // A copy of its own: the record's batch need not stay in memory.
            let value = Bytes::copy_from_slice(value);
            let recorded = RecordedGroup::decode(&value)?;
            group.restore(value, recorded);
        }
        Key::Generation(_) => {
            let reserved = decode_generation(value)?;
            group.reserved = group.reserved.max(reserved);
            group.spent = group.spent.max(reserved);
        }
        Key::Offset(_, partition) => group.put_offset(partition, StoredOffset::decode(value)?),
        Key::Topic(_) | Key::SnapshotBegin | Key::SnapshotEnd => {}
    }
    Ok(())
}
