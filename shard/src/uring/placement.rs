//! Which CPU each core gets, and whether the machine grants the memory that cores lock.

use std::fs;
use std::io;
use std::path::Path;

use super::interrupts::{interrupt_cpu, nearest_folder};

/// Rings per core that register the core's I/O memory.
const RINGS_PER_CORE: u64 = 3;

/// What the reactor library asks for at least, whoever runs it.
const LOCKED_BYTES_MIN: u64 = 512 << 10;

/// The capability that exempts a process from the limit, as a bit of `CapEff`.
const CAP_IPC_LOCK: u32 = 14;

/// Where the cores of a broker run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorePlacement {
    /// The CPU of each core.
    pub cpus: Vec<Option<usize>>,
    /// Whether reactors may spin before they sleep: only if each has a CPU of its own.
    pub may_spin: bool,
    /// What an operator should hear, if anything.
    pub notice: Option<String>,
}

/// Gives each of `cores` a CPU, out of those that this process may use: first the one that takes the
/// interrupts of the disk below `data`, where one does, then the others in their order.
///
/// With fewer CPUs than cores no core is pinned and none may spin, and the placement says so.
///
/// # Errors
/// If the process's affinity mask cannot be read.
pub fn place_cores(cores: usize, data: Option<&Path>) -> io::Result<CorePlacement> {
    let mut cpus = allowed_cpus()?;
    let first = data.and_then(nearest_folder);
    let first = first.and_then(|folder| interrupt_cpu(&folder));
    if let Some(at) = cpus.iter().position(|cpu| Some(*cpu) == first) {
        cpus[..=at].rotate_right(1);
    }
    Ok(place_on(cores, &cpus))
}

/// The CPUs that this process may use: its affinity mask, which containers and `taskset` narrow.
///
/// # Errors
/// If the mask cannot be read.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // The kernel's own rendering of `sched_getaffinity`, of any width: `0-3,8`.
    let status = fs::read_to_string("/proc/self/status")?;
    let list = field_of(&status, "Cpus_allowed_list:")
        .ok_or_else(|| io::Error::other("/proc/self/status shows no Cpus_allowed_list"))?;
    parse_cpu_list(list).ok_or_else(|| io::Error::other(format!("unreadable CPU list {list:?}")))
}

fn place_on(cores: usize, cpus: &[usize]) -> CorePlacement {
    if cores <= cpus.len() {
        return CorePlacement {
            cpus: cpus.iter().take(cores).copied().map(Some).collect(),
            may_spin: true,
            notice: None,
        };
    }
    CorePlacement {
        cpus: vec![None; cores],
        may_spin: false,
        notice: Some(format!(
            "{cores} cores were asked for, but this process may use {} CPUs ({cpus:?}): cores are not pinned \
             and do not spin, and latencies will be higher",
            cpus.len()
        )),
    }
}

fn field_of<'status>(status: &'status str, name: &str) -> Option<&'status str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

fn parse_cpu_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (
            first.trim().parse::<usize>().ok()?,
            last.trim().parse::<usize>().ok()?,
        );
        // A mask is at most a few thousand bits wide.
        if last < first || last > 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    (!cpus.is_empty()).then_some(cpus)
}

/// Too little memory may be locked for the cores asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedMemoryShortfall {
    /// What the cores of this process register.
    pub needed_bytes: u64,
    /// What the limit grants to all processes of this user together.
    pub limit_bytes: u64,
}

impl std::fmt::Display for LockedMemoryShortfall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let needed_kib = self.needed_bytes.div_ceil(1024);
        write!(
            formatter,
            "the locked-memory limit is {} KiB, but the cores register {needed_kib} KiB. The limit counts all \
             processes of one user. Remedy: `ulimit -l {needed_kib}` (or more) in the shell that starts the broker, \
             `LimitMEMLOCK=infinity` in its systemd unit, `--ulimit memlock=-1` for a container, or a line \
             `<user> - memlock unlimited` in /etc/security/limits.conf; or lower the I/O memory of each core",
            self.limit_bytes / 1024
        )
    }
}

impl std::error::Error for LockedMemoryShortfall {}

/// Checks that `cores` cores may register `io_memory_bytes` each, raising this process's soft
/// limit up to its hard limit if that is what it takes.
///
/// Without this the reactor library goes on with unregistered memory after one line of warning, or
/// fails with a bare number. Memory that other processes of the same user locked is not seen here.
///
/// # Errors
/// With the shortfall, whose text names the remedy.
pub fn check_locked_memory(
    cores: usize,
    io_memory_bytes: usize,
) -> Result<(), LockedMemoryShortfall> {
    let registered_bytes = (cores as u64)
        .saturating_mul(io_memory_bytes as u64)
        .saturating_mul(RINGS_PER_CORE);
    let needed_bytes = if exempt_from_limit() {
        0
    } else {
        registered_bytes
    };
    let needed_bytes = needed_bytes.max(LOCKED_BYTES_MIN);
    let (soft_bytes, hard_bytes) = locked_memory_limit();
    if soft_bytes >= needed_bytes {
        return Ok(());
    }
    if hard_bytes >= needed_bytes && raise_locked_memory_limit(needed_bytes, hard_bytes) {
        return Ok(());
    }
    Err(LockedMemoryShortfall {
        needed_bytes,
        limit_bytes: hard_bytes,
    })
}

/// Whether the process holds CAP_IPC_LOCK, as root does.
fn exempt_from_limit() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field_of(&status, "CapEff:")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .is_some_and(|mask| mask >> CAP_IPC_LOCK & 1 == 1)
}

#[allow(unsafe_code)]
fn locked_memory_limit() -> (u64, u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live `rlimit`, which the call fills.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if result == 0 {
        (limit.rlim_cur, limit.rlim_max)
    } else {
        (0, 0)
    }
}

#[allow(unsafe_code)]
fn raise_locked_memory_limit(soft_bytes: u64, hard_bytes: u64) -> bool {
    let limit = libc::rlimit {
        rlim_cur: soft_bytes,
        rlim_max: hard_bytes,
    };
    // SAFETY: the pointer is to a live `rlimit`, which the call only reads.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) == 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn each_core_gets_an_allowed_cpu_of_its_own() {
        let placement = place_on(2, &[3, 5, 9]);
        assert_eq!(placement.cpus, [Some(3), Some(5)]);
        assert!(placement.may_spin);
        assert_eq!(placement.notice, None);
    }

    #[test]
    fn more_cores_than_cpus_do_not_spin_and_say_so() {
        let placement = place_on(4, &[0, 1]);
        assert_eq!(placement.cpus, [None; 4]);
        assert!(!placement.may_spin);
        assert!(placement.notice.unwrap().contains("2 CPUs"));
    }

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_cpu_list("7"), Some(vec![7]));
        assert_eq!(parse_cpu_list(""), None);
        assert_eq!(parse_cpu_list("3-1"), None);
        assert_eq!(parse_cpu_list("0-99999999"), None);
        assert!(!allowed_cpus().unwrap().is_empty());
    }

    #[test]
    fn a_shortfall_names_limit_need_and_remedy() {
        let text = LockedMemoryShortfall {
            needed_bytes: 96 << 20,
            limit_bytes: 8 << 20,
        }
        .to_string();
        assert!(
            text.contains("8192 KiB")
                && text.contains("ulimit -l 98304")
                && text.contains("LimitMEMLOCK")
        );
    }
}
