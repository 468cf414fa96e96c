//! The power-cut file system: a FUSE file system that forgets what was not made durable.
//!
//! A SIGKILL proves nothing about syncing, since the kernel still holds every page. This file system keeps beside
//! what a reader sees what a power cut would leave:
//!
//! - bytes are durable after fsync, fdatasync, or a write with `O_DSYNC`, `O_SYNC` or `RWF_DSYNC`;
//! - a name is durable after an fsync of its directory, whatever happened to the file;
//! - without a seed a cut forgets everything else; with one, each unsynced write is lost, kept, or torn at 512-byte
//!   sectors by itself (so later writes may survive earlier ones), and the oldest changes of names may survive;
//! - a durable write under way at the cut is not answered and may survive in part.
//!
//! Bounds of the likeness: FUSE hides the memory alignment of `O_DIRECT`, so only offset and length are checked
//! (512 bytes); a request larger than the kernel's FUSE limit (1 MiB as shipped) arrives as several writes; shared
//! memory maps and hard links are refused; locks are the kernel's own.

pub mod backing;
pub mod content;
pub mod control;
pub mod disk;
pub mod file;
mod mount;
pub mod namespace;
pub mod seeded;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disk::{Counts, Disk};
use mount::{Mounted, lock};

/// How a power-cut file system is mounted.
#[derive(Clone, Debug)]
pub struct Options {
    /// What a cut lets survive by chance; without it, nothing that was not durable.
    pub seed: Option<u64>,
    /// Space of the whole disk.
    pub capacity_bytes: u64,
    /// How long a durable write or sync takes at least, so that a cut can find one under way.
    pub sync_delay: Duration,
    /// Requests served at once.
    pub threads: usize,
    /// Where the durable state is read from and written back to; without it, it lives in memory only.
    pub backing: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: None,
            capacity_bytes: 8 << 30,
            sync_delay: Duration::from_micros(100),
            threads: 8,
            backing: None,
        }
    }
}

/// A mounted power-cut file system; it is unmounted when dropped.
#[derive(Debug)]
pub struct PowerCut {
    disk: Arc<Mutex<Disk>>,
    mount_point: PathBuf,
    backing: Option<PathBuf>,
    session: Option<fuser::BackgroundSession>,
}

impl PowerCut {
    /// Mounts a disk at an existing, empty directory.
    ///
    /// # Errors
    /// When the backing directory cannot be read, or FUSE cannot be mounted (it needs /dev/fuse and root or
    /// `fusermount3`).
    pub fn mount(mount_point: &Path, options: Options) -> io::Result<Self> {
        let mut disk = Disk::new(options.seed, options.capacity_bytes);
        if let Some(directory) = &options.backing {
            backing::load(&mut disk, directory)?;
        }
        let disk = Arc::new(Mutex::new(disk));
        let mut config = fuser::Config::default();
        config.mount_options = vec![
            fuser::MountOption::FSName("power-cut".to_owned()),
            fuser::MountOption::NoAtime,
        ];
        config.n_threads = Some(options.threads);
        config.clone_fd = true;
        let mounted = Mounted::new(Arc::clone(&disk), options.sync_delay);
        let session = fuser::spawn_mount(mounted, mount_point, &config)?;
        Ok(Self {
            disk,
            mount_point: mount_point.to_owned(),
            backing: options.backing,
            session: Some(session),
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Cuts the power: unsynced state is gone and every operation fails with EIO until [`PowerCut::restore`].
    pub fn cut(&self) {
        lock(&self.disk).cut();
    }

    /// Brings the power back. Handles opened before the cut stay dead.
    pub fn restore(&self) {
        lock(&self.disk).restore();
    }

    /// Lets the next `count` syncs and durable writes fail with EIO; what a failed sync covered is forgotten.
    pub fn fail_syncs(&self, count: u64) {
        lock(&self.disk).fail_syncs(count);
    }

    /// Leaves only `free_bytes` of space, or with none lifts the limit.
    pub fn limit_free_bytes(&self, free_bytes: Option<u64>) {
        lock(&self.disk).limit_free_bytes(free_bytes);
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        lock(&self.disk).counts().clone()
    }

    /// Changes that a cut would endanger now.
    pub fn unsynced_count(&self) -> usize {
        lock(&self.disk).unsynced_count()
    }

    /// Durable writes that began and were not answered yet.
    pub fn in_flight_count(&self) -> usize {
        lock(&self.disk).in_flight_count()
    }

    /// Serves control commands at `socket` until one asks to unmount.
    ///
    /// # Errors
    /// As [`control::serve`].
    pub fn serve_control(&self, socket: &Path) -> io::Result<()> {
        control::serve(socket, &self.disk)
    }

    /// Unmounts and writes the durable state to the backing directory, if there is one.
    ///
    /// # Errors
    /// When something still holds a file open there, or the backing directory cannot be written.
    pub fn unmount(mut self) -> io::Result<()> {
        if let Some(session) = self.session.take() {
            session.umount_and_join()?;
        }
        match &self.backing {
            Some(directory) => backing::store(&lock(&self.disk), directory),
            None => Ok(()),
        }
    }
}
