//! Selects the columns of a list.

use super::exit::Failure;
use super::options::{Invocation, refusal};
use super::rows;

/// A `list_…` verb, with its own columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Queues,
    Exchanges,
    Bindings,
    Connections,
    Channels,
    Consumers,
}

/// The names of all columns of a list.
pub(crate) fn names(listing: Listing) -> Vec<&'static str> {
    fn of<T>(columns: &[rows::Column<T>]) -> Vec<&'static str> {
        columns.iter().map(|column| column.name).collect()
    }
    match listing {
        Listing::Queues => of(rows::QUEUES),
        Listing::Exchanges => of(rows::EXCHANGES),
        Listing::Bindings => of(rows::BINDINGS),
        Listing::Connections => of(rows::CONNECTIONS),
        Listing::Channels => of(rows::CHANNELS),
        Listing::Consumers => of(rows::CONSUMERS),
    }
}

/// Columns of a list if the command line names none.
pub(crate) fn defaults(listing: Listing) -> Vec<&'static str> {
    match listing {
        Listing::Queues => vec!["name", "messages"],
        Listing::Exchanges => vec!["name", "type"],
        Listing::Bindings => names(listing),
        Listing::Connections => vec!["user", "peer_host", "peer_port", "state"],
        Listing::Channels => vec!["pid", "user", "consumer_count", "messages_unacknowledged"],
        Listing::Consumers => vec![
            "queue_name",
            "channel_pid",
            "consumer_tag",
            "ack_required",
            "prefetch_count",
            "active",
            "arguments",
        ],
    }
}

/// The columns to print: those named, each once, or the defaults.
///
/// # Errors
/// A name is not a column; the message is rabbitmqctl's.
pub(crate) fn choose(
    listing: Listing,
    invocation: &Invocation,
    line: &[String],
    program: &str,
) -> Result<Vec<&'static str>, Failure> {
    // rabbitmqctl accepts `a,b` for `a b`.
    let named: Vec<&str> = invocation
        .arguments
        .iter()
        .flat_map(|word| word.split(','))
        .filter(|name| !name.is_empty())
        .collect();
    if named.is_empty() {
        return Ok(defaults(listing));
    }
    let mut chosen: Vec<&'static str> = Vec::new();
    let mut strange = Vec::new();
    for name in named {
        match names(listing).into_iter().find(|column| *column == name) {
            None => strange.push(name),
            Some(column) if !chosen.contains(&column) => chosen.push(column),
            Some(_) => {}
        }
    }
    if !strange.is_empty() {
        let why = format!("Info key(s) {} are not supported", strange.join(","));
        return Err(refusal(&why, line, invocation.manual, program));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::{
        names::Names,
        rows::{Column, QueueRow},
        value::Value,
    };
    use super::*;
    use bytes::Bytes;
    use quorate_management::wire;

    /// The columns of each list in `rabbitmqctl help` of RabbitMQ 4.0.5.
    const PEERS: [(Listing, &str); 6] = [
        (
            Listing::Queues,
            "arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads \
             disk_writes durable effective_policy_definition exclusive exclusive_consumer_pid \
             exclusive_consumer_tag head_message_timestamp leader members memory message_bytes \
             message_bytes_persistent message_bytes_ram message_bytes_ready \
             message_bytes_unacknowledged messages messages_persistent messages_ram \
             messages_ready messages_ready_ram messages_unacknowledged \
             messages_unacknowledged_ram name online operator_policy owner_pid pid policy state \
             type",
        ),
        (Listing::Exchanges, "arguments auto_delete durable internal name policy type"),
        (
            Listing::Bindings,
            "arguments destination_kind destination_name routing_key source_kind source_name",
        ),
        (
            Listing::Connections,
            "auth_mechanism channel_max channels client_properties connected_at frame_max host \
             name peer_cert_issuer peer_cert_subject peer_cert_validity peer_host peer_port pid \
             port protocol recv_cnt recv_oct send_cnt send_oct send_pend ssl ssl_cipher ssl_hash \
             ssl_key_exchange ssl_protocol state timeout user vhost",
        ),
        (
            Listing::Channels,
            "acks_uncommitted confirm connection consumer_count messages_unacknowledged \
             messages_uncommitted messages_unconfirmed name number pid prefetch_count \
             transactional user vhost",
        ),
        (
            Listing::Consumers,
            "ack_required active activity_status arguments channel_pid consumer_tag \
             prefetch_count queue_name",
        ),
    ];

    #[test]
    fn every_column_of_the_peers_is_one_here() {
        for (listing, columns) in PEERS {
            let missing: Vec<_> =
                columns.split(' ').filter(|column| !names(listing).contains(column)).collect();
            assert!(missing.is_empty(), "{listing:?}: {missing:?}");
        }
    }

    /// Columns that RabbitMQ fills only for classic queues or TLS, and that are empty for a quorum
    /// queue.
    const EMPTY: [&str; 19] = [
        "disk_reads",
        "disk_writes",
        "head_message_timestamp",
        "message_bytes_persistent",
        "message_bytes_ram",
        "messages_persistent",
        "messages_ram",
        "messages_ready_ram",
        "messages_unacknowledged_ram",
        "peer_cert_issuer",
        "peer_cert_subject",
        "peer_cert_validity",
        "ssl_cipher",
        "ssl_hash",
        "ssl_key_exchange",
        "ssl_protocol",
        // Empty in a row without an operator policy.
        "operator_policy",
        "owner_pid",
        "policy",
    ];

    #[test]
    fn every_other_column_has_a_value() {
        let arguments = Bytes::from_static(&[0; 4]);
        let table = || arguments.clone();
        let consumer = wire::Consumer { arguments: table(), ..Default::default() };
        let queue = wire::Queue {
            arguments: table(),
            leader: 1,
            counts: Some(wire::QueueCounts::default()),
            ..Default::default()
        };
        let queue = QueueRow { queue, alone: Some(consumer.clone()) };
        check(rows::QUEUES, &queue);
        check(rows::EXCHANGES, &wire::Exchange { arguments: table(), ..Default::default() });
        check(rows::BINDINGS, &wire::Binding { arguments: table(), ..Default::default() });
        let client_properties = table();
        check(rows::CONNECTIONS, &wire::Connection { client_properties, ..Default::default() });
        check(rows::CHANNELS, &wire::Channel::default());
        check(rows::CONSUMERS, &consumer);
    }

    fn check<T>(columns: &[Column<T>], row: &T) {
        for Column { name, cell } in columns {
            let empty = cell(row, &Names::default()).unwrap() == Value::Empty;
            assert_eq!(empty, EMPTY.contains(name), "{name}");
        }
    }
}
