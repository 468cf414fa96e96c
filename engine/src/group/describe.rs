//! Groups as administrators see them.

use alloc::string::String;
use alloc::vec::Vec;

use super::state::Group;
use crate::identity::Generation;
use crate::request::{GroupDescription, GroupListing, GroupState, MemberDescription};

/// The description of a group that is not there.
pub(super) fn dead() -> GroupDescription {
    GroupDescription {
        state: GroupState::Dead,
        generation: Generation::ZERO,
        protocol_type: String::new(),
        protocol: String::new(),
        members: Vec::new(),
    }
}

impl Group {
    /// The group in a listing.
    pub(super) fn list(&self) -> GroupListing {
        GroupListing {
            group: String::from(&*self.id),
            protocol_type: self.protocol_type.clone(),
            state: self.state(),
        }
    }

    /// The group's description. Metadata is that for the chosen protocol.
    pub(super) fn describe(&self) -> GroupDescription {
        let members = self.members.iter().map(|(id, member)| MemberDescription {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: member.metadata(&self.protocol),
            assignment: member.assignment.clone(),
        });
        GroupDescription {
            state: self.state(),
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            members: members.collect(),
        }
    }
}
