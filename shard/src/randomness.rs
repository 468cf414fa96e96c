//! The one place where the broker takes random bytes from the operating system.

/// Sixteen bytes that nobody else has.
///
/// # Panics
/// If the operating system has no randomness to give: no id made without it could be trusted.
pub fn random_id() -> [u8; 16] {
    let mut bytes = [0; 16];
    let filled = getrandom::fill(&mut bytes);
    assert!(filled.is_ok(), "the operating system gives no random bytes");
    bytes
}
