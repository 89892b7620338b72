//! Virtual hosts: `/api/vhosts` and below.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, Call};
use crate::api::cluster::KnownQueue;
use crate::api::counts::Messages;
use crate::api::names::Names;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::Method;
use crate::api::statistics::{self, Book, Key};
use crate::wire::SampledKind;
use quorate_catalog::{AccessCommand, PermissionRecord, VhostMetadata, VhostRecord, VhostUpdate};
use quorate_types::{QueueType, ShortString, VhostName};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How lists of virtual hosts are sorted.
const ORDER: &[&str] = &["name"];

/// A virtual host as lists show it. `messages` are those in its queues, if they were asked for.
fn shape(record: &VhostRecord, messages: Option<Messages>, nodes: &[String]) -> Value {
    let metadata = &record.metadata;
    let tags: Vec<_> = metadata.tags.iter().map(ShortString::as_str).collect();
    let queue_type = metadata.default_queue_type.map_or("undefined", QueueType::name);
    let states: Map<String, Value> =
        nodes.iter().map(|node| (node.clone(), Value::from("running"))).collect();
    let mut shown = json!({
        "name": record.name.as_str(),
        "description": metadata.description,
        "tags": tags,
        "default_queue_type": queue_type,
        "metadata": {
            "description": metadata.description,
            "tags": tags,
            "default_queue_type": queue_type,
            "protected_from_deletion": record.protected,
        },
        "tracing": record.tracing,
        "protected_from_deletion": record.protected,
        "cluster_state": states,
    });
    if let (Some(messages), Some(fields)) = (messages, shown.as_object_mut()) {
        fields.insert("messages".to_owned(), messages.all().into());
        fields.insert("messages_ready".to_owned(), messages.ready.into());
        fields.insert("messages_unacknowledged".to_owned(), messages.unacknowledged.into());
    }
    shown
}

/// The messages of each virtual host.
fn totals(queues: &[KnownQueue]) -> BTreeMap<&str, Messages> {
    let mut totals: BTreeMap<&str, Messages> = BTreeMap::new();
    for known in queues {
        let counts = known.queue.counts.unwrap_or_default();
        totals.entry(known.queue.vhost.as_str()).or_default().add(&counts);
    }
    totals
}

/// The records as values, and the nodes that did not answer.
async fn shown(
    api: &Api,
    call: &Call,
    records: Vec<VhostRecord>,
) -> Result<(Vec<Value>, Vec<u32>), Refusal> {
    let spans = statistics::spans(call)?;
    let with_totals = !call.query.is_true("disable_stats");
    let vhosts: BTreeSet<VhostName> = match with_totals {
        true => records.iter().map(|record| record.name.clone()).collect(),
        false => BTreeSet::new(),
    };
    let (queues, names, book) = tokio::join!(
        api.cluster.queues(&vhosts),
        Names::of(api),
        Book::of(api, call, &spans, SampledKind::Vhosts),
    );
    let book = book?;
    let members = api.cluster.view().members;
    let running = members.iter().filter(|member| member.running);
    let nodes: Vec<String> =
        running.map(|member| names.name(u32::from(member.id.0)).to_owned()).collect();
    let totals = totals(&queues.items);
    let value = |record: &VhostRecord| {
        let messages = totals.get(record.name.as_str()).copied().unwrap_or_default();
        let shown = shape(record, with_totals.then_some(messages), &nodes);
        book.with(shown, Some(&Key::Vhost(record.name.to_string())))
    };
    let items = records.iter().map(value).collect();
    Ok((items, queues.silent.into_iter().chain(book.silent).collect()))
}

/// The virtual hosts that the caller may use; all of them for a monitor.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let mut records = api.broker.views().vhosts();
    if !call.caller.is_monitor() {
        let usable = api.broker.lookup().usable_vhosts(&call.caller.user);
        records.retain(|record| usable.contains(&record.name));
    }
    let (items, silent) = shown(api, call, records).await?;
    Ok(Answer::list(ORDER, move || items).without(silent))
}

/// One virtual host: reads, makes, changes or deletes it.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::Get => {
            let name = call.vhost(api)?;
            let mut records = api.broker.views().vhosts();
            records.retain(|record| record.name == name);
            let (mut items, silent) = shown(api, call, records).await?;
            Ok(Answer::object(items.pop().ok_or(Refusal::NoObject)?).without(silent))
        }
        Method::Put | Method::Post => put(api, call).await,
        Method::Delete => {
            let vhost = call.vhost(api)?;
            let delete = AccessCommand::DeleteVhost { vhost };
            api.broker.operator().change_access(delete).await?;
            Ok(Answer::done())
        }
    }
}

/// What a request says of a virtual host; and whether it is traced, if it says so.
fn given(fields: &Fields) -> Result<(VhostUpdate, Option<bool>), Refusal> {
    let queue_type = match fields.optional_text("default_queue_type")? {
        None => fields.optional_text("defaultqueuetype")?,
        given => given,
    };
    let default_queue_type = match queue_type {
        None | Some("undefined") => None,
        Some("classic" | "rabbit_classic_queue") => Some(QueueType::Classic),
        Some("quorum" | "rabbit_quorum_queue") => Some(QueueType::Quorum),
        Some(other) => return bad_request(format!("invalid default_queue_type '{other}'")),
    };
    let update = VhostUpdate {
        description: fields.optional_text("description")?.map(str::to_owned),
        tags: fields.words("tags")?,
        default_queue_type,
    };
    let tracing = fields.get("tracing").map(|_| fields.flag("tracing", false)).transpose()?;
    Ok((update, tracing))
}

async fn put(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.new_name("vhost")?;
    if vhost.is_empty() {
        return bad_request("a virtual host needs a name");
    }
    let (update, tracing) = given(&call.fields()?)?;
    let operator = api.broker.operator();
    let was_there = api.broker.lookup().has_vhost(&vhost);
    let set_tracing = tracing.map(|tracing| {
        let vhost = vhost.clone();
        AccessCommand::SetTracing { vhost, tracing }
    });
    if was_there {
        let update = AccessCommand::UpdateVhost { vhost, update };
        operator.change_access_at_once(update, set_tracing.into_iter().collect()).await?;
    } else {
        let VhostUpdate { description, tags, default_queue_type } = update;
        let metadata = VhostMetadata {
            description: description.unwrap_or_default(),
            tags: tags.unwrap_or_default(),
            default_queue_type,
        };
        // As in RabbitMQ, who makes a virtual host may use it.
        let [configure, write, read] = [".*"; 3].map(str::to_owned);
        let user = call.caller.user.clone();
        let all = PermissionRecord { vhost: vhost.clone(), user, configure, write, read };
        let further = [AccessCommand::SetPermissions(all)].into_iter().chain(set_tracing).collect();
        operator
            .change_access_at_once(AccessCommand::AddVhost { vhost, metadata }, further)
            .await?;
    }
    Ok(Answer::put(!was_there))
}

/// Protects a virtual host from deletion, or lifts the protection.
pub(crate) async fn protection(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    let protected = match call.method {
        Method::Put | Method::Post => true,
        Method::Delete => false,
        Method::Get => return Err(Refusal::NoObject),
    };
    let set = AccessCommand::SetProtection { vhost, protected };
    api.broker.operator().change_access(set).await?;
    Ok(Answer::done())
}

/// Starts a virtual host on a node, where it runs anyhow.
pub(crate) async fn start(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    call.vhost(api)?;
    let names = Names::of(api).await;
    names.id(call.name("node").unwrap_or_default()).ok_or(Refusal::NoObject)?;
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::tests::assert_has_keys;
    use quorate_catalog::VhostLimits;
    use quorate_types::CatalogIndex;

    #[test]
    fn a_vhost_has_the_keys_of_rabbitmqs() {
        let record = VhostRecord {
            name: ShortString::from_static("/"),
            created: CatalogIndex(0),
            metadata: VhostMetadata::default(),
            limits: VhostLimits::default(),
            tracing: false,
            protected: false,
        };
        let nodes = ["rabbit1@a".to_owned()];
        let messages = Messages { ready: 3, unacknowledged: 2, delayed: 1, dead_letters: 0 };
        let shown = shape(&record, Some(messages), &nodes);
        let without = [
            "message_stats",
            "messages_details",
            "messages_ready_details",
            "messages_unacknowledged_details",
            "recv_oct",
            "recv_oct_details",
            "send_oct",
            "send_oct_details",
        ];
        assert_has_keys(&shown, include_str!("gold/vhosts.json"), &without);
        assert_eq!(shown.get("messages"), Some(&json!(6)));
        assert_eq!(shown.get("cluster_state"), Some(&json!({ "rabbit1@a": "running" })));
        assert_eq!(shape(&record, None, &nodes).get("messages"), None);
    }

    #[test]
    fn a_vhost_is_given_with_its_metadata() {
        let parse = |body: &str| given(&Fields::parse(body.as_bytes()).unwrap());
        assert_eq!(parse(""), Ok((VhostUpdate::default(), None)));
        let (update, tracing) = parse(
            r#"{"description":"d","tags":"a,b","default_queue_type":"quorum","tracing":"true"}"#,
        )
        .unwrap();
        assert_eq!(update.default_queue_type, Some(QueueType::Quorum));
        assert_eq!((update.tags.unwrap().len(), tracing), (2, Some(true)));
        for wrong in [r#"{"default_queue_type":"x"}"#, r#"{"tags":1}"#, r#"{"tracing":"x"}"#] {
            assert!(matches!(parse(wrong), Err(Refusal::BadRequest(_))), "{wrong}");
        }
    }
}
