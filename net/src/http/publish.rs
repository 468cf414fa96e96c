//! The body of `POST /v1/topics/{topic}/messages:publish`, and what its answer means.
//!
//! What is wrong with the request's text refuses the whole request with 400, and nothing is stored: bad
//! JSON or base64, a payload given twice or not at all, a reserved header name, half a producer
//! identity, a message of a producer without `partition` and `sequence`. The detail names the message.
//!
//! What is wrong with one message only refuses that message: a record above `INLINE_BYTES_MAX`, a
//! partition that is not there, a time stamp too far ahead. The others go on. Under a producer id a
//! refused message leaves a gap, so all later messages of its partition in the request are refused too,
//! as `out_of_order_sequence_number`: otherwise a producer that is not yet known could begin past it.
//!
//! The answer has one entry per message, in their order: `status` is `stored`, `repeat` (a producer's
//! message that was stored before), `rejected` (not stored, `error` says why) or `unknown` (may or may not
//! be stored: no answer in time, or the disk failed). HTTP status 200 if at least one is `stored` or
//! `repeat`; `failed` counts the others. If none is, the answer is a problem with the status of the
//! first refusal, and the entries stand in its member `messages`.
//!
//! `message_id` is kept in the record header `corelog.message-id`. A message without one gets 32 hex
//! digits from the broker. A `repeat` answers only an id that the request gave: what the broker chose the
//! first time stands in the log.

use std::fmt;
use std::marker::PhantomData;

use corelog_engine::identity::Producer;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::body::{Field, Text, bounded};
use super::limits::{MESSAGE_HEADERS_MAX, PUBLISH_MESSAGES_MAX};
use super::problem::Problem;

/// The body of a publish; text is borrowed from it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishBody<'a> {
    #[serde(borrow, deserialize_with = "bounded::<_, _, PUBLISH_MESSAGES_MAX>")]
    pub(super) messages: Vec<PublishMessage<'a>>,
    producer_id: Option<u64>,
    producer_epoch: Option<u16>,
}

impl PublishBody<'_> {
    /// How many messages there are.
    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// The producer, if one was named.
    pub(super) fn producer(&self) -> Result<Option<Producer>, Problem> {
        super::producers::producer(self.producer_id, self.producer_epoch)
    }
}

/// One message of a publish.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishMessage<'a> {
    #[serde(borrow, default)]
    pub(super) message_key: Field<'a>,
    #[serde(borrow, default)]
    pub(super) message_key_base64: Field<'a>,
    #[serde(borrow, default)]
    pub(super) message_id: Field<'a>,
    #[serde(borrow, default)]
    pub(super) headers: Headers<'a>,
    #[serde(borrow, default)]
    pub(super) payload: Field<'a>,
    #[serde(borrow, default)]
    pub(super) payload_base64: Field<'a>,
    pub(super) partition: Option<u32>,
    pub(super) sequence: Option<u32>,
    pub(super) created_at_ms: Option<u64>,
}

/// Headers in the order of the text: an object of names to strings, or, where a name repeats or a value
/// is not UTF-8, a list of objects.
#[derive(Debug, Default)]
pub(super) struct Headers<'a>(pub(super) Vec<MessageHeader<'a>>);

/// One header, as an element of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageHeader<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) value: Field<'a>,
    #[serde(borrow, default)]
    pub(super) value_base64: Field<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Headers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeadersVisitor<'a>(PhantomData<Headers<'a>>);
        impl<'de: 'a, 'a> Visitor<'de> for HeadersVisitor<'a> {
            type Value = Headers<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "at most {MESSAGE_HEADERS_MAX} headers: an object of names to strings, or a list of \
                     {{name, value}} and {{name, value_base64}}"
                )
            }
            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Headers::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut headers = Vec::new();
                while let Some((name, value)) = map.next_entry()? {
                    check_room(&headers)?;
                    headers.push(MessageHeader {
                        name,
                        value,
                        value_base64: Field::Absent,
                    });
                }
                Ok(Headers(headers))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut headers = Vec::new();
                while let Some(header) = list.next_element()? {
                    check_room(&headers)?;
                    headers.push(header);
                }
                Ok(Headers(headers))
            }
        }
        deserializer.deserialize_any(HeadersVisitor(PhantomData))
    }
}

fn check_room<E: Error>(headers: &[MessageHeader<'_>]) -> Result<(), E> {
    if headers.len() == MESSAGE_HEADERS_MAX {
        return Err(E::custom(format_args!(
            "more than {MESSAGE_HEADERS_MAX} headers in one message"
        )));
    }
    Ok(())
}
