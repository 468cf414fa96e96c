//! How long a start takes, whatever is retained: a report.

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
