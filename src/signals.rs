//! Ending in order: the first SIGINT or SIGTERM asks for it, the second one ends the process at once.

use std::future::pending;
use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// What a shell reports for a process that SIGINT ended.
const CODE_INTERRUPTED: i32 = 130;

/// A runtime on this thread.
pub fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("starting the runtime", &error))
}

/// Tells whether a signal asked the process to end.
#[derive(Clone, Debug)]
pub struct StopRequest {
    requested: Arc<AtomicBool>,
}

impl StopRequest {
    /// Begins to listen, on the runtime that this is called on.
    pub fn listen() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io("listening for signals", &error);
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let requested = Arc::new(AtomicBool::new(false));
        tokio::spawn(listen(interrupt, terminate, Arc::clone(&requested)));
        Ok(Self { requested })
    }

    /// Whether the process was asked to end.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }
}

async fn listen(mut interrupt: Signal, mut terminate: Signal, requested: Arc<AtomicBool>) {
    loop {
        let received = tokio::select! {
            received = interrupt.recv() => received,
            received = terminate.recv() => received,
        };
        if received.is_none() {
            return pending().await;
        }
        if requested.swap(true, Ordering::Relaxed) {
            process::exit(CODE_INTERRUPTED);
        }
    }
}
