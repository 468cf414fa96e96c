//! A plain directory that the disk starts from and that gets the durable state when it is unmounted.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use super::disk::{Disk, Kind};
use super::file::File;
use super::namespace::{Inode, ROOT};

/// Reads a directory tree into the disk; everything in it is durable. Other kinds of nodes are passed over.
///
/// # Errors
/// Whatever reading the directory answers.
pub fn load(disk: &mut Disk, directory: &Path) -> io::Result<()> {
    load_into(disk, ROOT, directory)
}

fn load_into(disk: &mut Disk, parent: Inode, directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let inode = disk.import(parent, &entry.file_name(), Kind::Directory);
            load_into(disk, inode, &entry.path())?;
        } else if kind.is_file() {
            let file = File::from_durable(&fs::read(entry.path())?);
            disk.import(parent, &entry.file_name(), Kind::File(file));
        }
    }
    Ok(())
}

/// Replaces the content of a directory by the disk's durable state.
///
/// # Errors
/// Whatever writing the directory answers.
pub fn store(disk: &Disk, directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    store_from(disk, ROOT, directory)
}

fn store_from(disk: &Disk, parent: Inode, directory: &Path) -> io::Result<()> {
    for (name, inode) in disk.list_durable(parent) {
        let path = directory.join::<&OsStr>(&name);
        match &disk.node(inode)?.kind {
            Kind::Directory => {
                fs::create_dir(&path)?;
                store_from(disk, inode, &path)?;
            }
            Kind::File(file) => {
                let content = file.durable();
                fs::write(&path, content.read(0, content.length() as usize))?;
            }
        }
    }
    Ok(())
}
