//! Everything that a broker holds, against everything that it promised.

use std::collections::{BTreeMap, HashMap};
use std::io;

use bytes::Bytes;
use corelog_batch::{batches, open, records, verify_stored_batch};
use corelog_wire::ErrorCode;

use super::ledger::{Digest, Place, Promises};
use super::{GROUP, PARTITIONS, TOPIC};
use crate::kafka::Connection;

const OPENED_BYTES_MAX: usize = 64 << 20;

/// A record as it was read.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its offset.
    pub offset: i64,
    /// Its key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

impl Stored {
    /// Names its content.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.key, &self.value)
    }

    /// The number that rises within its key.
    fn number(&self) -> Option<u64> {
        let text = std::str::from_utf8(&self.value).ok()?;
        text.split(' ').next()?.parse().ok()
    }
}

/// The records of fetched batches, each verified, opened and whole. The last one may be cut off, as a fetch may end
/// within a batch.
///
/// # Errors
/// What is wrong with which batch.
pub fn records_of(bytes: Bytes) -> Result<Vec<Stored>, String> {
    let mut found = Vec::new();
    for batch in batches(bytes) {
        let (_, batch) = match batch {
            Err(error) if error.is_incomplete() && !found.is_empty() => break,
            other => other.map_err(|error| format!("a batch: {error}"))?,
        };
        let at = |error: &dyn std::fmt::Display| {
            format!("the batch behind {} records: {error}", found.len())
        };
        let header = verify_stored_batch(&batch).map_err(|error| at(&error))?;
        let body = open(&batch, OPENED_BYTES_MAX).map_err(|error| at(&error))?;
        let mut of_batch = Vec::new();
        for record in records(&header, body) {
            let record = record.map_err(|error| at(&error))?;
            of_batch.push(Stored {
                offset: record.offset(&header),
                key: record.key.unwrap_or_default(),
                value: record.value.unwrap_or_default(),
            });
        }
        if i32::try_from(of_batch.len()) != Ok(header.record_count) {
            return Err(at(&format!(
                "{} of {} records",
                of_batch.len(),
                header.record_count
            )));
        }
        found.extend(of_batch);
    }
    Ok(found)
}

/// Reads a partition from its first record to its watermark.
///
/// # Errors
/// When the broker cannot be asked; what is wrong with its answers goes to `violations`.
pub fn read_partition(
    connection: &mut Connection,
    partition: i32,
    violations: &mut Vec<String>,
) -> io::Result<Vec<Stored>> {
    let mut found: Vec<Stored> = Vec::new();
    loop {
        let next = found.last().map_or(0, |record| record.offset + 1);
        let fetched = connection.fetch(TOPIC, partition, next)?;
        if fetched.error_code != ErrorCode::NONE {
            violations.push(format!(
                "partition {partition} at {next}: {:?}",
                fetched.error_code
            ));
            return Ok(found);
        }
        match records_of(fetched.records.to_bytes()) {
            Ok(records) => found.extend(records.into_iter().filter(|record| record.offset >= next)),
            Err(what) => {
                violations.push(format!("partition {partition} at {next}: {what}"));
                return Ok(found);
            }
        }
        let end = found.last().map_or(0, |record| record.offset + 1);
        if end >= fetched.high_watermark {
            return Ok(found);
        }
        if end == next {
            violations.push(format!(
                "partition {partition}: nothing at {next}, below the watermark"
            ));
            return Ok(found);
        }
    }
}

/// What of `promises`, which were made before the broker's last start, it did not keep. The load may run on.
///
/// # Errors
/// When the broker cannot be asked.
pub fn check(
    kafka_address: &str,
    promises: &Promises,
    attempted_now: &dyn Fn() -> Promises,
) -> io::Result<Vec<String>> {
    let mut violations = promises.violations.clone();
    let mut connection = Connection::open(kafka_address)?;
    let mut held: BTreeMap<Place, Digest> = BTreeMap::new();
    let mut places: HashMap<Digest, Place> = HashMap::new();
    let mut numbers: HashMap<Bytes, u64> = HashMap::new();
    for partition in 0..PARTITIONS {
        let records = read_partition(&mut connection, partition, &mut violations)?;
        for (due, record) in (0..).zip(&records) {
            let place = (partition, record.offset);
            if record.offset != due {
                violations.push(format!("{place:?} stands where offset {due} is due"));
                break;
            }
            if let Some(other) = places.insert(record.digest(), place) {
                violations.push(format!("{place:?} is a repeat of {other:?}"));
            }
            let number = record.number();
            let before = numbers.insert(record.key.clone(), number.unwrap_or(0));
            if before >= number {
                violations.push(format!("{place:?} is out of order within its key"));
            }
            held.insert(place, record.digest());
        }
    }
    for (what, promised) in [("acknowledged", &promises.stored), ("read", &promises.seen)] {
        let broken = promised
            .iter()
            .filter(|(place, digest)| held.get(*place) != Some(digest));
        violations.extend(broken.take(10).map(|(place, _)| match held.get(place) {
            None => format!("{place:?} was {what} and is lost"),
            Some(_) => format!("{place:?} was {what} and is another record now"),
        }));
    }
    let attempted = attempted_now().attempted;
    let invented = held
        .iter()
        .filter(|(_, digest)| !attempted.contains(*digest));
    violations.extend(
        invented
            .take(10)
            .map(|(place, _)| format!("{place:?} was never published")),
    );
    for (partition, commits) in &promises.commits {
        let committed = connection.committed(GROUP, TOPIC, *partition)?;
        if committed < commits.acknowledged {
            let promised = commits.acknowledged;
            violations.push(format!(
                "partition {partition}: {promised} was committed, {committed} is known"
            ));
        }
    }
    Ok(violations)
}
