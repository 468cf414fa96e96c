//! Authentication: SaslHandshake, SaslAuthenticate.

use bytes::Bytes;

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::primitives::WireString;

structures! {
    /// Chooses a mechanism (KIP-43).
    SaslHandshakeRequest {
        mechanism: WireString [0..];
    }

    /// Whether the mechanism is served.
    SaslHandshakeResponse {
        error_code: ErrorCode [0..];
        /// Listed on success too: clients read them.
        mechanisms: Vec<WireString> [0..];
    }

    /// One message of the mechanism (KIP-152).
    SaslAuthenticateRequest {
        auth_bytes: Bytes [0..];
    }

    /// The mechanism's answer.
    SaslAuthenticateResponse {
        error_code: ErrorCode [0..];
        error_message: Option<WireString> [0..] null [0..];
        auth_bytes: Bytes [0..];
        session_lifetime_ms: i64 [1..];
    }
}
