//! What the broker's process uses, from `/proc`.

use std::fs;

use crate::failure::Failure;

const KIB: f64 = 1024.0;

/// A process that is watched.
#[derive(Clone, Copy, Debug)]
pub struct BrokerProcess {
    pid: u32,
}

impl BrokerProcess {
    /// Watches this process.
    ///
    /// # Errors
    /// If it is not there.
    pub fn new(pid: u32) -> Result<Self, Failure> {
        let process = Self { pid };
        process.cpu_s().map(|_| process)
    }

    /// User and system time since it began, in seconds.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn cpu_s(self) -> Result<f64, Failure> {
        let stat = self.read("stat")?;
        let ticks = cpu_ticks(&stat).ok_or_else(|| self.unreadable("stat"))?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Resident memory, in 10^6 bytes.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn rss_mb(self) -> Result<f64, Failure> {
        let status = self.read("status")?;
        let kib = rss_kib(&status).ok_or_else(|| self.unreadable("status"))?;
        Ok(kib as f64 * KIB / 1e6)
    }

    fn read(self, file: &str) -> Result<String, Failure> {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid))
            .map_err(|error| Failure::io(format!("process {} (--broker-pid)", self.pid), &error))
    }

    fn unreadable(self, file: &str) -> Failure {
        Failure::new(format!("/proc/{}/{file} cannot be understood", self.pid))
    }
}

/// Fields 14 and 15, counted behind the name, which may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn rss_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_name_with_blanks_and_parentheses() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 30 12 13 14";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (x) S 1"), None);
    }

    #[test]
    fn resident_memory_is_found() {
        assert_eq!(rss_kib("Name:\tx\nVmRSS:\t  1234 kB\n"), Some(1234));
        assert_eq!(rss_kib("Name:\tx\n"), None);
    }
}
