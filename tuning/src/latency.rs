//! Latencies as full histograms.

use hdrhistogram::Histogram;

/// Longest latency told apart, in microseconds: ten minutes. Longer ones count as this.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Latencies of one measurement, in microseconds, to three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// None yet.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram takes.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        match histogram {
            Ok(histogram) => Self { histogram },
            Err(_) => unreachable!("the bounds of the histogram are constants"),
        }
    }

    /// Takes note of one latency.
    pub fn record(&mut self, latency_us: u64) {
        self.histogram.saturating_record(latency_us.max(1));
    }

    /// Takes note of all that another one holds.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so nothing is out of range.
        let added = self.histogram.add(&other.histogram);
        assert!(added.is_ok(), "two histograms of different bounds");
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that this share of all stays at or below, in microseconds; 0 without any.
    pub fn at_quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile)
    }

    /// The longest, in microseconds; 0 without any.
    pub fn max_us(&self) -> u64 {
        self.histogram.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_what_was_recorded() {
        let mut latencies = Latencies::new();
        for latency_us in 1..=1_000 {
            latencies.record(latency_us);
        }
        assert_eq!(latencies.count(), 1_000);
        assert!((499..=501).contains(&latencies.at_quantile(0.5)));
        assert!((989..=991).contains(&latencies.at_quantile(0.99)));
        latencies.record(u64::MAX);
        assert!(latencies.max_us() >= LATENCY_US_MAX);
    }
}
