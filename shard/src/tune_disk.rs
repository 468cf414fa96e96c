//! Measures the disk through the broker's own disk code, on one core.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use corelog_tuning::{DiskCell, DiskFigure, DiskPlan, DiskReport, Latencies};

use crate::uring::{
    CoreOptions, DirectBuffer, DirectFile, WriteOrder, clock, directory, place_cores, run_core,
    spawn_local,
};

/// Name of the file that is measured on, below the data directory. It is removed afterwards.
const FILE_NAME: &str = "tune-disk.tmp";

/// Longer than a reactor needs to go to sleep, shorter than it keeps the kernel's workers from the CPU.
const SPIN_US: u64 = 30;

/// The file is written with zeros in pieces of this many bytes.
const PIECE_BYTES: usize = 4 << 20;

#[derive(Clone, Copy)]
enum Kind {
    Append,
    Read,
}

struct Measurement {
    file: DirectFile,
    kind: Kind,
    cell: DiskCell,
    file_bytes: u64,
    end_us: u64,
    next: Cell<u64>,
    latencies: RefCell<Latencies>,
}

/// Measures durable appends and reads below `data_dir`; `progress` hears of each combination.
///
/// # Errors
/// Whatever the file system or the reactor says.
pub fn tune_disk(
    data_dir: &Path,
    plan: DiskPlan,
    progress: impl Fn(usize, usize) + Send + 'static,
) -> io::Result<DiskReport> {
    std::fs::create_dir_all(data_dir)?;
    let folder: PathBuf = data_dir.to_path_buf();
    let cpu = place_cores(1, Some(data_dir))?
        .cpus
        .first()
        .copied()
        .flatten();
    let options = CoreOptions {
        cpu,
        name: String::from("tune-disk"),
        // The disk is to be measured, not how deeply a core sleeps between two of its answers.
        spin_us: SPIN_US,
        ..CoreOptions::default()
    };
    run_core(options, move || async move {
        let path = folder.join(FILE_NAME);
        directory::remove(&path).await?;
        let report = measure_all(&folder, &plan, progress).await;
        directory::remove(&path).await?;
        report
    })?
    .join()?
}

async fn measure_all(
    folder: &Path,
    plan: &DiskPlan,
    progress: impl Fn(usize, usize),
) -> io::Result<DiskReport> {
    let file = DirectFile::create(folder, FILE_NAME, WriteOrder::SyncedWrites).await?;
    let mut position = 0;
    while position < plan.file_bytes {
        file.write_at(DirectBuffer::zeroed(PIECE_BYTES), position)
            .await?;
        position += PIECE_BYTES as u64;
    }
    file.fdatasync().await?;
    let mut report = DiskReport::default();
    let steps = 2 * plan.cells.len();
    for (index, cell) in plan.cells.iter().enumerate() {
        report
            .append
            .push(measure(&file, Kind::Append, *cell, plan).await?);
        progress(2 * index + 1, steps);
        report
            .read
            .push(measure(&file, Kind::Read, *cell, plan).await?);
        progress(2 * index + 2, steps);
    }
    file.close().await?;
    Ok(report)
}

async fn measure(
    file: &DirectFile,
    kind: Kind,
    cell: DiskCell,
    plan: &DiskPlan,
) -> io::Result<DiskFigure> {
    let start_us = clock::monotonic().0;
    let measurement = Rc::new(Measurement {
        file: file.clone(),
        kind,
        cell,
        file_bytes: plan.file_bytes,
        end_us: start_us + plan.cell_ms * 1_000,
        next: Cell::new(0),
        latencies: RefCell::new(Latencies::new()),
    });
    let lanes: Vec<_> = (0..cell.in_flight)
        .map(|_| spawn_local(lane(Rc::clone(&measurement))))
        .collect();
    for lane in lanes {
        lane.await?;
    }
    let elapsed_us = clock::monotonic().0 - start_us;
    let latencies = measurement.latencies.borrow();
    Ok(DiskFigure::new(cell, &latencies, elapsed_us))
}

/// One operation after the other until the time is over.
async fn lane(measurement: Rc<Measurement>) -> io::Result<()> {
    let block_bytes = measurement.cell.block_bytes;
    loop {
        let begun_us = clock::monotonic().0;
        if begun_us >= measurement.end_us {
            return Ok(());
        }
        let position = measurement.next.get();
        let following = position + block_bytes as u64;
        measurement
            .next
            .set(if following + block_bytes as u64 > measurement.file_bytes {
                0
            } else {
                following
            });
        match measurement.kind {
            Kind::Append => {
                let buffer = DirectBuffer::zeroed(block_bytes);
                measurement.file.write_at_durable(buffer, position).await?;
            }
            Kind::Read => drop(measurement.file.read_at(position, block_bytes).await?),
        }
        measurement
            .latencies
            .borrow_mut()
            .record(clock::monotonic().0 - begun_us);
    }
}
