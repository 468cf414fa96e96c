//! A timer that is exact to microseconds: the runtime's own rounds up to whole milliseconds, which would
//! be charged to the broker.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::failure::Failure;

const NEVER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// One timer.
#[derive(Debug)]
pub struct PreciseTimer {
    timer: AsyncFd<OwnedFd>,
}

impl PreciseTimer {
    /// A timer on this runtime.
    pub fn new() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io("making a timer", &error);
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|error| failed(error.into()))?;
        // SAFETY: an `OwnedFd` is open and names the same file until it is dropped, and the `AsyncFd` owns it
        // from here on.
        #[allow(unsafe_code)]
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
        let timer = timer.map_err(|error| failed(error.into()))?;
        Ok(Self { timer })
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: Instant) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io("waiting for a timer", &error);
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let value = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let once = Itimerspec {
            it_interval: NEVER,
            it_value: value,
        };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)
            .map_err(|error| failed(error.into()))?;
        loop {
            let mut ready = self.timer.readable().await.map_err(failed)?;
            let mut expirations = [0_u8; 8];
            match rustix::io::read(self.timer.get_ref(), &mut expirations) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::time::Duration;

    use super::*;
    use crate::signals::runtime;

    #[test]
    fn it_never_wakes_before_its_time_and_can_be_used_again() {
        runtime().unwrap().block_on(async {
            let timer = PreciseTimer::new().unwrap();
            for micros in [0, 50, 3_000] {
                let at = Instant::now() + Duration::from_micros(micros);
                timer.sleep_until(at).await.unwrap();
                assert!(Instant::now() >= at);
            }
        });
    }
}
