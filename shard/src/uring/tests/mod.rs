//! What the rest of the crate relies on, tried on real files, sockets and threads.
#![allow(clippy::unwrap_used, clippy::panic)]

mod disk;
mod network;
mod threads;

use std::future::Future;

use crate::uring::{CoreOptions, run_core};

/// Runs `main` on a core of its own.
fn on_a_core<F, T>(main: impl FnOnce() -> F + Send + 'static) -> T
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let options = CoreOptions {
        io_memory_bytes: 1 << 20,
        ring_depth: 64,
        ..CoreOptions::default()
    };
    run_core(options, main).unwrap().join().unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 % 251) as u8).collect()
}
