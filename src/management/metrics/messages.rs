//! Messages that clients of the node publish and that it delivers to them.

use super::exposition::Page;
use quorate_broker::view::{DeliveryCounters, MetricsView};

pub(super) const PROTOCOL: (&str, &str) = ("protocol", "amqp091");

pub(super) fn publishes(page: &mut Page, view: &MetricsView) {
    let counters = [
        (
            "rabbitmq_global_messages_received_total",
            "Total number of messages received from publishers",
            view.received,
        ),
        (
            "rabbitmq_global_messages_received_confirm_total",
            "Total number of messages received from publishers expecting confirmations",
            view.received_confirm,
        ),
        (
            "rabbitmq_global_messages_routed_total",
            "Total number of messages routed to queues or streams",
            view.routed,
        ),
        (
            "rabbitmq_global_messages_unroutable_dropped_total",
            "Total number of messages published as non-mandatory into an exchange and dropped as unroutable",
            view.unroutable_dropped,
        ),
        (
            "rabbitmq_global_messages_unroutable_returned_total",
            "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable",
            view.unroutable_returned,
        ),
        (
            "rabbitmq_global_messages_confirmed_total",
            "Total number of messages confirmed to publishers",
            view.confirmed,
        ),
        (
            "quorate_messages_refused_total",
            "Total number of messages refused to publishers with basic.nack",
            view.refused,
        ),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, &[PROTOCOL], value);
    }
    page.head("rabbitmq_global_publishers", "gauge", "Publishers currently connected");
    page.sample("rabbitmq_global_publishers", &[PROTOCOL], view.publishers);
    page.head("rabbitmq_global_consumers", "gauge", "Consumers currently connected");
    page.sample("rabbitmq_global_consumers", &[PROTOCOL], view.consumers);
}

type Pick = fn(&DeliveryCounters) -> u64;

const DELIVERIES: [(&str, &str, Pick); 8] = [
    (
        "rabbitmq_global_messages_delivered_total",
        "Total number of messages delivered to consumers",
        |of| of.consume_manual_ack + of.consume_auto_ack + of.get_manual_ack + of.get_auto_ack,
    ),
    (
        "rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "Total number of messages delivered to consumers using basic.consume with manual acknowledgment",
        |of| of.consume_manual_ack,
    ),
    (
        "rabbitmq_global_messages_delivered_consume_auto_ack_total",
        "Total number of messages delivered to consumers using basic.consume with automatic acknowledgment",
        |of| of.consume_auto_ack,
    ),
    (
        "rabbitmq_global_messages_delivered_get_manual_ack_total",
        "Total number of messages delivered to consumers using basic.get with manual acknowledgment",
        |of| of.get_manual_ack,
    ),
    (
        "rabbitmq_global_messages_delivered_get_auto_ack_total",
        "Total number of messages delivered to consumers using basic.get with automatic acknowledgment",
        |of| of.get_auto_ack,
    ),
    (
        "rabbitmq_global_messages_get_empty_total",
        "Total number of times basic.get operations fetched no message",
        |of| of.get_empty,
    ),
    (
        "rabbitmq_global_messages_redelivered_total",
        "Total number of messages redelivered to consumers",
        |of| of.redelivered,
    ),
    (
        "rabbitmq_global_messages_acknowledged_total",
        "Total number of messages acknowledged by consumers",
        |of| of.acknowledged,
    ),
];

pub(super) fn deliveries(page: &mut Page, view: &MetricsView) {
    for (name, help, pick) in DELIVERIES {
        page.head(name, "counter", help);
        let classic = [PROTOCOL, ("queue_type", "rabbit_classic_queue")];
        page.sample(name, &classic, pick(&view.classic));
        let quorum = [PROTOCOL, ("queue_type", "rabbit_quorum_queue")];
        page.sample(name, &quorum, pick(&view.quorum));
    }
}
