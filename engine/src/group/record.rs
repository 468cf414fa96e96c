//! The records of the offsets topic: a compact format of the coordinator's own.
//!
//! A key is magic, version, kind and what it names; a value is magic, version and fields. Numbers
//! and lengths are variable-length (seven bits a byte, lowest first). Framing and checksum are the
//! batch's. Whatever a length claims is held against the bytes that remain before anything is
//! reserved, so a malformed record costs an error and no more.
//!
//! | kind | key names | value |
//! |---|---|---|
//! | 1 | group | generation, protocol, members with metadata and assignments; none: the group is gone, with its offsets |
//! | 2 | group, partition | a committed offset; none: it is gone |
//! | 3 | group | the highest generation that may have been given out |
//! | 4 | topic | none: the topic's offsets are gone in every group |
//! | 5, 6 | | a snapshot begins, ends |
//!
//! The high bit of the kind marks a copy within a snapshot.

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use super::{GroupRecord, ReplayError};
use crate::identity::{Generation, LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicId};

const KEY_MAGIC: u8 = 0xC7;
const VALUE_MAGIC: u8 = 0xC8;
const VERSION: u8 = 1;
const COPY: u8 = 0x80;

/// No member takes fewer bytes than this; bounds how many a record can claim.
const MEMBER_BYTES_MIN: usize = 8;

/// Room is reserved for at most this many items on a record's word; more grow as they are read.
const RESERVED_ITEMS_MAX: usize = 256;

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Group(String),
    Offset(String, PartitionId),
    Generation(String),
    Topic(TopicId),
    SnapshotBegin,
    SnapshotEnd,
}

/// A group as its record keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedGroup {
    pub generation: Generation,
    pub protocol_type: String,
    pub protocol: String,
    pub leader: Option<String>,
    /// Since when the group has had no members; `None` while it has some.
    pub empty_since_ms: Option<u64>,
    pub members: Vec<RecordedMember>,
}

/// A member as the record of its group keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedMember {
    pub member_id: String,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout_ms: u32,
    pub rebalance_timeout_ms: u32,
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
}

/// A committed offset, as stored and as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredOffset {
    pub offset: Offset,
    pub leader_epoch: Option<LeaderEpoch>,
    pub metadata: String,
    pub commit_time_ms: u64,
}

impl Key {
    /// The key's bytes; `copy` marks a copy within a snapshot.
    pub(super) fn encode(&self, copy: bool) -> Bytes {
        let mut out = Vec::with_capacity(48);
        let kind = match self {
            Self::Group(_) => 1,
            Self::Offset(..) => 2,
            Self::Generation(_) => 3,
            Self::Topic(_) => 4,
            Self::SnapshotBegin => 5,
            Self::SnapshotEnd => 6,
        };
        out.extend_from_slice(&[KEY_MAGIC, VERSION, if copy { kind | COPY } else { kind }]);
        match self {
            Self::Group(group) | Self::Generation(group) => put_bytes(&mut out, group.as_bytes()),
            Self::Offset(group, partition) => {
                put_bytes(&mut out, group.as_bytes());
                out.extend_from_slice(partition.topic.bytes());
                put_number(&mut out, u64::from(partition.partition.get()));
            }
            Self::Topic(topic) => out.extend_from_slice(topic.bytes()),
            Self::SnapshotBegin | Self::SnapshotEnd => {}
        }
        Bytes::from(out)
    }

    /// The key, and whether it is a copy within a snapshot.
    pub(super) fn decode(bytes: &Bytes) -> Result<(Self, bool), ReplayError> {
        let mut reader = Reader::open(bytes, KEY_MAGIC, "record key")?;
        let kind = reader.byte()?;
        let key = match kind & !COPY {
            1 => Self::Group(reader.text()?),
            2 => Self::Offset(
                reader.text()?,
                PartitionId {
                    topic: reader.topic()?,
                    partition: PartitionIndex(reader.number_u32()?),
                },
            ),
            3 => Self::Generation(reader.text()?),
            4 => Self::Topic(reader.topic()?),
            5 => Self::SnapshotBegin,
            6 => Self::SnapshotEnd,
            _ => return Err(reader.malformed()),
        };
        reader.end()?;
        Ok((key, kind & COPY != 0))
    }

    /// A record that removes what the key names, or needs no value.
    pub(super) fn alone(&self) -> GroupRecord {
        GroupRecord {
            key: self.encode(false),
            value: None,
        }
    }

    /// A record that sets what the key names.
    pub(super) fn with(&self, value: Bytes) -> GroupRecord {
        GroupRecord {
            key: self.encode(false),
            value: Some(value),
        }
    }

    /// The same as a snapshot carries it.
    pub(super) fn copied(&self, value: Bytes) -> GroupRecord {
        GroupRecord {
            key: self.encode(true),
            value: Some(value),
        }
    }
}

impl RecordedGroup {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = value_header();
        put_number(&mut out, u64::from(self.generation.get()));
        put_bytes(&mut out, self.protocol_type.as_bytes());
        put_bytes(&mut out, self.protocol.as_bytes());
        put_option(&mut out, self.leader.as_deref());
        put_number(
            &mut out,
            self.empty_since_ms.map_or(0, |ms| ms.saturating_add(1)),
        );
        put_number(&mut out, self.members.len() as u64);
        for member in &self.members {
            put_bytes(&mut out, member.member_id.as_bytes());
            put_option(&mut out, member.instance_id.as_deref());
            put_bytes(&mut out, member.client_id.as_bytes());
            put_bytes(&mut out, member.client_host.as_bytes());
            put_number(&mut out, u64::from(member.session_timeout_ms));
            put_number(&mut out, u64::from(member.rebalance_timeout_ms));
            put_number(&mut out, member.protocols.len() as u64);
            for (name, metadata) in &member.protocols {
                put_bytes(&mut out, name.as_bytes());
                put_bytes(&mut out, metadata);
            }
            put_bytes(&mut out, &member.assignment);
        }
        Bytes::from(out)
    }

    /// The group; metadata and assignments are slices of `bytes`.
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, ReplayError> {
        let mut reader = Reader::open(bytes, VALUE_MAGIC, "group record")?;
        let generation = reader.generation()?;
        let protocol_type = reader.text()?;
        let protocol = reader.text()?;
        let leader = reader.option()?;
        let empty_since_ms = reader.number()?.checked_sub(1);
        let count = reader.count(MEMBER_BYTES_MIN)?;
        let mut members = Vec::with_capacity(count.min(RESERVED_ITEMS_MAX));
        for _ in 0..count {
            members.push(RecordedMember::decode(&mut reader)?);
        }
        reader.end()?;
        Ok(Self {
            generation,
            protocol_type,
            protocol,
            leader,
            empty_since_ms,
            members,
        })
    }
}

impl RecordedMember {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, ReplayError> {
        let member_id = reader.text()?;
        let instance_id = reader.option()?;
        let client_id = reader.text()?;
        let client_host = reader.text()?;
        let session_timeout_ms = reader.number_u32()?;
        let rebalance_timeout_ms = reader.number_u32()?;
        let count = reader.count(2)?;
        let mut protocols = Vec::with_capacity(count.min(RESERVED_ITEMS_MAX));
        for _ in 0..count {
            protocols.push((reader.text()?, reader.blob()?));
        }
        Ok(Self {
            member_id,
            instance_id,
            client_id,
            client_host,
            session_timeout_ms,
            rebalance_timeout_ms,
            protocols,
            assignment: reader.blob()?,
        })
    }
}

impl StoredOffset {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = value_header();
        put_number(&mut out, self.offset.get());
        let epoch = self
            .leader_epoch
            .map_or(0, |epoch| u64::from(epoch.get()) + 1);
        put_number(&mut out, epoch);
        put_number(&mut out, self.commit_time_ms);
        put_bytes(&mut out, self.metadata.as_bytes());
        Bytes::from(out)
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, ReplayError> {
        let mut reader = Reader::open(bytes, VALUE_MAGIC, "offset record")?;
        let offset = Offset(reader.number()?);
        let leader_epoch = match reader.number()?.checked_sub(1) {
            None => None,
            Some(epoch) => Some(LeaderEpoch(
                u32::try_from(epoch).map_err(|_| reader.malformed())?,
            )),
        };
        let commit_time_ms = reader.number()?;
        let metadata = reader.text()?;
        reader.end()?;
        if offset.get() > i64::MAX as u64 {
            return Err(reader.malformed());
        }
        Ok(Self {
            offset,
            leader_epoch,
            metadata,
            commit_time_ms,
        })
    }
}

/// The value of a generation record.
pub(super) fn encode_generation(generation: Generation) -> Bytes {
    let mut out = value_header();
    put_number(&mut out, u64::from(generation.get()));
    Bytes::from(out)
}

/// The generation of such a value.
pub(super) fn decode_generation(bytes: &Bytes) -> Result<Generation, ReplayError> {
    let mut reader = Reader::open(bytes, VALUE_MAGIC, "generation record")?;
    let generation = reader.generation()?;
    reader.end()?;
    Ok(generation)
}

fn value_header() -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&[VALUE_MAGIC, VERSION]);
    out
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_option(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => out.push(0),
        Some(text) => {
            out.push(1);
            put_bytes(out, text.as_bytes());
        }
    }
}

/// Reads fields off the front of a key or value.
struct Reader<'a> {
    bytes: &'a Bytes,
    position: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Checks magic and version.
    fn open(bytes: &'a Bytes, magic: u8, what: &'static str) -> Result<Self, ReplayError> {
        let mut reader = Self {
            bytes,
            position: 0,
            what,
        };
        if reader.byte()? != magic {
            return Err(reader.malformed());
        }
        match reader.byte()? {
            0 => Err(reader.malformed()),
            VERSION => Ok(reader),
            version => Err(ReplayError::Newer { what, version }),
        }
    }

    fn malformed(&self) -> ReplayError {
        ReplayError::Malformed { what: self.what }
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    fn byte(&mut self) -> Result<u8, ReplayError> {
        let byte = *self
            .bytes
            .get(self.position)
            .ok_or_else(|| self.malformed())?;
        self.position += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, ReplayError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                return Err(self.malformed());
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.malformed())
    }

    fn number_u32(&mut self) -> Result<u32, ReplayError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.malformed())
    }

    fn generation(&mut self) -> Result<Generation, ReplayError> {
        match self.number_u32()? {
            generation if generation <= i32::MAX as u32 => Ok(Generation(generation)),
            _ => Err(self.malformed()),
        }
    }

    /// A count of items that take at least `item_bytes_min` each.
    fn count(&mut self, item_bytes_min: usize) -> Result<usize, ReplayError> {
        let count = usize::try_from(self.number()?).map_err(|_| self.malformed())?;
        if count > self.remaining() / item_bytes_min {
            return Err(self.malformed());
        }
        Ok(count)
    }

    fn blob(&mut self) -> Result<Bytes, ReplayError> {
        let length = self.count(1)?;
        let blob = self.bytes.slice(self.position..self.position + length);
        self.position += length;
        Ok(blob)
    }

    fn text(&mut self) -> Result<String, ReplayError> {
        let length = self.count(1)?;
        let bytes = &self.bytes[self.position..self.position + length];
        let text = core::str::from_utf8(bytes).map_err(|_| self.malformed())?;
        self.position += length;
        Ok(String::from(text))
    }

    fn option(&mut self) -> Result<Option<String>, ReplayError> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.text().map(Some),
            _ => Err(self.malformed()),
        }
    }

    fn topic(&mut self) -> Result<TopicId, ReplayError> {
        let mut id = [0; 16];
        for byte in &mut id {
            *byte = self.byte()?;
        }
        Ok(TopicId(id))
    }

    fn end(&self) -> Result<(), ReplayError> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }
}
