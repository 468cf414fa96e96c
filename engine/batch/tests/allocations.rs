//! What the input claims is never reserved; what is built without a codec is not allocated per record.
//! Memory that Zstandard's C code takes is not seen here: its window is bounded by a parameter.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use corelog_batch::{
    Attributes, BatchBuilder, BatchError, BatchHeader, BatchOptions, BodyFault, Codec,
    HEADER_BYTES, open, record_refs, records, scan_records, verify_stored_batch,
};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn note(bytes: usize) {
    // A thread that is ending has no counters any more, and needs none.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: every call goes to the system allocator unchanged; counting touches thread-local cells only, which
// neither allocate nor panic.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Result, number of allocations, largest allocation in bytes.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    COUNT.set(0);
    LARGEST.set(0);
    let result = work();
    (result, COUNT.get(), LARGEST.get())
}

fn batch_with_body(codec: Codec, record_count: i32, body: &[u8]) -> Bytes {
    let header = BatchHeader {
        base_offset: 0,
        length: i32::try_from(HEADER_BYTES - 12 + body.len()).unwrap(),
        leader_epoch: 0,
        crc: 0,
        attributes: Attributes::with_codec(codec),
        last_offset_delta: record_count - 1,
        base_timestamp_ms: 0,
        max_timestamp_ms: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count,
    };
    Bytes::from([&header.to_bytes()[..], body].concat())
}

#[test]
fn a_claimed_count_is_not_reserved() {
    let batch = batch_with_body(Codec::None, i32::MAX, &[12, 0, 0, 0, 1, 1, 0]);
    let header = BatchHeader::parse(&batch).unwrap();
    let body = batch.slice(HEADER_BYTES..);
    let (read, _, largest) = counted(|| records(&header, body.clone()).collect::<Vec<_>>());
    assert_eq!(read.len(), 2, "one record, then the error");
    assert!(largest < 4_096, "{largest} bytes at once");
    let (read, _, largest) = counted(|| record_refs(&header, &body).collect::<Vec<_>>());
    assert_eq!(read.len(), 2);
    assert!(largest < 4_096, "{largest} bytes at once");
}

#[test]
fn claimed_lengths_and_header_counts_are_not_reserved() {
    let huge: [u8; 5] = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let bodies = [
        [&huge[..], &[0, 0, 0, 1, 1, 0]].concat(),
        [&[20, 0, 0, 0][..], &huge, &[1, 0]].concat(),
        [&[20, 0, 0, 0, 1][..], &huge, &[0]].concat(),
        [&[20, 0, 0, 0, 1, 1][..], &huge].concat(),
        [&[24, 0, 0, 0, 1, 1, 2][..], &huge, &[0]].concat(),
    ];
    for body in bodies {
        let batch = batch_with_body(Codec::None, 1, &body);
        let header = BatchHeader::parse(&batch).unwrap();
        let body = batch.slice(HEADER_BYTES..);
        let (read, count, _) = counted(|| {
            let record = records(&header, body).next().unwrap();
            record.is_err() && scan_records(&header, &batch[HEADER_BYTES..]).is_err()
        });
        assert!(read);
        assert_eq!(count, 0);
    }
}

#[test]
fn the_size_that_a_stream_claims_is_not_reserved() {
    let snappy_claiming_gigabytes = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    let framed_snappy = [
        &b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x06"[..],
        &snappy_claiming_gigabytes,
    ]
    .concat();
    let window_too_large = "Frame requires too much memory for decoding";
    // Both LZ4 frames announce linked blocks of 4 MiB; the first announces 2^62 bytes of content as well.
    let lz4_with_size = [0x48, 0x70, 0, 0, 0, 0, 0, 0, 0, 0x40, 0xf6, 20, 0, 0, 0];
    let lz4_without_end = [0x40, 0x70, 0xdf, 2, 0, 0, 0, 0x10, 0];
    let lz4_magic = [0x04, 0x22, 0x4d, 0x18];
    let zstd_of_one_segment = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x40];
    let snappy_fault = BodyFault::Malformed("Snappy block claims more than it can hold");
    for (codec, body, fault) in [
        (
            Codec::Snappy,
            snappy_claiming_gigabytes.to_vec(),
            snappy_fault,
        ),
        (Codec::Snappy, framed_snappy, snappy_fault),
        (
            Codec::Lz4,
            [&lz4_magic[..], &lz4_with_size].concat(),
            BodyFault::Truncated,
        ),
        (
            Codec::Lz4,
            [&lz4_magic[..], &lz4_without_end].concat(),
            BodyFault::Truncated,
        ),
        (
            Codec::Zstd,
            zstd_of_one_segment.to_vec(),
            BodyFault::Malformed(window_too_large),
        ),
    ] {
        let batch = batch_with_body(codec, 1, &body);
        let (opened, _, largest) = counted(|| open(&batch, 1 << 30));
        assert_eq!(opened, Err(BatchError::Body { codec, fault }));
        assert!(largest <= 128 * 1024, "{codec}: {largest} bytes at once");
    }
}

#[test]
fn opening_takes_at_most_twice_what_it_gives() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut builder = BatchBuilder::new(BatchOptions {
            codec,
            batch_bytes_max: 4 << 20,
            ..BatchOptions::default()
        });
        builder
            .append(0, None, Some(&vec![0; 3_000_000]), &[])
            .unwrap();
        let batch = builder.build().unwrap().freeze();
        let (opened, _, largest) = counted(|| open(&batch, 1 << 30).unwrap());
        assert!(
            largest <= 2 * opened.len(),
            "{codec}: {largest} bytes at once"
        );
        let (refused, _, largest) = counted(|| open(&batch, 1_000));
        assert!(refused.is_err());
        assert!(largest <= 128 * 1024, "{codec}: {largest} bytes at once");
    }
}

#[test]
fn records_are_built_verified_and_read_without_allocations() {
    let mut builder = BatchBuilder::with_capacity(BatchOptions::default(), 200_000);
    let (_, count, _) = counted(|| {
        for index in 0..1_000 {
            builder
                .append(index, Some(b"key"), Some(&[7; 100]), &[])
                .unwrap();
        }
    });
    assert_eq!(count, 0, "appends");
    let (batch, count, _) = counted(|| builder.build().unwrap());
    assert_eq!(count, 0, "build");
    let batch = batch.freeze();
    let (_, count, _) = counted(|| {
        let header = verify_stored_batch(&batch).unwrap();
        scan_records(&header, &batch[HEADER_BYTES..]).unwrap();
    });
    assert_eq!(count, 0, "verify and scan");
}
