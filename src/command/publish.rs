//! `publish`: lines to records.

use std::path::PathBuf;

use clap::Args;
use corelog_client::core::{Outcome, ProducerSettings, RecordToPublish};
use corelog_client::transport::{Producer, wall_ms};
use indicatif::ProgressBar;
use serde::Serialize;
use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader, stdin};

use super::Bootstrap;
use crate::failure::Failure;
use crate::output::{Output, Unit};
use crate::signals::{StopRequest, runtime};

const READ_BYTES: usize = 256 << 10;
/// Longest line that is looked at; the broker refuses records far below it.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Arguments of `publish`.
#[derive(Args, Debug)]
pub struct PublishArguments {
    /// The topic.
    topic: String,
    /// The file to read; without it the standard input.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Which field of each line is its key, from 1. The record's value is the whole line.
    #[arg(long, conflicts_with = "key", value_parser = clap::value_parser!(u32).range(1..))]
    key_field: Option<u32>,
    /// What stands between fields; a tab without it.
    #[arg(long, default_value = "\t", requires = "key_field")]
    field_separator: String,
    /// One key for every record.
    #[arg(long)]
    key: Option<String>,
    /// The partition; without it the key's, or any.
    #[arg(long)]
    partition: Option<i32>,
    /// Largest batch in bytes.
    #[arg(long, default_value_t = 256 << 10)]
    batch_bytes: usize,
    /// How long a batch waits for more lines, in milliseconds.
    #[arg(long, default_value_t = 5)]
    linger_ms: u64,
    #[command(flatten)]
    bootstrap: Bootstrap,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Summary {
    records: u64,
    acknowledged: u64,
    failed: u64,
    unknown: u64,
    bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &PublishArguments, output: &Output) -> Result<(), Failure> {
    runtime()?.block_on(publish(arguments, output))
}

async fn publish(arguments: &PublishArguments, output: &Output) -> Result<(), Failure> {
    let stop = StopRequest::listen()?;
    let (mut source, total) = open(arguments).await?;
    let client = arguments.bootstrap.connect().await?;
    let producer = Producer::new(
        client,
        ProducerSettings {
            batch_bytes_max: arguments.batch_bytes,
            linger_ms: arguments.linger_ms,
            ..ProducerSettings::default()
        },
    );
    let bar = output.progress(total, Unit::Bytes);
    let mut publishing = Publishing {
        arguments,
        producer,
        summary: Summary::default(),
        first_failure: None,
        bar,
    };
    let read = publishing.read_lines(&mut source, &stop).await;
    // What was taken is settled also when reading failed.
    publishing.producer.flush().await?;
    publishing.take_outcomes();
    publishing.bar.finish_and_clear();
    read?;
    output.result(&publishing.summary, |summary| {
        format!(
            "{} records acknowledged of {} ({} bytes)",
            summary.acknowledged, summary.records, summary.bytes
        )
    })?;
    match publishing.first_failure {
        None => Ok(()),
        Some(first) => Err(Failure::new(format!(
            "{} records were not stored and of {} it is not known; the first: {first}",
            publishing.summary.failed, publishing.summary.unknown
        ))),
    }
}

type Source = Box<dyn AsyncBufRead + Unpin>;

async fn open(arguments: &PublishArguments) -> Result<(Source, Option<u64>), Failure> {
    let Some(path) = &arguments.file else {
        return Ok((
            Box::new(BufReader::with_capacity(READ_BYTES, stdin())),
            None,
        ));
    };
    let failed = |error| Failure::io(path.display(), &error);
    let file = File::open(path).await.map_err(failed)?;
    let bytes = file.metadata().await.map_err(failed)?.len();
    Ok((
        Box::new(BufReader::with_capacity(READ_BYTES, file)),
        Some(bytes),
    ))
}

struct Publishing<'a> {
    arguments: &'a PublishArguments,
    producer: Producer,
    summary: Summary,
    first_failure: Option<String>,
    bar: ProgressBar,
}

impl Publishing<'_> {
    async fn read_lines(&mut self, source: &mut Source, stop: &StopRequest) -> Result<(), Failure> {
        // The start of a line whose end has not been read yet.
        let mut start: Vec<u8> = Vec::new();
        while !stop.is_requested() {
            let chunk = tokio::select! {
                chunk = source.fill_buf() => chunk,
                ended = self.producer.drive() => {
                    ended?;
                    continue;
                }
            };
            let chunk = chunk.map_err(|error| Failure::io("reading lines", &error))?;
            if chunk.is_empty() {
                break;
            }
            let chunk_bytes = chunk.len();
            let mut rest = chunk;
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let (line, after) = rest.split_at(end);
                rest = after.get(1..).unwrap_or_default();
                if start.is_empty() {
                    self.line(line).await?;
                } else {
                    start.extend_from_slice(line);
                    self.line(&start).await?;
                    start.clear();
                }
            }
            if start.len() + rest.len() > LINE_BYTES_MAX {
                return Err(Failure::new(format!(
                    "line {} is longer than {LINE_BYTES_MAX} bytes; is this a text file?",
                    self.summary.records + 1
                )));
            }
            start.extend_from_slice(rest);
            source.consume(chunk_bytes);
            self.bar.inc(chunk_bytes as u64);
            self.producer.turn().await?;
            self.take_outcomes();
        }
        if !start.is_empty() {
            self.line(&start).await?;
        }
        Ok(())
    }

    async fn line(&mut self, line: &[u8]) -> Result<(), Failure> {
        let arguments = self.arguments;
        let number = self.summary.records + 1;
        let key = match (&arguments.key, arguments.key_field) {
            (Some(key), _) => Some(key.as_bytes()),
            (None, Some(field)) => {
                let key = nth_field(line, arguments.field_separator.as_bytes(), field);
                let key = key.ok_or_else(|| {
                    Failure::new(format!(
                        "line {number} has no field {field}; check --key-field and --field-separator"
                    ))
                })?;
                Some(key)
            }
            (None, None) => None,
        };
        let record = RecordToPublish {
            topic: &arguments.topic,
            partition: arguments.partition,
            key,
            value: Some(line),
            headers: &[],
            timestamp_ms: wall_ms(),
        };
        let published = self.producer.publish(&record).await;
        published.map_err(|error| Failure::new(format!("line {number}: {error}")))?;
        self.summary.records += 1;
        self.summary.bytes += line.len() as u64;
        Ok(())
    }

    fn take_outcomes(&mut self) {
        while let Some(batch) = self.producer.next_outcome() {
            let records = batch.publishes.len() as u64;
            let reason = match batch.outcome {
                Outcome::Yes { .. } => {
                    self.summary.acknowledged += records;
                    continue;
                }
                Outcome::No(reason) => {
                    self.summary.failed += records;
                    reason
                }
                Outcome::Unknown(reason) => {
                    self.summary.unknown += records;
                    reason
                }
            };
            let first = batch.publishes.first().map_or(0, |publish| publish.0 + 1);
            self.first_failure
                .get_or_insert_with(|| format!("line {first}: {reason}"));
        }
    }
}

/// Field `number`, from 1.
fn nth_field<'a>(line: &'a [u8], separator: &[u8], number: u32) -> Option<&'a [u8]> {
    let mut rest = line;
    for _ in 1..number {
        rest = rest.get(find(rest, separator)? + separator.len()..)?;
    }
    rest.get(..find(rest, separator).unwrap_or(rest.len()))
}

fn find(bytes: &[u8], sought: &[u8]) -> Option<usize> {
    if sought.is_empty() {
        return None;
    }
    bytes
        .windows(sought.len())
        .position(|window| window == sought)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_one_and_a_missing_one_is_none() {
        let line = b"a, b, ,d";
        assert_eq!(nth_field(line, b", ", 1), Some(&b"a"[..]));
        assert_eq!(nth_field(line, b", ", 2), Some(&b"b"[..]));
        assert_eq!(nth_field(line, b", ", 3), Some(&b",d"[..]));
        assert_eq!(nth_field(line, b", ", 4), None);
        assert_eq!(nth_field(line, b"\t", 1), Some(&line[..]));
        assert_eq!(nth_field(b"", b"\t", 1), Some(&b""[..]));
        assert_eq!(nth_field(b"\tx", b"\t", 1), Some(&b""[..]));
    }
}
