//! What a seed decides before a run begins.

use corelog_engine::core_state::CoreSettings;
use corelog_engine::group;
use corelog_engine::metadata::{TimestampType, TopicSettings};

use super::batches::Sizes;
use super::chance::Chance;
use super::control_plane::{BROKER, CORE};
use super::faults::Faults;
use super::teeth::Tooth;

/// What kind of faults a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Crashes, torn and reordered writes, requests that fail, a full disk. Nothing acknowledged may
    /// be lost.
    Crash,
    /// The same, and media that lie: bits that turn over, writes that are lost or land elsewhere.
    Media,
}

/// What a caller may ask for beside the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep the lines of the trace.
    pub keeps_trace: bool,
    /// Ten times as many events.
    pub is_long: bool,
    /// A mode of one's own choice.
    pub mode: Option<Mode>,
    /// A promise that is broken in secret.
    pub tooth: Option<Tooth>,
}

/// A topic of a run.
#[derive(Clone, Debug)]
pub struct TopicPlan {
    /// Its name, under which it may be made several times.
    pub name: &'static str,
    /// How many partitions.
    pub partitions: u32,
    /// Its settings.
    pub settings: TopicSettings,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which kind of faults.
    pub mode: Mode,
    /// Steps of the core before the run comes to its end.
    pub steps: u64,
    /// Topics of clients.
    pub topics: Vec<TopicPlan>,
    /// The topic of groups.
    pub offsets_topic: TopicSettings,
    /// How many partitions that has.
    pub offsets_partitions: u32,
    /// What the core is started with.
    pub core: CoreSettings,
    /// A promise that is broken in secret, to the end.
    pub tooth: Option<Tooth>,
    /// Faults of the disk while the run lasts.
    pub faults: Faults,
    /// Pause of a client between two acts, at most, in microseconds.
    pub pause_us: u64,
    /// How long the disk takes, at most, in microseconds.
    pub disk_us: u64,
    /// How long a record of metadata takes to be heard, at most, in microseconds.
    pub metadata_us: u64,
    /// Steps between two ends of the process, about.
    pub life_steps: u64,
    /// The process is stopped in order once in so many ends.
    pub stop_one_in: u64,
    /// Damage to stored bytes comes once in so many events.
    pub rot_one_in: u64,
    /// The disk is full for a while once in so many events.
    pub full_one_in: u64,
    /// The wall's clock steps once in so many events.
    pub wall_step_one_in: u64,
    /// A topic is deleted, made again or set differently once in so many events.
    pub admin_one_in: u64,
    /// What clients publish.
    pub sizes: Sizes,
    /// Producers with and without identity, readers, members of groups.
    pub clients: (u64, u64, u64, u64),
}

const NAMES: [&str; 3] = ["orders", "events", "clicks"];

impl Plan {
    /// What this seed decides.
    pub fn new(options: &Options, chance: &mut Chance) -> Self {
        let by_seed = if chance.one_in(3) {
            Mode::Media
        } else {
            Mode::Crash
        };
        let mode = options.mode.unwrap_or(by_seed);
        let is_media = mode == Mode::Media;
        let rare = |chance: &mut Chance, often: bool, times: &[u64]| {
            if often { chance.pick(times) } else { 0 }
        };
        let has_failures = chance.one_in(3);
        let faults = Faults {
            failed_one_in: rare(chance, has_failures, &[30, 100, 300]),
            failed_read_one_in: rare(chance, is_media, &[0, 50, 200]),
            lost_one_in: rare(chance, is_media, &[0, 20, 100]),
            misdirected_one_in: rare(chance, is_media, &[0, 20, 100]),
        };
        let has_full = chance.one_in(4);
        let has_admin = chance.one_in(3);
        let topics = NAMES[..chance.between(1, 3) as usize].iter();
        let steps = chance.between(150, 700) * if options.is_long { 10 } else { 1 };
        Self {
            mode,
            steps,
            topics: topics.map(|name| topic(name, chance)).collect(),
            offsets_topic: TopicSettings {
                retention_ms: None,
                segment_bytes: chance.pick(&[16 << 10, 64 << 10]),
                ..TopicSettings::default()
            },
            offsets_partitions: chance.between(1, 2) as u32,
            core: core_settings(chance),
            tooth: options.tooth,
            faults,
            pause_us: chance.pick(&[4_000, 20_000, 100_000, 400_000]),
            disk_us: chance.pick(&[500, 5_000, 30_000, 100_000]),
            metadata_us: chance.pick(&[1_000, 30_000, 500_000]),
            life_steps: chance.pick(&[25, 60, 150, 400]),
            stop_one_in: chance.pick(&[2, 4, 0]),
            rot_one_in: rare(chance, is_media, &[0, 60, 200]),
            full_one_in: rare(chance, has_full, &[60, 200]),
            wall_step_one_in: chance.pick(&[0, 50, 200]),
            admin_one_in: rare(chance, has_admin, &[30, 100]),
            sizes: Sizes {
                large_one_in: chance.pick(&[0, 6, 30]),
            },
            clients: (
                chance.between(1, 4),
                chance.between(0, 2),
                chance.between(1, 3),
                chance.pick(&[0, 2, 4]),
            ),
        }
    }
}

fn topic(name: &'static str, chance: &mut Chance) -> TopicPlan {
    let stamped = chance.one_in(6);
    TopicPlan {
        name,
        partitions: chance.between(1, 3) as u32,
        settings: TopicSettings {
            retention_ms: chance.pick(&[None, None, Some(2_000), Some(3_600_000)]),
            retention_bytes: chance.pick(&[None, None, Some(32 << 10), Some(256 << 10)]),
            segment_bytes: chance.pick(&[8 << 10, 64 << 10, 256 << 10]),
            segment_ms: chance.pick(&[1_000, 3_600_000, 7 * 24 * 3_600_000]),
            timestamp_type: if stamped {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            ..TopicSettings::default()
        },
    }
}

fn core_settings(chance: &mut Chance) -> CoreSettings {
    let mut core = CoreSettings::new(BROKER, CORE);
    core.memory_bytes = chance.pick(&[1 << 20, 16 << 20]);
    core.tail_cache_bytes = chance.pick(&[0, 8 << 10, 256 << 10]);
    core.log.checkpoint_bytes = chance.pick(&[4 << 10, 32 << 10, 256 << 10]);
    core.log.writes_in_flight_max = chance.pick(&[1, 2, 4]);
    core.log.write_bytes_max = chance.pick(&[4 << 10, 16 << 10, 8 << 20]);
    core.log.parallel_bytes_min = chance.pick(&[1, 4 << 10, 64 << 10]);
    core.log.extend_below_bytes = chance.pick(&[0, 16 << 10, 512 << 10]);
    core.log.extend_bytes = chance.pick(&[(4 << 10, 16 << 10), (64 << 10, 1 << 20)]);
    core.log.reserve_bytes = core.log.extend_bytes;
    core.group = group::Settings {
        snapshot_interval_bytes: chance.pick(&[1 << 10, 8 << 10, 16 << 20]),
        snapshot_part_bytes: chance.pick(&[200, 4 << 10]),
        initial_rebalance_delay_ms: chance.pick(&[0, 100]),
        ..group::Settings::default()
    };
    core
}
