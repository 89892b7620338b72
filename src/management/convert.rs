//! Views into messages of the admin service.

use crate::facts::{Naming, NodeFacts, ProcessFacts};
use crate::memory_uses;
use crate::wire;
use bytes::{Bytes, BytesMut};
use quorate_broker::view::{
    Alarm, BindingView, ChannelView, ConnectionState, ConnectionView, ConsumerView, ExchangeView,
    GroupAudit, GroupView, MemberView, NodeView, PlacementView, QueueCounts, QueueView, Readiness,
    Role,
};
use quorate_broker::{ForgetError, Kept};
use quorate_catalog::{ConnectionId, MemberState, PolicyDefinition};
use quorate_types::{
    ConsumerId, Exception, FieldTable, GroupId, Home, NodeId, QueueId, ReplyCode, SessionId,
    ShortString,
};
use tonic::Status;

/// Bytes that most tables of arguments fit in.
const TABLE_BYTES: usize = 64;

fn table(table: &FieldTable) -> Bytes {
    let mut bytes = BytesMut::with_capacity(TABLE_BYTES);
    table.encode(&mut bytes);
    bytes.freeze()
}

fn name(name: Option<&ShortString>) -> String {
    name.map(ToString::to_string).unwrap_or_default()
}

/// A definition as JSON. Most queues have an empty one.
fn definition(definition: &PolicyDefinition) -> String {
    if definition.0.is_empty() { "{}".to_owned() } else { definition.to_json().to_string() }
}

fn node(node: Option<NodeId>) -> u32 {
    node.map_or(0, |node| u32::from(node.0))
}

fn nodes(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| u32::from(node.0)).collect()
}

pub(crate) fn queue_id(id: QueueId) -> wire::QueueId {
    let (group, node) = match id.home {
        Home::Group(group) => (u32::from(group.0), 0),
        Home::Node(node) => (0, u32::from(node.0)),
    };
    wire::QueueId { group, node, index: id.index, position: id.position }
}

pub(crate) fn connection_id(id: ConnectionId) -> wire::ConnectionId {
    wire::ConnectionId {
        node: u32::from(id.session.node.0),
        start: id.session.start.0,
        number: id.number,
    }
}

/// See [`wire::QueueCounts::consumer_capacity`].
pub(crate) fn consumer_capacity(consumers: u64, ready: u64) -> u64 {
    u64::from(consumers > 0 && ready == 0)
}

fn counts(counts: QueueCounts) -> wire::QueueCounts {
    wire::QueueCounts {
        ready: counts.ready,
        unacknowledged: counts.unacknowledged,
        delayed: counts.delayed,
        oldest_age: counts.oldest_age_ms,
        dead_letters_waiting: counts.dead_letters_waiting,
        consumers: counts.consumers,
        ready_bytes: counts.ready_bytes,
        unacknowledged_bytes: counts.unacknowledged_bytes,
        memory_bytes: counts.memory_bytes,
        configured_at: counts.configured_at.0,
    }
}

pub(crate) fn queue(view: QueueView) -> wire::Queue {
    wire::Queue {
        id: Some(queue_id(view.id)),
        vhost: view.name.vhost.to_string(),
        name: view.name.name.to_string(),
        queue_type: view.queue_type.name().to_owned(),
        durable: view.durable,
        auto_delete: view.auto_delete,
        owner: view.owner.map(connection_id),
        arguments: table(&view.arguments),
        leader: node(view.leader),
        members: nodes(&view.members),
        online: nodes(&view.online),
        counts: view.counts.map(counts),
        policy: name(view.policies.policy.as_ref()),
        operator_policy: name(view.policies.operator_policy.as_ref()),
        effective_policy_definition: definition(&view.policies.definition),
    }
}

/// The counts of a queue that this node leads.
pub(crate) fn counted(id: QueueId, leader: NodeId, of: QueueCounts) -> wire::Queue {
    let (leader, counts) = (node(Some(leader)), Some(counts(of)));
    wire::Queue { id: Some(queue_id(id)), leader, counts, ..Default::default() }
}

pub(crate) fn exchange(view: &ExchangeView) -> wire::Exchange {
    wire::Exchange {
        vhost: view.name.vhost.to_string(),
        name: view.name.name.to_string(),
        kind: view.kind.name().to_owned(),
        durable: view.durable,
        auto_delete: view.auto_delete,
        internal: view.internal,
        arguments: table(&view.arguments),
        policy: name(view.policies.policy.as_ref()),
    }
}

pub(crate) fn binding(view: &BindingView) -> wire::Binding {
    wire::Binding {
        source: view.source.name.to_string(),
        destination: view.destination.to_string(),
        to_queue: view.to_queue,
        key: view.key.to_string(),
        arguments: table(&view.arguments),
    }
}

/// The binding of a queue to the default exchange (CTL-10).
pub(crate) fn default_binding(queue: &wire::Queue) -> wire::Binding {
    wire::Binding {
        source: String::new(),
        destination: queue.name.clone(),
        to_queue: true,
        key: queue.name.clone(),
        arguments: table(&FieldTable::default()),
    }
}

pub(crate) fn connection(view: &ConnectionView) -> wire::Connection {
    let state = match view.state {
        ConnectionState::Running => "running",
        ConnectionState::Flow => "flow",
        ConnectionState::Blocked => "blocked",
        ConnectionState::Closing => "closing",
    };
    wire::Connection {
        id: Some(connection_id(view.id)),
        user: view.user.to_string(),
        vhost: view.vhost.to_string(),
        peer_host: view.peer.ip().to_string(),
        peer_port: u32::from(view.peer.port()),
        host: view.local.ip().to_string(),
        port: u32::from(view.local.port()),
        state: state.to_owned(),
        channels: view.channels,
        channel_max: u32::from(view.channel_max),
        frame_max: view.frame_max,
        heartbeat_s: u32::from(view.heartbeat_s),
        connected_at_ms: view.connected_at_ms,
        client_properties: table(&view.client_properties),
        received_bytes: view.socket.received_bytes,
        sent_bytes: view.socket.sent_bytes,
        mechanism: view.mechanism.to_owned(),
        reads: view.socket.reads,
        writes: view.socket.writes,
        pending_bytes: view.socket.pending_bytes,
        tls: view.tls.as_ref().map(|tls| wire::Tls {
            protocol: tls.protocol.to_owned(),
            key_exchange: tls.key_exchange.clone(),
            cipher: tls.cipher.clone(),
            peer_subject: tls.peer_subject.clone(),
            peer_issuer: tls.peer_issuer.clone(),
            peer_validity: tls.peer_validity.clone(),
        }),
    }
}

pub(crate) fn channel(view: &ChannelView) -> wire::Channel {
    wire::Channel {
        connection: Some(connection_id(view.connection)),
        number: u32::from(view.number),
        user: view.user.to_string(),
        vhost: view.vhost.to_string(),
        confirm: view.confirm,
        consumers: view.consumers,
        unacknowledged: view.unacknowledged,
        unconfirmed: view.unconfirmed,
        transactional: view.transactional,
        messages_uncommitted: view.messages_uncommitted,
        acks_uncommitted: view.acks_uncommitted,
        prefetch: u32::from(view.prefetch),
        peer_host: view.peer.ip().to_string(),
        peer_port: u32::from(view.peer.port()),
        host: view.local.ip().to_string(),
        port: u32::from(view.local.port()),
    }
}

pub(crate) fn consumer(view: &ConsumerView) -> wire::Consumer {
    wire::Consumer {
        queue: view.queue.name.to_string(),
        connection: Some(connection_id(view.connection)),
        channel: u32::from(view.channel),
        tag: view.tag.to_string(),
        ack_required: view.ack_required,
        prefetch: u32::from(view.prefetch),
        arguments: table(&view.arguments),
        id: Some(consumer_id(view.id)),
        activity_status: String::new(),
        exclusive: view.exclusive,
        timeout_ms: view.timeout_ms,
    }
}

fn consumer_id(id: ConsumerId) -> wire::ConsumerId {
    let SessionId { node, start } = id.session;
    wire::ConsumerId { node: u32::from(node.0), start: start.0, number: id.number }
}

pub(crate) fn turn(&(consumer, active): &(ConsumerId, bool)) -> wire::Turn {
    wire::Turn { consumer: Some(consumer_id(consumer)), active }
}

pub(crate) fn digest(audit: &GroupAudit) -> wire::Digest {
    wire::Digest {
        group: u32::from(audit.group.0),
        node: u32::from(audit.node.0),
        index: audit.index.0,
        digest: audit.digest,
    }
}

fn group(view: &GroupView) -> wire::Group {
    wire::Group {
        group: u32::from(view.group.0),
        role: role_name(view.role).to_owned(),
        leader: node(view.leader),
        term: view.term.0,
        last: view.last.0,
        applied: view.applied.0,
        purged: view.purged.0,
        log_bytes: view.log_bytes,
    }
}

pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
    }
}

/// A member; `status` is what it has answered, if it has.
/// The state of a member (MEM 1).
pub(crate) fn member_state(state: MemberState) -> &'static str {
    match state {
        MemberState::Joining => "joining",
        MemberState::Member => "member",
        MemberState::Draining => "draining",
        MemberState::Leaving => "leaving",
    }
}

pub(crate) fn member(
    view: &MemberView,
    naming: Naming,
    status: Option<wire::Node>,
) -> wire::Member {
    let name = match &status {
        Some(status) => status.name.clone(),
        None => naming.name(view.id, &view.rpc_address),
    };
    let state = member_state(view.state);
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    wire::Member {
        id: u32::from(view.id.0),
        name,
        rpc_address: view.rpc_address.clone(),
        amqp_address: view.amqp_address.clone(),
        running: status.is_some(),
        status,
        state: state.to_owned(),
        zone: view.zone.clone(),
        replicas: count(view.replicas),
        leads: count(view.leads),
    }
}

pub(crate) fn placement(view: &PlacementView) -> wire::Placement {
    wire::Placement {
        group: u32::from(view.group.0),
        nodes: nodes(&view.nodes),
        former: nodes(&view.former),
        lost: nodes(&view.lost),
        superseded: view
            .superseded
            .iter()
            .map(|it| wire::ReplicaSet { nodes: nodes(it) })
            .collect(),
    }
}

pub(crate) fn kept(leader: NodeId, kept: &Kept) -> wire::Kept {
    wire::Kept {
        group: u32::from(kept.group.0),
        leader: u32::from(leader.0),
        preferred: u32::from(kept.preferred.0),
        why: kept.why.to_string(),
    }
}

/// Why a node is not forgotten, as a gRPC status.
pub(crate) fn not_forgotten(error: &ForgetError) -> Status {
    let text = error.to_string();
    match error {
        ForgetError::NotMember(_) => Status::not_found(text),
        ForgetError::Itself(_)
        | ForgetError::Runs(_)
        | ForgetError::Needed { .. }
        | ForgetError::Denied(_)
        | ForgetError::TimedOut => Status::unavailable(text),
    }
}

/// The numbers of groups, separated by commas.
fn listed(groups: &[GroupId]) -> String {
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    groups.join(", ")
}

/// Why a node is not ready, as text; empty if it is ready.
pub(crate) fn not_ready(readiness: &Readiness) -> String {
    let mut reasons = Vec::new();
    if readiness.drained {
        reasons.push("the node is drained".to_owned());
    } else if readiness.ports_closed {
        reasons.push("the ports of clients are closed".to_owned());
    }
    match &readiness.entrance {
        Some(why) => reasons.push(format!("the node waits to enter the cluster: {why}")),
        None if !readiness.serving => reasons.push("the node is still starting".to_owned()),
        None => {}
    }
    if !readiness.catalog_lease {
        reasons.push("no routing lease from the catalog's leader".to_owned());
    }
    if !readiness.leaderless.is_empty() {
        reasons.push(format!("no leader in group {}", listed(&readiness.leaderless)));
    }
    if !readiness.behind.is_empty() {
        let groups = listed(&readiness.behind);
        reasons.push(format!("the replica of group {groups} is catching up"));
    }
    reasons.extend(readiness.definitions.clone());
    reasons.join("; ")
}

pub(crate) fn node_status(
    facts: &NodeFacts,
    process: ProcessFacts,
    view: &NodeView,
    readiness: &Readiness,
    not_live: Option<String>,
) -> wire::Node {
    let alarm = |alarm: &Alarm| match alarm {
        Alarm::Memory => "memory".to_owned(),
        Alarm::Disk => "disk".to_owned(),
    };
    let listeners = facts.listeners.iter().map(|listener| wire::Listener {
        interface: listener.interface.clone(),
        port: u32::from(listener.port),
        protocol: listener.protocol.to_owned(),
        purpose: listener.purpose.to_owned(),
    });
    wire::Node {
        id: u32::from(facts.id.0),
        name: facts.name.clone(),
        product: facts.product.clone(),
        product_version: facts.product_version.clone(),
        version: facts.version.clone(),
        os_pid: std::process::id(),
        machine_newest: view.machine_newest.0,
        uptime_s: facts.started.elapsed().as_secs(),
        cores: process.cores,
        memory_bytes: process.resident_bytes,
        memory_limit_bytes: view.memory_limit_bytes,
        disk_free_bytes: view.disk_free_bytes,
        disk_free_limit_bytes: view.disk_free_limit_bytes,
        fds_open: process.fds_open,
        fds_limit: process.fds_limit,
        data_dir: facts.data_dir.clone(),
        config_file: facts.config_file.clone(),
        alarms: view.alarms.iter().map(alarm).collect(),
        connections: view.connections,
        queues: view.queues,
        vhosts: view.vhosts,
        listeners: listeners.collect(),
        groups: view.groups.iter().map(group).collect(),
        start: view.start.map_or(0, |start| start.0),
        ready: readiness.is_ready(),
        catching_up: !readiness.behind.is_empty(),
        not_ready: not_ready(readiness),
        drained: readiness.drained,
        not_live: not_live.unwrap_or_default(),
        message_sizes: view.message_sizes.counts.clone(),
        memory_uses: memory_uses::measured(&view.memory),
    }
}

/// A refused operation as a gRPC status; the message is RabbitMQ's explanation.
pub(crate) fn refusal(exception: &Exception) -> Status {
    let text = exception.explanation.clone();
    match exception.code {
        ReplyCode::NotFound => Status::not_found(text),
        ReplyCode::PreconditionFailed | ReplyCode::ResourceLocked => {
            Status::failed_precondition(text)
        }
        ReplyCode::AccessRefused | ReplyCode::NotAllowed => Status::permission_denied(text),
        ReplyCode::NotImplemented => Status::unimplemented(text),
        ReplyCode::ContentTooLarge
        | ReplyCode::NoRoute
        | ReplyCode::NoConsumers
        | ReplyCode::ConnectionForced
        | ReplyCode::InvalidPath
        | ReplyCode::FrameError
        | ReplyCode::SyntaxError
        | ReplyCode::CommandInvalid
        | ReplyCode::ChannelError
        | ReplyCode::UnexpectedFrame
        | ReplyCode::ResourceError
        | ReplyCode::InternalError => Status::unavailable(text),
    }
}
