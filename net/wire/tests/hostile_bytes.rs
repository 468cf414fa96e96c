//! Claims in hostile bytes reserve no memory: every decoder under a counting allocator with a cap.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use corelog_wire::frame::decode_request_header;
use corelog_wire::{
    API_VERSIONS, AnyRequest, AnyResponse, DecodeError, DecodeLimits, Message,
    PartitionProduceData, ProduceRequest, ProduceWalk, Reader, TopicProduceData,
};

struct Counting;

thread_local! {
    static ALLOCATED_BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system allocator; the counter is thread-local,
// is initialised without allocating and has no destructor.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get().saturating_add(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that `action` allocates on this thread, freed or not.
fn allocated_bytes(action: impl FnOnce()) -> usize {
    let before = ALLOCATED_BYTES.get();
    action();
    ALLOCATED_BYTES.get() - before
}

/// For a frame of a few hundred bytes: far above what honest frames of that size need, and far
/// below what one believed length would take.
const ALLOCATED_BYTES_MAX: usize = 256 * 1_024;

fn decode_as_everything(bytes: &Bytes) {
    for range in API_VERSIONS {
        for version in range.built_min..=range.max {
            let allocated = allocated_bytes(|| {
                for limits in [DecodeLimits::REQUEST, DecodeLimits::RESPONSE] {
                    let _ = AnyRequest::decode(range.api, version, bytes.clone(), limits);
                    let _ = AnyResponse::decode(range.api, version, bytes.clone(), limits);
                }
            });
            assert!(
                allocated <= ALLOCATED_BYTES_MAX,
                "{} v{version}: {allocated} bytes for {bytes:02x?}",
                range.api.name()
            );
        }
    }
}

#[test]
fn claimed_lengths_reserve_nothing() {
    // Lengths as arrays, byte fields and strings spell them in both forms: 2^31-1, -1, -2, the
    // most negative, and 10^9 as an unsigned and as a zigzag integer.
    let claims: [&[u8]; 9] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xfe],
        &[0x80, 0x00, 0x00, 0x00],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0x80, 0x94, 0xeb, 0xdc, 0x03],
        &[0x80, 0xa8, 0xd6, 0xb9, 0x07],
        &[0x7f, 0xff],
        &[0x00, 0x00, 0xff, 0xff],
    ];
    for claim in claims {
        for zeros in 0..48 {
            for tail in [0, 3, 300] {
                let bytes: Bytes = [&vec![0; zeros], claim, &vec![0; tail]].concat().into();
                decode_as_everything(&bytes);
            }
        }
        decode_as_everything(&claim.repeat(40).into());
    }
}

#[test]
fn the_first_array_of_each_request_may_not_claim_more_than_the_frame_holds() {
    let body = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let api = corelog_wire::ApiKey::Metadata;
    let allocated = allocated_bytes(|| {
        let refused = AnyRequest::decode(api, 1, body, DecodeLimits::REQUEST).unwrap_err();
        assert!(matches!(refused, DecodeError::Truncated { .. }));
    });
    assert_eq!(allocated, 0);
}

#[test]
fn floods_of_tagged_fields_reserve_nothing() {
    let mut flood = vec![0; 64];
    for tag in 0..100_u8 {
        flood.extend_from_slice(&[tag, 0]);
    }
    for start in 0..64 {
        decode_as_everything(&Bytes::copy_from_slice(&flood[start..]));
    }
    for fields in [0x40_u8, 0x41, 0x7f] {
        let bytes = [&[fields][..], &flood[64..]].concat();
        let mut reader = Reader::new(bytes.into(), DecodeLimits::REQUEST);
        let allocated = allocated_bytes(|| {
            let read = reader.read_tagged_fields(|_, _| Ok(false));
            assert_eq!(read.is_ok(), fields == 0x40);
        });
        assert_eq!(allocated, 0);
    }
}

#[test]
fn walking_a_produce_request_allocates_nothing() {
    let partition = |index| PartitionProduceData {
        index,
        records: Bytes::from_static(&[7; 4_096]).into(),
    };
    let request = ProduceRequest {
        topic_data: vec![TopicProduceData {
            name: "topic".into(),
            partition_data: (0..16).map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let body = request.encode(9).unwrap().into_bytes();
    // The first clone of a buffer makes its reference count; a frame has one by then.
    let _shared = body.clone();
    let allocated = allocated_bytes(|| {
        let walk = ProduceWalk::decode(body, 9, DecodeLimits::REQUEST).unwrap();
        assert_eq!(walk.partitions().count(), 16);
    });
    assert_eq!(allocated, 0);
}

#[test]
fn headers_allocate_nothing() {
    let frames: [&[u8]; 3] = [
        &[0, 18, 0, 3, 0, 0, 0, 7, 0, 1, b'c', 0, 1, 1, 0],
        &[0, 18, 0, 3, 0, 0, 0, 7, 0x7f, 0xff, b'c'],
        &[
            0, 18, 0, 3, 0, 0, 0, 7, 0, 1, b'c', 0xff, 0xff, 0xff, 0xff, 0x0f,
        ],
    ];
    for frame in frames {
        // The frame is made by a copy that the connection pays for, so it is made outside.
        let frame = Bytes::from_static(frame);
        let allocated = allocated_bytes(|| {
            let _ = decode_request_header(frame, DecodeLimits::REQUEST);
        });
        assert_eq!(allocated, 0);
    }
}

#[test]
fn a_large_frame_of_small_elements_stays_within_the_element_limits() {
    // One million empty arrays' worth of bytes, whatever they are read as.
    for byte in [0x00_u8, 0x01, 0x02, 0x10] {
        let body = Bytes::from(vec![byte; 1 << 20]);
        for range in API_VERSIONS {
            let allocated = allocated_bytes(|| {
                let limits = DecodeLimits::REQUEST;
                let _ = AnyRequest::decode(range.api, range.max, body.clone(), limits);
            });
            let elements = DecodeLimits::REQUEST.elements_total_max;
            // Growth by doubling allocates at most twice the final size, counted without frees.
            assert!(
                allocated <= elements * 200 * 2,
                "{}: {allocated}",
                range.api.name()
            );
        }
    }
}
