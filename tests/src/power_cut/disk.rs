//! The file system without FUSE: nodes, names, faults and the power switch, as one plain struct.
//!
//! Invariants:
//! 1. While the power is cut every operation fails with EIO, and after it came back every handle opened before the
//!    cut does too, as for a process that did not live through it.
//! 2. A durable write that was under way at the cut was not answered; it may survive in part, never counts as done.
//! 3. Attributes other than the length are durable at once: no broker depends on them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::time::SystemTime;

use bytes::Bytes;
use serde::Serialize;

use super::file::{Change, File, SECTOR_BYTES};
use super::namespace::{Inode, Namespace, ROOT};
use super::seeded::Seeded;

/// What a node is.
#[derive(Debug)]
pub enum Kind {
    /// A directory; its entries are in the [`Namespace`].
    Directory,
    /// A regular file.
    File(File),
}

/// A file or directory with what `stat` tells of it.
#[derive(Debug)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub permissions: u16,
    /// Owner.
    pub user: u32,
    /// Owning group.
    pub group: u32,
    /// Last change of the content.
    pub modified_at: SystemTime,
    open_count: u64,
    /// Whether a name of it was taken away, so that it may have to go once it is closed.
    unlinked: bool,
}

/// What happened so far, for `stats`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Operations of any kind that arrived.
    pub operations: u64,
    /// Writes that succeeded, durable ones included.
    pub writes: u64,
    /// Writes that were durable by their flags.
    pub durable_writes: u64,
    /// Bytes of successful writes.
    pub written_bytes: u64,
    /// Syncs of files and directories that succeeded.
    pub syncs: u64,
    /// Syncs and durable writes that were made to fail.
    pub failed_syncs: u64,
    /// Operations refused since the power was cut.
    pub refused: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Durable writes that were under way at a cut.
    pub torn_in_flight: u64,
}

/// The whole state of the file system.
#[derive(Debug)]
pub struct Disk {
    nodes: HashMap<Inode, Node>,
    names: Namespace,
    next_inode: Inode,
    powered: bool,
    generation: u64,
    in_flight: BTreeMap<u64, (Inode, u64, Bytes)>,
    next_ticket: u64,
    failing_syncs: u64,
    capacity_bytes: u64,
    limit_bytes: Option<u64>,
    chance: Option<Seeded>,
    counts: Counts,
}

fn failure(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Disk {
    /// An empty disk. Without a seed a cut forgets all that was not durable; with one some of it survives, torn.
    pub fn new(seed: Option<u64>, capacity_bytes: u64) -> Self {
        let mut disk = Self {
            nodes: HashMap::new(),
            names: Namespace::default(),
            next_inode: ROOT,
            powered: true,
            generation: 1,
            in_flight: BTreeMap::new(),
            next_ticket: 1,
            failing_syncs: 0,
            capacity_bytes,
            limit_bytes: None,
            chance: seed.map(Seeded::new),
            counts: Counts::default(),
        };
        disk.new_node(Kind::Directory, 0o755, (0, 0));
        disk
    }

    fn new_node(&mut self, kind: Kind, permissions: u16, owner: (u32, u32)) -> Inode {
        let inode = self.next_inode;
        self.next_inode += 1;
        let node = Node {
            kind,
            permissions,
            user: owner.0,
            group: owner.1,
            modified_at: SystemTime::now(),
            open_count: 0,
            unlinked: false,
        };
        self.nodes.insert(inode, node);
        inode
    }

    /// Counts one operation and refuses it while the power is off.
    ///
    /// # Errors
    /// EIO while the power is cut.
    pub fn admit(&mut self) -> io::Result<()> {
        self.counts.operations += 1;
        if self.powered {
            return Ok(());
        }
        self.counts.refused += 1;
        Err(failure(libc::EIO))
    }

    /// As [`Disk::admit`], for an operation on a handle given out as `generation`.
    ///
    /// # Errors
    /// EIO while the power is cut, or when it was cut since the handle was opened.
    pub fn admit_handle(&mut self, generation: u64) -> io::Result<()> {
        self.admit()?;
        if generation == self.generation {
            return Ok(());
        }
        self.counts.refused += 1;
        Err(failure(libc::EIO))
    }

    /// A node by its number.
    ///
    /// # Errors
    /// ENOENT when a cut or an unlink took it away.
    pub fn node(&self, inode: Inode) -> io::Result<&Node> {
        self.nodes.get(&inode).ok_or(failure(libc::ENOENT))
    }

    /// A node by its number, to change attributes.
    ///
    /// # Errors
    /// As [`Disk::node`].
    pub fn node_mut(&mut self, inode: Inode) -> io::Result<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(failure(libc::ENOENT))
    }

    fn file_mut(&mut self, inode: Inode) -> io::Result<&mut File> {
        let node = self.node_mut(inode)?;
        node.modified_at = SystemTime::now();
        match &mut node.kind {
            Kind::File(file) => Ok(file),
            Kind::Directory => Err(failure(libc::EISDIR)),
        }
    }

    /// The inode that a name stands for.
    ///
    /// # Errors
    /// ENOENT when there is no such name.
    pub fn find(&self, directory: Inode, name: &OsStr) -> io::Result<Inode> {
        self.names
            .find(directory, name)
            .ok_or(failure(libc::ENOENT))
    }

    /// The names in a directory with what they stand for, in order.
    pub fn list(&self, directory: Inode) -> Vec<(std::ffi::OsString, Inode)> {
        self.names
            .list(directory)
            .map(|(name, inode)| (name.to_owned(), inode))
            .collect()
    }

    /// The names in a directory that a cut would leave.
    pub fn list_durable(&self, directory: Inode) -> Vec<(std::ffi::OsString, Inode)> {
        self.names
            .list_durable(directory)
            .map(|(name, inode)| (name.to_owned(), inode))
            .collect()
    }

    /// Makes a file or directory under a new name.
    ///
    /// # Errors
    /// EEXIST for a name in use, ENOTDIR, ENOENT, or ENOSPC on a full disk.
    pub fn create(
        &mut self,
        directory: Inode,
        name: &OsStr,
        kind: Kind,
        permissions: u16,
        owner: (u32, u32),
    ) -> io::Result<Inode> {
        if !matches!(self.node(directory)?.kind, Kind::Directory) {
            return Err(failure(libc::ENOTDIR));
        }
        if self.names.find(directory, name).is_some() {
            return Err(failure(libc::EEXIST));
        }
        self.require_space(SECTOR_BYTES)?;
        let inode = self.new_node(kind, permissions, owner);
        self.names.add(directory, name, inode);
        Ok(inode)
    }

    /// Puts a node on the disk whose name and content are durable already.
    pub fn import(&mut self, directory: Inode, name: &OsStr, kind: Kind) -> Inode {
        let permissions = match kind {
            Kind::Directory => 0o755,
            Kind::File(_) => 0o644,
        };
        let inode = self.new_node(kind, permissions, (0, 0));
        self.names.add_durably(directory, name, inode);
        inode
    }

    /// Takes away the name of a file (`directory_wanted` false) or of an empty directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR, ENOTDIR or ENOTEMPTY.
    pub fn remove(
        &mut self,
        directory: Inode,
        name: &OsStr,
        directory_wanted: bool,
    ) -> io::Result<()> {
        let inode = self.find(directory, name)?;
        let is_directory = matches!(self.node(inode)?.kind, Kind::Directory);
        if is_directory && !directory_wanted {
            return Err(failure(libc::EISDIR));
        }
        if !is_directory && directory_wanted {
            return Err(failure(libc::ENOTDIR));
        }
        if is_directory && self.names.list(inode).next().is_some() {
            return Err(failure(libc::ENOTEMPTY));
        }
        self.node_mut(inode)?.unlinked = true;
        self.names.remove(directory, name);
        Ok(())
    }

    /// Moves a name, over another one unless `replace` is false.
    ///
    /// # Errors
    /// ENOENT, EEXIST, or ENOTEMPTY when a directory with entries would be replaced.
    pub fn rename(
        &mut self,
        from: (Inode, &OsStr),
        to: (Inode, &OsStr),
        replace: bool,
    ) -> io::Result<()> {
        let inode = self.find(from.0, from.1)?;
        if let Some(replaced) = self.names.find(to.0, to.1) {
            if !replace {
                return Err(failure(libc::EEXIST));
            }
            if self.names.list(replaced).next().is_some() {
                return Err(failure(libc::ENOTEMPTY));
            }
            self.node_mut(replaced)?.unlinked = true;
        }
        self.names
            .rename((from.0, from.1.to_owned()), (to.0, to.1.to_owned()), inode);
        Ok(())
    }

    /// Opens a node; the answer is the generation that its handle carries.
    ///
    /// # Errors
    /// ENOENT.
    pub fn open(&mut self, inode: Inode) -> io::Result<u64> {
        self.node_mut(inode)?.open_count += 1;
        Ok(self.generation)
    }

    /// Closes a node opened as `generation`.
    pub fn close(&mut self, inode: Inode, generation: u64) {
        if generation != self.generation {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.open_count = node.open_count.saturating_sub(1);
            let last = node.open_count == 0 && node.unlinked;
            if last && !self.names.named().contains(&inode) {
                self.nodes.remove(&inode);
            }
        }
    }

    /// Reads bytes of a file.
    ///
    /// # Errors
    /// ENOENT or EISDIR.
    pub fn read(&self, inode: Inode, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        match &self.node(inode)?.kind {
            Kind::File(file) => Ok(file.current().read(offset, length)),
            Kind::Directory => Err(failure(libc::EISDIR)),
        }
    }

    /// Writes bytes that a cut may forget.
    ///
    /// # Errors
    /// ENOSPC on a full disk, ENOENT, EISDIR.
    pub fn write(&mut self, inode: Inode, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.require_space_for(inode, offset, bytes.len() as u64)?;
        let bytes = Bytes::copy_from_slice(bytes);
        self.counts.writes += 1;
        self.counts.written_bytes += bytes.len() as u64;
        self.file_mut(inode)?
            .change(Change::Write { offset, bytes });
        Ok(())
    }

    /// Starts a write that is to be durable when it is answered; the answer is its ticket.
    ///
    /// # Errors
    /// ENOSPC on a full disk, ENOENT, EISDIR, EIO where a sync was told to fail.
    pub fn begin_durable_write(
        &mut self,
        inode: Inode,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<u64> {
        self.require_space_for(inode, offset, bytes.len() as u64)?;
        if self.take_failing_sync() {
            return Err(failure(libc::EIO));
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.in_flight
            .insert(ticket, (inode, offset, Bytes::copy_from_slice(bytes)));
        Ok(ticket)
    }

    /// Ends a durable write.
    ///
    /// # Errors
    /// EIO when the power was cut since it began.
    pub fn finish_durable_write(&mut self, ticket: u64) -> io::Result<()> {
        let Some((inode, offset, bytes)) = self.in_flight.remove(&ticket) else {
            return Err(failure(libc::EIO));
        };
        self.counts.writes += 1;
        self.counts.durable_writes += 1;
        self.counts.written_bytes += bytes.len() as u64;
        self.file_mut(inode)?.write_durably(offset, &bytes);
        Ok(())
    }

    /// Makes any other change of a file.
    ///
    /// # Errors
    /// ENOENT or EISDIR.
    pub fn change(&mut self, inode: Inode, change: Change) -> io::Result<()> {
        self.file_mut(inode)?.change(change);
        Ok(())
    }

    /// Reserves a range, growing the file to its end unless `keep_length`.
    ///
    /// # Errors
    /// ENOSPC on a full disk, ENOENT, EISDIR.
    pub fn reserve(
        &mut self,
        inode: Inode,
        offset: u64,
        length: u64,
        keep_length: bool,
    ) -> io::Result<()> {
        self.require_space_for(inode, offset, length)?;
        let file = self.file_mut(inode)?;
        let end = offset.saturating_add(length);
        if !keep_length && end > file.current().length() {
            file.change(Change::Length(end));
        }
        Ok(())
    }

    /// Makes a file's content and length, or a directory's names, durable.
    ///
    /// # Errors
    /// ENOENT, or EIO where a sync was told to fail: then the changes are forgotten, as Linux does.
    pub fn sync(&mut self, inode: Inode) -> io::Result<()> {
        let failing = self.take_failing_sync();
        match &mut self.node_mut(inode)?.kind {
            Kind::File(file) if failing => file.fail_sync(),
            Kind::File(file) => file.sync(),
            Kind::Directory if failing => {}
            Kind::Directory => {
                self.names.sync(inode);
                let named = self.names.named();
                self.nodes.retain(|inode, node| {
                    *inode == ROOT || node.open_count > 0 || named.contains(inode)
                });
            }
        }
        if failing {
            return Err(failure(libc::EIO));
        }
        self.counts.syncs += 1;
        Ok(())
    }

    fn take_failing_sync(&mut self) -> bool {
        let failing = self.failing_syncs > 0;
        if failing {
            self.failing_syncs -= 1;
            self.counts.failed_syncs += 1;
        }
        failing
    }

    /// Lets the next `count` syncs and durable writes fail with EIO.
    pub fn fail_syncs(&mut self, count: u64) {
        self.failing_syncs = count;
    }

    /// Leaves only `free_bytes` of space, or all of it again.
    pub fn limit_free_bytes(&mut self, free_bytes: Option<u64>) {
        self.limit_bytes = free_bytes.map(|free| self.used_bytes().saturating_add(free));
    }

    /// Bytes of space that files take now.
    pub fn used_bytes(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| match &node.kind {
                Kind::File(file) => file.current().allocated_bytes(),
                Kind::Directory => 0,
            })
            .sum()
    }

    /// Bytes of space on the whole disk.
    pub fn capacity_bytes(&self) -> u64 {
        self.limit_bytes
            .unwrap_or(self.capacity_bytes)
            .min(self.capacity_bytes)
    }

    fn require_space_for(&self, inode: Inode, offset: u64, length: u64) -> io::Result<()> {
        match &self.node(inode)?.kind {
            Kind::File(file) => self.require_space(file.current().new_bytes(offset, length)),
            Kind::Directory => Err(failure(libc::EISDIR)),
        }
    }

    fn require_space(&self, bytes: u64) -> io::Result<()> {
        if bytes > 0 && self.used_bytes().saturating_add(bytes) > self.capacity_bytes() {
            return Err(failure(libc::ENOSPC));
        }
        Ok(())
    }

    /// Cuts the power: what was not durable is forgotten, or by chance kept or torn. Idempotent.
    pub fn cut(&mut self) {
        if !self.powered {
            return;
        }
        self.powered = false;
        self.generation += 1;
        self.counts.cuts += 1;
        self.counts.torn_in_flight += self.in_flight.len() as u64;
        let mut in_flight: HashMap<Inode, Vec<Change>> = HashMap::new();
        for (inode, offset, bytes) in std::mem::take(&mut self.in_flight).into_values() {
            in_flight
                .entry(inode)
                .or_default()
                .push(Change::Write { offset, bytes });
        }
        self.names.cut(self.chance.as_mut());
        // In order, so that a seed tears the same way each time.
        let mut inodes: Vec<Inode> = self.nodes.keys().copied().collect();
        inodes.sort_unstable();
        for inode in inodes {
            let Some(node) = self.nodes.get_mut(&inode) else {
                continue;
            };
            node.open_count = 0;
            if let Kind::File(file) = &mut node.kind {
                let own = in_flight.remove(&inode).unwrap_or_default();
                file.cut(own, self.chance.as_mut());
            }
        }
        let named = self.names.named();
        self.nodes
            .retain(|inode, _| *inode == ROOT || named.contains(inode));
    }

    /// Brings the power back, with faults that were ordered but not yet met taken back.
    pub fn restore(&mut self) {
        self.powered = true;
        self.failing_syncs = 0;
    }

    /// Whether the power is on.
    pub fn powered(&self) -> bool {
        self.powered
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Durable writes that began and were not answered yet.
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Changes of files and names that a cut may forget now.
    pub fn unsynced_count(&self) -> usize {
        let files: usize = self
            .nodes
            .values()
            .map(|node| match &node.kind {
                Kind::File(file) => file.unsynced_count(),
                Kind::Directory => 0,
            })
            .sum();
        files + self.names.unsynced_count()
    }
}
