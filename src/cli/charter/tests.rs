//! The charter over real connections and real directories, which are lost at any moment.

#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use quorate_management::wire::founding_server::FoundingServer;
use quorate_storage::Options;
use std::{net::SocketAddr, path::Path};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::transport::{Endpoint, Server, server::TcpIncoming};

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

/// A node with a directory, and the service that answers for it.
struct Node {
    dir: TempDir,
    charters: Charters,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

fn open(dir: &Path, node: NodeId) -> Arc<Database> {
    Database::open(dir, Options::new(node, Incarnation(rand::random()))).unwrap()
}

impl Node {
    async fn start(node: NodeId, dir: TempDir) -> Self {
        let charters = Charters::new(open(dir.path(), node), node, NODES);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().add_service(FoundingServer::new(charters.clone()));
        let serving = server.serve_with_incoming(TcpIncoming::from(listener));
        let serving = tokio::spawn(async move { serving.await.unwrap() });
        Self { dir, charters, address, serving }
    }

    /// Its process ends; the directory stays.
    async fn end(self) -> TempDir {
        let Self { dir, charters, serving, .. } = self;
        serving.abort();
        charters.0.database.close();
        let users = Arc::downgrade(&charters.0);
        drop(charters);
        // Connections end by themselves when their clients are gone.
        while users.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
        dir
    }
}

struct Nodes(Vec<Option<Node>>);

impl Nodes {
    async fn start() -> Self {
        let mut nodes = Vec::new();
        for node in NODES {
            nodes.push(Some(Node::start(node, tempfile::tempdir().unwrap()).await));
        }
        Self(nodes)
    }

    fn node(&self, node: u16) -> &Node {
        self.0.get(usize::from(node) - 1).unwrap().as_ref().unwrap()
    }

    fn slot(&mut self, node: u16) -> &mut Option<Node> {
        self.0.get_mut(usize::from(node) - 1).unwrap()
    }

    /// The node's process ends and another one begins, with an empty directory if the disk is lost.
    async fn restart(&mut self, node: u16, is_lost: bool) {
        let dir = self.slot(node).take().unwrap().end().await;
        let dir = if is_lost { tempfile::tempdir().unwrap() } else { dir };
        *self.slot(node) = Some(Node::start(NodeId(node), dir).await);
    }

    async fn advance(&self, node: u16) -> Progress {
        let clients = NODES.into_iter().filter(|other| other.0 != node).map(|other| {
            let endpoint = Endpoint::from_shared(format!("http://{}", self.node(other.0).address));
            (other, Some(FoundingClient::new(endpoint.unwrap().connect_lazy())))
        });
        self.node(node).charters.advance(&clients.collect()).await.unwrap()
    }

    fn has(&self, node: u16) -> Founding {
        self.node(node).charters.0.database.founding().unwrap()
    }

    /// All ask again and again, the founder last, until nothing changes.
    async fn settle(&self) -> Vec<Founding> {
        for _ in 0..8 {
            for node in [3, 2, 1] {
                self.advance(node).await;
            }
        }
        NODES.iter().map(|node| self.has(node.0)).collect()
    }
}

fn charter(founding: &Founding) -> &Charter {
    match founding {
        Founding::Taken(charter) | Founding::Formed(Some(charter)) => charter,
        Founding::Empty | Founding::Formed(None) => unreachable!("{founding:?}"),
    }
}

#[tokio::test]
async fn mem_02_a_directory_lost_before_the_formation_leads_to_a_new_charter_and_one_cluster() {
    let mut nodes = Nodes::start().await;
    assert_eq!(nodes.advance(1).await, Progress::Changed, "the charter is written");
    nodes.restart(3, true).await;
    let asked = nodes.advance(1).await;
    assert_eq!(asked, Progress::Changed, "a new one, with the new directory");
    assert_eq!(charter(&nodes.has(1)).number, 2);
    assert_eq!(nodes.has(2), Founding::Empty);
    nodes.restart(1, false).await;
    assert_eq!(nodes.advance(1).await, Progress::Changed, "all take it");
    assert!(matches!(nodes.has(2), Founding::Taken(_)), "{:?}", nodes.has(2));
    // Lost after it has taken the charter, and still before the formation.
    nodes.restart(2, true).await;
    let all = nodes.settle().await;
    let formed = Founding::Formed(Some(charter(&nodes.has(1)).clone()));
    assert_eq!(all, [formed.clone(), formed.clone(), formed.clone()]);
    assert_eq!(charter(&formed).number, 3);
    assert_eq!(charter(&formed).founder, nodes.node(1).charters.directory());
    for node in 1..=3 {
        nodes.restart(node, false).await;
        assert_eq!(nodes.advance(node).await, Progress::Formed, "it is on disk");
    }
}

/// Two of three directories are lost after the formation, in every combination: no charter of the new
/// directories is ever formed beside the third one.
#[tokio::test]
async fn mem_02_a_majority_lost_after_the_formation_forms_no_second_cluster() {
    for survivor in 1..=3_u16 {
        let mut nodes = Nodes::start().await;
        nodes.settle().await;
        let formed = nodes.has(survivor);
        assert!(matches!(formed, Founding::Formed(Some(_))), "{formed:?}");
        for node in (1..=3).filter(|node| *node != survivor) {
            nodes.restart(node, true).await;
        }
        let all = nodes.settle().await;
        let survivors = all.iter().filter(|it| matches!(it, Founding::Formed(_))).count();
        assert_eq!((survivors, nodes.has(survivor)), (1, formed));
    }
}

/// The founder forms the cluster; the others have taken the charter and do not know that yet.
#[tokio::test]
async fn mem_02_a_founder_lost_before_others_know_of_the_formation_is_not_succeeded() {
    let mut nodes = Nodes::start().await;
    while nodes.advance(1).await != Progress::Formed {}
    assert!(matches!(nodes.has(2), Founding::Taken(_)));
    nodes.restart(1, true).await;
    nodes.settle().await;
    assert_eq!(nodes.has(1), Founding::Empty);
    let waits = nodes.advance(1).await;
    let by_others = FoundingWait::OtherFounder(vec![NodeId(2), NodeId(3)]);
    assert_eq!(waits, Progress::Waits(by_others));
    // An operator sets their directories aside.
    nodes.restart(2, true).await;
    nodes.restart(3, true).await;
    let all = nodes.settle().await;
    assert!(all.iter().all(|it| matches!(it, Founding::Formed(Some(_)))), "{all:?}");
}

/// The address that the founder has of node 3 leads to node 2.
#[tokio::test]
async fn mem_02_a_node_answers_only_for_itself() {
    let nodes = Nodes::start().await;
    let client = |node: u16| {
        let endpoint = Endpoint::from_shared(format!("http://{}", nodes.node(node).address));
        FoundingClient::new(endpoint.unwrap().connect_lazy())
    };
    let clients = [(NodeId(2), Some(client(2))), (NodeId(3), Some(client(2)))].into();
    let waits = nodes.node(1).charters.advance(&clients).await.unwrap();
    assert_eq!(waits, Progress::Waits(FoundingWait::Missing(vec![NodeId(3)])));
    let request = AgreeRequest { node: 1, to: 3, charter: None };
    let refused = client(2).agree(request).await.unwrap_err();
    assert!(refused.message().starts_with("this is node 2, not node 3"), "{refused}");
    let refused = client(2).agree(AgreeRequest { node: 2, to: 2, charter: None }).await;
    assert!(refused.unwrap_err().message().contains("two processes"));
    let charter = Some(wire::Charter::default());
    let refused = client(2).agree(AgreeRequest { node: 3, to: 2, charter }).await;
    assert!(refused.unwrap_err().message().contains("lowest node"));
    assert_eq!(nodes.has(2), Founding::Empty);
}

/// The founder waits no longer while the directory writes.
#[tokio::test]
async fn mem_02_a_charter_is_stored_also_when_nobody_waits_for_the_answer() {
    let nodes = Nodes::start().await;
    nodes.advance(1).await;
    let charter = charter(&nodes.has(1)).clone();
    let charters = &nodes.node(2).charters;
    let mut answer = Box::pin(charters.answer(Some(charter.clone())));
    assert!(futures::poll!(&mut answer).is_pending());
    drop(answer);
    while nodes.has(2) == Founding::Empty {
        tokio::task::yield_now().await;
    }
    assert_eq!(nodes.has(2), Founding::Taken(charter));
}

#[test]
fn mem_02_a_charter_travels_whole_and_what_is_none_is_not_understood() {
    let directory = |node| (NodeId(node), Incarnation(u64::MAX - u64::from(node)));
    let directories = (1..=3).map(directory).collect();
    let charter = Charter { founder: Incarnation(u64::MAX - 1), number: 3, directories };
    assert_eq!(of_wire(to_wire(&charter)), Some(charter.clone()));
    let mut twice = to_wire(&charter);
    twice.directories.push(wire::Directory { node: 3, incarnation: 7 });
    assert_eq!(of_wire(twice), None, "a node twice");
    let mut twice = to_wire(&charter);
    twice.directories.push(wire::Directory { node: 4, incarnation: u64::MAX - 3 });
    assert_eq!(of_wire(twice), None, "a directory twice");
    let hello = |reply| hello(reply, NodeId(2));
    let mut reply = AgreeReply {
        node: 2,
        incarnation: 7,
        nodes: vec![1, 2, 3],
        charter: Some(to_wire(&charter)),
        is_formed: false,
    };
    let told = hello(reply.clone()).unwrap();
    assert_eq!(told.founding, Founding::Taken(charter.clone()));
    assert_eq!(told.directory, Incarnation(7));
    reply.is_formed = true;
    assert_eq!(hello(reply.clone()).unwrap().founding, Founding::Formed(Some(charter)));
    let none = AgreeReply { charter: None, ..reply.clone() };
    assert_eq!(hello(none).unwrap().founding, Founding::Formed(None));
    assert_eq!(hello(AgreeReply { node: 3, ..reply.clone() }), None, "of another node");
    assert_eq!(hello(AgreeReply { nodes: vec![1, 70_000], ..reply }), None);
}
