//! `consume`: records to lines.

use std::io::{self, BufWriter, StdoutLock, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use corelog_client::batch::Record;
use corelog_client::core::{ConsumedRecords, ConsumerSettings, GroupSettings, StartAt};
use corelog_client::transport::{Consumer, wall_ms};
use serde_json::{Map, Value, json};

use super::Bootstrap;
use crate::command::time::parse_time_ms;
use crate::failure::Failure;
use crate::output::{Output, Unit};
use crate::signals::{StopRequest, runtime};

/// How long one look for records lasts; signals are looked at in between.
const LOOK_MS: u64 = 250;
/// A group's position is stored this often, in milliseconds, and at the end.
const COMMIT_EVERY_MS: i64 = 1_000;

/// Arguments of `consume`.
#[derive(Args, Debug)]
pub struct ConsumeArguments {
    /// The topic.
    topic: String,
    /// Read as a member of this group and store how far it is.
    #[arg(long)]
    group: Option<String>,
    /// Where to begin: earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z. In a group only
    /// for partitions in which the group has stored no position.
    #[arg(long, default_value = "latest", value_parser = parse_start)]
    from: StartAt,
    /// End after this many records.
    #[arg(long)]
    max: Option<u64>,
    /// End when everything that is there has been read.
    #[arg(long)]
    exit_at_end: bool,
    /// Print the key and a tab before each value.
    #[arg(long)]
    print_key: bool,
    /// Only this partition.
    #[arg(long, conflicts_with = "group")]
    partition: Option<i32>,
    #[command(flatten)]
    bootstrap: Bootstrap,
}

fn parse_start(text: &str) -> Result<StartAt, String> {
    match text {
        "earliest" => Ok(StartAt::Earliest),
        "latest" => Ok(StartAt::Latest),
        _ => match text.parse::<i64>() {
            Ok(offset) if offset >= 0 => Ok(StartAt::Offset(offset)),
            _ => parse_time_ms(text).map(StartAt::Time).ok_or_else(|| {
                "give earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z"
                    .to_owned()
            }),
        },
    }
}

/// Runs the command.
pub fn run(arguments: &ConsumeArguments, output: &Output) -> Result<(), Failure> {
    runtime()?.block_on(consume(arguments, output))
}

async fn consume(arguments: &ConsumeArguments, output: &Output) -> Result<(), Failure> {
    let stop = StopRequest::listen()?;
    let mut client = arguments.bootstrap.connect().await?;
    client.topic(&arguments.topic).await?;
    let mut consumer = Consumer::new(client, ConsumerSettings::default());
    match (&arguments.group, arguments.partition) {
        (Some(group), _) => {
            let settings = GroupSettings::new(group, &[&arguments.topic]);
            consumer.join(settings, arguments.from);
        }
        (None, Some(partition)) => {
            consumer
                .assign(&arguments.topic, partition, arguments.from)
                .await?;
        }
        (None, None) => {
            consumer
                .assign_topic(&arguments.topic, arguments.from)
                .await?;
        }
    }
    let mut printing = Printing {
        out: BufWriter::with_capacity(256 << 10, io::stdout().lock()),
        json: output.is_json(),
        print_key: arguments.print_key,
        left: arguments.max.unwrap_or(u64::MAX),
    };
    let read = read(arguments, &mut consumer, &mut printing, &stop, output).await;
    printing.out.flush()?;
    read?;
    if arguments.max.is_none() || printing.left > 0 {
        consumer.commit().await?;
    }
    consumer.leave().await?;
    Ok(())
}

async fn read(
    arguments: &ConsumeArguments,
    consumer: &mut Consumer,
    printing: &mut Printing<'_>,
    stop: &StopRequest,
    output: &Output,
) -> Result<(), Failure> {
    let bar = output.progress(None, Unit::Steps);
    let mut committed_ms = wall_ms();
    while printing.left > 0 && !stop.is_requested() {
        match consumer.next(LOOK_MS).await? {
            Some(batch) => {
                let printed = printing.batch(&batch)?;
                bar.inc(printed as u64);
                if printed < batch.records.len() {
                    // Only what was printed is processed.
                    let next_offset = match batch.records.get(printed) {
                        Some(record) => record.offset(&batch.header),
                        None => batch.next_offset,
                    };
                    printing.out.flush()?;
                    consumer
                        .commit_at(&batch.topic, batch.partition, next_offset)
                        .await?;
                    break;
                }
                if printing.left == 0 {
                    printing.out.flush()?;
                    consumer.commit().await?;
                    break;
                }
            }
            None => {
                printing.out.flush()?;
                if arguments.exit_at_end && consumer.is_at_end() {
                    break;
                }
            }
        }
        if arguments.group.is_some() && wall_ms() - committed_ms >= COMMIT_EVERY_MS {
            printing.out.flush()?;
            consumer.commit().await?;
            committed_ms = wall_ms();
        }
    }
    bar.finish_and_clear();
    Ok(())
}

struct Printing<'a> {
    out: BufWriter<StdoutLock<'a>>,
    json: bool,
    print_key: bool,
    left: u64,
}

impl Printing<'_> {
    /// Prints a batch's records, as many as are still wanted, and says how many that were.
    fn batch(&mut self, batch: &ConsumedRecords) -> io::Result<usize> {
        let mut printed = 0;
        for record in &batch.records {
            if self.left == 0 {
                break;
            }
            self.record(batch, record)?;
            self.left -= 1;
            printed += 1;
        }
        Ok(printed)
    }

    fn record(&mut self, batch: &ConsumedRecords, record: &Record) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut self.out, &record_object(batch, record))?;
            return self.out.write_all(b"\n");
        }
        if self.print_key {
            self.out
                .write_all(record.key.as_deref().unwrap_or_default())?;
            self.out.write_all(b"\t")?;
        }
        self.out
            .write_all(record.value.as_deref().unwrap_or_default())?;
        self.out.write_all(b"\n")
    }
}

fn record_object(batch: &ConsumedRecords, record: &Record) -> Value {
    let mut object = Map::new();
    object.insert("topic".into(), json!(batch.topic.as_str()));
    object.insert("partition".into(), json!(batch.partition));
    object.insert("offset".into(), json!(record.offset(&batch.header)));
    object.insert(
        "timestamp_ms".into(),
        json!(record.timestamp_ms(&batch.header)),
    );
    insert_bytes(&mut object, "key", record.key.as_deref());
    insert_bytes(&mut object, "value", record.value.as_deref());
    if !record.headers.is_empty() {
        let headers = record.headers.refs().map(|header| {
            let mut of_header = Map::new();
            insert_bytes(&mut of_header, "name", Some(header.key));
            insert_bytes(&mut of_header, "value", header.value);
            Value::Object(of_header)
        });
        object.insert("headers".into(), headers.collect());
    }
    Value::Object(object)
}

/// Text under `name`, or other bytes in base64 under `name_base64`.
fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let text = bytes.map(std::str::from_utf8);
    match (text, bytes) {
        (Some(Ok(text)), _) => object.insert(name.to_owned(), json!(text)),
        (_, Some(bytes)) => object.insert(
            format!("{name}_base64"),
            json!(BASE64_STANDARD.encode(bytes)),
        ),
        (_, None) => object.insert(name.to_owned(), Value::Null),
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[test]
    fn a_start_is_a_word_an_offset_or_a_time() {
        assert_eq!(parse_start("earliest"), Ok(StartAt::Earliest));
        assert_eq!(parse_start("latest"), Ok(StartAt::Latest));
        assert_eq!(parse_start("17"), Ok(StartAt::Offset(17)));
        assert_eq!(
            parse_start("1970-01-02T00:00:00Z"),
            Ok(StartAt::Time(86_400_000))
        );
        assert!(parse_start("-1").is_err());
        assert!(parse_start("soon").is_err());
    }

    #[test]
    fn bytes_that_are_no_text_are_printed_in_base64() {
        let mut object = Map::new();
        insert_bytes(&mut object, "value", Some(&[0xff, 0x00]));
        insert_bytes(&mut object, "key", None);
        assert_eq!(
            Value::Object(object),
            json!({ "value_base64": "/wA=", "key": null })
        );
    }
}
