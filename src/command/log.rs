//! `log verify|inspect`: segment files, read without a broker.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use clap::{Args, Subcommand};
use corelog_batch::{
    BatchError, BatchHeader, Codec, HEADER_BYTES, open, peek_batch_bytes, scan_records,
    verify_stored_batch,
};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Output, Unit};

const READ_BYTES: usize = 8 << 20;
/// Largest batch that is believed while reading; above what the broker accepts.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Largest size that a compressed body may open to.
const OPENED_BYTES_MAX: usize = 256 << 20;
const SEGMENT_EXTENSION: &str = "log";

/// What to do with segment files.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Verify every batch: checksum, records, and offsets that continue.
    Verify(LogArguments),
    /// Print the header of every batch.
    Inspect(LogArguments),
}

/// Arguments of both.
#[derive(Args, Debug)]
pub struct LogArguments {
    /// A segment file, or a folder: all segments below it.
    path: PathBuf,
}

/// What one segment holds.
#[derive(Debug, Default, Serialize)]
struct SegmentReport {
    segment: String,
    batches: u64,
    records: u64,
    bytes: u64,
    first_offset: Option<i64>,
    next_offset: Option<i64>,
    /// Zeros behind the last batch, written ahead of need.
    preallocated_bytes: u64,
    problem: Option<String>,
}

/// One batch.
#[derive(Debug, Serialize)]
struct BatchRow {
    segment: String,
    position: u64,
    bytes: usize,
    base_offset: i64,
    last_offset: i64,
    records: i32,
    leader_epoch: i32,
    codec: &'static str,
    base_timestamp_ms: i64,
    max_timestamp_ms: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    control: bool,
}

/// Runs the command.
pub fn run(command: &LogCommand, output: &Output) -> Result<(), Failure> {
    let (LogCommand::Verify(arguments) | LogCommand::Inspect(arguments)) = command;
    let is_inspecting = matches!(command, LogCommand::Inspect(_));
    let mut segments = Vec::new();
    find_segments(&arguments.path, &mut segments)?;
    if segments.is_empty() {
        return Err(Failure::new(format!(
            "{}: there are no segments (*.{SEGMENT_EXTENSION}); give a segment, a partition's folder or a data \
             directory",
            arguments.path.display()
        )));
    }
    let sizes = segments.iter().map(|(_, bytes)| *bytes).sum();
    let bar = output.progress(Some(sizes).filter(|_| !is_inspecting), Unit::Bytes);
    let mut damaged = 0;
    let mut before: Option<(PathBuf, Option<i64>)> = None;
    for (path, _) in &segments {
        let mut on_batch = |row: BatchRow| match is_inspecting {
            true => output.result(&row, row_text),
            false => {
                bar.inc(row.bytes as u64);
                Ok(())
            }
        };
        let mut report = read_segment(path, &mut on_batch)?;
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        if let Some((last_folder, Some(expected))) = &before
            && *last_folder == folder
            && report.first_offset.is_some_and(|first| first != *expected)
        {
            let problem = format!("begins where the segment before it does not end, at {expected}");
            report.problem.get_or_insert(problem);
        }
        before = Some((folder, report.next_offset));
        damaged += u64::from(report.problem.is_some());
        if !is_inspecting || report.problem.is_some() {
            bar.suspend(|| output.result(&report, report_text))?;
        }
    }
    bar.finish_and_clear();
    if damaged == 0 {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{damaged} of {} segments have a problem; keep copies of the files before anything else. A broker \
         that runs may still be writing the last segment: stop it and look again",
        segments.len()
    )))
}

/// Segments at or below `path` with their sizes, in the order of their paths.
fn find_segments(path: &Path, found: &mut Vec<(PathBuf, u64)>) -> Result<(), Failure> {
    let failed = |error| Failure::io(path.display(), &error);
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    if metadata.is_file() {
        found.push((path.to_path_buf(), metadata.len()));
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let is_segment = entry
            .path()
            .extension()
            .is_some_and(|ext| ext == SEGMENT_EXTENSION);
        if kind.is_dir() || (kind.is_file() && is_segment) {
            entries.push(entry.path());
        }
    }
    entries.sort();
    entries
        .iter()
        .try_for_each(|entry| find_segments(entry, found))
}

/// Reads a segment to its end or to the first problem.
fn read_segment(
    path: &Path,
    on_batch: &mut impl FnMut(BatchRow) -> Result<(), Failure>,
) -> Result<SegmentReport, Failure> {
    let name = path.display().to_string();
    let failed = |error| Failure::io(&name, &error);
    let mut file = fs::File::open(path).map_err(failed)?;
    let mut report = SegmentReport {
        segment: name.clone(),
        ..SegmentReport::default()
    };
    let named = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .and_then(|stem| stem.parse::<i64>().ok());
    let mut expected = named;
    let mut held = BytesMut::new();
    let mut is_at_end = false;
    loop {
        let wanted = match peek_batch_bytes(&held) {
            Some(bytes) => bytes.min(BATCH_BYTES_MAX),
            None => HEADER_BYTES,
        };
        if held.len() < wanted && !is_at_end {
            let start = held.len();
            held.resize(start + READ_BYTES, 0);
            let read = file.read(&mut held[start..]).map_err(failed)?;
            held.truncate(start + read);
            is_at_end = read == 0;
            continue;
        }
        if held.iter().take(wanted).all(|byte| *byte == 0) {
            let rest = zeros_to_the_end(&held, &mut file).map_err(failed)?;
            match rest {
                Ok(zeros) => report.preallocated_bytes = zeros,
                Err(after) => {
                    report.problem = Some(format!(
                        "at position {}: bytes {after} behind the last batch are not zero",
                        report.bytes
                    ));
                }
            }
            return Ok(report);
        }
        let batch = held.split_to(wanted.min(held.len())).freeze();
        match check_batch(&batch, expected) {
            Ok(header) => {
                on_batch(row(&name, report.bytes, &header))?;
                report.batches += 1;
                report.records += u64::try_from(header.record_count).unwrap_or(0);
                report.bytes += batch.len() as u64;
                report.first_offset.get_or_insert(header.base_offset);
                report.next_offset = Some(header.next_offset());
                expected = report.next_offset;
            }
            Err(problem) => {
                let position = report.bytes;
                report.problem = Some(format!("at position {position}: {problem}"));
                return Ok(report);
            }
        }
    }
}

/// How many zeros there are if nothing else follows; otherwise where something else begins.
fn zeros_to_the_end(held: &[u8], file: &mut fs::File) -> std::io::Result<Result<u64, u64>> {
    let mut count = 0;
    let mut piece = held.to_vec();
    loop {
        if let Some(other) = piece.iter().position(|byte| *byte != 0) {
            return Ok(Err(count + other as u64));
        }
        count += piece.len() as u64;
        piece.clear();
        file.take(READ_BYTES as u64).read_to_end(&mut piece)?;
        if piece.is_empty() {
            return Ok(Ok(count));
        }
    }
}

fn check_batch(batch: &Bytes, expected: Option<i64>) -> Result<BatchHeader, String> {
    let words = |error: BatchError| error.to_string();
    let header = verify_stored_batch(batch).map_err(words)?;
    let body = open(batch, OPENED_BYTES_MAX).map_err(words)?;
    scan_records(&header, &body).map_err(words)?;
    match expected {
        Some(expected) if header.base_offset != expected => Err(format!(
            "offset {} where {expected} is due",
            header.base_offset
        )),
        _ => Ok(header),
    }
}

fn row(segment: &str, position: u64, header: &BatchHeader) -> BatchRow {
    BatchRow {
        segment: segment.to_owned(),
        position,
        bytes: header.batch_bytes(),
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        records: header.record_count,
        leader_epoch: header.leader_epoch,
        codec: header.codec().map_or("unknown", Codec::name),
        base_timestamp_ms: header.base_timestamp_ms,
        max_timestamp_ms: header.max_timestamp_ms,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        control: header.attributes.is_control(),
    }
}

fn row_text(row: &BatchRow) -> String {
    format!(
        "{} @{}: offsets {} to {}, {} records, {} bytes, epoch {}, {}, producer {}/{} from {}",
        row.segment,
        row.position,
        row.base_offset,
        row.last_offset,
        row.records,
        row.bytes,
        row.leader_epoch,
        row.codec,
        row.producer_id,
        row.producer_epoch,
        row.base_sequence
    )
}

fn report_text(report: &SegmentReport) -> String {
    let offsets = match (report.first_offset, report.next_offset) {
        (Some(first), Some(next)) => format!("offsets {first} up to {next}"),
        _ => "no batches".to_owned(),
    };
    let state = match &report.problem {
        Some(problem) => format!("PROBLEM {problem}"),
        None => "ok".to_owned(),
    };
    format!(
        "{}: {offsets}, {} batches, {} records, {} bytes: {state}",
        report.segment, report.batches, report.records, report.bytes
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use corelog_batch::{BatchBuilder, BatchOptions, stamp};

    use super::*;

    fn batch(base_offset: i64) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for value in ["one", "two"] {
            builder
                .append(1_000, None, Some(value.as_bytes()), &[])
                .unwrap();
        }
        let mut batch = builder.build().unwrap();
        stamp(&mut batch, base_offset, 0);
        batch.to_vec()
    }

    fn report(name: &str, bytes: &[u8]) -> SegmentReport {
        let folder =
            std::env::temp_dir().join(format!("corelog-log-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("00000000000000000004.log");
        fs::write(&path, bytes).unwrap();
        let report = read_segment(&path, &mut |_| Ok(())).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        report
    }

    #[test]
    fn a_whole_segment_with_zeros_behind_it_is_fine() {
        let bytes = [batch(4), batch(6), vec![0; 10_000]].concat();
        let report = report("whole", &bytes);
        assert_eq!(report.problem, None);
        assert_eq!((report.batches, report.records), (2, 4));
        assert_eq!(report.next_offset, Some(8));
        assert_eq!(report.preallocated_bytes, 10_000);
    }

    #[test]
    fn an_offset_that_does_not_continue_is_a_problem() {
        let report = report("gap", &[batch(4), batch(7)].concat());
        assert!(report.problem.unwrap().contains("offset 7 where 6 is due"));
        assert_eq!(report.batches, 1);
    }

    #[test]
    fn a_flipped_bit_is_a_problem() {
        let mut bytes = [batch(4), batch(6)].concat();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let report = report("bit", &bytes);
        assert!(report.problem.is_some());
        assert_eq!(report.batches, 1);
    }

    #[test]
    fn a_torn_batch_and_bytes_behind_zeros_are_problems() {
        let torn = [batch(4), batch(6)[..30].to_vec()].concat();
        assert!(report("torn", &torn).problem.is_some());
        let behind = [batch(4), vec![0; 200], vec![7]].concat();
        assert!(report("behind", &behind).problem.is_some());
    }
}
