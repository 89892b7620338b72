//! Requests to the other nodes of the cluster for their parts of a list.

use crate::wire::{
    self, access_client::AccessClient, admin_client::AdminClient, events_client::EventsClient,
    messages_client::MessagesClient, parts_client::PartsClient,
    statistics_client::StatisticsClient,
};
use futures::future::join_all;
use parking_lot::Mutex;
use quorate_broker::view::{ClusterView, MemberView};
use quorate_catalog::MemberState;
use quorate_rpc::Connector;
use quorate_types::{NodeId, VhostName};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// Longest wait for another node; one that takes longer counts as silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a connection to another node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The admin service of another node.
pub(crate) type Peer = AdminClient<Channel>;

/// The parts of lists of another node.
pub(crate) type PartPeer = PartsClient<Channel>;

/// The access service of another node.
pub(crate) type AccessPeer = AccessClient<Channel>;

/// The statistics service of another node.
pub(crate) type StatisticsPeer = StatisticsClient<Channel>;
/// The service of another node's events.
pub(crate) type EventsPeer = EventsClient<Channel>;
/// The service of messages of another node.
pub(crate) type MessagesPeer = MessagesClient<Channel>;

/// Connections to the other nodes' admin services, opened when first needed.
#[derive(Clone, Debug)]
pub struct Peers {
    this: NodeId,
    connector: Connector,
    channels: Arc<Mutex<BTreeMap<NodeId, (String, Channel)>>>,
}

/// The answers of all nodes, and the nodes that did not answer in time.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    pub(crate) answers: Vec<T>,
    pub(crate) silent: Vec<u32>,
}

impl Peers {
    /// Peers of the node `this`, reached by `connector`.
    #[must_use]
    pub fn new(this: NodeId, connector: Connector) -> Self {
        Self { this, connector, channels: Arc::default() }
    }

    /// The node whose peers these are.
    pub(crate) fn this(&self) -> NodeId {
        self.this
    }

    /// Asks every other member at once, but not those that leave: they have been forgotten, and have
    /// no part in what is listed (MEM 11).
    pub(crate) async fn ask<T, F>(
        &self,
        cluster: &ClusterView,
        question: impl Fn(Peer) -> F,
    ) -> Answers<(NodeId, T)>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.ask_on(cluster, |channel| question(AdminClient::new(channel))).await
    }

    /// As [`Peers::ask`], for their statistics.
    pub(crate) async fn ask_statistics<T, F>(
        &self,
        cluster: &ClusterView,
        question: impl Fn(StatisticsPeer) -> F,
    ) -> Answers<(NodeId, T)>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.ask_on(cluster, |channel| question(StatisticsClient::new(channel))).await
    }

    /// Asks every other member at once for its part of a list, as [`Peers::ask`].
    pub(crate) async fn ask_parts<T, F>(
        &self,
        cluster: &ClusterView,
        question: impl Fn(PartPeer) -> F,
    ) -> Answers<(NodeId, T)>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.ask_on(cluster, |channel| question(PartsClient::new(channel))).await
    }

    async fn ask_on<T, F>(
        &self,
        cluster: &ClusterView,
        question: impl Fn(Channel) -> F,
    ) -> Answers<(NodeId, T)>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let stays = |member: &&MemberView| member.state != MemberState::Leaving;
        let others = cluster.members.iter().filter(stays).filter(|it| it.id != self.this);
        let asked = others.map(|member| {
            let question = self.channel(member.id, &member.rpc_address).map(&question);
            let running = member.running;
            async move {
                let answer = match question {
                    // A connection attempt would fail, so it is not made.
                    _ if !running => None,
                    None => None,
                    Some(question) => tokio::time::timeout(ANSWER_TIMEOUT, question).await.ok(),
                };
                (member.id, answer)
            }
        });
        let mut answers = Answers { answers: Vec::new(), silent: Vec::new() };
        for (node, answer) in join_all(asked).await {
            match answer {
                Some(Ok(answer)) => answers.answers.push((node, answer)),
                Some(Err(status)) => {
                    tracing::warn!(
                        %node, error = status.message(), "a request to another node failed"
                    );
                    answers.silent.push(u32::from(node.0));
                }
                None => answers.silent.push(u32::from(node.0)),
            }
        }
        answers
    }

    /// The access service of another member that can be reached.
    pub(crate) fn access(&self, member: &MemberView) -> Option<AccessPeer> {
        Some(AccessClient::new(self.other(member)?))
    }

    /// The parts of lists of another member that can be reached.
    pub(crate) fn parts(&self, member: &MemberView) -> Option<PartPeer> {
        Some(PartsClient::new(self.other(member)?))
    }

    fn other(&self, member: &MemberView) -> Option<Channel> {
        if member.id == self.this || !member.running {
            return None;
        }
        self.channel(member.id, &member.rpc_address)
    }

    /// The service of another member's events, if that can be reached.
    pub(crate) fn events(&self, member: &MemberView) -> Option<EventsPeer> {
        if member.id == self.this || !member.running {
            return None;
        }
        Some(EventsClient::new(self.channel(member.id, &member.rpc_address)?))
    }

    /// The service of messages of another member that can be reached.
    pub(crate) fn messages(&self, member: &MemberView) -> Option<MessagesPeer> {
        if member.id == self.this || !member.running {
            return None;
        }
        Some(MessagesClient::new(self.channel(member.id, &member.rpc_address)?))
    }

    fn channel(&self, node: NodeId, address: &str) -> Option<Channel> {
        let mut channels = self.channels.lock();
        Some(match channels.get(&node) {
            Some((known, channel)) if known == address => channel.clone(),
            Some(_) | None => {
                let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
                let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT);
                let channel = endpoint.connect_with_connector_lazy(self.connector.clone());
                channels.insert(node, (address.to_owned(), channel.clone()));
                channel
            }
        })
    }
}

/// Reads a list to its end.
pub(crate) async fn collect<B, T>(
    mut batches: Streaming<B>,
    items: impl Fn(B) -> Vec<T>,
) -> Result<Vec<T>, Status> {
    let mut all = Vec::new();
    while let Some(batch) = batches.message().await? {
        all.append(&mut items(batch));
    }
    Ok(all)
}

/// The request for a node's own part of a list over virtual hosts.
pub(crate) fn part(vhosts: &BTreeSet<VhostName>) -> wire::PartRequest {
    let vhosts = vhosts.iter().map(ToString::to_string).collect();
    wire::PartRequest { caller: wire::caller(), vhosts, counts_only: false }
}

/// The request for a node's own part of a list.
pub(crate) fn local_part(vhost: &str) -> wire::ListRequest {
    wire::ListRequest {
        caller: wire::caller(),
        scope: wire::Scope::Local.into(),
        vhost: vhost.to_owned(),
    }
}
