//! The Kafka wire: frames, headers, every request and every answer at every version.

use bytes::{Bytes, BytesMut};
use corelog_wire::frame::{
    FrameError, RequestHeader, decode_api_versions_response, decode_request_header, take_frame,
};
use corelog_wire::{
    API_VERSIONS, AnyRequest, AnyResponse, ApiKey, DecodeError, DecodeLimits, ProduceWalk, Writer,
};

use super::{Allowance, Target, note, note_result};
use crate::power_cut::seeded::Seeded;

/// Largest frame of the frame target.
const FRAME_BYTES_MAX: usize = 32 << 10;
/// An element that is kept takes at most about 200 bytes in memory, and as little as one byte on the wire; memory
/// for 1,024 elements is reserved at once, at each of a few levels.
const DECODING: Allowance = Allowance {
    allocation_bytes_max: 1 << 20,
    allocation_per_input_byte: 420,
    ..Allowance::DEFAULT
};
/// Tries to grow a valid body by, for each message and version.
const GROWING_STEPS: usize = 400;

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "kafka_frames",
        run: frames,
        samples: frame_samples,
        dictionary: &[&[0, 0, 0, 14], &[0, 18, 0, 3], &[0, 0, 0, 9], &[0x7f, 0xff]],
        repair: Some(repair_frames),
        allowance: DECODING,
    },
    Target {
        name: "kafka_requests",
        run: request,
        samples: || {
            body_samples(|api, version, body| AnyRequest::decode(api, version, body, LIMITS).err())
        },
        dictionary: NUMBERS,
        repair: None,
        allowance: DECODING,
    },
    Target {
        name: "kafka_produce_walk",
        run: produce_walk,
        samples: produce_samples,
        dictionary: NUMBERS,
        repair: None,
        allowance: DECODING,
    },
    Target {
        name: "kafka_responses",
        run: response,
        samples: || {
            body_samples(|api, version, body| {
                AnyResponse::decode(api, version, body, DecodeLimits::RESPONSE).err()
            })
        },
        dictionary: NUMBERS,
        repair: None,
        allowance: DECODING,
    },
];

const LIMITS: DecodeLimits = DecodeLimits::REQUEST;
const NUMBERS: &[&[u8]] = &[
    &[0, 0, 0, 1],
    &[0, 0, 0, 2],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0, 1],
    &[0xff, 0xff],
    &[0x7f, 0xff],
    &[0x80, 0x94, 0xeb, 0xdc, 0x03],
    b"topic",
];

/// A connection's bytes: frames are taken off them until they are refused or run out.
fn frames(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    loop {
        let before = buffer.len();
        let frame = match take_frame(&mut buffer, FRAME_BYTES_MAX) {
            Ok(Some(frame)) => frame,
            Ok(None) => return note("incomplete"),
            Err(FrameError::NegativeLength(length)) => {
                assert!(length < 0);
                return note("negative");
            }
            Err(FrameError::TooLong { bytes, .. }) => {
                assert!(bytes > FRAME_BYTES_MAX);
                return note("too long");
            }
        };
        assert!(buffer.len() < before, "a frame is taken off");
        let header = decode_request_header(frame, LIMITS);
        note_result(&header);
        let Ok((header, body)) = header else { continue };
        let decoded = AnyRequest::decode(header.api, header.version, body, LIMITS);
        note((header.api, header.version));
        note_result(&decoded);
    }
}

/// API and version of an input, and its body.
fn parts(bytes: &[u8]) -> Option<(ApiKey, i16, Bytes)> {
    let (&[api, version], body) = bytes.split_first_chunk()?;
    let range = API_VERSIONS.get(usize::from(api) % API_VERSIONS.len())?;
    let versions = range.max - range.built_min + 1;
    let version = range.built_min + i16::from(version) % versions;
    Some((range.api, version, Bytes::copy_from_slice(body)))
}

fn request(bytes: &[u8]) {
    let Some((api, version, body)) = parts(bytes) else {
        return;
    };
    let decoded = AnyRequest::decode(api, version, body, LIMITS);
    note((api, version));
    note_result(&decoded);
    if let Ok(request) = decoded {
        assert_eq!(request.api(), api);
    }
}

/// What a client accepts of a broker, it understood: written again and read again it is the same.
fn response(bytes: &[u8]) {
    let Some((api, version, body)) = parts(bytes) else {
        return;
    };
    if api == ApiKey::ApiVersions {
        note_result(&decode_api_versions_response(
            body.clone(),
            version,
            DecodeLimits::RESPONSE,
        ));
    }
    let decoded = AnyResponse::decode(api, version, body, DecodeLimits::RESPONSE);
    note((api, version));
    note_result(&decoded);
    let Ok(response) = decoded else { return };
    let mut writer = Writer::body();
    response.write_body(&mut writer, version);
    let Ok(written) = writer.finish() else {
        unreachable!("what was read in a version can be written in it");
    };
    let again = AnyResponse::decode(api, version, written.into_bytes(), DecodeLimits::RESPONSE);
    assert_eq!(again, Ok(response));
}

/// The walk over a Produce request sees what the decoder sees.
fn produce_walk(bytes: &[u8]) {
    let Some((&version, body)) = bytes.split_first() else {
        return;
    };
    let range = ApiKey::Produce.versions();
    let version = range.built_min + i16::from(version) % (range.max - range.built_min + 1);
    let body = Bytes::copy_from_slice(body);
    let walk = ProduceWalk::decode(body.clone(), version, LIMITS);
    let decoded = AnyRequest::decode(ApiKey::Produce, version, body, LIMITS);
    note(version);
    note_result(&walk);
    if let (Ok(walk), Ok(AnyRequest::Produce(request))) = (&walk, &decoded) {
        let topics = &request.topic_data;
        let partitions: usize = topics.iter().map(|topic| topic.partition_data.len()).sum();
        assert_eq!(walk.partitions().count(), partitions);
        assert_eq!(walk.partitions_len(), partitions);
    }
    if let Ok(walk) = walk {
        let _ = walk.partitions().take(100_000).count();
    }
}

/// Gives every frame a true length.
fn repair_frames(bytes: &mut Vec<u8>) {
    let mut start = 0;
    while let Some(prefix) = bytes.get(start..).and_then(<[u8]>::first_chunk::<4>) {
        let rest = bytes.len() - start - 4;
        let claimed = usize::try_from(i32::from_be_bytes(*prefix)).unwrap_or(rest);
        let length = claimed.min(rest);
        bytes[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
        start += 4 + length;
    }
}

fn frame(api: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
    let mut writer = Writer::body();
    let header = RequestHeader {
        api,
        version,
        correlation_id: 7,
        client_id: Some("client".into()),
    };
    header.encode(&mut writer);
    let Ok(header) = writer.finish() else {
        return Vec::new();
    };
    let header = header.into_bytes();
    let length = (header.len() + body.len()) as u32;
    [&length.to_be_bytes(), &header[..], body].concat()
}

fn frame_samples() -> Vec<Vec<u8>> {
    let bodies =
        body_samples(|api, version, body| AnyRequest::decode(api, version, body, LIMITS).err());
    let framed: Vec<Vec<u8>> = bodies
        .iter()
        .filter_map(|sample| parts(sample))
        .map(|(api, version, body)| frame(api, version, &body))
        .collect();
    let together = framed.iter().step_by(29).flatten().copied().collect();
    framed.into_iter().step_by(5).chain([together]).collect()
}

fn produce_samples() -> Vec<Vec<u8>> {
    let range = ApiKey::Produce.versions();
    let mut random = Seeded::new(5);
    (range.built_min..=range.max)
        .flat_map(|version| std::iter::repeat_n(version, 6))
        .filter_map(|version| {
            let refusal = |body| AnyRequest::decode(ApiKey::Produce, version, body, LIMITS).err();
            let body = grown(refusal, &mut random)?;
            Some([&[(version - range.built_min) as u8], &body[..]].concat())
        })
        .collect()
}

/// Valid bodies of every message at every version.
fn body_samples(refusal: fn(ApiKey, i16, Bytes) -> Option<DecodeError>) -> Vec<Vec<u8>> {
    let mut random = Seeded::new(11);
    let mut samples = Vec::new();
    for (index, range) in API_VERSIONS.iter().enumerate() {
        for version in range.built_min..=range.max {
            for _ in 0..4 {
                let body = grown(|body| refusal(range.api, version, body), &mut random);
                let head = [index as u8, (version - range.built_min) as u8];
                samples.extend(body.map(|body| [&head, &body[..]].concat()));
            }
        }
    }
    samples
}

/// Grows a valid body: while the decoder wants more, it gets more; what it refuses is taken back.
fn grown(refusal: impl Fn(Bytes) -> Option<DecodeError>, random: &mut Seeded) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    for _ in 0..GROWING_STEPS {
        match refusal(Bytes::copy_from_slice(&body)) {
            None => return Some(body),
            Some(DecodeError::Truncated { needed, remaining }) => {
                append(
                    &mut body,
                    needed.saturating_sub(remaining).clamp(1, 64),
                    random,
                );
            }
            Some(_) => {
                let taken_back = 1 + random.below(4) as usize;
                body.truncate(body.len().saturating_sub(taken_back));
            }
        }
    }
    None
}

/// Bytes that are likely to be a length, a number or text.
fn append(body: &mut Vec<u8>, missing: usize, random: &mut Seeded) {
    let last = [0, 0, 1, 1, 2, 2, 3, b'a'][random.below(8) as usize];
    match missing {
        1 => body.push([0, 0, 1, 2][random.below(4) as usize]),
        2 | 4 | 8 => {
            body.extend(std::iter::repeat_n(0, missing - 1));
            body.push(last);
        }
        _ => body.extend(std::iter::repeat_n(b'a', missing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_valid_body_of_nearly_every_message_and_version() {
        let versions: usize = API_VERSIONS
            .iter()
            .map(|range| (range.max - range.built_min + 1) as usize)
            .sum();
        for target in TARGETS
            .iter()
            .filter(|target| target.name.ends_with("s") && target.repair.is_none())
        {
            let samples = (target.samples)();
            assert!(
                samples.len() > versions,
                "{}: {}",
                target.name,
                samples.len()
            );
            let elements = samples.iter().filter(|sample| sample.len() > 20).count();
            assert!(
                elements > versions / 2,
                "{}: {elements} with content",
                target.name
            );
        }
    }
}
