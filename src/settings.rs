//! The settings of `corelog serve`: one table, read from a TOML file, the environment and flags.
//!
//! A flag wins over the environment, the environment over the file, the file over the default.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// One row of the reference.
#[derive(Clone, Debug, Serialize)]
pub struct SettingRow {
    /// The key in the file.
    pub key: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// The flag.
    pub flag: String,
    /// What holds when nobody says anything.
    pub default: String,
    /// `start`: read when the broker starts; `live`: may be changed while it runs.
    pub applies: &'static str,
    /// What it does.
    pub meaning: String,
}

macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $key:ident: $ty:ty = $default:expr, $variable:literal, $applies:literal;
    )*) => {
        /// Flags and environment variables, each of them optional.
        #[derive(Args, Clone, Debug, Default)]
        pub struct SettingFlags {
            $(
                $(#[doc = $doc])+
                #[arg(long, env = $variable)]
                pub $key: Option<$ty>,
            )*
        }

        /// A configuration file, each key of it optional.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct SettingsFile {
            $($key: Option<$ty>,)*
        }

        /// What a broker is started with.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $(
                $(#[doc = $doc])+
                pub $key: $ty,
            )*
        }

        impl Settings {
            fn merge(flags: SettingFlags, file: SettingsFile) -> Self {
                Self {
                    $($key: flags.$key.or(file.$key).unwrap_or_else(|| $default),)*
                }
            }
        }

        /// The reference, in the order of the table.
        pub fn reference() -> Vec<SettingRow> {
            vec![$({
                let default: $ty = $default;
                SettingRow {
                    key: stringify!($key),
                    variable: $variable,
                    flag: format!("--{}", stringify!($key).replace('_', "-")),
                    default: serde_json::to_value(&default)
                        .map(|value| value.to_string())
                        .unwrap_or_default(),
                    applies: $applies,
                    meaning: [$($doc),+].map(str::trim).join(" "),
                }
            },)*]
        }
    };
}

settings! {
    /// Folder that holds everything. It is made if it is not there.
    data_dir: PathBuf = PathBuf::from("/var/lib/corelog"), "CORELOG_DATA_DIR", "start";
    /// Number of this broker, unique in its cluster.
    broker: u32 = 1, "CORELOG_BROKER", "start";
    /// Zone that this broker stands in.
    zone: String = String::from("a"), "CORELOG_ZONE", "start";
    /// Cores to run on; 0 takes every CPU that the process may use.
    cores: usize = 0, "CORELOG_CORES", "start";
    /// Where Kafka clients connect.
    kafka_listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 9092)), "CORELOG_KAFKA_LISTEN", "start";
    /// Where HTTP clients connect.
    http_listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)), "CORELOG_HTTP_LISTEN", "start";
    /// Host that clients are told to connect to; empty for the address of `kafka_listen`.
    advertised_host: String = String::new(), "CORELOG_ADVERTISED_HOST", "start";
    /// Allows listeners that other machines reach, although nobody proves who they are.
    allow_unauthenticated: bool = false, "CORELOG_ALLOW_UNAUTHENTICATED", "start";
    /// Memory for each core in bytes: frames, requests in work and the cache of recent batches.
    memory_bytes_per_core: usize = 1 << 30, "CORELOG_MEMORY_BYTES_PER_CORE", "start";
    /// What of it the cache of recent batches may take, in bytes.
    tail_cache_bytes_per_core: usize = 256 << 20, "CORELOG_TAIL_CACHE_BYTES_PER_CORE", "start";
    /// Free bytes on disk below which no topics or partitions are created.
    disk_low_bytes: u64 = 2 << 30, "CORELOG_DISK_LOW_BYTES", "start";
    /// Free bytes on disk below which publishes are refused; reads and deletion go on.
    disk_full_bytes: u64 = 1 << 30, "CORELOG_DISK_FULL_BYTES", "start";
    /// Whether a topic comes into being when a client first names it.
    auto_create_topics: bool = true, "CORELOG_AUTO_CREATE_TOPICS", "start";
    /// Partitions of a topic that does not say how many.
    partitions_default: u32 = 1, "CORELOG_PARTITIONS_DEFAULT", "start";
    /// How long a core looks for work before it sleeps, in microseconds.
    spin_us: u64 = 0, "CORELOG_SPIN_US", "start";
}

impl Settings {
    /// Flags, environment and the file, if there is one.
    ///
    /// # Errors
    /// A file that cannot be read, or settings that contradict each other.
    pub fn load(flags: SettingFlags, config: Option<&Path>) -> Result<Self, Failure> {
        let file = match config {
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|error| {
                    Failure::usage(format!("configuration {}: {error}", path.display()))
                })?;
                parse(&text).map_err(|what| {
                    Failure::usage(format!("configuration {}: {what}", path.display()))
                })?
            }
            None => SettingsFile::default(),
        };
        let settings = Self::merge(flags, file);
        settings.check()?;
        Ok(settings)
    }

    /// The host that clients are told.
    pub fn told_host(&self) -> String {
        if self.advertised_host.is_empty() {
            self.kafka_listen.ip().to_string()
        } else {
            self.advertised_host.clone()
        }
    }

    fn check(&self) -> Result<(), Failure> {
        for (key, address) in [
            ("kafka_listen", self.kafka_listen),
            ("http_listen", self.http_listen),
        ] {
            if !address.ip().is_loopback() && !self.allow_unauthenticated {
                return Err(Failure::usage(format!(
                    "{key} = {address} can be reached from other machines and nobody there would have to \
                     prove who they are; listen on 127.0.0.1, or set allow_unauthenticated = true"
                )));
            }
        }
        if self.advertised_host.is_empty() && is_any(self.kafka_listen.ip()) {
            return Err(Failure::usage(format!(
                "kafka_listen = {} names no host that clients could be told; set advertised_host",
                self.kafka_listen
            )));
        }
        if self.tail_cache_bytes_per_core > self.memory_bytes_per_core {
            return Err(Failure::usage(format!(
                "tail_cache_bytes_per_core = {} is part of memory_bytes_per_core = {}; lower the one or \
                 raise the other",
                self.tail_cache_bytes_per_core, self.memory_bytes_per_core
            )));
        }
        if self.disk_full_bytes > self.disk_low_bytes {
            return Err(Failure::usage(format!(
                "disk_full_bytes = {} is above disk_low_bytes = {}; a disk is low before it is full",
                self.disk_full_bytes, self.disk_low_bytes
            )));
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<SettingsFile, String> {
    toml::from_str(text).map_err(|error| {
        format!(
            "{}; `corelog serve --print-settings` lists the keys",
            error.to_string().trim()
        )
    })
}

fn is_any(address: IpAddr) -> bool {
    address.is_unspecified()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    fn merged(flags: SettingFlags, text: &str) -> Result<Settings, Failure> {
        let settings = Settings::merge(flags, parse(text).unwrap());
        settings.check().map(|()| settings)
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let flags = SettingFlags {
            cores: Some(7),
            ..SettingFlags::default()
        };
        let settings = merged(flags, "cores = 3\nzone = \"b\"").unwrap();
        assert_eq!(settings.cores, 7);
        assert_eq!(settings.zone, "b");
        assert_eq!(settings.partitions_default, 1);
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let error = parse("corse = 3").unwrap_err();
        assert!(error.contains("corse"), "{error}");
        assert!(error.contains("--print-settings"), "{error}");
    }

    #[test]
    fn other_machines_are_refused_without_allow_unauthenticated() {
        let open = "kafka_listen = \"10.0.0.1:9092\"";
        let refused = merged(SettingFlags::default(), open).unwrap_err();
        assert_eq!(refused.code, 2);
        assert!(refused.message.contains("allow_unauthenticated"));
        let allowed = format!("{open}\nallow_unauthenticated = true");
        let settings = merged(SettingFlags::default(), &allowed).unwrap();
        assert_eq!(settings.told_host(), "10.0.0.1");
    }

    #[test]
    fn a_listener_on_every_address_needs_a_host_to_tell() {
        let open = "kafka_listen = \"0.0.0.0:9092\"\nallow_unauthenticated = true";
        let refused = merged(SettingFlags::default(), open).unwrap_err();
        assert!(refused.message.contains("advertised_host"));
        let told = format!("{open}\nadvertised_host = \"queue.example\"");
        let settings = merged(SettingFlags::default(), &told).unwrap();
        assert_eq!(settings.told_host(), "queue.example");
    }

    #[test]
    fn contradictions_are_refused() {
        for text in [
            "memory_bytes_per_core = 1000",
            "disk_full_bytes = 9000000000",
        ] {
            assert!(merged(SettingFlags::default(), text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_setting_has_a_variable_of_its_own_name_and_a_meaning() {
        for row in reference() {
            assert_eq!(row.variable, format!("CORELOG_{}", row.key.to_uppercase()));
            assert!(!row.meaning.is_empty());
            assert!(["start", "live"].contains(&row.applies));
        }
    }
}
