//! Fetch: one question to each core that owns some of the partitions, one answer from all.
//!
//! Each core waits by itself. The first that answers ends the waits of the others, so that the
//! client has what there is as soon as anything is there.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use corelog_engine::admission::Action;
use corelog_engine::identity::{CoreIndex, PartitionId};
use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Answer, Fetch, FetchPartition, FetchedPartition, Request, Response};
use corelog_engine::time::Monotonic;
use corelog_net::kafka::fetch::{
    FetchAnswer, FetchTerms, WantedPartition, partition_data, refused, session_refused,
    wanted_partitions,
};
use corelog_net::kafka::fetch_session::SessionUse;
use corelog_net::kafka::{TopicKey, partition_of};
use corelog_wire::{ErrorCode, FetchPartitionData, FetchRequest};

use super::call::{Answered, Call, Pending, expect};
use super::connection::Connection;
use super::fetch_sessions::FetchSessions;
use super::produce::leader;
use crate::shard::Asked;

/// First version that says where the leader is that the asker should turn to (KIP-951).
const LEADER_TAGS_FROM: i16 = 16;

/// How a fetch stands to sessions.
#[derive(Clone, Copy)]
struct InSession {
    /// 0 for none.
    id: i32,
    /// Whether partitions without news are left out.
    is_incremental: bool,
}

/// One wanted partition, as far as it is known at once.
struct Slot {
    wanted: WantedPartition,
    partition: Result<PartitionId, Rejection>,
}

/// What one core is asked: its question, and where the parts of its answer belong.
struct Part {
    asked: Asked,
    slots: Vec<usize>,
}

/// Reads from every partition wanted, waiting for data if there is none.
pub(super) async fn fetch(connection: &Connection, call: Call, request: FetchRequest) -> Pending {
    let terms = FetchTerms::of(&request);
    let (wanted, session) = match plan(&connection.sessions, &request, call.version).await {
        Ok(planned) => planned,
        Err(code) => return call.ready(&session_refused(code)),
    };
    let slots = resolve(&call, wanted);
    let turn = connection.fetch_turn.get();
    connection.fetch_turn.set(turn.wrapping_add(1));
    let parts = ask(&call, &slots, &terms, turn);
    let sessions = Rc::clone(&connection.sessions);
    Pending::later(finish(call, sessions, session, terms, slots, parts))
}

async fn plan(
    sessions: &FetchSessions,
    request: &FetchRequest,
    version: i16,
) -> Result<(Vec<WantedPartition>, InSession), ErrorCode> {
    match SessionUse::of(request) {
        SessionUse::None { ends } => {
            ends.into_iter().for_each(|id| sessions.end(id));
            Ok((
                wanted_partitions(request, version),
                InSession {
                    id: 0,
                    is_incremental: false,
                },
            ))
        }
        SessionUse::Open { ends } => {
            ends.into_iter().for_each(|id| sessions.end(id));
            let id = sessions.open(request, version).await;
            Ok((
                wanted_partitions(request, version),
                InSession {
                    id,
                    is_incremental: false,
                },
            ))
        }
        SessionUse::Continue { id, epoch } => {
            let wanted = sessions.advance(id, epoch, request, version).await?;
            Ok((
                wanted,
                InSession {
                    id,
                    is_incremental: true,
                },
            ))
        }
    }
}

fn resolve(call: &Call, wanted: Vec<WantedPartition>) -> Vec<Slot> {
    call.shard.image(|image| {
        let find = |wanted: &WantedPartition| {
            let topic = wanted.topic.find(image, call.tenant())?;
            call.authorize(Action::ReadTopic(&topic.name))?;
            let partition = partition_of(topic, wanted.index)?;
            wanted.offset.ok_or(Rejection::OffsetOutOfRange)?;
            Ok(partition)
        };
        let slot = |wanted: WantedPartition| Slot {
            partition: find(&wanted),
            wanted,
        };
        wanted.into_iter().map(slot).collect()
    })
}

/// Asks each owning core for its partitions. The walk over them starts at another one each time, so
/// that a large partition does not keep the others from their turn.
fn ask(call: &Call, slots: &[Slot], terms: &FetchTerms, turn: usize) -> Vec<Part> {
    let mut by_core: BTreeMap<CoreIndex, (Vec<FetchPartition>, Vec<usize>)> = BTreeMap::new();
    let mut is_refused = false;
    let first = turn % slots.len().max(1);
    for index in (first..slots.len()).chain(0..first) {
        let slot = &slots[index];
        let (Ok(partition), Some(offset)) = (slot.partition, slot.wanted.offset) else {
            is_refused = true;
            continue;
        };
        // A partition that this core knows but nobody owns is still asked for: the answer says why.
        let core = call.shard.owner_of(partition).unwrap_or(call.shard.core());
        let (partitions, places) = by_core.entry(core).or_default();
        places.push(index);
        partitions.push(FetchPartition {
            partition,
            offset,
            bytes_max: slot.wanted.bytes_max,
            leader_epoch: slot.wanted.leader_epoch,
            last_fetched_epoch: slot.wanted.last_fetched_epoch,
        });
    }
    let cores = by_core.len().max(1);
    let now = call.shard.now().monotonic;
    let wait_until = if is_refused {
        now
    } else {
        now.plus_ms(terms.wait_ms)
    };
    let part = |(core, (partitions, places))| Part {
        asked: call.shard.ask_core(
            core,
            Request::Fetch(question(partitions, terms, cores, wait_until)),
        ),
        slots: places,
    };
    by_core.into_iter().map(part).collect()
}

/// Each of several cores gets its share: what is asked for as a whole can only be held in parts.
fn question(
    partitions: Vec<FetchPartition>,
    terms: &FetchTerms,
    cores: usize,
    wait_until: Monotonic,
) -> Fetch {
    Fetch {
        partitions,
        bytes_min: terms.bytes_min.div_ceil(cores),
        bytes_max: terms.bytes_max.div_ceil(cores),
        wait_until,
    }
}

/// The answers of all cores, in order; the first to come hurries the others.
async fn gather(asked: &mut [Asked]) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = asked.iter().map(|_| None).collect();
    let mut has_hurried = false;
    poll_fn(move |context| {
        let mut is_whole = true;
        let mut is_news = false;
        for (asked, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_some() {
                continue;
            }
            match Pin::new(asked).poll(context) {
                Poll::Ready(came) => (*answer, is_news) = (Some(came), true),
                Poll::Pending => is_whole = false,
            }
        }
        if is_whole {
            return Poll::Ready(answers.iter_mut().filter_map(Option::take).collect());
        }
        if is_news && !has_hurried {
            has_hurried = true;
            let waiting = asked
                .iter()
                .zip(&answers)
                .filter(|(_, answer)| answer.is_none());
            waiting.for_each(|(asked, _)| asked.hurry());
            // A hurried core may have answered already.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

async fn finish(
    call: Call,
    sessions: Rc<FetchSessions>,
    session: InSession,
    terms: FetchTerms,
    slots: Vec<Slot>,
    parts: Vec<Part>,
) -> Answered {
    let (mut asked, places): (Vec<Asked>, Vec<Vec<usize>>) = parts
        .into_iter()
        .map(|part| (part.asked, part.slots))
        .unzip();
    let answers = if asked.is_empty() {
        Vec::new()
    } else {
        gather(&mut asked).await
    };
    let mut read: Vec<Option<FetchPartitionData>> = slots.iter().map(|_| None).collect();
    let mut record_bytes = 0;
    for (answer, places) in answers.into_iter().zip(places) {
        let fetched = expect(answer, |response| match response {
            Response::Fetched(fetched) if fetched.len() == places.len() => Some(fetched),
            _ => None,
        });
        match fetched {
            Ok(fetched) => {
                for (part, place) in fetched.into_iter().zip(places) {
                    let data = data_of(part, slots[place].wanted.index, &terms, call.version);
                    record_bytes += data.records.bytes_len();
                    read[place] = Some(data);
                }
            }
            Err(rejection) => {
                for place in places {
                    read[place] = Some(refused(slots[place].wanted.index, rejection));
                }
            }
        }
    }
    // The batches are held until they are sent, however slow the reader.
    let held = call.shard.reserve(record_bytes).await.ok();
    let mut answer = FetchAnswer::new(session.id);
    for (slot, data) in slots.into_iter().zip(read) {
        let rejection = slot.partition.err().unwrap_or(Rejection::NotLeader);
        let data = data.unwrap_or_else(|| refused(slot.wanted.index, rejection));
        if is_told(&sessions, session, &slot.wanted.topic, &data) {
            let leader = leader_of(&call, &slot, data.error_code);
            answer.add(&slot.wanted.topic, data, leader);
        }
    }
    call.answer_holding(&answer.finish(), held)
}

fn data_of(
    part: FetchedPartition,
    index: i32,
    terms: &FetchTerms,
    version: i16,
) -> FetchPartitionData {
    match part.result {
        Ok(fetched) => partition_data(index, fetched, terms, version),
        Err(refusal) => refused(index, refusal.rejection),
    }
}

fn is_told(
    sessions: &FetchSessions,
    session: InSession,
    topic: &TopicKey,
    data: &FetchPartitionData,
) -> bool {
    let has_news = sessions
        .with(session.id, |known| known.has_news(topic, data))
        .unwrap_or(true);
    has_news || !session.is_incremental
}

fn leader_of(call: &Call, slot: &Slot, code: ErrorCode) -> Option<(corelog_net::kafka::Node, i32)> {
    let is_misled = matches!(
        code,
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH
    );
    let partition = slot
        .partition
        .ok()
        .filter(|_| is_misled && call.version >= LEADER_TAGS_FROM)?;
    leader(call, partition)
}
