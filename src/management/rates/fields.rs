//! What is sampled of each kind of object, by RabbitMQ's names, in the order in which values are
//! stored and sent between nodes. New names go to the end: other versions send fewer.

use quorate_broker::view::{ChannelTraffic, ExchangeTraffic, MetricsView, QueueFigure, Traffic};

/// Which parameters of a request ask for the samples of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// `lengths_age` and `lengths_incr`.
    Lengths,
    /// `msg_rates_age` and `msg_rates_incr`: in `message_stats`.
    Rates,
    /// `data_rates_age` and `data_rates_incr`.
    Data,
    /// `node_stats_age` and `node_stats_incr`.
    Node,
}

/// One sampled value of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) asked: Asked,
}

const fn field(name: &'static str, asked: Asked) -> Field {
    Field { name, asked }
}

/// Of a queue.
pub(crate) const QUEUE: &[Field] = &[
    field("messages", Asked::Lengths),
    field("messages_ready", Asked::Lengths),
    field("messages_unacknowledged", Asked::Lengths),
    field("publish", Asked::Rates),
    field("deliver", Asked::Rates),
    field("deliver_no_ack", Asked::Rates),
    field("get", Asked::Rates),
    field("get_no_ack", Asked::Rates),
    field("get_empty", Asked::Rates),
    field("deliver_get", Asked::Rates),
    field("redeliver", Asked::Rates),
    field("ack", Asked::Rates),
];

/// Of a channel.
pub(crate) const CHANNEL: &[Field] = &[
    field("publish", Asked::Rates),
    field("confirm", Asked::Rates),
    field("return_unroutable", Asked::Rates),
    field("drop_unroutable", Asked::Rates),
    field("deliver", Asked::Rates),
    field("deliver_no_ack", Asked::Rates),
    field("get", Asked::Rates),
    field("get_no_ack", Asked::Rates),
    field("get_empty", Asked::Rates),
    field("deliver_get", Asked::Rates),
    field("redeliver", Asked::Rates),
    field("ack", Asked::Rates),
];

/// Of an exchange, by what clients of one node publish.
pub(crate) const EXCHANGE: &[Field] = &[
    field("publish_in", Asked::Rates),
    field("publish_out", Asked::Rates),
    field("return_unroutable", Asked::Rates),
    field("drop_unroutable", Asked::Rates),
];

/// Of a connection.
pub(crate) const CONNECTION: &[Field] =
    &[field("recv_oct", Asked::Data), field("send_oct", Asked::Data)];

/// Of a virtual host: what its queues on one node hold and pass on, and its clients there publish.
pub(crate) const VHOST: &[Field] = &[
    field("messages", Asked::Lengths),
    field("messages_ready", Asked::Lengths),
    field("messages_unacknowledged", Asked::Lengths),
    field("publish", Asked::Rates),
    field("deliver", Asked::Rates),
    field("deliver_no_ack", Asked::Rates),
    field("get", Asked::Rates),
    field("get_no_ack", Asked::Rates),
    field("get_empty", Asked::Rates),
    field("deliver_get", Asked::Rates),
    field("redeliver", Asked::Rates),
    field("ack", Asked::Rates),
    field("return_unroutable", Asked::Rates),
    field("drop_unroutable", Asked::Rates),
    field("recv_oct", Asked::Data),
    field("send_oct", Asked::Data),
];

/// Of a node: its part of the cluster's figures, then its own.
pub(crate) const NODE: &[Field] = &[
    field("messages", Asked::Lengths),
    field("messages_ready", Asked::Lengths),
    field("messages_unacknowledged", Asked::Lengths),
    field("publish", Asked::Rates),
    field("confirm", Asked::Rates),
    field("return_unroutable", Asked::Rates),
    field("drop_unroutable", Asked::Rates),
    field("deliver", Asked::Rates),
    field("deliver_no_ack", Asked::Rates),
    field("get", Asked::Rates),
    field("get_no_ack", Asked::Rates),
    field("get_empty", Asked::Rates),
    field("deliver_get", Asked::Rates),
    field("redeliver", Asked::Rates),
    field("ack", Asked::Rates),
    field("connection_created", Asked::Node),
    field("connection_closed", Asked::Node),
    field("channel_created", Asked::Node),
    field("channel_closed", Asked::Node),
    field("queue_declared", Asked::Node),
    field("queue_created", Asked::Node),
    field("queue_deleted", Asked::Node),
    field("mem_used", Asked::Node),
    field("fd_used", Asked::Node),
    field("sockets_used", Asked::Node),
    field("disk_free", Asked::Node),
    field("io_sync_count", Asked::Node),
    field("io_write_bytes", Asked::Node),
];

/// The fields of a node that count what comes and goes.
pub(crate) const CHURN: [&str; 7] = [
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
];

/// Values of [`QUEUE`].
pub(crate) fn of_queue(queue: &QueueFigure) -> [u64; QUEUE.len()] {
    let (ready, unacknowledged) = (queue.ready, queue.unacknowledged);
    let [publish, rest @ ..] = of_traffic(&queue.traffic);
    let [deliver, deliver_no_ack, get, get_no_ack, get_empty, deliver_get, redeliver, ack] = rest;
    [
        ready + unacknowledged + queue.delayed + queue.dead_letters_waiting,
        ready,
        unacknowledged,
        publish,
        deliver,
        deliver_no_ack,
        get,
        get_no_ack,
        get_empty,
        deliver_get,
        redeliver,
        ack,
    ]
}

/// Publishes and deliveries of a queue, in the order of [`QUEUE`]. A queue is not told which gets are
/// without acknowledgement: all count as `get`.
fn of_traffic(traffic: &Traffic) -> [u64; 9] {
    let Traffic {
        published,
        delivered,
        delivered_no_ack,
        got,
        got_empty,
        redelivered,
        acknowledged,
    } = *traffic;
    let deliver_get = delivered + delivered_no_ack + got;
    [
        published,
        delivered,
        delivered_no_ack,
        got,
        0,
        got_empty,
        deliver_get,
        redelivered,
        acknowledged,
    ]
}

/// Values of [`CHANNEL`].
pub(crate) fn of_channel(traffic: &ChannelTraffic) -> [u64; CHANNEL.len()] {
    [
        traffic.published,
        traffic.confirmed,
        traffic.returned,
        traffic.dropped,
        traffic.delivered,
        traffic.delivered_no_ack,
        traffic.got,
        traffic.got_no_ack,
        traffic.got_empty,
        traffic.delivered + traffic.delivered_no_ack + traffic.got + traffic.got_no_ack,
        traffic.redelivered,
        traffic.acknowledged,
    ]
}

/// Values of [`EXCHANGE`].
pub(crate) fn of_exchange(traffic: &ExchangeTraffic) -> [u64; EXCHANGE.len()] {
    [traffic.published_in, traffic.published_out, traffic.returned, traffic.dropped]
}

/// Values of [`NODE`].
pub(crate) fn of_node(view: &MetricsView, memory: u64, descriptors: u64) -> [u64; NODE.len()] {
    let (ready, unacknowledged) = (view.messages_ready, view.messages_unacknowledged);
    let sum = |pick: fn(&quorate_broker::view::DeliveryCounters) -> u64| {
        pick(&view.classic) + pick(&view.quorum)
    };
    let deliver = sum(|of| of.consume_manual_ack);
    let deliver_no_ack = sum(|of| of.consume_auto_ack);
    let (get, get_no_ack) = (sum(|of| of.get_manual_ack), sum(|of| of.get_auto_ack));
    [
        ready + unacknowledged + view.messages_delayed + view.dead_letters_waiting,
        ready,
        unacknowledged,
        view.received,
        view.confirmed,
        view.unroutable_returned,
        view.unroutable_dropped,
        deliver,
        deliver_no_ack,
        get,
        get_no_ack,
        sum(|of| of.get_empty),
        deliver + deliver_no_ack + get + get_no_ack,
        sum(|of| of.redelivered),
        sum(|of| of.acknowledged),
        view.connections_opened,
        view.connections_closed,
        view.channels_opened,
        view.channels_closed,
        view.queues_declared,
        view.queues_created,
        view.queues_deleted,
        memory,
        descriptors,
        view.node.connections,
        view.node.disk_free_bytes,
        view.sync.counts.iter().sum(),
        view.sync_bytes.sum,
    ]
}
