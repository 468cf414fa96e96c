//! The harness that starts brokers does what tests rely on, shown on a program that stands in for the broker.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use corelog_tests::broker::{Broker, Options};
use corelog_tests::http::Connection;
use corelog_tests::scratch::Scratch;

/// Answers 200 to every GET on the HTTP port, in chunks on `/chunked`.
const STAND_IN: &str = r#"#!/usr/bin/env python3
import http.server, os, sys
arguments = dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert sys.argv[1] == "dev", sys.argv
os.makedirs(arguments["--data-dir"], exist_ok=True)
open(os.path.join(arguments["--data-dir"], "starts"), "a").write("x")

class Face(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n")
        else:
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

print("stand-in is up", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(arguments["--http-port"])), Face).serve_forever()
"#;

fn program(scratch: &Scratch, text: &str) -> Option<PathBuf> {
    let path = scratch.path().join("stand-in");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Some(path)
}

#[test]
fn broker_keeps_its_ports_and_data_over_a_kill_and_a_stop() {
    let scratch = Scratch::new("harness").unwrap();
    let mut broker = Broker::start(Options {
        program: program(&scratch, STAND_IN),
        ..Options::default()
    })
    .unwrap();
    let address = broker.http_address();
    let mut http = Connection::open(&address).unwrap();
    assert_eq!(http.request("GET", "/x", b"").unwrap().body, b"ok");
    let chunked = http.request("GET", "/chunked", b"").unwrap();
    assert_eq!(chunked.body, b"abc0123456789");

    let first = broker.process_id().unwrap();
    broker.kill9().unwrap();
    assert!(!broker.is_ready());
    broker.restart().unwrap();
    assert_ne!(broker.process_id().unwrap(), first);
    assert_eq!(broker.http_address(), address);
    broker.stop().unwrap();
    assert!(broker.stop().is_err(), "it had stopped already");
    broker.restart().unwrap();
    let starts = fs::read_to_string(broker.data_directory().join("starts")).unwrap();
    assert_eq!(starts, "xxx");
    assert!(broker.log_tail().contains("stand-in is up"));
    let process = broker.process_id().unwrap();
    drop(broker);
    assert!(!PathBuf::from(format!("/proc/{process}")).exists());
}

#[test]
fn broker_that_ends_while_starting_is_an_error_with_the_end_of_its_log() {
    let scratch = Scratch::new("harness").unwrap();
    let failed = Broker::start(Options {
        program: program(&scratch, "#!/bin/sh\necho no disk here >&2\nexit 3\n"),
        ..Options::default()
    });
    let reason = failed.unwrap_err().to_string();
    assert!(reason.contains("no disk here"), "{reason}");
}
