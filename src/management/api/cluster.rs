//! Lists of the whole cluster: this node's part, and what the other nodes answer within a second. A
//! node that does not answer is named with the list.

use crate::api::counts::LastCounts;
use crate::convert;
use crate::merge;
use crate::peers::{Answers, Peer, Peers, collect, local_part};
use crate::wire;
use futures::future::join_all;
use parking_lot::Mutex;
use quorate_broker::Broker;
use quorate_broker::view::ClusterView;
use quorate_types::{NodeId, ResourceName, VhostName};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Response, Status};

/// Longest wait for another node, whatever it is asked.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The nodes of the cluster, as a source of lists.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    broker: Broker,
    peers: Peers,
    /// Names that other nodes have given themselves.
    names: Arc<Mutex<BTreeMap<u32, String>>>,
    counts: Arc<Mutex<LastCounts>>,
}

/// A list, and the nodes whose parts are missing.
#[derive(Debug, Default)]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
    pub(crate) silent: Vec<u32>,
}

/// A queue, and whether its counts are of now.
#[derive(Clone, Debug)]
pub(crate) struct KnownQueue {
    pub(crate) queue: wire::Queue,
    /// Its leader has answered.
    pub(crate) fresh: bool,
}

/// A consumer and the virtual host of its queue.
#[derive(Clone, Debug)]
pub(crate) struct VhostConsumer {
    pub(crate) vhost: VhostName,
    pub(crate) consumer: wire::Consumer,
}

/// The answer of another node, if it comes in time.
async fn in_time<T>(asked: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(ANSWER_MAX, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::deadline_exceeded("the node did not answer within a second")),
    }
}

impl Cluster {
    /// The cluster as `broker` knows it, asked through `peers`.
    pub(crate) fn new(broker: Broker, peers: Peers) -> Self {
        Self { broker, peers, names: Arc::default(), counts: Arc::default() }
    }

    /// The members, as this node knows them.
    pub(crate) fn view(&self) -> ClusterView {
        self.broker.views().cluster()
    }

    /// This node's part of a list, and the parts of all others.
    async fn gather<T, F>(&self, own: Vec<T>, question: impl Fn(Peer) -> F) -> Listed<T>
    where
        F: Future<Output = Result<Vec<T>, Status>>,
    {
        let asked = self.peers.ask(&self.view(), |peer| in_time(question(peer))).await;
        let Answers { answers, silent } = asked;
        let others = answers.into_iter().flat_map(|(_, list)| list);
        Listed { items: own.into_iter().chain(others).collect(), silent }
    }

    /// Queues of virtual hosts, each once, with the counts of the node that leads it.
    pub(crate) async fn queues(&self, vhosts: &BTreeSet<VhostName>) -> Listed<KnownQueue> {
        let own = self.own_queues(vhosts.clone()).await;
        let listed = self.gather(own, |peer| queues_of(peer, vhosts.clone())).await;
        let queues = merge::queues(listed.items);
        let queues = self.counts.lock().complete(queues);
        Listed { items: queues, silent: listed.silent }
    }

    /// This node's views of queues: with many of them that is not for the threads of the broker.
    pub(crate) async fn own_queues(&self, vhosts: BTreeSet<VhostName>) -> Vec<wire::Queue> {
        let broker = self.broker.clone();
        let views = move || {
            let views = broker.views();
            let of_vhost = |vhost| views.queues(vhost).iter().map(convert::queue).collect();
            vhosts.iter().flat_map::<Vec<_>, _>(of_vhost).collect()
        };
        tokio::task::spawn_blocking(views).await.unwrap_or_default()
    }

    /// One queue. Only the node that leads it is asked, if that is another one.
    pub(crate) async fn queue(&self, name: &ResourceName) -> Option<KnownQueue> {
        let Some(view) = self.broker.lookup().queue(name) else {
            // A connection-bound queue of another node.
            let listed = self.queues(&BTreeSet::from([name.vhost.clone()])).await;
            return listed.items.into_iter().find(|one| one.queue.name == name.name.as_str());
        };
        let mut lists = vec![convert::queue(&view)];
        let leader = view.leader.filter(|_| view.counts.is_none());
        if let Some(leader) = leader {
            let mut only = self.view();
            only.members.retain(|member| member.id == leader);
            let vhosts = BTreeSet::from([name.vhost.clone()]);
            let asked = self.peers.ask(&only, |peer| in_time(queues_of(peer, vhosts.clone())));
            let answers = asked.await.answers.into_iter().flat_map(|(_, queues)| queues);
            lists.extend(answers.filter(|queue| queue.name == name.name.as_str()));
        }
        self.counts.lock().complete(merge::queues(lists)).into_iter().next()
    }

    /// Client connections of all nodes.
    pub(crate) async fn connections(&self) -> Listed<wire::Connection> {
        let own = self.broker.views().connections().iter().map(convert::connection).collect();
        self.gather(own, |mut peer: Peer| async move {
            let batches = peer.list_connections(local_part("")).await?.into_inner();
            collect(batches, |batch| batch.connections).await
        })
        .await
    }

    /// Channels of all nodes.
    pub(crate) async fn channels(&self) -> Listed<wire::Channel> {
        let own = self.broker.views().channels().iter().map(convert::channel).collect();
        self.gather(own, |mut peer: Peer| async move {
            let batches = peer.list_channels(local_part("")).await?.into_inner();
            collect(batches, |batch| batch.channels).await
        })
        .await
    }

    /// Consumers of queues in virtual hosts, with whose turn it is of those that take turns.
    pub(crate) async fn consumers(&self, vhosts: &BTreeSet<VhostName>) -> Listed<VhostConsumer> {
        let mut own = Vec::new();
        for vhost in vhosts {
            let views = self.broker.views().consumers(vhost);
            let consumer =
                |view| VhostConsumer { vhost: vhost.clone(), consumer: convert::consumer(view) };
            own.extend(views.iter().map(consumer));
        }
        let listed = self.gather(own, |peer| consumers_of(peer, vhosts.clone()));
        let (mut listed, turns) = tokio::join!(listed, self.turns(vhosts));
        let mut consumers: Vec<_> = listed.items.iter().map(|one| one.consumer.clone()).collect();
        merge::note_turns(&mut consumers, turns);
        for (known, noted) in listed.items.iter_mut().zip(consumers) {
            known.consumer = noted;
        }
        listed
    }

    async fn turns(&self, vhosts: &BTreeSet<VhostName>) -> Vec<wire::Turn> {
        let of_vhost = |vhost| self.broker.views().single_active(vhost);
        let own = vhosts.iter().flat_map(of_vhost).map(|turn| convert::turn(&turn)).collect();
        self.gather(own, |peer| turns_of(peer, vhosts.clone())).await.items
    }

    /// What the other nodes say of themselves.
    pub(crate) async fn nodes(&self) -> Listed<wire::Node> {
        let view = self.view();
        let asked = self.peers.ask(&view, |mut peer| {
            in_time(async move {
                let request = wire::NodeRequest { caller: wire::caller() };
                peer.get_node(request).await.map(Response::into_inner)
            })
        });
        let Answers { answers, silent } = asked.await;
        let items: Vec<_> = answers.into_iter().map(|(_, node)| node).collect();
        let named = items.iter().map(|node| (node.id, node.name.clone()));
        self.names.lock().extend(named);
        Listed { items, silent }
    }

    /// The names that nodes have given themselves, of those that have been asked.
    pub(crate) fn known_names(&self) -> BTreeMap<u32, String> {
        self.names.lock().clone()
    }

    /// The names that nodes have given themselves. They are asked once.
    pub(crate) async fn given_names(&self) -> BTreeMap<u32, String> {
        let known = self.known_names();
        let this = self.broker.node();
        let unknown = self.view().members.iter().any(|member| {
            let id = u32::from(member.id.0);
            member.running && member.id != this && !known.contains_key(&id)
        });
        if !unknown {
            return known;
        }
        self.nodes().await;
        self.known_names()
    }

    /// Closes one connection, on the node of its client. False: it is gone, or the node does not
    /// answer.
    pub(crate) async fn close(&self, connection: wire::ConnectionId, reason: &str) -> bool {
        let view = self.view();
        let member = view.members.iter().find(|member| u32::from(member.id.0) == connection.node);
        let Some(mut peer) = member.and_then(|member| self.peers.access(member)) else {
            return false;
        };
        let request = wire::CloseRequest {
            caller: wire::caller(),
            scope: wire::Scope::Local.into(),
            which: Some(wire::close_request::Which::Connection(connection)),
            reason: reason.to_owned(),
            limit: 1,
        };
        let closed = in_time(peer.close_connections(request)).await;
        closed.is_ok_and(|reply| reply.into_inner().closed > 0)
    }
}

impl Cluster {
    /// The newest events of each other node, above those that were read of it.
    pub(crate) async fn events(
        &self,
        read: &BTreeMap<u32, u64>,
        most: u32,
    ) -> Listed<(u32, Vec<wire::Event>)> {
        let (view, this) = (self.view(), self.broker.node());
        let asked = view.members.iter().filter(|member| member.id != this).map(|member| async {
            let node = u32::from(member.id.0);
            let since = read.get(&node).copied().unwrap_or_default();
            let request = wire::EventsRequest { caller: wire::caller(), since, most };
            let answer = match self.peers.events(member) {
                Some(mut peer) => in_time(peer.list_events(request)).await.ok(),
                None => None,
            };
            (node, answer.map(|answer| answer.into_inner().events))
        });
        let mut listed = Listed::default();
        for (node, answer) in join_all(asked).await {
            match answer {
                Some(events) => listed.items.push((node, events)),
                None => listed.silent.push(node),
            }
        }
        listed
    }

    /// Begins or ends the draining of another node.
    ///
    /// # Errors
    /// Why the node is not drained, in words.
    pub(crate) async fn maintain(
        &self,
        node: NodeId,
        drain: bool,
        operator: &str,
    ) -> Result<(), String> {
        let mut only = self.view();
        only.members.retain(|member| member.id == node);
        let operator = || operator.to_owned();
        let asked = self.peers.ask(&only, |mut peer| {
            let operator = operator();
            async move {
                let caller = wire::caller();
                let done = if drain {
                    let request = wire::DrainRequest { caller, timeout_ms: 0, operator };
                    peer.drain(request).await.map(drop)
                } else {
                    peer.revive(wire::ReviveRequest { caller, operator }).await.map(drop)
                };
                // Its words are for the operator, not for the log.
                Ok(done.map_err(|status| status.message().to_owned()))
            }
        });
        let answer = asked.await.answers.into_iter().next();
        answer.map_or_else(|| Err(format!("node {node} does not answer")), |(_, done)| done)
    }
}

async fn queues_of(
    mut peer: Peer,
    vhosts: BTreeSet<VhostName>,
) -> Result<Vec<wire::Queue>, Status> {
    let mut all = Vec::new();
    for vhost in &vhosts {
        let batches = peer.list_queues(local_part(vhost.as_str())).await?.into_inner();
        all.append(&mut collect(batches, |batch| batch.queues).await?);
    }
    Ok(all)
}

async fn consumers_of(
    mut peer: Peer,
    vhosts: BTreeSet<VhostName>,
) -> Result<Vec<VhostConsumer>, Status> {
    let mut all = Vec::new();
    for vhost in &vhosts {
        let batches = peer.list_consumers(local_part(vhost.as_str())).await?.into_inner();
        let consumers = collect(batches, |batch| batch.consumers).await?;
        let known = |consumer| VhostConsumer { vhost: vhost.clone(), consumer };
        all.extend(consumers.into_iter().map(known));
    }
    Ok(all)
}

async fn turns_of(mut peer: Peer, vhosts: BTreeSet<VhostName>) -> Result<Vec<wire::Turn>, Status> {
    let mut all = Vec::new();
    for vhost in &vhosts {
        let batches = peer.list_turns(local_part(vhost.as_str())).await?.into_inner();
        all.append(&mut collect(batches, |batch| batch.turns).await?);
    }
    Ok(all)
}
