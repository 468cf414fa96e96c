//! The one place of this crate that asks for the time.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use corelog_engine::time::{Monotonic, Now, Wall};

/// The moment that [`monotonic`] counts from: the first reading in this process.
static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Microseconds on a clock that never steps, the same one for all threads of the process.
pub fn monotonic() -> Monotonic {
    let origin = *ORIGIN.get_or_init(Instant::now);
    Monotonic(u64::try_from(origin.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// Milliseconds since 1970 on the wall's clock; zero if it stands before that.
pub fn wall() -> Wall {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Wall(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// Both clocks, read together.
pub fn now() -> Now {
    Now {
        monotonic: monotonic(),
        wall: wall(),
    }
}
