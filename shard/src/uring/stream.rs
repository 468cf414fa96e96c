//! A connection of one core.
//!
//! Receiving makes one system call per arrival and no copy but the kernel's: bytes go straight
//! into the caller's memory, initialised or not, and a socket that was found empty is polled rather
//! than asked again.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_lite::io::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;
use socket2::SockRef;

use crate::uring::core::{note_activity, turn_timer};
use crate::uring::tcp::SocketOptions;

/// Bytes that one direction of a stream moves without waiting before it gives the reactor a turn.
const BYTES_PER_TURN: usize = 1 << 20;

/// System calls that one direction of a stream makes without waiting before the same.
const CALLS_PER_TURN: u32 = 64;

/// Uninitialised memory up to this size is zeroed and filled by one call; zeroing more would cost
/// more than the second call that avoids it.
const ZEROED_BYTES_MAX: usize = 16 << 10;

/// Parts sent by one call.
const PARTS_PER_CALL: usize = 64;

/// One direction's allowance until the reactor's next turn.
struct Pace {
    bytes_left: usize,
    calls_left: u32,
    turn: Option<glommio::timer::Timer>,
}

impl Pace {
    const fn new() -> Self {
        Self {
            bytes_left: BYTES_PER_TURN,
            calls_left: CALLS_PER_TURN,
            turn: None,
        }
    }

    fn refill(&mut self) {
        (self.bytes_left, self.calls_left) = (BYTES_PER_TURN, CALLS_PER_TURN);
    }

    fn spend(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.calls_left = self.calls_left.saturating_sub(1);
    }

    /// Pending once the allowance is used up, until the reactor had a turn.
    fn poll_allowed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.bytes_left == 0 || self.calls_left == 0 {
            let turn = self.turn.get_or_insert_with(turn_timer);
            ready!(Pin::new(turn).poll(context));
            self.turn = None;
            self.refill();
        }
        Poll::Ready(())
    }
}

struct Connection {
    tcp: TcpStream,
    read_pace: Pace,
    write_pace: Pace,
    /// The last read took all there was, so the next one waits instead of asking.
    drained: bool,
}

/// A connection of this core. Cheap to clone: one task may read while another writes, but two tasks
/// must not read at once, nor two write.
#[derive(Clone)]
pub struct Stream {
    connection: Rc<RefCell<Connection>>,
    peer: SocketAddr,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Stream({})", self.peer)
    }
}

impl Stream {
    pub(super) fn new(tcp: TcpStream, options: &SocketOptions) -> io::Result<Self> {
        tcp.set_write_timeout(options.write_timeout.filter(|timeout| !timeout.is_zero()))?;
        let peer = tcp.peer_addr()?;
        let connection = Connection {
            tcp,
            read_pace: Pace::new(),
            write_pace: Pace::new(),
            drained: true,
        };
        options.apply(&SockRef::from(&connection.descriptor()))?;
        Ok(Self {
            connection: Rc::new(RefCell::new(connection)),
            peer,
        })
    }

    /// The peer's address.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// The address at this side.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.connection
            .borrow()
            .tcp
            .local_addr()
            .map_err(io::Error::from)
    }

    /// Reads what is there into `buffer`, waiting for some; 0 at the stream's end.
    ///
    /// # Errors
    /// Whatever the connection says.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends before; whatever the connection says.
    pub async fn read_exact(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let count = self.read(&mut buffer[filled..]).await?;
            if count == 0 {
                return Err(ended_early(filled, buffer.len()));
            }
            filled += count;
        }
        Ok(())
    }

    /// Appends what is there to `buffer`, up to its capacity, waiting for some; 0 at the stream's
    /// end. Nothing is reserved here: bounds are the caller's.
    ///
    /// # Errors
    /// Whatever the connection says.
    ///
    /// # Panics
    /// If `buffer` has no room.
    pub async fn read_into(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let room = buffer.capacity() - buffer.len();
        self.read_up_to(buffer, room).await
    }

    /// Appends exactly `count` bytes to `buffer`, reserving room for them: the caller checks `count`
    /// against its bounds first.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends before; whatever the connection says.
    pub async fn read_exact_into(&self, buffer: &mut BytesMut, count: usize) -> io::Result<()> {
        buffer.reserve(count);
        let mut missing = count;
        while missing > 0 {
            let got = self.read_up_to(buffer, missing).await?;
            if got == 0 {
                return Err(ended_early(count - missing, count));
            }
            missing -= got;
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    async fn read_up_to(&self, buffer: &mut BytesMut, count: usize) -> io::Result<usize> {
        let room = buffer.spare_capacity_mut();
        let room = room.len().min(count);
        assert!(room > 0, "a read into a full buffer");
        let got = poll_fn(|context| {
            self.poll_read_uninit(context, &mut buffer.spare_capacity_mut()[..room])
        })
        .await?;
        assert!(got <= room, "{got} bytes read into {room}");
        // SAFETY: `poll_read_uninit` initialised the first `got` bytes behind the buffer's length,
        // and `got` is not more than the room there.
        unsafe { buffer.set_len(buffer.len() + got) };
        Ok(got)
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// `TimedOut` if the peer took nothing for the write timeout; whatever the connection says. How
    /// much was sent is unknown then, so the connection is of no further use.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = poll_fn(|context| self.poll_write(context, bytes)).await?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Writes all parts, one behind the other, with as few calls as possible.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub async fn write_all_parts(&self, parts: &mut [Bytes]) -> io::Result<()> {
        let mut parts = parts;
        loop {
            let empty = parts.iter().take_while(|part| part.is_empty()).count();
            parts = &mut parts[empty..];
            if parts.is_empty() {
                return Ok(());
            }
            let mut sent = poll_fn(|context| self.poll_write_parts(context, parts)).await?;
            for part in parts.iter_mut() {
                let from_part = sent.min(part.len());
                part.advance(from_part);
                sent -= from_part;
                if sent == 0 {
                    break;
                }
            }
        }
    }

    /// Tells the peer that nothing more comes. Reading goes on.
    ///
    /// # Errors
    /// Whatever the connection says.
    pub fn finish(&self) -> io::Result<()> {
        SockRef::from(&self.connection.borrow().descriptor()).shutdown(Shutdown::Write)
    }

    /// Ends the connection at once: what was not sent is dropped, the peer sees a reset, and tasks
    /// that wait on this stream are woken.
    pub fn abort(&self) {
        let connection = self.connection.borrow();
        let descriptor = connection.descriptor();
        let socket = SockRef::from(&descriptor);
        // Both fail only for a connection that has ended already.
        let _ = socket.set_linger(Some(Duration::ZERO));
        let _ = socket.shutdown(Shutdown::Both);
    }

    /// As [`Stream::read`], for code that polls.
    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut connection = self.connection.borrow_mut();
        ready!(connection.read_pace.poll_allowed(context));
        connection.poll_wait_and_read(context, buffer)
    }

    /// Reads into memory that need not be initialised; so many of its first bytes are, afterwards.
    fn poll_read_uninit(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        let mut connection = self.connection.borrow_mut();
        ready!(connection.read_pace.poll_allowed(context));
        if !connection.drained {
            match connection.receive(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
        // The library's way to wait is a read into initialised memory.
        let zeroed = if buffer.len() <= ZEROED_BYTES_MAX {
            buffer.len()
        } else {
            1
        };
        let (head, rest) = buffer.split_at_mut(zeroed);
        let head = zeroed_slice(head);
        let got = ready!(connection.poll_wait_and_read(context, head))?;
        if got < zeroed || rest.is_empty() {
            return Poll::Ready(Ok(got));
        }
        // A failure after the first byte will be met again by the next read.
        Poll::Ready(Ok(got + connection.receive(rest).unwrap_or(0)))
    }

    /// As [`Stream::write_all`], some of the bytes, for code that polls.
    pub(super) fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut connection = self.connection.borrow_mut();
        ready!(connection.write_pace.poll_allowed(context));
        connection.poll_wait_and_write(context, bytes)
    }

    /// Sends some of the parts.
    fn poll_write_parts(
        &self,
        context: &mut Context<'_>,
        parts: &[Bytes],
    ) -> Poll<io::Result<usize>> {
        let slices: Vec<IoSlice<'_>> = parts
            .iter()
            .take(PARTS_PER_CALL)
            .map(|part| IoSlice::new(part))
            .collect();
        self.poll_write_slices(context, &slices)
    }

    /// Sends some of the slices, which must not all be empty.
    pub(super) fn poll_write_slices(
        &self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut connection = self.connection.borrow_mut();
        ready!(connection.write_pace.poll_allowed(context));
        if slices.len() > 1 {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let slices = slices.get(..PARTS_PER_CALL).unwrap_or(slices);
            let result =
                SockRef::from(&connection.descriptor()).send_vectored_with_flags(slices, flags);
            match result {
                Ok(sent) => {
                    note_activity();
                    connection.write_pace.spend(sent);
                    return Poll::Ready(Ok(sent));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let first = slices
            .iter()
            .find(|slice| !slice.is_empty())
            .map(|slice| &**slice)
            .unwrap_or_default();
        connection.poll_wait_and_write(context, first)
    }
}

impl Connection {
    #[allow(unsafe_code)]
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to `self.tcp`, which is open as long as `self` lives, and
        // the borrow does not outlive `self`.
        unsafe { BorrowedFd::borrow_raw(self.tcp.as_raw_fd()) }
    }

    /// Takes what has arrived, without waiting.
    fn receive(&mut self, buffer: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        let received =
            SockRef::from(&self.descriptor()).recv_with_flags(buffer, libc::MSG_DONTWAIT);
        if let Ok(count) = received {
            note_activity();
            self.drained = count < buffer.len();
            self.read_pace.spend(count);
        }
        received
    }

    fn poll_wait_and_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Poll::Ready(read) = Pin::new(&mut self.tcp).poll_read(context, buffer) else {
            self.read_pace.refill();
            return Poll::Pending;
        };
        if let Ok(count) = read {
            note_activity();
            self.drained = count < buffer.len();
            self.read_pace.spend(count);
        }
        Poll::Ready(read)
    }

    fn poll_wait_and_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Poll::Ready(written) = Pin::new(&mut self.tcp).poll_write(context, bytes) else {
            self.write_pace.refill();
            return Poll::Pending;
        };
        if let Ok(count) = written {
            note_activity();
            self.write_pace.spend(count);
        }
        Poll::Ready(written)
    }
}

fn ended_early(got: usize, expected: usize) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("the stream ended after {got} of {expected} bytes"),
    )
}

/// The memory as zeros.
#[allow(unsafe_code)]
fn zeroed_slice(memory: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    memory.fill(MaybeUninit::new(0));
    // SAFETY: every byte was just written, and `MaybeUninit<u8>` has the layout of `u8`.
    unsafe { &mut *(std::ptr::from_mut(memory) as *mut [u8]) }
}
