//! Measures what the layout on disk rests on: one file per partition against one journal per core,
//! how files should grow, and O_DSYNC against `fdatasync`.
//!
//! `cargo run --release -p corelog-shard --example layout -- --folder <on the disk in question>`
//!
//! Each row is run once per round, and all rows of a round before the next round begins, so that a
//! machine that gets slower meanwhile slows them alike. A figure is the median of the rounds, with
//! the lowest and the highest behind it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use corelog_shard::uring::channel::{LocalReply, local_reply};
use corelog_shard::uring::{
    BLOCK_BYTES, CoreOptions, DirectBuffer, DirectFile, Task, WriteOrder, clock, directory,
    place_cores, run_core, sleep, spawn_background, spawn_local,
};

const MIB: u64 = 1 << 20;

/// The most that one gathered write carries.
const GATHER_BYTES_MAX: usize = 1 << 20;

/// What a journal's second copy gathers per partition before it writes.
const COPY_BYTES: usize = 64 << 10;

struct Settings {
    folder: PathBuf,
    row_ms: u64,
    rounds: usize,
    only: Option<String>,
}

fn main() -> io::Result<()> {
    let settings = settings_from(std::env::args().skip(1))?;
    let placement = place_cores(1, None)?;
    let options = CoreOptions {
        cpu: placement.cpus.first().copied().flatten(),
        io_memory_bytes: 64 << 20,
        ring_depth: 512,
        ..CoreOptions::default()
    };
    run_core(options, move || async move { measure(&settings).await })?.join()?
}

fn settings_from(mut arguments: impl Iterator<Item = String>) -> io::Result<Settings> {
    let folder = PathBuf::from("target/layout-bench");
    let mut settings = Settings {
        folder,
        row_ms: 1_000,
        rounds: 3,
        only: None,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| bad_argument(&name))?;
        match name.as_str() {
            "--folder" => settings.folder = PathBuf::from(value),
            "--row-ms" => settings.row_ms = value.parse().map_err(|_| bad_argument(&value))?,
            "--rounds" => settings.rounds = value.parse().map_err(|_| bad_argument(&value))?,
            "--only" => settings.only = Some(value),
            _ => return Err(bad_argument(&name)),
        }
    }
    Ok(settings)
}

fn bad_argument(argument: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{argument}: expected --folder, --row-ms, --rounds or --only layout|growth|sync"),
    )
}

/// What one row measured in one round.
#[derive(Clone, Default)]
struct Sample {
    mb_per_s: f64,
    writes_per_s: f64,
    p50_us: u64,
    p99_us: u64,
}

impl Sample {
    fn new(bytes: u64, micros: u64, mut latencies_us: Vec<u64>) -> Self {
        latencies_us.sort_unstable();
        let at = |share: f64| {
            let index = ((latencies_us.len() as f64 * share) as usize)
                .min(latencies_us.len().saturating_sub(1));
            latencies_us.get(index).copied().unwrap_or_default()
        };
        let seconds = micros.max(1) as f64 / 1e6;
        Self {
            mb_per_s: bytes as f64 / 1e6 / seconds,
            writes_per_s: latencies_us.len() as f64 / seconds,
            p50_us: at(0.50),
            p99_us: at(0.99),
        }
    }
}

/// Rows by name, in the order of their first appearance.
#[derive(Default)]
struct Table {
    rows: Vec<(String, Vec<Sample>)>,
}

impl Table {
    fn add(&mut self, name: String, sample: Sample) {
        match self.rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.1.push(sample),
            None => self.rows.push((name, vec![sample])),
        }
    }

    fn print(&self, title: &str) {
        println!("\n{title}");
        println!(
            "{:<44} {:>22} {:>10} {:>9} {:>9}",
            "", "MB/s (low..high)", "writes/s", "p50 us", "p99 us"
        );
        for (name, samples) in &self.rows {
            let mut sorted = samples.clone();
            sorted.sort_by(|one, other| one.mb_per_s.total_cmp(&other.mb_per_s));
            let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else {
                continue;
            };
            let middle = &sorted[sorted.len() / 2];
            let range = format!(
                "{:.1} ({:.1}..{:.1})",
                middle.mb_per_s, low.mb_per_s, high.mb_per_s
            );
            println!(
                "{name:<44} {range:>22} {:>10.0} {:>9} {:>9}",
                middle.writes_per_s, middle.p50_us, middle.p99_us
            );
        }
    }
}

async fn measure(settings: &Settings) -> io::Result<()> {
    let wanted = |part: &str| settings.only.as_deref().is_none_or(|only| only == part);
    directory::create_all(&settings.folder).await?;
    if wanted("sync") {
        measure_sync(settings).await?;
    }
    if wanted("growth") {
        measure_growth(settings).await?;
    }
    if wanted("layout") {
        measure_layout(settings).await?;
    }
    directory::remove_all(&settings.folder).await
}

/// Writes zeros over `from..to`, `step` at a time, not durably.
async fn fill(file: &DirectFile, from: u64, to: u64, step: u64) -> io::Result<()> {
    let mut position = from;
    while position < to {
        let count = step.min(to - position);
        file.write_at(DirectBuffer::zeroed(count as usize), position)
            .await?;
        position += count;
    }
    Ok(())
}

async fn new_file(folder: &Path, name: &str, order: WriteOrder) -> io::Result<DirectFile> {
    directory::remove(&folder.join(name)).await?;
    DirectFile::create(folder, name, order).await
}

thread_local! {
    static PATTERN: Vec<u8> = (0..GATHER_BYTES_MAX).map(|index| (index * 31 % 251) as u8).collect();
}

/// A buffer as a publish fills it: one copy.
fn payload(bytes: usize) -> DirectBuffer {
    PATTERN.with(|pattern| DirectBuffer::from_parts(&[pattern.get(..bytes).unwrap_or(pattern)]))
}

/// Appends `batch` bytes at a time with so many writes in flight, for the row's time or until
/// `limit` bytes stand, whichever comes first. `ahead` is asked before each write.
async fn append(
    file: &DirectFile,
    batch: usize,
    in_flight: usize,
    limit: u64,
    row_ms: u64,
    ahead: Rc<Ahead>,
) -> io::Result<Sample> {
    let begin = clock::monotonic().0;
    let next = Rc::new(Cell::new(0_u64));
    let latencies = Rc::new(RefCell::new(Vec::new()));
    let writers: Vec<Task<io::Result<()>>> = (0..in_flight)
        .map(|_| {
            let (file, next, latencies, ahead) = (
                file.clone(),
                Rc::clone(&next),
                Rc::clone(&latencies),
                Rc::clone(&ahead),
            );
            spawn_local(async move {
                loop {
                    let position = next.get();
                    let start = clock::monotonic().0;
                    if position + batch as u64 > limit || start - begin > row_ms * 1_000 {
                        return Ok(());
                    }
                    next.set(position + batch as u64);
                    ahead.reach(position + batch as u64).await?;
                    file.write_at_durable(payload(batch), position).await?;
                    latencies.borrow_mut().push(clock::monotonic().0 - start);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await?;
    }
    let micros = clock::monotonic().0 - begin;
    Ok(Sample::new(next.get(), micros, latencies.take()))
}

/// Zeros written ahead of an append.
struct Ahead {
    file: DirectFile,
    /// How far beyond the append zeros should stand; 0 for never.
    distance: u64,
    /// Whether the append waits for zeros.
    waits: bool,
    filled: Cell<u64>,
    filling: Cell<bool>,
}

impl Ahead {
    fn new(file: &DirectFile, distance: u64, waits: bool) -> Rc<Self> {
        Rc::new(Self {
            file: file.clone(),
            distance,
            waits,
            filled: Cell::new(0),
            filling: Cell::new(false),
        })
    }

    fn none(file: &DirectFile) -> Rc<Self> {
        Self::new(file, 0, false)
    }

    async fn reach(self: &Rc<Self>, end: u64) -> io::Result<()> {
        if self.distance == 0 {
            return Ok(());
        }
        while self.waits && end > self.filled.get() {
            if self.filling.replace(true) {
                sleep(Duration::from_micros(50)).await;
                continue;
            }
            let from = self.filled.get();
            let to = (end + self.distance).next_multiple_of(BLOCK_BYTES as u64);
            fill(&self.file, from, to, MIB).await?;
            self.filled.set(to);
            self.filling.set(false);
        }
        if self.waits {
            return Ok(());
        }
        if end + self.distance / 2 > self.filled.get() && !self.filling.replace(true) {
            let ahead = Rc::clone(self);
            spawn_background(async move {
                // Never over what the append may be writing already.
                let from = ahead.filled.get().max(end + MIB);
                let to = from + ahead.distance;
                if fill(&ahead.file, from, to, MIB).await.is_ok() {
                    ahead.filled.set(to);
                }
                ahead.filling.set(false);
            })
            .detach();
        }
        Ok(())
    }
}

const SIZES: [(usize, &str, u64); 3] = [
    (4 << 10, "4 KiB", 64 * MIB),
    (64 << 10, "64 KiB", 512 * MIB),
    (1 << 20, "1 MiB", 2048 * MIB),
];

async fn measure_sync(settings: &Settings) -> io::Result<()> {
    let mut table = Table::default();
    for _ in 0..settings.rounds {
        for (batch, size, limit) in SIZES {
            for in_flight in [1, 4] {
                for (order, name) in [
                    (WriteOrder::SyncedWrites, "O_DSYNC"),
                    (WriteOrder::WriteThenSync, "write, fdatasync"),
                ] {
                    let file = new_file(&settings.folder, "sync", order).await?;
                    let limit = limit.min(512 * MIB);
                    fill(&file, 0, limit, MIB).await?;
                    file.fdatasync().await?;
                    let sample = append(
                        &file,
                        batch,
                        in_flight,
                        limit,
                        settings.row_ms,
                        Ahead::none(&file),
                    )
                    .await?;
                    table.add(format!("{size}, {in_flight} in flight, {name}"), sample);
                    file.close().await?;
                }
            }
        }
    }
    table.print("Durable writes into written blocks");
    directory::remove(&settings.folder.join("sync")).await
}

async fn measure_growth(settings: &Settings) -> io::Result<()> {
    let mut table = Table::default();
    let mut fills = Table::default();
    let mut zeroes_refused = None;
    for _ in 0..settings.rounds {
        for (batch, size, limit) in SIZES {
            for in_flight in [1, 4] {
                let row = |name: &str| format!("{size}, {in_flight} in flight, {name}");
                let limit = limit.min(512 * MIB);
                let run = async |file: &DirectFile, ahead| {
                    append(file, batch, in_flight, limit, settings.row_ms, ahead).await
                };
                let fresh =
                    async || new_file(&settings.folder, "growth", WriteOrder::SyncedWrites).await;

                let file = fresh().await?;
                table.add(
                    row("growing by itself"),
                    run(&file, Ahead::none(&file)).await?,
                );

                let file = fresh().await?;
                file.allocate(limit).await?;
                file.fdatasync().await?;
                table.add(
                    row("reserved (unwritten extents)"),
                    run(&file, Ahead::none(&file)).await?,
                );

                let file = fresh().await?;
                match write_zeroes(file.path(), limit) {
                    Ok(()) => {
                        file.fdatasync().await?;
                        table.add(
                            row("FALLOC_FL_WRITE_ZEROES"),
                            run(&file, Ahead::none(&file)).await?,
                        );
                    }
                    Err(error) => zeroes_refused = Some(error),
                }

                let file = fresh().await?;
                let begin = clock::monotonic().0;
                fill(&file, 0, limit, MIB).await?;
                file.fdatasync().await?;
                let filled = Sample::new(limit, clock::monotonic().0 - begin, Vec::new());
                fills.add(
                    format!("{} MiB of zeros, then one sync", limit / MIB),
                    filled,
                );
                table.add(
                    row("written ahead, zeros not counted"),
                    run(&file, Ahead::none(&file)).await?,
                );
                table.add(
                    row("recycled (over old batches)"),
                    run(&file, Ahead::none(&file)).await?,
                );

                let file = fresh().await?;
                let ahead = Ahead::new(&file, 4 * MIB, true);
                table.add(
                    row("written ahead, 4 MiB steps, waiting"),
                    run(&file, ahead).await?,
                );

                let file = fresh().await?;
                let ahead = Ahead::new(&file, 16 * MIB, false);
                table.add(
                    row("written ahead, 16 MiB, in background"),
                    run(&file, ahead).await?,
                );

                let file = fresh().await?;
                file.allocate(limit).await?;
                file.fdatasync().await?;
                let ahead = Ahead::new(&file, 16 * MIB, false);
                table.add(
                    row("reserved, and zeros in background"),
                    run(&file, ahead).await?,
                );
            }
        }
    }
    table.print("How a file grows: durable appends");
    fills.print("What zeros cost");
    if let Some(error) = zeroes_refused {
        println!("FALLOC_FL_WRITE_ZEROES: refused by this kernel, file system or disk ({error})");
    }
    directory::remove(&settings.folder.join("growth")).await
}

/// Has the device write zeros (Linux 6.17 and later, where the device can).
#[allow(unsafe_code)]
fn write_zeroes(path: &Path, length: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    const FALLOC_FL_WRITE_ZEROES: libc::c_int = 0x80;
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    // SAFETY: the descriptor is open for the whole call, which touches no memory of ours.
    let result = unsafe {
        libc::fallocate(
            file.as_raw_fd(),
            FALLOC_FL_WRITE_ZEROES,
            0,
            length as libc::off_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// One append-only target with one write in flight, behind which later batches gather.
struct Log {
    file: DirectFile,
    length: u64,
    end: Cell<u64>,
    writing: Cell<bool>,
    waiting: RefCell<VecDeque<LocalReply<()>>>,
}

impl Log {
    fn new(file: DirectFile, length: u64) -> Rc<Self> {
        let waiting = RefCell::default();
        Rc::new(Self {
            file,
            length,
            end: Cell::new(0),
            writing: Cell::new(false),
            waiting,
        })
    }

    async fn append(self: &Rc<Self>, batch: usize) -> io::Result<()> {
        let (done, durable) = local_reply();
        self.waiting.borrow_mut().push_back(done);
        if !self.writing.replace(true) {
            let log = Rc::clone(self);
            spawn_local(async move { log.write_waiting(batch).await }).detach();
        }
        durable
            .await
            .map_err(|_| io::Error::other("a write failed"))
    }

    async fn write_waiting(self: Rc<Self>, batch: usize) {
        loop {
            let group: Vec<LocalReply<()>> = {
                let mut waiting = self.waiting.borrow_mut();
                let count = waiting.len().min(GATHER_BYTES_MAX / batch);
                waiting.drain(..count).collect()
            };
            if group.is_empty() {
                self.writing.set(false);
                return;
            }
            let bytes = group.len() * batch;
            let position = if self.end.get() + bytes as u64 > self.length {
                0
            } else {
                self.end.get()
            };
            self.end.set(position + bytes as u64);
            if self
                .file
                .write_at_durable(payload(bytes), position)
                .await
                .is_ok()
            {
                for done in group {
                    let _ = done.send(());
                }
            }
        }
    }
}

/// A partition's file that receives the second copy of what a journal made durable.
struct Copy {
    log: Rc<Log>,
    gathered: Cell<usize>,
}

impl Copy {
    /// Takes a batch; writes once enough is gathered. Returns once there is room for the next.
    async fn take(&self, batch: usize) -> io::Result<()> {
        self.gathered.set(self.gathered.get() + batch);
        if self.gathered.get() < COPY_BYTES {
            return Ok(());
        }
        let bytes = self.gathered.replace(0);
        let end = self.log.end.get();
        let position = if end + bytes as u64 > self.log.length {
            0
        } else {
            end
        };
        self.log.end.set(position + bytes as u64);
        self.log.file.write_at(payload(bytes), position).await
    }
}

async fn measure_layout(settings: &Settings) -> io::Result<()> {
    let mut table = Table::default();
    for partitions in [1_usize, 1_000] {
        let length = if partitions == 1 { 256 * MIB } else { MIB };
        let mut logs = Vec::new();
        for partition in 0..partitions {
            logs.push(
                written_log(&settings.folder, &format!("partition-{partition}"), length).await?,
            );
        }
        let journal = written_log(&settings.folder, "journal", 256 * MIB).await?;
        for _ in 0..settings.rounds {
            for (batch, size) in [(4 << 10, "4 KiB"), (64 << 10, "64 KiB")] {
                for publishers in [1, 64] {
                    let row = |name: &str| {
                        format!("{partitions} partitions, {size}, {publishers} publishers, {name}")
                    };
                    let files: Vec<Rc<Log>> = logs.clone();
                    let sample =
                        publish(files, Vec::new(), batch, publishers, settings.row_ms).await?;
                    table.add(row("file each"), sample);
                    let sample = publish(
                        vec![Rc::clone(&journal)],
                        Vec::new(),
                        batch,
                        publishers,
                        settings.row_ms,
                    )
                    .await?;
                    table.add(row("journal"), sample);
                    let copies = logs
                        .iter()
                        .map(|log| {
                            Rc::new(Copy {
                                log: Rc::clone(log),
                                gathered: Cell::new(0),
                            })
                        })
                        .collect();
                    let sample = publish(
                        vec![Rc::clone(&journal)],
                        copies,
                        batch,
                        publishers,
                        settings.row_ms,
                    )
                    .await?;
                    table.add(row("journal, copied"), sample);
                }
            }
        }
    }
    table.print("One file per partition against one journal per core: durable appends");
    Ok(())
}

async fn written_log(folder: &Path, name: &str, length: u64) -> io::Result<Rc<Log>> {
    let file = new_file(folder, name, WriteOrder::SyncedWrites).await?;
    fill(&file, 0, length, MIB).await?;
    file.fdatasync().await?;
    Ok(Log::new(file, length))
}

/// Publishers that each wait for their batch, one partition after the other.
async fn publish(
    logs: Vec<Rc<Log>>,
    copies: Vec<Rc<Copy>>,
    batch: usize,
    publishers: usize,
    row_ms: u64,
) -> io::Result<Sample> {
    let begin = clock::monotonic().0;
    let latencies = Rc::new(RefCell::new(Vec::new()));
    let (logs, copies) = (Rc::new(logs), Rc::new(copies));
    let next = Rc::new(Cell::new(0_usize));
    let tasks: Vec<Task<io::Result<()>>> = (0..publishers)
        .map(|_| {
            let (logs, copies, next, latencies) = (
                Rc::clone(&logs),
                Rc::clone(&copies),
                Rc::clone(&next),
                Rc::clone(&latencies),
            );
            spawn_local(async move {
                loop {
                    let start = clock::monotonic().0;
                    if start - begin > row_ms * 1_000 {
                        return Ok(());
                    }
                    let index = next.replace(next.get().wrapping_add(1));
                    logs[index % logs.len()].append(batch).await?;
                    latencies.borrow_mut().push(clock::monotonic().0 - start);
                    if !copies.is_empty() {
                        copies[index % copies.len()].take(batch).await?;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    let micros = clock::monotonic().0 - begin;
    let latencies = latencies.take();
    Ok(Sample::new(
        latencies.len() as u64 * batch as u64,
        micros,
        latencies,
    ))
}
