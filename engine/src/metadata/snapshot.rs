//! The whole image as bytes: magic, version, length, checksum, then brokers and topics.

use alloc::vec::Vec;

use super::codec::{DecodeError, Reader, Writer};
use super::image::{Broker, Image, Partition, Replica, Topic};
use super::record::{BrokerRegistered, decode_feature_level};
use super::settings::{Partitioner, TopicSettings};
use super::{BROKERS_MAX, REPLICAS_MAX};
use crate::identity::{BrokerId, CoreIndex, LeaderEpoch, LogId, ProcessId, ProducerId, TopicId};
use crate::limits::TOPIC_PARTITIONS_MAX;

const MAGIC: [u8; 8] = *b"CLOGIMAG";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 22;
const WHAT: &str = "the snapshot of the metadata image";
const PARTITION_BYTES_MIN: usize = 9;
const TOPIC_BYTES_MIN: usize = 60;
const BROKER_BYTES_MIN: usize = 13;

impl Image {
    /// The image as bytes, equal for equal images.
    pub fn encode_snapshot(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.u16(self.feature_level);
        body.u64(self.next_producer_id.0);
        body.count(self.brokers.len());
        for (&id, broker) in &self.brokers {
            encode_broker(id, broker, &mut body);
        }
        body.count(self.topics.len());
        for topic in self.topics.values() {
            encode_topic(topic, &mut body);
        }
        let body = body.0;
        let mut out = Writer(Vec::with_capacity(HEAD_BYTES + body.len()));
        out.bytes(&MAGIC);
        out.u16(VERSION);
        out.u64(body.len() as u64);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out.0), &body);
        out.u32(crc);
        out.bytes(&body);
        out.0
    }

    /// The image that these bytes are.
    ///
    /// # Errors
    /// See [`DecodeError`]; a newer version is refused by name, and what breaks an invariant of the
    /// image is invalid.
    pub fn decode_snapshot(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut head = Reader::new(bytes, WHAT);
        if head.array::<8>()? != MAGIC {
            return head.invalid();
        }
        let version = head.u16()?;
        if version > VERSION {
            return Err(DecodeError::Newer {
                what: WHAT,
                version,
                supported: VERSION,
            });
        }
        if version == 0 {
            return head.invalid();
        }
        let length = head.u64()?;
        let crc = head.u32()?;
        let length = usize::try_from(length).or_else(|_| head.invalid())?;
        let body = head.take(length)?;
        head.finish()?;
        let covered = bytes.get(..HEAD_BYTES - 4).unwrap_or_default();
        if crc32c::crc32c_append(crc32c::crc32c(covered), body) != crc {
            return Err(DecodeError::Checksum(WHAT));
        }
        decode_body(body)
    }
}

fn decode_body(body: &[u8]) -> Result<Image, DecodeError> {
    let mut from = Reader::new(body, WHAT);
    let mut image = Image {
        feature_level: decode_feature_level(&mut from)?,
        next_producer_id: ProducerId(from.u64()?),
        ..Image::default()
    };
    if image.next_producer_id.0 > i64::MAX as u64 {
        return from.invalid();
    }
    let broker_count = from.count(BROKER_BYTES_MIN)?;
    if broker_count > BROKERS_MAX {
        return from.invalid();
    }
    for _ in 0..broker_count {
        let (id, broker) = decode_broker(&mut from)?;
        if image.brokers.insert(id, broker).is_some() {
            return from.invalid();
        }
    }
    for _ in 0..from.count(TOPIC_BYTES_MIN)? {
        let topic = decode_topic(&mut from)?;
        for replica in topic.partitions.iter().flat_map(|p| &p.replicas) {
            match image.core_count_mut(replica.broker, replica.core) {
                Some(count) => *count += 1,
                None => return from.invalid(),
            }
        }
        if image.topics.contains_key(&topic.id)
            || image.topic_named(&topic.tenant, &topic.name).is_some()
        {
            return from.invalid();
        }
        let names = image.tenants.entry(topic.tenant.clone()).or_default();
        names.insert(&topic.name, topic.id);
        image.topics.insert(topic.id, topic);
    }
    from.finish()?;
    Ok(image)
}

fn encode_broker(id: BrokerId, broker: &Broker, out: &mut Writer) {
    let registered = BrokerRegistered {
        broker: id,
        zone: broker.zone.clone(),
        cores: broker.cores(),
        addresses: broker.addresses.clone(),
    };
    registered.encode(out);
    out.bool(broker.process.is_some());
    if let Some(process) = broker.process {
        out.bytes(&process.0);
    }
}

fn decode_broker(from: &mut Reader<'_>) -> Result<(BrokerId, Broker), DecodeError> {
    let registered = BrokerRegistered::decode(from)?;
    let process = match from.bool()? {
        false => None,
        true => Some(ProcessId(from.array()?)),
    };
    let broker = Broker {
        zone: registered.zone,
        addresses: registered.addresses,
        process,
        replicas_per_core: alloc::vec![0; usize::from(registered.cores)],
    };
    Ok((registered.broker, broker))
}

fn encode_topic(topic: &Topic, out: &mut Writer) {
    out.bytes(&topic.id.0);
    out.string(&topic.tenant);
    out.string(&topic.name);
    topic.partitioner.encode(out);
    out.u32(topic.slots);
    out.bool(topic.internal);
    topic.settings.encode(out);
    out.count(topic.partitions.len());
    for partition in &topic.partitions {
        out.u32(partition.leader.0);
        out.u32(partition.leader_epoch.0);
        out.u8(partition.replicas.len() as u8);
        for replica in &partition.replicas {
            out.u32(replica.broker.0);
            out.bytes(&replica.log_id.0);
            out.u16(replica.core.0);
            out.bool(replica.begun);
        }
    }
}

fn decode_topic(from: &mut Reader<'_>) -> Result<Topic, DecodeError> {
    let mut topic = Topic {
        id: TopicId(from.array()?),
        tenant: from.string()?,
        name: from.string()?,
        partitioner: Partitioner::decode(from)?,
        slots: from.u32()?,
        internal: from.bool()?,
        settings: TopicSettings::decode(from)?,
        partitions: Vec::new(),
    };
    let count = from.count(PARTITION_BYTES_MIN)?;
    if topic.slots == 0 || count == 0 || count > TOPIC_PARTITIONS_MAX as usize {
        return from.invalid();
    }
    topic.partitions.reserve_exact(count);
    for _ in 0..count {
        topic.partitions.push(decode_partition(from)?);
    }
    Ok(topic)
}

fn decode_partition(from: &mut Reader<'_>) -> Result<Partition, DecodeError> {
    let leader = BrokerId(from.u32()?);
    let leader_epoch = LeaderEpoch(from.u32()?);
    let count = usize::from(from.u8()?);
    if count > REPLICAS_MAX || leader_epoch.0 > i32::MAX as u32 {
        return from.invalid();
    }
    let mut replicas = Vec::with_capacity(count);
    for _ in 0..count {
        replicas.push(Replica {
            broker: BrokerId(from.u32()?),
            log_id: LogId(from.array()?),
            core: CoreIndex(from.u16()?),
            begun: from.bool()?,
        });
    }
    let partition = Partition {
        leader,
        leader_epoch,
        replicas: replicas.into_boxed_slice(),
    };
    match partition.replica_on(leader) {
        Some(_) => Ok(partition),
        None => from.invalid(),
    }
}
