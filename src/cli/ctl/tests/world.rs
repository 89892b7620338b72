//! Nodes with simulated views behind real admin services.

use super::{facts::facts, process::OneProcess};
use crate::cli::secret;
use quorate_broker::view::*;
use quorate_broker::{
    Amount, ChangeError, Closing, DrainError, ForgetError, Kept, Left, MemberError, Rebalanced,
    SocketReport, TransferError,
};
use quorate_catalog::{
    AccessCommand, Catalog, CatalogCommand, CatalogEntry, CatalogOutput, CatalogReply,
    ConnectionId, ExchangeType, MemberDenial, MemberState, PermissionRecord, TopicPermissionRecord,
    UserRecord, VhostRecord,
};
use quorate_management::wire::{
    access_server::AccessServer, admin_server::AdminServer, events_server::EventsServer,
    process_admin_server::ProcessAdminServer,
};
use quorate_management::{
    AccessService, AdminService, EventService, Peers, ProcessService, Pulses, Source,
};
use quorate_rpc::{Connector, Door};
use quorate_tls::Stream;
use quorate_types::*;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

/// One node's views.
#[derive(Clone)]
pub(super) struct World {
    id: u16,
    members: Vec<String>,
    spoiled: Arc<AtomicBool>,
    unready: Arc<AtomicBool>,
    drained: Arc<AtomicBool>,
    hung: Arc<AtomicBool>,
    catalog: Arc<Mutex<Catalog>>,
    forgotten: Arc<Mutex<Option<NodeId>>>,
}

/// Nodes that run until this value is dropped.
pub(super) struct Cluster {
    pub(super) addresses: Vec<String>,
    pub(super) worlds: Vec<World>,
    pub(super) secret_file: tempfile::NamedTempFile,
    _runtime: tokio::runtime::Runtime,
}

pub(super) fn secret_file(secret: &str) -> tempfile::NamedTempFile {
    // The temporary file has mode 600.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(secret.replace(' ', "-").as_bytes()).unwrap();
    file
}

/// Starts `nodes` nodes on free ports.
pub(super) fn start(nodes: u16) -> Cluster {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let secret_file = secret_file("the secret of this test");
    let secret = secret::find(None, Some(secret_file.path()), None).unwrap();
    let secret = secret.cluster_secret().unwrap();
    let listeners: Vec<TcpListener> =
        (0..nodes).map(|_| runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap()).collect();
    let addresses: Vec<String> =
        listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    let mut worlds = Vec::new();
    let (catalog, forgotten) = (Arc::default(), Arc::default());
    for (id, listener) in (1..).zip(listeners) {
        let world = World {
            id,
            members: addresses.clone(),
            spoiled: Arc::default(),
            unready: Arc::default(),
            drained: Arc::default(),
            hung: Arc::default(),
            catalog: Arc::clone(&catalog),
            forgotten: Arc::clone(&forgotten),
        };
        worlds.push(world.clone());
        let peers = Peers::new(NodeId(id), Connector::new(secret.clone(), None));
        let access = AccessService::new(world.clone(), peers.clone());
        let access = AccessServer::new(access);
        let process = ProcessService::new(Arc::new(OneProcess(id)));
        let process = ProcessAdminServer::new(process);
        let service = AdminService::new(world, Arc::new(facts(id)), Pulses::default(), peers);
        let service = AdminServer::new(service);
        let door = Door::new(secret.clone(), None, || true);
        let (serving, served) = mpsc::channel();
        runtime.spawn(async move {
            serving.send(()).unwrap();
            let (let_in, streams) = tokio::sync::mpsc::channel(1);
            tokio::spawn(door.accept_all(listener, let_in));
            let incoming = ReceiverStream::new(streams).map(|(stream, _)| match stream {
                Stream::Plain(stream) => Ok(stream),
                Stream::Tls(_) => Err(std::io::Error::other("TLS in a world without it")),
            });
            tonic::transport::Server::builder()
                .add_service(service)
                .add_service(access)
                .add_service(process)
                .add_service(EventsServer::new(EventService))
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        });
        served.recv().unwrap();
    }
    Cluster { addresses, worlds, secret_file, _runtime: runtime }
}

fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

fn named(vhost: &str, name: &str) -> ResourceName {
    ResourceName { vhost: short(vhost), name: short(name) }
}

impl World {
    pub(super) fn spoil_digest(&mut self) {
        self.spoiled.store(true, Relaxed);
    }

    pub(super) fn unready(&mut self) {
        self.unready.store(true, Relaxed);
    }

    pub(super) fn hang_disk(&mut self) {
        self.hung.store(true, Relaxed);
    }

    fn connection_id(&self) -> ConnectionId {
        let session = SessionId { node: NodeId(self.id), start: StartNumber(40) };
        ConnectionId { session, number: 3 }
    }

    fn consumer_id(&self, node: u16) -> ConsumerId {
        let session = SessionId { node: NodeId(node), start: StartNumber(40) };
        ConsumerId { session, number: 9 }
    }

    /// A queue that node `leader` leads.
    fn queue(&self, name: &str, index: u64, leader: u16, ready: u64) -> QueueView {
        let members: Vec<NodeId> = (1..).map(NodeId).take(self.members.len()).collect();
        let counts =
            QueueCounts { ready, unacknowledged: 2, consumers: 1, ..QueueCounts::default() };
        QueueView {
            id: QueueId { home: Home::Group(GroupId(leader)), index, position: 0 },
            name: named("/", name),
            queue_type: QueueType::Quorum,
            durable: true,
            auto_delete: false,
            owner: None,
            arguments: FieldTable(vec![
                (short("x-queue-type"), FieldValue::text("quorum")),
                (short("x-max-length"), FieldValue::I64(10)),
            ]),
            leader: Some(NodeId(leader)),
            members: members.clone(),
            online: members,
            policies: PolicyView::default(),
            counts: (leader == self.id).then_some(counts),
        }
    }
}

impl Source for World {
    fn queues(&self, vhost: &VhostName) -> Vec<QueueView> {
        if vhost.as_str() != "/" {
            return Vec::new();
        }
        let mut queues = vec![self.queue("orders", 1, 1, 5), self.queue("billing", 2, 2, 7)];
        // Node 3 leads it, but does not exist.
        queues.push(self.queue("lost", 3, 3, 0));
        queues
    }

    fn exchanges(&self, vhost: &VhostName) -> Vec<ExchangeView> {
        let exchange = |name: &str, kind| ExchangeView {
            name: named(vhost.as_str(), name),
            kind,
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: FieldTable::default(),
            policies: PolicyView::default(),
        };
        vec![exchange("x", ExchangeType::Topic), exchange("", ExchangeType::Direct)]
    }

    fn bindings(&self, vhost: &VhostName) -> Vec<BindingView> {
        vec![BindingView {
            source: named(vhost.as_str(), "x"),
            destination: short("orders"),
            to_queue: true,
            key: short("a.#"),
            arguments: FieldTable(vec![(short("k"), FieldValue::I64(1))]),
        }]
    }

    fn connections(&self) -> Vec<ConnectionView> {
        vec![ConnectionView {
            id: self.connection_id(),
            user: short("guest"),
            vhost: short("/"),
            peer: "127.0.0.1:40318".parse().unwrap(),
            local: "127.0.0.1:5672".parse().unwrap(),
            state: ConnectionState::Running,
            channels: 1,
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat_s: 60,
            connected_at_ms: 1_795_234_146_462,
            client_properties: FieldTable(vec![(short("product"), FieldValue::text("lapin"))]),
            mechanism: "PLAIN",
            tls: None,
            socket: SocketReport {
                received_bytes: 10,
                sent_bytes: 20,
                reads: 3,
                writes: 4,
                pending_bytes: 5,
            },
        }]
    }

    fn channels(&self) -> Vec<ChannelView> {
        vec![ChannelView {
            connection: self.connection_id(),
            peer: "127.0.0.1:40318".parse().unwrap(),
            local: "127.0.0.1:5672".parse().unwrap(),
            number: 1,
            user: short("guest"),
            vhost: short("/"),
            confirm: true,
            consumers: 1,
            unacknowledged: 2,
            unconfirmed: 0,
            transactional: false,
            messages_uncommitted: 3,
            acks_uncommitted: 4,
            prefetch: 10,
            traffic: ChannelTraffic::default(),
        }]
    }

    fn consumers(&self, vhost: &VhostName) -> Vec<ConsumerView> {
        vec![ConsumerView {
            id: self.consumer_id(self.id),
            queue: named(vhost.as_str(), "orders"),
            connection: self.connection_id(),
            channel: 1,
            tag: short(&format!("tag-{}", self.id)),
            ack_required: true,
            prefetch: 10,
            exclusive: self.id == 1,
            arguments: FieldTable::default(),
            timeout_ms: 1_800_000,
        }]
    }

    fn single_active(&self, _vhost: &VhostName) -> Vec<(ConsumerId, bool)> {
        // Of the consumers of a queue that node 1 leads, the one on node 2 is active.
        let turns = [(self.consumer_id(1), false), (self.consumer_id(2), true)];
        if self.id == 1 && self.members.len() > 1 { turns.to_vec() } else { Vec::new() }
    }

    fn cluster(&self) -> ClusterView {
        let forgotten = *self.forgotten.lock().unwrap();
        let member = |(id, address): (u16, &String)| MemberView {
            id: NodeId(id),
            state: MemberState::Member,
            zone: if id == 1 { "north".to_owned() } else { String::new() },
            rpc_address: address.clone(),
            amqp_address: "127.0.0.1:5672".to_owned(),
            running: true,
            replicas: 3,
            leads: if id == 1 { 2 } else { 1 },
        };
        let members = (1..).zip(&self.members).map(member);
        let members: Vec<MemberView> = members.filter(|it| Some(it.id) != forgotten).collect();
        let nodes: Vec<NodeId> = members.iter().map(|member| member.id).collect();
        let placement = |group| PlacementView {
            group: GroupId(group),
            nodes: nodes.clone(),
            is_led: true,
            former: Vec::new(),
            lost: Vec::new(),
            superseded: Vec::new(),
        };
        ClusterView {
            cluster: Some(ClusterId(0xc1)),
            catalog_leader: Some(NodeId(1)),
            placement: (0..3).map(placement).collect(),
            members,
            machine: MachineVersion::NEWEST,
        }
    }

    fn node_status(&self) -> NodeView {
        let group = |group, leader| GroupView {
            group: GroupId(group),
            role: if leader == self.id { Role::Leader } else { Role::Follower },
            leader: Some(NodeId(leader)),
            term: Term(2),
            last: LogIndex(20),
            applied: LogIndex(19),
            purged: LogIndex(5),
            log_bytes: 4096,
            rounds: 0,
            rounds_us: 0,
        };
        NodeView {
            machine_newest: MachineVersion::NEWEST,
            id: NodeId(self.id),
            start: Some(StartNumber(40)),
            alarms: if self.id == 2 { vec![Alarm::Disk] } else { Vec::new() },
            groups: vec![group(0, 1), group(1, 1), group(2, 2)],
            connections: 1,
            queues: 3,
            vhosts: 1,
            memory_limit_bytes: 4_000_000_000,
            disk_free_bytes: 78_992_600_000,
            disk_free_limit_bytes: 1_000_000_000,
            message_sizes: HistogramView { counts: vec![6, 1, 1], ..HistogramView::default() },
            memory: MemoryUse { exclusive: 4_000_000, ..MemoryUse::default() },
        }
    }

    fn audit(&self) -> Vec<GroupAudit> {
        let spoiled = u64::from(self.spoiled.load(Relaxed));
        let digest = |group: u16, index: u64, digest| GroupAudit {
            group: GroupId(group),
            node: NodeId(self.id),
            index: LogIndex(index),
            digest,
        };
        // The nodes have digests at different indexes, one of which they share.
        let ahead = u64::from(self.id);
        vec![digest(0, 19, 0xabc), digest(1, 30, 0xdef + spoiled), digest(1, 30 + ahead, ahead)]
    }

    fn metrics(&self) -> MetricsView {
        MetricsView { node: self.node_status(), ..MetricsView::default() }
    }

    fn cluster_name(&self) -> Option<String> {
        None
    }

    fn login_sources(&self) -> Vec<SourceAttempts> {
        Vec::new()
    }

    fn figures(&self) -> Figures {
        Figures::default()
    }

    fn readiness(&self) -> Readiness {
        let unready = self.unready.load(Relaxed);
        Readiness {
            entrance: None,
            catalog_lease: !unready,
            serving: true,
            leaderless: if unready { vec![GroupId(3), GroupId(4)] } else { Vec::new() },
            behind: Vec::new(),
            definitions: None,
            drained: self.drained.load(Relaxed),
            ports_closed: self.drained.load(Relaxed),
        }
    }

    fn sync_under_way(&self) -> Duration {
        Duration::from_secs(if self.hung.load(Relaxed) { 75 } else { 0 })
    }

    async fn delete_queue(
        &self,
        queue: &ResourceName,
        _if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, Exception> {
        match queue.name.as_str() {
            "orders" if if_empty => Err(Exception::new(
                ReplyCode::PreconditionFailed,
                format!("queue {queue} not empty"),
            )),
            "orders" => Ok(5),
            "busy" => {
                Err(Exception::new(ReplyCode::PreconditionFailed, format!("queue {queue} in use")))
            }
            _ => Err(Exception::new(ReplyCode::NotFound, format!("no queue {queue}"))),
        }
    }

    async fn purge_queue(&self, queue: &ResourceName) -> Result<u64, Exception> {
        self.delete_queue(queue, false, false).await
    }

    async fn change_access(&self, command: AccessCommand) -> Result<(), ChangeError> {
        let mut catalog = self.catalog.lock().unwrap();
        if let Some(denial) = catalog.refusal_of(&command) {
            return Err(denial.into());
        }
        let commands = vec![CatalogCommand::Access(command)];
        let entry = CatalogEntry { stamp: Stamp::default(), commands };
        let mut output = CatalogOutput::default();
        let next = CatalogIndex(catalog.version().0 + 1);
        catalog.apply(next, &entry, &mut output);
        if let Some(CatalogReply::Denied(denial)) = output.replies.pop() {
            return Err(denial.into());
        }
        Ok(())
    }

    fn vhosts(&self) -> Vec<VhostRecord> {
        self.catalog.lock().unwrap().vhosts().cloned().collect()
    }

    fn users(&self) -> Vec<UserRecord> {
        self.catalog.lock().unwrap().users().cloned().collect()
    }

    fn permissions(&self) -> Vec<PermissionRecord> {
        self.catalog.lock().unwrap().permissions().collect()
    }

    fn topic_permissions(&self) -> Vec<TopicPermissionRecord> {
        self.catalog.lock().unwrap().topic_permissions().collect()
    }

    fn is_password(&self, user: &ShortString, password: &[u8]) -> bool {
        self.catalog.lock().unwrap().is_password(user, password)
    }

    fn close_connections(&self, which: &Closing, most: usize, reason: &str) -> usize {
        assert_eq!(reason, "why");
        match which {
            Closing::One(id) => usize::from(*id == self.connection_id()),
            Closing::OfVhost(vhost) => usize::from(vhost.as_str() == "/").min(most),
            Closing::All => 1,
        }
    }

    fn set_memory_high_watermark(&self, amount: Amount) {
        assert_eq!(amount, Amount::Bytes(2_000_000_000));
    }

    fn set_disk_free_limit(&self, amount: Amount) {
        assert_eq!(amount, Amount::OfMemory(1.5));
    }

    /// With less than a second, something is left.
    async fn drain(&self, within: Duration) -> Result<Left, DrainError> {
        if self.members.len() == 1 {
            return Err(DrainError::Alone);
        }
        self.drained.store(true, Relaxed);
        let left = Left { groups: vec![GroupId(0), GroupId(1)], connections: 3 };
        Ok(if within < Duration::from_secs(1) { left } else { Left::default() })
    }

    async fn revive(&self) {
        self.drained.store(false, Relaxed);
    }

    /// Every node runs.
    async fn forget_member(&self, node: NodeId, running: bool) -> Result<(), ForgetError> {
        if node.0 == self.id {
            return Err(ForgetError::Itself(node));
        }
        if usize::from(node.0) > self.members.len() {
            return Err(ForgetError::NotMember(node));
        }
        if !running {
            return Err(ForgetError::Runs(node));
        }
        *self.forgotten.lock().unwrap() = Some(node);
        Ok(())
    }

    async fn replace_member(&self, node: NodeId) -> Result<(), MemberError> {
        if node.0 == 2 { Ok(()) } else { Err(MemberError::Denied(MemberDenial::NoMember { node })) }
    }

    async fn rebalance(&self) -> Rebalanced {
        let why = TransferError::Declined;
        let kept = Kept { group: GroupId(2), preferred: NodeId(1), why };
        match self.id {
            1 => Rebalanced { moved: vec![GroupId(1)], kept: Vec::new() },
            2 if self.unready.load(Relaxed) => Rebalanced { moved: Vec::new(), kept: vec![kept] },
            _ => Rebalanced::default(),
        }
    }
}
