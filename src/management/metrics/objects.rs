//! Series of single queues, exchanges, connections, channels and virtual hosts, by RabbitMQ's families
//! (`/metrics/per-object` and `/metrics/detailed`). Each node shows the queues that it leads.

use super::Scrape;
use super::exposition::{Page, seconds};
use crate::convert::consumer_capacity;
use quorate_broker::view::{ChannelFigure, ConnectionFigure, GroupView, QueueFigure};
use quorate_catalog::ConnectionId;
use quorate_types::{Home, QueueType};

/// Prefix of all names of `/metrics/per-object`.
pub(super) const PER_OBJECT: &str = "rabbitmq_";
/// Prefix of most names of `/metrics/detailed`.
pub(super) const DETAILED: &str = "rabbitmq_detailed_";

type Row<'a, T> = (&'a str, &'a str, &'a str, fn(&T) -> u64);

/// RabbitMQ's name of a type of queues.
fn type_name(queue_type: QueueType) -> &'static str {
    match queue_type {
        QueueType::Classic => "rabbit_classic_queue",
        QueueType::Quorum => "rabbit_quorum_queue",
    }
}

/// Writes a family for each row, with a sample for each queue.
fn queue_rows(page: &mut Page, prefix: &str, scrape: &Scrape<'_>, rows: &[Row<'_, QueueFigure>]) {
    for (stem, kind, help, pick) in rows {
        let name = format!("{prefix}{stem}");
        page.head(&name, kind, help);
        for queue in scrape.queues() {
            page.sample(&name, &labels(queue), pick(queue));
        }
    }
}

fn labels(queue: &QueueFigure) -> [(&str, &str); 2] {
    [("vhost", queue.name.vhost.as_str()), ("queue", queue.name.name.as_str())]
}

/// `queue_coarse_metrics`.
pub(super) fn queue_coarse(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    queue_rows(
        page,
        prefix,
        scrape,
        &[
            (
                "queue_messages_ready",
                "gauge",
                "Messages ready to be delivered to consumers",
                |queue| queue.ready,
            ),
            (
                "queue_messages_unacked",
                "gauge",
                "Messages delivered to consumers but not yet acknowledged",
                |queue| queue.unacknowledged,
            ),
            (
                "queue_messages",
                "gauge",
                "Sum of all messages: ready, unacknowledged, delayed, and dead letters that wait - total queue depth",
                |queue| {
                    queue.ready + queue.unacknowledged + queue.delayed + queue.dead_letters_waiting
                },
            ),
        ],
    );
}

/// `queue_consumer_count`.
pub(super) fn queue_consumers(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let row: Row<'_, QueueFigure> =
        ("queue_consumers", "gauge", "Consumers on a queue", |queue| u64::from(queue.consumers));
    queue_rows(page, prefix, scrape, &[row]);
}

/// `queue_metrics`.
pub(super) fn queue_metrics(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let rows: [Row<'_, QueueFigure>; 7] = [
        (
            "queue_consumer_utilisation",
            "gauge",
            "1 if consumers take messages as they come, 0 if some wait or nobody consumes",
            |queue| consumer_capacity(u64::from(queue.consumers), queue.ready),
        ),
        (
            "queue_messages_delayed",
            "gauge",
            "Returned messages that wait for their retry",
            |queue| queue.delayed,
        ),
        ("queue_messages_ready_bytes", "gauge", "Size in bytes of ready messages", |queue| {
            queue.ready_bytes
        }),
        (
            "queue_messages_unacked_bytes",
            "gauge",
            "Size in bytes of all unacknowledged messages",
            |queue| queue.unacknowledged_bytes,
        ),
        (
            "queue_messages_bytes",
            "gauge",
            "Size in bytes of ready and unacknowledged messages",
            |queue| queue.ready_bytes + queue.unacknowledged_bytes,
        ),
        (
            "queue_process_memory_bytes",
            "gauge",
            "Memory in bytes that the queue uses, about",
            |queue| queue.memory_bytes,
        ),
        (
            "queue_dead_letters_waiting",
            "gauge",
            "Dead letters that their targets have not accepted yet",
            |queue| queue.dead_letters_waiting,
        ),
    ];
    queue_rows(page, prefix, scrape, &rows);
    let name = format!("{prefix}queue_info");
    page.head(&name, "gauge", "Type of the queue and the part of this node in it");
    for queue in scrape.queues() {
        let [vhost, name_of] = labels(queue);
        let of_type = ("queue_type", type_name(queue.queue_type));
        page.sample(&name, &[vhost, name_of, of_type, ("membership", "leader")], 1);
    }
    let name = format!("{prefix}queue_oldest_message_age_seconds");
    page.head(&name, "gauge", "Age of the oldest ready message in seconds");
    for queue in scrape.queues() {
        let age_us = match (queue.ready, queue.oldest_age_ms) {
            (0, _) => 0,
            (_, Some(age_ms)) => age_ms.saturating_mul(1_000),
            // It could not be read.
            (_, None) => continue,
        };
        page.sample_text(&name, &labels(queue), &seconds(age_us));
    }
}

/// `queue_delivery_metrics`. A queue is not told which gets are without acknowledgement.
pub(super) fn queue_delivery(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let rows: [Row<'_, QueueFigure>; 6] = [
        (
            "queue_get_ack_total",
            "counter",
            "Total number of messages fetched from a queue with basic.get",
            |queue| queue.traffic.got,
        ),
        (
            "queue_messages_delivered_ack_total",
            "counter",
            "Total number of messages delivered from a queue to consumers in manual acknowledgement mode",
            |queue| queue.traffic.delivered,
        ),
        (
            "queue_messages_delivered_total",
            "counter",
            "Total number of messages delivered from a queue to consumers in automatic acknowledgement mode",
            |queue| queue.traffic.delivered_no_ack,
        ),
        (
            "queue_messages_redelivered_total",
            "counter",
            "Total number of messages redelivered from a queue to consumers",
            |queue| queue.traffic.redelivered,
        ),
        (
            "queue_messages_acked_total",
            "counter",
            "Total number of messages acknowledged by consumers on a queue",
            |queue| queue.traffic.acknowledged,
        ),
        (
            "queue_get_empty_total",
            "counter",
            "Total number of times basic.get operations fetched no message on a queue",
            |queue| queue.traffic.got_empty,
        ),
    ];
    queue_rows(page, prefix, scrape, &rows);
}

/// `channel_queue_exchange_metrics`, of queues only: the queue is not told the exchange.
pub(super) fn queue_published(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let row: Row<'_, QueueFigure> = (
        "queue_messages_published_total",
        "counter",
        "Total number of messages published into a queue",
        |queue| queue.traffic.published,
    );
    queue_rows(page, prefix, scrape, &[row]);
}

/// `ra_metrics`: of the group of each led queue.
pub(super) fn raft(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let led: Vec<(&QueueFigure, &GroupView)> = scrape
        .queues()
        .filter_map(|queue| {
            let Home::Group(id) = queue.id.home else { return None };
            let mut groups = scrape.view.node.groups.iter();
            Some((queue, groups.find(|group| group.group == id)?))
        })
        .collect();
    let rows: [Row<'_, GroupView>; 4] = [
        ("raft_term", "gauge", "Current Raft term number", |group| group.term.0),
        ("raft_commit_index", "gauge", "Raft log commit index", |group| group.applied.0),
        ("raft_last_written_index", "gauge", "Raft log last written index", |group| group.last.0),
        ("raft_snapshot_index", "gauge", "Raft log snapshot index", |group| group.purged.0),
    ];
    for (stem, kind, help, pick) in rows {
        let name = format!("{prefix}{stem}");
        page.head(&name, kind, help);
        for (queue, group) in &led {
            page.sample(&name, &labels(queue), pick(group));
        }
    }
    let name = format!("{prefix}raft_commit_latency_seconds");
    page.head(&name, "gauge", "Time taken for a log entry to be committed");
    for (queue, group) in &led {
        let latency_us = scrape.rates.commit_us(group.group).unwrap_or_default();
        page.sample_text(&name, &labels(queue), &seconds(latency_us));
    }
}

/// A connection as RabbitMQ names its process.
fn connection_id(id: ConnectionId, node: &str) -> String {
    format!("<{node}.{}.{}>", id.session.start.0, id.number)
}

fn connection_rows(
    page: &mut Page,
    prefix: &str,
    scrape: &Scrape<'_>,
    rows: &[Row<'_, ConnectionFigure>],
) {
    for (stem, kind, help, pick) in rows {
        let name = format!("{prefix}{stem}");
        page.head(&name, kind, help);
        for connection in &scrape.figures.connections {
            let id = connection_id(connection.id, &scrape.facts.name);
            page.sample(&name, &[("connection", &id)], pick(connection));
        }
    }
}

/// `connection_coarse_metrics`.
pub(super) fn connection_bytes(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let rows: [Row<'_, ConnectionFigure>; 2] = [
        (
            "connection_incoming_bytes_total",
            "counter",
            "Total number of bytes received on a connection",
            |it| it.socket.received_bytes,
        ),
        (
            "connection_outgoing_bytes_total",
            "counter",
            "Total number of bytes sent on a connection",
            |it| it.socket.sent_bytes,
        ),
    ];
    connection_rows(page, prefix, scrape, &rows);
}

/// `connection_metrics`. A packet is a read or a write of the socket.
pub(super) fn connection_packets(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let rows: [Row<'_, ConnectionFigure>; 2] = [
        (
            "connection_incoming_packets_total",
            "counter",
            "Total number of packets received on a connection",
            |it| it.socket.reads,
        ),
        (
            "connection_outgoing_packets_total",
            "counter",
            "Total number of packets sent on a connection",
            |it| it.socket.writes,
        ),
    ];
    connection_rows(page, prefix, scrape, &rows);
}

fn channel_rows(
    page: &mut Page,
    prefix: &str,
    scrape: &Scrape<'_>,
    rows: &[Row<'_, ChannelFigure>],
) {
    for (stem, kind, help, pick) in rows {
        let name = format!("{prefix}{stem}");
        page.head(&name, kind, help);
        for channel in &scrape.figures.channels {
            let connection = connection_id(channel.connection, &scrape.facts.name);
            let id = format!("{connection} ({})", channel.number);
            page.sample(&name, &[("channel", &id)], pick(channel));
        }
    }
}

/// `channel_metrics`.
pub(super) fn channels(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let rows: [Row<'_, ChannelFigure>; 5] = [
        (
            "channel_messages_unacked",
            "gauge",
            "Delivered but not yet acknowledged messages",
            |it| it.report.unacknowledged,
        ),
        (
            "channel_messages_unconfirmed",
            "gauge",
            "Published but not yet confirmed messages",
            |it| it.report.unconfirmed,
        ),
        (
            "channel_messages_uncommitted",
            "gauge",
            "Messages received in a transaction but not yet committed",
            |it| it.report.messages_uncommitted,
        ),
        (
            "channel_acks_uncommitted",
            "gauge",
            "Message acknowledgements in a transaction not yet committed",
            |it| it.report.acks_uncommitted,
        ),
        (
            "channel_prefetch",
            "gauge",
            "Limit of messages that may be unacknowledged on a channel",
            |it| u64::from(it.report.prefetch),
        ),
    ];
    channel_rows(page, prefix, scrape, &rows);
}

/// `channel_exchange_metrics`, by channel.
pub(super) fn channel_publishes(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let rows: [Row<'_, ChannelFigure>; 4] = [
        (
            "channel_messages_published_total",
            "counter",
            "Total number of messages published into an exchange on a channel",
            |it| it.report.traffic.published,
        ),
        (
            "channel_messages_confirmed_total",
            "counter",
            "Total number of messages published into an exchange and confirmed on the channel",
            |it| it.report.traffic.confirmed,
        ),
        (
            "channel_messages_unroutable_returned_total",
            "counter",
            "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable",
            |it| it.report.traffic.returned,
        ),
        (
            "channel_messages_unroutable_dropped_total",
            "counter",
            "Total number of messages published as non-mandatory into an exchange and dropped as unroutable",
            |it| it.report.traffic.dropped,
        ),
    ];
    channel_rows(page, prefix, scrape, &rows);
}

/// `channel_queue_metrics`, by channel.
pub(super) fn channel_deliveries(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    let rows: [Row<'_, ChannelFigure>; 7] = [
        (
            "channel_get_ack_total",
            "counter",
            "Total number of messages fetched with basic.get in manual acknowledgement mode",
            |it| it.report.traffic.got,
        ),
        (
            "channel_get_total",
            "counter",
            "Total number of messages fetched with basic.get in automatic acknowledgement mode",
            |it| it.report.traffic.got_no_ack,
        ),
        (
            "channel_messages_delivered_ack_total",
            "counter",
            "Total number of messages delivered to consumers in manual acknowledgement mode",
            |it| it.report.traffic.delivered,
        ),
        (
            "channel_messages_delivered_total",
            "counter",
            "Total number of messages delivered to consumers in automatic acknowledgement mode",
            |it| it.report.traffic.delivered_no_ack,
        ),
        (
            "channel_messages_redelivered_total",
            "counter",
            "Total number of messages redelivered to consumers",
            |it| it.report.traffic.redelivered,
        ),
        (
            "channel_messages_acked_total",
            "counter",
            "Total number of messages acknowledged by consumers",
            |it| it.report.traffic.acknowledged,
        ),
        (
            "channel_get_empty_total",
            "counter",
            "Total number of times basic.get operations fetched no message",
            |it| it.report.traffic.got_empty,
        ),
    ];
    channel_rows(page, prefix, scrape, &rows);
}

/// `exchange_metrics`: what this node's clients publish.
pub(super) fn exchanges(page: &mut Page, prefix: &str, scrape: &Scrape<'_>) {
    type Row<'a> = (&'a str, &'a str, fn(&quorate_broker::view::ExchangeTraffic) -> u64);
    let rows: [Row<'_>; 4] = [
        (
            "exchange_messages_published_total",
            "Total number of messages published into an exchange",
            |it| it.published_in,
        ),
        (
            "exchange_messages_routed_total",
            "Total number of copies that an exchange has routed to queues",
            |it| it.published_out,
        ),
        (
            "exchange_messages_unroutable_returned_total",
            "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable",
            |it| it.returned,
        ),
        (
            "exchange_messages_unroutable_dropped_total",
            "Total number of messages published as non-mandatory into an exchange and dropped as unroutable",
            |it| it.dropped,
        ),
    ];
    for (stem, help, pick) in rows {
        let name = format!("{prefix}{stem}");
        page.head(&name, "counter", help);
        for (exchange, traffic) in &scrape.figures.exchanges {
            if scrape.is_wanted_vhost(exchange.vhost.as_str()) {
                let labels =
                    [("vhost", exchange.vhost.as_str()), ("exchange", exchange.name.as_str())];
                page.sample(&name, &labels, pick(traffic));
            }
        }
    }
}
