//! The incremental fetch sessions of one connection.
//!
//! A session lives on the connection that opened it and ends with it: a client that comes back on
//! another connection hears that the session is unknown and opens a new one. So no two cores need to
//! agree on ids. What sessions keep is taken from the core's budget; where there is no room, a
//! client gets no session and names its partitions each time.

use std::cell::RefCell;
use std::rc::Rc;

use corelog_net::kafka::fetch::WantedPartition;
use corelog_net::kafka::fetch_session::{FetchSession, PARTITION_BYTES};
use corelog_wire::{ErrorCode, FetchRequest};
use futures_lite::future::poll_once;

use crate::randomness::random_id;
use crate::shard::{Reservation, Shard};

/// Most sessions of one connection; a client has one. The oldest gives way.
const SESSIONS_PER_CONNECTION_MAX: usize = 4;

struct Kept {
    id: i32,
    session: FetchSession,
    reserved: Vec<Reservation>,
    reserved_partitions: usize,
}

/// The sessions of one connection.
pub(super) struct FetchSessions {
    shard: Rc<Shard>,
    kept: RefCell<Vec<Kept>>,
}

impl FetchSessions {
    /// None yet.
    pub fn new(shard: Rc<Shard>) -> Self {
        Self {
            shard,
            kept: RefCell::default(),
        }
    }

    /// Opens a session with what a full fetch names. 0: there is no room for one.
    pub async fn open(&self, request: &FetchRequest, version: i16) -> i32 {
        let session = FetchSession::open(request, version);
        let partitions = session.len().max(1);
        let Some(reserved) = self.reserve(partitions).await else {
            return 0;
        };
        let mut kept = self.kept.borrow_mut();
        if kept.len() == SESSIONS_PER_CONNECTION_MAX {
            kept.remove(0);
        }
        let id = loop {
            let id = new_id();
            if kept.iter().all(|known| known.id != id) {
                break id;
            }
        };
        kept.push(Kept {
            id,
            session,
            reserved: vec![reserved],
            reserved_partitions: partitions,
        });
        id
    }

    /// Takes the next incremental fetch of a session in; all that it now reads.
    ///
    /// # Errors
    /// The code that makes the client open a new session.
    pub async fn advance(
        &self,
        id: i32,
        epoch: i32,
        request: &FetchRequest,
        version: i16,
    ) -> Result<Vec<WantedPartition>, ErrorCode> {
        let missing = {
            let mut kept = self.kept.borrow_mut();
            let known = kept
                .iter_mut()
                .find(|known| known.id == id)
                .ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
            known.session.advance(epoch, request, version)?;
            known
                .session
                .len()
                .saturating_sub(known.reserved_partitions)
        };
        let more = if missing > 0 {
            self.reserve(missing).await
        } else {
            None
        };
        if missing > 0 && more.is_none() {
            self.end(id);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        let mut kept = self.kept.borrow_mut();
        let known = kept
            .iter_mut()
            .find(|known| known.id == id)
            .ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        known.reserved_partitions += missing;
        known.reserved.extend(more);
        Ok(known.session.wanted())
    }

    /// Ends a session.
    pub fn end(&self, id: i32) {
        self.kept.borrow_mut().retain(|known| known.id != id);
    }

    /// Lets `read` look at a session; `None` if it has ended.
    pub fn with<T>(&self, id: i32, read: impl FnOnce(&mut FetchSession) -> T) -> Option<T> {
        let mut kept = self.kept.borrow_mut();
        kept.iter_mut()
            .find(|known| known.id == id)
            .map(|known| read(&mut known.session))
    }

    /// Room for so many partitions, if it is there now.
    async fn reserve(&self, partitions: usize) -> Option<Reservation> {
        let reserve = self
            .shard
            .reserve(partitions.saturating_mul(PARTITION_BYTES));
        poll_once(reserve).await.and_then(Result::ok)
    }
}

/// Above zero, which means no session.
fn new_id() -> i32 {
    let [a, b, c, d, ..] = random_id();
    (i32::from_be_bytes([a, b, c, d]) & i32::MAX).max(1)
}
