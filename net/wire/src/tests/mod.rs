//! Tests over every message at every version.
#![allow(clippy::unwrap_used, clippy::panic)]

mod golden;
mod layouts;
mod primitives;
mod round_trip;
pub(crate) mod sample;

use std::fmt::Debug;

use crate::api::Message;
use sample::Sample;

/// A test of one message type at one version.
pub(crate) trait MessageVisitor {
    /// Runs the test.
    fn visit<M: Message + Sample + Debug + PartialEq + Clone>(
        &mut self,
        version: i16,
        request: bool,
    );
}
