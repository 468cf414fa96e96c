//! TCP on a core: how connections come about. [`crate::uring::stream`] is what they do then.
//!
//! One listener accepts for all cores of a broker and hands the connections round in turn: the
//! kernel's own spreading (SO_REUSEPORT) hashes addresses, and with the few, long, busy connections
//! of a message queue it leaves cores idle. Where each core has a port of its own, each core binds
//! its own listener and keeps what it accepts. [`Accepted`] may go to any core; a
//! [`Stream`] stays.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::time::Duration;

use glommio::net::{AcceptedTcpStream, TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::uring::core::{note_activity, on_core};
use crate::uring::stream::Stream;

/// How sockets are set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// The kernel's receive buffer in bytes; `None` lets the kernel size it.
    pub receive_buffer_bytes: Option<usize>,
    /// The kernel's send buffer in bytes; `None` lets the kernel size it.
    pub send_buffer_bytes: Option<usize>,
    /// How long a send may make no progress at all before it fails with `TimedOut`.
    pub write_timeout: Option<Duration>,
    /// After how long a silence the kernel asks whether the peer is still there.
    pub keepalive: Option<Duration>,
    /// Lets several listeners bind the same address, spread by the kernel.
    pub reuse_port: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            backlog: 1024,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            write_timeout: Some(Duration::from_secs(30)),
            keepalive: Some(Duration::from_secs(60)),
            reuse_port: false,
        }
    }
}

impl SocketOptions {
    pub(super) fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        socket.set_tcp_nodelay(true)?;
        if let Some(bytes) = self.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(silence) = self.keepalive {
            socket.set_tcp_keepalive(
                &TcpKeepalive::new()
                    .with_time(silence)
                    .with_interval(silence / 4),
            )?;
        }
        Ok(())
    }
}

/// A listening socket on this core.
pub struct Listener {
    listener: TcpListener,
    local: SocketAddr,
    options: SocketOptions,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Listener({})", self.local)
    }
}

impl Listener {
    /// Listens at an address; port 0 takes a free one.
    ///
    /// # Errors
    /// `AddrInUse`, or whatever the system says.
    ///
    /// # Panics
    /// If this thread is not a core.
    #[allow(unsafe_code)]
    pub fn bind(address: SocketAddr, options: SocketOptions) -> io::Result<Self> {
        assert!(on_core(), "a listener belongs to a core");
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        // Connections inherit this, and the window's scale is fixed before they are accepted.
        options.apply(&SockRef::from(&socket))?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
        let local = local_address(&socket)?;
        // SAFETY: the descriptor is open, and this gives away the only owner of it.
        let listener = unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) };
        Ok(Self {
            listener,
            local,
            options,
        })
    }

    /// The address listened at.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The next connection. One that was gone before it was accepted is passed over.
    ///
    /// # Errors
    /// Whatever the system says, for example that no descriptor is free: wait a little, then go on.
    pub async fn accept(&self) -> io::Result<Accepted> {
        loop {
            let socket = match self.listener.shared_accept().await.map_err(io::Error::from) {
                Ok(socket) => socket,
                Err(error) if passes(&error) => continue,
                Err(error) => return Err(error),
            };
            note_activity();
            let accepted = Accepted {
                socket: Some(socket),
                options: self.options.clone(),
            };
            // The peer may have reset the connection already; the stream would find out.
            if accepted.peer_address().is_ok() {
                return Ok(accepted);
            }
        }
    }
}

fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("a TCP socket without an address"))
}

/// A connection that was accepted and may go to any core.
pub struct Accepted {
    socket: Option<AcceptedTcpStream>,
    options: SocketOptions,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Accepted({:?})", self.peer_address())
    }
}

impl Accepted {
    /// The peer's address.
    ///
    /// # Errors
    /// If the peer is gone.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        socket.peer_addr().map_err(io::Error::from)
    }

    /// Makes it this core's.
    ///
    /// # Errors
    /// Whatever the system says; the connection is closed then.
    ///
    /// # Panics
    /// If this thread is not a core.
    pub fn into_stream(mut self) -> io::Result<Stream> {
        assert!(on_core(), "a stream belongs to a core");
        let socket = self.socket.take().ok_or(io::ErrorKind::NotConnected)?;
        Stream::new(socket.bind_to_executor(), &self.options)
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        // The library closes only what belongs to a core. One dropped elsewhere, which happens
        // only when a broker stops, stays open until the process ends.
        if let Some(socket) = self.socket.take()
            && on_core()
        {
            drop(socket.bind_to_executor());
        }
    }
}

/// Opens connections from this core.
#[derive(Clone, Debug, Default)]
pub struct Connector {
    /// How the sockets are set up.
    pub options: SocketOptions,
}

impl Connector {
    /// Connects within `patience`.
    ///
    /// # Errors
    /// `TimedOut`, `ConnectionRefused`, or whatever the system says.
    pub async fn connect(&self, address: SocketAddr, patience: Duration) -> io::Result<Stream> {
        let stream =
            TcpStream::connect_timeout(address, patience.max(Duration::from_millis(1))).await?;
        Stream::new(stream, &self.options)
    }
}
