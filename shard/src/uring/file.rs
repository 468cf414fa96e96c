//! Files read and written past the page cache.
//!
//! A file has up to two descriptors. The first is opened with O_DSYNC, so that a completed write is
//! a durable one: one request to the device instead of two (docs/performance.md has the figures).
//! The second is opened at the first write that need not be durable, such as zeros ahead of the
//! log's end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use glommio::io::{DmaFile, OpenOptions, ReadResult};

use crate::uring::buffer::{BLOCK_BYTES, BUFFER_BYTES_MAX, DirectBuffer, ReadBuffer};
use crate::uring::core::{blocking, run_to_end};

/// Attempts at a read that came back short of what the file holds, before it is an error.
const SHORT_READ_ATTEMPTS: usize = 3;

/// How a file is to be opened for durable writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteOrder {
    /// O_DSYNC: each durable write is durable when it completes.
    #[default]
    SyncedWrites,
    /// Plain writes, each durable one followed by a `fdatasync`. Here to be measured.
    WriteThenSync,
}

/// An open file for direct I/O. Cheap to clone; the clones share the descriptors.
#[derive(Clone)]
pub struct DirectFile {
    shared: Rc<Shared>,
}

struct Shared {
    path: PathBuf,
    order: WriteOrder,
    first: Rc<DmaFile>,
    plain: RefCell<Option<Rc<DmaFile>>>,
}

impl std::fmt::Debug for DirectFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "DirectFile({})", self.shared.path.display())
    }
}

impl DirectFile {
    /// Makes a new file. Neither it nor its name is durable before [`DirectFile::fdatasync`] and
    /// [`crate::uring::directory::sync`] of its folder.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one of this name; whatever the file system says.
    pub async fn create(
        folder: &Path,
        name: impl AsRef<OsStr>,
        order: WriteOrder,
    ) -> io::Result<Self> {
        Self::open_as(folder.join(name.as_ref()), order, true).await
    }

    /// Opens a file that exists.
    ///
    /// # Errors
    /// `NotFound` if there is none; whatever the file system says.
    pub async fn open(path: &Path, order: WriteOrder) -> io::Result<Self> {
        Self::open_as(path.to_path_buf(), order, false).await
    }

    async fn open_as(path: PathBuf, order: WriteOrder, new: bool) -> io::Result<Self> {
        refuse_polling(&path, new).await?;
        let first = open_direct(&path, order == WriteOrder::SyncedWrites, new).await?;
        Ok(Self {
            shared: Rc::new(Shared {
                path,
                order,
                first,
                plain: RefCell::new(None),
            }),
        })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The file's length in bytes.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub async fn length_bytes(&self) -> io::Result<u64> {
        let file = Rc::clone(&self.shared.first);
        run_to_end(async move { file.file_size().await.map_err(io::Error::from) }).await
    }

    /// Reads `length` bytes at any position; fewer only where the file ends.
    ///
    /// The bytes stay on this core; [`ReadBuffer::into_bytes`] makes them fit to travel.
    ///
    /// # Errors
    /// `InvalidInput` for a length above [`BUFFER_BYTES_MAX`] less a block; whatever the device says.
    pub async fn read_at(&self, position: u64, length: usize) -> io::Result<ReadBuffer> {
        if length == 0 {
            return Ok(ReadBuffer::default());
        }
        if length > BUFFER_BYTES_MAX - BLOCK_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a read of {length} bytes at once"),
            ));
        }
        let block = BLOCK_BYTES as u64;
        let start = position - position % block;
        let skip = (position - start) as usize;
        let aligned = (skip + length).next_multiple_of(BLOCK_BYTES);
        for _ in 0..SHORT_READ_ATTEMPTS {
            let file = Rc::clone(&self.shared.first);
            let result =
                run_to_end(async move { file.read_at_aligned(start, aligned).await }).await?;
            if result.len() >= skip + length
                || result.len() as u64 + start >= self.length_bytes().await?
            {
                // The reactor library's own unaligned read forgets `skip` at the end of a file, and
                // would show bytes that were never read.
                let length = length.min(result.len().saturating_sub(skip));
                return Ok(ReadBuffer::new(
                    ReadResult::slice(&result, skip, length).unwrap_or_default(),
                ));
            }
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "{}: a read at {position} stays short of {length} bytes",
                self.shared.path.display()
            ),
        ))
    }

    /// As [`DirectFile::read_at`], as bytes that may go to any thread.
    ///
    /// # Errors
    /// As [`DirectFile::read_at`].
    pub async fn read_bytes_at(&self, position: u64, length: usize) -> io::Result<Bytes> {
        Ok(self.read_at(position, length).await?.into_bytes())
    }

    /// Writes whole blocks at a whole block, and returns once they are on stable storage.
    ///
    /// If this future is dropped, the write still runs to its end.
    ///
    /// # Errors
    /// `WriteZero` if the device took fewer bytes; whatever it says else. What stands in the file is
    /// unknown after an error.
    ///
    /// # Panics
    /// If position or length is not a multiple of [`BLOCK_BYTES`].
    pub async fn write_at_durable(&self, buffer: DirectBuffer, position: u64) -> io::Result<()> {
        let then_sync = self.shared.order == WriteOrder::WriteThenSync;
        write_whole(Rc::clone(&self.shared.first), buffer, position, then_sync).await
    }

    /// Writes whole blocks at a whole block, not durably: for zeros ahead of the log's end, and for
    /// what a later [`DirectFile::fdatasync`] covers.
    ///
    /// # Errors
    /// As [`DirectFile::write_at_durable`].
    ///
    /// # Panics
    /// As [`DirectFile::write_at_durable`].
    pub async fn write_at(&self, buffer: DirectBuffer, position: u64) -> io::Result<()> {
        let file = match self.shared.order {
            WriteOrder::WriteThenSync => Rc::clone(&self.shared.first),
            WriteOrder::SyncedWrites => self.plain().await?,
        };
        write_whole(file, buffer, position, false).await
    }

    async fn plain(&self) -> io::Result<Rc<DmaFile>> {
        if let Some(plain) = &*self.shared.plain.borrow() {
            return Ok(Rc::clone(plain));
        }
        let opened = open_direct(&self.shared.path, false, false).await?;
        if !opened.is_same(&self.shared.first) {
            return Err(io::Error::other(format!(
                "{} was replaced while open",
                self.shared.path.display()
            )));
        }
        Ok(Rc::clone(
            self.shared.plain.borrow_mut().get_or_insert(opened),
        ))
    }

    /// Makes what was written, and the length, durable.
    ///
    /// # Errors
    /// Whatever the device says. A later success proves nothing about what this one failed to sync.
    pub async fn fdatasync(&self) -> io::Result<()> {
        let file = Rc::clone(&self.shared.first);
        run_to_end(async move { file.fdatasync().await.map_err(io::Error::from) }).await
    }

    /// Reserves blocks up to `length` bytes and makes the file that long. They read as zeros, and
    /// the first durable write to each also writes the file system's journal.
    ///
    /// # Errors
    /// `StorageFull` if there is no room; whatever the file system says.
    pub async fn allocate(&self, length: u64) -> io::Result<()> {
        let file = Rc::clone(&self.shared.first);
        run_to_end(async move {
            file.pre_allocate(length, false)
                .await
                .map_err(io::Error::from)
        })
        .await
    }

    /// Makes the file `length` bytes long. Not durable before [`DirectFile::fdatasync`].
    ///
    /// # Errors
    /// Whatever the file system says.
    pub async fn truncate(&self, length: u64) -> io::Result<()> {
        let file = Rc::clone(&self.shared.first);
        run_to_end(async move { file.truncate(length).await.map_err(io::Error::from) }).await
    }

    /// Closes the file if this is the last clone of it. Dropping it does the same, without a word
    /// about errors.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub async fn close(self) -> io::Result<()> {
        let Ok(shared) = Rc::try_unwrap(self.shared) else {
            return Ok(());
        };
        if let Some(plain) = shared.plain.into_inner() {
            plain.close_rc().await?;
        }
        shared.first.close_rc().await?;
        Ok(())
    }
}

async fn write_whole(
    file: Rc<DmaFile>,
    buffer: DirectBuffer,
    position: u64,
    then_sync: bool,
) -> io::Result<()> {
    assert!(
        position.is_multiple_of(BLOCK_BYTES as u64),
        "a write at position {position}"
    );
    run_to_end(async move {
        let expected = buffer.len();
        let written = file.write_at(buffer.into_memory(), position).await?;
        if written != expected {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("{written} of {expected} bytes were written at {position}"),
            ));
        }
        if then_sync {
            file.fdatasync().await?;
        }
        Ok(())
    })
    .await
}

async fn open_direct(path: &Path, synced: bool, new: bool) -> io::Result<Rc<DmaFile>> {
    let path = path.to_path_buf();
    run_to_end(async move {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(new).mode(0o640);
        if synced {
            options.custom_flags(libc::O_DSYNC);
        }
        Ok(Rc::new(options.dma_open(&path).await?))
    })
    .await
}

thread_local! {
    /// Devices that the reactor library was told about on this thread.
    static KNOWN_DEVICES: RefCell<BTreeSet<u64>> = const { RefCell::new(BTreeSet::new()) };
}

/// Makes the reactor library use interrupts, not polling, for the device that holds `path`.
///
/// It finds out by reading from the first file that it opens on a device. On a new, empty file that
/// read succeeds without reaching the device, polling is taken for possible, and every later
/// operation fails (or, on a device that polls, keeps a CPU busy while anything is in flight). A
/// file opened for writing alone cannot be read, which it takes for "no polling".
///
/// A file that exists is opened so itself: a disk without room for another one is still read.
async fn refuse_polling(path: &Path, new: bool) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = folder.to_path_buf();
    let device = {
        let folder = folder.clone();
        blocking(move || std::fs::metadata(folder)).await?.st_dev()
    };
    if KNOWN_DEVICES.with_borrow(|known| known.contains(&device)) {
        return Ok(());
    }
    let path = path.to_path_buf();
    run_to_end(async move {
        let probe = if new {
            open_unnamed(&folder, device).await?
        } else {
            OpenOptions::new().write(true).dma_open(&path).await?
        };
        probe.close().await?;
        Ok::<(), io::Error>(())
    })
    .await?;
    KNOWN_DEVICES.with_borrow_mut(|known| known.insert(device));
    Ok(())
}

/// A file for writing alone that nothing names.
async fn open_unnamed(folder: &Path, device: u64) -> io::Result<DmaFile> {
    let unnamed = OpenOptions::new()
        .write(true)
        .tmpfile(true)
        .dma_open(folder)
        .await;
    if let Ok(file) = unnamed {
        return Ok(file);
    }
    // Some file systems have no unnamed files.
    let path = folder.join(format!(".direct-io-probe-{}-{device}", std::process::id()));
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .dma_open(&path)
        .await?;
    file.remove().await?;
    Ok(file)
}
