//! What a topic may be called. The rules are Kafka's.

use alloc::format;
use alloc::string::String;

use super::{OFFSETS_TOPIC, Refusal};
use crate::limits::TOPIC_NAME_BYTES_MAX;
use crate::rejection::Rejection;

/// # Errors
/// [`Rejection::InvalidTopic`] for a name outside the rules.
pub fn check_topic_name(name: &str) -> Result<(), Refusal> {
    let refuse = |what: &str| Err(Refusal::new(Rejection::InvalidTopic, what));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => refuse("a topic name must not be empty"),
        "." | ".." => refuse("a topic name must not be . or .."),
        _ if name.len() > TOPIC_NAME_BYTES_MAX => Err(Refusal::new(
            Rejection::InvalidTopic,
            format!(
                "a topic name has at most {TOPIC_NAME_BYTES_MAX} bytes, this one {}",
                name.len()
            ),
        )),
        _ if !name.bytes().all(allowed) => {
            refuse("a topic name is made of a-z A-Z 0-9 . _ - and nothing else")
        }
        _ => Ok(()),
    }
}

/// Whether the broker keeps the name for itself.
pub fn is_reserved(name: &str) -> bool {
    name == OFFSETS_TOPIC
}

/// The name with every `.` as `_`, if it has either.
pub(super) fn folded(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}
