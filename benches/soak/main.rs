//! Two cores under disk, network and cross-core load at once, watched for stalls.
//!
//! `cargo run --release -p corelog-shard --example soak -- --seconds 600 --folder <on a real disk>`
//!
//! A stall is a timer, or a message from the other core, that a reactor served more than 50 ms
//! late. Beside each core a plain thread, pinned to the same CPU, sleeps and wakes as well, and
//! keeps what the kernel says of the core's thread. A stall that the plain thread saw too, or during
//! which the core's thread (for a message: either core's) stood in the CPU's queue, is the
//! machine's; so is one that the thread spent blocked in the kernel, as far as a plain program's
//! direct write waited for the disk as long. Any other is the reactor's, and one of those ends the
//! program with status 1.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelog_shard::uring::channel::{Receiver, Reply, Sender, bounded, reply};
use corelog_shard::uring::{
    Connector, CoreOptions, DirectBuffer, DirectFile, Listener, SocketOptions, Stream, WriteOrder,
    check_locked_memory, clock, directory, next_turn, place_cores, run_core, sleep,
    spawn_background, spawn_local, yield_if_needed,
};

mod watch;

use watch::{Late, STALL_US, Seen, probe_disk, report, thread_path, watch};

/// Messages of a burst between cores.
const BURST: usize = 300;

/// Files each core appends to, and bytes of each.
const FILES: usize = 4;
const FILE_BYTES: u64 = 32 << 20;

/// Connections from each core to the other, and bytes of a frame.
const CONNECTIONS: usize = 4;
const FRAME_BYTES: usize = 256 << 10;

/// Registered memory of each core.
const IO_MEMORY_BYTES: usize = 32 << 20;

/// A message to the other core.
struct Ping {
    sent_us: u64,
    pong: Reply<u64>,
}

fn main() -> io::Result<()> {
    let Settings {
        seconds,
        folder,
        order,
    } = settings_from(std::env::args().skip(1))?;
    check_locked_memory(2, IO_MEMORY_BYTES).map_err(io::Error::other)?;
    let placement = place_cores(2, None)?;
    if let Some(notice) = &placement.notice {
        println!("{notice}");
    }
    let (to_first, first_inbox) = bounded::<Ping>(1024);
    let (to_second, second_inbox) = bounded::<Ping>(1024);
    let (address_of_first, first_address) = reply::<SocketAddr>();
    let (address_of_second, second_address) = reply::<SocketAddr>();
    let (first_meets, second_awaits) = bounded::<()>(4);
    let (second_meets, first_awaits) = bounded::<()>(4);
    let stop = Arc::new(AtomicBool::new(false));
    let mut cores = Vec::new();
    let mut watchers = Vec::new();
    let ends = [
        (
            to_second,
            first_inbox,
            address_of_first,
            second_address,
            Meeting(first_meets, first_awaits),
        ),
        (
            to_first,
            second_inbox,
            address_of_second,
            first_address,
            Meeting(second_meets, second_awaits),
        ),
    ];
    for (index, (outbox, inbox, own_address, other_address, meeting)) in
        ends.into_iter().enumerate()
    {
        let cpu = placement.cpus.get(index).copied().flatten();
        let options = CoreOptions {
            index,
            cpu,
            spin_us: if placement.may_spin { 50 } else { 0 },
            io_memory_bytes: IO_MEMORY_BYTES,
            name: format!("core-{index}"),
            ..CoreOptions::default()
        };
        let folder = folder.join(format!("core-{index}"));
        let (name_to, name) = std::sync::mpsc::channel();
        let core = run_core(options, move || async move {
            let listener = Listener::bind(
                SocketAddr::from(([127, 0, 0, 1], 0)),
                SocketOptions::default(),
            )?;
            let _ = own_address.send(listener.local_address());
            let other_address = other_address.await.map_err(io::Error::other)?;
            let _ = name_to.send(thread_path()?);
            let load = Load {
                outbox,
                inbox,
                listener,
                other_address,
                folder,
                order,
                meeting,
            };
            load.run(Duration::from_secs(seconds)).await
        })?;
        cores.push(core);
        let stop = Arc::clone(&stop);
        watchers.push(std::thread::spawn(move || {
            let thread = name.recv().unwrap_or_default();
            watch(cpu, &thread, &stop)
        }));
    }
    let prober = {
        let (path, stop) = (folder.join("probe"), Arc::clone(&stop));
        fs::create_dir_all(&folder)?;
        std::thread::spawn(move || probe_disk(&path, &stop))
    };
    let mut seen = Vec::new();
    for core in cores {
        seen.push(core.join()??);
    }
    stop.store(true, Ordering::Relaxed);
    let mut watched = Vec::new();
    for watcher in watchers {
        watched.push(
            watcher
                .join()
                .map_err(|_| io::Error::other("a watcher panicked"))?,
        );
    }
    let probes = prober
        .join()
        .map_err(|_| io::Error::other("the prober panicked"))??;
    let mut reactors_fault = 0;
    for (index, seen) in seen.iter().enumerate() {
        reactors_fault += report(index, seconds, seen, &watched, &probes);
    }
    if reactors_fault > 0 {
        println!(
            "verdict: FAILED, {reactors_fault} stalls above 50 ms that the machine does not explain"
        );
        std::process::exit(1);
    }
    println!("verdict: passed, no stall above 50 ms that the machine does not explain");
    fs::remove_dir_all(&folder)
}

struct Settings {
    seconds: u64,
    folder: PathBuf,
    order: WriteOrder,
}

fn settings_from(mut arguments: impl Iterator<Item = String>) -> io::Result<Settings> {
    let order = WriteOrder::SyncedWrites;
    let mut settings = Settings {
        seconds: 120,
        folder: PathBuf::from("target/soak"),
        order,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match (name.as_str(), value.as_str()) {
            ("--seconds", _) => settings.seconds = value.parse().map_err(io::Error::other)?,
            ("--folder", _) => settings.folder = PathBuf::from(value),
            ("--durable", "synced-writes") => settings.order = WriteOrder::SyncedWrites,
            ("--durable", "write-then-sync") => settings.order = WriteOrder::WriteThenSync,
            _ => {
                let expected =
                    "expected --seconds, --folder or --durable synced-writes|write-then-sync";
                return Err(io::Error::other(format!("{name} {value}: {expected}")));
            }
        }
    }
    Ok(settings)
}

/// One core's load.
struct Load {
    outbox: Sender<Ping>,
    inbox: Receiver<Ping>,
    listener: Listener,
    other_address: SocketAddr,
    folder: PathBuf,
    order: WriteOrder,
    meeting: Meeting,
}

/// Lets both cores begin, and end, together.
struct Meeting(Sender<()>, Receiver<()>);

impl Meeting {
    async fn meet(&self) -> io::Result<()> {
        self.0
            .send(())
            .await
            .map_err(|_| io::Error::other("the other core is gone"))?;
        self.1.recv().await.map_err(io::Error::other)
    }
}

/// What the tasks of a core note down.
#[derive(Default)]
struct Notes {
    until_us: Cell<u64>,
    late: RefCell<Vec<Late>>,
    timer_us: RefCell<Vec<u64>>,
    one_way_us: RefCell<Vec<u64>>,
    burst_us: RefCell<Vec<u64>>,
    frame_us: RefCell<Vec<u64>>,
    write_us: RefCell<Vec<u64>>,
    written: Cell<u64>,
    received: Cell<u64>,
}

impl Notes {
    fn goes_on(&self) -> bool {
        clock::monotonic().0 < self.until_us.get()
    }

    fn lateness(&self, kind: &'static str, due_us: u64, figures: &RefCell<Vec<u64>>) {
        let served_us = clock::monotonic().0;
        let late_us = served_us.saturating_sub(due_us);
        figures.borrow_mut().push(late_us);
        if late_us > STALL_US {
            self.late.borrow_mut().push(Late {
                due_us,
                served_us,
                kind,
            });
        }
    }
}

impl Load {
    async fn run(self, duration: Duration) -> io::Result<Seen> {
        let Self {
            outbox,
            inbox,
            listener,
            other_address,
            folder,
            order,
            meeting,
        } = self;
        directory::create_all(&folder).await?;
        let mut files = Vec::new();
        for index in 0..FILES {
            files.push(written_file(&folder, index, order).await?);
        }
        let notes = Rc::new(Notes::default());
        notes
            .until_us
            .set(clock::monotonic().0 + duration.as_micros() as u64);
        spawn_local(answer_pings(inbox, Rc::clone(&notes))).detach();
        spawn_local(accept(listener, Rc::clone(&notes))).detach();
        spawn_background(compute_in_turns(Rc::clone(&notes))).detach();
        let mut tasks = vec![
            spawn_local(watch_timer(Rc::clone(&notes))),
            spawn_local(ping_in_bursts(
                outbox.clone(),
                Duration::from_millis(2),
                Rc::clone(&notes),
            )),
            // The same with pauses that let both reactors fall asleep.
            spawn_local(ping_in_bursts(
                outbox,
                Duration::from_millis(37),
                Rc::clone(&notes),
            )),
        ];
        for file in files {
            tasks.push(spawn_local(append(file, Rc::clone(&notes))));
        }
        for _ in 0..CONNECTIONS {
            tasks.push(spawn_local(send_frames(other_address, Rc::clone(&notes))));
        }
        for task in tasks {
            task.await?;
        }
        // The other core may still wait for answers.
        meeting.meet().await?;
        Ok(Seen {
            late: notes.late.take(),
            figures: vec![
                ("timer of 1 ms, lateness", notes.timer_us.take()),
                (
                    "message from the other core, one way",
                    notes.one_way_us.take(),
                ),
                ("300 messages and their replies", notes.burst_us.take()),
                ("256 KiB frame and its answer", notes.frame_us.take()),
                ("durable append of 4..64 KiB", notes.write_us.take()),
            ],
            bytes: [notes.written.get(), notes.received.get()],
        })
    }
}

async fn watch_timer(notes: Rc<Notes>) -> io::Result<()> {
    while notes.goes_on() {
        let due_us = clock::monotonic().0 + 1_000;
        sleep(Duration::from_millis(1)).await;
        notes.lateness("a timer", due_us, &notes.timer_us);
    }
    Ok(())
}

async fn answer_pings(inbox: Receiver<Ping>, notes: Rc<Notes>) {
    while let Ok(ping) = inbox.recv().await {
        notes.lateness("a message", ping.sent_us, &notes.one_way_us);
        let _ = ping.pong.send(clock::monotonic().0);
    }
}

async fn ping_in_bursts(outbox: Sender<Ping>, pause: Duration, notes: Rc<Notes>) -> io::Result<()> {
    while notes.goes_on() {
        let begin = clock::monotonic().0;
        let mut answers = Vec::with_capacity(BURST);
        for _ in 0..BURST {
            let (pong, answer) = reply();
            let ping = Ping {
                sent_us: clock::monotonic().0,
                pong,
            };
            outbox
                .send(ping)
                .await
                .map_err(|_| io::Error::other("the other core is gone"))?;
            answers.push(answer);
        }
        for answer in answers {
            let answered_us = answer.await.map_err(io::Error::other)?;
            let late_us = clock::monotonic().0.saturating_sub(answered_us);
            if late_us > STALL_US {
                notes.lateness("a reply", answered_us, &notes.burst_us);
            }
        }
        notes
            .burst_us
            .borrow_mut()
            .push(clock::monotonic().0 - begin);
        sleep(pause).await;
    }
    Ok(())
}

async fn written_file(folder: &Path, index: usize, order: WriteOrder) -> io::Result<DirectFile> {
    let name = format!("log-{index}");
    directory::remove(&folder.join(&name)).await?;
    let file = DirectFile::create(folder, name, order).await?;
    for position in (0..FILE_BYTES).step_by(1 << 20) {
        file.write_at(DirectBuffer::zeroed(1 << 20), position)
            .await?;
    }
    file.fdatasync().await?;
    Ok(file)
}

async fn append(file: DirectFile, notes: Rc<Notes>) -> io::Result<()> {
    let mut position = 0;
    let mut length = 4 << 10;
    while notes.goes_on() {
        let begin = clock::monotonic().0;
        file.write_at_durable(DirectBuffer::zeroed(length), position)
            .await?;
        notes
            .write_us
            .borrow_mut()
            .push(clock::monotonic().0 - begin);
        notes.written.set(notes.written.get() + length as u64);
        if length == 64 << 10 {
            let read = file.read_bytes_at(position, length).await?;
            assert_eq!(read.len(), length, "a short read of what was just written");
        }
        position += length as u64;
        length = if length == 64 << 10 {
            4 << 10
        } else {
            length * 2
        };
        if position + length as u64 > FILE_BYTES {
            position = 0;
        }
    }
    Ok(())
}

async fn accept(listener: Listener, notes: Rc<Notes>) -> io::Result<()> {
    loop {
        let stream = listener.accept().await?.into_stream()?;
        spawn_local(serve(stream, Rc::clone(&notes))).detach();
    }
}

async fn serve(stream: Stream, notes: Rc<Notes>) -> io::Result<()> {
    let mut frame = BytesMut::with_capacity(FRAME_BYTES);
    loop {
        frame.clear();
        stream.read_exact_into(&mut frame, FRAME_BYTES).await?;
        notes
            .received
            .set(notes.received.get() + FRAME_BYTES as u64);
        stream
            .write_all(frame.get(..64).unwrap_or_default())
            .await?;
    }
}

async fn send_frames(address: SocketAddr, notes: Rc<Notes>) -> io::Result<()> {
    let stream = Connector::default()
        .connect(address, Duration::from_secs(10))
        .await?;
    let frame = Bytes::from(vec![0x5A; FRAME_BYTES / 4]);
    let mut answer = [0; 64];
    while notes.goes_on() {
        let begin = clock::monotonic().0;
        let mut parts = [frame.clone(), frame.clone(), frame.clone(), frame.clone()];
        stream.write_all_parts(&mut parts).await?;
        stream.read_exact(&mut answer).await?;
        notes
            .frame_us
            .borrow_mut()
            .push(clock::monotonic().0 - begin);
    }
    Ok(())
}

/// Background work as it is to be: short turns, with the reactor in between.
async fn compute_in_turns(notes: Rc<Notes>) {
    let mut state = 1_u64;
    while notes.goes_on() {
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
        }
        std::hint::black_box(state);
        yield_if_needed().await;
        next_turn().await;
        sleep(Duration::from_micros(500)).await;
    }
}
