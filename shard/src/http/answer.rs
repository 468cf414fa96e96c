//! From a request's head to its handler, and from the handler's answer to the response.

use std::net::IpAddr;
use std::rc::Rc;

use corelog_engine::admission::Principal;
use corelog_net::http::{Answer, Head, Problem, Route, check_head, route};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderMap,
    HeaderName, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING, USER_AGENT,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};

use super::body::{AnswerBody, BodyRules};
use super::exchange::Exchange;
use super::{fetch, groups, health, metrics, offsets, producers, publish, topics};
use crate::counts::Count;
use crate::randomness::random_id;
use crate::shard::{Reservation, Shard};

/// Names a request in logs on both sides: the client's own where it sends one.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Counts requests that belong to no route.
const NO_ROUTE: &str = "none";

/// The longest request id that is taken over from a client, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The longest `user-agent` that is kept for descriptions of members, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 200;

/// Answers one request.
pub(super) async fn answer(
    shard: Rc<Shard>,
    client: IpAddr,
    request: Request<Incoming>,
) -> Response<AnswerBody> {
    let (parts, body) = request.into_parts();
    let id = request_id(&parts.headers);
    let (label, answer, held) = match begin(&shard, client, &parts, body) {
        Ok((route, mut exchange)) => {
            let handled = handle(&route, &mut exchange).await;
            if let Err(problem) = &handled {
                tracing::debug!(
                    request = ?id,
                    route = route.label(),
                    status = problem.status(),
                    kind = problem.kind(),
                    detail = problem.detail(),
                    "a request was refused"
                );
            }
            let answer = handled.unwrap_or_else(Problem::into_answer);
            (route.label(), answer, exchange.answer_held.take())
        }
        Err((label, problem)) => (label, problem.into_answer(), None),
    };
    let hundreds = u8::try_from(answer.status / 100).unwrap_or_default();
    shard.counts.count(Count::Answered(label, hundreds));
    respond(answer, held, id, shard.is_stopping())
}

/// Tells what is asked and by whom; the body is not touched. A refusal comes with the route's label.
fn begin(
    shard: &Rc<Shard>,
    client: IpAddr,
    parts: &Parts,
    body: Incoming,
) -> Result<(Route, Exchange), (&'static str, Problem)> {
    let uri = &parts.uri;
    let route = route(parts.method.as_str(), uri.path(), uri.query())
        .map_err(|problem| (NO_ROUTE, problem))?;
    let bytes_max = route.body_bytes_max();
    let header = |name: HeaderName| parts.headers.get(name).map(HeaderValue::as_bytes);
    let content_length = header(CONTENT_LENGTH)
        .filter(|_| !parts.headers.contains_key(TRANSFER_ENCODING))
        .and_then(|length| str::from_utf8(length).ok())
        .and_then(|length| length.parse().ok());
    // Where a body means nothing its type does not matter either.
    let has_body = bytes_max > 0;
    let head = Head {
        content_type: header(CONTENT_TYPE).filter(|_| has_body),
        content_encoding: header(CONTENT_ENCODING).filter(|_| has_body),
        content_length,
        expect: header(EXPECT),
    };
    check_head(&head, bytes_max).map_err(|problem| (route.label(), problem))?;
    let rules = BodyRules {
        stated_bytes: content_length,
        bytes_max,
        copies: 1,
    };
    let exchange = Exchange {
        shard: Rc::clone(shard),
        principal: Principal::anonymous(),
        client_host: client.to_string(),
        client_id: client_id(&parts.headers),
        body: has_body.then_some((body, rules)),
        body_held: Vec::new(),
        answer_held: None,
    };
    Ok((route, exchange))
}

async fn handle(route: &Route, exchange: &mut Exchange) -> Result<Answer, Problem> {
    match route {
        Route::CreateTopic => topics::create(exchange).await,
        Route::ListTopics(page) => topics::list(exchange, page),
        Route::DescribeTopic { topic } => topics::describe(exchange, topic).await,
        Route::DeleteTopic { topic } => topics::delete(exchange, topic).await,
        Route::Publish { topic } => publish::publish(exchange, topic).await,
        Route::InitProducer => producers::init(exchange).await,
        Route::Fetch { group } => fetch::fetch(exchange, group).await,
        Route::CommitOffsets { group } => offsets::commit(exchange, group).await,
        Route::ResetOffsets { group } => offsets::reset(exchange, group).await,
        Route::JoinGroup { group } => groups::join(exchange, group).await,
        Route::Heartbeat { group } => groups::heartbeat(exchange, group).await,
        Route::LeaveGroup { group } => groups::leave(exchange, group).await,
        Route::ListGroups(page) => groups::list(exchange, page).await,
        Route::DescribeGroup { group } => groups::describe(exchange, group).await,
        Route::DeleteGroup { group } => groups::delete(exchange, group).await,
        Route::Live => Ok(health::live()),
        Route::Ready => Ok(health::ready(&exchange.shard).await),
        Route::Metrics => metrics::metrics(&exchange.shard).await,
    }
}

fn respond(
    answer: Answer,
    held: Option<Reservation>,
    id: HeaderValue,
    is_stopping: bool,
) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::new(answer.body, held));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    if let Some(content_type) = answer.content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    if let Some(seconds) = answer.retry_after_s {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(allow) = answer.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if is_stopping {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn request_id(headers: &HeaderMap) -> HeaderValue {
    let named = headers.get(REQUEST_ID).filter(|id| {
        let bytes = id.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    named.cloned().unwrap_or_else(|| {
        let digits = format!("{:032x}", u128::from_be_bytes(random_id()));
        HeaderValue::from_str(&digits).unwrap_or(HeaderValue::from_static("-"))
    })
}

fn client_id(headers: &HeaderMap) -> String {
    let agent = headers
        .get(USER_AGENT)
        .and_then(|agent| agent.to_str().ok());
    agent
        .unwrap_or_default()
        .chars()
        .take(CLIENT_ID_BYTES_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_id(id: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_static(id));
        headers
    }

    #[test]
    fn the_clients_own_request_id_comes_back() {
        assert_eq!(request_id(&with_id("abc-1")), "abc-1");
    }

    #[test]
    fn a_request_id_that_is_missing_or_unfit_for_a_log_is_replaced() {
        let long: &'static str = "x".repeat(REQUEST_ID_BYTES_MAX + 1).leak();
        for headers in [HeaderMap::new(), with_id(""), with_id("a b"), with_id(long)] {
            let id = request_id(&headers);
            assert_eq!(id.len(), 32, "{id:?}");
            assert!(id.as_bytes().iter().all(u8::is_ascii_hexdigit));
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[test]
    fn an_answer_keeps_its_headers_and_says_when_the_broker_is_stopping() {
        let problem = Problem::rejected(corelog_engine::rejection::Rejection::Overloaded);
        let id = HeaderValue::from_static("1");
        let response = respond(problem.into_answer(), None, id.clone(), true);
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(response.headers()[CONNECTION], "close");
        let response = respond(Answer::done(), None, id, false);
        assert_eq!(response.status(), 204);
        assert!(!response.headers().contains_key(CONTENT_TYPE));
        assert!(!response.headers().contains_key(CONNECTION));
    }
}
