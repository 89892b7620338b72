//! Definitions: `/api/definitions`, of the whole cluster or of one virtual host.

use crate::api::call::{Answer, Api, Call};
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::Method;
use crate::policies::exported_definitions;
use quorate_types::VhostName;
use serde_json::{Map, Value};

/// The lists of definitions whose objects belong to a virtual host.
const LISTS: [&str; 5] = ["parameters", "policies", "queues", "exchanges", "bindings"];
/// What such definitions say of the virtual host itself. It is not imported into another one.
const OF_VHOST: [&str; 3] = ["metadata", "description", "default_queue_type"];
/// What definitions of one virtual host say to people.
const EXPLANATION: &str =
    "Definitions of a single virtual host. They can be imported into any other one.";
/// What tells which broker has written definitions.
const ORIGIN: [&str; 4] = ["rabbit_version", "rabbitmq_version", "product_name", "product_version"];

/// Exports or imports the definitions of the cluster.
pub(crate) async fn all(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    if call.method == Method::Post {
        return import(api, text(call)?).await;
    }
    Ok(Answer::text(export(api).await?))
}

/// Exports or imports the definitions of one virtual host.
pub(crate) async fn of_vhost(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    if call.method == Method::Post {
        return import(api, &text_of_vhost(call, &vhost)?).await;
    }
    let exported: Value = serde_json::from_str(&export(api).await?).unwrap_or_default();
    Ok(Answer::object(cut_to(&exported, vhost.as_str())))
}

/// The definitions of a body; an empty body has none.
///
/// # Errors
/// 400: they are no text.
pub(crate) fn text(call: &Call) -> Result<&str, Refusal> {
    let text = std::str::from_utf8(&call.body);
    let text = text.map_err(|_| Refusal::BadRequest("not_json".to_owned()))?;
    let text = text.trim_start_matches('\u{feff}');
    Ok(if text.trim().is_empty() { "{}" } else { text })
}

/// The definitions of a body, placed in a virtual host.
///
/// # Errors
/// 400: the body is no JSON object.
pub(crate) fn text_of_vhost(call: &Call, vhost: &VhostName) -> Result<String, Refusal> {
    let Ok(Value::Object(given)) = serde_json::from_str(text(call)?) else {
        return bad_request("not_json");
    };
    Ok(Value::Object(placed_in(given, vhost.as_str())).to_string())
}

async fn export(api: &Api) -> Result<String, Refusal> {
    let unavailable = || Refusal::Unavailable("definitions cannot be exported now".to_owned());
    exported_definitions(&api.broker, &api.facts).await.ok_or_else(unavailable)
}

async fn import(api: &Api, text: &str) -> Result<Answer, Refusal> {
    api.broker.operator().import_definitions(text.into()).await?;
    Ok(Answer::done())
}

/// The definitions of one virtual host, which do not name it.
fn cut_to(all: &Value, vhost: &str) -> Value {
    let mut cut: Map<String, Value> = picked(all, &ORIGIN).collect();
    cut.insert("rabbitmq_definition_format".to_owned(), "single_virtual_host".into());
    cut.insert("original_vhost_name".to_owned(), vhost.into());
    cut.insert("explanation".to_owned(), EXPLANATION.into());
    let mut vhosts = all.get("vhosts").and_then(Value::as_array).into_iter().flatten();
    let itself = vhosts.find(|it| it.get("name").and_then(Value::as_str) == Some(vhost));
    cut.extend(itself.into_iter().flat_map(|it| picked(it, &OF_VHOST)));
    for list in LISTS {
        let objects = all.get(list).and_then(Value::as_array).into_iter().flatten();
        let of_vhost = objects
            .filter_map(Value::as_object)
            .filter(|object| object.get("vhost").and_then(Value::as_str) == Some(vhost));
        let without = |object: &Map<String, Value>| {
            let mut object = object.clone();
            object.remove("vhost");
            Value::Object(object)
        };
        cut.insert(list.to_owned(), of_vhost.map(without).collect());
    }
    Value::Object(cut)
}

/// The fields with these names that an object has.
fn picked(object: &Value, names: &[&str]) -> impl Iterator<Item = (String, Value)> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), object.get(name)?.clone())))
}

/// Definitions of one virtual host, placed in that virtual host. Lists of other objects are left out:
/// they are none of its.
fn placed_in(mut given: Map<String, Value>, vhost: &str) -> Map<String, Value> {
    given.retain(|name, _| LISTS.contains(&name.as_str()) || ORIGIN.contains(&name.as_str()));
    for list in LISTS {
        let objects = given.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for object in objects.filter_map(Value::as_object_mut) {
            object.insert("vhost".to_owned(), vhost.into());
        }
    }
    given
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use serde_json::json;

    #[test]
    fn a_vhosts_definitions_do_not_name_it_and_can_be_placed_in_another() {
        let all = json!({
            "rabbit_version": "4",
            "users": [{ "name": "u" }],
            "vhosts": [{ "name": "/" }, { "name": "v", "metadata": { "description": "d", "tags": [] } }],
            "queues": [{ "name": "a", "vhost": "/" }, { "name": "b", "vhost": "v" }],
            "bindings": [],
        });
        let cut = cut_to(&all, "v");
        assert_eq!(cut.get("queues"), Some(&json!([{ "name": "b" }])));
        assert_eq!((cut.get("users"), cut.get("policies")), (None, Some(&json!([]))));
        assert_eq!(cut.get("rabbit_version"), Some(&json!("4")));
        assert_eq!(cut.get("metadata"), Some(&json!({ "description": "d", "tags": [] })));
        let mut given = cut.as_object().unwrap().clone();
        given.insert("users".to_owned(), json!([{ "name": "intruder" }]));
        let placed = placed_in(given, "w");
        assert_eq!(placed.get("queues"), Some(&json!([{ "name": "b", "vhost": "w" }])));
        assert_eq!(placed.get("users"), None);
    }
}
