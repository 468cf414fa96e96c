//! JSON bodies: strict, bounded, borrowing text where it needs no unescaping.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::problem::Problem;

/// Base64 as in RFC 4648, section 4; padding is written, and may be missing when read.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads a body. An empty one is an empty object, so `curl -X POST` alone works where nothing is
/// required.
///
/// # Errors
///
/// 400 with the place and the reason: bad JSON, unknown or repeated fields, wrong types, lists above
/// their limits, anything after the object.
pub fn parse_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() {
        b"{}".as_slice()
    } else {
        body
    };
    serde_json::from_slice(body).map_err(|error| Problem::invalid(error.to_string()))
}

/// A JSON string, borrowed from the body unless it had escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

/// A field that may be absent, null or a string, where all three mean different things.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field<'a> {
    /// Not in the object.
    #[default]
    Absent,
    /// `null`.
    Null,
    /// A string.
    Text(Text<'a>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor<'a>(PhantomData<Text<'a>>);
        impl<'de: 'a, 'a> Visitor<'de> for TextVisitor<'a> {
            type Value = Text<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Field<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor<'a>(PhantomData<Field<'a>>);
        impl<'de: 'a, 'a> Visitor<'de> for FieldVisitor<'a> {
            type Value = Field<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or null")
            }
            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Field::Null)
            }
            fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Field::Null)
            }
            fn visit_some<D: Deserializer<'de>>(self, some: D) -> Result<Self::Value, D::Error> {
                Text::deserialize(some).map(Field::Text)
            }
        }
        deserializer.deserialize_option(FieldVisitor(PhantomData))
    }
}

/// Why a pair like `payload` and `payload_base64` names no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairFault {
    Both,
    NotBase64,
}

/// The bytes that a field or its base64 twin names: absent, null, or bytes.
pub(super) fn bytes_of<'f>(
    plain: &'f Field<'_>,
    base64: &'f Field<'_>,
) -> Result<DecodedField<'f>, PairFault> {
    match (plain, base64) {
        (Field::Absent, Field::Absent) => Ok(DecodedField::Absent),
        (Field::Null, Field::Absent) | (Field::Absent, Field::Null) => Ok(DecodedField::Null),
        (Field::Text(text), Field::Absent) => {
            Ok(DecodedField::Bytes(Cow::Borrowed(text.0.as_bytes())))
        }
        (Field::Absent, Field::Text(text)) => BASE64
            .decode(text.0.as_bytes())
            .map(|bytes| DecodedField::Bytes(Cow::Owned(bytes)))
            .map_err(|_| PairFault::NotBase64),
        _ => Err(PairFault::Both),
    }
}

/// As [`Field`], decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DecodedField<'a> {
    Absent,
    Null,
    Bytes(Cow<'a, [u8]>),
}

impl DecodedField<'_> {
    /// Null and absent alike as `None`.
    pub(super) fn as_deref(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Absent | Self::Null => None,
        }
    }
}

/// A list of at most `MAX` elements: the element past the limit ends the reading, so memory never
/// follows the body. For `#[serde(deserialize_with)]`.
pub(super) fn bounded<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct ListVisitor<T, const MAX: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX} elements")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut elements = Vec::new();
            while let Some(element) = list.next_element()? {
                if elements.len() == MAX {
                    return Err(A::Error::custom(format_args!(
                        "more than {MAX} elements in a list"
                    )));
                }
                elements.push(element);
            }
            Ok(elements)
        }
    }
    deserializer.deserialize_seq(ListVisitor::<T, MAX>(PhantomData))
}

/// As [`bounded`], for a list that may be null or, with `#[serde(default)]`, absent.
pub(super) fn bounded_option<'de, D, T, const MAX: usize>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct OptionVisitor<T, const MAX: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for OptionVisitor<T, MAX> {
        type Value = Option<Vec<T>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX} elements or null")
        }
        fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_some<D: Deserializer<'de>>(self, some: D) -> Result<Self::Value, D::Error> {
            bounded::<D, T, MAX>(some).map(Some)
        }
    }
    deserializer.deserialize_option(OptionVisitor::<T, MAX>(PhantomData))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[derive(Debug, Default, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample<'a> {
        #[serde(borrow, default)]
        text: Field<'a>,
        #[serde(borrow, default)]
        text_base64: Field<'a>,
        #[serde(default, deserialize_with = "bounded::<_, _, 3>")]
        list: Vec<u32>,
        #[serde(default, deserialize_with = "bounded_option::<_, _, 3>")]
        choice: Option<Vec<u32>>,
    }

    fn refusal(body: &str) -> String {
        let problem = parse_body::<Sample<'_>>(body.as_bytes()).unwrap_err();
        assert_eq!(problem.status(), 400);
        problem.detail().to_owned()
    }

    #[test]
    fn bad_json_is_refused_with_its_place() {
        for bad in [
            "{",
            "[1]",
            "nul",
            "{}{}",
            "{\"text\":\"\\ud800\"}",
            "\u{feff}{}",
            "{\"text\":1}",
        ] {
            assert!(refusal(bad).contains("line 1"), "{bad}");
        }
        assert!(parse_body::<Sample<'_>>(b"{\"text\":\"\xff\"}").is_err());
        assert!(refusal("{\"txet\":\"a\"}").contains("unknown field `txet`"));
        assert!(refusal("{\"text\":\"a\",\"text\":\"b\"}").contains("duplicate field"));
    }

    #[test]
    fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
        let deep = format!("{{\"list\":{}", "[".repeat(1 << 20));
        assert_eq!(
            parse_body::<Sample<'_>>(deep.as_bytes())
                .unwrap_err()
                .status(),
            400
        );
        let deep = "[".repeat(1 << 20);
        assert!(parse_body::<serde_json::Value>(deep.as_bytes()).is_err());
    }

    #[test]
    fn an_empty_body_is_an_empty_object() {
        let sample: Sample<'_> = parse_body(b" \n").unwrap();
        assert_eq!(sample.text, Field::Absent);
    }

    #[test]
    fn absent_null_and_text_are_told_apart_and_text_is_borrowed() {
        let sample: Sample<'_> = parse_body(br#"{"text":null}"#).unwrap();
        assert_eq!(sample.text, Field::Null);
        let sample: Sample<'_> = parse_body(br#"{"text":"plain"}"#).unwrap();
        assert!(matches!(
            &sample.text,
            Field::Text(Text(Cow::Borrowed("plain")))
        ));
        let sample: Sample<'_> = parse_body(br#"{"text":"a\nb"}"#).unwrap();
        assert!(matches!(&sample.text, Field::Text(Text(Cow::Owned(text))) if text == "a\nb"));
    }

    #[test]
    fn lists_end_at_their_limit() {
        let sample: Sample<'_> = parse_body(br#"{"list":[1,2,3],"choice":null}"#).unwrap();
        assert_eq!(sample.list, [1, 2, 3]);
        assert_eq!(sample.choice, None);
        assert!(refusal(r#"{"list":[1,2,3,4]}"#).contains("more than 3"));
        assert!(refusal(r#"{"choice":[1,2,3,4]}"#).contains("more than 3"));
    }

    #[test]
    fn a_pair_names_bytes_once_and_base64_is_checked() {
        let read = |body: &str| {
            let sample: Sample<'_> = parse_body(body.as_bytes()).unwrap();
            bytes_of(&sample.text, &sample.text_base64).map(|field| match field {
                DecodedField::Bytes(bytes) => Some(bytes.into_owned()),
                _ => None,
            })
        };
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"text":""}"#), Ok(Some(vec![])));
        assert_eq!(read(r#"{"text_base64":"AP8="}"#), Ok(Some(vec![0, 255])));
        assert_eq!(read(r#"{"text_base64":"AP8"}"#), Ok(Some(vec![0, 255])));
        assert_eq!(
            read(r#"{"text":"a","text_base64":"AP8="}"#),
            Err(PairFault::Both)
        );
        for bad in ["*", "A", "AP8==", "AP 8", "A-_="] {
            let body = format!("{{\"text_base64\":\"{bad}\"}}");
            assert_eq!(read(&body), Err(PairFault::NotBase64), "{bad}");
        }
    }
}
