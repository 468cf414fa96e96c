//! Performs the engine's disk requests on one core. Chooses nothing.
//!
//! Invariants:
//! 1. A request is answered after what it promises holds on stable storage.
//! 2. A folder that this process uses has been synced into its parent by this process, since a
//!    process before it may have ended between making and syncing it.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use corelog_engine::disk::{
    DiskError, DiskReply, DiskRequest, DiskResult, FileId, LogFile, Space, folder_path,
};
use corelog_engine::identity::{PartitionId, Position};

use crate::uring::{DirectBuffer, DirectFile, WriteOrder, directory, next_turn};

/// Most files that one core keeps open.
const FILES_OPEN_MAX: usize = 4_096;

/// Zeros are written ahead in pieces of this many bytes.
const ZERO_PIECE_BYTES: u64 = 1 << 20;

/// One core's way to the data directory.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    open: RefCell<OpenFiles>,
    synced: RefCell<BTreeSet<PathBuf>>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    by_id: HashMap<FileId, DirectFile>,
    order: VecDeque<FileId>,
}

impl Disk {
    /// A way to the data directory at `root`.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            open: RefCell::default(),
            synced: RefCell::default(),
        }
    }

    /// Performs one request.
    pub async fn perform(&self, request: DiskRequest) -> DiskResult {
        request.assert_aligned();
        match request {
            DiskRequest::List { partition } => self.list(&partition).await,
            DiskRequest::Create {
                file,
                written_bytes,
            } => done(self.create(file, written_bytes).await),
            DiskRequest::Read {
                file,
                position,
                length_bytes,
            } => self.read(file, position, length_bytes).await,
            DiskRequest::Write {
                file,
                position,
                parts,
            } => done(self.write(file, position, &parts).await),
            DiskRequest::Extend {
                file,
                from,
                to,
                space,
            } => done(self.extend(file, from, to, space).await),
            DiskRequest::Sync { file } => done(self.sync(file).await),
            DiskRequest::Truncate { file, length_bytes } => {
                done(self.truncate(file, length_bytes).await)
            }
            DiskRequest::Replace { file, content } => {
                self.forget(&file);
                done(self.replace(&file, content).await)
            }
            DiskRequest::Remove { partition, files } => done(self.remove(partition, &files).await),
            DiskRequest::Turn { .. } => {
                next_turn().await;
                Ok(DiskReply::Done)
            }
            DiskRequest::RemoveFolder { partition } => {
                self.open.borrow_mut().forget_partition(&partition);
                self.synced.borrow_mut().remove(&self.folder(&partition));
                done(directory::remove_all(&self.folder(&partition)).await)
            }
        }
    }

    fn folder(&self, partition: &PartitionId) -> PathBuf {
        self.root.join(folder_path(partition))
    }

    async fn list(&self, partition: &PartitionId) -> DiskResult {
        let entries = match directory::list(&self.folder(partition)).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(DiskReply::Files(None));
            }
            Err(error) => return Err(disk_error(&error)),
        };
        let files = entries.iter().filter(|entry| !entry.is_folder);
        let known =
            files.filter_map(|entry| Some((LogFile::from_name(&entry.name)?, entry.length_bytes)));
        let mut known: Vec<(LogFile, u64)> = known.collect();
        known.sort_unstable();
        Ok(DiskReply::Files(Some(known)))
    }

    async fn create(&self, id: FileId, written_bytes: u64) -> io::Result<()> {
        let folder = self.folder(&id.partition);
        self.make_folder(&folder).await?;
        let file = DirectFile::create(&folder, id.file.name(), WriteOrder::SyncedWrites).await?;
        zero(&file, 0, written_bytes).await?;
        file.fdatasync().await?;
        directory::sync(&folder).await?;
        self.open.borrow_mut().keep(id, file);
        Ok(())
    }

    /// Makes a partition's folder, and the folders above it, durable once in this process's life.
    async fn make_folder(&self, folder: &Path) -> io::Result<()> {
        if self.synced.borrow().contains(folder) {
            return Ok(());
        }
        directory::create_all(folder).await?;
        let mut above = folder.parent();
        while let Some(parent) = above.filter(|parent| parent.starts_with(&self.root)) {
            directory::sync(parent).await?;
            above = parent.parent();
        }
        self.synced.borrow_mut().insert(folder.to_path_buf());
        Ok(())
    }

    async fn file(&self, id: FileId) -> io::Result<DirectFile> {
        if let Some(file) = self.open.borrow().by_id.get(&id) {
            return Ok(file.clone());
        }
        let file = DirectFile::open(&self.root.join(id.path()), WriteOrder::SyncedWrites).await?;
        self.open.borrow_mut().keep(id, file.clone());
        Ok(file)
    }

    fn forget(&self, id: &FileId) {
        self.open.borrow_mut().by_id.remove(id);
    }

    async fn read(&self, id: FileId, position: Position, length_bytes: usize) -> DiskResult {
        let read = async {
            self.file(id)
                .await?
                .read_bytes_at(position.get(), length_bytes)
                .await
        };
        match read.await {
            Ok(bytes) => Ok(DiskReply::Bytes(bytes)),
            Err(error) => Err(disk_error(&error)),
        }
    }

    async fn write(
        &self,
        id: FileId,
        position: Position,
        parts: &[bytes::Bytes],
    ) -> io::Result<()> {
        let file = self.file(id).await?;
        file.write_at_durable(DirectBuffer::from_parts(parts), position.get())
            .await
    }

    async fn extend(
        &self,
        id: FileId,
        from: Position,
        to: Position,
        space: Space,
    ) -> io::Result<()> {
        let file = self.file(id).await?;
        match space {
            Space::Written => zero(&file, from.get(), to.get()).await,
            Space::Reserved => match file.allocate(to.get()).await {
                // Then the writes find the room for themselves.
                Err(error) if cannot_reserve(&error) => Ok(()),
                result => result,
            },
        }
    }

    async fn sync(&self, id: FileId) -> io::Result<()> {
        self.file(id).await?.fdatasync().await
    }

    async fn truncate(&self, id: FileId, length_bytes: u64) -> io::Result<()> {
        let file = self.file(id).await?;
        file.truncate(length_bytes).await?;
        file.fdatasync().await
    }

    async fn replace(&self, id: &FileId, content: bytes::Bytes) -> io::Result<()> {
        self.make_folder(&self.folder(&id.partition)).await?;
        directory::replace_small(&self.root.join(id.path()), content).await
    }

    async fn remove(&self, partition: PartitionId, files: &[LogFile]) -> io::Result<()> {
        for file in files {
            let id = FileId {
                partition,
                file: *file,
            };
            self.forget(&id);
            directory::remove(&self.root.join(id.path())).await?;
        }
        directory::sync(&self.folder(&partition)).await
    }
}

impl OpenFiles {
    fn keep(&mut self, id: FileId, file: DirectFile) {
        if self.by_id.insert(id, file).is_none() {
            self.order.push_back(id);
        }
        while self.by_id.len() > FILES_OPEN_MAX || self.order.len() > 2 * FILES_OPEN_MAX {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            self.by_id.remove(&oldest);
        }
    }

    fn forget_partition(&mut self, partition: &PartitionId) {
        self.by_id.retain(|id, _| id.partition != *partition);
    }
}

async fn zero(file: &DirectFile, from: u64, to: u64) -> io::Result<()> {
    let mut position = from;
    while position < to {
        let piece = (to - position).min(ZERO_PIECE_BYTES);
        file.write_at(DirectBuffer::zeroed(piece as usize), position)
            .await?;
        position += piece;
        if position < to {
            next_turn().await;
        }
    }
    Ok(())
}

/// Whether the file system has no such thing as reserved blocks.
fn cannot_reserve(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

fn done(result: io::Result<()>) -> DiskResult {
    result
        .map(|()| DiskReply::Done)
        .map_err(|error| disk_error(&error))
}

fn disk_error(error: &io::Error) -> DiskError {
    match error.kind() {
        io::ErrorKind::NotFound => DiskError::Missing,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskError::Full,
        // The reactor library wraps some errors, and their kind is lost with it.
        _ if error.raw_os_error() == Some(libc::ENOSPC) => DiskError::Full,
        _ => DiskError::Failed(error.to_string()),
    }
}
