//! Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes,
//! and hears only of partitions with news.
//!
//! Invariants:
//! 1. A session answers the epoch that follows the last one, and no other.
//! 2. A partition leaves an answer only if the client was told everything that it would say.

use std::collections::BTreeMap;

use corelog_wire::{EpochAndEndOffset, ErrorCode, FetchPartitionData, FetchRequest};

use super::TopicKey;
use super::fetch::{TOPIC_IDS_FROM, WantedPartition, wanted_partitions};

/// Epoch that opens a session.
const OPENING: i32 = 0;
/// Epoch of a fetch without session, or of the end of one.
const SESSIONLESS: i32 = -1;

/// About what one partition of a session takes in memory, in bytes.
pub const PARTITION_BYTES: usize = 256;

/// Which session a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionUse {
    /// None; a session named all the same ends.
    None {
        /// The session that ends.
        ends: Option<i32>,
    },
    /// A new one; a session named all the same ends.
    Open {
        /// The session that ends.
        ends: Option<i32>,
    },
    /// The next fetch of this one.
    Continue {
        /// The session.
        id: i32,
        /// Its epoch.
        epoch: i32,
    },
}

impl SessionUse {
    /// What a request says. Below version 7 there are no sessions.
    pub fn of(request: &FetchRequest) -> Self {
        let ends = (request.session_id != 0).then_some(request.session_id);
        match request.session_epoch {
            SESSIONLESS => Self::None { ends },
            OPENING => Self::Open { ends },
            epoch => Self::Continue {
                id: request.session_id,
                epoch,
            },
        }
    }
}

#[derive(Clone, Debug)]
struct SessionPartition {
    wanted: WantedPartition,
    /// Watermark and log start as the client knows them; `None` after an error or before any
    /// answer.
    told: Option<(i64, i64)>,
}

/// One session of one client.
#[derive(Clone, Debug)]
pub struct FetchSession {
    next_epoch: i32,
    is_by_id: bool,
    partitions: BTreeMap<(TopicKey, i32), SessionPartition>,
}

impl FetchSession {
    /// The session that a full fetch opens.
    pub fn open(request: &FetchRequest, version: i16) -> Self {
        let mut session = Self {
            next_epoch: 1,
            is_by_id: version >= TOPIC_IDS_FROM,
            partitions: BTreeMap::new(),
        };
        session.take(request, version);
        session
    }

    /// How many partitions it has.
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Takes the next incremental fetch in.
    ///
    /// # Errors
    /// `INVALID_FETCH_SESSION_EPOCH`, `FETCH_SESSION_TOPIC_ID_ERROR`: the client opens a new session
    /// then; nothing has changed here.
    pub fn advance(
        &mut self,
        epoch: i32,
        request: &FetchRequest,
        version: i16,
    ) -> Result<(), ErrorCode> {
        if epoch != self.next_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if self.is_by_id != (version >= TOPIC_IDS_FROM) {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        self.next_epoch = epoch.checked_add(1).unwrap_or(1);
        for topic in &request.forgotten_topics_data {
            let key = TopicKey::new(&topic.topic, topic.topic_id, self.is_by_id);
            for partition in &topic.partitions {
                self.partitions.remove(&(key.clone(), *partition));
            }
        }
        self.take(request, version);
        Ok(())
    }

    fn take(&mut self, request: &FetchRequest, version: i16) {
        for wanted in wanted_partitions(request, version) {
            let key = (wanted.topic.clone(), wanted.index);
            match self.partitions.get_mut(&key) {
                Some(known) => known.wanted = wanted,
                None => {
                    let told = None;
                    self.partitions
                        .insert(key, SessionPartition { wanted, told });
                }
            }
        }
    }

    /// All its partitions, in a fixed order.
    pub fn wanted(&self) -> Vec<WantedPartition> {
        self.partitions
            .values()
            .map(|partition| partition.wanted.clone())
            .collect()
    }

    /// Whether the client must hear this; if so it is taken to know it from now on.
    pub fn has_news(&mut self, topic: &TopicKey, data: &FetchPartitionData) -> bool {
        let key = (topic.clone(), data.partition_index);
        let Some(partition) = self.partitions.get_mut(&key) else {
            return true;
        };
        // A reader that diverges hears it until it has gone back, as one that is refused.
        let is_refused =
            !data.error_code.is_none() || data.diverging_epoch != EpochAndEndOffset::default();
        let tells = (data.high_watermark, data.log_start_offset);
        let is_news = is_refused || !data.records.is_empty() || partition.told != Some(tells);
        partition.told = (!is_refused).then_some(tells);
        is_news
    }
}
