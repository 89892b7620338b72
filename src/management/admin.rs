//! The admin service, which `quorate ctl` calls.

use crate::audit::{self, Operator};
use crate::changes::shown_amount;
use crate::convert;
use crate::facts::{NodeFacts, ProcessFacts};
use crate::liveness::{Pulses, not_live};
use crate::merge;
use crate::peers::{Answers, Peer, Peers, collect, local_part};
use crate::source::Source;
use crate::wire::{self, admin_server::Admin};
use prost::Message;
use quorate_types::{ShortString, VhostName};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// Entries of a list in one message, and bytes after which a message takes no more: it stays far below
/// the 4 MiB that gRPC takes, although an entry may have arguments of 64 KiB.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// How often an awaited start is checked.
const AWAIT_STEP: Duration = Duration::from_millis(50);
/// Longest wait of a call, even if the caller asks for more.
pub(crate) const AWAIT_MOST: Duration = Duration::from_secs(24 * 3600);

/// The service of one node; for requests about the cluster it asks the other nodes.
#[derive(Clone, Debug)]
pub struct AdminService<S> {
    pub(crate) source: S,
    pub(crate) facts: Arc<NodeFacts>,
    pulses: Pulses,
    peers: Peers,
}

pub(crate) type Batches<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// A list in messages of bounded size; the last one names the silent nodes.
pub(crate) fn batches<T: Message, B>(
    items: Vec<T>,
    silent: Vec<u32>,
    batch: impl Fn(Vec<T>, Vec<u32>) -> B,
) -> Response<Batches<B>> {
    let mut cut = cut(items);
    let last = cut.pop().unwrap_or_default();
    let mut messages: Vec<_> = cut.into_iter().map(|items| Ok(batch(items, Vec::new()))).collect();
    messages.push(Ok(batch(last, silent)));
    Response::new(tokio_stream::iter(messages))
}

/// The entries of a list, as many together as one message takes.
pub(crate) fn cut<T: Message>(items: Vec<T>) -> Vec<Vec<T>> {
    let (mut cut, mut items_of_one, mut bytes) = (Vec::new(), Vec::new(), 0);
    for item in items {
        if bytes >= BATCH_BYTES || items_of_one.len() >= BATCH {
            cut.push(std::mem::take(&mut items_of_one));
            bytes = 0;
        }
        bytes += item.encoded_len();
        items_of_one.push(item);
    }
    if !items_of_one.is_empty() {
        cut.push(items_of_one);
    }
    cut
}

pub(crate) fn check(caller: Option<wire::Caller>) -> Result<(), Status> {
    let version = caller.map_or(0, |caller| caller.version);
    if version == wire::VERSION {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "admin protocol version {version} is not supported; this node supports version {}",
        wire::VERSION
    )))
}

pub(crate) fn vhost(name: &str) -> Result<VhostName, Status> {
    ShortString::try_from(name)
        .map_err(|error| Status::invalid_argument(format!("virtual host: {error}")))
}

/// Who makes a call, and what it asks.
pub(crate) fn opened<T: Called>(request: Request<T>) -> Result<(Operator, T), Status> {
    let operator = Operator::of(&request);
    let request = request.into_inner();
    check(request.caller())?;
    Ok((operator, request))
}

/// A request with the version of its caller.
pub(crate) trait Called {
    /// The caller's version.
    fn caller(&self) -> Option<wire::Caller>;
}

macro_rules! called {
    ($($request:ident),*) => {$(
        impl Called for wire::$request {
            fn caller(&self) -> Option<wire::Caller> {
                self.caller
            }
        }
    )*};
}

called!(
    QueueRequest,
    AlarmRequest,
    DrainRequest,
    ReviveRequest,
    MemberRequest,
    RebalanceRequest,
    ChangeRequest,
    CloseRequest,
    SetPolicyRequest,
    PolicyRequest,
    SetParameterRequest,
    ParameterRequest,
    LogLevelRequest,
    StopRequest
);

impl<S: Source> AdminService<S> {
    /// The service of one node, to be mounted at the rpc port.
    #[must_use]
    pub fn new(source: S, facts: Arc<NodeFacts>, pulses: Pulses, peers: Peers) -> Self {
        Self { source, facts, pulses, peers }
    }

    fn node(&self) -> wire::Node {
        let view = self.source.node_status();
        let readiness = self.source.readiness();
        let not_live = not_live(&self.source, &self.pulses);
        convert::node_status(&self.facts, ProcessFacts::read(), &view, &readiness, not_live)
    }

    /// This node's part of a list, with the parts of all others unless the scope is local; and
    /// the nodes that did not answer.
    pub(crate) async fn gather<T, F>(
        &self,
        scope: i32,
        own: Vec<T>,
        question: impl Fn(Peer) -> F,
    ) -> (Vec<T>, Vec<u32>)
    where
        F: Future<Output = Result<Vec<T>, Status>>,
    {
        if scope == i32::from(wire::Scope::Local) {
            return (own, Vec::new());
        }
        let Answers { answers, silent } = self.peers.ask(&self.source.cluster(), question).await;
        let others = answers.into_iter().flat_map(|(_, list)| list);
        (own.into_iter().chain(others).collect(), silent)
    }

    /// The consumers of all queues with a single active consumer, from the nodes that lead these
    /// queues.
    async fn turns(&self, vhost: &VhostName) -> Vec<wire::Turn> {
        let own = self.source.single_active(vhost).iter().map(convert::turn).collect();
        let question = |mut peer: Peer| {
            let request = local_part(vhost.as_str());
            async move {
                let batches = peer.list_turns(request).await?.into_inner();
                collect(batches, |batch| batch.turns).await
            }
        };
        self.gather(wire::Scope::Cluster.into(), own, question).await.0
    }

    async fn queues(&self, scope: i32, vhost: &VhostName) -> (Vec<wire::Queue>, Vec<u32>) {
        let own = self.source.queues(vhost).into_iter().map(convert::queue).collect();
        let question = |mut peer: Peer| {
            let request = local_part(vhost.as_str());
            async move {
                let batches = peer.list_queues(request).await?.into_inner();
                collect(batches, |batch| batch.queues).await
            }
        };
        let (all, silent) = self.gather(scope, own, question).await;
        let mut merged = merge::queues(Vec::new(), all);
        merge::sort_by_name(&mut merged);
        (merged, silent)
    }
}

#[tonic::async_trait]
impl<S: Source> Admin for AdminService<S> {
    type ListQueuesStream = Batches<wire::Queues>;
    type ListExchangesStream = Batches<wire::Exchanges>;
    type ListBindingsStream = Batches<wire::Bindings>;
    type ListConnectionsStream = Batches<wire::Connections>;
    type ListChannelsStream = Batches<wire::Channels>;
    type ListConsumersStream = Batches<wire::Consumers>;
    type ListTurnsStream = Batches<wire::Turns>;

    async fn list_queues(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListQueuesStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let (queues, silent) = self.queues(request.scope, &vhost(&request.vhost)?).await;
        Ok(batches(queues, silent, |queues, silent| wire::Queues { queues, silent }))
    }

    async fn list_exchanges(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListExchangesStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let views = self.source.exchanges(&vhost(&request.vhost)?);
        let mut exchanges: Vec<_> = views.iter().map(convert::exchange).collect();
        exchanges.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(batches(exchanges, Vec::new(), |exchanges, _| wire::Exchanges { exchanges }))
    }

    async fn list_bindings(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListBindingsStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let vhost = vhost(&request.vhost)?;
        let (queues, _) = self.queues(request.scope, &vhost).await;
        let explicit = self.source.bindings(&vhost).iter().map(convert::binding).collect();
        let bindings = merge::bindings(&queues, explicit);
        Ok(batches(bindings, Vec::new(), |bindings, _| wire::Bindings { bindings }))
    }

    async fn list_connections(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListConnectionsStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let own = self.source.connections().iter().map(convert::connection).collect();
        let question = |mut peer: Peer| async move {
            let batches = peer.list_connections(local_part("")).await?.into_inner();
            collect(batches, |batch| batch.connections).await
        };
        let (all, silent) = self.gather(request.scope, own, question).await;
        Ok(batches(all, silent, |connections, silent| wire::Connections { connections, silent }))
    }

    async fn list_channels(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListChannelsStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let own = self.source.channels().iter().map(convert::channel).collect();
        let question = |mut peer: Peer| async move {
            let batches = peer.list_channels(local_part("")).await?.into_inner();
            collect(batches, |batch| batch.channels).await
        };
        let (all, silent) = self.gather(request.scope, own, question).await;
        Ok(batches(all, silent, |channels, silent| wire::Channels { channels, silent }))
    }

    async fn list_consumers(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListConsumersStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let vhost = vhost(&request.vhost)?;
        let own = self.source.consumers(&vhost).iter().map(convert::consumer).collect();
        let question = |mut peer: Peer| {
            let request = local_part(vhost.as_str());
            async move {
                let batches = peer.list_consumers(request).await?.into_inner();
                collect(batches, |batch| batch.consumers).await
            }
        };
        let (mut all, silent) = self.gather(request.scope, own, question).await;
        if request.scope == i32::from(wire::Scope::Cluster) {
            merge::note_turns(&mut all, self.turns(&vhost).await);
        }
        all.sort_by(|a, b| (&a.queue, &a.tag).cmp(&(&b.queue, &b.tag)));
        Ok(batches(all, silent, |consumers, silent| wire::Consumers { consumers, silent }))
    }

    async fn list_turns(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListTurnsStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let own = self.source.single_active(&vhost(&request.vhost)?);
        let turns = own.iter().map(convert::turn).collect();
        Ok(batches(turns, Vec::new(), |turns, _| wire::Turns { turns }))
    }

    async fn get_node(
        &self,
        request: Request<wire::NodeRequest>,
    ) -> Result<Response<wire::Node>, Status> {
        check(request.into_inner().caller)?;
        Ok(Response::new(self.node()))
    }

    async fn get_cluster(
        &self,
        request: Request<wire::ClusterRequest>,
    ) -> Result<Response<wire::Cluster>, Status> {
        check(request.into_inner().caller)?;
        let cluster = self.source.cluster();
        let others = self.peers.ask(&cluster, |mut peer| async move {
            let request = wire::NodeRequest { caller: wire::caller() };
            peer.get_node(request).await.map(Response::into_inner)
        });
        let mut statuses: BTreeMap<_, _> = others.await.answers.into_iter().collect();
        statuses.insert(self.facts.id, self.node());
        let members = cluster
            .members
            .iter()
            .map(|member| convert::member(member, self.facts.naming, statuses.remove(&member.id)));
        Ok(Response::new(wire::Cluster {
            cluster_id: cluster.cluster.map_or(0, |cluster| cluster.0),
            catalog_leader: cluster.catalog_leader.map_or(0, |node| u32::from(node.0)),
            members: members.collect(),
            asked: u32::from(self.facts.id.0),
            machine_version: cluster.machine.0,
            placement: cluster.placement.iter().map(convert::placement).collect(),
        }))
    }

    async fn delete_queue(
        &self,
        request: Request<wire::QueueRequest>,
    ) -> Result<Response<wire::QueueReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.delete(&request).await;
        operator.log("delete_queue", &audit::within(&request.vhost, &request.name), &result);
        result.map(Response::new)
    }

    async fn purge_queue(
        &self,
        request: Request<wire::QueueRequest>,
    ) -> Result<Response<wire::QueueReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.purge(&request).await;
        operator.log("purge_queue", &audit::within(&request.vhost, &request.name), &result);
        result.map(Response::new)
    }

    async fn get_audit(
        &self,
        request: Request<wire::AuditRequest>,
    ) -> Result<Response<wire::Audit>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let own = self.source.audit().iter().map(convert::digest).collect();
        let question = |mut peer: Peer| async move {
            let scope = wire::Scope::Local.into();
            let request = wire::AuditRequest { caller: wire::caller(), scope };
            peer.get_audit(request).await.map(|audit| audit.into_inner().digests)
        };
        let (digests, silent) = self.gather(request.scope, own, question).await;
        Ok(Response::new(wire::Audit { digests, silent }))
    }

    async fn await_startup(
        &self,
        request: Request<wire::AwaitRequest>,
    ) -> Result<Response<wire::AwaitReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let limit = Duration::from_millis(request.timeout_ms).min(AWAIT_MOST);
        let ready = async {
            while !self.source.readiness().is_ready() {
                tokio::time::sleep(AWAIT_STEP).await;
            }
        };
        match tokio::time::timeout(limit, ready).await {
            Ok(()) => Ok(Response::new(wire::AwaitReply {})),
            Err(_) => {
                let why = convert::not_ready(&self.source.readiness());
                Err(Status::deadline_exceeded(why))
            }
        }
    }

    async fn set_memory_high_watermark(
        &self,
        request: Request<wire::AlarmRequest>,
    ) -> Result<Response<wire::AlarmReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.set_memory(&request);
        operator.log("set_vm_memory_high_watermark", &shown_amount(&request), &result);
        result.map(Response::new)
    }

    async fn set_disk_free_limit(
        &self,
        request: Request<wire::AlarmRequest>,
    ) -> Result<Response<wire::AlarmReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.set_disk(&request);
        operator.log("set_disk_free_limit", &shown_amount(&request), &result);
        result.map(Response::new)
    }

    async fn drain(
        &self,
        request: Request<wire::DrainRequest>,
    ) -> Result<Response<wire::DrainReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.begin_drain(&request).await;
        operator.log("drain", "this node", &result);
        result.map(Response::new)
    }

    async fn revive(
        &self,
        request: Request<wire::ReviveRequest>,
    ) -> Result<Response<wire::ReviveReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.end_drain(&request).await;
        operator.log("revive", "this node", &result);
        result.map(Response::new)
    }

    async fn forget(
        &self,
        request: Request<wire::MemberRequest>,
    ) -> Result<Response<wire::MemberReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.forget_member(&request).await;
        operator.log("forget_cluster_node", &format!("node {}", request.node), &result);
        result.map(Response::new)
    }

    async fn replace(
        &self,
        request: Request<wire::MemberRequest>,
    ) -> Result<Response<wire::MemberReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.replace_member(&request).await;
        operator.log("replace_cluster_node", &format!("node {}", request.node), &result);
        result.map(Response::new)
    }

    async fn rebalance(
        &self,
        request: Request<wire::RebalanceRequest>,
    ) -> Result<Response<wire::RebalanceReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = Ok(self.rebalance_groups(&request).await);
        // Nodes ask each other for their own parts.
        if request.scope == i32::from(wire::Scope::Cluster) {
            operator.log("rebalance", "all groups", &result);
        }
        result.map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client chooses the bytes of a queue's arguments.
    #[test]
    fn a_list_is_cut_by_entries_and_by_bytes() {
        let queue = |bytes| wire::Queue { arguments: vec![0; bytes].into(), ..Default::default() };
        let sizes = |count, bytes| -> Vec<usize> {
            cut(vec![queue(bytes); count]).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(BATCH + 1, 10), [BATCH, 1]);
        assert_eq!(sizes(0, 10), [0_usize; 0]);
        let large = cut(vec![queue(1 << 16); 70]);
        assert_eq!(large.iter().map(Vec::len).sum::<usize>(), 70);
        for queues in large {
            let message = wire::Queues { queues, silent: Vec::new() };
            assert!(message.encoded_len() < 2 * BATCH_BYTES);
        }
    }
}
