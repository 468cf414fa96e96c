//! Membership of consumer groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

use bytes::Bytes;

use crate::definition::structures;
use crate::error_code::ErrorCode;
use crate::primitives::WireString;

structures! {
    /// Asks which broker coordinates a group (type 0) or a transactional id (type 1).
    FindCoordinatorRequest {
        key: WireString [0..=3] or refuse;
        key_type: i8 [1..] or refuse;
        coordinator_keys: Vec<WireString> [4..] or refuse;
    }

    /// The coordinator in the fields up to version 3, the coordinators in the list from 4 on
    /// (KIP-699).
    FindCoordinatorResponse {
        throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..=3];
        error_message: Option<WireString> [1..=3] null [1..=3];
        node_id: i32 [0..=3];
        host: WireString [0..=3];
        port: i32 [0..=3];
        coordinators: Vec<Coordinator> [4..];
    }

    /// The coordinator of one key.
    Coordinator {
        key: WireString [4..];
        node_id: i32 [4..];
        host: WireString [4..];
        port: i32 [4..];
        error_code: ErrorCode [4..];
        error_message: Option<WireString> [4..] null [4..];
    }

    /// Joins a group, or joins it again.
    JoinGroupRequest {
        group_id: WireString [0..];
        session_timeout_ms: i32 [0..];
        /// -1 in version 0, where the session timeout stands for it.
        rebalance_timeout_ms: i32 [1..] default [-1];
        member_id: WireString [0..];
        group_instance_id: Option<WireString> [5..] null [5..] or refuse;
        protocol_type: WireString [0..];
        protocols: Vec<JoinGroupRequestProtocol> [0..];
        reason: Option<WireString> [8..] null [8..];
    }

    /// An assignment protocol that the member speaks; its metadata is the members' own affair.
    JoinGroupRequestProtocol {
        name: WireString [0..];
        metadata: Bytes [0..];
    }

    /// The generation that was formed; the leader gets the members.
    JoinGroupResponse {
        throttle_time_ms: i32 [2..];
        error_code: ErrorCode [0..];
        generation_id: i32 [0..] default [-1];
        protocol_type: Option<WireString> [7..] null [7..];
        /// `None` is sent as an empty name below version 7.
        protocol_name: Option<WireString> [0..] null [7..];
        leader: WireString [0..];
        /// The leader need not assign anything (KIP-814).
        skip_assignment: bool [9..];
        member_id: WireString [0..];
        members: Vec<JoinGroupResponseMember> [0..];
    }

    /// A member, as its leader sees it.
    JoinGroupResponseMember {
        member_id: WireString [0..];
        group_instance_id: Option<WireString> [5..] null [5..];
        metadata: Bytes [0..];
    }

    /// Asks for the member's assignment; the leader brings all of them.
    SyncGroupRequest {
        group_id: WireString [0..];
        generation_id: i32 [0..];
        member_id: WireString [0..];
        group_instance_id: Option<WireString> [3..] null [3..] or refuse;
        protocol_type: Option<WireString> [5..] null [5..];
        protocol_name: Option<WireString> [5..] null [5..];
        assignments: Vec<SyncGroupRequestAssignment> [0..];
    }

    /// The assignment of one member.
    SyncGroupRequestAssignment {
        member_id: WireString [0..];
        assignment: Bytes [0..];
    }

    /// The member's assignment.
    SyncGroupResponse {
        throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..];
        protocol_type: Option<WireString> [5..] null [5..];
        protocol_name: Option<WireString> [5..] null [5..];
        assignment: Bytes [0..];
    }

    /// Says that a member is alive.
    HeartbeatRequest {
        group_id: WireString [0..];
        generation_id: i32 [0..];
        member_id: WireString [0..];
        group_instance_id: Option<WireString> [3..] null [3..] or refuse;
    }

    /// Whether the member still belongs.
    HeartbeatResponse {
        throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..];
    }

    /// Leaves a group: one member up to version 2, several from 3 on (KIP-345).
    LeaveGroupRequest {
        group_id: WireString [0..];
        member_id: WireString [0..=2] or refuse;
        members: Vec<MemberIdentity> [3..] or refuse;
    }

    /// A member that leaves.
    MemberIdentity {
        member_id: WireString [3..];
        group_instance_id: Option<WireString> [3..] null [3..];
        reason: Option<WireString> [5..] null [5..];
    }

    /// The outcome, for each member from version 3 on.
    LeaveGroupResponse {
        throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..];
        members: Vec<MemberResponse> [3..];
    }

    /// The outcome for one member.
    MemberResponse {
        member_id: WireString [3..];
        group_instance_id: Option<WireString> [3..] null [3..];
        error_code: ErrorCode [3..];
    }
}
