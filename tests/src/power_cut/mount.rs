//! FUSE requests in, [`Disk`] calls out.
//!
//! Nothing is cached by the kernel: every open is direct and attributes and names expire at once, so that after a
//! cut no page or name remembers what the disk forgot.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use super::disk::{Disk, Kind};
use super::file::{Change, File, SECTOR_BYTES};
use super::namespace::Inode;

const UNCACHED: Duration = Duration::ZERO;
const DIRECT: FopenFlags =
    FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
const BLOCK_BYTES: u32 = 4096;

/// The file system as `fuser` serves it.
pub struct Mounted {
    disk: Arc<Mutex<Disk>>,
    sync_delay: Duration,
}

impl Mounted {
    /// Serves `disk`; durable writes and syncs take at least `sync_delay`, in which a cut finds them under way.
    pub fn new(disk: Arc<Mutex<Disk>>, sync_delay: Duration) -> Self {
        Self { disk, sync_delay }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    fn admitted(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let mut disk = self.disk();
        disk.admit()?;
        Ok(disk)
    }

    fn admitted_handle(&self, handle: FileHandle) -> io::Result<MutexGuard<'_, Disk>> {
        let mut disk = self.disk();
        disk.admit_handle(handle.0)?;
        Ok(disk)
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let disk = self.admitted()?;
        let inode = disk.find(parent.0, name)?;
        attributes(&disk, inode)
    }

    fn create_node(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: Kind,
        mode: u32,
    ) -> io::Result<(FileAttr, FileHandle)> {
        let mut disk = self.admitted()?;
        let permissions = (mode & 0o7777) as u16;
        let owner = (request.uid(), request.gid());
        let is_file = matches!(kind, Kind::File(_));
        let inode = disk.create(parent.0, name, kind, permissions, owner)?;
        // Only files come back open.
        let handle = if is_file { disk.open(inode)? } else { 0 };
        Ok((attributes(&disk, inode)?, FileHandle(handle)))
    }

    fn write_bytes(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: i32,
    ) -> io::Result<()> {
        let direct = flags & libc::O_DIRECT != 0;
        let aligned = (offset | bytes.len() as u64).is_multiple_of(SECTOR_BYTES);
        if direct && !aligned {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if flags & (libc::O_DSYNC | libc::O_SYNC) == 0 {
            return self.admitted_handle(handle)?.write(inode.0, offset, bytes);
        }
        let ticket = self
            .admitted_handle(handle)?
            .begin_durable_write(inode.0, offset, bytes)?;
        std::thread::sleep(self.sync_delay);
        self.disk().finish_durable_write(ticket)
    }

    fn sync(&self, inode: INodeNo, handle: FileHandle) -> io::Result<()> {
        std::thread::sleep(self.sync_delay);
        self.admitted_handle(handle)?.sync(inode.0)
    }

    fn set_length(&self, inode: INodeNo, length: u64) -> io::Result<()> {
        self.admitted()?.change(inode.0, Change::Length(length))
    }
}

/// Locks the disk. A panic elsewhere leaves plain data, so a poisoned lock is still good for reading and for cutting.
pub fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attributes(disk: &Disk, inode: Inode) -> io::Result<FileAttr> {
    let node = disk.node(inode)?;
    let (kind, size, allocated, links) = match &node.kind {
        Kind::Directory => (FileType::Directory, 4096, 4096, 2),
        Kind::File(file) => {
            let content = file.current();
            (
                FileType::RegularFile,
                content.length(),
                content.allocated_bytes(),
                1,
            )
        }
    };
    Ok(FileAttr {
        ino: INodeNo(inode),
        size,
        blocks: allocated / 512,
        atime: node.modified_at,
        mtime: node.modified_at,
        ctime: node.modified_at,
        crtime: node.modified_at,
        kind,
        perm: node.permissions,
        nlink: links,
        uid: node.user,
        gid: node.group,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    })
}

fn answer_entry(reply: ReplyEntry, outcome: io::Result<FileAttr>) {
    match outcome {
        Ok(attributes) => reply.entry(&UNCACHED, &attributes, Generation(0)),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn answer_empty(reply: ReplyEmpty, outcome: io::Result<()>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(Errno::from(error)),
    }
}

impl Filesystem for Mounted {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Wanted, not needed: a kernel without them serves the same, slower.
        for flag in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(flag);
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, self.entry(parent, name));
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.admitted().and_then(|disk| attributes(&disk, inode.0)) {
            Ok(attributes) => reply.attr(&UNCACHED, &attributes),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_flags: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let outcome = (|| {
            if let Some(length) = size {
                self.set_length(inode, length)?;
            }
            let mut disk = self.admitted()?;
            let node = disk.node_mut(inode.0)?;
            if let Some(mode) = mode {
                node.permissions = (mode & 0o7777) as u16;
            }
            node.user = user.unwrap_or(node.user);
            node.group = group.unwrap_or(node.group);
            match modified {
                Some(TimeOrNow::SpecificTime(time)) => node.modified_at = time,
                Some(TimeOrNow::Now) => node.modified_at = SystemTime::now(),
                None => {}
            }
            attributes(&disk, inode.0)
        })();
        match outcome {
            Ok(attributes) => reply.attr(&UNCACHED, &attributes),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG {
            reply.error(Errno::EPERM);
            return;
        }
        let made = self.create_node(request, parent, name, new_file(), mode & !umask);
        if let Ok((attributes, handle)) = &made {
            self.disk().close(attributes.ino.0, handle.0);
        }
        answer_entry(reply, made.map(|(attributes, _)| attributes));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.create_node(request, parent, name, Kind::Directory, mode & !umask);
        answer_entry(reply, made.map(|(attributes, _)| attributes));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self
            .admitted()
            .and_then(|mut disk| disk.remove(parent.0, name, false));
        answer_empty(reply, outcome);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self
            .admitted()
            .and_then(|mut disk| disk.remove(parent.0, name, true));
        answer_empty(reply, outcome);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.intersects(RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_WHITEOUT) {
            reply.error(Errno::EINVAL);
            return;
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let outcome = self
            .admitted()
            .and_then(|mut disk| disk.rename((parent.0, name), (new_parent.0, new_name), replace));
        answer_empty(reply, outcome);
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let outcome = self.admitted().and_then(|mut disk| {
            let generation = disk.open(inode.0)?;
            if flags.0 & libc::O_TRUNC != 0 {
                disk.change(inode.0, Change::Length(0))?;
            }
            Ok(generation)
        });
        match outcome {
            Ok(generation) => reply.opened(FileHandle(generation), DIRECT),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_node(request, parent, name, new_file(), mode & !umask) {
            Ok((attributes, handle)) => {
                reply.created(&UNCACHED, &attributes, Generation(0), handle, DIRECT);
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let outcome = self
            .admitted_handle(handle)
            .and_then(|disk| disk.read(inode.0, offset, size as usize));
        match outcome {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_bytes(inode, handle, offset, bytes, flags.0) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Closing a file makes nothing durable.
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.disk().close(inode.0, handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.sync(inode, handle));
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.admitted().and_then(|mut disk| disk.open(inode.0)) {
            Ok(generation) => reply.opened(FileHandle(generation), FopenFlags::empty()),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.admitted_handle(handle).map(|disk| {
            let own = [(".".into(), inode.0), ("..".into(), inode.0)];
            let named = disk.list(inode.0);
            own.into_iter()
                .chain(named)
                .map(|(name, inode): (std::ffi::OsString, Inode)| {
                    let kind = match disk.node(inode).map(|node| &node.kind) {
                        Ok(Kind::File(_)) => FileType::RegularFile,
                        Ok(Kind::Directory) | Err(_) => FileType::Directory,
                    };
                    (name, inode, kind)
                })
                .collect::<Vec<_>>()
        });
        match listed {
            Ok(entries) => {
                for (index, (name, inode, kind)) in
                    entries.into_iter().enumerate().skip(offset as usize)
                {
                    if reply.add(INodeNo(inode), index as u64 + 1, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.disk().close(inode.0, handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.sync(inode, handle));
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        match self.admitted() {
            Ok(disk) => {
                let blocks = disk.capacity_bytes() / u64::from(BLOCK_BYTES);
                let free = blocks.saturating_sub(disk.used_bytes() / u64::from(BLOCK_BYTES));
                reply.statfs(
                    blocks,
                    free,
                    free,
                    1 << 20,
                    1 << 20,
                    BLOCK_BYTES,
                    255,
                    BLOCK_BYTES,
                );
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_length = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let zeros = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
        let known =
            libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if mode & !known != 0 {
            reply.error(Errno::EOPNOTSUPP);
            return;
        }
        let outcome = self.admitted_handle(handle).and_then(|mut disk| {
            if zeros {
                disk.change(inode.0, Change::Zero { offset, length })?;
            }
            if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
                return Ok(());
            }
            disk.reserve(inode.0, offset, length, keep_length)
        });
        answer_empty(reply, outcome);
    }
}

fn new_file() -> Kind {
    Kind::File(File::default())
}
