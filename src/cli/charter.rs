//! How the nodes of a new cluster agree on its charter before any of them begins a replica (MEM 2):
//! what this node answers to the founder, and what it does itself.

use super::joining::EnterError;
use futures::future::join_all;
use quorate_broker::Broker;
use quorate_catalog::Catalog;
use quorate_management::wire::{self, AgreeReply, AgreeRequest, founding_client::FoundingClient};
use quorate_raft::{
    FoundingHello, FoundingStep, FoundingWait, next_founding_step, take_charter, written,
};
use quorate_rpc::Links;
use quorate_storage::{Database, StorageError};
use quorate_types::{Charter, Founding, Incarnation, MachineVersion, NodeId, StartNumber};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;
use tonic::{Request, Response, Status, transport::Channel};

/// Longest wait for an answer; the asked node may write to its disk first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// While a formed cluster does not begin, a node says this often what it waits for.
const BEGINNING_LOG: Duration = Duration::from_secs(10);

/// A client of each other node; `None` if its address is not valid.
pub(crate) type Clients = BTreeMap<NodeId, Option<FoundingClient<Channel>>>;

/// What this node's directory has of the founding, and the only place that changes it.
#[derive(Clone)]
pub(crate) struct Charters(Arc<Shared>);

struct Shared {
    database: Arc<Database>,
    me: NodeId,
    nodes: BTreeSet<NodeId>,
    /// Held from a look at the directory to the end of the write that follows from it.
    changing: tokio::sync::Mutex<()>,
}

/// How far this node is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The cluster is formed.
    Formed,
    /// Something has changed: the next step may be due at once.
    Changed,
    /// Nothing has; why.
    Waits(FoundingWait),
}

impl Charters {
    /// Of a node with these settings. `nodes`: the nodes that form a cluster, this one among them.
    pub(crate) fn new(
        database: Arc<Database>,
        me: NodeId,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Self {
        let nodes = nodes.into_iter().collect();
        Self(Arc::new(Shared { database, me, nodes, changing: tokio::sync::Mutex::default() }))
    }

    /// The charter by which the cluster was formed, if it was formed by one.
    pub(crate) fn formed(&self) -> Result<Option<Charter>, StorageError> {
        Ok(match self.0.database.founding()? {
            Founding::Formed(charter) => charter,
            Founding::Taken(_) | Founding::Empty => None,
        })
    }

    /// The nodes of the cluster that this node founds: those of the charter that its directory has
    /// written, or itself, if it is alone; none if another one founds.
    pub(crate) fn founders(
        &self,
        charter: Option<&Charter>,
    ) -> Result<BTreeSet<NodeId>, EnterError> {
        if let Some(charter) = charter {
            let is_founder = charter.founder == self.directory();
            let named = charter.directories.keys().copied();
            return Ok(named.filter(|_| is_founder).collect());
        }
        let is_alone = self.0.nodes.len() == 1;
        match self.0.database.founding()? {
            Founding::Taken(charter) if is_alone => {
                let others = charter.directories.keys().filter(|node| **node != self.0.me);
                let others: Vec<_> = others.map(ToString::to_string).collect();
                Err(EnterError::HasAgreed(others.join(", ")))
            }
            Founding::Empty | Founding::Taken(_) | Founding::Formed(_) => {
                Ok(self.0.nodes.iter().copied().filter(|_| is_alone).collect())
            }
        }
    }

    /// Asks the other nodes, and takes the next step.
    pub(crate) async fn advance(&self, clients: &Clients) -> Result<Progress, StorageError> {
        let others = self.ask(clients, None).await;
        let charter = match self.step(others).await? {
            FoundingStep::Formed => return Ok(Progress::Formed),
            FoundingStep::Wait(wait) => return Ok(Progress::Waits(wait)),
            FoundingStep::Store(_) => return Ok(Progress::Changed),
            FoundingStep::Ask(charter) => charter,
        };
        let answers = self.ask(clients, Some(&charter)).await;
        let taken = Founding::Taken(charter);
        let has_taken = |hello: &FoundingHello| hello.founding == taken;
        let missing = |node: &&NodeId| !answers.get(*node).is_some_and(has_taken);
        let missing: Vec<NodeId> = clients.keys().filter(missing).copied().collect();
        let all = missing.is_empty();
        Ok(if all { Progress::Changed } else { Progress::Waits(FoundingWait::Missing(missing)) })
    }

    /// Asks the other nodes what they have, or to take a charter.
    async fn ask(
        &self,
        clients: &Clients,
        charter: Option<&Charter>,
    ) -> BTreeMap<NodeId, FoundingHello> {
        let me = self.0.me;
        let asked = clients.iter().map(async |(node, client)| {
            let charter = charter.map(to_wire);
            let request = AgreeRequest { node: me.0.into(), to: node.0.into(), charter };
            let mut client = client.clone()?;
            let reply = timeout(ANSWER_TIMEOUT, client.agree(request)).await.ok()?;
            let reply = reply.inspect_err(|status| tracing::debug!(%node, "no answer: {status}"));
            Some((*node, hello(reply.ok()?.into_inner(), *node)?))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Decides the next step, and stores what it stores.
    async fn step(
        &self,
        others: BTreeMap<NodeId, FoundingHello>,
    ) -> Result<FoundingStep, StorageError> {
        let charters = self.clone();
        to_its_end(async move {
            let _changing = charters.0.changing.lock().await;
            let Shared { database, nodes, .. } = &*charters.0;
            let step = next_founding_step(&database.founding()?, charters.own(), nodes, &others);
            if let FoundingStep::Store(founding) = &step {
                charters.store(founding).await?;
            }
            Ok(step)
        })
        .await
    }

    fn directory(&self) -> Incarnation {
        self.0.database.identity().incarnation
    }

    fn own(&self) -> (NodeId, Incarnation) {
        (self.0.me, self.directory())
    }

    /// Writes durably what the directory has from now on.
    async fn store(&self, founding: &Founding) -> Result<(), StorageError> {
        let (charter, is_formed) = match founding {
            Founding::Taken(charter) => (charter, false),
            Founding::Formed(Some(charter)) => (charter, true),
            Founding::Formed(None) | Founding::Empty => return Ok(()),
        };
        written(|done| self.0.database.set_charter(charter, is_formed, done)).await?;
        let number = charter.number;
        tracing::info!(number, is_formed, "this data directory has taken a charter");
        Ok(())
    }

    /// Takes the charter if it may, and says what the directory has then.
    async fn answer(&self, charter: Option<Charter>) -> Result<AgreeReply, StorageError> {
        let charters = self.clone();
        let founding = to_its_end(async move { charters.take(charter).await }).await?;
        let (charter, is_formed) = match founding {
            Founding::Empty => (None, false),
            Founding::Taken(charter) => (Some(charter), false),
            Founding::Formed(charter) => (charter, true),
        };
        Ok(AgreeReply {
            node: self.0.me.0.into(),
            incarnation: self.directory().0,
            nodes: self.0.nodes.iter().map(|node| node.0.into()).collect(),
            charter: charter.as_ref().map(to_wire),
            is_formed,
        })
    }

    async fn take(&self, charter: Option<Charter>) -> Result<Founding, StorageError> {
        let _changing = self.0.changing.lock().await;
        let Shared { database, nodes, .. } = &*self.0;
        let present = database.founding()?;
        let Some(charter) = charter else { return Ok(present) };
        match take_charter(&present, self.own(), nodes, &charter) {
            Ok(taken) if taken == present => {}
            Ok(taken) => self.store(&taken).await?,
            Err(denial) => tracing::info!("a charter is not taken: {denial}"),
        }
        database.founding()
    }

    /// Why a request is not answered.
    fn check(&self, request: &AgreeRequest) -> Result<(), Misdirected> {
        let me = self.0.me;
        if request.to != u32::from(me.0) {
            return Err(Misdirected::To { to: request.to, me });
        }
        if request.node == request.to {
            return Err(Misdirected::FromSelf(me));
        }
        let first = self.0.nodes.first().map(|node| u32::from(node.0));
        if request.charter.is_some() && first != Some(request.node) {
            return Err(Misdirected::NoFounder(request.node));
        }
        Ok(())
    }
}

/// Why a request about the founding is not answered.
#[derive(Debug, thiserror::Error)]
enum Misdirected {
    #[error("this is node {me}, not node {to}: its address is another node's (setting cluster)")]
    To { to: u32, me: NodeId },
    #[error("node {0} does not ask itself: two processes have its id (setting node_id)")]
    FromSelf(NodeId),
    #[error("a charter is written by the lowest node, and node {0} is not (setting cluster)")]
    NoFounder(u32),
}

/// Carries a change to its end, also when nobody waits for it any more: the next one must find what
/// this one has written.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, StorageError>> + Send + 'static,
) -> Result<T, StorageError> {
    tokio::spawn(change).await.unwrap_or(Err(StorageError::Closed))
}

#[tonic::async_trait]
impl wire::founding_server::Founding for Charters {
    async fn agree(&self, request: Request<AgreeRequest>) -> Result<Response<AgreeReply>, Status> {
        let request = request.into_inner();
        self.check(&request).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let charter = request.charter.map(of_wire);
        let charter = charter.map(|it| it.ok_or_else(|| Status::invalid_argument("no charter")));
        let answer = self.answer(charter.transpose()?).await;
        answer.map(Response::new).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Accepts each founder only with the directory that the charter names, until the catalog names one
/// (MEM 2): another directory lacks what that one has acknowledged.
pub(crate) fn expect_founders(catalog: &Catalog, links: &Links, charter: &Charter) {
    if catalog.machine() >= MachineVersion::MEMBERS {
        return;
    }
    let has_started = |node| catalog.node(node).is_some_and(|it| it.start > StartNumber(0));
    for (node, directory) in charter.directories.iter().filter(|(node, _)| !has_started(**node)) {
        links.expect(*node, *directory, None);
    }
}

/// Says what a node waits for that has agreed to a charter and has nothing of its cluster yet: the
/// lowest node writes the first entries, and nobody else ever does (MEM 2).
pub(crate) async fn await_beginning(broker: Broker, charter: Charter, me: NodeId) {
    let founder = charter.directories.keys().next().copied().unwrap_or(me);
    // The founder itself says what it waits for.
    if founder == me {
        return;
    }
    let mut formed = broker.formed();
    while timeout(BEGINNING_LOG, formed.wait_for(Option::is_some)).await.is_err() {
        tracing::info!(
            "waiting for node {founder}, which begins the cluster that all nodes have agreed to form, or \
             for other nodes that have begun with it; if its data directory is lost for good: where a \
             node has begun, stop that one and make it the whole cluster (quorate recover-quorum), and \
             start this one again; where none has, stop all nodes, set aside the data directories of all (setting data_dir), and \
             start them with empty ones"
        );
    }
}

fn node_id(number: u32) -> Option<NodeId> {
    u16::try_from(number).ok().filter(|node| *node != 0).map(NodeId)
}

/// What the asked node has answered; `None` if another one answers, or the answer is not understood.
fn hello(reply: AgreeReply, asked: NodeId) -> Option<FoundingHello> {
    if node_id(reply.node) != Some(asked) {
        return None;
    }
    let charter = match reply.charter {
        Some(charter) => Some(of_wire(charter)?),
        None => None,
    };
    let founding = match (charter, reply.is_formed) {
        (charter, true) => Founding::Formed(charter),
        (Some(charter), false) => Founding::Taken(charter),
        (None, false) => Founding::Empty,
    };
    let nodes = reply.nodes.into_iter().map(node_id).collect::<Option<_>>()?;
    Some(FoundingHello { directory: Incarnation(reply.incarnation), nodes, founding })
}

fn to_wire(charter: &Charter) -> wire::Charter {
    let directory = |(node, directory): (&NodeId, &Incarnation)| wire::Directory {
        node: node.0.into(),
        incarnation: directory.0,
    };
    wire::Charter {
        founder: charter.founder.0,
        number: charter.number,
        directories: charter.directories.iter().map(directory).collect(),
    }
}

fn of_wire(charter: wire::Charter) -> Option<Charter> {
    let count = charter.directories.len();
    let directory = |it: wire::Directory| Some((node_id(it.node)?, Incarnation(it.incarnation)));
    let directories = charter.directories.into_iter().map(directory).collect::<Option<_>>()?;
    let (founder, number) = (Incarnation(charter.founder), charter.number);
    let charter = Charter { founder, number, directories };
    let is_valid = charter.directories.len() == count && charter.names_each_directory_once();
    is_valid.then_some(charter)
}

#[cfg(test)]
mod tests;
