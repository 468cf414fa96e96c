//! Method, path and query to what is asked.
//!
//! Segments are split at the raw `/` and percent-decoded afterwards, so a group's name may hold a `/` as
//! `%2F`, and `messages%3Apublish` is the same as `messages:publish`. Names are not judged here: the
//! engine knows which are allowed.

use corelog_engine::rejection::Rejection;
use percent_encoding::percent_decode;

use super::limits::{
    BODY_BYTES_MAX, PAGE_DEFAULT, PAGE_MAX, PATH_BYTES_MAX, PUBLISH_BODY_BYTES_MAX, QUERY_BYTES_MAX,
};
use super::problem::Problem;

/// Segments of the longest path there is.
const SEGMENTS_MAX: usize = 4;

/// What is asked, with the names from the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `POST /v1/topics`
    CreateTopic,
    /// `GET /v1/topics`
    ListTopics(Page),
    /// `GET /v1/topics/{topic}`
    DescribeTopic {
        /// The topic.
        topic: String,
    },
    /// `DELETE /v1/topics/{topic}`
    DeleteTopic {
        /// The topic.
        topic: String,
    },
    /// `POST /v1/topics/{topic}/messages:publish`
    Publish {
        /// The topic.
        topic: String,
    },
    /// `POST /v1/groups/{group}/messages:fetch`
    Fetch {
        /// The group.
        group: String,
    },
    /// `POST /v1/groups/{group}/offsets:commit`
    CommitOffsets {
        /// The group.
        group: String,
    },
    /// `POST /v1/groups/{group}/offsets:reset`
    ResetOffsets {
        /// The group.
        group: String,
    },
    /// `POST /v1/groups/{group}/members:join`
    JoinGroup {
        /// The group.
        group: String,
    },
    /// `POST /v1/groups/{group}/members:heartbeat`
    Heartbeat {
        /// The group.
        group: String,
    },
    /// `POST /v1/groups/{group}/members:leave`
    LeaveGroup {
        /// The group.
        group: String,
    },
    /// `GET /v1/groups`
    ListGroups(Page),
    /// `GET /v1/groups/{group}`
    DescribeGroup {
        /// The group.
        group: String,
    },
    /// `DELETE /v1/groups/{group}`
    DeleteGroup {
        /// The group.
        group: String,
    },
    /// `POST /v1/producers`
    InitProducer,
    /// `GET /health/live`
    Live,
    /// `GET /health/ready`
    Ready,
    /// `GET /metrics`
    Metrics,
}

/// Which part of a listing: `?after=NAME&limit=N`, in the order of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Only names past this one.
    pub after: Option<String>,
    /// At most so many, from 1 to [`PAGE_MAX`].
    pub limit: usize,
}

impl Route {
    /// A name for metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::CreateTopic => "create_topic",
            Self::ListTopics(_) => "list_topics",
            Self::DescribeTopic { .. } => "describe_topic",
            Self::DeleteTopic { .. } => "delete_topic",
            Self::Publish { .. } => "publish",
            Self::Fetch { .. } => "fetch",
            Self::CommitOffsets { .. } => "commit_offsets",
            Self::ResetOffsets { .. } => "reset_offsets",
            Self::JoinGroup { .. } => "join_group",
            Self::Heartbeat { .. } => "heartbeat",
            Self::LeaveGroup { .. } => "leave_group",
            Self::ListGroups(_) => "list_groups",
            Self::DescribeGroup { .. } => "describe_group",
            Self::DeleteGroup { .. } => "delete_group",
            Self::InitProducer => "init_producer",
            Self::Live => "live",
            Self::Ready => "ready",
            Self::Metrics => "metrics",
        }
    }

    /// Largest body this route takes, in bytes; 0 where a body has no meaning.
    pub const fn body_bytes_max(&self) -> usize {
        match self {
            Self::Publish { .. } => PUBLISH_BODY_BYTES_MAX,
            Self::CreateTopic
            | Self::Fetch { .. }
            | Self::CommitOffsets { .. }
            | Self::ResetOffsets { .. }
            | Self::JoinGroup { .. }
            | Self::Heartbeat { .. }
            | Self::LeaveGroup { .. }
            | Self::InitProducer => BODY_BYTES_MAX,
            Self::ListTopics(_)
            | Self::DescribeTopic { .. }
            | Self::DeleteTopic { .. }
            | Self::ListGroups(_)
            | Self::DescribeGroup { .. }
            | Self::DeleteGroup { .. }
            | Self::Live
            | Self::Ready
            | Self::Metrics => 0,
        }
    }
}

/// Tells what is asked. `HEAD` is taken as `GET`; the connection leaves out the body.
///
/// # Errors
///
/// 404 for a path that is nothing, 405 with `allow` for a method that the path does not have, 414 for a
/// path or query above its limit, 400 for bad percent-encoding or a query parameter that is not known.
pub fn route(method: &str, path: &str, query: Option<&str>) -> Result<Route, Problem> {
    let query = query.unwrap_or_default();
    if path.len() > PATH_BYTES_MAX || query.len() > QUERY_BYTES_MAX {
        return Err(Problem::rejected(Rejection::InvalidRequest).with_kind(
            "uri_too_long",
            414,
            "the path or the query is too long",
        ));
    }
    let segments = segments(path)?;
    let names: Vec<&str> = segments.iter().map(String::as_str).collect();
    let method = if method == "HEAD" { "GET" } else { method };
    let found = match *names.as_slice() {
        ["v1", "topics"] => match method {
            "GET" => Route::ListTopics(page(query)?),
            "POST" => Route::CreateTopic,
            _ => return Err(method_not_allowed("GET, HEAD, POST")),
        },
        ["v1", "topics", topic] => match method {
            "GET" => Route::DescribeTopic {
                topic: topic.into(),
            },
            "DELETE" => Route::DeleteTopic {
                topic: topic.into(),
            },
            _ => return Err(method_not_allowed("GET, HEAD, DELETE")),
        },
        ["v1", "topics", topic, "messages:publish"] => only(
            "POST",
            method,
            Route::Publish {
                topic: topic.into(),
            },
        )?,
        ["v1", "groups"] => match method {
            "GET" => Route::ListGroups(page(query)?),
            _ => return Err(method_not_allowed("GET, HEAD")),
        },
        ["v1", "groups", group] => match method {
            "GET" => Route::DescribeGroup {
                group: group.into(),
            },
            "DELETE" => Route::DeleteGroup {
                group: group.into(),
            },
            _ => return Err(method_not_allowed("GET, HEAD, DELETE")),
        },
        ["v1", "groups", group, action] => {
            let group = group.to_owned();
            let found = match action {
                "messages:fetch" => Route::Fetch { group },
                "offsets:commit" => Route::CommitOffsets { group },
                "offsets:reset" => Route::ResetOffsets { group },
                "members:join" => Route::JoinGroup { group },
                "members:heartbeat" => Route::Heartbeat { group },
                "members:leave" => Route::LeaveGroup { group },
                _ => return Err(not_found()),
            };
            only("POST", method, found)?
        }
        ["v1", "producers"] => only("POST", method, Route::InitProducer)?,
        ["health", "live"] => only("GET", method, Route::Live)?,
        ["health", "ready"] => only("GET", method, Route::Ready)?,
        ["metrics"] => only("GET", method, Route::Metrics)?,
        _ => return Err(not_found()),
    };
    let ignores_query = matches!(found, Route::Live | Route::Ready | Route::Metrics);
    let has_page = matches!(found, Route::ListTopics(_) | Route::ListGroups(_));
    if !query.is_empty() && !ignores_query && !has_page {
        return Err(Problem::invalid("this request takes no query parameters"));
    }
    Ok(found)
}

fn only(allowed: &'static str, method: &str, found: Route) -> Result<Route, Problem> {
    match allowed {
        _ if method == allowed => Ok(found),
        "GET" => Err(method_not_allowed("GET, HEAD")),
        _ => Err(method_not_allowed(allowed)),
    }
}

fn not_found() -> Problem {
    Problem::rejected(Rejection::InvalidRequest).with_kind(
        "no_such_route",
        404,
        "nothing is at this path; docs/http.md lists what there is",
    )
}

fn method_not_allowed(allow: &'static str) -> Problem {
    Problem::rejected(Rejection::InvalidRequest)
        .with_kind(
            "method_not_allowed",
            405,
            "this path does not have that method; see the allow header",
        )
        .with_allow(allow)
}

/// The decoded segments of a path. An empty one, as after a trailing slash, names nothing.
fn segments(path: &str) -> Result<Vec<String>, Problem> {
    let relative = path.strip_prefix('/').ok_or_else(not_found)?;
    if relative.split('/').count() > SEGMENTS_MAX {
        return Err(not_found());
    }
    relative
        .split('/')
        .map(|segment| match decode(segment)? {
            decoded if decoded.is_empty() => Err(not_found()),
            decoded => Ok(decoded),
        })
        .collect()
}

/// Percent-decoding that refuses what the library would pass through: a `%` without two hex digits.
fn decode(encoded: &str) -> Result<String, Problem> {
    let mut after_percent = encoded.split('%').skip(1);
    let well_formed = after_percent.all(|rest| {
        let digits = rest.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if !well_formed {
        return Err(Problem::invalid(
            "a % in the path or query must be followed by two hex digits",
        ));
    }
    match percent_decode(encoded.as_bytes()).decode_utf8() {
        Ok(decoded) if !decoded.contains('\0') => Ok(decoded.into_owned()),
        _ => Err(Problem::invalid(
            "a percent-encoded name must be UTF-8 without zero bytes",
        )),
    }
}

fn page(query: &str) -> Result<Page, Problem> {
    let mut page = Page {
        after: None,
        limit: PAGE_DEFAULT,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "after" => page.after = Some(decode(&value.replace('+', " "))?),
            "limit" => {
                page.limit = value
                    .parse()
                    .ok()
                    .filter(|limit| (1..=PAGE_MAX).contains(limit))
                    .ok_or_else(|| Problem::invalid(format!("limit is 1 to {PAGE_MAX}")))?;
            }
            _ => {
                return Err(Problem::invalid(
                    "the query parameters of a listing are after and limit",
                ));
            }
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use proptest::prelude::*;

    use super::*;

    fn first_page() -> Page {
        Page {
            after: None,
            limit: PAGE_DEFAULT,
        }
    }

    fn every_route() -> Vec<(&'static str, &'static str, Route)> {
        let topic = || "orders".to_owned();
        let group = || "billing".to_owned();
        vec![
            ("POST", "/v1/topics", Route::CreateTopic),
            ("GET", "/v1/topics", Route::ListTopics(first_page())),
            (
                "GET",
                "/v1/topics/orders",
                Route::DescribeTopic { topic: topic() },
            ),
            (
                "DELETE",
                "/v1/topics/orders",
                Route::DeleteTopic { topic: topic() },
            ),
            (
                "POST",
                "/v1/topics/orders/messages:publish",
                Route::Publish { topic: topic() },
            ),
            (
                "POST",
                "/v1/groups/billing/messages:fetch",
                Route::Fetch { group: group() },
            ),
            (
                "POST",
                "/v1/groups/billing/offsets:commit",
                Route::CommitOffsets { group: group() },
            ),
            (
                "POST",
                "/v1/groups/billing/offsets:reset",
                Route::ResetOffsets { group: group() },
            ),
            (
                "POST",
                "/v1/groups/billing/members:join",
                Route::JoinGroup { group: group() },
            ),
            (
                "POST",
                "/v1/groups/billing/members:heartbeat",
                Route::Heartbeat { group: group() },
            ),
            (
                "POST",
                "/v1/groups/billing/members:leave",
                Route::LeaveGroup { group: group() },
            ),
            ("GET", "/v1/groups", Route::ListGroups(first_page())),
            (
                "GET",
                "/v1/groups/billing",
                Route::DescribeGroup { group: group() },
            ),
            (
                "DELETE",
                "/v1/groups/billing",
                Route::DeleteGroup { group: group() },
            ),
            ("POST", "/v1/producers", Route::InitProducer),
            ("GET", "/health/live", Route::Live),
            ("GET", "/health/ready", Route::Ready),
            ("GET", "/metrics", Route::Metrics),
        ]
    }

    #[test]
    fn every_route_is_found_at_its_path_and_method_only() {
        for (method, path, expected) in every_route() {
            assert_eq!(route(method, path, None).unwrap(), expected);
            let with_slash = route(method, &format!("{path}/"), None).unwrap_err();
            assert_eq!(with_slash.status(), 404, "{path}/");
            for other in [
                "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get",
            ] {
                match route(other, path, None) {
                    Ok(found) => assert!(every_route().contains(&(
                        if other == "HEAD" { "GET" } else { other },
                        path,
                        found
                    ))),
                    Err(problem) => {
                        let answer = problem.into_answer();
                        assert_eq!(answer.status, 405, "{other} {path}");
                        assert!(!answer.allow.unwrap().split(", ").any(|m| m == other));
                        assert!(answer.allow.unwrap().split(", ").any(|m| m == method));
                    }
                }
            }
        }
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::BTreeSet<_> = every_route()
            .iter()
            .map(|(_, _, route)| route.label())
            .collect();
        assert_eq!(labels.len(), every_route().len());
    }

    #[test]
    fn what_is_no_path_is_404() {
        for path in [
            "",
            "/",
            "v1/topics",
            "/v1",
            "/v2/topics",
            "/v1/topics//messages:publish",
            "//v1/topics",
            "/v1/topics/orders/messages:fetch",
            "/v1/groups/g/messages:publish",
            "/v1/groups/g/x",
            "/v1/topics/a/b/c",
            "/health",
            "/v1/producers/7",
            "/v1/Topics",
        ] {
            assert_eq!(
                route("POST", path, None).unwrap_err().status(),
                404,
                "{path}"
            );
        }
    }

    #[test]
    fn names_are_percent_decoded_after_the_split() {
        assert_eq!(
            route("GET", "/v1/groups/a%2Fb%20%C3%A9", None).unwrap(),
            Route::DescribeGroup {
                group: "a/b é".into()
            }
        );
        assert!(matches!(
            route("POST", "/v1/topics/orders/messages%3apublish", None),
            Ok(Route::Publish { .. })
        ));
        for bad in ["%", "%2", "%zz", "a%+1", "%ff", "%00"] {
            let problem = route("GET", &format!("/v1/groups/{bad}"), None).unwrap_err();
            assert_eq!(problem.status(), 400, "{bad}");
        }
    }

    #[test]
    fn long_paths_and_queries_are_414() {
        let long = format!("/v1/groups/{}", "g".repeat(PATH_BYTES_MAX));
        assert_eq!(route("GET", &long, None).unwrap_err().status(), 414);
        let long = "a".repeat(QUERY_BYTES_MAX + 1);
        assert_eq!(
            route("GET", "/v1/topics", Some(&long))
                .unwrap_err()
                .status(),
            414
        );
    }

    #[test]
    fn only_listings_take_parameters() {
        assert_eq!(
            route("GET", "/v1/topics", Some("after=a%2Bb+c&limit=10")).unwrap(),
            Route::ListTopics(Page {
                after: Some("a+b c".into()),
                limit: 10
            })
        );
        for query in [
            "limit=0",
            "limit=10001",
            "limit=x",
            "limit",
            "offset=1",
            "after=%",
        ] {
            let problem = route("GET", "/v1/groups", Some(query)).unwrap_err();
            assert_eq!(problem.status(), 400, "{query}");
        }
        let problem = route("POST", "/v1/topics", Some("x=1")).unwrap_err();
        assert_eq!(problem.status(), 400);
        assert_eq!(
            route("GET", "/metrics", Some("name=up")).unwrap(),
            Route::Metrics
        );
        assert_eq!(
            route("GET", "/v1/topics", Some("")).unwrap(),
            Route::ListTopics(first_page())
        );
    }

    #[test]
    fn a_publish_may_be_larger_than_other_bodies() {
        let publish = Route::Publish { topic: "t".into() };
        assert_eq!(publish.body_bytes_max(), PUBLISH_BODY_BYTES_MAX);
        assert_eq!(Route::CreateTopic.body_bytes_max(), BODY_BYTES_MAX);
        assert_eq!(Route::Live.body_bytes_max(), 0);
    }

    proptest! {
        #[test]
        fn any_request_line_is_answered(method in "\\PC{0,8}", path in "/?(v1|%|/|:|topics|groups|\\PC){0,12}", query in "\\PC{0,30}") {
            let _ = route(&method, &path, Some(&query));
        }
    }
}
