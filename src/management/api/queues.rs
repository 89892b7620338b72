//! Queues: `/api/queues` and below.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, BY_NAME, Call};
use crate::api::client::perform;
use crate::api::cluster::KnownQueue;
use crate::api::consumers::{self, Channels};
use crate::api::json;
use crate::api::list::Rows;
use crate::api::names::Names;
use crate::api::refusal::Refusal;
use crate::api::route::Method;
use crate::wire;
use quorate_client::{Operation, QueueDeclare};
use quorate_types::{ResourceName, ShortString};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The policies of a queue, null where none is in force.
fn policy(name: &str) -> Value {
    if name.is_empty() { Value::Null } else { Value::from(name) }
}

/// What RabbitMQ calls the state of a queue whose leader has, or has not, answered.
fn state(queue: &wire::Queue, fresh: bool) -> &'static str {
    match (fresh, queue.online.len() * 2 > queue.members.len()) {
        (true, _) => "running",
        (false, true) => "down",
        (false, false) => "minority",
    }
}

/// A queue as lists show it. Counts that are not known are 0, and the state is not `running`.
pub(crate) fn shape(known: &KnownQueue, names: &Names) -> Value {
    let queue = &known.queue;
    let counts = queue.counts.unwrap_or_default();
    // The members are in the order of their ids: any is better than no node at all.
    let home = [queue.leader].into_iter().chain(queue.members.first().copied());
    let node = home.map(|id| names.name(id)).find(|name| !name.is_empty()).unwrap_or_default();
    let definition: Value =
        serde_json::from_str(&queue.effective_policy_definition).unwrap_or_else(|_| json!({}));
    let messages = counts.ready.saturating_add(counts.unacknowledged);
    let bytes = counts.ready_bytes.saturating_add(counts.unacknowledged_bytes);
    // Whatever its delivery mode, a message in a durable queue survives.
    let persistent = if queue.durable { (messages, bytes) } else { (0, 0) };
    let mut shown = json!({
        "name": queue.name,
        "vhost": queue.vhost,
        "type": queue.queue_type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner.is_some(),
        "arguments": json::table(&queue.arguments),
        "node": node,
        "leader": node,
        "members": names.all(&queue.members),
        "online": names.all(&queue.online),
        "state": state(queue, known.fresh),
        "policy": policy(&queue.policy),
        "operator_policy": policy(&queue.operator_policy),
        "effective_policy_definition": definition,
        "messages": messages,
        "messages_ready": counts.ready,
        "messages_unacknowledged": counts.unacknowledged,
        "messages_persistent": persistent.0,
        "messages_ram": 0,
        "messages_dlx": counts.dead_letters_waiting,
        "message_bytes": bytes,
        "message_bytes_ready": counts.ready_bytes,
        "message_bytes_unacknowledged": counts.unacknowledged_bytes,
        "message_bytes_persistent": persistent.1,
        "message_bytes_ram": 0,
        "consumers": counts.consumers,
        "memory": counts.memory_bytes,
    });
    if let (Some(owner), Some(fields)) = (queue.owner, shown.as_object_mut()) {
        let owner = format!("<{}.{}.{}>", names.name(owner.node), owner.start, owner.number);
        fields.insert("owner_pid_details".to_owned(), json!({ "name": owner }));
    }
    shown
}

/// The queues of virtual hosts.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhosts = call.vhosts(api)?;
    let (listed, names) = tokio::join!(api.cluster.queues(&vhosts), Names::of(api));
    let queues = Arc::new(listed.items);
    let named = Arc::clone(&queues);
    let name = |known: &KnownQueue| json!({ "name": known.queue.name, "vhost": known.queue.vhost });
    let rows = Rows {
        count: queues.len(),
        names: Box::new(move |row| named.get(row).map(name).unwrap_or_default()),
        object: Box::new(move |row| {
            queues.get(row).map(|known| shape(known, &names)).unwrap_or_default()
        }),
    };
    Ok(Answer::rows(BY_NAME, rows).without(listed.silent))
}

/// One queue: reads, makes or deletes it.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::Get => read(api, call).await,
        Method::Put | Method::Post => declare(api, call).await,
        Method::Delete => delete(api, call).await,
    }
}

async fn read(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = call.resource(api, "queue")?;
    let (known, names) = tokio::join!(api.cluster.queue(&name), Names::of(api));
    let known = known.ok_or(Refusal::NoObject)?;
    // An autoscaler would take 0 for the truth.
    let Some(counts) = known.queue.counts else {
        let text = format!("the leader of queue {name} does not answer");
        return Err(Refusal::Unavailable(text));
    };
    // A queue is asked for often, and mostly for its counts.
    let (details, silent) = match counts.consumers {
        0 => (Vec::new(), Vec::new()),
        _ => consumer_details(api, &name, &known, &names).await,
    };
    let mut shown = shape(&known, &names);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("consumer_details".to_owned(), Value::Array(details));
        fields.insert("deliveries".to_owned(), json!([]));
        fields.insert("incoming".to_owned(), json!([]));
    }
    Ok(Answer::object(shown).without(silent))
}

/// The consumers of a queue, and the nodes that did not answer.
async fn consumer_details(
    api: &Api,
    name: &ResourceName,
    known: &KnownQueue,
    names: &Names,
) -> (Vec<Value>, Vec<u32>) {
    let vhosts = BTreeSet::from([name.vhost.clone()]);
    let (consumers, channels) =
        tokio::join!(api.cluster.consumers(&vhosts), api.cluster.channels());
    let of_queue = consumers.items.iter().filter(|one| one.consumer.queue == known.queue.name);
    let timeout = consumers::timeout_ms(&known.queue);
    let channels = Channels::of(&channels.items);
    let shape = |one| consumers::shape(one, timeout, &channels, names);
    (of_queue.map(shape).collect(), consumers.silent)
}

/// The declare of a queue, as its request says.
fn declaration(queue: ShortString, fields: &Fields) -> Result<QueueDeclare, Refusal> {
    Ok(QueueDeclare {
        queue,
        durable: fields.flag("durable", false)?,
        exclusive: false,
        auto_delete: fields.flag("auto_delete", false)?,
        arguments: fields.arguments()?,
    })
}

async fn declare(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    let declare = declaration(call.new_name("queue")?, &call.fields()?)?;
    let name = ResourceName { vhost, name: declare.queue.clone() };
    let was_there = api.broker.lookup().queue(&name).is_some();
    perform(&api.broker, &call.caller, &name.vhost, Operation::QueueDeclare(declare)).await?;
    Ok(Answer::put(!was_there))
}

/// The name of a queue that is there.
fn known(api: &Api, call: &Call) -> Result<ResourceName, Refusal> {
    let name = call.resource(api, "queue")?;
    // AMQP takes a missing queue for deleted already, HTTP does not.
    match api.broker.lookup().queue(&name) {
        Some(_) => Ok(name),
        None => Err(Refusal::NoObject),
    }
}

async fn delete(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let ResourceName { vhost, name: queue } = known(api, call)?;
    let (if_unused, if_empty) = (call.query.is_true("if-unused"), call.query.is_true("if-empty"));
    let delete = Operation::QueueDelete { queue, if_unused, if_empty };
    perform(&api.broker, &call.caller, &vhost, delete).await?;
    Ok(Answer::done())
}

/// Purges a queue.
pub(crate) async fn purge(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let ResourceName { vhost, name } = known(api, call)?;
    perform(&api.broker, &call.caller, &vhost, Operation::QueuePurge(name)).await?;
    Ok(Answer::done())
}

/// What each replica of a queue says of itself.
pub(crate) async fn status(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = call.resource(api, "queue")?;
    let (known, nodes, names) =
        tokio::join!(api.cluster.queue(&name), api.cluster.nodes(), Names::of(api));
    let queue = known.ok_or(Refusal::NoObject)?.queue;
    let group = queue.id.map_or(0, |id| id.group);
    let own = crate::api::nodes::own(api);
    let of_node = |node: &wire::Node| {
        let replica = node.groups.iter().find(|replica| replica.group == group)?;
        Some(json!({
            "Node Name": names.name(node.id),
            "Raft State": replica.role,
            "Membership": "voter",
            "Last Log Index": replica.last,
            "Last Written": replica.last,
            "Last Applied": replica.applied,
            "Commit Index": replica.applied,
            "Snapshot Index": replica.purged,
            "Term": replica.term,
            "Machine Version": node.machine_newest,
        }))
    };
    let replicas: Vec<Value> = [&own].into_iter().chain(&nodes.items).filter_map(of_node).collect();
    Ok(Answer::object(Value::Array(replicas)).without(nodes.silent))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::tests::{assert_has_keys, names};

    /// Keys of RabbitMQ's reply that have no meaning here, or that are known only from samples.
    const WITHOUT: &[&str] = &[
        "consumer_capacity",
        "consumer_details",
        "consumer_utilisation",
        "deliveries",
        "garbage_collection",
        "incoming",
        "message_bytes_dlx",
        "message_stats",
        "messages_details",
        "messages_ready_details",
        "messages_unacknowledged_details",
        "open_files",
        "reductions",
        "reductions_details",
        "single_active_consumer_ctag",
    ];

    fn known(counts: Option<wire::QueueCounts>, fresh: bool) -> KnownQueue {
        let queue = wire::Queue {
            name: "q".to_owned(),
            vhost: "/".to_owned(),
            queue_type: "quorum".to_owned(),
            durable: true,
            leader: 1,
            members: vec![1, 2],
            online: vec![1],
            counts,
            ..wire::Queue::default()
        };
        KnownQueue { queue, fresh }
    }

    #[test]
    fn a_queue_has_the_keys_of_rabbitmqs() {
        let counts = wire::QueueCounts { ready: 3, unacknowledged: 2, ..Default::default() };
        let shown = shape(&known(Some(counts), true), &names());
        assert_has_keys(&shown, include_str!("gold/queue.json"), WITHOUT);
        let get = |name: &str| shown.get(name).cloned().unwrap();
        assert_eq!(get("messages"), json!(5));
        assert_eq!((get("node"), get("state")), (json!("rabbit1@a"), json!("running")));
        assert_eq!((get("policy"), get("arguments")), (Value::Null, json!({})));
        assert_eq!(get("effective_policy_definition"), json!({}));
    }

    /// A missing count would be taken for 0 without a sign that it is none.
    #[test]
    fn a_queue_without_counts_has_them_but_does_not_run() {
        let shown = shape(&known(None, false), &names());
        assert_eq!(shown.get("messages"), Some(&json!(0)));
        assert_eq!(shown.get("state"), Some(&json!("minority")));
    }

    #[test]
    fn a_declare_says_what_it_wants() {
        let parse = |body: &str| {
            let fields = Fields::parse(body.as_bytes()).unwrap();
            declaration(ShortString::from_static("q"), &fields)
        };
        assert!(!parse("").unwrap().durable);
        let declare =
            parse(r#"{"durable":true,"auto_delete":"true","arguments":{"x":1}}"#).unwrap();
        assert!(declare.durable && declare.auto_delete);
        assert_eq!(declare.arguments.0.len(), 1);
        for wrong in [r#"{"durable":1}"#, r#"{"arguments":[1]}"#, r#"{"auto_delete":"x"}"#] {
            assert!(matches!(parse(wrong), Err(Refusal::BadRequest(_))), "{wrong}");
        }
    }
}
