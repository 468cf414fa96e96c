//! Streams in the shape that hyper wants, for HTTP/1 on a core.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::uring::core::spawn_local;
use crate::uring::stream::Stream;

/// A stream for hyper.
#[derive(Clone, Debug)]
pub struct HttpStream {
    stream: Stream,
}

impl HttpStream {
    /// Wraps a stream. A clone kept of it can still abort the connection.
    pub fn new(stream: Stream) -> Self {
        Self { stream }
    }
}

impl Read for HttpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let room = cursor.initialize_unfilled();
        let count = ready!(self.stream.poll_read(context, room))?;
        assert!(
            count <= cursor.remaining(),
            "{count} bytes read into {}",
            cursor.remaining()
        );
        advance(&mut cursor, count);
        Poll::Ready(Ok(()))
    }
}

#[allow(unsafe_code)]
fn advance(cursor: &mut ReadBufCursor<'_>, count: usize) {
    // SAFETY: `initialize_unfilled` initialised all of the room, and `count` is within it.
    unsafe { cursor.advance(count) }
}

impl Write for HttpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match self.stream.finish() {
            // The peer was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            other => other,
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_slices(context, slices)
    }
}

/// Runs hyper's futures on this core.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreExecutor;

impl<F> hyper::rt::Executor<F> for CoreExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        spawn_local(future).detach();
    }
}
