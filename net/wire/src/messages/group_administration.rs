//! Administration of consumer groups: DescribeGroups, ListGroups, DeleteGroups.

use bytes::Bytes;

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::messages::AUTHORIZED_OPERATIONS_UNKNOWN;
use crate::primitives::WireString;

structures! {
    /// Asks for the state of groups.
    DescribeGroupsRequest {
        groups: Vec<WireString> [0..];
        include_authorized_operations: bool [3..];
    }

    /// The state of each group.
    DescribeGroupsResponse {
        throttle_time_ms: i32 [1..];
        groups: Vec<DescribedGroup> [0..];
    }

    /// The state of one group.
    DescribedGroup {
        error_code: ErrorCode [0..];
        error_message: Option<WireString> [6..] null [6..];
        group_id: WireString [0..];
        group_state: WireString [0..];
        protocol_type: WireString [0..];
        protocol_data: WireString [0..];
        members: Vec<DescribedGroupMember> [0..];
        authorized_operations: i32 [3..] default [AUTHORIZED_OPERATIONS_UNKNOWN];
    }

    /// A member of a group.
    DescribedGroupMember {
        member_id: WireString [0..];
        group_instance_id: Option<WireString> [4..] null [4..];
        client_id: WireString [0..];
        client_host: WireString [0..];
        member_metadata: Bytes [0..];
        member_assignment: Bytes [0..];
    }

    /// Asks for the groups of a broker.
    ListGroupsRequest {
        /// Empty for all states.
        states_filter: Vec<WireString> [4..] or refuse;
        /// Empty for all types.
        types_filter: Vec<WireString> [5..] or refuse;
    }

    /// The groups of a broker.
    ListGroupsResponse {
        throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..];
        groups: Vec<ListedGroup> [0..];
    }

    /// One group.
    ListedGroup {
        group_id: WireString [0..];
        protocol_type: WireString [0..];
        group_state: WireString [4..];
        group_type: WireString [5..];
    }

    /// Groups to delete.
    DeleteGroupsRequest {
        groups_names: Vec<WireString> [0..];
    }

    /// The outcome for each group.
    DeleteGroupsResponse {
        throttle_time_ms: i32 [0..];
        results: Vec<DeletableGroupResult> [0..];
    }

    /// The outcome for one group.
    DeletableGroupResult {
        group_id: WireString [0..];
        error_code: ErrorCode [0..];
    }
}
