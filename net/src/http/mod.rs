//! The HTTP face, `/v1`: method and path to a typed [`Route`], body bytes to typed requests, typed
//! answers to body bytes. `docs/http.md` is its reference.
//!
//! What a request passes through, in order:
//!
//! 1. [`route()`] tells what is asked, or 404 from 405.
//! 2. [`check_head`] refuses a body that is too large, compressed or of another type before it is read.
//! 3. [`parse_body`] reads JSON into one of the bodies of [`topics`], [`publish`], [`fetch`],
//!    [`offsets`], [`group`] or [`producers`]; unknown fields are refused.
//! 4. The module of that body turns it into what the engine is asked: [`plan_publish`] builds record
//!    batches, [`fetch::plan_fetch`] chooses partitions and offsets, and so on.
//! 5. The engine's answers become an [`Answer`]: JSON, or a [`Problem`].
//!
//! Invariants:
//!
//! 1. Every refusal has one shape, [`Problem`] (RFC 9457), and carries one Kafka code, one status and
//!    one retry class.
//! 2. No path, query, body or list is kept that is longer than its limit in [`limits`] or in
//!    `corelog_engine::limits`.
//! 3. Bytes that are UTF-8 leave as a JSON string, others as base64 under a name of its own, so what was
//!    published comes back byte for byte.
//! 4. Header names that start with [`RESERVED_HEADER_PREFIX`] are the broker's: no publish may bring one.

mod answer;
mod body;
pub mod consumer_protocol;
pub mod fetch;
pub mod group;
mod head;
pub mod limits;
mod messages;
pub mod offsets;
mod problem;
pub mod producers;
pub mod publish;
mod publish_answer;
mod publish_plan;
pub mod reset;
mod route;
pub mod topics;

#[cfg(test)]
mod tests;

pub use answer::{Answer, health_answer, metrics_answer};
pub use body::{Field, Text, parse_body};
pub use head::{Head, body_too_large, body_too_slow, check_head};
pub use messages::{Message, MessageReader, NextBatch, OpeningBatch, ReadFault};
pub use problem::{PROBLEM_CONTENT_TYPE, Problem, Retained};
pub use publish_answer::publish_answer;
pub use publish_plan::{
    MessageRefusal, PlannedBatch, PlannedMessage, PublishContext, PublishPlan, plan_publish,
};
pub use route::{Page, Route, route};

/// Record headers whose names start so belong to the broker.
pub const RESERVED_HEADER_PREFIX: &str = "corelog.";

/// The record header that carries a message's id.
pub const MESSAGE_ID_HEADER: &str = "corelog.message-id";
