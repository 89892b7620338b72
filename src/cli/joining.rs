//! How a process with an empty data directory finds out whether a cluster exists, and enters it, before
//! it begins any replica (MEM 2, MEM 3, MEM 10).
//!
//! It asks all other nodes of its settings at once, and again until an answer decides: it joins, goes
//! on as a founder, or ends. A new cluster is formed only when all of them have agreed on it (`charter`);
//! a node that is silent may belong to one.

use super::charter::{Charters, Clients, Progress};
use futures::future::join_all;
use quorate_broker::Joined;
use quorate_catalog::ClusterShape;
use quorate_management::wire::{
    self, EnterReply, EnterRequest, enter_reply::Reply, founding_client::FoundingClient,
    members_client::MembersClient,
};
use quorate_raft::FoundingWait;
use quorate_rpc::{Connector, HandshakeError};
use quorate_storage::StorageError;
use quorate_types::{ClusterId, Epoch, MachineVersion, NodeId, ReplicaNumber};
use std::{collections::BTreeMap, error::Error, io, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// Longest wait for a connection to a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for an answer; a member first proposes to the catalog.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_millis(200);
/// While it waits, it says this often what for.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Why a process does not enter.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum EnterError {
    /// The others will not let it in.
    #[error("node {me} cannot enter the cluster: node {by} answers: {text}")]
    Refused {
        /// Id of this node.
        me: NodeId,
        /// The node that refuses it.
        by: NodeId,
        /// Its answer.
        text: String,
    },
    /// The directory has agreed to form a cluster with others (MEM 2).
    #[error(
        "setting cluster: this data directory has agreed to form a cluster with nodes {0}, and does not \
         form one by itself: name them, or set the directory aside (setting data_dir)"
    )]
    HasAgreed(String),
    /// Its data directory cannot be read or written.
    #[error("setting data_dir: {0}")]
    Storage(#[from] StorageError),
}

/// A process that asks.
pub(crate) struct Newcomer {
    /// Id of this node.
    pub(crate) me: NodeId,
    /// What it asks.
    pub(crate) request: EnterRequest,
    /// The other nodes of its settings, and their rpc addresses.
    pub(crate) others: BTreeMap<NodeId, String>,
    /// What its directory has of a charter; `None` if it belongs to a cluster, so that it may not found
    /// one.
    pub(crate) charters: Option<Charters>,
}

/// The outcome of a question to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// It knows no cluster.
    Forming,
    /// This directory is one of the founders of its cluster.
    Founder,
    /// This directory is a member.
    Joined(Joined),
    /// Not, or not yet.
    Refused { text: String, is_final: bool },
    /// It has another cluster secret; `admitted`: it is a member.
    OtherSecret { admitted: bool },
    /// It cannot be reached, or its answer is not understood.
    Silent(String),
}

/// How this process goes on.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// As a founder.
    Founds,
    /// As a member that joins.
    Joins(Joined),
    /// Not at all.
    Ends { by: NodeId, text: String },
    /// It asks again.
    Waits,
}

/// Asks until it is decided how this process goes on: `None` as a founder. When it is cancelled, the
/// directory may have taken a charter, and nothing else is changed. Calls `waits` with what is waited
/// for, after each round.
///
/// # Errors
/// The cluster refuses the process for good.
pub(crate) async fn enter(
    newcomer: &Newcomer,
    connector: &Connector,
    waits: impl Fn(String),
) -> Result<Option<Joined>, EnterError> {
    let channels: Vec<_> = newcomer
        .others
        .iter()
        .map(|(node, address)| (*node, channel(address, connector)))
        .collect();
    let founding = |(node, channel): &(NodeId, Result<Channel, _>)| {
        (*node, channel.as_ref().ok().cloned().map(FoundingClient::new))
    };
    let founding: Clients = channels.iter().map(founding).collect();
    let mut logged: Option<Instant> = None;
    loop {
        let asked = channels
            .iter()
            .map(async |(node, channel)| (*node, ask(channel, newcomer.request.clone()).await));
        let answers: BTreeMap<NodeId, Answer> = join_all(asked).await.into_iter().collect();
        match verdict(&answers) {
            Verdict::Founds => return Ok(None),
            Verdict::Joins(joined) => return Ok(Some(joined)),
            Verdict::Ends { by, text } => {
                return Err(EnterError::Refused { me: newcomer.me, by, text });
            }
            Verdict::Waits => {}
        }
        let progress = match &newcomer.charters {
            Some(charters) => Some(charters.advance(&founding).await?),
            None => None,
        };
        let wait = match progress {
            Some(Progress::Formed) => return Ok(None),
            Some(Progress::Changed) => continue,
            Some(Progress::Waits(wait)) => Some(wait),
            None => None,
        };
        waits(awaited(&answers, wait.as_ref()));
        if logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            logged = Some(Instant::now());
            log(&answers);
            if let Some(wait) = &wait {
                tracing::info!("no cluster is formed yet: {wait}");
            }
        }
        sleep(PAUSE).await;
    }
}

/// A channel to the node at an address; an error if the text is no address.
fn channel(address: &str, connector: &Connector) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT);
    Ok(endpoint.connect_with_connector_lazy(connector.clone()))
}

async fn ask(channel: &Result<Channel, tonic::transport::Error>, request: EnterRequest) -> Answer {
    let mut client = match channel {
        Ok(channel) => MembersClient::new(channel.clone()),
        Err(error) => return Answer::Silent(error.to_string()),
    };
    match timeout(ANSWER_TIMEOUT, client.enter(request)).await {
        Ok(Ok(reply)) => answer(reply.into_inner()),
        Ok(Err(status)) => failure(&status),
        Err(_) => Answer::Silent("it has not answered in time".to_owned()),
    }
}

fn answer(reply: EnterReply) -> Answer {
    match reply.reply {
        Some(Reply::Forming(wire::Forming {})) => Answer::Forming,
        Some(Reply::Founder(wire::Founder {})) => Answer::Founder,
        Some(Reply::Joined(told)) => joined(told),
        Some(Reply::Refused(wire::Refused { text, is_final })) => {
            Answer::Refused { text, is_final }
        }
        None => Answer::Silent("its answer is of a later release".to_owned()),
    }
}

fn joined(told: wire::Joined) -> Answer {
    let peer = |peer: wire::Peer| Some((NodeId(u16::try_from(peer.node).ok()?), peer.address));
    let peers: Option<BTreeMap<_, _>> = told.peers.into_iter().map(peer).collect();
    let (Ok(queue_groups), Some(peers)) = (u16::try_from(told.queue_groups), peers) else {
        return Answer::Silent("its answer is not valid".to_owned());
    };
    Answer::Joined(Joined {
        shape: ClusterShape { cluster: ClusterId(told.cluster), queue_groups },
        machine: MachineVersion(told.machine),
        first: ReplicaNumber(told.first_replica),
        peers,
        epoch: Epoch(told.epoch),
    })
}

fn failure(status: &Status) -> Answer {
    // A node of an earlier release, whose cluster has no members (MEM 15), and which takes no charter.
    if status.code() == Code::Unimplemented {
        return Answer::Forming;
    }
    let cause = innermost(status);
    let io = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match io.and_then(|error| error.downcast_ref()) {
        Some(HandshakeError::Refused { admitted }) => Answer::OtherSecret { admitted: *admitted },
        Some(
            HandshakeError::WrongProof
            | HandshakeError::OtherProtocol
            | HandshakeError::TlsOnlyThere
            | HandshakeError::TlsOnlyHere
            | HandshakeError::Tls(_)
            | HandshakeError::Io(_),
        )
        | None => Answer::Silent(cause.to_string()),
    }
}

fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

/// What follows from one round of answers. What a member says outweighs what others do not know.
fn verdict(answers: &BTreeMap<NodeId, Answer>) -> Verdict {
    let joined = answers.iter().filter_map(|(by, answer)| {
        if let Answer::Joined(joined) = answer { Some((*by, joined)) } else { None }
    });
    let joined: Vec<_> = joined.collect();
    if let Some(((first, one), others)) = joined.split_first() {
        let is_other = |it: &Joined| (it.shape.cluster, it.epoch) != (one.shape.cluster, one.epoch);
        return match others.iter().find(|(_, other)| is_other(other)) {
            Some((by, _)) => Verdict::Ends { by: *by, text: two_clusters(*first) },
            None => Verdict::Joins((*one).clone()),
        };
    }
    for (by, answer) in answers {
        if let Answer::Refused { text, is_final: true } = answer {
            return Verdict::Ends { by: *by, text: text.clone() };
        }
    }
    if let Some(by) = other_secret(answers) {
        let text = "its cluster secret differs from theirs (setting cluster_secret_file)";
        return Verdict::Ends { by, text: text.to_owned() };
    }
    let is_founder = answers.values().any(|answer| *answer == Answer::Founder);
    if is_founder { Verdict::Founds } else { Verdict::Waits }
}

/// Two nodes have been made a whole cluster each (MEM 14), or the setting names nodes of two clusters.
fn two_clusters(other: NodeId) -> String {
    format!(
        "it and node {other} belong to different clusters, and both would let this node in: name nodes of \
         one cluster only (setting cluster); if the last resort was used on both, set one of them aside"
    )
}

/// A node that has another cluster secret than this process, if that proves this process wrong: the node
/// is a member, or the nodes with the same secret as this process are no majority.
fn other_secret(answers: &BTreeMap<NodeId, Answer>) -> Option<NodeId> {
    let others: Vec<(NodeId, bool)> = answers
        .iter()
        .filter_map(|(node, answer)| match answer {
            Answer::OtherSecret { admitted } => Some((*node, *admitted)),
            Answer::Forming
            | Answer::Founder
            | Answer::Joined(_)
            | Answer::Refused { .. }
            | Answer::Silent(_) => None,
        })
        .collect();
    let nodes = answers.len() + 1;
    let is_minority = (nodes - others.len()) * 2 <= nodes;
    others.into_iter().find(|(_, admitted)| *admitted || is_minority).map(|(node, _)| node)
}

/// Says what this process waits for.
fn log(answers: &BTreeMap<NodeId, Answer>) {
    for (node, answer) in answers {
        match answer {
            Answer::Silent(why) => {
                tracing::info!(%node, why, "waiting for a node, which may know of a cluster");
            }
            Answer::Refused { text, .. } => {
                tracing::warn!(%node, answer = text, "this node is not let into the cluster yet");
            }
            Answer::OtherSecret { .. } => {
                tracing::warn!(%node, "a node has another cluster secret than this one");
            }
            Answer::Forming => {
                tracing::info!(%node, "a node knows no cluster yet, and waits for others too");
            }
            Answer::Founder | Answer::Joined(_) => {}
        }
    }
}

/// What this process waits for, in one line for the health checks. `wait`: what the charter lacks.
fn awaited(answers: &BTreeMap<NodeId, Answer>, wait: Option<&FoundingWait>) -> String {
    let said = answers.iter().filter_map(|(node, answer)| match answer {
        Answer::Silent(why) => Some(format!("node {node} does not answer ({why})")),
        Answer::Refused { text, .. } => Some(format!("node {node} answers: {text}")),
        Answer::OtherSecret { .. } => Some(format!("node {node} has another cluster secret")),
        Answer::Forming => Some(format!("node {node} knows no cluster yet")),
        Answer::Founder | Answer::Joined(_) => None,
    });
    let wait = wait.map(|wait| format!("no cluster is formed yet: {wait}"));
    said.chain(wait).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "tests")]

    use super::*;

    fn of(answers: &[Answer]) -> Verdict {
        verdict(&numbered(answers))
    }

    /// Answers of node 2 and the ones after it.
    fn numbered(answers: &[Answer]) -> BTreeMap<NodeId, Answer> {
        (2..).map(NodeId).zip(answers.iter().cloned()).collect()
    }

    fn silent() -> Answer {
        Answer::Silent("connection refused".to_owned())
    }

    fn refused(text: &str, is_final: bool) -> Answer {
        Answer::Refused { text: text.to_owned(), is_final }
    }

    fn ends(by: u16, text: &str) -> Verdict {
        Verdict::Ends { by: NodeId(by), text: text.to_owned() }
    }

    fn told() -> wire::Joined {
        let peer = wire::Peer { node: 2, address: "two:7672".to_owned() };
        wire::Joined {
            cluster: 7,
            machine: 2,
            first_replica: 5,
            queue_groups: 12,
            peers: vec![peer],
            epoch: 1 << 50,
        }
    }

    #[test]
    fn mem_02_a_founder_goes_on_when_its_cluster_knows_it_or_by_its_charter() {
        assert_eq!(of(&[Answer::Forming, Answer::Forming]), Verdict::Waits, "for the charter");
        assert_eq!(of(&[Answer::Forming, silent()]), Verdict::Waits);
        assert_eq!(of(&[Answer::Forming, refused("starting", false)]), Verdict::Waits);
        assert_eq!(of(&[Answer::Founder, silent()]), Verdict::Founds, "it is founded already");
        assert_eq!(of(&[Answer::Founder, refused("gone", true)]), ends(3, "gone"));
        let earlier = Status::unimplemented("no such service");
        assert_eq!(failure(&earlier), Answer::Forming, "binaries before this rule");
    }

    #[test]
    fn mem_03_a_process_that_waits_to_enter_says_for_what() {
        let answers = numbered(&[silent(), refused("node 2 runs", false), Answer::Forming]);
        let said = "node 2 does not answer (connection refused), node 3 answers: node 2 runs, \
                    node 4 knows no cluster yet";
        assert_eq!(awaited(&answers, None), said);
        let wait = FoundingWait::Founder(NodeId(1));
        let both = awaited(&numbered(&[Answer::Forming]), Some(&wait));
        assert!(both.starts_with("node 2 knows no cluster yet, no cluster is formed yet: node 1 "));
    }

    #[test]
    fn mem_03_one_member_is_enough_to_join() {
        let joins = answer(EnterReply { reply: Some(Reply::Joined(told())) });
        let joined = Joined {
            shape: ClusterShape { cluster: ClusterId(7), queue_groups: 12 },
            machine: MachineVersion(2),
            first: ReplicaNumber(5),
            peers: BTreeMap::from([(NodeId(2), "two:7672".to_owned())]),
            epoch: Epoch(1 << 50),
        };
        assert_eq!(of(&[silent(), refused("gone", true), joins]), Verdict::Joins(joined));
        let invalid = wire::Joined { queue_groups: 1 << 20, ..told() };
        assert!(matches!(super::joined(invalid), Answer::Silent(_)));
        assert!(matches!(answer(EnterReply { reply: None }), Answer::Silent(_)));
    }

    #[test]
    fn mem_14_a_process_that_two_clusters_would_let_in_joins_none() {
        let joins = |told| answer(EnterReply { reply: Some(Reply::Joined(told)) });
        let later = wire::Joined { epoch: 2 << 50, ..told() };
        let Verdict::Ends { by, text } = of(&[joins(told()), silent(), joins(later)]) else {
            panic!("it joins one of them");
        };
        assert_eq!(by, NodeId(4));
        assert!(text.starts_with("it and node 2 belong to different clusters"), "{text}");
        let of_one = wire::Joined { peers: Vec::new(), ..told() };
        assert!(matches!(of(&[joins(told()), joins(of_one)]), Verdict::Joins(_)));
    }

    #[test]
    fn mem_10_a_refusal_is_final_or_the_process_asks_again() {
        assert_eq!(of(&[refused("taken", false), silent()]), Verdict::Waits);
        assert_eq!(of(&[silent(), refused("forgotten", true)]), ends(3, "forgotten"));
        let (me, by, text) = (NodeId(4), NodeId(1), "it was forgotten".to_owned());
        let line = EnterError::Refused { me, by, text }.to_string();
        assert_eq!(line, "node 4 cannot enter the cluster: node 1 answers: it was forgotten");
    }

    #[test]
    fn another_secret_than_that_of_a_member_or_of_half_the_nodes_ends_the_process() {
        let other = |admitted| Answer::OtherSecret { admitted };
        let text = "its cluster secret differs from theirs (setting cluster_secret_file)";
        assert_eq!(of(&[silent(), other(true)]), ends(3, text));
        assert_eq!(of(&[silent(), other(false)]), Verdict::Waits);
        assert_eq!(of(&[other(false), other(false)]), ends(2, text));
    }
}
