//! `bench consume`: how fast batches come.

use std::time::{Duration, Instant};

use clap::Args;
use corelog_client::batch::verify_stored_batch;
use corelog_client::core::{ConsumerSettings, StartAt};
use corelog_client::transport::Consumer;

use super::broker_process::BrokerProcess;
use super::report::{ConsumeReport, consume_text};
use crate::command::Bootstrap;
use crate::failure::Failure;
use crate::output::{Output, Unit};
use crate::signals::StopRequest;

/// How long one look for batches lasts.
const LOOK_MS: u64 = 200;

/// Arguments of `bench consume`.
#[derive(Args, Debug)]
pub struct ConsumeArguments {
    /// The topic.
    #[arg(long)]
    topic: String,
    /// Begin at the end instead of the oldest record.
    #[arg(long)]
    tail: bool,
    /// How long to measure at most, in seconds. From the oldest record on it ends at the end.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Most bytes of one partition in one answer.
    #[arg(long, default_value_t = 4 << 20, value_parser = clap::value_parser!(i32).range(1..))]
    partition_bytes: i32,
    /// Most bytes in one answer.
    #[arg(long, default_value_t = 16 << 20, value_parser = clap::value_parser!(i32).range(1..))]
    fetch_bytes: i32,
    /// Verify the checksum of every batch.
    #[arg(long)]
    verify: bool,
    /// The broker's process on this machine, to report what it uses.
    #[arg(long)]
    broker_pid: Option<u32>,
    #[command(flatten)]
    bootstrap: Bootstrap,
}

/// Consumes and prints the figures.
pub async fn run(arguments: &ConsumeArguments, output: &Output) -> Result<(), Failure> {
    let stop = StopRequest::listen()?;
    let broker = arguments.broker_pid.map(BrokerProcess::new).transpose()?;
    let client = arguments.bootstrap.connect().await?;
    let mut consumer = Consumer::new(
        client,
        ConsumerSettings {
            partition_bytes_max: arguments.partition_bytes,
            fetch_bytes_max: arguments.fetch_bytes,
            reset_to: Some(StartAt::Earliest),
            ..ConsumerSettings::default()
        },
    );
    let start_at = match arguments.tail {
        true => StartAt::Latest,
        false => StartAt::Earliest,
    };
    consumer.assign_topic(&arguments.topic, start_at).await?;
    let bar = output.progress(None, Unit::Steps);
    let cpu_before = broker.map_or(Ok(0.0), BrokerProcess::cpu_s)?;
    let start = Instant::now();
    let end = start + Duration::from_secs(arguments.seconds);
    let (mut records, mut batches, mut bytes) = (0_u64, 0_u64, 0_u64);
    let mut reached_end = false;
    let mut last = start;
    while Instant::now() < end && !stop.is_requested() {
        match consumer.next_batch(LOOK_MS).await? {
            Some(batch) => {
                if arguments.verify {
                    verify_stored_batch(&batch.batch).map_err(|error| {
                        Failure::new(format!(
                            "partition {} at offset {}: {error}",
                            batch.partition, batch.header.base_offset
                        ))
                    })?;
                }
                let of_batch = u64::try_from(batch.header.record_count).unwrap_or(0);
                records += of_batch;
                batches += 1;
                bytes += batch.batch.len() as u64;
                last = Instant::now();
                bar.inc(of_batch);
            }
            None if !arguments.tail && consumer.is_at_end() => {
                reached_end = true;
                break;
            }
            None => {}
        }
    }
    bar.finish_and_clear();
    // At the end the time ends with the last batch, not with the look that found no more.
    let elapsed = if reached_end { last } else { Instant::now() }.duration_since(start);
    let seconds = elapsed.as_secs_f64().max(1e-6);
    let (mut broker_cpu_s_per_gb, mut broker_rss_mb) = (None, None);
    if let Some(broker) = broker {
        let cpu_s = broker.cpu_s()? - cpu_before;
        broker_cpu_s_per_gb = (bytes > 0).then(|| cpu_s / (bytes as f64 / 1e9));
        broker_rss_mb = Some(broker.rss_mb()?);
    }
    let report = ConsumeReport {
        topic: arguments.topic.clone(),
        partitions: consumer.positions().count(),
        seconds,
        records,
        batches,
        records_per_s: records as f64 / seconds,
        mb_per_s: bytes as f64 / seconds / 1e6,
        checksums_verified: arguments.verify,
        reached_end,
        broker_cpu_s_per_gb,
        broker_rss_mb,
    };
    output.result(&report, consume_text)
}
