//! Health checks: `/api/health/checks` and `/api/aliveness-test`. 503 with the reason if one fails.

use crate::api::call::{Answer, Api, Call};
use crate::api::nodes;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::Check;
use crate::certificates::{PERIOD_UNITS, certificates};
use crate::convert::not_ready;
use crate::facts::ListenerFacts;
use crate::wire;
use quorate_types::VhostName;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// A check that has passed.
fn ok() -> Answer {
    Answer::object(json!({ "status": "ok" }))
}

/// A check that has failed, with further fields.
fn failed(reason: &str, further: Value) -> Answer {
    let mut fields = Map::from_iter([
        ("status".to_owned(), Value::from("failed")),
        ("reason".to_owned(), Value::from(reason)),
    ]);
    if let Value::Object(further) = further {
        fields.extend(further);
    }
    Answer::with_status(503, Value::Object(fields))
}

/// Carries out a check.
pub(crate) async fn check(api: &Api, call: &Call, check: Check) -> Result<Answer, Refusal> {
    let readiness = api.broker.views().readiness();
    match check {
        Check::Alarms => Ok(alarms(api, true).await),
        Check::LocalAlarms => Ok(alarms(api, false).await),
        Check::PortListener => port(&api.facts.listeners, call.name("port").unwrap_or_default()),
        Check::ProtocolListener => {
            Ok(protocols(&api.facts.listeners, call.name("protocols").unwrap_or_default()))
        }
        // A virtual host has no process of its own that could have ended.
        Check::VirtualHosts => Ok(ok()),
        Check::QuorumCritical => Ok(quorum(api, call).await),
        Check::ReadyToServe if readiness.is_ready() => Ok(ok()),
        Check::ReadyToServe => Ok(failed(&not_ready(&readiness), json!({}))),
        Check::InService if readiness.serving && readiness.is_open() => Ok(ok()),
        Check::InService => {
            let reason = "this rabbit node is not currently available to serve";
            Ok(failed(reason, json!({})))
        }
        Check::ConnectionLimit if api.broker.lookup().takes_connections() => Ok(ok()),
        Check::ConnectionLimit => Ok(failed("node connection limit is reached", json!({}))),
        Check::ClusterSize => Ok(cluster_size(api)),
        Check::MetadataStore if readiness.catalog_lease => Ok(ok()),
        Check::MetadataStore => Ok(failed("Metadata store has not been initialized", json!({}))),
        Check::LeaderlessQueues => leaderless(api, call).await,
        Check::CertificateExpiration => {
            let files = api.facts.certificates.iter().map(certificates).collect::<Vec<_>>();
            expiring(&files, call.name("within").unwrap_or_default(), call.name("unit"))
        }
    }
}

/// Whether a certificate expires within a period such as 4 weeks.
fn expiring(
    files: &[wire::CertificateFile],
    within: &str,
    unit: Option<&str>,
) -> Result<Answer, Refusal> {
    let Ok(within) = within.parse::<u32>() else {
        return bad_request("the period must be a number from 0");
    };
    let unit = unit.unwrap_or_default();
    let Some((_, seconds)) = PERIOD_UNITS.iter().find(|(name, _)| *name == unit) else {
        return bad_request("Time unit not recognised. Use: days, weeks, months, years.");
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let until = now.saturating_add(seconds.saturating_mul(within.into()));
    let of_file = |file: &wire::CertificateFile| {
        let (setting, path) = (file.setting.clone(), file.path.clone());
        let ends = file.certificates.iter().filter(|it| it.not_after_s <= until);
        let of = ends.map(|it| json!({ "setting": setting, "file": path, "subject": it.subject, "not_after": it.not_after_s }));
        let unread = json!({ "setting": setting, "file": path, "error": file.error });
        of.chain((!file.error.is_empty()).then_some(unread)).collect::<Vec<_>>()
    };
    let expired: Vec<Value> = files.iter().flat_map(of_file).collect();
    if expired.is_empty() {
        return Ok(ok());
    }
    Ok(failed("Certificates expiring", json!({ "expired": expired })))
}

/// Whether a client could be served: RabbitMQ's test publishes a message and gets it.
pub(crate) fn aliveness(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    call.vhost(api)?;
    let readiness = api.broker.views().readiness();
    Ok(if readiness.serves() { ok() } else { failed(&not_ready(&readiness), json!({})) })
}

/// Alarms of this node, or of all.
async fn alarms(api: &Api, cluster: bool) -> Answer {
    let mut nodes = vec![nodes::own(api)];
    let mut silent = Vec::new();
    if cluster {
        let listed = api.cluster.nodes().await;
        nodes.extend(listed.items);
        silent = listed.silent;
    }
    let shape =
        |node: &wire::Node, resource: &str| json!({ "node": node.name, "resource": resource });
    let all: Vec<Value> =
        nodes.iter().flat_map(|node| node.alarms.iter().map(|alarm| shape(node, alarm))).collect();
    let checked = match (all.is_empty(), cluster) {
        (true, _) => ok(),
        (false, true) => {
            failed("There are alarms in effect in the cluster", json!({ "alarms": all }))
        }
        (false, false) => {
            failed("There are alarms in effect on the node", json!({ "alarms": all }))
        }
    };
    checked.without(silent)
}

/// Whether this node listens on a port.
fn port(listeners: &[ListenerFacts], port: &str) -> Result<Answer, Refusal> {
    let Ok(port) = port.parse::<u16>() else { return bad_request("Invalid port") };
    if listeners.iter().any(|listener| listener.port == port) {
        return Ok(Answer::object(json!({ "status": "ok", "port": port })));
    }
    let ports: Vec<u16> = listeners.iter().map(|listener| listener.port).collect();
    Ok(failed("No active listener", json!({ "missing": port, "ports": ports })))
}

/// RabbitMQ's name of a protocol that a client writes in another way.
fn protocol(given: &str) -> String {
    let given = given.to_lowercase();
    match given.as_str() {
        "amqp091" | "amqp0.9.1" | "amqp0-9-1" | "amqp0_9_1" => "amqp".to_owned(),
        "amqps" => "amqp/ssl".to_owned(),
        "http1" | "http1.1" | "http_api" | "management" | "management_ui" => "http".to_owned(),
        _ => given,
    }
}

/// Whether this node serves protocols.
fn protocols(listeners: &[ListenerFacts], given: &str) -> Answer {
    let active: BTreeSet<&str> = listeners.iter().map(|listener| listener.protocol).collect();
    let wanted: BTreeSet<String> = given.split(',').map(protocol).collect();
    let missing: Vec<&String> =
        wanted.iter().filter(|wanted| !active.contains(wanted.as_str())).collect();
    if missing.is_empty() {
        return Answer::object(json!({ "status": "ok", "protocol": given, "protocols": active }));
    }
    failed("No active listener", json!({ "missing": missing, "protocols": active }))
}

fn all_vhosts(api: &Api) -> BTreeSet<VhostName> {
    api.broker.views().vhosts().into_iter().map(|record| record.name).collect()
}

/// A queue in the answer of a check.
fn queue(queue: &wire::Queue) -> Value {
    json!({
        "name": queue.name,
        "virtual_host": queue.vhost,
        "type": queue.queue_type,
        "readable_name": format!("queue '{}' in vhost '{}'", queue.name, queue.vhost),
    })
}

/// True if the queue has no majority without the node.
fn needs(queue: &wire::Queue, node: u32, behind: &BTreeSet<u32>) -> bool {
    let counts = |online: &&u32| **online != node && !behind.contains(online);
    let others = queue.online.iter().filter(counts).count();
    queue.online.contains(&node)
        && queue.id.is_some_and(|id| id.node == 0)
        && others * 2 <= queue.members.len()
}

/// Why a check fails that needs the list of queues and did not get it.
const UNREAD: &str = "The list of queues cannot be made";

/// Whether queues would lose their majority with this node.
async fn quorum(api: &Api, call: &Call) -> Answer {
    if api.cluster.view().members.len() <= 1 {
        let alone = json!({ "status": "ok", "reason": "single node cluster" });
        return Answer::object(alone);
    }
    let this = u32::from(api.facts.id.0);
    let (queues, nodes) =
        tokio::join!(api.cluster.own_queues(all_vhosts(api)), api.cluster.nodes());
    let Some(queues) = queues else { return failed(UNREAD, json!({ "queues": [] })) };
    // A replica that is still catching up after its start would keep its group waiting.
    let behind = nodes.items.iter().filter(|node| node.catching_up).map(|node| node.id).collect();
    let critical: Vec<Value> =
        queues.iter().filter(|one| needs(one, this, &behind)).map(queue).collect();
    if critical.is_empty() {
        return ok();
    }
    // Names of queues only to those who may see all of them.
    let critical = if call.caller.is_administrator() { critical } else { Vec::new() };
    let reason =
        "There are quorum queues that would lose their quorum if the target node is shut down";
    failed(reason, json!({ "queues": critical }))
}

fn cluster_size(api: &Api) -> Answer {
    let members = api.cluster.view().members;
    let (online, target) = (members.iter().filter(|member| member.running).count(), members.len());
    if online > 0 && online >= target {
        return ok();
    }
    let reason = format!("target cluster size not reached: {online} of {target} nodes are online");
    failed(&reason, json!({ "online": online, "target": target }))
}

/// Queues whose group has no leader, as far as this node knows.
async fn leaderless(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let seen = call.vhosts(api)?;
    let placement = api.cluster.view().placement.into_iter().filter(|it| !it.is_led);
    let groups: BTreeSet<u32> = placement.map(|it| u32::from(it.group.0)).collect();
    // Usually every group has a leader, and then the list of queues is not needed.
    if groups.is_empty() {
        return Ok(ok());
    }
    let vhosts = if call.name("vhost").is_some() { seen.clone() } else { all_vhosts(api) };
    // A queue that is bound to a connection is of no group.
    let is_leaderless = |id: wire::QueueId| id.node == 0 && groups.contains(&id.group);
    let Some(mut queues) = api.cluster.own_queues(vhosts).await else {
        return Ok(failed(UNREAD, json!({ "queues": [] })));
    };
    queues.retain(|one| one.id.is_some_and(is_leaderless));
    if queues.is_empty() {
        return Ok(ok());
    }
    // The health is that of all queues. Names only of those that the caller sees.
    let named = queues.iter().filter(|one| seen.iter().any(|vhost| vhost.as_str() == one.vhost));
    let named: Vec<Value> = named.map(queue).collect();
    let reason = "Detected quorum queues without an elected leader";
    Ok(failed(reason, json!({ "queues": named })))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::call::Content;

    fn listeners() -> [ListenerFacts; 2] {
        [(5672, "amqp"), (15672, "http")].map(|(port, protocol)| ListenerFacts {
            interface: "::".to_owned(),
            port,
            protocol,
            purpose: "",
        })
    }

    fn shown(answer: Answer) -> (u16, Value) {
        let Content::Object(value) = answer.content else { return (0, Value::Null) };
        (answer.status, value)
    }

    /// As in the golden replies.
    #[test]
    fn certificates_that_expire_are_named() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let of = |days: i64| wire::CertificateFacts {
            subject: "CN=a".to_owned(),
            not_after_s: now + days * 86_400,
            ..Default::default()
        };
        let file = wire::CertificateFile {
            setting: "tls_certificate_file".to_owned(),
            certificates: vec![of(10), of(400)],
            ..Default::default()
        };
        let status = |within, unit| {
            expiring(std::slice::from_ref(&file), within, Some(unit)).map(|it| it.status)
        };
        assert_eq!(status("9", "days").unwrap(), 200);
        assert_eq!(status("2", "weeks").unwrap(), 503);
        for (within, unit) in [("x", "days"), ("-1", "days"), ("1", "hours")] {
            assert!(matches!(status(within, unit), Err(Refusal::BadRequest(_))), "{within} {unit}");
        }
    }

    #[test]
    fn listeners_are_checked_by_port_and_protocol() {
        let port = |text| port(&listeners(), text).map(shown);
        assert_eq!(port("5672"), Ok((200, json!({ "status": "ok", "port": 5672 }))));
        let missing = json!({ "status": "failed", "reason": "No active listener", "missing": 1,
            "ports": [5672, 15672] });
        assert_eq!(port("1"), Ok((503, missing)));
        assert_eq!(port("x"), bad_request("Invalid port"));
        let status = |text| shown(protocols(&listeners(), text)).0;
        assert_eq!([status("amqp"), status("AMQP091,management"), status("mqtt")], [200, 200, 503]);
    }

    #[test]
    fn a_node_is_critical_for_queues_without_a_majority_of_others() {
        let queue = |members: &[u32], online: &[u32]| wire::Queue {
            id: Some(wire::QueueId { group: 1, ..wire::QueueId::default() }),
            members: members.to_vec(),
            online: online.to_vec(),
            ..wire::Queue::default()
        };
        let none = BTreeSet::new();
        assert!(!needs(&queue(&[1, 2, 3], &[1, 2, 3]), 1, &none));
        assert!(needs(&queue(&[1, 2, 3], &[1, 2, 3]), 1, &BTreeSet::from([3])), "it catches up");
        assert!(needs(&queue(&[1, 2, 3], &[1, 2]), 1, &none));
        assert!(!needs(&queue(&[1, 2, 3], &[2, 3]), 1, &none), "it is gone already");
        assert!(needs(&queue(&[1, 2], &[1, 2]), 1, &none));
        assert!(!needs(&queue(&[1, 2, 3, 4, 5], &[1, 2, 3, 4]), 1, &none));
    }
}
