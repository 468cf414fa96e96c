//! The protocol's primitive types and how they stand in bytes.

mod reader;
mod records;
mod string;
mod uuid;
mod value;
mod writer;

pub use reader::Reader;
pub use records::Records;
pub use string::WireString;
pub use uuid::Uuid;
pub use value::{Form, Value};
pub use writer::{EncodedBytes, FRAME_LENGTH_BYTES, Writer};
