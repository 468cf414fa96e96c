//! The HTTP calls on topics, messages and groups, as the tests make them: the one place that knows their bodies.

use std::io;

use serde_json::{Value, json};

use crate::http::Connection;

/// A message as it was read, by whatever face.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// The partition that holds it.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// Its key.
    pub key: Vec<u8>,
    /// Its payload.
    pub payload: Vec<u8>,
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Makes a topic.
///
/// # Errors
/// When it is refused.
pub fn create_topic(http: &mut Connection, topic: &str, partitions: u32) -> io::Result<()> {
    let body = json!({ "name": topic, "partitions": partitions });
    http.post("/v1/topics", &body).map(drop)
}

/// Publishes messages of a key and a payload each, in order.
///
/// # Errors
/// When the call is refused, or the answer does not give every message an offset.
pub fn publish(http: &mut Connection, topic: &str, messages: &[(&str, &str)]) -> io::Result<()> {
    let bodies: Vec<Value> = messages
        .iter()
        .map(|(key, payload)| json!({ "message_key": key, "payload": payload }))
        .collect();
    let path = format!("/v1/topics/{topic}/messages:publish");
    let answer = http.post(&path, &json!({ "messages": bodies }))?;
    let results = answer["messages"]
        .as_array()
        .map_or(&[] as &[Value], Vec::as_slice);
    let placed = results
        .iter()
        .filter(|result| result["offset"].as_i64().is_some_and(|offset| offset >= 0))
        .count();
    if placed == messages.len() {
        return Ok(());
    }
    let text = answer.to_string();
    Err(invalid(format!(
        "{placed} of {} messages have an offset: {text:.500}",
        messages.len()
    )))
}

/// Fetches what a group has not read yet.
///
/// # Errors
/// When the call is refused or the answer is not understood.
pub fn fetch(
    http: &mut Connection,
    group: &str,
    topic: &str,
    max_messages: usize,
    max_wait_ms: u64,
) -> io::Result<Vec<Message>> {
    let body = json!({ "topic": topic, "max_messages": max_messages, "max_wait_ms": max_wait_ms });
    let answer = http.post(&format!("/v1/groups/{group}/messages:fetch"), &body)?;
    let Some(messages) = answer["messages"].as_array() else {
        return Err(invalid(format!(
            "no messages in {:.500}",
            answer.to_string()
        )));
    };
    messages.iter().map(message).collect()
}

fn message(value: &Value) -> io::Result<Message> {
    let text = |name: &str| value[name].as_str().map(|text| text.as_bytes().to_vec());
    let number = |name: &str| {
        value[name]
            .as_i64()
            .ok_or_else(|| invalid(format!("no {name} in {:.500}", value.to_string())))
    };
    Ok(Message {
        partition: number("partition")? as i32,
        offset: number("offset")?,
        key: text("message_key").unwrap_or_default(),
        payload: text("payload")
            .ok_or_else(|| invalid(format!("no payload in {:.500}", value.to_string())))?,
    })
}

/// Commits that a group has read up to and with these messages.
///
/// # Errors
/// When the call is refused.
pub fn commit(http: &mut Connection, group: &str, topic: &str, read: &[Message]) -> io::Result<()> {
    let mut next = std::collections::BTreeMap::new();
    for message in read {
        let offset = next.entry(message.partition).or_insert(0);
        *offset = message.offset.max(*offset - 1) + 1;
    }
    let offsets: Vec<Value> = next
        .into_iter()
        .map(|(partition, offset)| json!({ "partition": partition, "offset": offset }))
        .collect();
    let body = json!({ "topic": topic, "offsets": offsets });
    http.post(&format!("/v1/groups/{group}/offsets:commit"), &body)
        .map(drop)
}
