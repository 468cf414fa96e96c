//! The way to other members. A group of one has none: whoever is asked for is unreachable.

use openraft::RaftNetworkFactory;
use openraft::error::{InstallSnapshotError, RPCError, RaftError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{AnyError, BasicNode};

use crate::types::Group;

/// No way to anybody.
pub(crate) struct NoPeers;

type Failed<E = openraft::error::Infallible> = RPCError<u64, BasicNode, RaftError<u64, E>>;

fn unreachable<E: std::error::Error>() -> Failed<E> {
    RPCError::Unreachable(Unreachable::new(&AnyError::error(
        "the group has one member",
    )))
}

impl RaftNetworkFactory<Group> for NoPeers {
    type Network = Self;

    async fn new_client(&mut self, _target: u64, _node: &BasicNode) -> Self {
        Self
    }
}

impl RaftNetwork<Group> for NoPeers {
    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Group>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failed> {
        Err(unreachable())
    }

    async fn install_snapshot(
        &mut self,
        _request: InstallSnapshotRequest<Group>,
        _option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failed<InstallSnapshotError>> {
        Err(unreachable())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<u64>,
        _option: RPCOption,
    ) -> Result<VoteResponse<u64>, Failed> {
        Err(unreachable())
    }
}
