//! What receiving costs a core: CPU seconds per gigabyte of 1 MB frames, sent over the loopback by
//! a plain thread, read as a connection task reads them.
//!
//! `cargo run --release -p corelog-shard --example receive -- 8` (gigabytes)

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::BytesMut;
use corelog_shard::uring::channel::reply;
use corelog_shard::uring::{CoreOptions, Listener, SocketOptions, clock, place_cores, run_core};

const FRAME_BYTES: usize = 1_000_000;

fn main() -> io::Result<()> {
    let gigabytes = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(4_usize);
    let frames = gigabytes * 1_000_000_000 / FRAME_BYTES;
    let placement = place_cores(1, None)?;
    for fresh in [false, true] {
        let (address_to, address) = reply::<SocketAddr>();
        let cpu = placement.cpus.first().copied().flatten();
        let core = run_core(
            CoreOptions {
                cpu,
                ..CoreOptions::default()
            },
            move || async move {
                let listener = Listener::bind(
                    SocketAddr::from(([127, 0, 0, 1], 0)),
                    SocketOptions::default(),
                )?;
                let _ = address_to.send(listener.local_address());
                let stream = listener.accept().await?.into_stream()?;
                let (begin, cpu_begin) = (clock::monotonic().0, cpu_us()?);
                let mut frame = BytesMut::with_capacity(FRAME_BYTES);
                for _ in 0..frames {
                    frame.clear();
                    if fresh {
                        frame = BytesMut::new();
                    }
                    let mut head = [0; 4];
                    stream.read_exact(&mut head).await?;
                    stream.read_exact_into(&mut frame, FRAME_BYTES - 4).await?;
                }
                Ok::<_, io::Error>((clock::monotonic().0 - begin, cpu_us()? - cpu_begin))
            },
        )?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let address = runtime.block_on(address).map_err(io::Error::other)?;
        let mut sender = TcpStream::connect(address)?;
        let frame = vec![0x5A; FRAME_BYTES];
        for _ in 0..frames {
            sender.write_all(&frame)?;
        }
        let (micros, cpu_us) = core.join()??;
        println!(
            "{}: {:.2} GB/s, {:.3} core-seconds per GB",
            if fresh {
                "memory of its own for each frame"
            } else {
                "memory kept between frames"
            },
            gigabytes as f64 * 1e6 / micros as f64,
            cpu_us as f64 / 1e6 / gigabytes as f64
        );
    }
    Ok(())
}

/// CPU time of this thread, in microseconds.
fn cpu_us() -> io::Result<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = stat
        .split_whitespace()
        .next()
        .and_then(|field| field.parse::<u64>().ok());
    nanos
        .map(|nanos| nanos / 1_000)
        .ok_or_else(|| io::Error::other("unreadable schedstat"))
}
