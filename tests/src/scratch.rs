//! Directories that tests write in and that go away with them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the directory under which scratch directories are made; the system's own one without it.
pub const SCRATCH_VARIABLE: &str = "CORELOG_SCRATCH";

/// A new, empty directory, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one whose name starts with `purpose`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(purpose: &str) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let parent =
            std::env::var_os(SCRATCH_VARIABLE).map_or_else(std::env::temp_dir, PathBuf::from);
        let path = parent.join(format!("{purpose}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
