//! A broker: its cores, its support thread, its listeners, from start to end.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use corelog_engine::core_state::CoreSettings;
use corelog_engine::identity::{BrokerId, CoreIndex, ProcessId};
use corelog_engine::metadata::decisions::{BrokerStart, TopicDefaults};
use corelog_engine::metadata::{Address, Image};

use crate::counts::ShardRefusal;
use crate::data_directory::DataDirectory;
use crate::disk::Disk;
use crate::mesh::{
    CoreSenders, Face, INBOX_MESSAGES_MAX, Inbox, SUPPORT_MESSAGES_MAX, ToCore, ToSupport,
};
use crate::randomness::random_id;
use crate::shard::{FaceSettings, Shard};
use crate::support::{self, SupportOptions, SupportThread};
use crate::uring::channel::{Reply, Sender, bounded, reply};
use crate::uring::{
    Accepted, CoreHandle, CoreOptions, Listener, SocketOptions, check_locked_memory, clock,
    place_cores, run_core, sleep, spawn_local,
};

/// How long a graceful stop may take before it is given up; recovery then does the rest.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// A listener that cannot accept (no descriptor free, say) rests this long.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Most connections that one core serves, on all faces.
pub const CONNECTIONS_PER_CORE_MAX: usize = 20_000;

/// Registered I/O memory of each core, in bytes.
const IO_MEMORY_BYTES: usize = 16 << 20;

/// What a broker is started with.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// The broker's number.
    pub broker: u32,
    /// Its zone.
    pub zone: String,
    /// How many cores it runs on.
    pub cores: usize,
    /// Where it listens for Kafka clients; port 0 takes a free one.
    pub kafka: SocketAddr,
    /// Where it listens for HTTP; port 0 takes a free one.
    pub http: SocketAddr,
    /// Host name or address that clients are told.
    pub advertised_host: String,
    /// Bytes that each core may use for frames, requests in work and its tail cache.
    pub memory_bytes_per_core: usize,
    /// The tail cache's share of it, at most.
    pub tail_cache_bytes_per_core: usize,
    /// Below this many free bytes no topics are made.
    pub disk_low_bytes: u64,
    /// Below this many free bytes nothing is published.
    pub disk_full_bytes: u64,
    /// Whether a topic is made when a client first names it.
    pub auto_create_topics: bool,
    /// Partitions of a topic that does not say how many.
    pub partitions_default: u32,
    /// How long a core looks for work before it sleeps, in microseconds; only where each core has
    /// a CPU of its own.
    pub spin_us: u64,
}

impl BrokerOptions {
    /// The defaults, on loopback, with data below `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            broker: 1,
            zone: String::from("a"),
            cores: 1,
            kafka: SocketAddr::from(([127, 0, 0, 1], 9092)),
            http: SocketAddr::from(([127, 0, 0, 1], 8080)),
            advertised_host: String::from("127.0.0.1"),
            memory_bytes_per_core: 1 << 30,
            tail_cache_bytes_per_core: 256 << 20,
            disk_low_bytes: 2 << 30,
            disk_full_bytes: 1 << 30,
            auto_create_topics: true,
            partitions_default: 1,
            spin_us: 0,
        }
    }
}

/// Why a broker did not start, or ended.
#[derive(Debug)]
pub struct BrokerError {
    what: String,
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for BrokerError {}

impl BrokerError {
    fn new(doing: &str, error: impl fmt::Display) -> Self {
        Self {
            what: format!("{doing}: {error}"),
        }
    }
}

/// A running broker. Dropping it without [`Broker::stop`] leaves its threads running.
#[derive(Debug)]
pub struct Broker {
    kafka: SocketAddr,
    http: SocketAddr,
    notice: Option<String>,
    cores: Vec<CoreHandle<()>>,
    senders: CoreSenders,
    support: SupportThread,
    to_support: Sender<ToSupport>,
    _directory: DataDirectory,
}

/// What one core's thread takes with it.
struct CoreSetup {
    settings: CoreSettings,
    image: Image,
    data_dir: PathBuf,
    inbox: Inbox,
    senders: CoreSenders,
    to_support: Sender<ToSupport>,
    faces: FaceSettings,
    listen: Option<(SocketAddr, SocketAddr)>,
    listening: Reply<io::Result<()>>,
}

impl Broker {
    /// Starts a broker; comes back when it listens. Logs may still be opening: see
    /// [`Broker::is_ready`].
    ///
    /// # Errors
    /// If the data directory, the metadata, a listener, a core or the locked memory is not to be had.
    pub fn start(options: BrokerOptions) -> Result<Self, BrokerError> {
        let kafka = with_port(options.kafka)
            .map_err(|error| BrokerError::new("finding a free Kafka port", error))?;
        let http = with_port(options.http)
            .map_err(|error| BrokerError::new("finding a free HTTP port", error))?;
        let broker = BrokerId(options.broker);
        let directory = DataDirectory::open(&options.data_dir, broker, clock::wall())
            .map_err(|error| BrokerError::new("opening the data directory", error))?;
        let placement = place_cores(options.cores, Some(&options.data_dir))
            .map_err(|error| BrokerError::new("placing the cores", error))?;
        check_locked_memory(options.cores, IO_MEMORY_BYTES)
            .map_err(|error| BrokerError::new("locking memory", error))?;
        let defaults = TopicDefaults {
            partitions: options.partitions_default,
            ..TopicDefaults::default()
        };
        let (to_support, wishes) = bounded(SUPPORT_MESSAGES_MAX);
        let (senders, inboxes): (CoreSenders, Vec<Inbox>) = (0..options.cores)
            .map(|_| bounded(INBOX_MESSAGES_MAX))
            .unzip();
        let support_options = support_options(&options, kafka, http, &defaults);
        let (support, image) = support::start(support_options, wishes, senders.clone())
            .map_err(|error| BrokerError::new("opening the metadata", error))?;
        let faces = face_settings(&options, &directory, kafka, http, defaults);
        let mut cores = Vec::with_capacity(options.cores);
        let mut listening = Vec::with_capacity(options.cores);
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let (ready, wait) = reply();
            let core = CoreIndex(u16::try_from(index).unwrap_or(u16::MAX));
            let setup = CoreSetup {
                settings: CoreSettings {
                    memory_bytes: options.memory_bytes_per_core,
                    tail_cache_bytes: options.tail_cache_bytes_per_core,
                    ..CoreSettings::new(broker, core)
                },
                image: image.clone(),
                data_dir: options.data_dir.clone(),
                inbox,
                senders: senders.clone(),
                to_support: to_support.clone(),
                faces: faces.clone(),
                listen: (index == 0).then_some((kafka, http)),
                listening: ready,
            };
            let core_options = CoreOptions {
                index,
                cpu: placement.cpus.get(index).copied().flatten(),
                spin_us: if placement.may_spin {
                    options.spin_us
                } else {
                    0
                },
                io_memory_bytes: IO_MEMORY_BYTES,
                name: format!("core-{index}"),
                ..CoreOptions::default()
            };
            let handle = run_core(core_options, move || run(setup))
                .map_err(|error| BrokerError::new("starting a core", error))?;
            cores.push(handle);
            listening.push(wait);
        }
        for wait in listening {
            let listens = futures_lite::future::block_on(wait)
                .map_err(|error| BrokerError::new("starting a core", error))?;
            listens.map_err(|error| {
                BrokerError::new(&format!("listening at {kafka} and {http}"), error)
            })?;
        }
        Ok(Self {
            kafka,
            http,
            notice: placement.notice,
            cores,
            senders,
            support,
            to_support,
            _directory: directory,
        })
    }

    /// Where it listens for Kafka clients.
    pub fn kafka_address(&self) -> SocketAddr {
        self.kafka
    }

    /// Where it listens for HTTP.
    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// What the operator should hear about the placement of the cores.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Whether every log is open.
    pub fn is_ready(&self) -> bool {
        self.senders.iter().all(|core| {
            let (answer, wait) = reply();
            let asked = core.try_send(ToCore::Report(answer)).is_ok();
            asked && futures_lite::future::block_on(wait).is_ok_and(|report| report.is_ready)
        })
    }

    /// Comes back when a thread of the broker has ended, which none should before
    /// [`Broker::stop`]; looks every so often.
    pub fn has_failed(&self) -> bool {
        self.support.is_finished() || self.cores.iter().any(CoreHandle::is_finished)
    }

    /// Stops in order: no new connections and publishes, every log checkpointed and marked clean.
    ///
    /// # Errors
    /// If a thread did not end in order. What was acknowledged is safe all the same.
    pub fn stop(self) -> Result<(), BrokerError> {
        for core in &self.senders {
            let _ = futures_lite::future::block_on(core.send(ToCore::Stop));
        }
        let mut outcome = Ok(());
        for core in self.cores {
            if let Err(error) = core.join() {
                outcome = Err(BrokerError::new("stopping a core", error));
            }
        }
        let _ = futures_lite::future::block_on(self.to_support.send(ToSupport::Stop));
        if let Err(error) = self.support.join() {
            outcome = Err(BrokerError::new("stopping the support thread", error));
        }
        outcome
    }
}

fn support_options(
    options: &BrokerOptions,
    kafka: SocketAddr,
    http: SocketAddr,
    defaults: &TopicDefaults,
) -> SupportOptions {
    let address = |listener: &str, port: u16| Address {
        listener: String::from(listener),
        host: options.advertised_host.clone(),
        port,
    };
    SupportOptions {
        data_dir: options.data_dir.clone(),
        start: BrokerStart {
            broker: BrokerId(options.broker),
            process: ProcessId(random_id()),
            zone: options.zone.clone(),
            cores: u16::try_from(options.cores).unwrap_or(u16::MAX),
            addresses: vec![address("kafka", kafka.port()), address("http", http.port())],
        },
        defaults: defaults.clone(),
        disk_low_bytes: options.disk_low_bytes,
        disk_full_bytes: options.disk_full_bytes,
    }
}

fn face_settings(
    options: &BrokerOptions,
    directory: &DataDirectory,
    kafka: SocketAddr,
    http: SocketAddr,
    defaults: TopicDefaults,
) -> FaceSettings {
    FaceSettings {
        cluster: directory.cluster().to_string(),
        broker: BrokerId(options.broker),
        zone: options.zone.clone(),
        advertised_host: options.advertised_host.clone(),
        kafka_port: kafka.port(),
        http_port: http.port(),
        auto_create_topics: options.auto_create_topics,
        defaults,
        cores: u16::try_from(options.cores).unwrap_or(u16::MAX),
    }
}

/// A free port in place of port 0, so that it is known before the cores start.
fn with_port(address: SocketAddr) -> io::Result<SocketAddr> {
    if address.port() != 0 {
        return Ok(address);
    }
    std::net::TcpListener::bind(address)?.local_addr()
}

/// The life of one core.
async fn run(setup: CoreSetup) {
    let disk = Disk::new(&setup.data_dir);
    let shard = Shard::new(
        setup.settings,
        setup.image,
        disk,
        setup.senders,
        setup.to_support,
        setup.faces,
    );
    let listens = match setup.listen {
        Some((kafka, http)) => {
            listen(&shard, kafka, Face::Kafka).and_then(|()| listen(&shard, http, Face::Http))
        }
        None => Ok(()),
    };
    let failed = listens.is_err();
    let _ = setup.listening.send(listens);
    if failed {
        return;
    }
    while !shard.is_stopping() {
        let Ok(message) = setup.inbox.recv().await else {
            break;
        };
        if let Some((accepted, face)) = shard.on_message(message) {
            serve(&shard, accepted, face);
        }
    }
    shard.finish(STOP_PATIENCE).await;
}

/// Listens on this core and deals connections to all cores in turn. The kernel's own spreading
/// over several listeners goes by a hash of addresses, which is uneven for few connections.
fn listen(shard: &Rc<Shard>, address: SocketAddr, face: Face) -> io::Result<()> {
    let listener = Listener::bind(address, SocketOptions::default())?;
    let shard = Rc::clone(shard);
    spawn_local(async move {
        let mut turn = 0_usize;
        while !shard.is_stopping() {
            match listener.accept().await {
                Ok(accepted) => {
                    shard.deal(turn, accepted, face);
                    turn = turn.wrapping_add(1);
                }
                Err(error) => {
                    tracing::warn!(%error, %address, "a connection was not accepted");
                    sleep(ACCEPT_REST).await;
                }
            }
        }
    })
    .detach();
    Ok(())
}

impl Shard {
    fn deal(self: &Rc<Self>, turn: usize, accepted: Accepted, face: Face) {
        let index = turn % self.core_senders().len();
        if index == usize::from(self.core().get()) {
            serve(self, accepted, face);
        } else if let Some(core) = self.core_senders().get(index) {
            // A core whose inbox is full would serve it late at best: the connection is closed.
            if core.try_send(ToCore::Accepted(accepted, face)).is_err() {
                self.counts.refuse(ShardRefusal::Connection);
            }
        }
    }
}

fn serve(shard: &Rc<Shard>, accepted: Accepted, face: Face) {
    let open = shard.connections(Face::Kafka) + shard.connections(Face::Http);
    if open >= CONNECTIONS_PER_CORE_MAX {
        shard.counts.refuse(ShardRefusal::Connection);
        return tracing::warn!(
            open,
            "a connection was closed: the core has as many as it may"
        );
    }
    let counted = shard.count_connection(face);
    let stream = match accepted.into_stream() {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "a connection ended before it was served"),
    };
    let shard = Rc::clone(shard);
    spawn_local(async move {
        match face {
            Face::Kafka => crate::kafka::serve(&shard, stream).await,
            Face::Http => crate::http::serve(&shard, stream).await,
        }
        drop(counted);
    })
    .detach();
}
