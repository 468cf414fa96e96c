//! `dev` and `serve`: a broker in this process.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Args;
use corelog_shard::{Broker, BrokerOptions};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::{SettingFlags, Settings, reference};
use crate::signals::{StopRequest, runtime};

/// What is logged without `CORELOG_LOG`: the consensus library tells more than operators can use,
/// and the reactor library calls it an error that it may not probe a disk for polling.
const LOGGED: &str = "info,openraft=warn,glommio=off";
/// How often the broker's threads and the signals are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What every acknowledged record has on one broker.
const DURABILITY: &str =
    "every acknowledged record is on this machine's stable storage (one broker: no copies)";

/// Arguments of `dev`.
#[derive(Args, Debug)]
pub struct DevArguments {
    /// Folder that holds everything; it is made if it is not there.
    #[arg(long, default_value = "corelog-data")]
    data_dir: PathBuf,
    /// Cores to run on; 0 takes every CPU that the process may use.
    #[arg(long, default_value_t = 0)]
    cores: usize,
    /// Port for Kafka clients on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 9092)]
    kafka_port: u16,
    /// Port for HTTP clients on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 8080)]
    http_port: u16,
}

/// Arguments of `serve`.
#[derive(Args, Debug)]
pub struct ServeArguments {
    /// The configuration, in TOML.
    #[arg(
        long,
        env = "CORELOG_CONFIG",
        required_unless_present = "print_settings"
    )]
    config: Option<PathBuf>,
    /// Print every setting with its default and meaning, and end.
    #[arg(long)]
    print_settings: bool,
    #[command(flatten)]
    flags: SettingFlags,
}

/// What is printed once the broker listens.
#[derive(Debug, Serialize)]
struct Started {
    broker: u32,
    kafka: String,
    http: String,
    data_dir: String,
    cores: usize,
    durability: &'static str,
    pid: u32,
}

/// Runs a broker on loopback.
pub fn dev(arguments: &DevArguments, output: &Output) -> Result<(), Failure> {
    let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    run(
        BrokerOptions {
            cores: cores(arguments.cores)?,
            kafka: loopback(arguments.kafka_port),
            http: loopback(arguments.http_port),
            ..BrokerOptions::new(&arguments.data_dir)
        },
        output,
    )
}

/// Runs a broker from its configuration.
pub fn serve(arguments: ServeArguments, output: &Output) -> Result<(), Failure> {
    if arguments.print_settings {
        return print_settings(output);
    }
    let settings = Settings::load(arguments.flags, arguments.config.as_deref())?;
    run(
        BrokerOptions {
            broker: settings.broker,
            advertised_host: settings.told_host(),
            cores: cores(settings.cores)?,
            kafka: settings.kafka_listen,
            http: settings.http_listen,
            memory_bytes_per_core: settings.memory_bytes_per_core,
            tail_cache_bytes_per_core: settings.tail_cache_bytes_per_core,
            disk_low_bytes: settings.disk_low_bytes,
            disk_full_bytes: settings.disk_full_bytes,
            auto_create_topics: settings.auto_create_topics,
            partitions_default: settings.partitions_default,
            spin_us: settings.spin_us,
            zone: settings.zone,
            ..BrokerOptions::new(&settings.data_dir)
        },
        output,
    )
}

fn print_settings(output: &Output) -> Result<(), Failure> {
    for row in reference() {
        output.result(&row, |row| {
            format!(
                "# {} ({}; {}; {})\n{} = {}\n",
                row.meaning, row.flag, row.variable, row.applies, row.key, row.default
            )
        })?;
    }
    Ok(())
}

fn cores(asked: usize) -> Result<usize, Failure> {
    if asked > 0 {
        return Ok(asked);
    }
    let available = available_parallelism();
    let available =
        available.map_err(|error| Failure::io("counting CPUs; give --cores", &error))?;
    Ok(available.get())
}

/// Starts a broker and keeps it until a signal asks for its end.
fn run(options: BrokerOptions, output: &Output) -> Result<(), Failure> {
    let filter = EnvFilter::try_from_env("CORELOG_LOG").unwrap_or_else(|_| EnvFilter::new(LOGGED));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let runtime = runtime()?;
    // Listened for before the start, so that a signal during it is not lost.
    let stop = runtime.block_on(async { StopRequest::listen() })?;
    let (broker_id, cores) = (options.broker, options.cores);
    let data_dir = options.data_dir.display().to_string();
    let broker = Broker::start(options)
        .map_err(|error| Failure::new(format!("the broker did not start: {error}")))?;
    let started = Started {
        broker: broker_id,
        kafka: broker.kafka_address().to_string(),
        http: broker.http_address().to_string(),
        data_dir,
        cores,
        durability: DURABILITY,
        pid: std::process::id(),
    };
    output.result(&started, |started| {
        format!(
            "corelog broker {} is up\n  Kafka       {}\n  HTTP        http://{}/v1\n  data        {}\n  \
             cores       {}\n  durability  {}\n  stop        Ctrl-C",
            started.broker,
            started.kafka,
            started.http,
            started.data_dir,
            started.cores,
            started.durability
        )
    })?;
    if let Some(notice) = broker.notice() {
        output.note(notice);
    }
    let failed = runtime.block_on(async {
        while !stop.is_requested() {
            if broker.has_failed() {
                return true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        false
    });
    if failed {
        return Err(Failure::new(
            "a thread of the broker ended; its reason stands above. Acknowledged records are safe: start again",
        ));
    }
    output.note("stopping: every log is closed in order; a second signal ends at once");
    // A second signal must be heard while the broker stops on this thread.
    let listening = std::thread::spawn(move || {
        runtime.block_on(std::future::pending::<()>());
    });
    let stopped = broker.stop();
    drop(listening);
    stopped.map_err(|error| {
        Failure::new(format!(
            "the broker did not stop in order: {error}. Acknowledged records are safe: the next start recovers"
        ))
    })
}
