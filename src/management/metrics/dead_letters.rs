//! Counters of dead letters. Each node counts for the queues that it leads: the sum over the nodes
//! is the cluster's. RabbitMQ has a series only where one of its queue types can count; here both
//! types count all of them, and letters are confirmed under either strategy.

use super::exposition::Page;
use quorate_broker::view::{DeadLetterFact, DeadLetterStrategy, DeathReason, MetricsView};
use quorate_types::QueueType;

const FACTS: [(&str, &str, DeadLetterFact); 5] = [
    (
        "rabbitmq_global_messages_dead_lettered_expired_total",
        "Total number of messages dead-lettered due to message TTL exceeded",
        DeadLetterFact::Died(DeathReason::Expired),
    ),
    (
        "rabbitmq_global_messages_dead_lettered_rejected_total",
        "Total number of messages dead-lettered due to basic.reject or basic.nack",
        DeadLetterFact::Died(DeathReason::Rejected),
    ),
    (
        "rabbitmq_global_messages_dead_lettered_maxlen_total",
        "Total number of messages dead-lettered due to a length limit",
        DeadLetterFact::Died(DeathReason::MaxLength),
    ),
    (
        "rabbitmq_global_messages_dead_lettered_delivery_limit_total",
        "Total number of messages dead-lettered due to delivery-limit exceeded",
        DeadLetterFact::Died(DeathReason::DeliveryLimit),
    ),
    (
        "rabbitmq_global_messages_dead_lettered_confirmed_total",
        "Total number of messages dead-lettered and confirmed by target queues",
        DeadLetterFact::Confirmed,
    ),
];

const TYPES: [(&str, QueueType); 2] =
    [("rabbit_classic_queue", QueueType::Classic), ("rabbit_quorum_queue", QueueType::Quorum)];

const STRATEGIES: [(&str, DeadLetterStrategy); 3] = [
    ("disabled", DeadLetterStrategy::Disabled),
    ("at_most_once", DeadLetterStrategy::AtMostOnce),
    ("at_least_once", DeadLetterStrategy::AtLeastOnce),
];

pub(super) fn show(page: &mut Page, view: &MetricsView) {
    let counters = &view.dead_letters;
    let help = "Dead letters that their targets have not accepted yet";
    page.gauge("quorate_dead_letters_waiting", help, view.dead_letters_waiting);
    for (name, help, fact) in FACTS {
        page.head(name, "counter", help);
        for (type_label, queue_type) in TYPES {
            for (strategy_label, strategy) in STRATEGIES {
                if (fact, strategy) == (DeadLetterFact::Confirmed, DeadLetterStrategy::Disabled) {
                    continue;
                }
                let count = counters.get(&(queue_type, strategy, fact)).copied();
                let labels = [("queue_type", type_label), ("dead_letter_strategy", strategy_label)];
                page.sample(name, &labels, count.unwrap_or_default());
            }
        }
    }
    let dropped = [
        (
            "rabbitmq_dlx_cycle_dropped_total",
            "Total number of dead letters dropped because they would go round in a cycle",
            DeadLetterFact::Cycle,
        ),
        (
            "rabbitmq_dead_letter_unroutable_total",
            "Total number of dead letters dropped because no queue accepts them",
            DeadLetterFact::Unroutable,
        ),
    ];
    for (name, help, fact) in dropped {
        let counts = counters.iter().filter(|((_, _, of), _)| *of == fact);
        page.counter(name, help, &[], counts.map(|(_, count)| count).sum());
    }
}
