//! The Kafka wire protocol: bounded decoding and encoding, in both directions.
//!
//! A broker takes frames off a connection ([`frame::take_frame`]), reads their header
//! ([`frame::decode_request_header`]) and body ([`AnyRequest::decode`] or [`Message::decode`]), and
//! answers with [`frame::encode_response`]. A client goes the other way with
//! [`frame::encode_request`] and [`frame::decode_response`].
//!
//! Invariants:
//! 1. Bytes from the network never cause a panic, and never make more memory be reserved than
//!    [`DecodeLimits`] and the frame's own size allow.
//! 2. Strings, byte fields and record batches are slices of the frame when decoded, and record
//!    batches are chunks of their own when encoded: record bytes are never copied.
//! 3. Tagged fields that hold their default are not written.
//!
//! Source: the protocol guide and message descriptions of Apache Kafka 4; KIP-482 for flexible
//! versions.

mod api;
mod definition;
mod error;
pub mod error_code;
pub mod frame;
mod limits;
pub mod messages;
pub mod primitives;
mod produce_walk;
#[cfg(test)]
mod tests;

pub use api::{
    API_VERSIONS, AnyRequest, AnyResponse, ApiKey, ApiVersionRange, Message, Request, Response,
};
pub use error::{DecodeError, EncodeError};
pub use error_code::ErrorCode;
pub use limits::DecodeLimits;
pub use messages::*;
pub use primitives::{EncodedBytes, Form, Reader, Records, Uuid, Value, WireString, Writer};
pub use produce_walk::{ProducePartition, ProducePartitions, ProduceWalk};
