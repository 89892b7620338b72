//! Nodes with groups and links in one process, over loopback and temporary directories.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use bytes::Bytes;
use parking_lot::Mutex;
use quorate_catalog::{CatalogEntry, CatalogOutput};
use quorate_queue::{Batch, Command, Entry, MessageHead, Origin, Output, QueueConfig, Run};
use quorate_raft::{
    CatalogSink, Group, GroupSink, Groups, Inbox, QueueSink, Settings, Sinks, TransferError,
};
use quorate_rpc::{
    Cause, ClusterCell, ClusterSecret, LinkConfig, LinkHandler, Links, Listener, MachineCell,
    Origin as From, PeerHello, Responder,
};
use quorate_storage::{CommandEntry, Database, EntryId, Options, RunBodies, codec};
use quorate_types::{
    BootNumber, ClusterId, Epoch, GroupId, Home, Incarnation, Level, Message, NodeId, QueueId,
    QueueType, ReplicaNumber, ResourceName, Sequence, SessionId, ShortString, Stamp, StartNumber,
    Term, VhostName,
};
use std::{
    collections::BTreeMap,
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use tonic::service::Routes;

/// What has not come within this time never comes.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// A call to a node's sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Became(GroupId, Term),
    LostLeadership(GroupId),
    Leader(GroupId, Term, Option<NodeId>),
    Installed(GroupId),
    ProposalLost(GroupId),
    /// Group, term of the entry, and whether the node leads.
    Applied(GroupId, Term, bool),
    /// The group's membership is what the placement with that number names.
    Reached(GroupId, u64),
}

#[derive(Default)]
pub struct Recorder(Mutex<Vec<Notice>>);

impl Recorder {
    fn record(&self, notice: Notice) {
        self.0.lock().push(notice);
    }

    pub fn notices(&self) -> Vec<Notice> {
        self.0.lock().clone()
    }

    pub fn count(&self, wanted: &Notice) -> usize {
        self.0.lock().iter().filter(|notice| *notice == wanted).count()
    }
}

impl GroupSink for Recorder {
    fn became_leader(&self, group: GroupId, term: Term) {
        self.record(Notice::Became(group, term));
    }
    fn lost_leadership(&self, group: GroupId) {
        self.record(Notice::LostLeadership(group));
    }
    fn leader_changed(&self, group: GroupId, term: Term, leader: Option<NodeId>) {
        self.record(Notice::Leader(group, term, leader));
    }
    fn proposal_lost(&self, group: GroupId) {
        self.record(Notice::ProposalLost(group));
    }
    fn installed(&self, group: GroupId, _: EntryId) {
        self.record(Notice::Installed(group));
    }
}

impl QueueSink for Recorder {
    fn applied(&self, group: GroupId, id: EntryId, leading: bool, _: &Entry, _: &Output) {
        self.record(Notice::Applied(group, id.term, leading));
    }
}

impl CatalogSink for Recorder {
    fn applied(&self, id: EntryId, leading: bool, _: &CatalogEntry, _: &CatalogOutput) {
        self.record(Notice::Applied(GroupId::CATALOG, id.term, leading));
    }
    fn placement_reached(&self, group: GroupId, number: u64) {
        self.record(Notice::Reached(group, number));
    }
}

struct Handler(Inbox);

impl LinkHandler for Handler {
    fn request(&self, from: &From, service: u32, group: GroupId, bytes: Bytes, to: Responder) {
        self.0.request(from, service, group, bytes, to);
    }
    fn notice(&self, origin: &From, service: u32, _: GroupId, _: Bytes) {
        self.0.notice(origin, service);
    }
    fn connected(&self, peer: &PeerHello) {
        self.0.connected(peer);
    }
    fn lost(&self, node: NodeId, boot: BootNumber, cause: Cause) {
        self.0.lost(node, boot, cause);
    }
}

pub struct Node {
    pub id: NodeId,
    pub groups: Groups,
    pub links: Links,
    pub recorder: Arc<Recorder>,
    cluster: ClusterCell,
    database: Arc<Database>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// The remains of a process that has died.
pub struct Dead {
    id: NodeId,
    groups: Groups,
    links: Links,
    database: Arc<Database>,
}

/// A cluster of nodes, some of them running.
pub struct Cluster {
    dirs: BTreeMap<NodeId, TempDir>,
    addresses: BTreeMap<NodeId, SocketAddr>,
    pub nodes: BTreeMap<NodeId, Node>,
    tune: fn(&mut Settings),
    /// Its identity, once nodes other than the founders have joined.
    id: Option<ClusterId>,
    /// The test has ended, or has panicked.
    over: Arc<AtomicBool>,
}

impl Drop for Cluster {
    /// A test that panics drops objects that its groups still use. The groups then end with errors,
    /// which must not hide the message of the panic.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

impl Cluster {
    /// Three running nodes, their settings as `tune` makes them.
    pub async fn start(tune: fn(&mut Settings)) -> Self {
        log_to_stderr();
        let mut listeners = BTreeMap::new();
        let mut dirs = BTreeMap::new();
        for id in (1..=3).map(NodeId) {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            listeners.insert(id, listener);
            dirs.insert(id, TempDir::new().unwrap());
        }
        let addresses = listeners.iter().map(|(id, l)| (*id, l.address())).collect();
        let over = Arc::default();
        let mut cluster = Self { dirs, addresses, nodes: BTreeMap::new(), tune, id: None, over };
        for (id, listener) in listeners {
            let node = cluster.start_node(id, listener, None).await;
            cluster.nodes.insert(id, node);
        }
        cluster
    }

    /// A node with an empty directory joins, with that replica of the catalog.
    pub async fn join(&mut self, id: NodeId, first: ReplicaNumber) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        self.addresses.insert(id, listener.address());
        self.dirs.insert(id, TempDir::new().unwrap());
        self.id = Some(ClusterId(7));
        for node in self.nodes.values() {
            node.cluster.set(ClusterId(7));
            node.links.add_peers(&self.peers(node.id));
        }
        let node = self.start_node(id, listener, Some(first)).await;
        self.nodes.insert(id, node);
    }

    fn peers(&self, id: NodeId) -> BTreeMap<NodeId, String> {
        let others = self.addresses.iter().filter(|(other, _)| **other != id);
        others.map(|(other, address)| (*other, address.to_string())).collect()
    }

    async fn start_node(
        &self,
        id: NodeId,
        listener: Listener,
        first: Option<ReplicaNumber>,
    ) -> Node {
        static BOOTS: AtomicU64 = AtomicU64::new(1);
        let boot = BootNumber(BOOTS.fetch_add(1, Ordering::Relaxed));
        let incarnation = Incarnation(u64::from(id.0));
        let dir = self.dirs.get(&id).unwrap().path();
        let database = Database::open(dir, Options::new(id, incarnation)).unwrap();
        let inbox = Inbox::new();
        let cluster = ClusterCell::new(self.id, Epoch::default());
        let config = LinkConfig {
            me: id,
            boot,
            former_boots: (1..boot.0).map(BootNumber).collect(),
            incarnation,
            address: String::new(),
            peers: self.peers(id),
            secret: ClusterSecret::new(b"the secret of the tests").unwrap(),
            tls: None,
            cluster: cluster.clone(),
            machine: MachineCell::default(),
            lane_bytes: 64 << 20,
        };
        let links = Links::new(config, Arc::new(Handler(inbox.clone())));
        links.open();
        let (stop, stopped) = oneshot::channel::<()>();
        let (routes, door) = (Routes::new(links.service()), links.door());
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            listener.serve(routes, door, stopped).await.unwrap();
        });
        let over = Arc::clone(&self.over);
        let recorder = Arc::new(Recorder::default());
        let sinks = Sinks {
            queues: Arc::clone(&recorder) as _,
            catalog: Arc::clone(&recorder) as _,
            copy: Arc::default(),
            fatal: Arc::new(move |group, reason| {
                if over.load(Ordering::Acquire) {
                    return;
                }
                // Written past the test runner's capture, which an abort would lose.
                let _ = writeln!(std::io::stderr().lock(), "group {group}: {reason}");
                std::process::abort();
            }),
        };
        let mut settings = Settings::new(id, self.addresses.keys().copied());
        settings.queue_groups = 3;
        settings.first = first;
        (self.tune)(&mut settings);
        let groups = Groups::start(settings, &database, links.clone(), &inbox, sinks).await;
        let groups = groups.unwrap();
        Node { id, groups, links, recorder, cluster, database, stop, serving }
    }

    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(&id).unwrap()
    }

    /// Ends a node's process: its port and all its connections close.
    pub async fn die(&mut self, id: NodeId) -> Dead {
        let node = self.nodes.remove(&id).unwrap();
        node.links.stop();
        let _ = node.stop.send(());
        timeout(DEADLINE, node.serving).await.unwrap().unwrap();
        Dead { id, groups: node.groups, links: node.links, database: node.database }
    }

    /// Releases the resources of a dead process, as the system would.
    pub async fn bury(&self, dead: Dead) {
        let Dead { id, groups, links, database } = dead;
        groups.stop().await;
        database.close();
        drop((groups, links, database));
        // The last tasks that hold the database end by themselves.
        let dir = self.dirs.get(&id).unwrap().path();
        let options = Options::new(id, Incarnation(u64::from(id.0)));
        let open = || Database::open(dir, options.clone()).ok();
        until("the directory is released", open).await.close();
    }

    pub async fn kill(&mut self, id: NodeId) {
        let dead = self.die(id).await;
        self.bury(dead).await;
    }

    pub async fn restart(&mut self, id: NodeId) {
        let address = *self.addresses.get(&id).unwrap();
        // The former process releases the directory when its last task ends.
        let listener = until("the port is free", || Listener::bind(address).ok()).await;
        let node = self.start_node(id, listener, None).await;
        self.nodes.insert(id, node);
    }

    /// Ends a node's process and starts the next one.
    pub async fn restart_now(&mut self, id: NodeId) {
        self.kill(id).await;
        self.restart(id).await;
    }

    pub async fn stop(mut self) {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.kill(id).await;
        }
    }

    /// The running replicas of a group.
    pub fn replicas(&self, group: GroupId) -> Vec<Arc<Group>> {
        self.nodes.values().map(|node| node.group(group)).collect()
    }

    /// The node that leads a group and performs its effects.
    pub fn leader(&self, group: GroupId) -> Option<&Node> {
        let leads = |node: &Node| node.groups.group(group).is_some_and(|it| it.is_leading());
        self.nodes.values().find(|node| leads(node))
    }

    pub async fn leader_of(&self, group: GroupId) -> &Node {
        until(&format!("group {group} has a leader"), || self.leader(group)).await
    }

    /// Waits until every group is led by the node that prefers it.
    pub async fn balanced(&self) {
        for group in (0..=3).map(GroupId) {
            let preferred = NodeId(group.0 % 3 + 1);
            let what = format!("group {group} is led by node {preferred}");
            until(&what, || self.node(preferred).group(group).is_leading().then_some(())).await;
        }
    }

    /// Waits until all replicas of a group have applied the same, and compares them.
    pub async fn equal(&self, group: GroupId) -> u64 {
        until(&format!("the replicas of group {group} are equal"), || {
            let mut digests = self.nodes.values().map(|node| node.group(group).digest());
            let first = digests.next()?;
            digests.all(|digest| digest == first).then_some(first.1)
        })
        .await
    }
}

impl Node {
    /// Hands a group over, as soon as the other node is known to have caught up.
    pub async fn transfer(&self, group: GroupId, to: NodeId) -> Result<(), TransferError> {
        let began = Instant::now();
        loop {
            let moved = self.groups.transfer(group, to, DEADLINE).await;
            if moved != Err(TransferError::NotCaughtUp) || began.elapsed() > DEADLINE {
                return moved;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub fn group(&self, id: GroupId) -> Arc<Group> {
        self.groups.group(id).unwrap()
    }

    /// Creates a queue, as the first command of a session of its own.
    pub async fn create(&self, group: GroupId, session: SessionId) -> QueueId {
        let name = ShortString::try_from(format!("q{}", session.start)).unwrap();
        let vhost = VhostName::from(ShortString::from_static("/"));
        let command = Command::CreateQueue {
            name: ResourceName { vhost, name },
            config: QueueConfig::plain(QueueType::Quorum),
            bound: None,
        };
        let entry = Entry { batches: vec![batch(session, 1, vec![command])], ..Entry::default() };
        let commands = CommandEntry { command: codec::queue::encode_entry(&entry), bodies: vec![] };
        let id = timeout(DEADLINE, self.group(group).write(commands)).await.unwrap().unwrap();
        QueueId { home: Home::Group(group), index: id.index.0, position: 0 }
    }

    /// Ready messages of a queue, as this node's replica has it.
    pub fn ready(&self, queue: QueueId) -> Option<u64> {
        let Home::Group(group) = queue.home else { panic!("not replicated") };
        self.groups.read(group, |machine| machine.queue(queue).map(|view| view.ready))?
    }
}

fn batch(session: SessionId, first: u64, commands: Vec<Command>) -> Batch {
    let origin = Origin::Session { session, first: Sequence(first), mark: Sequence(first) };
    Batch { origin, commands }
}

pub fn session(node: u16, start: u64) -> SessionId {
    SessionId { node: NodeId(node), start: StartNumber(start) }
}

/// An entry that enqueues messages, as command `number` of the session.
pub fn enqueue(
    queue: QueueId,
    session: SessionId,
    number: u64,
    count: u32,
    body_bytes: usize,
) -> CommandEntry {
    let body = Bytes::from(vec![number as u8; body_bytes]);
    let head = MessageHead { body_bytes: body_bytes as u32, expiration_ms: None };
    let message = Message { body, ..Message::default() };
    let bytes = codec::message::encode(&message);
    let entry = Entry {
        stamp: Stamp::default(),
        runs: vec![Run { queue, level: Level(0), messages: vec![head; count as usize] }],
        batches: vec![batch(session, number, vec![Command::Enqueue { run: 0, first: 0, count }])],
    };
    let bodies = vec![RunBodies { messages: vec![Some(bytes); count as usize] }];
    CommandEntry { command: codec::queue::encode_entry(&entry), bodies }
}

/// Writes an entry through the present leader, repeatedly until it is applied: a repeat is dropped
/// by its session (SES 3). Leaderships may move on a busy machine.
pub async fn write(groups: &[Arc<Group>], entry: &CommandEntry) {
    let started = Instant::now();
    loop {
        for group in groups {
            if group.write(entry.clone()).await.is_ok() {
                return;
            }
        }
        assert!(started.elapsed() < DEADLINE, "an entry is not taken");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a condition: checks it again and again until it returns something.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
