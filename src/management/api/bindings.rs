//! Bindings: `/api/bindings` and below, and those of an exchange or a queue.

use crate::api::call::{Answer, Api, Call};
use crate::api::client::perform;
use crate::api::exchanges::{exchange_name, named};
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::{Endpoint, Method};
use crate::api::uri;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::BytesMut;
use quorate_broker::view::BindingView;
use quorate_catalog::arguments_to_json;
use quorate_client::{BindRequest, Operation};
use quorate_types::{FieldTable, ResourceName, ShortString, VhostName};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// How lists of bindings are sorted.
const ORDER: &[&str] = &["vhost", "source", "destination", "routing_key", "properties_key"];
/// Bytes of the hash of a binding's arguments in its key.
const HASH_BYTES: usize = 6;

/// A hash of a binding's arguments, of letters that stand for themselves in a path; empty without
/// arguments.
fn hash(arguments: &FieldTable) -> String {
    if arguments.is_empty() {
        return String::new();
    }
    let mut bytes = BytesMut::new();
    arguments.encode_content(&mut bytes);
    let digest = Sha256::digest(&bytes);
    URL_SAFE_NO_PAD.encode(digest.get(..HASH_BYTES).unwrap_or_default())
}

/// The key that tells a binding from others of its source and destination: the routing key,
/// encoded, and a hash of the arguments if it has any. Clients take it as it is.
pub(crate) fn properties_key(routing_key: &str, arguments: &FieldTable) -> String {
    let (key, hash) = (uri::encoded(routing_key), hash(arguments));
    if key.is_empty() || !hash.is_empty() { format!("{key}~{hash}") } else { key }
}

/// Whether a key is that of the binding. Some clients put it into a path as it is, so that it is
/// decoded once too often.
fn is_key_of(given: &str, binding: &BindingView) -> bool {
    let (key, given_hash) = given.split_once('~').unwrap_or((given, ""));
    let is_key = uri::decoded(key, true).is_some_and(|key| key == binding.key.as_str());
    is_key && given_hash == hash(&binding.arguments)
}

/// A binding as lists show it.
fn shape(binding: &BindingView) -> Value {
    json!({
        "source": binding.source.name.as_str(),
        "vhost": binding.source.vhost.as_str(),
        "destination": binding.destination.as_str(),
        "destination_type": if binding.to_queue { "queue" } else { "exchange" },
        "routing_key": binding.key.as_str(),
        "arguments": arguments_to_json(&binding.arguments),
        "properties_key": properties_key(binding.key.as_str(), &binding.arguments),
    })
}

/// Which bindings of a virtual host a list is about.
#[derive(Clone, Debug)]
enum Part {
    All,
    From(ShortString),
    /// To a queue, or else to an exchange.
    To(ShortString, bool),
    Between(ShortString, ShortString, bool),
}

impl Part {
    fn has(&self, binding: &BindingView) -> bool {
        match self {
            Self::All => true,
            Self::From(source) => binding.source.name == *source,
            Self::To(destination, to_queue) => {
                binding.destination == *destination && binding.to_queue == *to_queue
            }
            Self::Between(source, destination, to_queue) => {
                binding.source.name == *source
                    && binding.destination == *destination
                    && binding.to_queue == *to_queue
            }
        }
    }

    /// The queue whose binding to the default exchange is a part; `None`: that of every queue.
    fn default_of(&self) -> Option<Option<&ShortString>> {
        match self {
            Self::All => Some(None),
            Self::From(source) => source.is_empty().then_some(None),
            Self::To(queue, true) => Some(Some(queue)),
            Self::Between(source, queue, true) if source.is_empty() => Some(Some(queue)),
            Self::To(_, false) | Self::Between(..) => None,
        }
    }
}

/// The binding of a queue to the default exchange, which is implicit (EXC-01).
fn default_binding(vhost: &VhostName, queue: &ShortString) -> BindingView {
    BindingView {
        source: ResourceName { vhost: vhost.clone(), name: ShortString::EMPTY },
        destination: queue.clone(),
        to_queue: true,
        key: queue.clone(),
        arguments: FieldTable::default(),
    }
}

/// The bindings of a virtual host that a list is about.
fn collect(api: &Api, vhost: &VhostName, part: &Part) -> Vec<BindingView> {
    let (views, lookup) = (api.broker.views(), api.broker.lookup());
    let named = |name: &ShortString| ResourceName { vhost: vhost.clone(), name: name.clone() };
    let mut bindings = match part {
        Part::All => views.bindings(vhost),
        Part::From(source) => lookup.bindings_from(&named(source)),
        Part::To(queue, true) | Part::Between(_, queue, true) => {
            lookup.bindings_of_queue(&named(queue))
        }
        Part::To(exchange, false) | Part::Between(_, exchange, false) => {
            lookup.bindings_to(&named(exchange))
        }
    };
    bindings.retain(|binding| part.has(binding));
    match part.default_of() {
        None => {}
        Some(None) => {
            let queues = views.queues(vhost).into_iter();
            bindings.extend(queues.map(|queue| default_binding(vhost, &queue.name.name)));
        }
        Some(Some(queue)) => {
            let queue = lookup.queue(&named(queue));
            bindings.extend(queue.map(|queue| default_binding(vhost, &queue.name.name)));
        }
    }
    bindings
}

/// Whether the destination of the path is a queue.
fn is_queue(call: &Call) -> Result<bool, Refusal> {
    match call.name("kind") {
        Some("q") => Ok(true),
        Some("e") => Ok(false),
        Some(_) | None => Err(Refusal::NoObject),
    }
}

/// Source and destination of the path.
fn between(call: &Call) -> Result<Part, Refusal> {
    let source = named(call.short("source")?)?;
    Ok(Part::Between(source, call.short("destination")?, is_queue(call)?))
}

/// What the path is about. As in RabbitMQ, an exchange or queue that is not there has no bindings.
fn part(call: &Call, which: Endpoint) -> Result<Part, Refusal> {
    if which == Endpoint::BindingsFrom {
        return Ok(Part::From(exchange_name(call)?));
    }
    if which == Endpoint::BindingsTo {
        return Ok(Part::To(exchange_name(call)?, false));
    }
    if which == Endpoint::BindingsOfQueue {
        return Ok(Part::To(call.short("queue")?, true));
    }
    if which == Endpoint::BindingsBetween { between(call) } else { Ok(Part::All) }
}

/// The bindings of virtual hosts, of an exchange, of a queue, or of two of them; or makes one of the
/// latter.
pub(crate) async fn list(api: &Api, call: &Call, which: Endpoint) -> Result<Answer, Refusal> {
    if call.method == Method::Post {
        return bind(api, call).await;
    }
    let part = part(call, which)?;
    let (vhosts, api) = (call.vhosts(api)?, api.clone());
    Ok(Answer::list(ORDER, move || {
        let bindings = vhosts.iter().flat_map(|vhost| collect(&api, vhost, &part));
        bindings.map(|binding| shape(&binding)).collect()
    }))
}

/// One binding: reads or deletes it.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    let key = call.name("props").unwrap_or_default();
    let bindings = collect(api, &vhost, &between(call)?);
    let is_meant = |one: &BindingView| is_key_of(key, one);
    let binding = bindings.into_iter().find(is_meant).ok_or(Refusal::NoObject)?;
    if call.method == Method::Get {
        return Ok(Answer::object(shape(&binding)));
    }
    let to_queue = binding.to_queue;
    let unbind = BindRequest {
        destination: binding.destination,
        source: binding.source.name,
        routing_key: binding.key,
        arguments: binding.arguments,
    };
    let unbind = match to_queue {
        true => Operation::QueueUnbind(unbind),
        false => Operation::ExchangeUnbind(unbind),
    };
    perform(&api.broker, &call.caller, &vhost, unbind).await?;
    Ok(Answer::done())
}

async fn bind(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (vhost, fields) = (call.vhost(api)?, call.fields()?);
    let Ok(to_queue) = is_queue(call) else { return bad_request("the destination is e or q") };
    let bind = BindRequest {
        destination: call.new_name("destination")?,
        source: named(call.new_name("source")?)?,
        routing_key: fields.short_or_empty("routing_key")?,
        arguments: fields.arguments()?,
    };
    let key = properties_key(bind.routing_key.as_str(), &bind.arguments);
    let location = format!("{}/{}", uri::segment(bind.destination.as_str()), uri::segment(&key));
    let bind = if to_queue { Operation::QueueBind(bind) } else { Operation::ExchangeBind(bind) };
    perform(&api.broker, &call.caller, &vhost, bind).await?;
    Ok(Answer::made_at(location))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::assert_has_keys;
    use quorate_types::FieldValue;

    fn name(text: &'static str) -> ShortString {
        ShortString::from_static(text)
    }

    fn binding(source: &'static str, destination: &'static str, to_queue: bool) -> BindingView {
        BindingView {
            source: ResourceName { vhost: name("/"), name: name(source) },
            destination: name(destination),
            to_queue,
            key: name("a b/c"),
            arguments: FieldTable(vec![(name("x"), FieldValue::I64(1))]),
        }
    }

    /// As in the golden replies, but for the hash.
    #[test]
    fn a_key_is_the_routing_key_and_a_hash_of_the_arguments() {
        let none = FieldTable::default();
        assert_eq!(properties_key("", &none), "~");
        assert_eq!(properties_key("order.#", &none), "order.%23");
        let arguments = |value| FieldTable(vec![(name("x"), FieldValue::I64(value))]);
        let key = properties_key("a b/c", &arguments(1));
        assert!(key.starts_with("a+b%2Fc~") && key.len() == "a+b%2Fc~".len() + 8, "{key}");
        assert_eq!(key, properties_key("a b/c", &arguments(1)));
        assert_ne!(key, properties_key("a b/c", &arguments(2)));
        assert!(properties_key("", &arguments(1)).starts_with('~'));
        assert!(uri::segment(&key).starts_with("a%2Bb%252Fc~"));
    }

    #[test]
    fn a_key_finds_its_binding_encoded_or_not() {
        let one = binding("x", "q", true);
        let key = properties_key(one.key.as_str(), &one.arguments);
        assert!(is_key_of(&key, &one) && is_key_of(&key.replace("%2F", "/"), &one));
        let plain = BindingView { arguments: FieldTable::default(), ..one.clone() };
        assert!(is_key_of("a+b%2Fc", &plain) && !is_key_of("a+b%2Fc", &one));
        assert!(!is_key_of("~", &one) && !is_key_of("b~", &one) && !is_key_of("%", &plain));
        let empty = BindingView { key: name(""), ..plain };
        assert!(is_key_of("~", &empty));
    }

    #[test]
    fn a_binding_has_the_keys_of_rabbitmqs() {
        assert_has_keys(&shape(&binding("x", "q", true)), include_str!("gold/bind.json"), &[]);
    }

    #[test]
    fn a_part_has_its_bindings_only() {
        let all = [binding("x", "q", true), binding("x", "y", false), binding("y", "q", true)];
        let of = |part: Part| -> Vec<bool> { all.iter().map(|one| part.has(one)).collect() };
        assert_eq!(of(Part::All), [true, true, true]);
        assert_eq!(of(Part::From(name("x"))), [true, true, false]);
        assert_eq!(of(Part::To(name("q"), true)), [true, false, true]);
        assert_eq!(of(Part::To(name("q"), false)), [false, false, false]);
        assert_eq!(of(Part::Between(name("x"), name("q"), true)), [true, false, false]);
        assert_eq!(Part::From(name("")).default_of(), Some(None));
        assert_eq!(Part::From(name("x")).default_of(), None);
        assert_eq!(Part::To(name("q"), true).default_of(), Some(Some(&name("q"))));
    }
}
