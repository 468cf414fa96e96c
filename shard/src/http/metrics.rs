//! `/metrics`: how every core stands, in the OpenMetrics text format. `docs/metrics.md` says what each
//! metric means.
//!
//! Invariants:
//! 1. Names begin with `corelog_` and end with their unit; counters end with `_total`.
//! 2. The number of lines is bounded: partitions are told one by one only while there are few of
//!    them, else in sums for each topic; and topics only up to [`TOPICS_MAX`].

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use corelog_engine::disk::DiskLevel;
use corelog_engine::identity::{CoreIndex, PartitionId};
use corelog_engine::metadata::Image;
use corelog_engine::rejection::Rejection;
use corelog_engine::request::PartitionDescription;
use corelog_net::http::{Answer, Problem, metrics_answer};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::exchange::compute;
use crate::counts::Count;
use crate::mesh::CoreReport;
use crate::shard::Shard;
use crate::uring::core::blocking;

/// From so many partitions on, they are summed up for each topic.
const PARTITIONS_MAX: usize = 1_000;

/// Topics that are told one by one, in the order of their names.
const TOPICS_MAX: usize = 1_000;

/// What `/metrics` tells at one moment.
#[derive(Debug)]
struct Snapshot {
    cores: Vec<(CoreIndex, CoreReport)>,
    cores_expected: u16,
    logs: Logs,
    resident_bytes: Option<u64>,
    broker: String,
    zone: String,
    cluster: String,
}

/// What is kept, partition by partition and topic by topic.
#[derive(Debug)]
struct Logs {
    partitions: Vec<(Labels, PartitionDescription)>,
    topics: Vec<(Labels, TopicSums)>,
}

/// The partitions of one topic together.
#[derive(Clone, Copy, Debug, Default)]
struct TopicSums {
    partitions: u64,
    log_bytes: u64,
    records: u64,
}

type Labels = Vec<(&'static str, String)>;

/// How every core stands.
pub(super) async fn metrics(shard: &Rc<Shard>) -> Result<Answer, Problem> {
    let cores = super::health::reports(shard).await;
    let logs = shard.image(|image| logs_of(image, &cores));
    let settings = shard.settings();
    let snapshot = Snapshot {
        cores_expected: settings.cores,
        logs,
        resident_bytes: blocking(resident_bytes).await,
        broker: settings.broker.to_string(),
        zone: settings.zone.clone(),
        cluster: settings.cluster.clone(),
        cores,
    };
    // A line of it takes some hundred bytes.
    let bytes = (snapshot.logs.partitions.len() + snapshot.logs.topics.len()) * 500;
    let text = compute(bytes, move || expose(snapshot)).await;
    let text = text.map_err(|_| Rejection::Overloaded)?;
    Ok(metrics_answer(Bytes::from(text)))
}

fn expose(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Partitions one by one while they are few, and topics.
fn logs_of(image: &Image, cores: &[(CoreIndex, CoreReport)]) -> Logs {
    let held: BTreeMap<PartitionId, PartitionDescription> = cores
        .iter()
        .flat_map(|(_, core)| core.partitions.iter().map(|(id, held)| (*id, *held)))
        .collect();
    let is_each_told = held.len() < PARTITIONS_MAX;
    let mut partitions = Vec::new();
    let mut topics: BTreeMap<&str, TopicSums> = BTreeMap::new();
    for (id, held) in held {
        let Some(topic) = image.topic(id.topic) else {
            continue;
        };
        let sums = topics.entry(&topic.name).or_default();
        sums.partitions += 1;
        sums.log_bytes = sums.log_bytes.saturating_add(held.log_bytes);
        let records = held.watermark.get().saturating_sub(held.log_start.get());
        sums.records = sums.records.saturating_add(records);
        if is_each_told {
            let labels = vec![
                ("topic", topic.name.clone()),
                ("partition", id.partition.to_string()),
            ];
            partitions.push((labels, held));
        }
    }
    let topics = topics
        .into_iter()
        .take(TOPICS_MAX)
        .map(|(name, sums)| (vec![("topic", name.to_owned())], sums));
    let topics = topics.collect();
    Logs { partitions, topics }
}

/// What the process has in memory, as the kernel counts it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

/// Writes one metric after another.
struct Exposition<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl Exposition<'_> {
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Exposition { encoder };
        self.process(&mut out)?;
        self.publishes(&mut out)?;
        self.reads(&mut out)?;
        self.faults(&mut out)?;
        self.faces(&mut out)?;
        self.resources(&mut out)?;
        self.logs(&mut out)
    }
}

impl Snapshot {
    /// One value of each core.
    fn by_core<'s>(
        &'s self,
        value: impl Fn(&CoreReport) -> u64 + 's,
    ) -> impl Iterator<Item = (Labels, u64)> + 's {
        let cores = self.cores.iter();
        cores.map(move |(index, core)| (vec![("core", index.to_string())], value(core)))
    }

    fn process(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let build = vec![
            ("version", String::from(env!("CARGO_PKG_VERSION"))),
            ("broker", self.broker.clone()),
            ("zone", self.zone.clone()),
            ("cluster", self.cluster.clone()),
        ];
        out.gauges(
            "corelog_build_info",
            "Which build runs, and as whom; always 1",
            [(build, 1)],
        )?;
        let resident = self.resident_bytes.map(|bytes| (Vec::new(), bytes));
        out.gauges(
            "corelog_process_resident_bytes",
            "Memory of the process",
            resident,
        )?;
        out.gauges(
            "corelog_cores",
            "Cores that the broker was started with",
            [(Vec::new(), u64::from(self.cores_expected))],
        )?;
        out.gauges(
            "corelog_core_ready",
            "Whether the core serves all that it owns",
            self.by_core(|core| u64::from(core.is_ready)),
        )?;
        out.gauges(
            "corelog_logs_opened",
            "Logs of the core that are open",
            self.by_core(|core| core.opened.0 as u64),
        )?;
        out.gauges(
            "corelog_logs",
            "Logs that the core owns",
            self.by_core(|core| core.opened.1 as u64),
        )
    }

    fn publishes(&self, out: &mut Exposition<'_>) -> fmt::Result {
        out.counters(
            "corelog_publishes",
            "Publishes taken, one for each partition of a request, repeats included",
            self.by_core(|core| core.counters.publishes),
        )?;
        out.counters(
            "corelog_published_records",
            "Records appended",
            self.by_core(|core| core.counters.records_in),
        )?;
        out.counters(
            "corelog_published_bytes",
            "Bytes of record batches appended",
            self.by_core(|core| core.counters.bytes_in),
        )?;
        out.counters(
            "corelog_repeated_publishes",
            "Publishes recognized as repeats of stored ones",
            self.by_core(|core| core.counters.repeats),
        )?;
        out.counters(
            "corelog_unknown_producer_publishes",
            "Publishes by producers that the partition did not know",
            self.by_core(|core| core.counters.unknown_producers),
        )?;
        out.counters(
            "corelog_timed_out_publishes",
            "Publishes answered without knowing their outcome",
            self.by_core(|core| core.counters.timed_out),
        )
    }

    fn reads(&self, out: &mut Exposition<'_>) -> fmt::Result {
        out.counters(
            "corelog_fetches",
            "Fetches answered",
            self.by_core(|core| core.counters.fetches),
        )?;
        out.counters(
            "corelog_fetched_bytes",
            "Bytes of record batches handed to readers",
            self.by_core(|core| core.counters.bytes_out),
        )?;
        out.counters(
            "corelog_tail_reads",
            "Partition reads served from memory",
            self.by_core(|core| core.counters.tail_reads),
        )?;
        out.counters(
            "corelog_disk_reads",
            "Partition reads that went to the disk",
            self.by_core(|core| core.counters.disk_reads),
        )
    }

    fn faults(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let refusals = self.cores.iter().flat_map(|(index, core)| {
            let counted = Rejection::ALL.iter().zip(core.counters.rejections);
            let some = counted.filter(|(_, count)| *count > 0);
            some.map(move |(rejection, count)| {
                let labels = vec![
                    ("core", index.to_string()),
                    ("reason", String::from(rejection.label())),
                ];
                (labels, count)
            })
        });
        // Two reasons may share a label.
        let mut summed: BTreeMap<Labels, u64> = BTreeMap::new();
        for (labels, count) in refusals {
            *summed.entry(labels).or_default() += count;
        }
        out.counters(
            "corelog_refusals",
            "Requests that a core refused, by the label that clients see",
            summed,
        )?;
        out.counters(
            "corelog_logs_stopped",
            "Logs stopped by a disk error or by corruption",
            self.by_core(|core| core.counters.logs_stopped),
        )?;
        out.counters(
            "corelog_producer_tables_rebuilt",
            "Producer tables made from the log because their snapshot was lost",
            self.by_core(|core| core.counters.producer_tables_rebuilt),
        )?;
        out.counters(
            "corelog_stray_completions",
            "Disk operations that ended when nobody waited for them",
            self.by_core(|core| core.counters.stray_completions),
        )
    }

    /// One value of each core and of each thing counted that `labels` picks.
    fn counted<'s>(
        &'s self,
        labels: impl Fn(Count) -> Option<Labels> + Copy + 's,
    ) -> impl Iterator<Item = (Labels, u64)> + 's {
        self.cores.iter().flat_map(move |(index, core)| {
            core.counted.iter().filter_map(move |(what, count)| {
                let mut all = vec![("core", index.to_string())];
                all.extend(labels(*what)?);
                Some((all, *count))
            })
        })
    }

    fn faces(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let label = |name: &'static str, value: &str| (name, String::from(value));
        out.counters(
            "corelog_http_requests",
            "HTTP requests answered, by route and by the first digit of the status",
            self.counted(|what| match what {
                Count::Answered(route, hundreds) => Some(vec![
                    label("route", route),
                    ("status", format!("{hundreds}xx")),
                ]),
                _ => None,
            }),
        )?;
        out.counters(
            "corelog_connections_ended",
            "Connections that were ended for what their client did",
            self.counted(|what| {
                let (face, reason) = match what {
                    Count::KafkaEnded(reason) => ("kafka", reason),
                    Count::HttpEnded(reason) => ("http", reason),
                    _ => return None,
                };
                Some(vec![label("face", face), label("reason", reason.label())])
            }),
        )?;
        out.counters(
            "corelog_shard_refusals",
            "What a core refused before its state was asked",
            self.counted(|what| match what {
                Count::Refused(reason) => Some(vec![label("reason", reason.label())]),
                _ => None,
            }),
        )?;
        out.counters(
            "corelog_budget_waits",
            "Frames, bodies and answers that waited for room in the budget",
            self.counted(|what| (what == Count::BudgetWait).then(Vec::new)),
        )?;
        out.counters(
            "corelog_commits_past_end",
            "Offsets past the end of their log that were to be committed",
            self.counted(|what| match what {
                Count::CommitPastEnd(outcome) => Some(vec![label("outcome", outcome.label())]),
                _ => None,
            }),
        )
    }

    fn resources(&self, out: &mut Exposition<'_>) -> fmt::Result {
        out.gauges(
            "corelog_budget_used_bytes",
            "Memory taken by requests in work and the tail cache",
            self.by_core(|core| core.budget_bytes.0 as u64),
        )?;
        out.gauges(
            "corelog_budget_limit_bytes",
            "Memory that requests in work and the tail cache may take",
            self.by_core(|core| core.budget_bytes.1 as u64),
        )?;
        out.gauges(
            "corelog_tail_cache_bytes",
            "Recent batches kept in memory",
            self.by_core(|core| core.tail_cache_bytes as u64),
        )?;
        let connections = self.cores.iter().flat_map(|(index, core)| {
            let of = |face: &str, count: usize| {
                let labels = vec![("core", index.to_string()), ("face", String::from(face))];
                (labels, count as u64)
            };
            [
                of("kafka", core.connections.0),
                of("http", core.connections.1),
            ]
        });
        out.gauges("corelog_connections", "Open connections", connections)?;
        let operations = self.cores.iter().flat_map(|(index, core)| {
            let of = |state: &str, count: usize| {
                let labels = vec![("core", index.to_string()), ("state", String::from(state))];
                (labels, count as u64)
            };
            [
                of("in_flight", core.disk_operations.0),
                of("waiting", core.disk_operations.1),
            ]
        });
        out.gauges(
            "corelog_disk_operations",
            "Reads, writes and other work on the disk",
            operations,
        )?;
        let level = self.cores.iter().map(|(_, core)| core.disk_level).max();
        let levels = [
            ("normal", DiskLevel::Normal),
            ("low", DiskLevel::Low),
            ("full", DiskLevel::Full),
        ];
        let levels = levels.map(|(name, one)| {
            let labels = vec![("level", String::from(name))];
            (labels, u64::from(level == Some(one)))
        });
        out.gauges(
            "corelog_disk_level",
            "1 for the level that the disk is at",
            levels,
        )
    }

    fn logs(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let topics = |value: fn(&TopicSums) -> u64| {
            let topics = self.logs.topics.iter();
            topics.map(move |(labels, sums)| (labels.clone(), value(sums)))
        };
        out.gauges(
            "corelog_topic_partitions",
            "Partitions of the topic on this broker",
            topics(|sums| sums.partitions),
        )?;
        out.gauges(
            "corelog_topic_retained_records",
            "Offsets between log start and watermark, over the topic's partitions",
            topics(|sums| sums.records),
        )?;
        out.gauges(
            "corelog_topic_log_bytes",
            "Bytes of the topic's retained logs",
            topics(|sums| sums.log_bytes),
        )?;
        let partitions = |value: fn(&PartitionDescription) -> u64| {
            let partitions = self.logs.partitions.iter();
            partitions.map(move |(labels, held)| (labels.clone(), value(held)))
        };
        out.gauges(
            "corelog_partition_log_start_offset",
            "The oldest retained offset",
            partitions(|held| held.log_start.get()),
        )?;
        out.gauges(
            "corelog_partition_watermark_offset",
            "The first offset that cannot be read yet",
            partitions(|held| held.watermark.get()),
        )?;
        out.gauges(
            "corelog_partition_log_bytes",
            "Bytes of the retained log",
            partitions(|held| held.log_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use corelog_engine::identity::{LeaderEpoch, Offset};

    use super::*;
    use crate::counts::{Counted, EndReason, PastEnd, ShardRefusal};

    const REFERENCE: &str = include_str!("../../../docs/metrics.md");

    fn snapshot() -> Snapshot {
        let mut report = CoreReport {
            is_ready: true,
            opened: (3, 4),
            counters: Default::default(),
            counted: Counted::from([
                (Count::KafkaEnded(EndReason::Body), 4),
                (Count::HttpEnded(EndReason::Header), 1),
                (Count::Answered("publish", 2), 6),
                (Count::Refused(ShardRefusal::AboveBudget), 1),
                (Count::BudgetWait, 3),
                (Count::CommitPastEnd(PastEnd::Stored), 2),
            ]),
            budget_bytes: (10, 20),
            tail_cache_bytes: 5,
            connections: (1, 2),
            partitions: HashMap::new(),
            disk_operations: (128, 6),
            disk_level: DiskLevel::Low,
        };
        report.counters.publishes = 7;
        report.counters.reject(Rejection::Overloaded);
        report.counters.reject(Rejection::Overloaded);
        let held = PartitionDescription {
            leader_epoch: LeaderEpoch(1),
            log_start: Offset(10),
            watermark: Offset(30),
            log_end: Offset(30),
            log_bytes: 4_000,
        };
        let topic = || ("topic", String::from("a\"b"));
        Snapshot {
            cores: vec![(CoreIndex(0), report.clone()), (CoreIndex(1), report)],
            cores_expected: 2,
            logs: Logs {
                partitions: vec![(vec![topic(), ("partition", String::from("0"))], held)],
                topics: vec![(vec![topic()], TopicSums::default())],
            },
            resident_bytes: Some(1),
            broker: String::from("1"),
            zone: String::from("a"),
            cluster: String::from("c"),
        }
    }

    fn exposed() -> String {
        expose(snapshot()).unwrap()
    }

    #[test]
    fn counters_gauges_and_labels_are_exposed() {
        let text = exposed();
        for line in [
            "# TYPE corelog_publishes counter",
            "corelog_publishes_total{core=\"1\"} 7",
            "corelog_refusals_total{core=\"0\",reason=\"throttling_quota_exceeded\"} 2",
            "corelog_connections_ended_total{core=\"0\",face=\"kafka\",reason=\"malformed_body\"} 4",
            "corelog_http_requests_total{core=\"1\",route=\"publish\",status=\"2xx\"} 6",
            "corelog_budget_waits_total{core=\"0\"} 3",
            "corelog_disk_operations{core=\"1\",state=\"waiting\"} 6",
            "corelog_disk_level{level=\"low\"} 1",
            "corelog_disk_level{level=\"full\"} 0",
            "corelog_connections{core=\"0\",face=\"http\"} 2",
            "corelog_partition_watermark_offset{topic=\"a\\\"b\",partition=\"0\"} 30",
            "corelog_process_resident_bytes 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn every_metric_is_in_the_reference_and_every_one_there_exists() {
        let text = exposed();
        let name_of = |line: &str| line.split(['{', ' ']).next().unwrap_or("").to_owned();
        let exposed: BTreeSet<String> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(name_of)
            .collect();
        let rows = REFERENCE
            .lines()
            .filter(|line| line.starts_with("| `corelog_"));
        let cells = rows.filter_map(|line| line.split('|').nth(1));
        let documented: BTreeSet<String> = cells
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .map(str::to_owned)
            .collect();
        assert_eq!(exposed, documented);
    }

    #[test]
    fn the_process_knows_what_it_takes() {
        assert!(resident_bytes().unwrap() > 1 << 20);
    }
}
