//! Metadata as it lies on disk: records, snapshots, the identity of a data directory; and producer snapshots.

use bytes::Bytes;
use corelog_batch::{BatchHeader, Codec};
use corelog_engine::disk::DiskLevel;
use corelog_engine::identity::{
    BrokerId, ClusterId, CoreIndex, LeaderEpoch, LogId, Offset, PartitionId, PartitionIndex,
    ProcessId, ProducerId, TopicId,
};
use corelog_engine::metadata::decisions::{
    BrokerStart, TopicDefaults, TopicRequest, create_topic, start_broker,
};
use corelog_engine::metadata::identity_file::DataDirectoryIdentity;
use corelog_engine::metadata::{DEFAULT_TENANT, Image, MetadataRecord, TopicSettings};
use corelog_engine::producer::ProducerTable;

use super::{Allowance, Target, note, note_result};

const RECORD_HEAD_BYTES: usize = 10;
const SNAPSHOT_HEAD_BYTES: usize = 22;
/// A partition takes more in memory than on disk, and a map takes it in nodes.
const IMAGES: Allowance = Allowance {
    allocation_per_input_byte: 64,
    ..Allowance::DEFAULT
};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "metadata_records",
        run: records,
        samples: record_samples,
        dictionary: &[],
        repair: Some(repair_records),
        allowance: IMAGES,
    },
    Target {
        name: "metadata_snapshot",
        run: snapshot,
        samples: || vec![Image::new().encode_snapshot(), image().encode_snapshot()],
        dictionary: &[],
        repair: Some(repair_snapshot),
        allowance: IMAGES,
    },
    Target {
        name: "identity",
        run: identity,
        samples: || vec![identity_sample()],
        dictionary: &[],
        repair: Some(repair_identity),
        allowance: Allowance::DEFAULT,
    },
    Target {
        name: "producer_snapshot",
        run: producers,
        samples: producer_samples,
        dictionary: &[b"clpr"],
        repair: None,
        allowance: IMAGES,
    },
];

/// A stream of records, applied in order: each is taken or refused, and the image stays one that can be written.
fn records(bytes: &[u8]) {
    let mut image = Image::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let decoded = MetadataRecord::decode_first(rest);
        note_result(&decoded);
        let Ok((record, behind)) = decoded else { break };
        assert_eq!(MetadataRecord::decode(&record.encode()), Ok(record.clone()));
        let applied = image.apply(&record);
        note(std::mem::discriminant(&record));
        note_result(&applied);
        rest = behind;
    }
    let written = image.encode_snapshot();
    assert_eq!(Image::decode_snapshot(&written), Ok(image));
}

fn snapshot(bytes: &[u8]) {
    let decoded = Image::decode_snapshot(bytes);
    note_result(&decoded);
    if let Ok(image) = decoded {
        note(image.topics().count());
        let again = Image::decode_snapshot(&image.encode_snapshot());
        assert_eq!(again, Ok(image));
    }
}

fn identity(bytes: &[u8]) {
    let decoded = DataDirectoryIdentity::decode(bytes);
    note_result(&decoded);
    if let Ok(identity) = decoded {
        assert_eq!(
            DataDirectoryIdentity::decode(&identity.encode()),
            Ok(identity)
        );
    }
}

/// Whatever table comes back, judging, recording, cutting and expiring work on it.
fn producers(bytes: &[u8]) {
    let restored = ProducerTable::restore(bytes);
    note_result(&restored);
    let Ok(mut table) = restored else { return };
    note(table.len());
    let again = ProducerTable::restore(&table.snapshot());
    assert!(again.is_ok_and(|again| again.len() == table.len()));
    for (producer, sequence) in [(7, 0), (7, 3), (8, i32::MAX)] {
        let batch = super::batches::batch(Codec::None, 3, Some((producer, sequence)));
        if let Ok(header) = BatchHeader::parse(&batch) {
            note(std::mem::discriminant(&table.check(&header)));
        }
    }
    let mut other = ProducerTable::default();
    other.absorb(table.clone());
    table.cut(Offset(10));
    table.expire(1_000, 10);
}

fn repair_records(bytes: &mut Vec<u8>) {
    let mut start = 0;
    while bytes.len() - start >= RECORD_HEAD_BYTES {
        let head = &bytes[start..];
        let claimed = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
        let length = claimed.min(bytes.len() - start - RECORD_HEAD_BYTES);
        let record = &mut bytes[start..start + RECORD_HEAD_BYTES + length];
        record[2..6].copy_from_slice(&(length as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&record[..6]), &record[RECORD_HEAD_BYTES..]);
        record[6..10].copy_from_slice(&crc.to_le_bytes());
        start += record.len();
    }
}

fn repair_snapshot(bytes: &mut Vec<u8>) {
    if bytes.len() >= SNAPSHOT_HEAD_BYTES {
        let length = (bytes.len() - SNAPSHOT_HEAD_BYTES) as u64;
        bytes[10..18].copy_from_slice(&length.to_le_bytes());
        let crc =
            crc32c::crc32c_append(crc32c::crc32c(&bytes[..18]), &bytes[SNAPSHOT_HEAD_BYTES..]);
        bytes[18..22].copy_from_slice(&crc.to_le_bytes());
    }
}

fn repair_identity(bytes: &mut Vec<u8>) {
    if bytes.len() >= 20 {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[20..]);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    }
}

fn identity_sample() -> Vec<u8> {
    let identity = DataDirectoryIdentity {
        cluster: ClusterId([3; 16]),
        broker: BrokerId(1),
        created_at_ms: 1_700_000_000_000,
    };
    identity.encode()
}

/// A broker, two topics, and one of every further kind of record.
fn history() -> Vec<MetadataRecord> {
    let broker = BrokerId(1);
    let mut image = Image::new();
    let mut history = Vec::new();
    let mut add = |image: &mut Image, records: Vec<MetadataRecord>| {
        for record in &records {
            let _ = image.apply(record);
        }
        history.extend(records);
    };
    let start = BrokerStart {
        broker,
        process: ProcessId([1; 16]),
        zone: "zone-1".to_owned(),
        cores: 2,
        addresses: Vec::new(),
    };
    let started = start_broker(&image, &start).unwrap_or_default();
    add(&mut image, started);
    let mut next_id = 0_u128;
    let mut id = || {
        next_id += 1;
        next_id.to_be_bytes()
    };
    for name in ["orders", "events"] {
        let request = TopicRequest {
            tenant: DEFAULT_TENANT.to_owned(),
            name: name.to_owned(),
            partitions: 3,
            replication_factor: -1,
            ..TopicRequest::default()
        };
        let defaults = TopicDefaults::default();
        let plan = create_topic(&image, &request, &defaults, DiskLevel::Normal, &mut id);
        add(
            &mut image,
            plan.map(|plan| plan.records).unwrap_or_default(),
        );
    }
    let topics: Vec<TopicId> = image.topics().map(|topic| topic.id).collect();
    let Some((&first, &last)) = topics.first().zip(topics.last()) else {
        return history;
    };
    let partition = PartitionId {
        topic: first,
        partition: PartitionIndex(0),
    };
    let log_id = image
        .replica(partition, broker)
        .map_or(LogId::ZERO, |replica| replica.log_id);
    let further = vec![
        MetadataRecord::LogBegun { partition, log_id },
        MetadataRecord::TopicSettingsChanged {
            topic: first,
            settings: TopicSettings::default(),
        },
        MetadataRecord::CoresChanged {
            broker,
            cores: 3,
            placements: vec![(partition, CoreIndex(2))],
        },
        MetadataRecord::ProducerIdBlockGranted {
            broker,
            first: ProducerId(0),
            count: 1_000,
        },
        MetadataRecord::TopicDeleted { topic: last },
    ];
    add(&mut image, further);
    history
}

fn image() -> Image {
    let mut image = Image::new();
    for record in history() {
        let _ = image.apply(&record);
    }
    image
}

fn record_samples() -> Vec<Vec<u8>> {
    let history = history();
    let whole = history.iter().flat_map(MetadataRecord::encode).collect();
    let mut samples: Vec<Vec<u8>> = history.iter().map(MetadataRecord::encode).collect();
    samples.push(whole);
    samples
}

fn producer_samples() -> Vec<Vec<u8>> {
    vec![
        ProducerTable::default().snapshot().to_vec(),
        producer_table().snapshot().to_vec(),
    ]
}

/// Three producers with a few batches each.
fn producer_table() -> ProducerTable {
    let mut table = ProducerTable::default();
    let mut offset = 0;
    for sequence in 0..4 {
        for producer in 7..10 {
            let batch = super::batches::batch(Codec::None, 3, Some((producer, sequence * 3)));
            let Ok(header) = BatchHeader::parse(&batch) else {
                continue;
            };
            table.record(&header, Offset(offset), LeaderEpoch(1), 1_000 + offset);
            offset += 3;
        }
    }
    table
}

/// The snapshot that the scenarios of logs carry.
pub(super) fn producers_snapshot() -> Bytes {
    producer_table().snapshot()
}
