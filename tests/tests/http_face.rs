//! The HTTP face from outside: what `docs/http.md` promises, over a SIGKILL of the broker, and bytes that are no
//! request.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use corelog_tests::broker::{Broker, Options};
use corelog_tests::http::{Answer, Connection};
use serde_json::{Value, json};

/// A broker and a connection to it.
struct Face {
    broker: Broker,
    http: Connection,
}

impl Face {
    fn start() -> Self {
        let broker = Broker::start(Options::default()).unwrap();
        let http = Connection::open(&broker.http_address()).unwrap();
        Self { broker, http }
    }

    fn kill_and_restart(&mut self) {
        self.broker.kill9().unwrap();
        self.broker.restart().unwrap();
        self.http = Connection::open(&self.broker.http_address()).unwrap();
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        self.http.request(method, path, body.as_bytes()).unwrap()
    }

    fn post(&mut self, path: &str, body: Value) -> Value {
        let answer = self.send("POST", path, &body);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status < 300, "POST {path}: {} {text}", answer.status);
        if answer.body.is_empty() {
            return Value::Null;
        }
        answer.json().unwrap()
    }

    fn get(&mut self, path: &str) -> Value {
        let answer = self.send("GET", path, &Value::Null);
        assert_eq!(answer.status, 200, "GET {path}");
        answer.json().unwrap()
    }

    /// The status and the `type` of a refusal.
    fn refusal(&mut self, method: &str, path: &str, body: Value) -> (u16, String) {
        let answer = self.send(method, path, &body);
        let problem = answer.json().unwrap();
        assert_eq!(problem["status"], answer.status, "{problem}");
        (answer.status, problem["type"].as_str().unwrap().to_owned())
    }

    fn publish(&mut self, topic: &str, messages: Value) -> Value {
        let path = format!("/v1/topics/{topic}/messages:publish");
        self.post(&path, json!({ "messages": messages }))
    }

    fn fetch(&mut self, group: &str, body: Value) -> Value {
        self.post(&format!("/v1/groups/{group}/messages:fetch"), body)
    }

    fn commit(&mut self, group: &str, body: Value) -> Value {
        self.post(&format!("/v1/groups/{group}/offsets:commit"), body)
    }

    /// Sends bytes on a connection of their own, says that no more come, and takes what is answered.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.broker.http_address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        // The broker may refuse and close before it has taken everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let mut some = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut some) {
            answer.extend(&some[..count]);
            if !bytes.is_empty() && answer.windows(4).any(|end| end == b"\r\n\r\n") {
                break;
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn status_of_raw(&self, bytes: &[u8]) -> u16 {
        let answer = self.raw(bytes);
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        code.unwrap_or_else(|| panic!("no status line in {answer:?}"))
    }
}

fn payloads(fetched: &Value) -> Vec<&str> {
    let messages = fetched["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|message| message["payload"].as_str().unwrap())
        .collect()
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn messages_and_commits_survive_a_kill() {
    let mut face = Face::start();
    let created = face.post(
        "/v1/topics",
        json!({ "name": "orders", "partitions": 4, "settings": { "retention.ms": "604800000" } }),
    );
    assert_eq!(created["durability"], "one-disk");
    assert_eq!(created["settings"], json!({ "retention.ms": "604800000" }));
    let answer = face.publish(
        "orders",
        json!([
            { "message_key": "k", "payload": "one", "headers": { "source": "shop" }, "message_id": "m-1" },
            { "message_key": "k", "payload_base64": "AP8=" },
            { "message_key": "k", "payload": null },
        ]),
    );
    assert_eq!(answer["failed"], 0);
    let partition = answer["messages"][0]["partition"].clone();
    for (offset, message) in answer["messages"].as_array().unwrap().iter().enumerate() {
        assert_eq!(message["status"], "stored");
        assert_eq!(message["partition"], partition, "one key, one partition");
        assert_eq!(message["offset"], offset);
    }
    let first = face.fetch("billing", json!({ "topic": "orders", "max_messages": 1 }));
    assert_eq!(payloads(&first), ["one"]);
    assert_eq!(first["messages"][0]["message_id"], "m-1");
    assert_eq!(
        first["messages"][0]["headers"],
        json!([{ "name": "source", "value": "shop" }])
    );
    face.commit(
        "billing",
        json!({ "topic": "orders", "offsets": [{ "partition": partition, "offset": 1, "metadata": "n" }] }),
    );

    face.kill_and_restart();

    let rest = face.fetch("billing", json!({ "topic": "orders" }));
    let messages = rest["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2, "{rest}");
    assert_eq!(messages[0]["payload_base64"], "AP8=");
    assert_eq!(messages[1]["payload"], Value::Null);
    assert!(messages[1].as_object().unwrap().contains_key("payload"));
    assert_eq!(face.get("/v1/topics/orders")["id"], created["id"]);
    let group = face.get("/v1/groups/billing");
    assert_eq!(
        (&group["state"], &group["lag_records"]),
        (&json!("Empty"), &json!(2))
    );
    assert!(group["lag_bytes"].as_u64().unwrap() > 0);
    assert!(group["lag_ms"].as_u64().is_some());
    let listed = face.get("/v1/groups");
    assert_eq!(listed["groups"][0]["group"], "billing");
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn a_waiting_fetch_is_answered_by_a_publish_to_any_core() {
    let mut face = Face::start();
    face.post("/v1/topics", json!({ "name": "t", "partitions": 8 }));
    for partition in 0..8 {
        let mut waiting = Connection::open(&face.broker.http_address()).unwrap();
        let reader = std::thread::spawn(move || {
            let body = json!({ "topic": "t", "from": "latest", "max_wait_ms": 30_000 });
            let path = "/v1/groups/g/messages:fetch";
            waiting.request("POST", path, body.to_string().as_bytes())
        });
        // The reader may begin late, and then waits for the next message.
        while !reader.is_finished() {
            face.publish("t", json!([{ "partition": partition, "payload": "now" }]));
            std::thread::sleep(Duration::from_millis(20));
        }
        let fetched = reader.join().unwrap().unwrap().json().unwrap();
        assert_eq!(fetched["messages"][0]["partition"], partition, "{fetched}");
    }
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn a_producers_repeat_is_stored_once_also_after_a_kill() {
    let mut face = Face::start();
    face.post("/v1/topics", json!({ "name": "t" }));
    let mut body = face.post("/v1/producers", json!({}));
    body["messages"] = json!([
        { "partition": 0, "sequence": 0, "payload": "a" },
        { "partition": 0, "sequence": 1, "payload": "b" },
    ]);
    let path = "/v1/topics/t/messages:publish";
    let stored = face.post(path, body.clone());
    assert_eq!(stored["messages"][1]["status"], "stored");
    for kill in [false, true] {
        if kill {
            face.kill_and_restart();
        }
        let repeated = face.post(path, body.clone());
        assert_eq!(repeated["messages"][1]["status"], "repeat", "{repeated}");
        assert_eq!(repeated["messages"][1]["offset"], 1);
    }
    body["messages"] = json!([{ "partition": 0, "sequence": 5, "payload": "gap" }]);
    let (status, kind) = face.refusal("POST", path, body.clone());
    assert_eq!(
        (status, kind.as_str()),
        (409, "out_of_order_sequence_number")
    );
    let fetched = face.fetch("g", json!({ "topic": "t" }));
    assert_eq!(payloads(&fetched), ["a", "b"]);
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn members_share_partitions_and_an_old_generation_is_fenced() {
    let mut face = Face::start();
    face.post("/v1/topics", json!({ "name": "t", "partitions": 4 }));
    let join = "/v1/groups/g/members:join";
    let first = face.post(
        join,
        json!({ "topics": ["t"], "session_timeout_ms": 30_000 }),
    );
    assert_eq!(first["assignment"][0]["partitions"], json!([0, 1, 2, 3]));
    assert_eq!(first["lease_ms"], 30_000);

    let mut other = Connection::open(&face.broker.http_address()).unwrap();
    let second = std::thread::spawn(move || {
        other.post(
            join,
            &json!({ "topics": ["t"], "session_timeout_ms": 30_000 }),
        )
    });
    let member = |member: &Value| json!({ "member_id": member["member_id"], "generation": member["generation"] });
    let heartbeat = "/v1/groups/g/members:heartbeat";
    let refused = loop {
        let answer = face.send("POST", heartbeat, &member(&first));
        if answer.status != 204 {
            break answer.json().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(refused["type"], "rebalance_in_progress");
    let again =
        json!({ "topics": ["t"], "session_timeout_ms": 30_000, "member_id": first["member_id"] });
    let again = face.post(join, again);
    let second = second.join().unwrap().unwrap();
    assert_eq!(again["generation"], second["generation"]);
    let mut shared: Vec<u64> = [&again, &second]
        .iter()
        .flat_map(|member| member["assignment"][0]["partitions"].as_array().unwrap())
        .map(|partition| partition.as_u64().unwrap())
        .collect();
    shared.sort_unstable();
    assert_eq!(shared, [0, 1, 2, 3]);

    let fetch = "/v1/groups/g/messages:fetch";
    let (status, kind) = face.refusal("POST", fetch, member(&first));
    assert_eq!((status, kind.as_str()), (409, "illegal_generation"));
    let all: Vec<Value> = (0..4)
        .map(|partition| json!({ "partition": partition, "payload": "x" }))
        .collect();
    face.publish("t", json!(all));
    let mine = face.fetch("g", member(&again));
    assert_eq!(mine["messages"].as_array().unwrap().len(), 2);
    let mut commit = member(&first);
    commit["topic"] = json!("t");
    commit["offsets"] = json!([{ "partition": 0, "offset": 1 }]);
    let path = "/v1/groups/g/offsets:commit";
    assert_eq!(
        face.refusal("POST", path, commit.clone()).1,
        "illegal_generation"
    );
    commit["generation"] = again["generation"].clone();
    assert_eq!(face.commit("g", commit)["failed"], 0);

    let group = face.get("/v1/groups/g");
    assert_eq!(group["state"], "Stable");
    assert_eq!(group["members"].as_array().unwrap().len(), 2);
    assert_eq!(group["lag_records"], 3);
    for gone in [&again, &second] {
        face.post(
            "/v1/groups/g/members:leave",
            json!({ "member_id": gone["member_id"] }),
        );
    }
    assert_eq!(
        face.refusal("POST", heartbeat, member(&again)).1,
        "unknown_member_id"
    );
    assert_eq!(
        face.send("DELETE", "/v1/groups/g", &Value::Null).status,
        204
    );
    assert_eq!(
        face.refusal("DELETE", "/v1/groups/g", Value::Null).1,
        "group_id_not_found"
    );
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn offsets_are_reset_all_or_none_and_commits_end_at_the_log() {
    let mut face = Face::start();
    face.post("/v1/topics", json!({ "name": "t", "partitions": 2 }));
    for at_ms in [1_000, 2_000, 3_000] {
        face.publish(
            "t",
            json!([{ "partition": 0, "payload": "x", "created_at_ms": at_ms }]),
        );
    }
    let reset = "/v1/groups/g/offsets:reset";
    let offset_of = |answer: &Value| answer["offsets"][0]["offset"].as_u64().unwrap();
    let dry = face.post(
        reset,
        json!({ "topic": "t", "to": "latest", "dry_run": true }),
    );
    assert_eq!(offset_of(&dry), 3);
    let by_time = face.post(
        reset,
        json!({ "topic": "t", "to": { "time_ms": 1_500 }, "partitions": [0] }),
    );
    assert_eq!(
        by_time["offsets"],
        json!([{ "partition": 0, "previous_offset": null, "offset": 1 }])
    );
    let refused = face.send(
        "POST",
        reset,
        &json!({ "topic": "t", "to": { "offset": 2 } }),
    );
    let problem = refused.json().unwrap();
    assert_eq!(
        (refused.status, &problem["type"]),
        (416, &json!("offset_out_of_range"))
    );
    assert_eq!(
        problem["retained"],
        json!([{ "topic": "t", "partition": 1, "log_start": 0, "watermark": 0 }])
    );
    let earliest = face.post(
        reset,
        json!({ "topic": "t", "to": "earliest", "partitions": [0] }),
    );
    assert_eq!(
        earliest["offsets"][0]["previous_offset"], 1,
        "nothing moved by the refused one"
    );
    let path = "/v1/groups/g/offsets:commit";
    let past = json!({ "topic": "t", "offsets": [{ "partition": 0, "offset": 4 }] });
    assert_eq!(
        face.refusal("POST", path, past),
        (409, "commit_past_end".to_owned())
    );
    let end = face.commit("g", json!({ "topic": "t", "offsets": [{ "partition": 0, "offset": 3 }, { "partition": 9, "offset": 0 }] }));
    assert_eq!(end["failed"], 1);
    assert_eq!(
        end["offsets"][1]["error"]["type"],
        "unknown_topic_or_partition"
    );
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn topics_are_listed_in_pages_and_refusals_are_problems() {
    let mut face = Face::start();
    for name in ["a", "b", "c"] {
        face.post("/v1/topics", json!({ "name": name }));
    }
    let page = face.get("/v1/topics?limit=2");
    assert_eq!(page["next_after"], "b");
    let page = face.get("/v1/topics?limit=2&after=b");
    assert_eq!(page["topics"].as_array().unwrap().len(), 1);
    assert_eq!(page["next_after"], Value::Null);
    for (method, path, body, status, kind) in [
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a" }),
            409,
            "topic_already_exists",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a/b" }),
            400,
            "invalid_topic",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "d", "partitions": 0 }),
            400,
            "invalid_partitions",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "d", "settings": { "x": "y" } }),
            400,
            "invalid_config",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "nam": "d" }),
            400,
            "invalid_request",
        ),
        (
            "GET",
            "/v1/topics/none",
            Value::Null,
            404,
            "unknown_topic_or_partition",
        ),
        ("GET", "/v1/nothing", Value::Null, 404, "no_such_route"),
        ("PUT", "/v1/topics", Value::Null, 405, "method_not_allowed"),
        (
            "POST",
            "/v1/topics/none/messages:publish",
            json!({ "messages": [{ "payload": "" }] }),
            404,
            "unknown_topic_or_partition",
        ),
        (
            "POST",
            "/v1/groups/g/messages:fetch",
            json!({ "topic": "none" }),
            404,
            "unknown_topic_or_partition",
        ),
        (
            "POST",
            "/v1/groups/g/messages:fetch",
            json!({}),
            400,
            "invalid_request",
        ),
    ] {
        let refused = face.refusal(method, path, body);
        assert_eq!(refused, (status, kind.to_owned()), "{method} {path}");
    }
    assert_eq!(
        face.send("DELETE", "/v1/topics/a", &Value::Null).status,
        204
    );
    assert_eq!(face.refusal("GET", "/v1/topics/a", Value::Null).0, 404);
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn one_oversize_message_is_refused_and_the_others_are_stored() {
    let mut face = Face::start();
    face.post("/v1/topics", json!({ "name": "t" }));
    let large = "x".repeat(256 << 10);
    let answer = face.publish(
        "t",
        json!([{ "payload": "a" }, { "payload": large }, { "payload": "b" }]),
    );
    assert_eq!(answer["failed"], 1);
    assert_eq!(answer["messages"][1]["status"], "rejected");
    assert_eq!(answer["messages"][1]["error"]["type"], "message_too_large");
    assert_eq!(answer["messages"][2]["offset"], 1);
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn bytes_that_are_no_request_get_an_error_and_everybody_else_is_served() {
    let mut face = Face::start();
    face.post("/v1/topics", json!({ "name": "t" }));
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/topics HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/topics HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/topics HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        assert_eq!(
            face.status_of_raw(garbage),
            400,
            "{:?}",
            String::from_utf8_lossy(garbage)
        );
    }
    let head = |lines: &str| {
        format!("POST /v1/topics/t/messages:publish HTTP/1.1\r\nhost: x\r\n{lines}\r\n")
    };
    let many = "a: b\r\n".repeat(101);
    assert_eq!(face.status_of_raw(head(&many).as_bytes()), 431);
    let long = format!("a: {}\r\n", "b".repeat(100 << 10));
    assert_eq!(face.status_of_raw(head(&long).as_bytes()), 431);
    let long_path = format!(
        "GET /v1/topics/{} HTTP/1.1\r\nhost: x\r\n\r\n",
        "a".repeat(3_000)
    );
    assert_eq!(face.status_of_raw(long_path.as_bytes()), 414);
    let stated = head("content-length: 999999999\r\n");
    assert_eq!(face.status_of_raw(stated.as_bytes()), 413);
    // A chunked body has no stated length: the broker stops reading past the limit.
    let mut chunked =
        b"POST /v1/topics HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..5 {
        chunked.extend_from_slice(b"100000\r\n");
        chunked.resize(chunked.len() + (1 << 20), b' ');
        chunked.extend_from_slice(b"\r\n");
    }
    assert_eq!(face.status_of_raw(&chunked), 413);
    let form = head("content-type: text/plain\r\ncontent-length: 2\r\n") + "{}";
    assert_eq!(face.status_of_raw(form.as_bytes()), 415);
    let slow = head("content-length: 100\r\n") + "{";
    assert_eq!(face.status_of_raw(slow.as_bytes()), 408);
    assert_eq!(face.get("/health/live"), json!({ "status": "ok" }));
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn a_request_id_comes_back_and_pipelined_requests_are_answered_in_order() {
    let face = Face::start();
    let answer = face.raw(b"GET /health/live HTTP/1.1\r\nhost: x\r\nx-request-id: mine-1\r\n\r\n");
    assert!(
        answer
            .to_ascii_lowercase()
            .contains("x-request-id: mine-1\r\n"),
        "{answer}"
    );
    let mut stream = TcpStream::connect(face.broker.http_address()).unwrap();
    stream
        .write_all(
            b"GET /health/live HTTP/1.1\r\nhost: x\r\nx-request-id: 1\r\n\r\n\
              HEAD /v1/topics HTTP/1.1\r\nhost: x\r\nx-request-id: 2\r\n\r\n\
              GET /v1/none HTTP/1.1\r\nhost: x\r\nx-request-id: 3\r\nconnection: close\r\n\r\n",
        )
        .unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let at = |id: u32| answers.find(&format!("x-request-id: {id}\r\n")).unwrap();
    assert!(at(1) < at(2) && at(2) < at(3), "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2);
    assert_eq!(answers.matches("HTTP/1.1 404 Not Found").count(), 1);
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn a_graceful_stop_closes_idle_connections_and_says_so_with_the_last_answer() {
    let mut face = Face::start();
    face.post("/v1/topics", json!({ "name": "t" }));
    let connect = || {
        let stream = TcpStream::connect(face.broker.http_address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
    };
    let mut idle = connect();
    idle.write_all(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    let mut some = [0; 4096];
    let count = idle.read(&mut some).unwrap();
    let live = String::from_utf8_lossy(&some[..count]).to_ascii_lowercase();
    assert!(!live.contains("connection: close"), "{live}");
    let mut silent = connect();
    let mut waiting = connect();
    let body = r#"{"topic":"t","max_messages":1,"max_wait_ms":30000}"#;
    let head = "POST /v1/groups/g/messages:fetch HTTP/1.1\r\nhost: x\r\n\
                content-type: application/json";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    waiting.write_all(request.as_bytes()).unwrap();
    // Long enough for the fetch to wait, short beside how long it would.
    std::thread::sleep(Duration::from_millis(500));
    assert!(face.broker.stop().unwrap().success());
    assert_eq!(idle.read(&mut some).unwrap(), 0);
    assert_eq!(silent.read(&mut some).unwrap(), 0);
    let mut last = String::new();
    waiting.read_to_string(&mut last).unwrap();
    assert!(last.starts_with("HTTP/1.1 "), "{last:?}");
    assert!(
        last.to_ascii_lowercase()
            .contains("\r\nconnection: close\r\n"),
        "{last}"
    );
}

#[test]
#[ignore = "needs the release binary: ./test --only http"]
fn metrics_count_what_was_published() {
    let mut face = Face::start();
    face.post("/v1/topics", json!({ "name": "t" }));
    face.publish("t", json!([{ "payload": "a" }, { "payload": "b" }]));
    face.send("GET", "/v1/nothing", &Value::Null);
    assert_eq!(face.status_of_raw(b"GET\r\n\r\n"), 400);
    let answer = face.send("GET", "/metrics", &Value::Null);
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.ends_with("# EOF\n"));
    assert!(
        text.contains("corelog_partition_watermark_offset{topic=\"t\",partition=\"0\"} 2\n"),
        "{text}"
    );
    let records: u64 = text
        .lines()
        .filter(|line| line.starts_with("corelog_published_records_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    assert!(records >= 2, "{text}");
    let counted = |labels: &str| text.lines().any(|line| line.contains(labels));
    assert!(counted("route=\"publish\",status=\"2xx\"} 1"), "{text}");
    assert!(counted("route=\"none\",status=\"4xx\"} 1"), "{text}");
    assert!(
        counted("face=\"http\",reason=\"malformed_header\"} 1"),
        "{text}"
    );
}
