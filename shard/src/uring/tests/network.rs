//! Connections between cores, and HTTP on one.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{on_a_core, pattern};
use crate::uring::channel::{bounded, reply};
use crate::uring::*;

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[test]
fn a_connection_accepted_on_one_core_is_served_by_another() {
    let (to_server, handed) = bounded::<Accepted>(4);
    let (address_to, address) = reply::<SocketAddr>();
    let accepting = run_core(
        CoreOptions {
            io_memory_bytes: 1 << 20,
            ..CoreOptions::default()
        },
        move || async move {
            let listener = Listener::bind(loopback(), SocketOptions::default()).unwrap();
            address_to.send(listener.local_address()).unwrap();
            to_server
                .send(listener.accept().await.unwrap())
                .await
                .unwrap();
        },
    )
    .unwrap();
    let serving = run_core(
        CoreOptions {
            io_memory_bytes: 1 << 20,
            index: 1,
            ..CoreOptions::default()
        },
        move || async move {
            let stream = handed.recv().await.unwrap().into_stream().unwrap();
            let mut request = BytesMut::new();
            stream
                .read_exact_into(&mut request, 3_000_000)
                .await
                .unwrap();
            let whole = request.freeze();
            let mut parts: Vec<Bytes> = whole
                .chunks(7_777)
                .map(|part| whole.slice_ref(part))
                .collect();
            parts.insert(1, Bytes::new());
            stream.write_all_parts(&mut parts).await.unwrap();
            stream.finish().unwrap();
            let mut rest = BytesMut::with_capacity(16);
            assert_eq!(stream.read_into(&mut rest).await.unwrap(), 0);
        },
    )
    .unwrap();
    on_a_core(move || async move {
        let address = address.await.unwrap();
        let stream = Connector::default()
            .connect(address, Duration::from_secs(5))
            .await
            .unwrap();
        assert_eq!(stream.peer_address(), address);
        let sent = pattern(3_000_000);
        let writer = spawn_local({
            let (stream, sent) = (stream.clone(), sent.clone());
            async move { stream.write_all(&sent).await }
        });
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).await.unwrap();
        writer.await.unwrap();
        assert!(back == sent);
        assert_eq!(stream.read(&mut back).await.unwrap(), 0);
    });
    accepting.join().unwrap();
    serving.join().unwrap();
}

#[test]
fn a_peer_that_takes_nothing_ends_the_send_and_an_abort_wakes_the_reader() {
    on_a_core(|| async {
        let options = SocketOptions {
            write_timeout: Some(Duration::from_millis(50)),
            send_buffer_bytes: Some(64 << 10),
            receive_buffer_bytes: Some(64 << 10),
            ..SocketOptions::default()
        };
        let listener = Listener::bind(loopback(), options.clone()).unwrap();
        let address = listener.local_address();
        let client = Connector { options }
            .connect(address, Duration::from_secs(5))
            .await
            .unwrap();
        let server = listener.accept().await.unwrap().into_stream().unwrap();
        let mut parts = [Bytes::from(vec![1; 4 << 20]), Bytes::from(vec![2; 4 << 20])];
        let error = server.write_all_parts(&mut parts).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        let reader = spawn_local({
            let server = server.clone();
            async move { server.read(&mut [0; 16]).await }
        });
        sleep(Duration::from_millis(1)).await;
        server.abort();
        assert!(!matches!(reader.await, Ok(count) if count > 0));
        drop(server);
        let mut rest = vec![0; 16 << 20];
        let error = client.read_exact(&mut rest).await.unwrap_err();
        assert!(matches!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::UnexpectedEof
        ));
    });
}

#[test]
fn hyper_serves_http_1_on_a_core() {
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::{Request, Response};
    on_a_core(|| async {
        let listener = Listener::bind(loopback(), SocketOptions::default()).unwrap();
        let address = listener.local_address();
        let server = spawn_local(async move {
            let stream =
                http::HttpStream::new(listener.accept().await.unwrap().into_stream().unwrap());
            let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
                let body = request.into_body().collect().await?.to_bytes();
                Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(format!(
                    "{} bytes",
                    body.len()
                )))))
            });
            hyper::server::conn::http1::Builder::new()
                .serve_connection(stream, service)
                .await
                .unwrap();
        });
        let client = Connector::default()
            .connect(address, Duration::from_secs(5))
            .await
            .unwrap();
        let head =
            "POST /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 500000\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; 500_000]).await.unwrap();
        let mut answer = BytesMut::new();
        loop {
            answer.reserve(4096);
            if client.read_into(&mut answer).await.unwrap() == 0 {
                break;
            }
        }
        let answer = String::from_utf8(answer.to_vec()).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("500000 bytes"),
            "{answer}"
        );
        server.await;
    });
}

#[test]
fn the_end_of_a_core_closes_its_connections_and_its_replies() {
    let (address_to, address) = reply::<SocketAddr>();
    let (to_core, inbox) = bounded::<channel::Reply<u32>>(4);
    let (stop, stopped) = reply::<()>();
    let core = run_core(
        CoreOptions {
            io_memory_bytes: 1 << 20,
            ..CoreOptions::default()
        },
        move || async move {
            let listener = Listener::bind(loopback(), SocketOptions::default()).unwrap();
            address_to.send(listener.local_address()).unwrap();
            spawn_local(async move {
                let stream = listener.accept().await.unwrap().into_stream().unwrap();
                // Never answers.
                let _ = stream.read_exact(&mut [0; 100]).await;
            })
            .detach();
            spawn_background(async move {
                let _unanswered = inbox.recv().await;
                std::future::pending::<()>().await;
            })
            .detach();
            let _ = stopped.await;
        },
    )
    .unwrap();
    on_a_core(move || async move {
        let address = address.await.unwrap();
        let stream = Connector::default()
            .connect(address, Duration::from_secs(5))
            .await
            .unwrap();
        stream.write_all(b"request").await.unwrap();
        let (unanswered, answer) = reply();
        to_core.send(unanswered).await.unwrap();
        sleep(Duration::from_millis(5)).await;
        stop.send(()).unwrap();
        assert_eq!(answer.await, Err(channel::Closed));
        assert!(!matches!(stream.read(&mut [0; 16]).await, Ok(count) if count > 0));
        assert!(to_core.is_closed());
    });
    core.join().unwrap();
}
