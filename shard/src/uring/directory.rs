//! Folders and small files, with the rules that make them survive a loss of power.
//!
//! All of it runs on the core's threads for blocking calls.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::uring::core::blocking;

/// The ending of a file that is being written aside. Leftovers of a crash may be removed.
pub const ASIDE_ENDING: &str = ".aside";

/// What a folder holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name within the folder. Names that are not UTF-8 are none of ours and are left out.
    pub name: String,
    /// Whether it is a folder itself.
    pub is_folder: bool,
    /// Its length in bytes, if it is a file.
    pub length_bytes: u64,
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes that this process may still use.
    pub available_bytes: u64,
}

/// Makes the names in a folder durable.
///
/// # Errors
/// Whatever the file system says.
pub async fn sync(folder: &Path) -> io::Result<()> {
    let folder = folder.to_path_buf();
    blocking(move || sync_now(&folder)).await
}

/// Makes a folder and every missing parent of it, durably.
///
/// # Errors
/// Whatever the file system says.
pub async fn create_all(folder: &Path) -> io::Result<()> {
    let folder = folder.to_path_buf();
    blocking(move || create_all_now(&folder)).await
}

/// The entries of a folder, sorted by name.
///
/// # Errors
/// `NotFound` if there is no such folder; whatever the file system says.
pub async fn list(folder: &Path) -> io::Result<Vec<Entry>> {
    let folder = folder.to_path_buf();
    blocking(move || list_now(&folder)).await
}

/// Removes a file; a missing one is no error. Not durable before [`sync`] of its folder.
///
/// # Errors
/// Whatever the file system says.
pub async fn remove(path: &Path) -> io::Result<()> {
    let path = path.to_path_buf();
    blocking(move || missing_is_fine(fs::remove_file(path))).await
}

/// Removes a folder with all it holds, durably; a missing one is no error.
///
/// # Errors
/// Whatever the file system says.
pub async fn remove_all(folder: &Path) -> io::Result<()> {
    let folder = folder.to_path_buf();
    blocking(move || {
        missing_is_fine(fs::remove_dir_all(&folder))?;
        sync_now(parent_of(&folder))
    })
    .await
}

/// Gives a file another name, durably. Its content must be durable already.
///
/// # Errors
/// Whatever the file system says.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (from.to_path_buf(), to.to_path_buf());
    blocking(move || rename_now(&from, &to)).await
}

/// Reads a small file whole.
///
/// # Errors
/// `NotFound` if there is none; `FileTooLarge` if it holds more than `bytes_max`; whatever the file
/// system says.
pub async fn read_small(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let path = path.to_path_buf();
    blocking(move || {
        let file = File::open(&path)?;
        let too_large = || {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{} holds more than {bytes_max} bytes", path.display()),
            )
        };
        let length = usize::try_from(file.metadata()?.len()).map_err(|_| too_large())?;
        if length > bytes_max {
            return Err(too_large());
        }
        let mut content = Vec::with_capacity(length);
        // It may grow while it is read; the bound holds all the same.
        file.take(bytes_max as u64 + 1).read_to_end(&mut content)?;
        if content.len() > bytes_max {
            Err(too_large())
        } else {
            Ok(content)
        }
    })
    .await
}

/// Writes a small file whole: aside, synced, renamed over the old one, folder synced. After a crash
/// either the old or the new content is there.
///
/// # Errors
/// Whatever the file system says; the old content is then still there.
pub async fn replace_small(
    path: &Path,
    content: impl AsRef<[u8]> + Send + 'static,
) -> io::Result<()> {
    let path = path.to_path_buf();
    blocking(move || {
        let mut name = path.as_os_str().to_os_string();
        name.push(ASIDE_ENDING);
        let aside = PathBuf::from(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(&aside)?;
        file.write_all(content.as_ref())?;
        file.sync_all()?;
        rename_now(&aside, &path)
    })
    .await
}

/// Room on the file system that holds `path`.
///
/// # Errors
/// Whatever the file system says.
pub async fn space(path: &Path) -> io::Result<Space> {
    let path = path.to_path_buf();
    blocking(move || space_now(&path)).await
}

fn parent_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn sync_now(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn create_all_now(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = parent_of(folder);
    create_all_now(parent)?;
    match fs::create_dir(folder) {
        // Another thread made it at the same time; its name may not be durable yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        other => other?,
    }
    sync_now(parent)
}

fn list_now(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let metadata = match entry.metadata() {
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let length_bytes = if metadata.is_file() {
            metadata.len()
        } else {
            0
        };
        entries.push(Entry {
            name,
            is_folder: metadata.is_dir(),
            length_bytes,
        });
    }
    entries.sort();
    Ok(entries)
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn rename_now(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_now(parent_of(to))?;
    if parent_of(from) != parent_of(to) {
        sync_now(parent_of(from))?;
    }
    Ok(())
}

/// As [`space`], blocking: for threads that are not cores.
///
/// # Errors
/// Whatever the file system says.
/// As [`space`], blocking: for a program that has no core yet.
///
/// # Errors
/// Whatever the file system says.
#[allow(unsafe_code)]
pub fn space_now(path: &Path) -> io::Result<Space> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a live, zero-terminated string, and the pointer is to memory for one
    // `statvfs`, which is looked at only if the call filled it.
    let stat = unsafe {
        if libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        stat.assume_init()
    };
    // Their width differs between platforms.
    #[allow(clippy::useless_conversion)]
    let (unit, total, available) = (
        u64::from(stat.f_frsize),
        u64::from(stat.f_blocks),
        u64::from(stat.f_bavail),
    );
    Ok(Space {
        total_bytes: total.saturating_mul(unit),
        available_bytes: available.saturating_mul(unit),
    })
}
