//! Time as the engine sees it: passed in, never asked for.

/// A point on a clock that never steps, in microseconds since some moment of the process's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

/// A point on the wall's clock, in milliseconds since 1970. It may step either way, so no timer
/// and no safety rule rests on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub u64);

/// Both clocks, read together by whoever drives the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For timers, sessions, leases and waits.
    pub monotonic: Monotonic,
    /// For time stamps and retention.
    pub wall: Wall,
}

impl Monotonic {
    /// This moment plus `ms` milliseconds; stays at the end of time instead of overflowing.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000)))
    }

    /// Milliseconds from `earlier` to this moment; zero if it is not earlier.
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }
}
