//! What a peer may make this process reserve. All limits are checked before memory is reserved.

/// Limits on one decoded message. Bytes are bounded by the frame itself
/// ([`crate::frame::take_frame`]); these bound what those bytes may expand to.
///
/// The largest element takes about 200 bytes in memory, so a message can take at most
/// `elements_total_max * 200` bytes, and less if its frame is small: every element that is kept has
/// been read from at least one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Elements in one array.
    pub array_elements_max: usize,
    /// Elements in all arrays of one message together.
    pub elements_total_max: usize,
    /// Tagged fields in one section.
    pub tagged_fields_max: usize,
}

impl DecodeLimits {
    /// For requests, which come from anyone.
    pub const REQUEST: Self = Self {
        array_elements_max: 65_536,
        elements_total_max: 262_144,
        tagged_fields_max: 64,
    };

    /// For responses, which come from a broker that the client chose and may describe a large
    /// cluster.
    pub const RESPONSE: Self = Self {
        array_elements_max: 1_048_576,
        elements_total_max: 4_194_304,
        tagged_fields_max: 64,
    };
}

/// Elements for which memory is reserved at once; longer arrays grow as their elements arrive.
pub(crate) const ARRAY_RESERVE_ELEMENTS_MAX: usize = 1_024;
