//! Lists of the whole cluster: this node's part, and what the other nodes answer within a second. A
//! node that does not answer is named with the list.

use crate::api::counts::LastCounts;
use crate::convert;
use crate::merge;
use crate::parts::{self, blocking};
use crate::peers::{Answers, PartPeer, Peer, Peers, StatisticsPeer, collect, local_part, part};
use crate::rates::{Rates, TooManySamples, attempts};
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
use tonic::{Code, Response, Status};

/// Longest wait for another node, whatever it is asked.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The nodes of the cluster, as a source of lists.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    broker: Broker,
    peers: Peers,
    rates: Rates,
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
    pub(crate) fn new(broker: Broker, peers: Peers, rates: Rates) -> Self {
        Self { broker, peers, rates, names: Arc::default(), counts: Arc::default() }
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

    /// The other nodes' parts of a list over virtual hosts.
    async fn gather_parts<T, F>(&self, question: impl Fn(PartPeer) -> F) -> Listed<T>
    where
        F: Future<Output = Result<Vec<T>, Status>>,
    {
        let asked = self.peers.ask_parts(&self.view(), |peer| in_time(question(peer))).await;
        let items = asked.answers.into_iter().flat_map(|(_, list)| list).collect();
        Listed { items, silent: asked.silent }
    }

    /// Queues of virtual hosts, each once, with the counts of the node that leads it.
    pub(crate) async fn queues(&self, vhosts: &BTreeSet<VhostName>) -> Listed<KnownQueue> {
        let mut listed = self.merged_queues(vhosts, true).await;
        if listed.items.iter().any(|queue| queue.name.is_empty()) {
            // This node's copy of the catalog lags behind that of a leader.
            listed = self.merged_queues(vhosts, false).await;
        }
        let counts = Arc::clone(&self.counts);
        let items = blocking(move || counts.lock().complete(listed.items)).await;
        self.listed(items, listed.silent)
    }

    /// Those queues; with `counts_only` a queue that only its leader knows has no name.
    async fn merged_queues(
        &self,
        vhosts: &BTreeSet<VhostName>,
        counts_only: bool,
    ) -> Listed<wire::Queue> {
        let request = || wire::PartRequest { counts_only, ..part(vhosts) };
        let (own, others) = tokio::join!(
            self.own_queues(vhosts.clone()),
            self.gather_parts(|peer| led_queues_of(peer, request())),
        );
        let merged = blocking(move || Some(merge::queues(own?, others.items))).await.flatten();
        self.listed(merged, others.silent)
    }

    /// A list that this node has made; `None`: it has failed, so this node has not answered either.
    fn listed<T>(&self, items: Option<Vec<T>>, mut silent: Vec<u32>) -> Listed<T> {
        if items.is_none() {
            silent.push(u32::from(self.broker.node().0));
        }
        Listed { items: items.unwrap_or_default(), silent }
    }

    /// This node's views of queues: with many of them that is not for the threads of the broker.
    /// `None`: they were not made.
    pub(crate) async fn own_queues(&self, vhosts: BTreeSet<VhostName>) -> Option<Vec<wire::Queue>> {
        let broker = self.broker.clone();
        blocking(move || broker.lookup().queues(&vhosts, convert::queue)).await
    }

    /// One queue. Only the node that leads it is asked, if that is another one.
    pub(crate) async fn queue(&self, name: &ResourceName) -> Option<KnownQueue> {
        let Some(view) = self.broker.lookup().queue(name) else {
            // A connection-bound queue of another node.
            let listed = self.queues(&BTreeSet::from([name.vhost.clone()])).await;
            return listed.items.into_iter().find(|one| one.queue.name == name.name.as_str());
        };
        let of_leader = match view.leader.filter(|_| view.counts.is_none()) {
            Some(leader) => self.queue_of(leader, name).await,
            None => None,
        };
        let merged = merge::queues(vec![convert::queue(view)], of_leader);
        // A list may hold the counts for long.
        let counts = Arc::clone(&self.counts);
        let completed = blocking(move || counts.lock().complete(merged)).await;
        completed.and_then(|completed| completed.into_iter().next())
    }

    /// A queue as another node knows it; `None` if it knows none, or does not answer.
    async fn queue_of(&self, node: NodeId, name: &ResourceName) -> Option<wire::Queue> {
        let view = self.view();
        let mut peer = self.peers.parts(view.members.iter().find(|member| member.id == node)?)?;
        let request = wire::QueueName {
            caller: wire::caller(),
            vhost: name.vhost.to_string(),
            name: name.name.to_string(),
        };
        in_time(peer.get_queue(request)).await.ok().map(Response::into_inner)
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
        let (broker, of_vhosts) = (self.broker.clone(), vhosts.clone());
        let own = blocking(move || parts::own_consumers(&broker, &of_vhosts));
        let listed = self.gather_parts(|peer| own_consumers_of(peer, part(vhosts)));
        let (own, mut listed, turns) = tokio::join!(own, listed, self.turns(vhosts));
        // Who has not told the turns may have told the consumers.
        let untold: Vec<u32> =
            turns.silent.into_iter().filter(|node| !listed.silent.contains(node)).collect();
        listed.silent.extend(untold);
        let own = own.unwrap_or_default().into_iter();
        listed.items.extend(own.map(|(vhost, consumer)| VhostConsumer { vhost, consumer }));
        let mut consumers: Vec<_> = listed.items.iter().map(|one| one.consumer.clone()).collect();
        merge::note_turns(&mut consumers, turns.items);
        for (known, noted) in listed.items.iter_mut().zip(consumers) {
            known.consumer = noted;
        }
        listed
    }

    async fn turns(&self, vhosts: &BTreeSet<VhostName>) -> Listed<wire::Turn> {
        let mut turns = self.gather_parts(|peer| led_turns_of(peer, part(vhosts))).await;
        turns.items.extend(parts::led_turns(&self.broker, vhosts));
        turns
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

    /// What all nodes have sampled of the objects that a request asks for.
    ///
    /// # Errors
    /// A node has too many of these objects for their samples.
    pub(crate) async fn statistics(
        &self,
        request: wire::StatisticsRequest,
    ) -> Result<Listed<wire::Statistic>, TooManySamples> {
        let (rates, me, asked) = (self.rates.clone(), self.broker.node(), request.clone());
        let own = blocking(move || rates.answer(&asked, u32::from(me.0)));
        let view = self.view();
        let question = |mut peer: StatisticsPeer| {
            let request = request.clone();
            in_time(async move {
                let read = async {
                    let parts = peer.get_statistics(request).await?.into_inner();
                    collect(parts, |part| part.statistics).await
                };
                match read.await {
                    // It is an answer, and no silence.
                    Err(status) if status.code() == Code::OutOfRange => Ok(Err(TooManySamples)),
                    read => read.map(Ok),
                }
            })
        };
        let (own, asked) = tokio::join!(own, self.peers.ask_statistics(&view, question));
        let mut listed = Listed { items: Vec::new(), silent: asked.silent };
        match own {
            Some(own) => listed.items.extend(own?),
            None => listed.silent.push(u32::from(me.0)),
        }
        for (_, answer) in asked.answers {
            listed.items.extend(answer?);
        }
        Ok(listed)
    }

    /// Logins at one node; `None` if it does not answer.
    pub(crate) async fn attempts(
        &self,
        node: u32,
        request: wire::AttemptsRequest,
    ) -> Option<Vec<wire::Attempt>> {
        if node == u32::from(self.broker.node().0) {
            return Some(attempts(&self.broker, request));
        }
        let mut only = self.view();
        only.members.retain(|member| u32::from(member.id.0) == node);
        let question = |mut peer: StatisticsPeer| {
            in_time(async move { Ok(peer.get_attempts(request).await?.into_inner().attempts) })
        };
        let answers = self.peers.ask_statistics(&only, question).await.answers;
        answers.into_iter().next().map(|(_, attempts)| attempts)
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

    /// Closes one connection, on the node of its client. One that is gone is closed.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) async fn close(
        &self,
        connection: wire::ConnectionId,
        reason: &str,
    ) -> Result<(), Status> {
        let view = self.view();
        let member = view.members.iter().find(|member| u32::from(member.id.0) == connection.node);
        let Some(mut peer) = member.and_then(|member| self.peers.access(member)) else {
            return Err(Status::unavailable("the node cannot be reached"));
        };
        let request = wire::CloseRequest {
            caller: wire::caller(),
            scope: wire::Scope::Local.into(),
            which: Some(wire::close_request::Which::Connection(connection)),
            reason: reason.to_owned(),
            limit: 1,
        };
        in_time(peer.close_connections(request)).await.map(drop)
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

    /// Has every node hand leaderships to the nodes that should have them.
    pub(crate) async fn rebalance(&self, operator: &str) {
        let question = |mut peer: Peer| {
            let (caller, scope) = (wire::caller(), wire::Scope::Local.into());
            let request = wire::RebalanceRequest { caller, scope, operator: operator.to_owned() };
            async move { peer.rebalance(request).await.map(|_| Vec::<()>::new()) }
        };
        let broker = self.broker.operator();
        tokio::join!(broker.rebalance(), self.gather(Vec::new(), question));
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

async fn led_queues_of(
    mut peer: PartPeer,
    part: wire::PartRequest,
) -> Result<Vec<wire::Queue>, Status> {
    let batches = peer.led_queues(part).await?.into_inner();
    collect(batches, |batch| batch.queues).await
}

async fn own_consumers_of(
    mut peer: PartPeer,
    part: wire::PartRequest,
) -> Result<Vec<VhostConsumer>, Status> {
    let batches = peer.own_consumers(part).await?.into_inner();
    collect(batches, |batch| {
        // Another node names no virtual host that was not asked for.
        let vhost = VhostName::try_from(batch.vhost.as_str()).unwrap_or_default();
        let known = |consumer| VhostConsumer { vhost: vhost.clone(), consumer };
        batch.consumers.into_iter().map(known).collect()
    })
    .await
}

async fn led_turns_of(
    mut peer: PartPeer,
    part: wire::PartRequest,
) -> Result<Vec<wire::Turn>, Status> {
    let batches = peer.led_turns(part).await?.into_inner();
    collect(batches, |batch| batch.turns).await
}
