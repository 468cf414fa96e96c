//! What the machine did while a reactor was late, and the verdict on each stall.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelog_shard::uring::clock;

/// What counts as a stall, in microseconds.
pub const STALL_US: u64 = 50_000;

/// A moment at which something came too late.
#[derive(Clone, Copy)]
pub struct Late {
    pub due_us: u64,
    pub served_us: u64,
    pub kind: &'static str,
}

/// What a core saw.
pub struct Seen {
    pub late: Vec<Late>,
    pub figures: Vec<(&'static str, Vec<u64>)>,
    pub bytes: [u64; 2],
}

/// What the plain thread saw, each millisecond: when, how late it woke itself, and how long the
/// core's thread has stood runnable without running, in all, with what else the kernel says of it.
pub struct Sample {
    at_us: u64,
    late_us: u64,
    queued_us: u64,
    /// Where in the kernel the core's thread stood blocked at that moment, if it did.
    blocked: Option<String>,
}

/// Where the kernel shows this thread.
pub fn thread_path() -> io::Result<PathBuf> {
    Ok(Path::new("/proc").join(fs::read_link("/proc/thread-self")?))
}

/// Microseconds that a thread has stood runnable without running.
fn queued_us(thread: &Path) -> u64 {
    let stat = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let nanos = stat
        .split_whitespace()
        .nth(1)
        .and_then(|field| field.parse::<u64>().ok());
    nanos.unwrap_or_default() / 1_000
}

/// Where a thread waits in the kernel without being interruptible, as for a disk.
fn blocked_in(thread: &Path) -> Option<String> {
    let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
    let blocked = stat
        .rsplit_once(')')
        .is_some_and(|(_, fields)| fields.trim_start().starts_with('D'));
    blocked.then(|| fs::read_to_string(thread.join("wchan")).unwrap_or_default())
}

/// One block of memory as direct I/O wants it.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// Writes one block durably every 20 ms with plain system calls, and keeps when each began and
/// ended: what the disk makes any program wait.
pub fn probe_disk(path: &Path, stop: &AtomicBool) -> io::Result<Vec<(u64, u64)>> {
    let mut options = fs::OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT | libc::O_DSYNC);
    let file = options.open(path)?;
    let block = Box::new(Block([7; 4096]));
    let mut probes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begin = clock::monotonic().0;
        file.write_all_at(&block.0, 0)?;
        probes.push((begin, clock::monotonic().0));
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(probes)
}

#[allow(unsafe_code)]
fn pin(cpu: usize) {
    // SAFETY: an all-zero set is a valid, empty one, and the calls only touch it while it lives.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

pub fn watch(cpu: Option<usize>, thread: &Path, stop: &AtomicBool) -> Vec<Sample> {
    if let Some(cpu) = cpu {
        pin(cpu);
    }
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let before = clock::monotonic().0;
        std::thread::sleep(Duration::from_millis(1));
        let at_us = clock::monotonic().0;
        let late_us = at_us.saturating_sub(before + 1_000);
        let queued_us = queued_us(thread);
        samples.push(Sample {
            at_us,
            late_us,
            queued_us,
            blocked: blocked_in(thread),
        });
    }
    samples
}

/// Prints what a core saw; how many of its stalls the machine does not explain.
pub fn report(
    index: usize,
    seconds: u64,
    seen: &Seen,
    watched: &[Vec<Sample>],
    probes: &[(u64, u64)],
) -> usize {
    let per_second = |bytes: u64| bytes as f64 / 1e6 / seconds.max(1) as f64;
    println!(
        "core {index}: {:.0} MB/s written durably, {:.0} MB/s received",
        per_second(seen.bytes[0]),
        per_second(seen.bytes[1])
    );
    for (name, values) in &seen.figures {
        let mut values = values.clone();
        values.sort_unstable();
        let at = |share: f64| {
            values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1)))
        };
        let [p50, p99, p999, max] =
            [0.5, 0.99, 0.999, 1.0].map(|share| at(share).copied().unwrap_or_default());
        println!(
            "  {name:<38} {:>9} times, p50 {p50} us, p99 {p99}, p99.9 {p999}, max {max}",
            values.len()
        );
    }
    let own = watched.get(index).map(Vec::as_slice).unwrap_or_default();
    let longest_us = own
        .iter()
        .map(|sample| sample.late_us)
        .max()
        .unwrap_or_default();
    println!("  plain thread on the same CPU: woke {longest_us} us late at worst");
    let mut unexplained = 0;
    for stall in stalls(&seen.late) {
        let length_us = stall.worst.served_us - stall.worst.due_us;
        // A message may have waited for either core.
        let parts: Vec<Part> = watched
            .iter()
            .map(|samples| machines_part(samples, &stall.worst))
            .collect();
        let own = parts.get(index).cloned().unwrap_or_default();
        let (queued_us, blocked_us) = match stall.worst.kind {
            "a timer" => (own.queued_us, own.blocked_us),
            _ => (
                parts.iter().map(|part| part.queued_us).sum(),
                parts
                    .iter()
                    .map(|part| part.blocked_us)
                    .max()
                    .unwrap_or_default(),
            ),
        };
        let overlaps =
            |probe: &&(u64, u64)| probe.0 < stall.worst.served_us && probe.1 > stall.worst.due_us;
        let disk_us = probes
            .iter()
            .filter(overlaps)
            .map(|probe| probe.1 - probe.0)
            .max()
            .unwrap_or_default();
        // What remains when the machine's part is taken off is what the reactor is to answer for.
        // A thread blocked in the kernel is the machine's part only as far as the disk made a plain
        // thread wait as well.
        let cpus_us = own.plain_us.max(queued_us);
        let machine = length_us.saturating_sub(cpus_us + blocked_us.min(disk_us)) < STALL_US;
        unexplained += usize::from(!machine);
        println!(
            "  stall: {} ({} in all) {} ms late at {:.3} s; plain thread {} ms late, threads queued {} ms, \
             blocked {} ms{}, plain disk write {} ms: {}",
            stall.worst.kind,
            stall.count,
            length_us / 1_000,
            stall.worst.due_us as f64 / 1e6,
            own.plain_us / 1_000,
            queued_us / 1_000,
            blocked_us / 1_000,
            own.blocked_in
                .map(|place| format!(" in {place}"))
                .unwrap_or_default(),
            disk_us / 1_000,
            if machine {
                "the machine's"
            } else {
                "THE REACTOR'S"
            }
        );
    }
    unexplained
}

/// Things of one kind that came too late at about the same time.
struct Stall {
    worst: Late,
    count: usize,
}

fn stalls(late: &[Late]) -> Vec<Stall> {
    let mut stalls: Vec<Stall> = Vec::new();
    for &late in late {
        match stalls.last_mut() {
            Some(last) if last.worst.kind == late.kind && late.due_us < last.worst.served_us => {
                last.count += 1;
                if late.served_us - late.due_us > last.worst.served_us - last.worst.due_us {
                    last.worst = late;
                }
            }
            _ => stalls.push(Stall {
                worst: late,
                count: 1,
            }),
        }
    }
    stalls
}

/// What one core's thread and the plain thread beside it did during a stall.
#[derive(Clone, Default)]
struct Part {
    plain_us: u64,
    queued_us: u64,
    blocked_us: u64,
    blocked_in: Option<String>,
}

fn machines_part(samples: &[Sample], late: &Late) -> Part {
    let during =
        |sample: &&Sample| sample.at_us >= late.due_us && sample.at_us <= late.served_us + 5_000;
    let plain_us = samples
        .iter()
        .filter(during)
        .map(|sample| sample.late_us)
        .max()
        .unwrap_or_default();
    let before = samples
        .iter()
        .rev()
        .find(|sample| sample.at_us <= late.due_us);
    let after = samples.iter().find(|sample| sample.at_us >= late.served_us);
    let queued_us = match (before, after) {
        (Some(before), Some(after)) => after.queued_us.saturating_sub(before.queued_us),
        _ => 0,
    };
    let blocked: Vec<&Sample> = samples
        .iter()
        .filter(during)
        .filter(|sample| sample.blocked.is_some())
        .collect();
    let blocked_us = match (blocked.first(), blocked.last()) {
        (Some(first), Some(last)) => last.at_us - first.at_us + 1_000,
        _ => 0,
    };
    Part {
        plain_us,
        queued_us,
        blocked_us,
        blocked_in: blocked.first().and_then(|sample| sample.blocked.clone()),
    }
}
