//! An answer as the connection writes it.

use bytes::Bytes;
use serde::Serialize;

use super::problem::Problem;
use corelog_engine::rejection::Rejection;

/// Status, headers and body. The body is whole, so the connection knows its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// `content-type`; `None` for an answer without a body.
    pub content_type: Option<&'static str>,
    /// `retry-after`, in seconds.
    pub retry_after_s: Option<u32>,
    /// `allow`, with a 405.
    pub allow: Option<&'static str>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// A JSON body.
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        // Bodies are our own types with string keys; writing into memory does not fail.
        let Ok(bytes) = serde_json::to_vec(body) else {
            unreachable!("an answer's body is always representable as JSON")
        };
        Self {
            status,
            content_type: Some("application/json"),
            retry_after_s: None,
            allow: None,
            body: Bytes::from(bytes),
        }
    }

    /// 204: done, nothing to say. To deletions, heartbeats and leaves.
    pub const fn done() -> Self {
        Self {
            status: 204,
            content_type: None,
            retry_after_s: None,
            allow: None,
            body: Bytes::new(),
        }
    }
}

/// To `GET /health/live` and `GET /health/ready`: 200 `{"status":"ok"}`, or 503 with the reason why not.
pub fn health_answer(state: Result<(), &str>) -> Answer {
    #[derive(Serialize)]
    struct Health {
        status: &'static str,
    }
    match state {
        Ok(()) => Answer::json(200, &Health { status: "ok" }),
        Err(reason) => Problem::rejected(Rejection::CoordinatorLoading)
            .with_kind(
                "not_ready",
                503,
                "the broker is not ready; ask again shortly",
            )
            .with_detail(reason)
            .into_answer(),
    }
}

/// To `GET /metrics`: the OpenMetrics text exposition in `text`.
pub const fn metrics_answer(text: Bytes) -> Answer {
    Answer {
        status: 200,
        content_type: Some("application/openmetrics-text; version=1.0.0; charset=utf-8"),
        retry_after_s: None,
        allow: None,
        body: text,
    }
}
