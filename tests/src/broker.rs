//! A broker process under test: started on free ports over a data directory, killed, stopped and started again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::http::Connection;
use crate::scratch::Scratch;

/// Names the binary under test; `target/release/corelog` without it.
pub const BINARY_VARIABLE: &str = "CORELOG_BIN";

/// How long a broker may take until it is ready, and until it has stopped, before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a broker is asked whether it is ready.
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// How much of the log is shown when a test fails.
const LOG_TAIL_BYTES: u64 = 16 << 10;

/// How a broker is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Cores that it runs on; 2 when 0.
    pub cores: usize,
    /// Its data directory; a scratch directory without it.
    pub data_directory: Option<PathBuf>,
    /// The program to run; [`binary`] without it.
    pub program: Option<PathBuf>,
    /// Further arguments of `corelog dev`.
    pub arguments: Vec<String>,
}

/// A broker process. It is killed when dropped; in a failing test the end of its log is printed first.
#[derive(Debug)]
pub struct Broker {
    options: Options,
    scratch: Scratch,
    kafka_port: u16,
    http_port: u16,
    child: Option<Child>,
}

impl Broker {
    /// Starts a broker and waits until it is ready.
    ///
    /// # Errors
    /// When there is no binary, or it ends or is not ready in time; the end of its log is in the error.
    pub fn start(options: Options) -> io::Result<Self> {
        let [kafka_port, http_port] = free_ports()?;
        let mut broker = Self {
            options,
            scratch: Scratch::new("corelog-broker")?,
            kafka_port,
            http_port,
            child: None,
        };
        broker.restart()?;
        Ok(broker)
    }

    /// Starts the process again on the same ports and data, and waits until it is ready; the answer is how long
    /// that took.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn restart(&mut self) -> io::Result<Duration> {
        let started = self.spawn()?;
        self.wait_ready()?;
        Ok(started.elapsed())
    }

    /// Starts the process without waiting for anything.
    ///
    /// # Errors
    /// When there is no binary or it runs already.
    pub fn spawn(&mut self) -> io::Result<Instant> {
        if self.child.is_some() {
            return Err(io::Error::other("the broker runs already"));
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let cores = match self.options.cores {
            0 => 2,
            cores => cores,
        };
        let program = match &self.options.program {
            Some(program) => program.clone(),
            None => binary()?,
        };
        let mut command = Command::new(program);
        command
            .arg("dev")
            .arg("--data-dir")
            .arg(self.data_directory())
            .args(["--cores", &cores.to_string()])
            .args(["--kafka-port", &self.kafka_port.to_string()])
            .args(["--http-port", &self.http_port.to_string()])
            .args(&self.options.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let started = Instant::now();
        self.child = Some(command.spawn()?);
        Ok(started)
    }

    /// Waits until `/health/ready` answers 200.
    ///
    /// # Errors
    /// When the process ends or the time does; the end of the log is in the error.
    pub fn wait_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.is_ready() {
                return Ok(());
            }
            let ended = match &mut self.child {
                Some(child) => child.try_wait()?.map(|status| status.to_string()),
                None => Some("not started".to_owned()),
            };
            if ended.is_some() || Instant::now() > deadline {
                let state = ended.unwrap_or_else(|| "not ready in time".to_owned());
                let tail = self.log_tail();
                return Err(io::Error::other(format!("broker: {state}; log:\n{tail}")));
            }
            std::thread::sleep(POLL_PAUSE);
        }
    }

    /// Whether `/health/ready` answers 200 now.
    pub fn is_ready(&self) -> bool {
        Connection::open(&self.http_address())
            .and_then(|mut connection| connection.request("GET", "/health/ready", b""))
            .is_ok_and(|answer| answer.status == 200)
    }

    /// `host:port` of the Kafka listener.
    pub fn kafka_address(&self) -> String {
        format!("127.0.0.1:{}", self.kafka_port)
    }

    /// `host:port` of the HTTP listener.
    pub fn http_address(&self) -> String {
        format!("127.0.0.1:{}", self.http_port)
    }

    /// The data directory.
    pub fn data_directory(&self) -> PathBuf {
        let own = || self.scratch.path().join("data");
        self.options.data_directory.clone().unwrap_or_else(own)
    }

    /// The process id while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the process with SIGKILL and waits for its end. Nothing happens when it does not run.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub fn kill9(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// When it does not run, or did not end in time and had to be killed.
    pub fn stop(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = &mut self.child else {
            return Err(io::Error::other("the broker does not run"));
        };
        signal(child.id(), libc::SIGTERM)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(status);
            }
            std::thread::sleep(POLL_PAUSE);
        }
        self.kill9()?;
        Err(io::Error::other("the broker did not stop on SIGTERM"))
    }

    /// Sends the process a signal, such as SIGSTOP.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        let id = self.process_id();
        signal(
            id.ok_or_else(|| io::Error::other("the broker does not run"))?,
            number,
        )
    }

    /// Where standard output and error of all runs go.
    pub fn log_path(&self) -> PathBuf {
        self.scratch.path().join("broker.log")
    }

    /// The end of the log.
    pub fn log_tail(&self) -> String {
        read_tail(&self.log_path()).unwrap_or_else(|error| format!("no log: {error}"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of the broker's log ---\n{}", self.log_tail());
        }
        let _ = self.kill9();
    }
}

fn read_tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn signal(process_id: u32, number: i32) -> io::Result<()> {
    // SAFETY: a plain system call; the process is our own child and not waited for yet, so its id is not reused.
    #[allow(unsafe_code)]
    let sent = unsafe { libc::kill(process_id as libc::pid_t, number) };
    if sent == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// The binary under test.
///
/// # Errors
/// NotFound with the way to build it.
pub fn binary() -> io::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = std::env::var_os(BINARY_VARIABLE)
        .map_or_else(|| root.join("target/release/corelog"), PathBuf::from);
    if fs::metadata(&path).is_ok() {
        return Ok(path);
    }
    let reason = format!(
        "{} is missing: run `cargo build --release` or set {BINARY_VARIABLE}",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::NotFound, reason))
}

/// Ports that nothing listened on a moment ago. They are held together, so that they differ.
fn free_ports<const COUNT: usize>() -> io::Result<[u16; COUNT]> {
    let mut listeners = Vec::with_capacity(COUNT);
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
