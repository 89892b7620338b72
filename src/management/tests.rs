//! The HTTP pages over real sockets, with simulated views behind them.

#![expect(clippy::unwrap_used, reason = "tests")]

use crate::liveness::WEDGED_AFTER;
use crate::{
    Naming, NodeFacts, Pulses, Rates, Sampling, Source, health_pages, metric_pages, serve,
};
use quorate_broker::view::{
    BindingView, ChannelView, ClusterView, ConnectionView, ConsumerView, ExchangeView, Figures,
    GroupAudit, MetricsView, NodeView, QueueView, Readiness, SourceAttempts,
};
use quorate_broker::{
    Amount, ChangeError, Closing, DrainError, ForgetError, Left, MemberError, Rebalanced,
};
use quorate_catalog::{
    AccessCommand, PermissionRecord, TopicPermissionRecord, UserRecord, VhostRecord,
};
use quorate_types::{
    ConsumerId, Exception, GroupId, MachineVersion, NodeId, ResourceName, ShortString, VhostName,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A node with only a readiness, and the duration of a sync.
#[derive(Clone, Default)]
pub(crate) struct Quiet(Arc<Mutex<Readiness>>, Arc<Mutex<Duration>>);

impl Source for Quiet {
    fn queues(&self, _vhost: &VhostName) -> Vec<QueueView> {
        Vec::new()
    }

    fn exchanges(&self, _vhost: &VhostName) -> Vec<ExchangeView> {
        Vec::new()
    }

    fn bindings(&self, _vhost: &VhostName) -> Vec<BindingView> {
        Vec::new()
    }

    fn connections(&self) -> Vec<ConnectionView> {
        Vec::new()
    }

    fn channels(&self) -> Vec<ChannelView> {
        Vec::new()
    }

    fn consumers(&self, _vhost: &VhostName) -> Vec<ConsumerView> {
        Vec::new()
    }

    fn single_active(&self, _vhost: &VhostName) -> Vec<(ConsumerId, bool)> {
        Vec::new()
    }

    fn cluster(&self) -> ClusterView {
        ClusterView {
            cluster: None,
            catalog_leader: None,
            members: Vec::new(),
            machine: MachineVersion::FIRST,
            placement: Vec::new(),
        }
    }

    fn node_status(&self) -> NodeView {
        NodeView::default()
    }

    fn audit(&self) -> Vec<GroupAudit> {
        Vec::new()
    }

    fn metrics(&self) -> MetricsView {
        MetricsView { received: 42, ..MetricsView::default() }
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
        self.0.lock().unwrap().clone()
    }

    fn sync_under_way(&self) -> Duration {
        *self.1.lock().unwrap()
    }

    async fn delete_queue(&self, _: &ResourceName, _: bool, _: bool) -> Result<u64, Exception> {
        Ok(0)
    }

    async fn purge_queue(&self, _: &ResourceName) -> Result<u64, Exception> {
        Ok(0)
    }

    async fn change_access(&self, command: AccessCommand) -> Result<(), ChangeError> {
        drop(command);
        Ok(())
    }

    fn vhosts(&self) -> Vec<VhostRecord> {
        Vec::new()
    }

    fn users(&self) -> Vec<UserRecord> {
        Vec::new()
    }

    fn permissions(&self) -> Vec<PermissionRecord> {
        Vec::new()
    }

    fn topic_permissions(&self) -> Vec<TopicPermissionRecord> {
        Vec::new()
    }

    fn is_password(&self, _: &ShortString, _: &[u8]) -> bool {
        false
    }

    fn close_connections(&self, _: &Closing, _: usize, _: &str) -> usize {
        0
    }

    fn set_memory_high_watermark(&self, _: Amount) {}

    fn set_disk_free_limit(&self, _: Amount) {}

    async fn drain(&self, _: Duration) -> Result<Left, DrainError> {
        Ok(Left::default())
    }

    async fn revive(&self) {}

    async fn forget_member(&self, node: NodeId, _: bool) -> Result<(), ForgetError> {
        Err(ForgetError::NotMember(node))
    }

    async fn replace_member(&self, _: NodeId) -> Result<(), MemberError> {
        Ok(())
    }

    async fn rebalance(&self) -> Rebalanced {
        Rebalanced::default()
    }
}

/// The facts of node 1.
pub(crate) fn facts() -> NodeFacts {
    NodeFacts {
        id: NodeId(1),
        name: "rabbit1@host".to_owned(),
        naming: Naming::RabbitMq,
        product: "RabbitMQ".to_owned(),
        product_version: "4.3.5".to_owned(),
        version: "0.1.0".to_owned(),
        data_dir: String::new(),
        config_file: String::new(),
        listeners: Vec::new(),
        certificates: Vec::new(),
        started: Instant::now(),
    }
}

/// Status code and body of a page.
async fn get(at: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split_whitespace().nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn a_node_is_ready_with_a_lease_and_a_leader_in_every_group() {
    let node = Quiet::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let metrics = metric_pages(node.clone(), Arc::new(facts()), Rates::new(Sampling::default()));
    let router = health_pages(node.clone(), Pulses::default()).merge(metrics);
    let serving = tokio::spawn(serve(listener, None, router, async move {
        let _ = stopped.await;
    }));

    assert_eq!(get(at, "/health/live").await, (200, "ok\n".to_owned()));
    let (code, why) = get(at, "/health/ready").await;
    assert_eq!(code, 503);
    assert_eq!(why, "the node is still starting; no routing lease from the catalog's leader\n");
    *node.0.lock().unwrap() = Readiness {
        entrance: None,
        catalog_lease: true,
        serving: true,
        leaderless: vec![GroupId(3), GroupId(7)],
        behind: vec![GroupId(1)],
        definitions: Some("definitions of x.json: not imported yet".to_owned()),
        drained: false,
        ports_closed: false,
    };
    let why = "no leader in group 3, 7; the replica of group 1 is catching up; definitions of x.json: not imported yet\n";
    assert_eq!(get(at, "/health/ready").await, (503, why.to_owned()));
    node.0.lock().unwrap().leaderless.clear();
    node.0.lock().unwrap().behind.clear();
    let why = "definitions of x.json: not imported yet\n";
    assert_eq!(get(at, "/health/ready").await, (503, why.to_owned()));
    node.0.lock().unwrap().definitions = None;
    assert_eq!(get(at, "/health/ready").await, (200, "ok\n".to_owned()));
    node.0.lock().unwrap().drained = true;
    node.0.lock().unwrap().ports_closed = true;
    assert_eq!(get(at, "/health/ready").await, (503, "the node is drained\n".to_owned()));
    node.0.lock().unwrap().drained = false;
    let why = "the ports of clients are closed\n";
    assert_eq!(get(at, "/health/ready").await, (503, why.to_owned()));

    *node.1.lock().unwrap() = WEDGED_AFTER - Duration::from_millis(1);
    assert_eq!(get(at, "/health/live").await, (200, "ok\n".to_owned()));
    *node.1.lock().unwrap() = WEDGED_AFTER;
    let hung = "a disk sync has not finished for 60 s\n".to_owned();
    assert_eq!(get(at, "/health/live").await, (503, hung));
    *node.1.lock().unwrap() = Duration::ZERO;
    assert_eq!(get(at, "/health/live").await, (200, "ok\n".to_owned()));

    let (code, page) = get(at, "/metrics").await;
    assert_eq!(code, 200);
    let line = "rabbitmq_global_messages_received_total{protocol=\"amqp091\"} 42\n";
    assert!(page.contains(line), "{page}");
    assert_eq!(get(at, "/nothing").await.0, 404);

    stop.send(()).unwrap();
    serving.await.unwrap();
}
