//! The one shape of a refusal: problem details (RFC 9457), with members of our own beside the
//! standard ones.

use bytes::Bytes;
use corelog_engine::rejection::{Rejection, Retry};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::answer::Answer;
use super::limits::DETAIL_BYTES_MAX;

/// The media type of every refusal.
pub const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";

/// Pause suggested with every refusal that may succeed later, in seconds. A second is the header's
/// smallest unit, and longer than anything the broker itself waits for.
const RETRY_AFTER_S: u32 = 1;

/// Why a request was refused.
///
/// Serialized as `type` (the rejection's label, a URI reference relative to nothing), `title`, `status`,
/// `detail`, `kafka_code`, `retry` and, where given, members that name what the refusal is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    kafka_code: i16,
    retry: Retry,
    allow: Option<&'static str>,
    members: Vec<(&'static str, serde_json::Value)>,
}

/// What one partition still holds: with refusals of offsets outside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Retained {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The oldest retained offset.
    pub log_start: u64,
    /// The first offset not yet readable.
    pub watermark: u64,
}

impl Problem {
    /// A refusal by the engine, or one that the engine would also give.
    pub fn rejected(rejection: Rejection) -> Self {
        Self {
            kind: rejection.label(),
            title: rejection.text(),
            status: rejection.http_status(),
            detail: String::new(),
            kafka_code: rejection.kafka_code(),
            retry: rejection.retry(),
            allow: None,
            members: Vec::new(),
        }
    }

    /// A request that contradicts itself or this reference: 400, with what is wrong.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::rejected(Rejection::InvalidRequest).with_detail(detail)
    }

    /// A refusal that only HTTP knows; its Kafka code stays that of the rejection it started from.
    pub(super) fn with_kind(
        mut self,
        kind: &'static str,
        status: u16,
        title: &'static str,
    ) -> Self {
        self.kind = kind;
        self.status = status;
        self.title = title;
        self
    }

    /// Says what exactly is wrong; cut at [`DETAIL_BYTES_MAX`].
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        if self.detail.len() > DETAIL_BYTES_MAX {
            let end = self.detail.floor_char_boundary(DETAIL_BYTES_MAX);
            self.detail.truncate(end);
            self.detail.push('…');
        }
        self
    }

    /// Names what is still there, under `retained`.
    #[must_use]
    pub fn with_retained(self, retained: &[Retained]) -> Self {
        self.with_member("retained", &retained)
    }

    /// Adds the `allow` header of a 405.
    pub(super) fn with_allow(mut self, allow: &'static str) -> Self {
        self.allow = Some(allow);
        self
    }

    /// Adds a member of our own.
    pub(super) fn with_member(mut self, name: &'static str, value: &impl Serialize) -> Self {
        let Ok(value) = serde_json::to_value(value) else {
            unreachable!("a problem's members are always representable as JSON")
        };
        self.members.push((name, value));
        self
    }

    /// The status code.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The `type` member, which is also the metric label.
    pub const fn kind(&self) -> &'static str {
        self.kind
    }

    /// What exactly is wrong; may be empty.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The answer to send.
    pub fn into_answer(self) -> Answer {
        let json = Answer::json(self.status, &self);
        Answer {
            content_type: Some(PROBLEM_CONTENT_TYPE),
            retry_after_s: (self.retry == Retry::Later).then_some(RETRY_AFTER_S),
            allow: self.allow,
            ..json
        }
    }

    /// The body alone.
    pub fn to_bytes(&self) -> Bytes {
        Answer::json(self.status, self).body
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind)?;
        map.serialize_entry("title", self.title)?;
        map.serialize_entry("status", &self.status)?;
        if !self.detail.is_empty() {
            map.serialize_entry("detail", &self.detail)?;
        }
        map.serialize_entry("kafka_code", &self.kafka_code)?;
        map.serialize_entry("retry", retry_name(self.retry))?;
        for (name, value) in &self.members {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        Self::rejected(rejection)
    }
}

/// The name of a retry class in problems and in refusals of parts.
const fn retry_name(retry: Retry) -> &'static str {
    match retry {
        Retry::Never => "never",
        Retry::AfterRefresh => "after_refresh",
        Retry::Later => "later",
    }
}

/// The refusal of one part of a request, within an answer: the same members, without status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct PartProblem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    kafka_code: i16,
    retry: &'static str,
}

impl PartProblem {
    pub(super) fn new(rejection: Rejection, detail: Option<String>) -> Self {
        Self {
            kind: rejection.label(),
            title: rejection.text(),
            detail,
            kafka_code: rejection.kafka_code(),
            retry: retry_name(rejection.retry()),
        }
    }
}

/// The one rejection shared by all parts, if there are parts and none was accepted.
pub(super) fn shared_rejection(
    parts: impl IntoIterator<Item = Option<Rejection>>,
) -> Option<AllRefused> {
    let mut first = None;
    let mut mixed = false;
    for part in parts {
        let rejection = part?;
        mixed |= *first.get_or_insert(rejection) != rejection;
    }
    first.map(|first| AllRefused { first, mixed })
}

/// Every part of a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllRefused {
    pub(super) first: Rejection,
    /// For different reasons.
    pub(super) mixed: bool,
}

impl AllRefused {
    /// The first reason, with `parts` under `member`.
    pub(super) fn into_problem(self, member: &'static str, parts: &impl Serialize) -> Problem {
        let problem = Problem::rejected(self.first).with_member(member, parts);
        if self.mixed {
            problem.with_detail(format!(
                "all parts were refused, for different reasons; `{member}` names them, and this is the first"
            ))
        } else {
            problem
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[test]
    fn every_rejection_is_a_problem_with_its_code_status_label_and_retry() {
        for &rejection in Rejection::ALL {
            let answer = Problem::rejected(rejection)
                .with_detail("why")
                .into_answer();
            assert_eq!(answer.status, rejection.http_status());
            assert_eq!(answer.content_type, Some("application/problem+json"));
            assert_eq!(
                answer.retry_after_s.is_some(),
                rejection.retry() == Retry::Later
            );
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(body["type"], rejection.label());
            assert_eq!(body["title"], rejection.text());
            assert_eq!(body["status"], rejection.http_status());
            assert_eq!(body["detail"], "why");
            assert_eq!(body["kafka_code"], rejection.kafka_code());
            assert!(["never", "after_refresh", "later"].contains(&body["retry"].as_str().unwrap()));
        }
    }

    #[test]
    fn a_long_detail_is_cut_between_characters() {
        let problem = Problem::invalid("é".repeat(DETAIL_BYTES_MAX));
        assert!(problem.detail().len() <= DETAIL_BYTES_MAX + '…'.len_utf8());
        assert!(problem.detail().ends_with("é…"));
    }

    #[test]
    fn what_is_retained_is_named() {
        let problem = Problem::rejected(Rejection::OffsetOutOfRange).with_retained(&[Retained {
            topic: "orders".into(),
            partition: 3,
            log_start: 7,
            watermark: 9,
        }]);
        let body: serde_json::Value = serde_json::from_slice(&problem.to_bytes()).unwrap();
        assert_eq!(body["retained"][0]["log_start"], 7);
        assert_eq!(body["retained"][0]["watermark"], 9);
    }

    #[test]
    fn one_accepted_part_means_that_not_all_were_refused() {
        use Rejection::{MessageTooLarge, Overloaded};
        assert_eq!(shared_rejection([]), None);
        assert_eq!(shared_rejection([Some(Overloaded), None]), None);
        let all = shared_rejection([Some(Overloaded), Some(Overloaded)]).unwrap();
        assert_eq!((all.first, all.mixed), (Overloaded, false));
        let all = shared_rejection([Some(MessageTooLarge), Some(Overloaded)]).unwrap();
        assert_eq!((all.first, all.mixed), (MessageTooLarge, true));
    }
}
