//! An allocator that counts what one thread takes while it is asked to.
//!
//! Memory that C libraries take by themselves (Zstandard's contexts) is not seen here.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};

/// From this size on an allocation over its limit is not even tried: the process says so and ends.
const HOPELESS_BYTES: usize = 1 << 30;

/// Passes everything on to the system's allocator. The program that fuzzes makes it its global allocator.
#[derive(Debug)]
pub struct Counting;

#[derive(Clone, Copy)]
struct Meter {
    is_on: bool,
    held_bytes: isize,
    held_bytes_most: isize,
    largest_bytes: usize,
    /// The place of a larger allocation is kept.
    allocation_bytes_max: usize,
}

const OFF: Meter = Meter {
    is_on: false,
    held_bytes: 0,
    held_bytes_most: 0,
    largest_bytes: 0,
    allocation_bytes_max: usize::MAX,
};

thread_local! {
    static METER: Cell<Meter> = const { Cell::new(OFF) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What an execution took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Most bytes held at once.
    pub held_bytes_most: usize,
    /// The largest allocation.
    pub largest_bytes: usize,
    /// Where the first allocation above the limit was made.
    pub place: Option<String>,
}

/// Runs `action` and counts what this thread allocates meanwhile.
pub fn measure(allocation_bytes_max: usize, action: impl FnOnce()) -> Usage {
    METER.set(Meter {
        is_on: true,
        allocation_bytes_max,
        ..OFF
    });
    action();
    stop()
}

/// Ends counting on this thread, where a panic has left [`measure`] early.
pub fn stop() -> Usage {
    let meter = METER.replace(OFF);
    Usage {
        held_bytes_most: usize::try_from(meter.held_bytes_most).unwrap_or(0),
        largest_bytes: meter.largest_bytes,
        place: PLACE.with_borrow_mut(Option::take),
    }
}

/// Counts a change of what is held, and a new allocation if `bytes` is one.
fn count(change_bytes: isize, bytes: usize) {
    // The meter is gone at a thread's very end; nothing is measured then.
    let _ = METER.try_with(|cell| {
        let mut meter = cell.get();
        if !meter.is_on {
            return;
        }
        meter.held_bytes += change_bytes;
        meter.held_bytes_most = meter.held_bytes_most.max(meter.held_bytes);
        let is_first_over =
            bytes > meter.allocation_bytes_max && meter.largest_bytes <= meter.allocation_bytes_max;
        meter.largest_bytes = meter.largest_bytes.max(bytes);
        cell.set(meter);
        if is_first_over {
            note_place(cell, bytes);
        }
    });
}

/// Keeps the place of an allocation over the limit; looking for it allocates, which is not counted.
fn note_place(cell: &Cell<Meter>, bytes: usize) {
    let meter = cell.replace(OFF);
    let place = Backtrace::force_capture().to_string();
    if bytes >= HOPELESS_BYTES {
        super::run::fail_and_exit(&format!("one allocation of {bytes} bytes, at\n{place}"));
    }
    PLACE.with_borrow_mut(|kept| *kept = Some(place));
    cell.set(meter);
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting takes no memory, or switches itself
// off while it does.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed(), layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed(), layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed(), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(
            new_size.cast_signed() - layout.size().cast_signed(),
            new_size,
        );
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
