//! Groups whose replicas come and go, as the catalog places them (MEM 7, 8, 9).

use crate::harness::{Cluster, Notice, enqueue, session, until, write};
use quorate_catalog::{CatalogCommand, CatalogEntry, ClusterShape, MemberCommand, Newcomer};
use quorate_storage::{CommandEntry, codec::catalog};
use quorate_types::{
    BootNumber, ClusterId, GroupId, Incarnation, MachineVersion, NodeId, QueueId, ReplicaNumber,
    SessionId,
};

const GROUP: GroupId = GroupId(1);

/// A cluster whose catalog has members and placements.
async fn placed() -> Cluster {
    let cluster = Cluster::start(|_| {}).await;
    cluster.balanced().await;
    let shape = ClusterShape { cluster: ClusterId(7), queue_groups: 3 };
    let started = |node: u16| CatalogCommand::NodeStarted {
        node: NodeId(node),
        incarnation: Incarnation(u64::from(node)),
        boot: BootNumber(u64::from(node)),
        rpc_address: format!("host{node}:7672"),
        amqp_address: String::new(),
    };
    let mut commands = vec![CatalogCommand::Form(shape)];
    commands.extend((1..=3).map(started));
    commands.push(CatalogCommand::RaiseMachine(MachineVersion::MEMBERS));
    change(&cluster, commands).await;
    cluster
}

async fn change(cluster: &Cluster, commands: Vec<CatalogCommand>) {
    let entry = CatalogEntry { commands, ..CatalogEntry::default() };
    let entry = CommandEntry { command: catalog::encode_entry(&entry), bodies: Vec::new() };
    write(&cluster.replicas(GroupId::CATALOG), &entry).await;
}

/// Places the group on these nodes, and waits until its leader says that this is reached.
async fn place(cluster: &Cluster, number: u64, nodes: &[u16]) {
    let nodes = nodes.iter().copied().map(NodeId).collect();
    let command = MemberCommand::Place { group: GROUP, number, nodes };
    change(cluster, vec![CatalogCommand::Members(command)]).await;
    let said = Notice::Reached(GROUP, number);
    let is_reached = || cluster.nodes.values().any(|node| node.recorder.count(&said) > 0);
    until("the placement is reached", || is_reached().then_some(())).await;
    let command = MemberCommand::Reached { group: GROUP, number };
    change(cluster, vec![CatalogCommand::Members(command)]).await;
}

async fn enqueue_ten(cluster: &Cluster, queue: QueueId, session: SessionId, number: u64) {
    let nodes = cluster.nodes.values();
    let replicas: Vec<_> = nodes.filter_map(|node| node.groups.group(GROUP)).collect();
    write(&replicas, &enqueue(queue, session, number, 10, 1_000)).await;
}

async fn is_gone(cluster: &Cluster, node: u16) {
    let gone = || cluster.node(NodeId(node)).groups.group(GROUP).is_none();
    until("the replica is removed", || gone().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_07_mem_09_a_group_leaves_a_node_and_comes_back_as_a_new_replica() {
    let mut cluster = placed().await;
    let session = session(1, 5);
    let queue = cluster.leader_of(GROUP).await.create(GROUP, session).await;
    enqueue_ten(&cluster, queue, session, 2).await;

    place(&cluster, 2, &[1, 2]).await;
    is_gone(&cluster, 3).await;
    enqueue_ten(&cluster, queue, session, 3).await;
    // What was removed does not come back by a restart.
    cluster.restart_now(NodeId(3)).await;
    is_gone(&cluster, 3).await;

    place(&cluster, 3, &[1, 2, 3]).await;
    cluster.equal(GROUP).await;
    assert_eq!(cluster.node(NodeId(3)).ready(queue), Some(20));
    // The new replica votes: with it the group lives on without another one, also after a restart.
    cluster.restart_now(NodeId(3)).await;
    cluster.kill(NodeId(1)).await;
    enqueue_ten(&cluster, queue, session, 4).await;
    until("all is there", || (cluster.node(NodeId(3)).ready(queue) == Some(30)).then_some(()))
        .await;
    cluster.equal(GROUP).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_08_a_leader_that_loses_its_place_hands_the_group_over() {
    let cluster = placed().await;
    let session = session(1, 5);
    let leader = cluster.leader_of(GROUP).await;
    let former = leader.id;
    let queue = leader.create(GROUP, session).await;
    enqueue_ten(&cluster, queue, session, 2).await;

    let others: Vec<u16> = (1..=3).filter(|node| *node != former.0).collect();
    place(&cluster, 2, &others).await;
    is_gone(&cluster, former.0).await;
    enqueue_ten(&cluster, queue, session, 3).await;
    for node in others {
        let all = || (cluster.node(NodeId(node)).ready(queue) == Some(20)).then_some(());
        until("all is there", all).await;
    }
    cluster.stop().await;
}

/// The groups of which a node has a replica.
fn replicas_of(cluster: &Cluster, node: NodeId) -> Vec<GroupId> {
    cluster.node(node).groups.all().map(|group| group.id()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_03_a_directory_that_joined_begins_only_the_catalogs_replica() {
    let mut cluster = placed().await;
    let session = session(1, 5);
    let queue = cluster.leader_of(GROUP).await.create(GROUP, session).await;
    enqueue_ten(&cluster, queue, session, 2).await;
    let (node, incarnation) = (NodeId(4), Incarnation(4));
    let (address, zone) = ("host4:7672".to_owned(), String::new());
    let joins = MemberCommand::Join(Newcomer { node, incarnation, address, zone });
    change(&cluster, vec![CatalogCommand::Members(joins)]).await;

    cluster.join(node, ReplicaNumber(1)).await;
    assert_eq!(replicas_of(&cluster, node), [GroupId::CATALOG]);
    cluster.equal(GroupId::CATALOG).await;
    // Its directory says the same to the next process.
    cluster.restart_now(node).await;
    assert_eq!(replicas_of(&cluster, node), [GroupId::CATALOG]);
    cluster.equal(GroupId::CATALOG).await;

    let admitted = MemberCommand::Admit { node, incarnation };
    change(&cluster, vec![CatalogCommand::Members(admitted)]).await;
    place(&cluster, 2, &[1, 2, 4]).await;
    is_gone(&cluster, 3).await;
    let all = || (cluster.node(node).ready(queue) == Some(10)).then_some(());
    until("the new replica has all", all).await;
    cluster.stop().await;
}
