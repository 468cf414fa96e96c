//! One connection: hyper over a stream, with time limits on the head of a request and on silence. When
//! the broker stops, it ends with its last answer.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;

use super::answer::answer;
use crate::counts::{Count, EndReason};
use crate::shard::Shard;
use crate::uring::http::HttpStream;
use crate::uring::{Stream, sleep, timeout};

/// A connection without a request for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// The head of a request must be whole this long after its first byte.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// After its last answer a connection still takes in what the client was sending, so that the
/// client finds the answer and not a reset.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// Bytes thrown away by one read while lingering.
const LINGER_READ_BYTES: usize = 16 << 10;

/// Bytes of the longest head. A head above it is answered 431, as is one of more than 100 lines:
/// that bound is hyper's own.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes of one read of a body.
const READ_BYTES_MAX: usize = 64 << 10;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the first byte of a request.
    Idle,
    /// Waiting for the rest of its head.
    Head,
    /// Body and answer: the handler has its own limits.
    Handler,
}

/// Serves one connection to its end.
pub async fn serve(shard: &Rc<Shard>, stream: Stream) {
    let phase = Rc::new(Cell::new(Phase::Idle));
    let client = stream.peer_address().ip();
    let io = TimedStream {
        inner: HttpStream::new(stream.clone()),
        phase: Rc::clone(&phase),
        timer: None,
    };
    let service = service_fn(|request| {
        phase.set(Phase::Handler);
        let (shard, phase) = (Rc::clone(shard), Rc::clone(&phase));
        async move {
            let response = answer(shard, client, request).await;
            phase.set(Phase::Idle);
            Ok::<_, Infallible>(response)
        }
    });
    let mut serving = pin!(
        http1::Builder::new()
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(READ_BYTES_MAX)
            .serve_connection(io, service)
    );
    let mut stopping = pin!(shard.until_stopping());
    let mut is_told = false;
    let mut was_idle = false;
    let served = poll_fn(|context| {
        if !is_told && stopping.as_mut().poll(context).is_ready() {
            is_told = true;
            let has_no_request = phase.get() == Phase::Idle;
            // Ends the connection behind the answer in work, or at once where there is none.
            serving.as_mut().graceful_shutdown();
            let served = serving.as_mut().poll(context);
            was_idle = has_no_request && served.is_ready();
            return served;
        }
        serving.as_mut().poll(context)
    })
    .await;
    if let Err(error) = served {
        if let Some(reason) = reason(&error, phase.get()) {
            shard.counts.count(Count::HttpEnded(reason));
        }
        tracing::debug!(%client, %error, "an HTTP connection ended early");
    }
    // An idle client has no answer to find.
    if !was_idle {
        linger(&stream).await;
    }
}

/// Under which reason the end of a connection is counted, if the client is to blame.
fn reason(error: &hyper::Error, phase: Phase) -> Option<EndReason> {
    if error.is_parse_too_large() {
        return Some(EndReason::TooLarge);
    }
    if error.is_parse() {
        return Some(EndReason::Header);
    }
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref());
    let is_late = cause.is_some_and(|cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut);
    (is_late && phase == Phase::Head).then_some(EndReason::SlowSender)
}

/// Says that nothing more comes, and throws away what does.
async fn linger(stream: &Stream) {
    // It fails where the connection is gone, and then there is nothing to read either.
    let _ = stream.finish();
    let mut discarded = vec![0; LINGER_READ_BYTES];
    let drain = async {
        while stream
            .read(&mut discarded)
            .await
            .is_ok_and(|count| count > 0)
        {}
    };
    let _ = timeout(LINGER_MAX, drain).await;
}

/// When a phase has lasted too long.
struct PhaseTimer {
    phase: Phase,
    end: Pin<Box<dyn Future<Output = ()>>>,
}

/// A stream that fails with `TimedOut` when its client keeps it waiting for a request.
struct TimedStream {
    inner: HttpStream,
    phase: Rc<Cell<Phase>>,
    timer: Option<PhaseTimer>,
}

impl TimedStream {
    /// Ready once the present phase has lasted too long.
    fn poll_too_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let phase = self.phase.get();
        let limit = match phase {
            Phase::Idle => IDLE_MAX,
            Phase::Head => HEAD_MAX,
            Phase::Handler => {
                self.timer = None;
                return Poll::Pending;
            }
        };
        let timer = match &mut self.timer {
            Some(timer) if timer.phase == phase => timer,
            other => other.insert(PhaseTimer {
                phase,
                end: Box::pin(sleep(limit)),
            }),
        };
        timer.end.as_mut().poll(context)
    }
}

impl Read for TimedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.inner).poll_read(context, cursor);
        if read.is_ready() {
            if this.phase.get() == Phase::Idle {
                this.phase.set(Phase::Head);
            }
            return read;
        }
        this.poll_too_late(context)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Write for TimedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // While an answer is being taken the connection is not idle.
        this.timer = None;
        Pin::new(&mut this.inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.timer = None;
        Pin::new(&mut this.inner).poll_write_vectored(context, slices)
    }
}
