//! ApiVersions: what this broker serves.

use corelog_wire::{ApiVersionsRequest, ApiVersionsResponse};

use super::call::{Call, Pending};
use super::dispatch::is_served;

/// Lists what is served. What clients say of themselves is not kept.
pub(super) fn api_versions(call: Call, _request: ApiVersionsRequest) -> Pending {
    call.ready(&ApiVersionsResponse::advertising(is_served))
}
