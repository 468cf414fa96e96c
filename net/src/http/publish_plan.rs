//! A publish as record batches.
//!
//! Invariants:
//!
//! 1. Every message of the request either stands in exactly one planned batch or has a refusal.
//! 2. Messages of one partition keep their order, within and across batches.
//! 3. Under a producer id the records of a batch have consecutive sequences, and no message is planned
//!    behind a refused one of its partition.
//! 4. No planned record is above the inline limit, and no batch above the topic's limit, as the engine
//!    measures them; so the engine refuses no batch for the size of one message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions, BuildError, HeaderRef, partition_for_key};
use corelog_engine::identity::{PartitionIndex, Producer, Sequence};
use corelog_engine::limits::TIMESTAMP_AHEAD_MS_MAX;
use corelog_engine::rejection::Rejection;

use corelog_engine::time::Wall;

use super::body::{DecodedField, Field, PairFault, bytes_of};
use super::limits::MESSAGE_ID_BYTES_MAX;
use super::problem::Problem;
use super::publish::{PublishBody, PublishMessage};
use super::{MESSAGE_ID_HEADER, RESERVED_HEADER_PREFIX};

/// What planning needs to know beside the body.
#[derive(Clone, Copy, Debug)]
pub struct PublishContext {
    /// Partitions of the topic.
    pub partitions: NonZeroU32,
    /// The topic's largest batch, in bytes.
    pub batch_bytes_max: usize,
    /// Largest record kept inline, in bytes: key, payload, headers and id.
    pub inline_bytes_max: usize,
    /// The clock: creation time of messages that name none, and judge of those that do.
    pub now: Wall,
    /// Chooses the partition of all messages of this request that have neither key nor partition, modulo
    /// the count. A number that rises from request to request spreads them.
    pub unkeyed: u32,
    /// Random bits; message `n` without an id gets this plus `n`.
    pub message_id_seed: u128,
}

/// What to append, and what became of each message so far.
#[derive(Debug)]
pub struct PublishPlan {
    /// To publish one by one, those of one partition in this order.
    pub batches: Vec<PlannedBatch>,
    /// One per message of the request, in its order.
    pub messages: Vec<PlannedMessage>,
}

/// One batch of one partition.
#[derive(Debug)]
pub struct PlannedBatch {
    /// Where to.
    pub partition: PartitionIndex,
    /// The record batch, uncompressed, without offset.
    pub bytes: Bytes,
    /// The message of each record, as an index into the request.
    pub messages: Vec<u32>,
}

/// One message of the request.
#[derive(Debug)]
pub struct PlannedMessage {
    /// Where it goes.
    pub partition: PartitionIndex,
    /// Its id.
    pub message_id: String,
    /// Whether the request gave the id.
    pub message_id_given: bool,
    /// Why it goes nowhere.
    pub refusal: Option<MessageRefusal>,
}

/// Why one message is not even tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRefusal {
    /// The refusal.
    pub rejection: Rejection,
    /// What exactly.
    pub detail: String,
}

/// Builds the batches of a publish.
///
/// # Errors
///
/// 400 for a request whose text is wrong; see [`super::publish`].
pub fn plan_publish(
    body: &PublishBody<'_>,
    context: &PublishContext,
) -> Result<PublishPlan, Problem> {
    if body.messages.is_empty() {
        return Err(Problem::invalid("messages must not be empty"));
    }
    let producer = body.producer()?;
    let mut partitions = BTreeMap::new();
    let mut plan = PublishPlan {
        batches: Vec::new(),
        messages: Vec::with_capacity(body.messages.len()),
    };
    for (index, message) in (0_u32..).zip(&body.messages) {
        let record = read_message(message, producer.is_some(), index, context)
            .map_err(|fault| Problem::invalid(format!("message {index}: {fault}")))?;
        let writer: &mut PartitionWriter = partitions.entry(record.partition).or_default();
        let refusal = match refuse_record(&record, context) {
            Some(refusal) => {
                writer.has_gap |= producer.is_some();
                Some(refusal)
            }
            None => writer.append(&record, index, producer, context, &mut plan.batches),
        };
        plan.messages.push(PlannedMessage {
            partition: PartitionIndex(record.partition),
            message_id: record.message_id.into_owned(),
            message_id_given: record.message_id_given,
            refusal,
        });
    }
    for (partition, writer) in partitions {
        writer.finish(partition, &mut plan.batches);
    }
    Ok(plan)
}

/// A message, read and decoded.
struct Record<'m> {
    partition: u32,
    sequence: Option<Sequence>,
    created_at_ms: u64,
    key: DecodedField<'m>,
    payload: DecodedField<'m>,
    headers: Vec<(&'m str, DecodedField<'m>)>,
    message_id: Cow<'m, str>,
    message_id_given: bool,
}

impl Record<'_> {
    /// What the engine measures: key, value, header names and values.
    fn content_bytes(&self) -> usize {
        let length = |field: &DecodedField<'_>| field.as_deref().map_or(0, <[u8]>::len);
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + length(value))
            .sum();
        let id = MESSAGE_ID_HEADER.len() + self.message_id.len();
        length(&self.key) + length(&self.payload) + headers + id
    }
}

fn read_message<'m>(
    message: &'m PublishMessage<'_>,
    by_producer: bool,
    index: u32,
    context: &PublishContext,
) -> Result<Record<'m>, String> {
    let key = read_pair(
        &message.message_key,
        &message.message_key_base64,
        "message_key",
    )?;
    let payload = read_pair(&message.payload, &message.payload_base64, "payload")?;
    if payload == DecodedField::Absent {
        return Err("payload or payload_base64 is missing; null is a tombstone".into());
    }
    let mut headers = Vec::with_capacity(message.headers.0.len());
    for header in &message.headers.0 {
        let name = header.name.0.as_ref();
        if name.starts_with(RESERVED_HEADER_PREFIX) {
            return Err(format!(
                "header names that start with `{RESERVED_HEADER_PREFIX}` are the broker's own"
            ));
        }
        headers.push((
            name,
            read_pair(&header.value, &header.value_base64, "value")?,
        ));
    }
    let sequence = match (by_producer, message.sequence) {
        (true, Some(sequence)) if sequence <= i32::MAX as u32 => Some(Sequence(sequence)),
        (true, Some(_)) => return Err("sequence is 0 to 2^31 - 1".into()),
        (true, None) => return Err("with a producer_id each message names its sequence".into()),
        (false, Some(_)) => return Err("sequence means nothing without a producer_id".into()),
        (false, None) => None,
    };
    let partition = match (message.partition, key.as_deref()) {
        (Some(partition), _) => partition,
        (None, _) if by_producer => {
            return Err("with a producer_id each message names its partition".into());
        }
        (None, Some(key)) => partition_for_key(key, context.partitions),
        (None, None) => context.unkeyed % context.partitions,
    };
    let (message_id, message_id_given) = match &message.message_id {
        Field::Text(id) if id.0.is_empty() || id.0.len() > MESSAGE_ID_BYTES_MAX => {
            return Err(format!("message_id has 1 to {MESSAGE_ID_BYTES_MAX} bytes"));
        }
        Field::Text(id) => (Cow::Borrowed(id.0.as_ref()), true),
        Field::Absent | Field::Null => {
            let id = context.message_id_seed.wrapping_add(u128::from(index));
            (Cow::Owned(format!("{id:032x}")), false)
        }
    };
    Ok(Record {
        partition,
        sequence,
        created_at_ms: message.created_at_ms.unwrap_or(context.now.0),
        key,
        payload,
        headers,
        message_id,
        message_id_given,
    })
}

fn read_pair<'f>(
    plain: &'f Field<'_>,
    base64: &'f Field<'_>,
    name: &str,
) -> Result<DecodedField<'f>, String> {
    bytes_of(plain, base64).map_err(|fault| match fault {
        PairFault::Both => format!("{name} and {name}_base64 exclude each other"),
        PairFault::NotBase64 => format!("{name}_base64 is not base64 (RFC 4648, section 4)"),
    })
}

/// Why this record alone cannot be stored.
fn refuse_record(record: &Record<'_>, context: &PublishContext) -> Option<MessageRefusal> {
    let refusal = |rejection, detail| Some(MessageRefusal { rejection, detail });
    if record.partition >= context.partitions.get() {
        return refusal(
            Rejection::UnknownTopicOrPartition,
            format!(
                "the topic has partitions 0 to {}",
                context.partitions.get() - 1
            ),
        );
    }
    let content_bytes = record.content_bytes();
    if content_bytes > context.inline_bytes_max {
        return refusal(
            Rejection::MessageTooLarge,
            format!(
                "key, payload, headers and id have {content_bytes} bytes, at most {} are kept inline",
                context.inline_bytes_max
            ),
        );
    }
    let latest_ms = context.now.0.saturating_add(TIMESTAMP_AHEAD_MS_MAX);
    if record.created_at_ms > latest_ms || i64::try_from(record.created_at_ms).is_err() {
        return refusal(
            Rejection::InvalidTimestamp,
            format!("created_at_ms is at most {latest_ms} now"),
        );
    }
    None
}

/// The batch of one partition that is being built.
#[derive(Default)]
struct PartitionWriter {
    open: Option<OpenBatch>,
    /// A producer's message was refused, so whatever follows would leave a gap.
    has_gap: bool,
}

struct OpenBatch {
    builder: BatchBuilder,
    messages: Vec<u32>,
    next_sequence: Option<Sequence>,
}

impl PartitionWriter {
    fn append(
        &mut self,
        record: &Record<'_>,
        index: u32,
        producer: Option<Producer>,
        context: &PublishContext,
        batches: &mut Vec<PlannedBatch>,
    ) -> Option<MessageRefusal> {
        if self.has_gap {
            return Some(MessageRefusal {
                rejection: Rejection::OutOfOrderSequence,
                detail: "an earlier message of this partition was refused".into(),
            });
        }
        let mut headers = Vec::with_capacity(record.headers.len() + 1);
        headers.extend(record.headers.iter().map(|(name, value)| HeaderRef {
            key: name.as_bytes(),
            value: value.as_deref(),
        }));
        headers.push(HeaderRef {
            key: MESSAGE_ID_HEADER.as_bytes(),
            value: Some(record.message_id.as_bytes()),
        });
        let timestamp_ms = i64::try_from(record.created_at_ms).unwrap_or(i64::MAX);
        let append_to = |builder: &mut BatchBuilder| {
            let (key, payload) = (record.key.as_deref(), record.payload.as_deref());
            builder.append(timestamp_ms, key, payload, &headers)
        };
        if let Some(open) = &mut self.open
            && open.next_sequence == record.sequence
            && append_to(&mut open.builder).is_ok()
        {
            open.add(index);
            return None;
        }
        // Full, or the sequence makes a jump, or there is no batch yet: begin one.
        let mut builder = BatchBuilder::new(batch_options(record, producer, context));
        if let Err(error) = append_to(&mut builder) {
            self.has_gap |= producer.is_some();
            return Some(unfit_record(error));
        }
        self.finish_open(record.partition, batches);
        let open = self.open.insert(OpenBatch {
            builder,
            messages: Vec::new(),
            next_sequence: record.sequence,
        });
        open.add(index);
        None
    }

    fn finish(mut self, partition: u32, batches: &mut Vec<PlannedBatch>) {
        self.finish_open(partition, batches);
    }

    fn finish_open(&mut self, partition: u32, batches: &mut Vec<PlannedBatch>) {
        let Some(open) = self.open.take() else {
            return;
        };
        let built = open.builder.build();
        // Not empty, and no codec that could fail.
        let Ok(bytes) = built else {
            unreachable!("an open batch holds a record and is not compressed")
        };
        batches.push(PlannedBatch {
            partition: PartitionIndex(partition),
            bytes: bytes.freeze(),
            messages: open.messages,
        });
    }
}

impl OpenBatch {
    fn add(&mut self, index: u32) {
        self.messages.push(index);
        self.next_sequence = self.next_sequence.map(|sequence| sequence.plus(1));
    }
}

fn batch_options(
    record: &Record<'_>,
    producer: Option<Producer>,
    context: &PublishContext,
) -> BatchOptions {
    let options = BatchOptions {
        batch_bytes_max: context.batch_bytes_max,
        ..BatchOptions::default()
    };
    match (producer, record.sequence) {
        // All three were bounded when they were read.
        (Some(producer), Some(sequence)) => BatchOptions {
            producer_id: producer.id.get() as i64,
            producer_epoch: producer.epoch.get() as i16,
            base_sequence: sequence.get() as i32,
            ..options
        },
        _ => options,
    }
}

/// Why a record does not even fit into an empty batch.
fn unfit_record(error: BuildError) -> MessageRefusal {
    let rejection = match error {
        BuildError::Timestamp { .. } => Rejection::InvalidTimestamp,
        BuildError::Full { .. } | BuildError::Empty | BuildError::Compress { .. } => {
            Rejection::MessageTooLarge
        }
    };
    MessageRefusal {
        rejection,
        detail: error.to_string(),
    }
}
