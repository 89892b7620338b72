//! Client connections: `/api/connections` and below.

use crate::api::call::{Answer, Api, Call};
use crate::api::caller::Caller;
use crate::api::channels;
use crate::api::client::MECHANISM;
use crate::api::cluster::Listed;
use crate::api::json;
use crate::api::names::Names;
use crate::api::refusal::{Refusal, not_authorised};
use crate::api::route::Method;
use crate::api::statistics::{self, Book, Key};
use crate::wire::{self, SampledKind};
use quorate_broker::Closing;
use quorate_catalog::ConnectionId;
use quorate_types::{SessionId, StartNumber};
use serde_json::{Value, json};

/// How lists of connections are sorted.
const ORDER: &[&str] = &["vhost", "name"];
/// Reason of a closed connection, if who closes it gives none; RabbitMQ's.
const REASON: &str = "Closed via management plugin";

/// The name of a connection between these ends, by which it is looked up and closed.
pub(crate) fn name(peer: (&str, u32), local: (&str, u32)) -> String {
    let (peer_host, host) = (bracketed(peer.0), bracketed(local.0));
    format!("{peer_host}:{} -> {host}:{}", peer.1, local.1)
}

/// An address as names have it: one with colons in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn name_of(connection: &wire::Connection) -> String {
    name((&connection.peer_host, connection.peer_port), (&connection.host, connection.port))
}

/// A connection as lists show it.
fn shape(connection: &wire::Connection, names: &Names) -> Value {
    // One that carries out a request over HTTP has no frames.
    let is_direct = connection.mechanism == MECHANISM;
    let tls = connection.tls.clone().unwrap_or_default();
    let mut shown = json!({
        "name": name_of(connection),
        "node": names.name(connection.id.map_or(0, |id| id.node)),
        "type": if is_direct { "direct" } else { "network" },
        "protocol": if is_direct { "Direct 0-9-1" } else { "AMQP 0-9-1" },
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": connection.vhost,
        "state": connection.state,
        "channels": connection.channels,
        "channel_max": connection.channel_max,
        "frame_max": connection.frame_max,
        "timeout": connection.heartbeat_s,
        "connected_at": connection.connected_at_ms,
        "client_properties": json::table(&connection.client_properties),
        "peer_host": connection.peer_host,
        "peer_port": connection.peer_port,
        "host": connection.host,
        "port": connection.port,
        "recv_oct": connection.received_bytes,
        "recv_cnt": connection.reads,
        "send_oct": connection.sent_bytes,
        "send_cnt": connection.writes,
        "send_pend": connection.pending_bytes,
        "auth_mechanism": connection.mechanism,
        "ssl": connection.tls.is_some(),
    });
    let text = |text: String| if text.is_empty() { Value::Null } else { Value::from(text) };
    let of_tls = json!({
        "ssl_protocol": text(tls.protocol),
        "ssl_key_exchange": text(tls.key_exchange),
        "ssl_cipher": text(tls.cipher),
        "ssl_hash": Value::Null,
        "peer_cert_subject": text(tls.peer_subject),
        "peer_cert_issuer": text(tls.peer_issuer),
        "peer_cert_validity": text(tls.peer_validity),
    });
    // Clients give a name that tells more than the addresses.
    let given = shown.pointer("/client_properties/connection_name").cloned();
    if let (Some(fields), Value::Object(of_tls)) = (shown.as_object_mut(), of_tls) {
        fields.extend(of_tls);
        fields.extend(given.map(|given| ("user_provided_name".to_owned(), given)));
    }
    shown
}

/// The connections that the caller sees: its own, or all.
fn visible(call: &Call, connections: Vec<wire::Connection>) -> Vec<wire::Connection> {
    let vhost = call.name("vhost");
    let is_seen = |one: &wire::Connection| {
        vhost.is_none_or(|vhost| one.vhost == vhost)
            && (call.caller.is_monitor() || one.user == call.caller.user.as_str())
    };
    connections.into_iter().filter(is_seen).collect()
}

/// The connections of all virtual hosts or of one.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    if call.name("vhost").is_some() {
        call.vhost(api)?;
    }
    let spans = statistics::spans(call)?;
    let (listed, names, book) = tokio::join!(
        api.cluster.connections(),
        Names::of(api),
        Book::of(api, call, &spans, SampledKind::Connections),
    );
    let book = book?;
    let (connections, silent) = (visible(call, listed.items), book.silent.clone());
    let shown = move |one: &wire::Connection| {
        book.with(shape(one, &names), one.id.map(Key::of_connection).as_ref())
    };
    let items = move || connections.iter().map(shown).collect();
    Ok(Answer::list(ORDER, items).without(listed.silent).without(silent))
}

/// The connections of one user: lists or closes them.
pub(crate) async fn of_user(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let user = call.name("user").unwrap_or_default();
    let (listed, names) = tokio::join!(api.cluster.connections(), Names::of(api));
    let of_user: Vec<_> = listed.items.into_iter().filter(|one| one.user == user).collect();
    if call.method == Method::Delete {
        let mut open = listed.silent;
        for connection in &of_user {
            // The others are closed all the same.
            open.extend(close(api, call, connection).await.err());
        }
        return closed(open, &names);
    }
    let items = move || of_user.iter().map(|one| shape(one, &names)).collect();
    Ok(Answer::list(ORDER, items).without(listed.silent))
}

/// Whether the caller may read, or close, what belongs to that user.
pub(crate) fn check_owner(caller: &Caller, method: Method, user: &str) -> Result<(), Refusal> {
    let may = match method {
        Method::Get => caller.is_monitor(),
        Method::Put | Method::Post | Method::Delete => caller.is_administrator(),
    };
    if may || caller.user.as_str() == user { Ok(()) } else { Err(not_authorised()) }
}

/// The connection of the path, which the caller may read or close.
async fn known(
    api: &Api,
    call: &Call,
) -> Result<(wire::Connection, Listed<wire::Connection>), Refusal> {
    let wanted = call.name("connection").unwrap_or_default();
    let mut listed = api.cluster.connections().await;
    let found = listed.items.iter().position(|one| name_of(one) == wanted);
    let Some(found) = found else {
        // A connection that is not found may be one of a node that did not answer.
        let is_closed = call.method == Method::Delete && !listed.silent.is_empty();
        return Err(match is_closed {
            true => not_closed(listed.silent, &Names::known(api)),
            false => Refusal::NoObject,
        });
    };
    let connection = listed.items.swap_remove(found);
    check_owner(&call.caller, call.method, &connection.user)?;
    Ok((connection, listed))
}

/// One connection: reads or closes it.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (connection, listed) = known(api, call).await?;
    if call.method == Method::Get {
        let spans = statistics::spans(call)?;
        let (names, book) =
            tokio::join!(Names::of(api), Book::of(api, call, &spans, SampledKind::Connections),);
        let book = book?;
        let key = connection.id.map(Key::of_connection);
        let shown = book.with(shape(&connection, &names), key.as_ref());
        return Ok(Answer::object(shown).without(listed.silent).without(book.silent));
    }
    let open = close(api, call, &connection).await.err();
    closed(open.into_iter().collect(), &Names::known(api))
}

/// The answer to a request that closes connections, of which those of some nodes may be open still.
fn closed(open: Vec<u32>, names: &Names) -> Result<Answer, Refusal> {
    if open.is_empty() { Ok(Answer::done()) } else { Err(not_closed(open, names)) }
}

/// 503: these nodes did not answer, so that connections of theirs may be open.
fn not_closed(mut nodes: Vec<u32>, names: &Names) -> Refusal {
    nodes.sort_unstable();
    nodes.dedup();
    let nodes = names.all(&nodes).join(", ");
    Refusal::Unavailable(format!("connections may still be open: no answer from {nodes}"))
}

/// Closes a connection. One that has gone meanwhile is closed too.
///
/// # Errors
/// The node of the connection, which does not answer.
async fn close(api: &Api, call: &Call, connection: &wire::Connection) -> Result<(), u32> {
    let reason = call.reason.as_deref().unwrap_or(REASON);
    let Some(id) = connection.id else { return Ok(()) };
    if id.node == u32::from(api.facts.id.0) {
        let session = SessionId { node: api.facts.id, start: StartNumber(id.start) };
        let which = Closing::One(ConnectionId { session, number: id.number });
        let _ = api.broker.operator().close_connections(&which, 1, reason);
        return Ok(());
    }
    api.cluster.close(id, reason).await.map_err(|error| {
        tracing::warn!(
            node = id.node,
            error = error.message(),
            "a connection of another node was not closed"
        );
        id.node
    })
}

/// The channels of one connection.
pub(crate) async fn channels(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (connection, known) = known(api, call).await?;
    let spans = statistics::spans(call)?;
    let (listed, names, book) = tokio::join!(
        api.cluster.channels(),
        Names::of(api),
        Book::of(api, call, &spans, SampledKind::Channels),
    );
    let book = book?;
    let of_connection =
        listed.items.into_iter().filter(move |channel| channel.connection == connection.id);
    let items: Vec<_> = of_connection
        .map(|channel| {
            book.with(channels::shape(&channel, &names), Key::of_channel(&channel).as_ref())
        })
        .collect();
    let silent = listed.silent.into_iter().chain(known.silent).chain(book.silent);
    Ok(Answer::list(ORDER, move || items).without(silent))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::tests::{caller, names};

    #[test]
    fn a_connection_is_named_by_its_ends() {
        assert_eq!(name(("10.0.0.1", 5), ("10.0.0.2", 6)), "10.0.0.1:5 -> 10.0.0.2:6");
        assert_eq!(name(("::1", 5), ("::1", 6)), "[::1]:5 -> [::1]:6");
    }

    /// The keys that clients need (management.md, section 2.2), and those of its TLS.
    #[test]
    fn a_connection_has_what_clients_need() {
        let connection = wire::Connection {
            id: Some(wire::ConnectionId { node: 2, start: 1, number: 1 }),
            user: "u".to_owned(),
            mechanism: "PLAIN".to_owned(),
            ..wire::Connection::default()
        };
        let shown = shape(&connection, &names());
        let get = |name: &str| shown.get(name).cloned().unwrap();
        assert_eq!((get("node"), get("user")), (json!("rabbit2@b"), json!("u")));
        assert_eq!((get("protocol"), get("type")), (json!("AMQP 0-9-1"), json!("network")));
        assert_eq!((get("ssl"), get("ssl_protocol")), (json!(false), Value::Null));
        assert_eq!(get("connected_at"), json!(0));
        assert_eq!(get("client_properties"), json!({}));
        let over_http = wire::Connection { mechanism: MECHANISM.to_owned(), ..connection };
        assert_eq!(shape(&over_http, &names()).get("type"), Some(&json!("direct")));
    }

    #[test]
    fn a_node_that_does_not_answer_may_have_open_connections() {
        assert_eq!(closed(Vec::new(), &names()).unwrap().status, 204);
        let refused = closed(vec![2, 1, 2], &names()).unwrap_err();
        let text = "connections may still be open: no answer from rabbit1@a, rabbit2@b";
        assert_eq!(refused, Refusal::Unavailable(text.to_owned()));
    }

    #[test]
    fn a_user_reads_and_closes_its_own_connections_only() {
        let check =
            |tag: &'static str, method, user| check_owner(&caller(tag), method, user).is_ok();
        for method in [Method::Get, Method::Delete] {
            assert!(check("management", method, "me"));
            assert!(!check("management", method, "other"));
            assert!(check("administrator", method, "other"));
        }
        assert!(check("monitoring", Method::Get, "other"));
        assert!(!check("monitoring", Method::Delete, "other"));
    }
}
