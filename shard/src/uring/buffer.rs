//! Memory for direct disk I/O.
//!
//! Buffers come from the core's registered memory, and from the heap when that is used up; both
//! are aligned. Only bytes that were written to can be seen through them.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use glommio::io::{DmaBuffer, ReadResult};

/// The unit of direct I/O: positions, lengths and addresses are multiples of it.
pub const BLOCK_BYTES: usize = 4096;

/// The largest buffer, in bytes.
pub const BUFFER_BYTES_MAX: usize = 64 << 20;

/// An owned, aligned buffer to be filled and written.
pub struct DirectBuffer {
    memory: DmaBuffer,
    length: usize,
}

impl DirectBuffer {
    /// An empty buffer for `capacity` bytes, rounded up to whole blocks.
    ///
    /// # Panics
    /// If `capacity` is zero or above [`BUFFER_BYTES_MAX`], or if this thread is not a core.
    pub fn with_capacity(capacity: usize) -> Self {
        assert!(
            (1..=BUFFER_BYTES_MAX).contains(&capacity),
            "a direct buffer of {capacity} bytes"
        );
        let capacity = capacity.next_multiple_of(BLOCK_BYTES);
        Self {
            memory: glommio::allocate_dma_buffer(capacity),
            length: 0,
        }
    }

    /// A buffer of `length` zeros.
    ///
    /// # Panics
    /// As [`DirectBuffer::with_capacity`].
    pub fn zeroed(length: usize) -> Self {
        let mut buffer = Self::with_capacity(length);
        buffer.fill_to(length);
        buffer
    }

    /// A buffer that holds the parts one behind the other, then zeros up to a whole block.
    ///
    /// # Panics
    /// As [`DirectBuffer::with_capacity`].
    pub fn from_parts<P: AsRef<[u8]>>(parts: &[P]) -> Self {
        let length = parts.iter().map(|part| part.as_ref().len()).sum();
        let mut buffer = Self::with_capacity(length);
        for part in parts {
            buffer.extend_from_slice(part.as_ref());
        }
        buffer.pad_to_block();
        buffer
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that fit.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// The bytes written so far.
    pub fn as_slice(&self) -> &[u8] {
        self.memory
            .as_bytes()
            .get(..self.length)
            .unwrap_or_default()
    }

    /// The bytes written so far, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory
            .as_bytes_mut()
            .get_mut(..self.length)
            .unwrap_or_default()
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        assert!(
            end <= self.capacity(),
            "{end} bytes into a buffer of {}",
            self.capacity()
        );
        self.memory.as_bytes_mut()[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    /// Appends zeros up to `length` bytes.
    ///
    /// # Panics
    /// If `length` is less than what is written, or does not fit.
    pub fn fill_to(&mut self, length: usize) {
        self.memory.as_bytes_mut()[self.length..length].fill(0);
        self.length = length;
    }

    /// Appends zeros up to a whole block.
    pub fn pad_to_block(&mut self) {
        self.fill_to(self.length.next_multiple_of(BLOCK_BYTES));
    }

    /// The memory, cut to the bytes written, for the reactor to own.
    ///
    /// # Panics
    /// If the bytes written are not whole blocks.
    pub(super) fn into_memory(mut self) -> DmaBuffer {
        assert!(
            self.length > 0 && self.length.is_multiple_of(BLOCK_BYTES),
            "a write of {} bytes",
            self.length
        );
        self.memory.trim_to_size(self.length);
        self.memory
    }
}

impl fmt::Debug for DirectBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "DirectBuffer({} of {} bytes)",
            self.length,
            self.capacity()
        )
    }
}

/// Bytes read from a file, in the memory that the device wrote them to. Stays on its core;
/// [`ReadBuffer::into_bytes`] makes it fit to travel, without a copy.
#[derive(Clone, Default)]
pub struct ReadBuffer {
    result: ReadResult,
}

impl ReadBuffer {
    pub(super) fn new(result: ReadResult) -> Self {
        Self { result }
    }

    /// The same bytes, for any thread. The memory goes back to this core when the last of them is
    /// dropped, wherever that is.
    ///
    /// # Panics
    /// If this thread is not a core.
    #[allow(unsafe_code)]
    pub fn into_bytes(self) -> Bytes {
        if self.result.is_empty() {
            return Bytes::new();
        }
        let home =
            RETURNS.with_borrow_mut(|returns| Arc::clone(returns.get_or_insert_with(Arc::default)));
        home.drain();
        Bytes::from_owner(Traveller {
            cargo: Some(HomeOnly(self.result)),
            home,
        })
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.result
    }
}

impl fmt::Debug for ReadBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ReadBuffer({} bytes)", self.len())
    }
}

thread_local! {
    /// Memory of this core that other threads are done with.
    static RETURNS: RefCell<Option<Arc<Returns>>> = const { RefCell::new(None) };
}

/// Memory on its way back to the core it belongs to. Bounded by what that core gave away.
#[derive(Default)]
struct Returns {
    waiting: Mutex<ReturnQueue>,
}

#[derive(Default)]
struct ReturnQueue {
    cargo: Vec<HomeOnly>,
    closed: bool,
}

impl Returns {
    /// Frees what came back. Called on the home core alone.
    fn drain(&self) {
        let cargo = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut waiting.cargo)
        };
        drop(cargo);
    }
}

/// Frees what came back to this core.
pub(super) fn drain_returns() {
    let returns = RETURNS.with_borrow(Clone::clone);
    if let Some(returns) = returns {
        returns.drain();
    }
}

/// Frees what came back to this core and takes no more: what is dropped elsewhere from now on is
/// leaked, since the thread that could free it is ending.
pub(super) fn close_returns() {
    if let Some(returns) = RETURNS.take() {
        returns
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closed = true;
        returns.drain();
    }
}

/// A value that may be carried by any thread but touched only by the one that made it.
struct HomeOnly(ReadResult);

// SAFETY: a `HomeOnly` is private to this module, which touches its content (reference counts that
// are not atomic) in two places only: `Traveller::as_ref` while it is made into `Bytes` on its home
// core, and its drop in `Returns::drain`, on the home core as well. Other threads move it into the
// return queue, under the queue's lock, or leak it.
#[allow(unsafe_code)]
unsafe impl Send for HomeOnly {}

/// The owner of travelling bytes.
struct Traveller {
    cargo: Option<HomeOnly>,
    home: Arc<Returns>,
}

impl AsRef<[u8]> for Traveller {
    fn as_ref(&self) -> &[u8] {
        self.cargo
            .as_ref()
            .map(|cargo| &*cargo.0)
            .unwrap_or_default()
    }
}

impl Drop for Traveller {
    fn drop(&mut self) {
        let Some(cargo) = self.cargo.take() else {
            return;
        };
        // An ending thread has no thread-locals left; it is treated as foreign.
        let at_home = RETURNS.try_with(|returns| {
            returns.try_borrow().is_ok_and(|returns| {
                returns
                    .as_ref()
                    .is_some_and(|own| Arc::ptr_eq(own, &self.home))
            })
        });
        if at_home.unwrap_or(false) {
            drop(cargo);
            return;
        }
        let mut waiting = self
            .home
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if waiting.closed {
            std::mem::forget(cargo);
        } else {
            waiting.cargo.push(cargo);
        }
    }
}
