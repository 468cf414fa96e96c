//! A string that is a checked slice of the frame it came in.

use core::fmt;
use core::ops::Deref;

use bytes::Bytes;

use crate::error::DecodeError;

/// UTF-8 text that shares the frame's memory: decoding one and cloning one allocate nothing.
///
/// A held `WireString` keeps its whole frame alive. State that outlives the request keeps a
/// [`detached`](Self::detached) copy.
///
/// Invariant: the bytes are UTF-8, checked when the value is made.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireString(Bytes);

impl WireString {
    /// Text that is part of the program.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Checks that `bytes` are UTF-8.
    ///
    /// # Errors
    /// [`DecodeError::InvalidUtf8`].
    pub fn from_utf8(bytes: Bytes) -> Result<Self, DecodeError> {
        match core::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(DecodeError::InvalidUtf8),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // The check repeats what the constructor proved; names are short, and an unchecked
        // conversion would need `unsafe` away from the I/O edge.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The bytes of the text, for comparisons that need no characters.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// A copy that does not keep the frame alive.
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

impl Deref for WireString {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for WireString {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<String> for WireString {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<&str> for WireString {
    /// Copies the text.
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl PartialEq<str> for WireString {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for WireString {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Debug for WireString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for WireString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}
