//! `tune disk`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corelog_tuning::{DiskFigure, DiskPlan};

use crate::failure::Failure;
use crate::output::{Output, Unit};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Measure durable appends and reads through the broker's own disk code.
    Disk(DiskArguments),
}

/// Arguments of `tune disk`.
#[derive(Args, Debug)]
pub struct DiskArguments {
    /// A folder on the disk to measure. A file of 512 MiB is made there and removed again.
    #[arg(long)]
    data_dir: PathBuf,
    /// How long to measure, in seconds.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// Runs the command.
pub fn run(command: &TuneCommand, output: &Output) -> Result<(), Failure> {
    let TuneCommand::Disk(arguments) = command;
    let bar = output.progress(Some(0), Unit::Steps);
    let told = bar.clone();
    let report = corelog_shard::tune_disk(
        &arguments.data_dir,
        DiskPlan::standard(arguments.seconds),
        move |done, steps| {
            told.set_length(steps as u64);
            told.set_position(done as u64);
        },
    );
    bar.finish_and_clear();
    let report = report.map_err(|error| {
        Failure::new(format!(
            "measuring in {}: {error}; the folder must be writable, on a file system with direct I/O, with \
             512 MiB free",
            arguments.data_dir.display()
        ))
    })?;
    output.result(&report, |report| {
        let append = report.append.iter().map(|figure| line("append", figure));
        let read = report.read.iter().map(|figure| line("read", figure));
        append.chain(read).collect::<Vec<_>>().join("\n")
    })
}

fn line(what: &str, figure: &DiskFigure) -> String {
    format!(
        "{what:<6} {:>8} bytes, {} in flight: {:>8.1} MB/s, p50 {} us, p99 {} us",
        figure.block_bytes, figure.in_flight, figure.mb_per_s, figure.p50_us, figure.p99_us
    )
}
