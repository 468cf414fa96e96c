//! How long a start takes, whatever is retained: a report. And what a start finishes.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use corelog_tests::broker::{Broker, Options};
use corelog_tests::http::Connection;
use corelog_tests::message_api;

use super::read_some;

#[test]
#[ignore = "needs the release binary: ./test --only crashes"]
fn restart_is_quick_whatever_is_retained() {
    let mut broker = Broker::start(Options::default()).unwrap();
    let mut http = Connection::open(&broker.http_address()).unwrap();
    message_api::create_topic(&mut http, "history", 4).unwrap();
    let payload = "x".repeat(50_000);
    let mut retained_mb = 0;
    for goal_mb in [1, 20, 200] {
        while retained_mb < goal_mb {
            let keys: Vec<String> = (0..20).map(|key| format!("key{key}")).collect();
            let messages: Vec<(&str, &str)> = keys
                .iter()
                .map(|key| (key.as_str(), payload.as_str()))
                .collect();
            message_api::publish(&mut http, "history", &messages).unwrap();
            retained_mb += 1;
        }
        broker.kill9().unwrap();
        let after_kill = broker.restart().unwrap();
        broker.stop().unwrap();
        let after_stop = broker.restart().unwrap();
        // A report: a busy machine does not fail the run.
        println!(
            "{retained_mb} MB retained: ready {after_kill:?} after a kill, {after_stop:?} after a stop"
        );
        http = Connection::open(&broker.http_address()).unwrap();
        assert!(read_some(&mut http, &format!("group{goal_mb}"), "history") > 0);
    }
}

#[test]
#[ignore = "needs the release binary: ./test --only crashes"]
fn a_topic_deleted_just_before_a_kill_leaves_nothing_on_the_disk() {
    let mut broker = Broker::start(Options::default()).unwrap();
    let topics = broker.data_directory().join("topics");
    let deleting = broker.data_directory().join("deleting");
    let entries = |folder: &Path| match fs::read_dir(folder) {
        Ok(entries) => entries.count(),
        Err(_) => 0,
    };
    for round in 0..10 {
        let mut http = Connection::open(&broker.http_address()).unwrap();
        let before = entries(&topics);
        message_api::create_topic(&mut http, "fleeting", 8).unwrap();
        let keys: Vec<String> = (0..40).map(|key| format!("key{key}")).collect();
        let messages: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "gone")).collect();
        message_api::publish(&mut http, "fleeting", &messages).unwrap();
        assert_eq!(entries(&topics), before + 1);
        let deleted = http.request("DELETE", "/v1/topics/fleeting", b"").unwrap();
        assert!(deleted.status < 300, "{}", deleted.status);
        if round % 2 == 0 {
            broker.kill9().unwrap();
            broker.restart().unwrap();
        }
        let until = Instant::now() + Duration::from_secs(20);
        while entries(&topics) + entries(&deleting) > before {
            assert!(Instant::now() < until, "something of the topic is left");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
