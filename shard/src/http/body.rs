//! Bodies: a request's, read within the core's budget and within time; an answer's, which keeps its
//! share of the budget until it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use corelog_engine::rejection::Rejection;
use corelog_net::http::{Problem, body_too_large, body_too_slow};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::shard::{Reservation, Shard};
use crate::uring::timeout;

/// Some bytes of a body must come at least this often.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A body may take [`PAUSE_MAX`] and then as long as this rate allows, in bytes for each second.
const RATE_BYTES_MIN: u64 = 64 << 10;

/// How long a request waits for room in the core's budget before it is refused. Finite, since those
/// who hold a part of the budget may wait for more of it too.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);

/// Room for a body without a stated length is reserved in steps that double, from this size on.
const FIRST_STEP_BYTES: usize = 64 << 10;

/// What reading a body needs to know.
pub(super) struct BodyRules {
    /// The length from the head, if it says one.
    pub(super) stated_bytes: Option<u64>,
    /// The largest body that is read.
    pub(super) bytes_max: usize,
    /// How many times its size it takes in work.
    pub(super) copies: usize,
}

/// A body, and its share of the budget.
pub(super) struct HeldBody {
    /// The bytes.
    pub(super) bytes: Bytes,
    /// Given back when the request is done.
    pub(super) held: Vec<Reservation>,
}

/// Waits a limited time for `bytes` of the core's budget.
pub(super) async fn reserve(shard: &Rc<Shard>, bytes: usize) -> Result<Reservation, Rejection> {
    timeout(ROOM_WAIT_MAX, shard.reserve(bytes))
        .await
        .unwrap_or(Err(Rejection::Overloaded))
}

/// Reads a body to its end.
pub(super) async fn read_body(
    shard: &Rc<Shard>,
    mut body: Incoming,
    rules: &BodyRules,
) -> Result<HeldBody, Problem> {
    let stated_bytes = match rules.stated_bytes.map(usize::try_from) {
        Some(Ok(stated)) if stated <= rules.bytes_max => stated,
        Some(_) => return Err(body_too_large(rules.bytes_max)),
        None => 0,
    };
    let mut held = Vec::new();
    let mut room_bytes = stated_bytes;
    if room_bytes > 0 {
        held.push(reserve(shard, room_bytes.saturating_mul(rules.copies)).await?);
    }
    let begun = shard.now().monotonic;
    let mut whole = BytesMut::new();
    while let Some(frame) = timeout(PAUSE_MAX, body.frame())
        .await
        .ok_or_else(body_too_slow)?
    {
        let frame =
            frame.map_err(|error| Problem::invalid(format!("the body broke off: {error}")))?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let needed_bytes = whole.len().saturating_add(data.len());
        if needed_bytes > rules.bytes_max {
            return Err(body_too_large(rules.bytes_max));
        }
        if needed_bytes > room_bytes {
            let step = needed_bytes
                .saturating_sub(room_bytes)
                .max(room_bytes)
                .max(FIRST_STEP_BYTES);
            held.push(reserve(shard, step.saturating_mul(rules.copies)).await?);
            room_bytes = room_bytes.saturating_add(step);
        }
        if whole.is_empty() && data.len() == stated_bytes {
            return Ok(HeldBody { bytes: data, held });
        }
        whole.reserve(room_bytes.saturating_sub(whole.len()).min(rules.bytes_max));
        whole.extend_from_slice(&data);
        let spent_ms = shard.now().monotonic.ms_since(begun);
        let allowed_ms = whole.len() as u64 * 1_000 / RATE_BYTES_MIN;
        if spent_ms > allowed_ms.saturating_add(PAUSE_MAX.as_millis() as u64) {
            return Err(body_too_slow());
        }
    }
    Ok(HeldBody {
        bytes: whole.freeze(),
        held,
    })
}

/// The body of an answer.
pub(super) struct AnswerBody {
    bytes: Option<AnswerBytes>,
}

/// Bytes to send, with their share of the budget.
pub(super) struct AnswerBytes {
    bytes: Bytes,
    _held: Option<Reservation>,
}

impl AnswerBody {
    pub(super) fn new(bytes: Bytes, held: Option<Reservation>) -> Self {
        let bytes = (!bytes.is_empty()).then_some(AnswerBytes { bytes, _held: held });
        Self { bytes }
    }
}

impl Body for AnswerBody {
    type Data = AnswerBytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerBytes>, Infallible>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.bytes.as_ref().map_or(0, |bytes| bytes.bytes.len());
        SizeHint::with_exact(length as u64)
    }
}

impl Buf for AnswerBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
