//! The reference, `docs/http.md`, held against the code.

use super::super::fetch::FetchBody;
use super::super::group::{HeartbeatBody, JoinBody, JoiningClient, LeaveBody};
use super::super::offsets::CommitBody;
use super::super::producers::ProducerBody;
use super::super::publish::PublishBody;
use super::super::reset::ResetBody;
use super::super::topics::CreateTopicBody;
use super::super::{Problem, Route, parse_body, plan_publish, route};
use super::context;

const REFERENCE: &str = include_str!("../../../../docs/http.md");

/// Method, path with query, and body of each example.
fn examples() -> Vec<(String, String, String)> {
    let mut examples = Vec::new();
    for start in REFERENCE
        .match_indices("\n    curl ")
        .map(|(at, text)| at + text.len())
    {
        let rest = &REFERENCE[start..];
        let at = rest.find("$B").unwrap();
        let (options, url) = (&rest[..at], &rest[at + 2..]);
        let url = url.split(['\n', '"', ' ']).next().unwrap();
        let body = options.split('\'').nth(1).unwrap_or_default();
        let named = options
            .split("-X ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let method = named.unwrap_or(if body.is_empty() { "GET" } else { "POST" });
        examples.push((method.to_owned(), url.to_owned(), body.to_owned()));
    }
    examples
}

fn read_body(route: &Route, body: &str) -> Result<(), Problem> {
    let body = body.as_bytes();
    match route {
        Route::CreateTopic => parse_body::<CreateTopicBody>(body).map(drop),
        Route::Publish { .. } => {
            let body: PublishBody<'_> = parse_body(body)?;
            let plan = plan_publish(&body, &context())?;
            assert!(
                plan.messages
                    .iter()
                    .all(|message| message.refusal.is_none())
            );
            Ok(())
        }
        Route::Fetch { .. } => parse_body::<FetchBody>(body)?.check().map(drop),
        Route::CommitOffsets { .. } => parse_body::<CommitBody>(body)?.check().map(drop),
        Route::ResetOffsets { .. } => parse_body::<ResetBody>(body)?.check().map(drop),
        Route::JoinGroup { .. } => {
            let client = JoiningClient {
                new_member_id: "m".into(),
                client_id: String::new(),
                client_host: String::new(),
            };
            parse_body::<JoinBody>(body)?.check(client).map(drop)
        }
        Route::Heartbeat { .. } => parse_body::<HeartbeatBody>(body)?.fence().map(drop),
        Route::LeaveGroup { .. } => parse_body::<LeaveBody>(body)?.member().map(drop),
        Route::InitProducer => parse_body::<ProducerBody>(body)?.producer().map(drop),
        _ => {
            assert!(body.is_empty(), "{} takes no body", route.label());
            Ok(())
        }
    }
}

#[test]
fn every_route_has_an_example_that_is_accepted() {
    let mut labels = std::collections::BTreeSet::new();
    for (method, url, body) in examples() {
        let (path, query) = match url.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (url.as_str(), None),
        };
        let route = route(&method, path, query).unwrap();
        assert!(body.len() <= route.body_bytes_max());
        read_body(&route, &body).unwrap_or_else(|problem| panic!("{body}: {problem:?}"));
        labels.insert(route.label());
    }
    assert_eq!(labels.len(), 18, "an example is missing: {labels:?}");
}

#[test]
fn answers_in_the_reference_are_json() {
    for block in REFERENCE.split("```json\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let read: Result<serde_json::Value, _> = serde_json::from_str(block);
        assert!(read.is_ok(), "{block}");
    }
}
