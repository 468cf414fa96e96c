//! `bench publish`: many producers on one thread.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use clap::Args;
use corelog_client::transport::{Client, ClientError, NewTopic};
use tokio::task::LocalSet;

use super::broker_process::BrokerProcess;
use super::producer::{Figures, LoadProducer, Plan};
use super::report::{LatencyReport, PublishReport, latencies, publish_text};
use super::workload::batches_of_partitions;
use crate::command::Bootstrap;
use crate::failure::Failure;
use crate::output::{Output, Unit};

const MB: f64 = 1e6;
const GB: f64 = 1e9;

/// Arguments of `bench publish`.
#[derive(Args, Debug)]
pub struct PublishArguments {
    /// The topic. It is created if it is not there.
    #[arg(long)]
    topic: String,
    /// Partitions of a topic that is created; of one that is there, all are used.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: i32,
    /// Producers, each with a connection of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    producers: u16,
    /// Bytes of each record's value.
    #[arg(long, default_value_t = 1_000)]
    record_bytes: usize,
    /// Largest batch in bytes, its header included.
    #[arg(long, default_value_t = 1_000_000)]
    batch_bytes: usize,
    /// Batches in one request, of as many partitions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    batches_per_request: u16,
    /// Requests of each producer that may wait for their answers.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    in_flight: u16,
    /// How long a batch that is not full waits for records, in milliseconds. Only with a rate.
    #[arg(long, default_value_t = 0)]
    linger_ms: u64,
    /// How many different keys the records have; 0 for none.
    #[arg(long, default_value_t = 0)]
    keys: u64,
    /// Records per second of all producers together, or max.
    #[arg(long, default_value = "max", value_parser = parse_rate)]
    rate: Rate,
    /// How long to measure, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How long to publish before that, in seconds.
    #[arg(long, default_value_t = 2)]
    warm_up_seconds: u64,
    /// Publish as idempotent producers.
    #[arg(long)]
    idempotent: bool,
    /// The broker's process on this machine, to report what it uses.
    #[arg(long)]
    broker_pid: Option<u32>,
    /// What the row says of durability, where the broker does not tell.
    #[arg(long)]
    durability: Option<String>,
    #[command(flatten)]
    bootstrap: Bootstrap,
}

/// How fast to publish.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As fast as there is room in flight.
    Max,
    /// Records per second.
    RecordsPerS(f64),
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate::Max);
    }
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Rate::RecordsPerS(rate)),
        _ => Err("give records per second, or max".to_owned()),
    }
}

/// The broker's use at the two ends of the measurement.
#[derive(Debug, Default)]
struct BrokerUse {
    cpu_s: f64,
    rss_mb: f64,
}

/// Runs the load and prints its figures.
pub async fn run(arguments: &PublishArguments, output: &Output) -> Result<(), Failure> {
    let broker = arguments.broker_pid.map(BrokerProcess::new).transpose()?;
    let mut client = arguments.bootstrap.connect().await?;
    let partitions = prepare_topic(&mut client, arguments).await?;
    let durability = match &arguments.durability {
        Some(durability) => durability.clone(),
        None => durability(&mut client, &arguments.topic).await,
    };
    let mut producers = connect_producers(&client, arguments, partitions).await?;
    let start = Instant::now();
    let measured_from = start + Duration::from_secs(arguments.warm_up_seconds);
    let end = measured_from + Duration::from_secs(arguments.seconds);
    for producer in &mut producers {
        producer.set_times(start, measured_from, end);
    }
    let local = LocalSet::new();
    let running: Vec<_> = producers
        .into_iter()
        .map(|producer| local.spawn_local(producer.run()))
        .collect();
    let bar = output.progress(
        Some(arguments.warm_up_seconds + arguments.seconds),
        Unit::Steps,
    );
    let (figures, broker_use, generator_cpu_s) = local
        .run_until(async {
            let own = BrokerProcess::new(std::process::id())?;
            wait_until(measured_from, &bar).await;
            let (cpu_before, own_before) = (cpu_s(broker)?, own.cpu_s()?);
            wait_until(end, &bar).await;
            let broker_use = match broker {
                Some(broker) => Some(BrokerUse {
                    cpu_s: broker.cpu_s()? - cpu_before,
                    rss_mb: broker.rss_mb()?,
                }),
                None => None,
            };
            let generator_cpu_s = own.cpu_s()? - own_before;
            let mut figures = Vec::new();
            for one in running {
                let joined = one.await;
                figures.push(joined.map_err(|error| Failure::new(error.to_string()))??);
            }
            Ok::<_, Failure>((figures, broker_use, generator_cpu_s))
        })
        .await?;
    bar.finish_and_clear();
    let mut report = report(arguments, partitions, figures, broker_use)?;
    report.durability = durability;
    report.generator_cpu_s = generator_cpu_s;
    output.result(&report, publish_text)?;
    if report.records == 0 {
        return Err(Failure::new(format!(
            "nothing was acknowledged; the first error: {}",
            report.first_error.as_deref().unwrap_or("none")
        )));
    }
    Ok(())
}

/// The topic's partitions, after it has been created if it was not there.
async fn prepare_topic(
    client: &mut Client,
    arguments: &PublishArguments,
) -> Result<NonZeroU32, Failure> {
    let name = &arguments.topic;
    match client.topic(name).await {
        Ok(_) => {}
        Err(ClientError::NoTopic { .. }) => {
            client
                .create_topic(&NewTopic::new(name, arguments.partitions))
                .await?;
            client.topic(name).await?;
        }
        Err(error) => return Err(error.into()),
    }
    let partitions = client.metadata().partition_count(name);
    partitions.ok_or_else(|| Failure::new(format!("topic {name} has no partitions")))
}

/// What an acknowledgement of this topic stands for, as far as its settings tell.
async fn durability(client: &mut Client, topic: &str) -> String {
    let settings = client.topic_settings(topic).await.unwrap_or_default();
    let value = |name: &str| {
        let found = settings.iter().find(|(key, _)| key == name);
        found.and_then(|(_, value)| value.as_deref())
    };
    match (value("corelog.durability"), value("flush.messages")) {
        (Some(durability), _) => format!("acks=all; {durability}"),
        (None, Some("1")) => "acks=all; synced before the acknowledgement".to_owned(),
        (None, Some(_)) => "acks=all; acknowledged before a sync".to_owned(),
        (None, None) => "acks=all; the broker's settings do not tell".to_owned(),
    }
}

/// Connects the producers, spread over the leaders; each publishes to all partitions of its leader.
async fn connect_producers(
    client: &Client,
    arguments: &PublishArguments,
    partitions: NonZeroU32,
) -> Result<Vec<LoadProducer>, Failure> {
    let topic = &arguments.topic;
    let batches = batches_of_partitions(
        partitions,
        arguments.keys,
        arguments.record_bytes,
        arguments.batch_bytes,
    )?;
    let metadata = client.metadata();
    let leader_of = |partition: i32| metadata.leader(topic, partition);
    let mut leaders: Vec<i32> = batches
        .iter()
        .filter_map(|(partition, _)| leader_of(*partition))
        .collect();
    leaders.sort_unstable();
    leaders.dedup();
    let producers = usize::from(arguments.producers);
    if leaders.len() > producers {
        return Err(Failure::usage(format!(
            "the topic's leaders are {} brokers; give at least as many --producers",
            leaders.len()
        )));
    }
    let now = Instant::now();
    let plan = Plan {
        topic: topic.as_str().into(),
        rate: match arguments.rate {
            Rate::Max => None,
            Rate::RecordsPerS(rate) => Some(rate / producers as f64),
        },
        in_flight: usize::from(arguments.in_flight),
        linger: Duration::from_millis(arguments.linger_ms),
        batches_per_request: usize::from(arguments.batches_per_request),
        idempotent: arguments.idempotent,
        start: now,
        measured_from: now,
        end: now,
    };
    let mut connected = Vec::with_capacity(producers);
    for (index, leader) in leaders.iter().cycle().take(producers).enumerate() {
        let address = metadata.broker(*leader).map(|address| address.host_port());
        let mut led: Vec<_> = batches
            .iter()
            .filter(|(partition, _)| leader_of(*partition) == Some(*leader))
            .cloned()
            .collect();
        // Producers begin with different partitions, so that they spread from the first request on.
        let first = index * led.len() / producers;
        led.rotate_left(first);
        let mut plan = plan.clone();
        plan.batches_per_request = plan.batches_per_request.min(led.len());
        let address = address.unwrap_or_default();
        connected.push(LoadProducer::connect(plan, address, led.into_iter()).await?);
    }
    Ok(connected)
}

async fn wait_until(at: Instant, bar: &indicatif::ProgressBar) {
    while Instant::now() < at {
        let left = at.saturating_duration_since(Instant::now());
        let step = left.min(Duration::from_secs(1));
        tokio::time::sleep(step).await;
        if step == Duration::from_secs(1) {
            bar.inc(1);
        }
    }
}

fn cpu_s(broker: Option<BrokerProcess>) -> Result<f64, Failure> {
    broker.map_or(Ok(0.0), BrokerProcess::cpu_s)
}

fn report(
    arguments: &PublishArguments,
    partitions: NonZeroU32,
    figures: Vec<Figures>,
    broker_use: Option<BrokerUse>,
) -> Result<PublishReport, Failure> {
    let mut all = latencies()?;
    let (mut records, mut requests, mut errors) = (0, 0, 0);
    let mut first_error = None;
    for one in figures {
        all.add(&one.latencies)
            .map_err(|error| Failure::new(format!("adding histograms: {error}")))?;
        records += one.records;
        requests += one.requests;
        errors += one.errors;
        first_error = first_error.or(one.first_error);
    }
    let seconds = arguments.seconds as f64;
    let bytes = records as f64 * arguments.record_bytes as f64;
    Ok(PublishReport {
        topic: arguments.topic.clone(),
        partitions: i32::try_from(partitions.get()).unwrap_or(i32::MAX),
        producers: usize::from(arguments.producers),
        record_bytes: arguments.record_bytes,
        batch_bytes: arguments.batch_bytes,
        batches_per_request: usize::from(arguments.batches_per_request),
        in_flight: usize::from(arguments.in_flight),
        linger_ms: arguments.linger_ms,
        keys: arguments.keys,
        scheduled_records_per_s: match arguments.rate {
            Rate::Max => None,
            Rate::RecordsPerS(rate) => Some(rate),
        },
        idempotent: arguments.idempotent,
        seconds,
        records,
        records_per_s: records as f64 / seconds,
        mb_per_s: bytes / seconds / MB,
        requests,
        ack_us: LatencyReport::of(&all),
        errors,
        first_error,
        durability: String::new(),
        broker_cpu_s_per_gb: broker_use
            .as_ref()
            .filter(|_| bytes > 0.0)
            .map(|broker| broker.cpu_s / (bytes / GB)),
        broker_rss_mb: broker_use.map(|broker| broker.rss_mb),
        generator_cpu_s: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_of_records_or_max() {
        assert_eq!(parse_rate("max"), Ok(Rate::Max));
        assert_eq!(parse_rate("1500"), Ok(Rate::RecordsPerS(1_500.0)));
        for text in ["0", "-1", "fast", "inf", "NaN", ""] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
