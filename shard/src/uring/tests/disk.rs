//! Files and folders, and operations whose asker is gone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use super::{on_a_core, pattern};
use crate::uring::core::{blocking, in_flight};
use crate::uring::*;

/// A folder of one test on a real disk, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Not the system's temporary folder, which may be memory.
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!(
            "../target/uring-tests/{name}-{}",
            std::process::id()
        ));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_unaligned_read_returns_exactly_the_bytes_asked_for() {
    let folder = Folder::new("unaligned");
    let path = folder.0.clone();
    on_a_core(move || async move {
        for order in [WriteOrder::SyncedWrites, WriteOrder::WriteThenSync] {
            let file = DirectFile::create(&path, format!("{order:?}"), order)
                .await
                .unwrap();
            let content = pattern(3 * BLOCK_BYTES);
            file.write_at_durable(DirectBuffer::from_parts(&[&content[..]]), 0)
                .await
                .unwrap();
            for (position, length) in [
                (0, 1),
                (1, 4095),
                (4095, 2),
                (5000, 4096),
                (0, 12288),
                (12287, 1),
            ] {
                let read = file.read_at(position as u64, length).await.unwrap();
                assert_eq!(
                    &*read,
                    &content[position..position + length],
                    "{length} bytes at {position}"
                );
            }
            file.close().await.unwrap();
        }
    });
}

#[test]
fn a_read_past_the_end_is_short_and_shows_no_byte_that_was_not_read() {
    let folder = Folder::new("short");
    let path = folder.0.clone();
    on_a_core(move || async move {
        let content = pattern(5000);
        let name = path.join("small");
        {
            let (name, content) = (name.clone(), content.clone());
            blocking(move || std::fs::write(name, content))
                .await
                .unwrap();
        }
        let file = DirectFile::open(&name, WriteOrder::SyncedWrites)
            .await
            .unwrap();
        assert_eq!(file.length_bytes().await.unwrap(), 5000);
        assert_eq!(&*file.read_at(4990, 500).await.unwrap(), &content[4990..]);
        assert_eq!(&*file.read_at(100, 9000).await.unwrap(), &content[100..]);
        assert_eq!(&*file.read_at(0, 5000).await.unwrap(), &content[..]);
        assert!(file.read_at(5000, 10).await.unwrap().is_empty());
        assert!(file.read_at(1 << 30, 10).await.unwrap().is_empty());
        assert!(file.read_at(0, 0).await.unwrap().is_empty());
        assert_eq!(
            file.read_at(0, 1 << 30).await.unwrap_err().kind(),
            std::io::ErrorKind::InvalidInput
        );
    });
}

#[test]
fn parts_are_written_one_behind_the_other_and_padded_with_zeros() {
    let folder = Folder::new("parts");
    let path = folder.0.clone();
    on_a_core(move || async move {
        let file = DirectFile::create(&path, "parts", WriteOrder::SyncedWrites)
            .await
            .unwrap();
        let parts = [
            Bytes::from_static(b"one"),
            Bytes::from(pattern(5000)),
            Bytes::new(),
        ];
        file.write_at_durable(DirectBuffer::from_parts(&parts), BLOCK_BYTES as u64)
            .await
            .unwrap();
        assert_eq!(file.length_bytes().await.unwrap(), 3 * BLOCK_BYTES as u64);
        let read = file.read_bytes_at(0, 3 * BLOCK_BYTES).await.unwrap();
        assert!(read[..BLOCK_BYTES].iter().all(|byte| *byte == 0));
        assert_eq!(&read[BLOCK_BYTES..BLOCK_BYTES + 3], b"one");
        assert_eq!(&read[BLOCK_BYTES + 3..BLOCK_BYTES + 5003], pattern(5000));
        assert!(read[BLOCK_BYTES + 5003..].iter().all(|byte| *byte == 0));
    });
}

#[test]
fn plain_writes_zeros_and_cuts_reach_the_same_file() {
    let folder = Folder::new("plain");
    let path = folder.0.clone();
    on_a_core(move || async move {
        let file = DirectFile::create(&path, "log", WriteOrder::SyncedWrites)
            .await
            .unwrap();
        file.allocate(64 << 10).await.unwrap();
        file.write_at(DirectBuffer::zeroed(32 << 10), 0)
            .await
            .unwrap();
        file.write_at_durable(DirectBuffer::from_parts(&[pattern(4096)]), 8192)
            .await
            .unwrap();
        file.fdatasync().await.unwrap();
        directory::sync(&path).await.unwrap();
        assert_eq!(file.length_bytes().await.unwrap(), 64 << 10);
        file.truncate(10_000).await.unwrap();
        assert_eq!(file.length_bytes().await.unwrap(), 10_000);
        assert_eq!(
            &*file.read_at(8192, 4096).await.unwrap(),
            &pattern(4096)[..1808]
        );
        let other = file.clone();
        file.close().await.unwrap();
        assert_eq!(
            other.read_at(8192, 1).await.unwrap().len(),
            1,
            "a clone keeps the file open"
        );
    });
}

#[test]
fn a_file_is_made_once() {
    let folder = Folder::new("once");
    let path = folder.0.clone();
    on_a_core(move || async move {
        let missing = DirectFile::open(&path.join("none"), WriteOrder::SyncedWrites).await;
        assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
        drop(
            DirectFile::create(&path, "log", WriteOrder::SyncedWrites)
                .await
                .unwrap(),
        );
        let again = DirectFile::create(&path, "log", WriteOrder::SyncedWrites).await;
        assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    });
}

#[test]
fn a_dropped_write_still_reaches_the_file_with_its_own_bytes() {
    let folder = Folder::new("dropped-write");
    let path = folder.0.clone();
    on_a_core(move || async move {
        let file = DirectFile::create(&path, "log", WriteOrder::SyncedWrites)
            .await
            .unwrap();
        for index in 0..64_u64 {
            let buffer = DirectBuffer::from_parts(&[vec![index as u8 + 1; 8192]]);
            let mut write = Box::pin(file.write_at_durable(buffer, index * 8192));
            // Submitted, and the asker gone at once.
            assert!(futures_lite::future::poll_once(&mut write).await.is_none());
            if index % 2 == 0 {
                next_turn().await;
            }
            drop(write);
            // Would overwrite a buffer that was freed while the device still reads it.
            drop(DirectBuffer::zeroed(8192));
        }
        while in_flight() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        for index in 0..64_u64 {
            let read = file.read_at(index * 8192, 8192).await.unwrap();
            assert_eq!(read.len(), 8192);
            assert!(
                read.iter().all(|byte| *byte == index as u8 + 1),
                "write {index}"
            );
        }
    });
}

#[test]
fn a_dropped_read_does_not_write_into_memory_that_another_took() {
    let folder = Folder::new("dropped-read");
    let path = folder.0.clone();
    on_a_core(move || async move {
        let file = DirectFile::create(&path, "log", WriteOrder::SyncedWrites)
            .await
            .unwrap();
        file.write_at_durable(DirectBuffer::from_parts(&[vec![0xEE; 256 << 10]]), 0)
            .await
            .unwrap();
        for _ in 0..32 {
            let mut read = Box::pin(file.read_at(0, 256 << 10));
            assert!(futures_lite::future::poll_once(&mut read).await.is_none());
            next_turn().await;
            drop(read);
            let buffer = DirectBuffer::zeroed(256 << 10);
            sleep(Duration::from_micros(500)).await;
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
        }
    });
}

#[test]
fn a_core_ends_only_after_the_writes_it_submitted() {
    let folder = Folder::new("end");
    let path = folder.0.clone();
    on_a_core(move || async move {
        let file = DirectFile::create(&path, "log", WriteOrder::SyncedWrites)
            .await
            .unwrap();
        for index in 0..16_u64 {
            let file = file.clone();
            spawn_local(async move {
                let buffer = DirectBuffer::from_parts(&[vec![7; 64 << 10]]);
                file.write_at_durable(buffer, index * (64 << 10))
                    .await
                    .unwrap();
            })
            .detach();
        }
        next_turn().await;
        assert!(in_flight() > 0);
    });
    let content = std::fs::read(folder.0.join("log")).unwrap();
    assert_eq!(content.len(), 1 << 20);
    assert!(content.iter().all(|byte| *byte == 7));
}

#[test]
fn bytes_read_on_one_core_may_be_dropped_on_another_thread() {
    let folder = Folder::new("travel");
    let path = folder.0.clone();
    let kept = on_a_core(move || async move {
        let file = DirectFile::create(&path, "log", WriteOrder::SyncedWrites)
            .await
            .unwrap();
        file.write_at_durable(DirectBuffer::from_parts(&[pattern(64 << 10)]), 0)
            .await
            .unwrap();
        // More than the registered memory holds, so this runs dry unless it comes back.
        for _ in 0..200 {
            let bytes = file.read_bytes_at(1, 60 << 10).await.unwrap();
            let slice = bytes.slice(9..);
            drop(bytes);
            let checked =
                blocking(move || slice[..] == pattern(64 << 10)[10..(60 << 10) + 1]).await;
            assert!(checked);
        }
        file.read_bytes_at(0, 4096).await.unwrap()
    });
    assert_eq!(
        &kept[..],
        &pattern(4096)[..],
        "bytes outlive the core that read them"
    );
}

#[test]
fn folders_are_made_listed_renamed_and_removed() {
    let folder = Folder::new("folders");
    let path = folder.0.clone();
    on_a_core(move || async move {
        let deep = path.join("a/b/c");
        directory::create_all(&deep).await.unwrap();
        directory::create_all(&deep).await.unwrap();
        directory::replace_small(&deep.join("small"), Bytes::from_static(b"first"))
            .await
            .unwrap();
        directory::replace_small(&deep.join("small"), "second!")
            .await
            .unwrap();
        assert_eq!(
            directory::read_small(&deep.join("small"), 7).await.unwrap(),
            b"second!"
        );
        let refused = directory::read_small(&deep.join("small"), 6)
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::FileTooLarge);
        let missing = directory::read_small(&deep.join("none"), 6)
            .await
            .unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        directory::rename(&deep.join("small"), &path.join("moved"))
            .await
            .unwrap();
        let names: Vec<_> = directory::list(&path).await.unwrap();
        assert_eq!(
            names
                .iter()
                .map(|entry| entry.name.as_str())
                .collect::<Vec<_>>(),
            ["a", "moved"]
        );
        assert!(names[0].is_folder && names[1].length_bytes == 7);
        directory::remove(&path.join("moved")).await.unwrap();
        directory::remove(&path.join("moved")).await.unwrap();
        directory::remove_all(&path.join("a")).await.unwrap();
        assert!(directory::list(&path).await.unwrap().is_empty());
        assert_eq!(
            directory::list(&deep).await.unwrap_err().kind(),
            std::io::ErrorKind::NotFound
        );
        let space = directory::space(&path).await.unwrap();
        assert!(space.available_bytes > 0 && space.total_bytes >= space.available_bytes);
    });
}
