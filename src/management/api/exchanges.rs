//! Exchanges: `/api/exchanges` and below.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, BY_NAME, Call};
use crate::api::client::perform;
use crate::api::json;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::Method;
use crate::api::statistics::{self, Book, Key};
use crate::wire::SampledKind;
use quorate_broker::view::ExchangeView;
use quorate_catalog::{ExchangeType, arguments_to_json, is_reserved};
use quorate_client::{ExchangeDeclare, Operation};
use quorate_types::{ResourceName, ShortString};
use serde_json::{Value, json};

/// The default exchange in a path.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// The exchange of the path.
///
/// # Errors
/// 404: no exchange has so long a name.
pub(crate) fn exchange_name(call: &Call) -> Result<ShortString, Refusal> {
    named(call.short("exchange")?)
}

/// An exchange's name as it stands in a path.
pub(crate) fn named(name: ShortString) -> Result<ShortString, Refusal> {
    Ok(if name.as_str() == DEFAULT_EXCHANGE { ShortString::EMPTY } else { name })
}

/// An exchange as lists show it.
pub(crate) fn shape(view: &ExchangeView) -> Value {
    let policy = view.policies.policy.as_ref().map(ShortString::as_str);
    // What every virtual host has is not made by a user.
    let is_own = view.name.name.is_empty() || is_reserved(&view.name.name);
    let mut shown = json!({
        "name": view.name.name.as_str(),
        "vhost": view.name.vhost.as_str(),
        "type": view.kind.name(),
        "durable": view.durable,
        "auto_delete": view.auto_delete,
        "internal": view.internal,
        "arguments": arguments_to_json(&view.arguments),
        "user_who_performed_action": if is_own { "rmq-internal" } else { "" },
    });
    if let (Some(policy), Some(fields)) = (policy, shown.as_object_mut()) {
        fields.insert("policy".to_owned(), policy.into());
        let definition = view.policies.definition.to_json();
        fields.insert("effective_policy_definition".to_owned(), definition);
    }
    shown
}

fn key(view: &ExchangeView) -> Key {
    Key::Exchange(view.name.vhost.to_string(), view.name.name.to_string())
}

/// The exchanges of virtual hosts.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let spans = statistics::spans(call)?;
    let book = Book::of(api, call, &spans, SampledKind::Exchanges).await?;
    let (vhosts, broker, silent) = (call.vhosts(api)?, api.broker.clone(), book.silent.clone());
    let items = move || {
        let views = vhosts.iter().flat_map(|vhost| broker.views().exchanges(vhost));
        views.map(|view| book.with(shape(&view), Some(&key(&view)))).collect()
    };
    Ok(Answer::list(BY_NAME, items).without(silent))
}

/// One exchange: reads, makes or deletes it.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::Get => {
            let (view, spans) = (known(api, call)?, statistics::spans(call)?);
            let book = Book::of_one(api, call, (&spans, SampledKind::Exchanges), &view.name);
            let book = book.await?;
            let mut shown = book.with(shape(&view), Some(&key(&view)));
            if let Some(fields) = shown.as_object_mut() {
                fields.insert("incoming".to_owned(), json!([]));
                fields.insert("outgoing".to_owned(), json!([]));
            }
            Ok(Answer::object(shown).without(book.silent))
        }
        Method::Put | Method::Post => declare(api, call).await,
        Method::Delete => delete(api, call).await,
    }
}

fn find(api: &Api, call: &Call) -> Result<Option<ExchangeView>, Refusal> {
    let name = ResourceName { vhost: call.vhost(api)?, name: exchange_name(call)? };
    Ok(api.broker.lookup().exchange(&name))
}

/// The exchange of the path, which exists.
///
/// # Errors
/// 404.
fn known(api: &Api, call: &Call) -> Result<ExchangeView, Refusal> {
    find(api, call)?.ok_or(Refusal::NoObject)
}

/// The declare of an exchange, as its request says.
fn declaration(exchange: ShortString, fields: &Fields) -> Result<ExchangeDeclare, Refusal> {
    let kind = fields.optional_text("type")?.unwrap_or("direct");
    if ExchangeType::parse(kind).is_err() {
        return bad_request(format!("unknown exchange type '{kind}'"));
    }
    Ok(ExchangeDeclare {
        exchange,
        kind: json::short("type", kind)?,
        durable: fields.flag("durable", false)?,
        auto_delete: fields.flag("auto_delete", false)?,
        internal: fields.flag("internal", false)?,
        arguments: fields.arguments()?,
    })
}

async fn declare(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    let declare = declaration(named(call.new_name("exchange")?)?, &call.fields()?)?;
    let was_there = find(api, call)?.is_some();
    perform(&api.broker, &call.caller, &vhost, Operation::ExchangeDeclare(declare)).await?;
    Ok(Answer::put(!was_there))
}

async fn delete(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    // AMQP takes a missing exchange for deleted already, HTTP does not.
    let name = known(api, call)?.name;
    let if_unused = call.query.is_true("if-unused");
    let delete = Operation::ExchangeDelete { exchange: name.name, if_unused };
    perform(&api.broker, &call.caller, &name.vhost, delete).await?;
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::tests::assert_has_keys;
    use quorate_broker::view::PolicyView;
    use quorate_types::FieldTable;

    #[test]
    fn an_exchange_has_the_keys_of_rabbitmqs() {
        let name = |text| ShortString::from_static(text);
        let view = ExchangeView {
            name: ResourceName { vhost: name("/"), name: name("orders") },
            kind: ExchangeType::Topic,
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: FieldTable::default(),
            policies: PolicyView::default(),
        };
        let shown = shape(&view);
        let without = ["incoming", "message_stats", "outgoing"];
        assert_has_keys(&shown, include_str!("gold/exch.json"), &without);
        assert_eq!(shown.get("policy"), None);
        let policies = PolicyView { policy: Some(name("p")), ..PolicyView::default() };
        let shown = shape(&ExchangeView { policies, ..view });
        assert_eq!(shown.get("policy"), Some(&json!("p")));
    }

    /// As in the golden reply.
    #[test]
    fn an_unknown_type_is_refused_in_rabbitmqs_words() {
        let parse = |body: &str| {
            let fields = Fields::parse(body.as_bytes()).unwrap();
            declaration(ShortString::from_static("x"), &fields)
        };
        let refused = parse(r#"{"type":"nope"}"#).unwrap_err();
        assert_eq!(refused, Refusal::BadRequest("unknown exchange type 'nope'".to_owned()));
        let declare = parse("{}").unwrap();
        assert!(!declare.durable && declare.kind.as_str() == "direct");
        assert!(parse(r#"{"internal":"maybe"}"#).is_err());
    }
}
