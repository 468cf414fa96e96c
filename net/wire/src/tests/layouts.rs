//! The bytes of every message with every field set, at each version that changes its layout.
//!
//! A round trip cannot see two fields swapped; this can. Each line of `layouts.txt` has been decoded
//! and encoded again to the same bytes by kafka-python 3.0, which reads Kafka's own descriptions
//! (responses to ApiVersions with their error set to 0: it reads others in the form of version 0).
//! After a change of a message, check the new line that the failing test prints in the same way.

use std::fmt::{Debug, Write};

use super::MessageVisitor;
use super::sample::{Fill, Sample, Source};
use crate::api::{ApiKey, Message, for_each_message};

#[derive(Default)]
struct Layouts {
    lines: Vec<String>,
    last: [Option<(ApiKey, String)>; 2],
}

impl MessageVisitor for Layouts {
    fn visit<M: Message + Sample + Debug + PartialEq + Clone>(
        &mut self,
        version: i16,
        request: bool,
    ) {
        let message = M::sample(&mut Source::new(0, Fill::Full), version, false);
        let bytes = message.encode(version).unwrap().into_bytes();
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        let layout = Some((M::API, hex.clone()));
        let last = &mut self.last[usize::from(request)];
        if *last != layout {
            let direction = if request { "request" } else { "response" };
            let name = M::API.name();
            self.lines
                .push(format!("{name} {direction} {version} {hex}"));
            *last = layout;
        }
    }
}

#[test]
fn layouts_are_those_that_an_independent_codec_agreed_with() {
    let mut layouts = Layouts::default();
    for_each_message(&mut layouts);
    let expected: Vec<&str> = include_str!("layouts.txt").lines().collect();
    for (line, expected) in layouts.lines.iter().zip(&expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(layouts.lines.len(), expected.len());
}
