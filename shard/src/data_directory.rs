//! The data directory: whose it is, and that only one process has it open.
//!
//! Runs before the cores start, so it blocks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use corelog_engine::identity::{BrokerId, ClusterId};
use corelog_engine::metadata::identity_file::DataDirectoryIdentity;
use corelog_engine::time::Wall;

use crate::randomness::random_id;

/// Name of the identity file.
const IDENTITY_NAME: &str = "corelog.identity";

/// Name of the lock file.
const LOCK_NAME: &str = "lock";

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
    for kept in ["topics", "control"] {
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
    let has_topics = match fs::read_dir(path.join("topics")) {
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
