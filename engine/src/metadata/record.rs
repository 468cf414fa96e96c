//! One change of metadata, and its bytes.
//!
//! A record is `kind u8, version u8, length u32, crc32c u32, body`; numbers are little-endian, the
//! checksum covers the three fields before it and the body. Each kind has a version of its own.

use alloc::string::String;
use alloc::vec::Vec;

use super::codec::{DecodeError, Reader, Writer};
use super::settings::{Partitioner, TopicSettings};
use super::{BROKER_ADDRESSES_MAX, CORES_MAX, FEATURE_LEVEL_SUPPORTED, REPLICAS_MAX};
use crate::identity::{
    BrokerId, CoreIndex, LogId, PartitionId, PartitionIndex, ProcessId, ProducerId, TopicId,
};

/// Longest body of one record, in bytes: the cores of every partition that a broker may hold.
pub const RECORD_BODY_BYTES_MAX: usize = 8 << 20;

const HEAD_BYTES: usize = 10;

/// One change of metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataRecord {
    /// From now on records up to this cluster feature level may appear.
    FeatureLevel {
        /// The level.
        level: u16,
    },
    /// A broker is known, or its addresses or zone have changed.
    BrokerRegistered(BrokerRegistered),
    /// A broker's process has started: every partition that it leads enters a new leader epoch.
    BrokerStarted {
        /// The broker.
        broker: BrokerId,
        /// This start of it.
        process: ProcessId,
    },
    /// A broker has another number of cores, and all its replicas have a core among them.
    CoresChanged {
        /// The broker.
        broker: BrokerId,
        /// How many it has now.
        cores: u16,
        /// The core of each replica that moves.
        placements: Vec<(PartitionId, CoreIndex)>,
    },
    /// A topic exists.
    TopicCreated(TopicCreated),
    /// A topic, its partitions and their logs are gone.
    TopicDeleted {
        /// The topic.
        topic: TopicId,
    },
    /// A topic has other settings.
    TopicSettingsChanged {
        /// The topic.
        topic: TopicId,
        /// All of them.
        settings: TopicSettings,
    },
    /// A topic has more partitions.
    PartitionsAdded {
        /// The topic.
        topic: TopicId,
        /// The new ones, following the last.
        partitions: Vec<PartitionAssignment>,
        /// The topic's slots from now on.
        slots: u32,
    },
    /// A replica's log is about to have its first append: a log that is missing after this is a
    /// loss, never new.
    LogBegun {
        /// The partition.
        partition: PartitionId,
        /// The replica's log.
        log_id: LogId,
    },
    /// Producer ids that one broker may hand out.
    ProducerIdBlockGranted {
        /// The broker.
        broker: BrokerId,
        /// The first.
        first: ProducerId,
        /// How many.
        count: u64,
    },
}

/// A broker and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRegistered {
    /// The broker.
    pub broker: BrokerId,
    /// Where it stands; replicas of one partition stand in different zones.
    pub zone: String,
    /// How many cores it has.
    pub cores: u16,
    /// Where it is reached, listener by listener.
    pub addresses: Vec<Address>,
}

/// Where one listener of a broker is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The listener: `kafka`, `http`, `peer`.
    pub listener: String,
    /// Host name or IP address, as clients are told.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// A new topic, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCreated {
    /// Its incarnation.
    pub topic: TopicId,
    /// Whose it is.
    pub tenant: String,
    /// Its name within the tenant.
    pub name: String,
    /// How keys find partitions.
    pub partitioner: Partitioner,
    /// How many slots keys map to; slot s lies in partition s mod partitions.
    pub slots: u32,
    /// Kept by the broker itself; clients do not write to it.
    pub internal: bool,
    /// Its settings.
    pub settings: TopicSettings,
    /// Its partitions, from zero.
    pub partitions: Vec<PartitionAssignment>,
}

/// The replicas of a new partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAssignment {
    /// Who leads, first.
    pub leader: BrokerId,
    /// Who keeps it.
    pub replicas: Vec<ReplicaAssignment>,
}

/// A new replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaAssignment {
    /// On which broker.
    pub broker: BrokerId,
    /// The id its log is made with.
    pub log_id: LogId,
    /// Which core of the broker owns it.
    pub core: CoreIndex,
}

const FEATURE_LEVEL: u8 = 1;
const BROKER_REGISTERED: u8 = 2;
const BROKER_STARTED: u8 = 3;
const CORES_CHANGED: u8 = 4;
const TOPIC_CREATED: u8 = 5;
const TOPIC_DELETED: u8 = 6;
const TOPIC_SETTINGS_CHANGED: u8 = 7;
const PARTITIONS_ADDED: u8 = 8;
const LOG_BEGUN: u8 = 9;
const PRODUCER_ID_BLOCK_GRANTED: u8 = 10;

/// Name and newest version of a kind.
fn kind_known(kind: u8) -> Result<(&'static str, u8), DecodeError> {
    Ok(match kind {
        FEATURE_LEVEL => ("metadata record FeatureLevel", 1),
        BROKER_REGISTERED => ("metadata record BrokerRegistered", 1),
        BROKER_STARTED => ("metadata record BrokerStarted", 1),
        CORES_CHANGED => ("metadata record CoresChanged", 1),
        TOPIC_CREATED => ("metadata record TopicCreated", 1),
        TOPIC_DELETED => ("metadata record TopicDeleted", 1),
        TOPIC_SETTINGS_CHANGED => ("metadata record TopicSettingsChanged", 1),
        PARTITIONS_ADDED => ("metadata record PartitionsAdded", 1),
        LOG_BEGUN => ("metadata record LogBegun", 1),
        PRODUCER_ID_BLOCK_GRANTED => ("metadata record ProducerIdBlockGranted", 1),
        unknown => return Err(DecodeError::UnknownKind(unknown)),
    })
}

impl MetadataRecord {
    /// The record's bytes.
    ///
    /// # Panics
    /// If a string or list in it is beyond its limit; whoever makes a record keeps to them.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        let (kind, version) = self.encode_body(&mut body);
        let body = body.0;
        assert!(
            body.len() <= RECORD_BODY_BYTES_MAX,
            "a metadata record is bounded where it is made"
        );
        let mut out = Writer(Vec::with_capacity(HEAD_BYTES + body.len()));
        out.u8(kind);
        out.u8(version);
        out.u32(body.len() as u32);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out.0), &body);
        out.u32(crc);
        out.bytes(&body);
        out.0
    }

    /// The record that these bytes are, no more and no less.
    ///
    /// # Errors
    /// See [`DecodeError`]; a newer version is refused by name.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (record, rest) = Self::decode_first(bytes)?;
        if rest.is_empty() {
            Ok(record)
        } else {
            Err(DecodeError::TrailingBytes("a metadata record"))
        }
    }

    /// The first of several records that stand one behind the other, and the bytes behind it.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_first(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let mut head = Reader::new(bytes, "a metadata record");
        let kind = head.u8()?;
        let version = head.u8()?;
        let length = head.u32()? as usize;
        let crc = head.u32()?;
        if length > RECORD_BODY_BYTES_MAX {
            return head.invalid();
        }
        let body = head.take(length)?;
        let covered = bytes.get(..HEAD_BYTES - 4).unwrap_or_default();
        if crc32c::crc32c_append(crc32c::crc32c(covered), body) != crc {
            return Err(DecodeError::Checksum("a metadata record"));
        }
        let (what, supported) = kind_known(kind)?;
        if version > supported {
            return Err(DecodeError::Newer {
                what,
                version: version.into(),
                supported: supported.into(),
            });
        }
        let mut from = Reader::new(body, what);
        if version == 0 {
            return from.invalid();
        }
        let record = Self::decode_body(kind, &mut from)?;
        from.finish()?;
        let rest = bytes.get(HEAD_BYTES + length..).unwrap_or_default();
        Ok((record, rest))
    }

    fn encode_body(&self, out: &mut Writer) -> (u8, u8) {
        match self {
            Self::FeatureLevel { level } => {
                out.u16(*level);
                (FEATURE_LEVEL, 1)
            }
            Self::BrokerRegistered(registered) => {
                registered.encode(out);
                (BROKER_REGISTERED, 1)
            }
            Self::BrokerStarted { broker, process } => {
                out.u32(broker.0);
                out.bytes(&process.0);
                (BROKER_STARTED, 1)
            }
            Self::CoresChanged {
                broker,
                cores,
                placements,
            } => {
                out.u32(broker.0);
                out.u16(*cores);
                out.count(placements.len());
                for (partition, core) in placements {
                    encode_partition_id(*partition, out);
                    out.u16(core.0);
                }
                (CORES_CHANGED, 1)
            }
            Self::TopicCreated(created) => {
                created.encode(out);
                (TOPIC_CREATED, 1)
            }
            Self::TopicDeleted { topic } => {
                out.bytes(&topic.0);
                (TOPIC_DELETED, 1)
            }
            Self::TopicSettingsChanged { topic, settings } => {
                out.bytes(&topic.0);
                settings.encode(out);
                (TOPIC_SETTINGS_CHANGED, 1)
            }
            Self::PartitionsAdded {
                topic,
                partitions,
                slots,
            } => {
                out.bytes(&topic.0);
                out.u32(*slots);
                encode_assignments(partitions, out);
                (PARTITIONS_ADDED, 1)
            }
            Self::LogBegun { partition, log_id } => {
                encode_partition_id(*partition, out);
                out.bytes(&log_id.0);
                (LOG_BEGUN, 1)
            }
            Self::ProducerIdBlockGranted {
                broker,
                first,
                count,
            } => {
                out.u32(broker.0);
                out.u64(first.0);
                out.u64(*count);
                (PRODUCER_ID_BLOCK_GRANTED, 1)
            }
        }
    }

    fn decode_body(kind: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            FEATURE_LEVEL => Self::FeatureLevel {
                level: decode_feature_level(from)?,
            },
            BROKER_REGISTERED => Self::BrokerRegistered(BrokerRegistered::decode(from)?),
            BROKER_STARTED => Self::BrokerStarted {
                broker: BrokerId(from.u32()?),
                process: ProcessId(from.array()?),
            },
            CORES_CHANGED => {
                let broker = BrokerId(from.u32()?);
                let cores = from.u16()?;
                let count = from.count(22)?;
                if cores > CORES_MAX {
                    return from.invalid();
                }
                let mut placements = Vec::with_capacity(count);
                for _ in 0..count {
                    placements.push((decode_partition_id(from)?, CoreIndex(from.u16()?)));
                }
                Self::CoresChanged {
                    broker,
                    cores,
                    placements,
                }
            }
            TOPIC_CREATED => Self::TopicCreated(TopicCreated::decode(from)?),
            TOPIC_DELETED => Self::TopicDeleted {
                topic: TopicId(from.array()?),
            },
            TOPIC_SETTINGS_CHANGED => Self::TopicSettingsChanged {
                topic: TopicId(from.array()?),
                settings: TopicSettings::decode(from)?,
            },
            PARTITIONS_ADDED => Self::PartitionsAdded {
                topic: TopicId(from.array()?),
                slots: from.u32()?,
                partitions: decode_assignments(from)?,
            },
            LOG_BEGUN => Self::LogBegun {
                partition: decode_partition_id(from)?,
                log_id: LogId(from.array()?),
            },
            PRODUCER_ID_BLOCK_GRANTED => Self::ProducerIdBlockGranted {
                broker: BrokerId(from.u32()?),
                first: ProducerId(from.u64()?),
                count: from.u64()?,
            },
            unknown => return Err(DecodeError::UnknownKind(unknown)),
        })
    }
}

impl BrokerRegistered {
    pub(crate) fn encode(&self, out: &mut Writer) {
        assert!(
            self.addresses.len() <= BROKER_ADDRESSES_MAX,
            "a broker's addresses are bounded where they are configured"
        );
        out.u32(self.broker.0);
        out.string(&self.zone);
        out.u16(self.cores);
        out.count(self.addresses.len());
        for address in &self.addresses {
            out.string(&address.listener);
            out.string(&address.host);
            out.u16(address.port);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let broker = BrokerId(from.u32()?);
        let zone = from.string()?;
        let cores = from.u16()?;
        let count = from.count(6)?;
        if count > BROKER_ADDRESSES_MAX || cores > CORES_MAX {
            return from.invalid();
        }
        let mut addresses = Vec::with_capacity(count);
        for _ in 0..count {
            addresses.push(Address {
                listener: from.string()?,
                host: from.string()?,
                port: from.u16()?,
            });
        }
        Ok(Self {
            broker,
            zone,
            cores,
            addresses,
        })
    }
}

impl TopicCreated {
    fn encode(&self, out: &mut Writer) {
        out.bytes(&self.topic.0);
        out.string(&self.tenant);
        out.string(&self.name);
        self.partitioner.encode(out);
        out.u32(self.slots);
        out.bool(self.internal);
        self.settings.encode(out);
        encode_assignments(&self.partitions, out);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            topic: TopicId(from.array()?),
            tenant: from.string()?,
            name: from.string()?,
            partitioner: Partitioner::decode(from)?,
            slots: from.u32()?,
            internal: from.bool()?,
            settings: TopicSettings::decode(from)?,
            partitions: decode_assignments(from)?,
        })
    }
}

fn encode_assignments(partitions: &[PartitionAssignment], out: &mut Writer) {
    out.count(partitions.len());
    for partition in partitions {
        assert!(
            partition.replicas.len() <= REPLICAS_MAX,
            "replicas are bounded where they are placed"
        );
        out.u32(partition.leader.0);
        out.u8(partition.replicas.len() as u8);
        for replica in &partition.replicas {
            out.u32(replica.broker.0);
            out.bytes(&replica.log_id.0);
            out.u16(replica.core.0);
        }
    }
}

fn decode_assignments(from: &mut Reader<'_>) -> Result<Vec<PartitionAssignment>, DecodeError> {
    let count = from.count(5)?;
    if count > crate::limits::TOPIC_PARTITIONS_MAX as usize {
        return from.invalid();
    }
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        let leader = BrokerId(from.u32()?);
        let replica_count = usize::from(from.u8()?);
        if replica_count > REPLICAS_MAX {
            return from.invalid();
        }
        let mut replicas = Vec::with_capacity(replica_count);
        for _ in 0..replica_count {
            replicas.push(ReplicaAssignment {
                broker: BrokerId(from.u32()?),
                log_id: LogId(from.array()?),
                core: CoreIndex(from.u16()?),
            });
        }
        partitions.push(PartitionAssignment { leader, replicas });
    }
    Ok(partitions)
}

fn encode_partition_id(partition: PartitionId, out: &mut Writer) {
    out.bytes(&partition.topic.0);
    out.u32(partition.partition.0);
}

fn decode_partition_id(from: &mut Reader<'_>) -> Result<PartitionId, DecodeError> {
    Ok(PartitionId {
        topic: TopicId(from.array()?),
        partition: PartitionIndex(from.u32()?),
    })
}

/// A level above what this build knows must stop it, not be skipped: the records that the level
/// allows would be misread.
pub(crate) fn decode_feature_level(from: &mut Reader<'_>) -> Result<u16, DecodeError> {
    let level = from.u16()?;
    if level > FEATURE_LEVEL_SUPPORTED {
        return Err(DecodeError::Newer {
            what: "the cluster's feature level",
            version: level,
            supported: FEATURE_LEVEL_SUPPORTED,
        });
    }
    Ok(level)
}
