//! Listening sockets, configured before they are bound.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// How a listener is set up. On Linux accepted connections inherit all of it but the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// Where to listen; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Whether several sockets, one per core, may listen here and share the connections.
    pub reuse_port: bool,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// Size of the kernel's receive buffer, in bytes; `None` leaves the system's own tuning on.
    pub receive_buffer_bytes: Option<usize>,
    /// Size of the kernel's send buffer, in bytes; likewise.
    pub send_buffer_bytes: Option<usize>,
    /// An idle connection is probed after this, so that peers that vanished are noticed.
    pub keepalive: Option<Duration>,
}

impl ListenerOptions {
    /// One socket for the address, 1,024 waiting connections, the system's buffers, probes after a minute.
    pub const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            reuse_port: false,
            backlog: 1_024,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            keepalive: Some(Duration::from_secs(60)),
        }
    }
}

/// A listener that could not be set up.
#[derive(Debug)]
pub struct ListenError {
    /// Where it should have listened.
    pub address: SocketAddr,
    /// What was being done.
    pub step: &'static str,
    /// What the system says.
    pub source: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.source.kind() {
            io::ErrorKind::AddrInUse => {
                "; another process listens there: stop it or choose another port"
            }
            io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
            io::ErrorKind::PermissionDenied => "; choose a port above 1023",
            _ => "",
        };
        let (step, address, source) = (self.step, self.address, &self.source);
        write!(f, "cannot {step} {address}: {source}{advice}")
    }
}

impl Error for ListenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Opens a listener. `SO_REUSEADDR` is always set, so that a restarted broker need not wait for old
/// connections to time out, and `TCP_NODELAY` too: answers are written whole.
///
/// The listener is blocking; a reactor that wants another mode sets it.
///
/// # Errors
///
/// [`ListenError`] with the step that failed.
pub fn listen(options: &ListenerOptions) -> Result<TcpListener, ListenError> {
    let address = options.address;
    let failed = |step| {
        move |source| ListenError {
            address,
            step,
            source,
        }
    };
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )
    .map_err(failed("open a socket for"))?;
    configure(&socket, options).map_err(failed("configure the socket for"))?;
    socket.bind(&address.into()).map_err(failed("bind"))?;
    let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
    socket.listen(backlog).map_err(failed("listen on"))?;
    Ok(socket.into())
}

fn configure(socket: &Socket, options: &ListenerOptions) -> io::Result<()> {
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_tcp_nodelay(true)?;
    // Before listening: a window scale is agreed on with the first packet.
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(idle) = options.keepalive {
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::net::{Ipv4Addr, TcpStream};

    use socket2::SockRef;

    use super::*;

    fn loopback(port: u16) -> ListenerOptions {
        ListenerOptions::new((Ipv4Addr::LOCALHOST, port).into())
    }

    #[test]
    fn accepted_connections_have_the_listeners_options() {
        let options = ListenerOptions {
            receive_buffer_bytes: Some(64 << 10),
            send_buffer_bytes: Some(32 << 10),
            ..loopback(0)
        };
        let listener = listen(&options).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        // Linux doubles what was asked for, to pay for its own bookkeeping.
        assert_eq!(socket.recv_buffer_size().unwrap(), 128 << 10);
        assert_eq!(socket.send_buffer_size().unwrap(), 64 << 10);
    }

    #[test]
    fn a_taken_port_is_named_with_what_to_do() {
        let listener = listen(&loopback(0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = listen(&loopback(port)).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
        let text = error.to_string();
        assert!(
            text.contains(&port.to_string()) && text.contains("choose another port"),
            "{text}"
        );
    }

    #[test]
    fn cores_may_share_a_port_when_asked() {
        let shared = |port| ListenerOptions {
            reuse_port: true,
            ..loopback(port)
        };
        let first = listen(&shared(0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let second = listen(&shared(port)).unwrap();
        assert_eq!(second.local_addr().unwrap().port(), port);
    }

    #[test]
    fn a_restarted_listener_need_not_wait_for_old_connections() {
        let listener = listen(&loopback(0)).unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        // Closed first by the server, so its side lingers in TIME_WAIT.
        drop(accepted);
        drop(listener);
        drop(client);
        assert!(listen(&ListenerOptions::new(address)).is_ok());
    }
}
