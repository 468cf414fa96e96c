//! The data directory: whose it is, that only one process has it open, and which topics are being
//! deleted.
//!
//! It blocks: it runs before the cores start, or on a thread for blocking calls.
//!
//! A deletion's life: a mark, durable → the metadata record → the answer; and behind it the cores remove
//! their partitions' folders → the topic's folder goes → the mark goes. Whatever of it a crash cuts off
//! is done at the next start: of a topic that is marked and that the metadata does not know the folder
//! goes; of one that it knows the mark goes, for the record never came to be.
//!
//! Invariants:
//! 1. A folder is removed at a start only on its topic's mark. That the metadata does not know a topic
//!    says nothing by itself: unreadable or unknown is never taken for deleted.
//! 2. A mark goes only once the topic's folder is durably gone, or the metadata still has the topic.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use corelog_engine::identity::{BrokerId, ClusterId, TopicId};
use corelog_engine::metadata::identity_file::DataDirectoryIdentity;
use corelog_engine::time::Wall;

use crate::randomness::random_id;

/// Name of the identity file.
const IDENTITY_NAME: &str = "corelog.identity";

/// Name of the lock file.
const LOCK_NAME: &str = "lock";

/// The folder of the logs, a folder for each topic.
const TOPICS_NAME: &str = "topics";

/// The folder of marks: an empty file for each topic that is being deleted, named by its id.
const DELETING_NAME: &str = "deleting";

/// Longest identity file that is read, in bytes.
const IDENTITY_BYTES_MAX: u64 = 4096;

/// An open data directory; the lock is held until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    identity: DataDirectoryIdentity,
    _lock: File,
}

impl DataDirectory {
    /// Opens the directory of `broker`, making it if it is new.
    ///
    /// # Errors
    /// If another process has it open, it belongs to another broker or a newer build, its identity
    /// cannot be read, or the file system refuses. Nothing is ever made over what cannot be read.
    pub fn open(path: &Path, broker: BrokerId, now: Wall) -> io::Result<Self> {
        create_all(path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK_NAME))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{} is open in another process: stop that broker first, or choose another --data-dir", path.display()),
            ),
            TryLockError::Error(error) => error,
        })?;
        let identity = read_or_make_identity(path, broker, now)?;
        if identity.broker != broker {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{} belongs to broker {}, this is broker {broker}: start it with its own data directory",
                    path.display(),
                    identity.broker
                ),
            ));
        }
        refuse_lost_metadata(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            identity,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster it belongs to.
    pub fn cluster(&self) -> ClusterId {
        self.identity.cluster
    }
}

fn read_or_make_identity(
    path: &Path,
    broker: BrokerId,
    now: Wall,
) -> io::Result<DataDirectoryIdentity> {
    let name = path.join(IDENTITY_NAME);
    match fs::metadata(&name) {
        Ok(found) if found.len() <= IDENTITY_BYTES_MAX => {
            let bytes = fs::read(&name)?;
            DataDirectoryIdentity::decode(&bytes).map_err(|error| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}: {error}", name.display()),
                )
            })
        }
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is no identity file", name.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse_orphaned(path)?;
            let identity = DataDirectoryIdentity {
                cluster: ClusterId(random_id()),
                broker,
                created_at_ms: now.0,
            };
            write_durably(path, IDENTITY_NAME, &identity.encode())?;
            Ok(identity)
        }
        Err(error) => Err(error),
    }
}

/// A directory with logs or metadata but no identity has lost a file; it is not a new one.
fn refuse_orphaned(path: &Path) -> io::Result<()> {
    for kept in [TOPICS_NAME, "control"] {
        if path.join(kept).exists() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{} has data but no {IDENTITY_NAME}: restore that file, or move the directory away to start anew",
                    path.display()
                ),
            ));
        }
    }
    Ok(())
}

/// Logs without metadata are a loss, not a new broker: what would be made over them knows none of
/// their topics.
fn refuse_lost_metadata(path: &Path) -> io::Result<()> {
    let metadata = path
        .join("control")
        .join(corelog_control::METADATA_FILE_NAME);
    let is_there = match fs::metadata(&metadata) {
        Ok(found) => found.len() > 0,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let has_topics = match fs::read_dir(path.join(TOPICS_NAME)) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    if has_topics && !is_there {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{} is missing or empty, but there are topics: restore that file, or move the directory away to start anew",
                metadata.display()
            ),
        ));
    }
    Ok(())
}

/// Marks a topic as one that is being deleted, durably. Comes before the metadata record.
///
/// # Errors
/// Whatever the file system says; there may be a mark or none then.
pub fn mark_deletion(root: &Path, topic: TopicId) -> io::Result<()> {
    let folder = root.join(DELETING_NAME);
    create_all(&folder)?;
    File::create(folder.join(topic.to_string()))?.sync_all()?;
    File::open(&folder)?.sync_all()
}

/// Takes a topic's mark away, durably: it is not deleted, or nothing of it is left.
///
/// # Errors
/// Whatever the file system says.
pub fn unmark_deletion(root: &Path, topic: TopicId) -> io::Result<()> {
    let folder = root.join(DELETING_NAME);
    missing_is_fine(fs::remove_file(folder.join(topic.to_string())))?;
    missing_is_fine(File::open(&folder).and_then(|folder| folder.sync_all()))
}

/// Removes what is left of a topic that is marked, deleted, and no longer open on any core; then its
/// mark.
///
/// # Errors
/// Whatever the file system says; the mark is still there then.
pub fn finish_deletion(root: &Path, topic: TopicId) -> io::Result<()> {
    let topics = root.join(TOPICS_NAME);
    missing_is_fine(fs::remove_dir_all(topics.join(topic.to_string())))?;
    missing_is_fine(File::open(&topics).and_then(|topics| topics.sync_all()))?;
    unmark_deletion(root, topic)
}

/// What a start finds of deletions and of folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Topics whose deletion is in the metadata and is to be finished ([`finish_deletion`]).
    pub deleted: Vec<TopicId>,
    /// Names beside the topics' folders that neither metadata nor a mark explains. They stay.
    pub unexplained: Vec<String>,
}

/// Looks for deletions that the process before this one did not finish. A mark of a topic that the
/// metadata, read to its end, still has is taken away.
///
/// # Errors
/// Whatever the file system says.
pub fn leftovers(root: &Path, is_known: impl Fn(TopicId) -> bool) -> io::Result<Leftovers> {
    let mut found = Leftovers::default();
    for name in names_in(&root.join(DELETING_NAME))? {
        match topic_named(&name) {
            Some(topic) if is_known(topic) => unmark_deletion(root, topic)?,
            Some(topic) => found.deleted.push(topic),
            None => {}
        }
    }
    for name in names_in(&root.join(TOPICS_NAME))? {
        let topic = topic_named(&name);
        let explains = |topic| is_known(topic) || found.deleted.contains(&topic);
        if !topic.is_some_and(explains) {
            found.unexplained.push(name);
        }
    }
    Ok(found)
}

/// The names in a folder, in order; none if there is no folder. Names that are not UTF-8 are none of
/// ours.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// The topic whose id is written so, and in no other way.
fn topic_named(name: &str) -> Option<TopicId> {
    let number = u128::from_str_radix(name, 16).ok()?;
    let topic = TopicId(number.to_be_bytes());
    (topic.to_string() == name).then_some(topic)
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Writes a new file aside, syncs it, gives it its name, and syncs the folder.
fn write_durably(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let aside = folder.join(format!("{name}.aside"));
    let mut file = File::create(&aside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&aside, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Makes a folder and its missing parents, and syncs the folder above each.
pub fn create_all(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    create_all(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    const GONE: TopicId = TopicId([0x1d; 16]);
    const KEPT: TopicId = TopicId([0x2d; 16]);
    const UNKNOWN: TopicId = TopicId([0x3d; 16]);

    /// A data directory in memory or wherever temporary files are; removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        /// With a folder of two partitions for each topic.
        fn new(name: &str) -> Self {
            let name = format!("corelog-deletions-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&root);
            for topic in [GONE, KEPT, UNKNOWN] {
                for partition in 0..2 {
                    let folder = root.join(format!("topics/{topic}/{partition}"));
                    fs::create_dir_all(&folder).unwrap();
                    fs::write(folder.join("state"), b"state").unwrap();
                }
            }
            Self(root)
        }

        fn partitions(&self, topic: TopicId) -> Option<usize> {
            let entries = fs::read_dir(self.0.join(format!("topics/{topic}"))).ok()?;
            Some(entries.count())
        }

        fn remove_partition(&self, topic: TopicId, partition: u32) {
            fs::remove_dir_all(self.0.join(format!("topics/{topic}/{partition}"))).unwrap();
        }

        fn marks(&self) -> Vec<String> {
            names_in(&self.0.join(DELETING_NAME)).unwrap()
        }

        /// A start of the broker, whose metadata has these topics.
        fn start(&self, known: &[TopicId]) -> Leftovers {
            let found = leftovers(&self.0, |topic| known.contains(&topic)).unwrap();
            for topic in &found.deleted {
                finish_deletion(&self.0, *topic).unwrap();
            }
            found
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The steps of a deletion, each of which a crash may come behind.
    const STEPS: [fn(&Scratch); 6] = [
        |scratch| mark_deletion(&scratch.0, GONE).unwrap(),
        // The metadata record is durable; on the disk nothing changes.
        |_| {},
        |scratch| scratch.remove_partition(GONE, 1),
        |scratch| scratch.remove_partition(GONE, 0),
        |scratch| fs::remove_dir(scratch.0.join(format!("topics/{GONE}"))).unwrap(),
        |scratch| unmark_deletion(&scratch.0, GONE).unwrap(),
    ];

    #[test]
    fn a_deletion_cut_off_by_a_crash_is_finished_at_the_next_start() {
        for done in 2..=STEPS.len() {
            let scratch = Scratch::new(&format!("finished-{done}"));
            STEPS[..done].iter().for_each(|step| step(&scratch));
            scratch.start(&[KEPT]);
            assert_eq!(scratch.partitions(GONE), None, "behind step {done}");
            assert!(scratch.marks().is_empty());
            assert_eq!(scratch.partitions(KEPT), Some(2));
            assert_eq!(scratch.partitions(UNKNOWN), Some(2));
        }
    }

    #[test]
    fn a_deletion_that_did_not_reach_the_metadata_has_not_happened() {
        for done in 0..=1 {
            let scratch = Scratch::new(&format!("unhappened-{done}"));
            STEPS[..done].iter().for_each(|step| step(&scratch));
            scratch.start(&[GONE, KEPT]);
            assert_eq!(scratch.partitions(GONE), Some(2), "behind step {done}");
            assert!(scratch.marks().is_empty());
            // Nor does it happen later, should the metadata be lost or put back.
            scratch.start(&[]);
            assert_eq!(scratch.partitions(GONE), Some(2));
        }
    }

    #[test]
    fn a_crash_while_a_deletion_is_finished_leaves_it_to_the_next_start() {
        let scratch = Scratch::new("twice");
        STEPS[..2].iter().for_each(|step| step(&scratch));
        // Some of the files are gone.
        fs::remove_file(scratch.0.join(format!("topics/{GONE}/0/state"))).unwrap();
        assert_eq!(
            leftovers(&scratch.0, |topic| topic == KEPT)
                .unwrap()
                .deleted,
            [GONE]
        );
        scratch.start(&[KEPT]);
        assert_eq!(scratch.partitions(GONE), None);
        assert_eq!(scratch.start(&[KEPT]).deleted, []);
    }

    #[test]
    fn a_folder_that_nothing_explains_is_told_and_stays() {
        let scratch = Scratch::new("unexplained");
        fs::create_dir(scratch.0.join("topics/lost+found")).unwrap();
        fs::create_dir(scratch.0.join(DELETING_NAME)).unwrap();
        let upper = UNKNOWN.to_string().to_uppercase();
        for no_mark in ["notes", "3d", &upper, &format!("{UNKNOWN}.aside")] {
            fs::write(scratch.0.join(DELETING_NAME).join(no_mark), b"").unwrap();
        }
        let found = scratch.start(&[KEPT, GONE]);
        let lost = String::from("lost+found");
        assert_eq!(found.unexplained, [UNKNOWN.to_string(), lost]);
        assert_eq!(found.deleted, []);
        assert_eq!(scratch.partitions(UNKNOWN), Some(2));
        assert_eq!(scratch.marks().len(), 4);
    }

    #[test]
    fn a_topic_without_a_folder_is_deleted_too() {
        let scratch = Scratch::new("unbegun");
        let unbegun = TopicId([0x4d; 16]);
        mark_deletion(&scratch.0, unbegun).unwrap();
        mark_deletion(&scratch.0, unbegun).unwrap();
        assert_eq!(scratch.start(&[KEPT, GONE]).deleted, [unbegun]);
        assert!(scratch.marks().is_empty());
        fs::remove_dir_all(scratch.0.join(TOPICS_NAME)).unwrap();
        mark_deletion(&scratch.0, unbegun).unwrap();
        assert_eq!(scratch.start(&[]).deleted, [unbegun]);
        assert!(scratch.marks().is_empty());
    }
}
