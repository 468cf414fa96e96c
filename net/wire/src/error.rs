//! Why bytes were refused, and why a message could not be written.

use core::fmt;

/// Why bytes from the network were not accepted.
///
/// None of these is the fault of this process: the answer is to refuse the request, and for most
/// callers to close the connection, because the position of the next field is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// A field needs more bytes than are left.
    Truncated {
        /// Bytes that the field needs.
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A length below zero where null is not allowed, or below -1.
    NegativeLength(i64),
    /// Null where this version of the message has no null.
    UnexpectedNull,
    /// An array claims more elements than one array may hold.
    ArrayTooLong {
        /// Elements claimed.
        elements: usize,
        /// The limit, from [`crate::DecodeLimits`].
        elements_max: usize,
    },
    /// All arrays of a message together claim more elements than a message may hold.
    TooManyElements {
        /// The limit, from [`crate::DecodeLimits`].
        elements_max: usize,
    },
    /// A tagged-field section claims more fields than allowed.
    TooManyTaggedFields {
        /// Fields claimed.
        fields: usize,
        /// The limit, from [`crate::DecodeLimits`].
        fields_max: usize,
    },
    /// Tags must rise strictly within a section (KIP-482).
    TagOutOfOrder(u32),
    /// A tagged field is longer than what its type reads.
    TaggedFieldSize {
        /// The tag.
        tag: u32,
        /// Bytes of it that nothing reads.
        left: usize,
    },
    /// A string is not UTF-8.
    InvalidUtf8,
    /// A variable-length integer does not fit its type.
    VarintOverflow,
    /// Bytes are left after the last field.
    TrailingBytes(usize),
    /// This version of the message is not built here.
    UnsupportedVersion {
        /// Numeric API key.
        api_key: i16,
        /// The version asked for.
        version: i16,
    },
    /// No message with this key is built here.
    UnknownApiKey(i16),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, remaining } => {
                write!(f, "field needs {needed} bytes, {remaining} are left")
            }
            Self::NegativeLength(length) => write!(f, "length {length} is not allowed"),
            Self::UnexpectedNull => write!(f, "null is not allowed here"),
            Self::ArrayTooLong {
                elements,
                elements_max,
            } => write!(f, "array of {elements} elements, limit {elements_max}"),
            Self::TooManyElements { elements_max } => {
                write!(f, "message holds more than {elements_max} elements")
            }
            Self::TooManyTaggedFields { fields, fields_max } => {
                write!(f, "{fields} tagged fields, limit {fields_max}")
            }
            Self::TagOutOfOrder(tag) => write!(f, "tag {tag} is out of order"),
            Self::TaggedFieldSize { tag, left } => {
                write!(f, "tagged field {tag} has {left} bytes too many")
            }
            Self::InvalidUtf8 => write!(f, "string is not UTF-8"),
            Self::VarintOverflow => write!(f, "variable-length integer is too large"),
            Self::TrailingBytes(bytes) => write!(f, "{bytes} bytes after the last field"),
            Self::UnsupportedVersion { api_key, version } => {
                write!(f, "version {version} of api {api_key} is not supported")
            }
            Self::UnknownApiKey(api_key) => write!(f, "api {api_key} is not known"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Why a message could not be written. The message, not the peer, is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// This version of the message is not built here.
    UnsupportedVersion {
        /// Numeric API key.
        api_key: i16,
        /// The version asked for.
        version: i16,
    },
    /// A string is longer than its length field can say.
    StringTooLong {
        /// Bytes of the string.
        bytes: usize,
    },
    /// A byte field, an array or the whole frame is longer than its length field can say.
    LengthOverflow {
        /// The length.
        length: usize,
    },
    /// The field carries a meaning that this version cannot express; dropping it would change the
    /// request.
    FieldNotInVersion {
        /// Name of the field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UnsupportedVersion { api_key, version } => {
                write!(f, "version {version} of api {api_key} is not supported")
            }
            Self::StringTooLong { bytes } => write!(f, "string of {bytes} bytes is too long"),
            Self::LengthOverflow { length } => write!(f, "length {length} is too large"),
            Self::FieldNotInVersion { field, version } => {
                write!(f, "version {version} cannot carry {field}")
            }
        }
    }
}

impl std::error::Error for EncodeError {}
