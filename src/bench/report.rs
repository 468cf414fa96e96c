//! The figures.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::failure::Failure;

/// Latencies up to an hour, to three digits.
const LATENCY_US_MAX: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// An empty histogram of microseconds.
pub fn latencies() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS)
        .map_err(|error| Failure::new(format!("histogram: {error}")))
}

/// Latencies in microseconds, over records.
#[derive(Debug, Serialize)]
pub struct LatencyReport {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl LatencyReport {
    /// Of this histogram.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// What `bench publish` prints.
#[derive(Debug, Serialize)]
pub struct PublishReport {
    pub topic: String,
    pub partitions: i32,
    pub producers: usize,
    pub record_bytes: usize,
    pub batch_bytes: usize,
    pub batches_per_request: usize,
    pub in_flight: usize,
    pub linger_ms: u64,
    pub keys: u64,
    /// Records per second that were scheduled; none for `max`.
    pub scheduled_records_per_s: Option<f64>,
    pub idempotent: bool,
    pub seconds: f64,
    pub records: u64,
    pub records_per_s: f64,
    /// Values of records, 10^6 bytes per second.
    pub mb_per_s: f64,
    pub requests: u64,
    pub ack_us: LatencyReport,
    pub errors: u64,
    pub first_error: Option<String>,
    /// What an acknowledgement stands for.
    pub durability: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_cpu_s_per_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_rss_mb: Option<f64>,
    /// CPU that this process used, in seconds: near `seconds` it was itself the limit.
    pub generator_cpu_s: f64,
}

/// What `bench consume` prints.
#[derive(Debug, Serialize)]
pub struct ConsumeReport {
    pub topic: String,
    pub partitions: usize,
    pub seconds: f64,
    pub records: u64,
    pub batches: u64,
    pub records_per_s: f64,
    /// Bytes of batches, 10^6 per second.
    pub mb_per_s: f64,
    pub checksums_verified: bool,
    pub reached_end: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_cpu_s_per_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_rss_mb: Option<f64>,
}

/// The figures of a publish as text.
pub fn publish_text(report: &PublishReport) -> String {
    let mut text = format!(
        "{} records in {:.1} s: {:.0} records/s, {:.1} MB/s, {} requests\nacknowledged after (us): p50 {}, p99 \
         {}, p99.9 {}, max {}\nerrors: {}",
        report.records,
        report.seconds,
        report.records_per_s,
        report.mb_per_s,
        report.requests,
        report.ack_us.p50,
        report.ack_us.p99,
        report.ack_us.p999,
        report.ack_us.max,
        report.errors
    );
    if let Some(first) = &report.first_error {
        text += &format!(" (the first: {first})");
    }
    if let (Some(cpu), Some(rss)) = (report.broker_cpu_s_per_gb, report.broker_rss_mb) {
        text += &format!("\nbroker: {cpu:.2} CPU seconds per GB, {rss:.0} MB resident");
    }
    text += &format!("\ndurability: {}", report.durability);
    text
}

/// The figures of a consume as text.
pub fn consume_text(report: &ConsumeReport) -> String {
    format!(
        "{} records in {:.1} s: {:.0} records/s, {:.1} MB/s",
        report.records, report.seconds, report.records_per_s, report.mb_per_s
    )
}
