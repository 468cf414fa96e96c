//! What is checked of a request's head before its body is read.

use corelog_engine::rejection::Rejection;

use super::problem::Problem;

/// The header fields that matter, as the connection found them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// `content-type`.
    pub content_type: Option<&'a [u8]>,
    /// `content-encoding`.
    pub content_encoding: Option<&'a [u8]>,
    /// `content-length`, where the body is not chunked.
    pub content_length: Option<u64>,
    /// `expect`.
    pub expect: Option<&'a [u8]>,
}

/// Refuses what would not be read anyway. A chunked body has no stated length: the connection must stop
/// reading past `body_bytes_max` itself and answer [`body_too_large`].
///
/// # Errors
///
/// 413 for a stated length above `body_bytes_max` (see `Route::body_bytes_max`), 415 for a type other
/// than JSON in UTF-8 or for a compressed body, 417 for an expectation other than `100-continue`.
pub fn check_head(head: &Head<'_>, body_bytes_max: usize) -> Result<(), Problem> {
    if let Some(expect) = head.expect
        && !expect.eq_ignore_ascii_case(b"100-continue")
    {
        return Err(Problem::rejected(Rejection::InvalidRequest).with_kind(
            "expectation_failed",
            417,
            "the only expectation met is 100-continue",
        ));
    }
    if let Some(length) = head.content_length
        && length > body_bytes_max as u64
    {
        return Err(body_too_large(body_bytes_max));
    }
    if let Some(encoding) = head.content_encoding
        && !encoding.trim_ascii().eq_ignore_ascii_case(b"identity")
    {
        return Err(unsupported_media_type("a body must not be compressed"));
    }
    match head.content_type {
        Some(content_type) if !is_json(content_type) => Err(unsupported_media_type(
            "a body must be application/json, in UTF-8; with curl use --json",
        )),
        _ => Ok(()),
    }
}

/// 413: the body is larger than this route takes.
pub fn body_too_large(body_bytes_max: usize) -> Problem {
    Problem::rejected(Rejection::RecordListTooLarge).with_detail(format!(
        "a body of this request has at most {body_bytes_max} bytes"
    ))
}

/// 408: the body came too slowly, or stopped coming.
pub fn body_too_slow() -> Problem {
    Problem::rejected(Rejection::InvalidRequest).with_kind(
        "request_timeout",
        408,
        "the body came too slowly; send it again",
    )
}

fn unsupported_media_type(title: &'static str) -> Problem {
    Problem::rejected(Rejection::InvalidRequest).with_kind("unsupported_media_type", 415, title)
}

/// `application/json`, alone or with `charset=utf-8`; other parameters are ignored (RFC 8259 defines none).
fn is_json(content_type: &[u8]) -> bool {
    let mut parts = content_type.split(|&byte| byte == b';');
    let media_type = parts.next().unwrap_or_default().trim_ascii();
    media_type.eq_ignore_ascii_case(b"application/json")
        && parts.all(|parameter| {
            let mut sides = parameter.splitn(2, |&byte| byte == b'=');
            let name = sides.next().unwrap_or_default().trim_ascii();
            let value = sides.next().unwrap_or_default().trim_ascii();
            !name.eq_ignore_ascii_case(b"charset")
                || value.eq_ignore_ascii_case(b"utf-8")
                || value.eq_ignore_ascii_case(b"\"utf-8\"")
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    fn status(head: Head<'_>) -> Option<u16> {
        check_head(&head, 1_000)
            .err()
            .map(|problem| problem.status())
    }

    fn with_type(content_type: &'static str) -> Head<'static> {
        Head {
            content_type: Some(content_type.as_bytes()),
            ..Head::default()
        }
    }

    #[test]
    fn json_in_utf8_or_no_type_is_read() {
        assert_eq!(status(Head::default()), None);
        for accepted in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json ;charset=\"utf-8\"; profile=x",
        ] {
            assert_eq!(status(with_type(accepted)), None, "{accepted}");
        }
    }

    #[test]
    fn other_types_and_compressed_bodies_are_415() {
        for refused in [
            "application/x-www-form-urlencoded",
            "text/plain",
            "",
            "application/json; charset=latin1",
            "application/jsonl",
        ] {
            assert_eq!(status(with_type(refused)), Some(415), "{refused}");
        }
        let head = Head {
            content_encoding: Some(b"gzip"),
            ..Head::default()
        };
        assert_eq!(status(head), Some(415));
    }

    #[test]
    fn a_stated_length_above_the_limit_is_413_before_the_body() {
        let with_length = |length| Head {
            content_length: Some(length),
            ..Head::default()
        };
        assert_eq!(status(with_length(1_000)), None);
        assert_eq!(status(with_length(1_001)), Some(413));
    }

    #[test]
    fn only_100_continue_may_be_expected() {
        let expecting = |expect: &'static [u8]| Head {
            expect: Some(expect),
            ..Head::default()
        };
        assert_eq!(status(expecting(b"100-Continue")), None);
        assert_eq!(status(expecting(b"gold")), Some(417));
    }
}
