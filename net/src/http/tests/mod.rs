//! Tests that need more than one module: what is published, fetched and shared out.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fetch;
mod group;
mod messages;
mod publish;
mod reference;

use std::num::NonZeroU32;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions, Codec, HeaderRef, stamp};
use corelog_engine::limits::{BATCH_BYTES_MAX, INLINE_BYTES_MAX};
use corelog_engine::time::Wall;
use serde_json::Value;

use super::{Answer, PublishContext};

const NOW_MS: u64 = 1_700_000_000_000;

fn context() -> PublishContext {
    PublishContext {
        partitions: NonZeroU32::new(4).unwrap(),
        batch_bytes_max: BATCH_BYTES_MAX,
        inline_bytes_max: INLINE_BYTES_MAX,
        now: Wall(NOW_MS),
        unkeyed: 2,
        message_id_seed: 0xff,
    }
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// A batch as it stands in the log: values from `values`, at `base_offset`.
fn stored(base_offset: i64, codec: Codec, values: &[&[u8]]) -> Bytes {
    stored_with(
        base_offset,
        BatchOptions {
            codec,
            ..BatchOptions::default()
        },
        values,
    )
}

fn stored_with(base_offset: i64, options: BatchOptions, values: &[&[u8]]) -> Bytes {
    let mut builder = BatchBuilder::new(options);
    let header = HeaderRef {
        key: b"h",
        value: Some(b"1"),
    };
    for value in values {
        builder
            .append(1_000, Some(b"k"), Some(value), &[header])
            .unwrap();
    }
    let mut batch = builder.build().unwrap();
    stamp(&mut batch, base_offset, 1);
    batch.freeze()
}
