//! What the rest of the crate relies on, tried on real files, sockets and threads.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::uring::channel::{Closed, SendError, bounded, local_reply, reply};
use crate::uring::core::{blocking, in_flight};
use crate::uring::file::{DirectFile, WriteOrder};
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

fn on_a_core<F, T>(main: impl FnOnce() -> F + Send + 'static) -> T
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let options = CoreOptions {
        io_memory_bytes: 1 << 20,
        ring_depth: 64,
        ..CoreOptions::default()
    };
    run_core(options, main).unwrap().join().unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 % 251) as u8).collect()
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

#[test]
fn a_full_channel_gives_the_message_back_and_says_so() {
    let (sender, receiver) = bounded(2);
    sender.try_send(1).unwrap();
    sender.try_send(2).unwrap();
    assert_eq!(sender.try_send(3), Err(SendError::Full(3)));
    assert_eq!(receiver.try_recv(), Ok(Some(1)));
    sender.try_send(3).unwrap();
    drop(receiver);
    assert_eq!(sender.try_send(4), Err(SendError::Closed(4)));
    let (sender, receiver) = bounded(2);
    sender.try_send(1).unwrap();
    drop(sender);
    assert_eq!(receiver.recv_blocking(), Ok(1));
    assert_eq!(receiver.recv_blocking(), Err(Closed));
}

#[test]
fn cores_wake_each_other_under_load_in_both_directions() {
    const ROUNDS: u64 = 300;
    const BURST: u64 = 300;
    let (to_second, second_inbox) = bounded::<u64>(BURST as usize);
    let (to_first, first_inbox) = bounded::<u64>(BURST as usize);
    let options = |index| CoreOptions {
        index,
        io_memory_bytes: 1 << 20,
        ring_depth: 64,
        ..CoreOptions::default()
    };
    let second = run_core(options(1), move || async move {
        // Busy with timers as well.
        let _ticker = spawn_background(async {
            loop {
                sleep(Duration::from_micros(200)).await;
            }
        });
        let mut sum = 0;
        while let Ok(number) = second_inbox.recv().await {
            sum += number;
            to_first.send(number).await.unwrap();
        }
        sum
    })
    .unwrap();
    let first = run_core(options(0), move || async move {
        let mut sum = 0;
        for round in 0..ROUNDS {
            for number in 0..BURST {
                to_second.send(round * BURST + number).await.unwrap();
            }
            for _ in 0..BURST {
                sum += first_inbox.recv().await.unwrap();
            }
        }
        sum
    })
    .unwrap();
    let expected = (0..ROUNDS * BURST).sum::<u64>();
    assert_eq!(first.join().unwrap(), expected);
    assert_eq!(second.join().unwrap(), expected);
}

#[test]
fn the_support_thread_and_a_core_exchange_messages_and_replies() {
    let (to_core, inbox) = bounded::<(u32, channel::Reply<u32>)>(4);
    let core = run_core(
        CoreOptions {
            io_memory_bytes: 1 << 20,
            ..CoreOptions::default()
        },
        move || async move {
            while let Ok((number, reply)) = inbox.recv().await {
                if number != 13 {
                    reply.send(number * 2).unwrap();
                }
            }
        },
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        for number in 10..200 {
            let (answer, answered) = reply();
            to_core.send((number, answer)).await.unwrap();
            let expected = if number == 13 {
                Err(Closed)
            } else {
                Ok(number * 2)
            };
            assert_eq!(answered.await, expected);
        }
    });
    drop(to_core);
    core.join().unwrap();
}

#[test]
fn a_local_reply_is_delivered_or_closed() {
    on_a_core(|| async {
        let (answer, answered) = local_reply();
        let task = spawn_local(answered);
        next_turn().await;
        answer.send(5).unwrap();
        assert_eq!(task.await, Ok(5));
        let (answer, answered) = local_reply::<u32>();
        drop(answer);
        assert_eq!(answered.await, Err(Closed));
        let (answer, answered) = local_reply::<u32>();
        drop(answered);
        assert!(answer.is_closed());
        assert_eq!(answer.send(6), Err(6));
    });
}

#[test]
fn a_receiver_that_never_waits_does_not_keep_other_work_from_running() {
    let stop = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&stop);
    on_a_core(move || async move {
        let (sender, receiver) = bounded::<()>(64);
        let flooding = Rc::new(Cell::new(true));
        let flood = {
            let (sender, flooding) = (sender.clone(), Rc::clone(&flooding));
            spawn_local(async move {
                while flooding.get() {
                    sender.send(()).await.unwrap();
                }
            })
        };
        let drain = spawn_local(async move { while receiver.recv().await.is_ok() {} });
        for _ in 0..20 {
            sleep(Duration::from_micros(100)).await;
            seen.fetch_add(1, Ordering::Relaxed);
        }
        flooding.set(false);
        flood.await;
        drop(sender);
        drain.await;
    });
    assert_eq!(stop.load(Ordering::Relaxed), 20);
}

#[test]
fn dropped_tasks_are_cancelled_and_detached_ones_run() {
    on_a_core(|| async {
        let ran = Rc::new(Cell::new(0));
        let count = |ran: &Rc<Cell<u32>>| {
            let ran = Rc::clone(ran);
            async move {
                sleep(Duration::from_millis(2)).await;
                ran.set(ran.get() + 1);
            }
        };
        drop(spawn_local(count(&ran)));
        spawn_background(count(&ran)).detach();
        assert!(
            spawn_local(std::future::pending::<()>())
                .cancel()
                .await
                .is_none()
        );
        assert!(
            timeout(Duration::from_millis(1), std::future::pending::<()>())
                .await
                .is_none()
        );
        assert_eq!(timeout(Duration::from_secs(60), async { 3 }).await, Some(3));
        sleep(Duration::from_millis(20)).await;
        assert_eq!(ran.get(), 1);
    });
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[test]
fn a_connection_accepted_on_one_core_is_served_by_another() {
    let (to_server, handed) = bounded::<Accepted>(4);
    let (address_to, address) = reply::<SocketAddr>();
    let accepting = run_core(
        CoreOptions {
            io_memory_bytes: 1 << 20,
            ..CoreOptions::default()
        },
        move || async move {
            let listener = Listener::bind(loopback(), SocketOptions::default()).unwrap();
            address_to.send(listener.local_address()).unwrap();
            to_server
                .send(listener.accept().await.unwrap())
                .await
                .unwrap();
        },
    )
    .unwrap();
    let serving = run_core(
        CoreOptions {
            io_memory_bytes: 1 << 20,
            index: 1,
            ..CoreOptions::default()
        },
        move || async move {
            let stream = handed.recv().await.unwrap().into_stream().unwrap();
            let mut request = BytesMut::new();
            stream
                .read_exact_into(&mut request, 3_000_000)
                .await
                .unwrap();
            let whole = request.freeze();
            let mut parts: Vec<Bytes> = whole
                .chunks(7_777)
                .map(|part| whole.slice_ref(part))
                .collect();
            parts.insert(1, Bytes::new());
            stream.write_all_parts(&mut parts).await.unwrap();
            stream.finish().unwrap();
            let mut rest = BytesMut::with_capacity(16);
            assert_eq!(stream.read_into(&mut rest).await.unwrap(), 0);
        },
    )
    .unwrap();
    on_a_core(move || async move {
        let address = address.await.unwrap();
        let stream = Connector::default()
            .connect(address, Duration::from_secs(5))
            .await
            .unwrap();
        assert_eq!(stream.peer_address(), address);
        let sent = pattern(3_000_000);
        let writer = spawn_local({
            let (stream, sent) = (stream.clone(), sent.clone());
            async move { stream.write_all(&sent).await }
        });
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).await.unwrap();
        writer.await.unwrap();
        assert!(back == sent);
        assert_eq!(stream.read(&mut back).await.unwrap(), 0);
    });
    accepting.join().unwrap();
    serving.join().unwrap();
}

#[test]
fn a_peer_that_takes_nothing_ends_the_send_and_an_abort_wakes_the_reader() {
    on_a_core(|| async {
        let options = SocketOptions {
            write_timeout: Some(Duration::from_millis(50)),
            send_buffer_bytes: Some(64 << 10),
            receive_buffer_bytes: Some(64 << 10),
            ..SocketOptions::default()
        };
        let listener = Listener::bind(loopback(), options.clone()).unwrap();
        let address = listener.local_address();
        let client = Connector { options }
            .connect(address, Duration::from_secs(5))
            .await
            .unwrap();
        let server = listener.accept().await.unwrap().into_stream().unwrap();
        let mut parts = [Bytes::from(vec![1; 4 << 20]), Bytes::from(vec![2; 4 << 20])];
        let error = server.write_all_parts(&mut parts).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        let reader = spawn_local({
            let server = server.clone();
            async move { server.read(&mut [0; 16]).await }
        });
        sleep(Duration::from_millis(1)).await;
        server.abort();
        assert!(!matches!(reader.await, Ok(count) if count > 0));
        drop(server);
        let mut rest = vec![0; 16 << 20];
        let error = client.read_exact(&mut rest).await.unwrap_err();
        assert!(matches!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::UnexpectedEof
        ));
    });
}

#[test]
fn hyper_serves_http_1_on_a_core() {
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::{Request, Response};
    on_a_core(|| async {
        let listener = Listener::bind(loopback(), SocketOptions::default()).unwrap();
        let address = listener.local_address();
        let server = spawn_local(async move {
            let stream =
                http::HttpStream::new(listener.accept().await.unwrap().into_stream().unwrap());
            let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
                let body = request.into_body().collect().await?.to_bytes();
                Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(format!(
                    "{} bytes",
                    body.len()
                )))))
            });
            hyper::server::conn::http1::Builder::new()
                .serve_connection(stream, service)
                .await
                .unwrap();
        });
        let client = Connector::default()
            .connect(address, Duration::from_secs(5))
            .await
            .unwrap();
        let head =
            "POST /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 500000\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; 500_000]).await.unwrap();
        let mut answer = BytesMut::new();
        loop {
            answer.reserve(4096);
            if client.read_into(&mut answer).await.unwrap() == 0 {
                break;
            }
        }
        let answer = String::from_utf8(answer.to_vec()).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("500000 bytes"),
            "{answer}"
        );
        server.await;
    });
}
