//! A log entry as bytes: `version u8, crc32c u32, term u64, node u64, index u64, kind u8, payload`,
//! little-endian; the checksum covers what follows it.

use openraft::{CommittedLeaderId, EntryPayload};

use crate::types::{Entry, LogId, Proposal};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 30;

const BLANK: u8 = 0;
const RECORDS: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// The entry's bytes.
pub(crate) fn encode(entry: &Entry) -> Result<Vec<u8>, String> {
    let (kind, payload) = match &entry.payload {
        EntryPayload::Blank => (BLANK, Vec::new()),
        EntryPayload::Normal(proposal) => (RECORDS, proposal.records.clone()),
        EntryPayload::Membership(membership) => {
            let bytes = serde_json::to_vec(membership).map_err(|error| error.to_string())?;
            (MEMBERSHIP, bytes)
        }
    };
    let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&entry.log_id.leader_id.term.to_le_bytes());
    bytes.extend_from_slice(&entry.log_id.leader_id.node_id.to_le_bytes());
    bytes.extend_from_slice(&entry.log_id.index.to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(&payload);
    let crc = crc32c::crc32c(bytes.get(5..).unwrap_or_default());
    if let Some(field) = bytes.get_mut(1..5) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
    Ok(bytes)
}

/// The entry that these bytes are, at this index.
pub(crate) fn decode(index: u64, bytes: &[u8]) -> Result<Entry, String> {
    let (version, rest) = bytes.split_first().ok_or("a log entry is empty")?;
    if *version != VERSION {
        return Err(format!(
            "the metadata log has entries of version {version}, this build reads up to {VERSION}: \
             start a newer corelog"
        ));
    }
    let short = "a log entry ends too early";
    let (crc, covered) = rest.split_first_chunk::<4>().ok_or(short)?;
    if crc32c::crc32c(covered) != u32::from_le_bytes(*crc) {
        return Err(format!("log entry {index} does not match its checksum"));
    }
    let (term, rest) = covered.split_first_chunk::<8>().ok_or(short)?;
    let (node, rest) = rest.split_first_chunk::<8>().ok_or(short)?;
    let (stored_index, rest) = rest.split_first_chunk::<8>().ok_or(short)?;
    let (kind, payload) = rest.split_first().ok_or(short)?;
    if u64::from_le_bytes(*stored_index) != index {
        return Err(format!("log entry {index} stands in another's place"));
    }
    let leader = CommittedLeaderId::new(u64::from_le_bytes(*term), u64::from_le_bytes(*node));
    let payload = match *kind {
        BLANK => EntryPayload::Blank,
        RECORDS => EntryPayload::Normal(Proposal {
            records: payload.to_vec(),
        }),
        MEMBERSHIP => EntryPayload::Membership(
            serde_json::from_slice(payload).map_err(|error| error.to_string())?,
        ),
        other => return Err(format!("log entry {index} is of unknown kind {other}")),
    };
    Ok(Entry {
        log_id: LogId::new(leader, index),
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            log_id: LogId::new(CommittedLeaderId::new(3, 7), 42),
            payload: EntryPayload::Normal(Proposal {
                records: vec![1, 2, 3],
            }),
        }
    }

    #[test]
    fn an_entry_comes_back_as_it_was() {
        let back = decode(42, &encode(&entry()).unwrap()).unwrap();
        assert_eq!(back.log_id, entry().log_id);
        match back.payload {
            EntryPayload::Normal(proposal) => assert_eq!(proposal.records, vec![1, 2, 3]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_cut_every_flip_and_a_foreign_index_are_refused() {
        let bytes = encode(&entry()).unwrap();
        for end in 0..bytes.len() {
            assert!(decode(42, &bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(decode(42, &bad).is_err(), "bit {at} flipped");
        }
        assert!(decode(43, &bytes).is_err());
    }
}
