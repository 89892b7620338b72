//! The admin service, which `quorate ctl` calls.

use crate::convert;
use crate::facts::{NodeFacts, ProcessFacts};
use crate::liveness::{Pulses, not_live};
use crate::merge;
use crate::peers::{Answers, Peer, Peers, collect, local_part};
use crate::source::Source;
use crate::wire::{self, admin_server::Admin};
use quorate_broker::Amount;
use quorate_types::{NodeId, ResourceName, ShortString, VhostName};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// Entries of a list in one message, so that it stays far below the 4 MiB that gRPC takes.
const BATCH: usize = 256;
/// How often an awaited start is checked.
const AWAIT_STEP: Duration = Duration::from_millis(50);
/// Characters of an operator's name in the log.
const OPERATOR_MAX: usize = 128;
/// Longest wait of a call, even if the caller asks for more.
const AWAIT_MOST: Duration = Duration::from_secs(24 * 3600);

/// The service of one node; for requests about the cluster it asks the other nodes.
#[derive(Clone, Debug)]
pub struct AdminService<S> {
    source: S,
    facts: Arc<NodeFacts>,
    pulses: Pulses,
    peers: Peers,
}

pub(crate) type Batches<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// A list in messages of `BATCH` entries; the last one names the silent nodes.
pub(crate) fn batches<T, B>(
    mut items: Vec<T>,
    silent: Vec<u32>,
    batch: impl Fn(Vec<T>, Vec<u32>) -> B,
) -> Response<Batches<B>> {
    let mut messages = Vec::with_capacity(items.len() / BATCH + 1);
    while items.len() > BATCH {
        let rest = items.split_off(BATCH);
        messages.push(Ok(batch(std::mem::replace(&mut items, rest), Vec::new())));
    }
    messages.push(Ok(batch(items, silent)));
    Response::new(tokio_stream::iter(messages))
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

fn queue_name(request: &wire::QueueRequest) -> Result<ResourceName, Status> {
    let name = ShortString::try_from(request.name.as_str())
        .map_err(|error| Status::invalid_argument(format!("queue: {error}")))?;
    Ok(ResourceName { vhost: vhost(&request.vhost)?, name })
}

fn amount(request: &wire::AlarmRequest) -> Result<Amount, Status> {
    use wire::alarm_request::BeginsAt;
    match request.begins_at {
        Some(BeginsAt::Bytes(bytes)) => Ok(Amount::Bytes(bytes)),
        Some(BeginsAt::OfMemory(fraction)) if fraction >= 0.0 => Ok(Amount::OfMemory(fraction)),
        Some(BeginsAt::OfMemory(_)) | None => {
            Err(Status::invalid_argument("no valid amount is given"))
        }
    }
}

fn node_id(id: u32) -> Result<NodeId, Status> {
    let id = u16::try_from(id).ok().filter(|id| *id > 0);
    id.map(NodeId).ok_or_else(|| Status::invalid_argument("the id of a node is from 1 to 65535"))
}

/// The name of an operator in the log: a line, and not a long one.
fn shown(operator: &str) -> String {
    operator.chars().filter(|letter| !letter.is_control()).take(OPERATOR_MAX).collect()
}

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
    async fn gather<T, F>(
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
        let own = self.source.queues(vhost).iter().map(convert::queue).collect();
        let question = |mut peer: Peer| {
            let request = local_part(vhost.as_str());
            async move {
                let batches = peer.list_queues(request).await?.into_inner();
                collect(batches, |batch| batch.queues).await
            }
        };
        let (all, silent) = self.gather(scope, own, question).await;
        (merge::queues(all), silent)
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
        let request = request.into_inner();
        check(request.caller)?;
        let name = queue_name(&request)?;
        let deleted = self.source.delete_queue(&name, request.if_unused, request.if_empty).await;
        let messages = deleted.map_err(|exception| convert::refusal(&exception))?;
        Ok(Response::new(wire::QueueReply { messages }))
    }

    async fn purge_queue(
        &self,
        request: Request<wire::QueueRequest>,
    ) -> Result<Response<wire::QueueReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let purged = self.source.purge_queue(&queue_name(&request)?).await;
        let messages = purged.map_err(|exception| convert::refusal(&exception))?;
        Ok(Response::new(wire::QueueReply { messages }))
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
        let request = request.into_inner();
        check(request.caller)?;
        self.source.set_memory_high_watermark(amount(&request)?);
        Ok(Response::new(wire::AlarmReply {}))
    }

    async fn set_disk_free_limit(
        &self,
        request: Request<wire::AlarmRequest>,
    ) -> Result<Response<wire::AlarmReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        self.source.set_disk_free_limit(amount(&request)?);
        Ok(Response::new(wire::AlarmReply {}))
    }

    async fn drain(
        &self,
        request: Request<wire::DrainRequest>,
    ) -> Result<Response<wire::DrainReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        tracing::warn!(operator = shown(&request.operator), "an operator drains this node");
        let within = Duration::from_millis(request.timeout_ms).min(AWAIT_MOST);
        let left = self.source.drain(within).await.map_err(|error| {
            tracing::warn!(%error, "this node is not drained");
            Status::unavailable(error.to_string())
        })?;
        let groups = left.groups.iter().map(|group| u32::from(group.0)).collect();
        Ok(Response::new(wire::DrainReply { groups, connections: left.connections as u64 }))
    }

    async fn revive(
        &self,
        request: Request<wire::ReviveRequest>,
    ) -> Result<Response<wire::ReviveReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        tracing::warn!(operator = shown(&request.operator), "an operator revives this node");
        self.source.revive().await;
        Ok(Response::new(wire::ReviveReply {}))
    }

    async fn forget(
        &self,
        request: Request<wire::MemberRequest>,
    ) -> Result<Response<wire::MemberReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let node = node_id(request.node)?;
        let forgotten = self.source.forget_member(node, request.running).await;
        let operator = shown(&request.operator);
        match forgotten {
            Ok(()) => {
                tracing::warn!(operator, %node, "an operator has had a node forgotten");
                Ok(Response::new(wire::MemberReply {}))
            }
            Err(error) => {
                tracing::warn!(operator, %node, %error, "a node is not forgotten");
                Err(convert::not_forgotten(&error))
            }
        }
    }

    async fn replace(
        &self,
        request: Request<wire::MemberRequest>,
    ) -> Result<Response<wire::MemberReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let node = node_id(request.node)?;
        let replaced = self.source.replace_member(node).await;
        let operator = shown(&request.operator);
        match replaced {
            Ok(()) => {
                tracing::warn!(operator, %node, "an operator has had a node replaced");
                Ok(Response::new(wire::MemberReply {}))
            }
            Err(error) => {
                tracing::warn!(operator, %node, %error, "a node is not replaced");
                Err(Status::unavailable(error.to_string()))
            }
        }
    }

    async fn rebalance(
        &self,
        request: Request<wire::RebalanceRequest>,
    ) -> Result<Response<wire::RebalanceReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let operator = shown(&request.operator);
        tracing::warn!(operator, "an operator has leaderships moved to their preferred nodes");
        let own = self.source.rebalance();
        let question = |mut peer: Peer| {
            let (caller, scope) = (wire::caller(), wire::Scope::Local.into());
            let operator = operator.clone();
            async move {
                let request = wire::RebalanceRequest { caller, scope, operator };
                peer.rebalance(request).await.map(|reply| vec![reply.into_inner()])
            }
        };
        // At the same time: a node waits some seconds for one that does not take a leadership.
        let others = self.gather(request.scope, Vec::new(), question);
        let (own, (others, silent)) = tokio::join!(own, others);
        let kept = own.kept.iter().map(|kept| convert::kept(self.facts.id, kept));
        let mut reply = wire::RebalanceReply {
            moved: own.moved.iter().map(|group| u32::from(group.0)).collect(),
            kept: kept.collect(),
            silent,
        };
        for mut other in others {
            reply.moved.append(&mut other.moved);
            reply.kept.append(&mut other.kept);
        }
        reply.moved.sort_unstable();
        reply.kept.sort_by_key(|kept| kept.group);
        Ok(Response::new(reply))
    }
}
