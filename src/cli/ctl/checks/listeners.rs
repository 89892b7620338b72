//! `listeners`, `check_port_listener`, `check_protocol_listener` and `check_port_connectivity`.

use super::super::connect::Target;
use super::super::exit::{Exit, Failure};
use super::super::job::{Found, Job};
use super::super::report::capitalised_listener;
use super::{bad, well};
use futures::future::join_all;
use quorate_management::wire;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for a connection to a port.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Names that clients have for a protocol, and RabbitMQ's name of it.
const NAMES: [(&str, &str); 15] = [
    ("amqp091", "amqp"),
    ("amqp0.9.1", "amqp"),
    ("amqp0-9-1", "amqp"),
    ("amqp0_9_1", "amqp"),
    ("amqps", "amqp/ssl"),
    ("http1", "http"),
    ("http1.1", "http"),
    ("http_api", "http"),
    ("management", "http"),
    ("management_ui", "http"),
    ("ui", "http"),
    ("cli", "clustering"),
    ("distribution", "clustering"),
    ("cli/ssl", "clustering/ssl"),
    ("distribution/ssl", "clustering/ssl"),
];

fn shapes<'a>(
    node: &'a wire::Node,
    listeners: impl Iterator<Item = &'a wire::Listener>,
) -> Vec<Value> {
    let shape = |listener: &wire::Listener| {
        json!({
            "node": node.name,
            "interface": listener.interface,
            "port": listener.port,
            "protocol": listener.protocol,
            "purpose": listener.purpose,
        })
    };
    listeners.map(shape).collect()
}

fn sorted(ports: impl Iterator<Item = u32>) -> String {
    let mut ports: Vec<u32> = ports.collect();
    ports.sort_unstable();
    ports.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// All listeners of a node.
pub(super) fn list(node: &wire::Node) -> Found {
    let lines: Vec<String> = node.listeners.iter().map(capitalised_listener).collect();
    let listeners = shapes(node, node.listeners.iter());
    let json = json!({ "result": "ok", "node": node.name, "listeners": listeners });
    if lines.is_empty() {
        return well(format!("Node {} reported no enabled listeners.", node.name), json);
    }
    well(lines.join("\n"), json)
}

/// Whether the node listens on a port.
pub(super) fn port(node: &wire::Node, given: &str) -> Result<Found, Failure> {
    let name = &node.name;
    let Some(port) = given.parse::<u16>().ok().map(u32::from).filter(|port| *port > 0) else {
        let text = format!("Error:\n'{given}' is no port: it must be from 1 to 65535\n");
        return Err(Failure::new(Exit::Data, text));
    };
    if node.listeners.iter().any(|listener| listener.port == port) {
        let text = format!("A listener for port {port} is running on node {name}.");
        return Ok(well(text, json!({ "result": "ok", "node": name, "port": port })));
    }
    let ports = sorted(node.listeners.iter().map(|listener| listener.port));
    let text = format!(
        "No listener for port {port} is active on node {name}. Found listeners that use the \
         following ports: {ports}"
    );
    let ports: Vec<u32> = node.listeners.iter().map(|listener| listener.port).collect();
    let listeners = shapes(node, node.listeners.iter());
    let json =
        json!({ "result": "error", "missing": port, "ports": ports, "listeners": listeners });
    Ok(bad(text, json))
}

/// Whether the node serves a protocol.
pub(super) fn protocol(node: &wire::Node, given: &str) -> Found {
    let (name, given) = (&node.name, given.to_lowercase());
    let known = NAMES.iter().find(|(alias, _)| *alias == given);
    let protocol = known.map_or(given.as_str(), |(_, protocol)| *protocol);
    if node.listeners.iter().any(|listener| listener.protocol == protocol) {
        let text = format!("A listener for protocol {protocol} is running on node {name}.");
        return well(text, json!({ "result": "ok", "node": name, "protocol": protocol }));
    }
    let mut protocols: Vec<&str> =
        node.listeners.iter().map(|listener| listener.protocol.as_str()).collect();
    protocols.sort_unstable();
    let text = format!(
        "Error:\nNo listener for protocol {protocol} is active on node {name}. Found listeners for \
         the following protocols: {}",
        protocols.join(", ")
    );
    let listeners = shapes(node, node.listeners.iter());
    let json = json!({
        "result": "error", "missing": protocol, "protocols": protocols, "listeners": listeners,
    });
    bad(text, json)
}

/// The host at which this command reaches a listener: every address of the node means the one that
/// the node is asked at.
fn host(interface: &str, target: &Target) -> String {
    match interface {
        "0.0.0.0" | "::" => {
            let host = target.address.rsplit_once(':').map_or("", |(host, _)| host);
            host.trim_matches(['[', ']']).to_owned()
        }
        other => other.to_owned(),
    }
}

/// Whether every listener of the node can be connected to from here.
pub(super) async fn connect(node: &wire::Node, job: &Job<'_>) -> Found {
    let given = job.invocation.options.value("address");
    let attempts = node.listeners.iter().map(|listener| async move {
        let host = given.map_or_else(|| host(&listener.interface, job.target), str::to_owned);
        let port = u16::try_from(listener.port).unwrap_or_default();
        let connected = timeout(CONNECT_MAX, TcpStream::connect((host.as_str(), port))).await;
        (listener, matches!(connected, Ok(Ok(_))))
    });
    let attempts = join_all(attempts).await;
    let name = &node.name;
    let failed: Vec<&wire::Listener> = attempts
        .iter()
        .filter(|(_, succeeded)| !succeeded)
        .map(|(listener, _)| *listener)
        .collect();
    if failed.is_empty() {
        let ports = sorted(node.listeners.iter().map(|listener| listener.port));
        let text = format!("Successfully connected to ports {ports} on node {name}.");
        let listeners = shapes(node, node.listeners.iter());
        return well(text, json!({ "result": "ok", "node": name, "listeners": listeners }));
    }
    let lines: Vec<String> = failed.iter().map(|listener| capitalised_listener(listener)).collect();
    let text = format!(
        "Error:\nConnection to ports of the following listeners on node {name} failed: \n{}",
        lines.join("\n")
    );
    let failures = shapes(node, failed.into_iter());
    bad(text, json!({ "result": "error", "node": name, "failures": failures }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_the_names_that_rabbitmqs_users_know() {
        let listener = |protocol: &str| wire::Listener {
            protocol: protocol.to_owned(),
            ..wire::Listener::default()
        };
        let node = wire::Node {
            name: "n".to_owned(),
            listeners: vec![listener("amqp"), listener("http")],
            ..wire::Node::default()
        };
        for name in ["amqp", "AMQP091", "amqp0-9-1", "http", "management"] {
            assert!(protocol(&node, name).is_well, "{name}");
        }
        let missing = protocol(&node, "amqps");
        assert!(!missing.is_well && missing.text.ends_with("protocols: amqp, http"), "{missing:?}");
    }

    #[test]
    fn a_listener_at_every_address_is_reached_where_the_node_is() {
        let target = Target::read(Some("[::1]:7672"));
        assert_eq!(host("::", &target), "::1");
        assert_eq!(host("0.0.0.0", &Target::read(Some("web1"))), "web1");
        assert_eq!(host("10.0.0.1", &target), "10.0.0.1");
    }
}
