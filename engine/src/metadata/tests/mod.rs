#![allow(clippy::unwrap_used, clippy::panic)]

mod applying;
mod deciding;
mod encoding;
mod generators;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::decisions::{
    BrokerStart, TopicDefaults, TopicPlan, TopicRequest, create_topic, start_broker,
};
use super::{DEFAULT_TENANT, Image, MetadataRecord, Refusal};
use crate::disk::DiskLevel;
use crate::identity::{BrokerId, ProcessId};

const BROKER: BrokerId = BrokerId(1);

/// Ids that count up: distinct, and the same in every run.
fn counting() -> impl FnMut() -> [u8; 16] {
    let mut next = 0_u128;
    move || {
        next += 1;
        next.to_be_bytes()
    }
}

fn start(broker: BrokerId, process: u8, cores: u16) -> BrokerStart {
    BrokerStart {
        broker,
        process: ProcessId([process; 16]),
        zone: alloc::format!("zone-{broker}"),
        cores,
        addresses: Vec::new(),
    }
}

fn apply_all(image: &mut Image, records: &[MetadataRecord]) {
    for record in records {
        image.apply(record).unwrap();
    }
}

fn image_with_broker(cores: u16) -> Image {
    let mut image = Image::new();
    let records = start_broker(&image, &start(BROKER, 1, cores)).unwrap();
    apply_all(&mut image, &records);
    image
}

fn request(name: &str, partitions: i32) -> TopicRequest {
    TopicRequest {
        tenant: DEFAULT_TENANT.to_string(),
        name: name.to_string(),
        partitions,
        replication_factor: -1,
        ..TopicRequest::default()
    }
}

fn config(key: &str, value: &str) -> (String, Option<String>) {
    (key.to_string(), Some(value.to_string()))
}

fn plan(
    image: &Image,
    request: &TopicRequest,
    ids: &mut dyn FnMut() -> [u8; 16],
) -> Result<TopicPlan, Refusal> {
    let defaults = TopicDefaults::default();
    create_topic(image, request, &defaults, DiskLevel::Normal, ids)
}

fn create(image: &mut Image, request: &TopicRequest, ids: &mut dyn FnMut() -> [u8; 16]) {
    let planned = plan(image, request, ids).unwrap();
    apply_all(image, &planned.records);
}
