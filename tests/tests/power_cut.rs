//! The power-cut file system forgets exactly what was not made durable, seen through real system calls.
//!
//! Needs /dev/fuse and the right to mount.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use corelog_tests::power_cut::{Options, PowerCut, control};
use corelog_tests::scratch::Scratch;

/// A mounted file system in a directory of its own; unmounted before that goes.
struct Rig {
    disk: Option<PowerCut>,
    scratch: Scratch,
}

impl Rig {
    fn new(options: Options) -> Self {
        let scratch = Scratch::new("power-cut").unwrap();
        fs::create_dir(scratch.path().join("mount")).unwrap();
        let disk = PowerCut::mount(&scratch.path().join("mount"), options).unwrap();
        Self {
            disk: Some(disk),
            scratch,
        }
    }

    fn strict() -> Self {
        Self::new(Options::default())
    }

    fn disk(&self) -> &PowerCut {
        self.disk.as_ref().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk().path().join(name)
    }

    fn cut_and_restore(&self) {
        self.disk().cut();
        self.disk().restore();
    }

    /// A file whose name and content survive.
    fn durable_file(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(content).unwrap();
        file.sync_all().unwrap();
        sync_directory(path.parent().unwrap());
    }
}

fn sync_directory(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
        .unwrap()
}

#[test]
fn written_but_not_synced_is_lost() {
    let rig = Rig::strict();
    rig.durable_file("log", b"kept");
    let file = open(&rig.path("log"), 0);
    file.write_all_at(b"lost", 4).unwrap();
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"keptlost");
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"kept");
}

#[test]
fn synced_data_survives() {
    let rig = Rig::strict();
    rig.durable_file("log", b"");
    let file = open(&rig.path("log"), 0);
    file.write_all_at(b"first", 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(b"second", 5).unwrap();
    file.sync_all().unwrap();
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"firstsecond");
}

#[test]
fn new_file_is_lost_without_a_sync_of_its_directory() {
    let rig = Rig::strict();
    let file = File::create(rig.path("new")).unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    rig.cut_and_restore();
    let missing = fs::read(rig.path("new")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn new_directory_is_lost_with_all_in_it_without_a_sync_of_its_parent() {
    let rig = Rig::strict();
    fs::create_dir(rig.path("topic")).unwrap();
    rig.durable_file("topic/log", b"synced");
    rig.cut_and_restore();
    assert!(!rig.path("topic").exists());

    fs::create_dir(rig.path("topic")).unwrap();
    rig.durable_file("topic/log", b"synced");
    sync_directory(rig.disk().path());
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("topic/log")).unwrap(), b"synced");
}

#[test]
fn rename_is_undone_without_a_sync_of_its_directory() {
    let rig = Rig::strict();
    rig.durable_file("meta", b"old");
    rig.durable_file("meta.new", b"new");
    fs::rename(rig.path("meta.new"), rig.path("meta")).unwrap();
    assert_eq!(fs::read(rig.path("meta")).unwrap(), b"new");
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("meta")).unwrap(), b"old");

    fs::rename(rig.path("meta.new"), rig.path("meta")).unwrap();
    sync_directory(rig.disk().path());
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("meta")).unwrap(), b"new");
    assert!(!rig.path("meta.new").exists());
}

#[test]
fn unlink_is_undone_without_a_sync_of_its_directory() {
    let rig = Rig::strict();
    rig.durable_file("segment", b"data");
    fs::remove_file(rig.path("segment")).unwrap();
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("segment")).unwrap(), b"data");

    fs::remove_file(rig.path("segment")).unwrap();
    sync_directory(rig.disk().path());
    rig.cut_and_restore();
    assert!(!rig.path("segment").exists());
}

#[test]
fn truncation_is_undone_without_a_sync() {
    let rig = Rig::strict();
    rig.durable_file("log", b"0123456789");
    let file = open(&rig.path("log"), 0);
    file.set_len(4).unwrap();
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"0123456789");

    let file = open(&rig.path("log"), 0);
    file.set_len(4).unwrap();
    file.sync_all().unwrap();
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"0123");
}

#[test]
fn durable_write_survives_without_a_sync() {
    for flag in [libc::O_DSYNC, libc::O_SYNC] {
        let rig = Rig::strict();
        rig.durable_file("log", b"");
        open(&rig.path("log"), flag)
            .write_all_at(b"kept", 0)
            .unwrap();
        rig.cut_and_restore();
        assert_eq!(fs::read(rig.path("log")).unwrap(), b"kept");
    }
}

#[test]
fn per_write_durability_flag_is_honoured() {
    let rig = Rig::strict();
    rig.durable_file("log", b"");
    let file = open(&rig.path("log"), 0);
    let mut bytes = *b"kept";
    let part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: `part` points at `bytes`, which outlives the call, and the descriptor is open.
    #[allow(unsafe_code)]
    let written =
        unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, 0, libc::RWF_DSYNC) };
    assert_eq!(written, 4);
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"kept");
}

#[test]
fn direct_write_alone_is_not_durable_and_must_be_aligned() {
    let rig = Rig::strict();
    rig.durable_file("log", &[1; 4096]);
    // FUSE passes any memory on, so the buffer needs no alignment here.
    let file = open(&rig.path("log"), libc::O_DIRECT);
    file.write_all_at(&[2; 4096], 0).unwrap();
    let refused = file.write_all_at(&[2; 100], 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("log")).unwrap(), [1; 4096]);
}

#[test]
fn unsynced_write_can_be_torn_at_sectors() {
    let mut torn = 0;
    for seed in 0..12 {
        let rig = Rig::new(Options {
            seed: Some(seed),
            ..Options::default()
        });
        rig.durable_file("log", &[1; 8192]);
        open(&rig.path("log"), 0)
            .write_all_at(&[2; 8192], 0)
            .unwrap();
        rig.cut_and_restore();
        let after = fs::read(rig.path("log")).unwrap();
        assert!(
            after
                .chunks(512)
                .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
        );
        let new_bytes = after.iter().filter(|byte| **byte == 2).count();
        torn += u32::from(new_bytes != 0 && new_bytes != after.len());
    }
    assert!(torn > 0, "no seed tore the write");
}

#[test]
fn durable_write_under_way_at_the_cut_fails_and_may_be_torn() {
    let mut torn = 0;
    for seed in 0..8 {
        let rig = Rig::new(Options {
            seed: Some(seed),
            sync_delay: Duration::from_millis(300),
            ..Options::default()
        });
        rig.durable_file("log", &[1; 8192]);
        let file = open(&rig.path("log"), libc::O_DSYNC);
        let writer = std::thread::spawn(move || file.write_at(&[2; 8192], 0));
        while rig.disk().in_flight_count() == 0 {
            std::thread::yield_now();
        }
        rig.cut_and_restore();
        let failed = writer.join().unwrap().unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EIO));
        let after = fs::read(rig.path("log")).unwrap();
        let new_bytes = after.iter().filter(|byte| **byte == 2).count();
        torn += u32::from(new_bytes != 0 && new_bytes != after.len());
    }
    assert!(torn > 0, "no seed tore the write");
}

#[test]
fn everything_fails_while_the_power_is_cut_and_old_handles_stay_dead() {
    let rig = Rig::strict();
    rig.durable_file("log", b"kept");
    let mut file = open(&rig.path("log"), 0);
    rig.disk().cut();
    let mut byte = [0];
    assert_eq!(
        file.read(&mut byte).unwrap_err().raw_os_error(),
        Some(libc::EIO)
    );
    assert_eq!(
        fs::metadata(rig.path("log")).unwrap_err().raw_os_error(),
        Some(libc::EIO)
    );
    rig.disk().restore();
    assert_eq!(
        file.write(b"x").unwrap_err().raw_os_error(),
        Some(libc::EIO)
    );
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"kept");
}

#[test]
fn failed_sync_forgets_what_it_covered_and_the_next_one_lies() {
    let rig = Rig::strict();
    rig.durable_file("log", b"");
    let file = open(&rig.path("log"), 0);
    file.write_all_at(b"gone", 0).unwrap();
    rig.disk().fail_syncs(1);
    assert_eq!(
        file.sync_data().unwrap_err().raw_os_error(),
        Some(libc::EIO)
    );
    file.sync_data().unwrap();
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"gone");
    rig.cut_and_restore();
    assert_eq!(fs::read(rig.path("log")).unwrap(), b"");
}

#[test]
fn full_disk_refuses_new_space_and_still_overwrites_and_deletes() {
    let rig = Rig::strict();
    rig.durable_file("log", &[1; 8192]);
    rig.disk().limit_free_bytes(Some(0));
    let file = open(&rig.path("log"), 0);
    let full = file.write_all_at(&[2; 4096], 8192).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    file.write_all_at(&[2; 4096], 0).unwrap();
    fs::remove_file(rig.path("log")).unwrap();
    rig.disk().limit_free_bytes(None);
    fs::write(rig.path("other"), [3; 8192]).unwrap();
}

#[test]
fn preallocation_locks_and_listing_work() {
    let rig = Rig::strict();
    rig.durable_file("log", b"");
    let file = open(&rig.path("log"), 0);
    // SAFETY: plain system calls on an open descriptor.
    #[allow(unsafe_code)]
    let allocated = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 65_536) };
    assert_eq!(allocated, 0);
    assert_eq!(file.metadata().unwrap().len(), 65_536);
    file.try_lock().unwrap();
    let second = open(&rig.path("log"), 0);
    assert!(second.try_lock().is_err());
    for number in 0..300 {
        File::create(rig.path(&format!("file-{number:03}"))).unwrap();
    }
    assert_eq!(fs::read_dir(rig.disk().path()).unwrap().count(), 301);
}

#[test]
fn backing_directory_gets_the_durable_state_and_no_more() {
    let backing = Scratch::new("power-cut-backing").unwrap();
    let directory = backing.path();
    fs::write(directory.join("before"), b"kept").unwrap();
    let mut rig = Rig::new(Options {
        backing: Some(directory.to_owned()),
        ..Options::default()
    });
    rig.durable_file("after", b"synced");
    fs::write(rig.path("unsynced"), b"lost").unwrap();
    rig.disk.take().unwrap().unmount().unwrap();
    assert_eq!(fs::read(directory.join("before")).unwrap(), b"kept");
    assert_eq!(fs::read(directory.join("after")).unwrap(), b"synced");
    assert!(!directory.join("unsynced").exists());
}

#[test]
fn control_socket_cuts_restores_and_counts() {
    let rig = Rig::strict();
    let socket = rig.scratch.path().join("control");
    std::thread::scope(|scope| {
        scope.spawn(|| rig.disk().serve_control(&socket).unwrap());
        while !socket.exists() {
            std::thread::yield_now();
        }
        fs::write(rig.path("log"), b"lost").unwrap();
        assert_eq!(control::send(&socket, "cut").unwrap(), "ok");
        assert!(fs::read(rig.path("log")).is_err());
        assert!(
            control::send(&socket, "status")
                .unwrap()
                .starts_with("power=cut")
        );
        assert_eq!(control::send(&socket, "restore").unwrap(), "ok");
        assert!(!rig.path("log").exists());
        assert!(
            control::send(&socket, "stats")
                .unwrap()
                .contains("\"cuts\":1")
        );
        assert!(
            control::send(&socket, "explode")
                .unwrap()
                .starts_with("error")
        );
        assert_eq!(control::send(&socket, "unmount").unwrap(), "ok");
    });
}
