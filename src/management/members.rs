//! The service that a process with an empty data directory asks how to enter the cluster (MEM 3).

use crate::wire::{self, enter_reply::Reply, members_server::Members};
use quorate_broker::{Applicant, Broker, Entrance, Joined, MemberError};
use quorate_catalog::Newcomer;
use quorate_rpc::ClusterCell;
use quorate_types::{Incarnation, MachineVersion, NodeId};
use tonic::{Request, Response, Status};

/// The service of one node, which answers also before its groups run.
#[derive(Clone, Debug)]
pub struct MemberService {
    broker: Broker,
    cluster: ClusterCell,
}

impl MemberService {
    /// The service of one node, to be mounted at the rpc port. `cluster`: the cluster of its data
    /// directory.
    #[must_use]
    pub fn new(broker: Broker, cluster: ClusterCell) -> Self {
        Self { broker, cluster }
    }
}

fn node_id(number: u32) -> Result<NodeId, Status> {
    let node = u16::try_from(number).ok().filter(|node| *node != 0);
    node.map(NodeId).ok_or_else(|| Status::invalid_argument("no node has that id"))
}

fn applicant(request: wire::EnterRequest) -> Result<Applicant, Status> {
    Ok(Applicant {
        newcomer: Newcomer {
            node: node_id(request.node)?,
            incarnation: Incarnation(request.incarnation),
            address: request.address,
            zone: request.zone,
        },
        machine_newest: MachineVersion(request.machine_newest),
        replaces_lost_disk: request.replace_lost_disk,
        nodes: request.nodes.into_iter().map(node_id).collect::<Result<_, _>>()?,
    })
}

fn joined(Joined { shape, machine, first, peers, epoch }: Joined) -> wire::Joined {
    let peer = |(node, address): (NodeId, String)| wire::Peer { node: node.0.into(), address };
    wire::Joined {
        cluster: shape.cluster.0,
        machine: machine.0,
        first_replica: first.0,
        queue_groups: shape.queue_groups.into(),
        peers: peers.into_iter().map(peer).collect(),
        epoch: epoch.0,
    }
}

fn reply(answer: Result<Entrance, MemberError>) -> Reply {
    match answer {
        Ok(Entrance::Forming) => Reply::Forming(wire::Forming {}),
        Ok(Entrance::Founder) => Reply::Founder(wire::Founder {}),
        Ok(Entrance::Joined(told)) => Reply::Joined(joined(told)),
        Err(error) => {
            Reply::Refused(wire::Refused { text: error.to_string(), is_final: error.is_final() })
        }
    }
}

#[tonic::async_trait]
impl Members for MemberService {
    async fn enter(
        &self,
        request: Request<wire::EnterRequest>,
    ) -> Result<Response<wire::EnterReply>, Status> {
        let applicant = applicant(request.into_inner())?;
        let is_known = self.cluster.get().is_some();
        let answer = self.broker.operator().enter(&applicant, is_known).await;
        Ok(Response::new(wire::EnterReply { reply: Some(reply(answer)) }))
    }
}
