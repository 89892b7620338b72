//! Permissions and topic permissions: `/api/permissions`, `/api/topic-permissions`, and those of one
//! virtual host or user.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, Call};
use crate::api::json::short;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::Method;
use quorate_catalog::{AccessCommand, PermissionRecord, TopicPermissionRecord};
use quorate_types::{ShortString, VhostName};
use serde_json::{Value, json};

/// How lists of permissions are sorted.
const ORDER: &[&str] = &["vhost", "user"];
/// How lists of topic permissions are sorted.
const TOPIC_ORDER: &[&str] = &["vhost", "user", "exchange"];

fn shape(row: &PermissionRecord) -> Value {
    json!({
        "user": row.user.as_str(),
        "vhost": row.vhost.as_str(),
        "configure": row.configure,
        "write": row.write,
        "read": row.read,
    })
}

fn topic_shape(row: &TopicPermissionRecord) -> Value {
    json!({
        "user": row.user.as_str(),
        "vhost": row.vhost.as_str(),
        "exchange": row.exchange.as_str(),
        "write": row.write,
        "read": row.read,
    })
}

/// The virtual host or user that a list is about, which must exist.
fn subject(api: &Api, call: &Call) -> Result<(Option<VhostName>, Option<ShortString>), Refusal> {
    let vhost = call.name("vhost").map(|_| call.vhost(api)).transpose()?;
    let user = call.name("user").map(|_| call.short("user")).transpose()?;
    if user.as_ref().is_some_and(|user| api.broker.lookup().user(user).is_none()) {
        return Err(Refusal::NoObject);
    }
    Ok((vhost, user))
}

/// All permissions, those in a virtual host, or those of a user.
pub(crate) fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (vhost, user) = subject(api, call)?;
    let mut rows = api.broker.views().permissions();
    rows.retain(|row| {
        vhost.as_ref().is_none_or(|vhost| row.vhost == *vhost)
            && user.as_ref().is_none_or(|user| row.user == *user)
    });
    Ok(Answer::list(ORDER, move || rows.iter().map(shape).collect()))
}

/// All topic permissions, those in a virtual host, or those of a user.
pub(crate) fn list_topic(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (vhost, user) = subject(api, call)?;
    let rows = topic_rows(api, vhost.as_ref(), user.as_ref());
    Ok(Answer::list(TOPIC_ORDER, move || rows.iter().map(topic_shape).collect()))
}

fn topic_rows(
    api: &Api,
    vhost: Option<&VhostName>,
    user: Option<&ShortString>,
) -> Vec<TopicPermissionRecord> {
    let mut rows = api.broker.views().topic_permissions();
    rows.retain(|row| {
        vhost.is_none_or(|vhost| row.vhost == *vhost) && user.is_none_or(|user| row.user == *user)
    });
    rows
}

/// Virtual host and user of the path, for a change: RabbitMQ's refusal if one is not there.
fn both(api: &Api, call: &Call) -> Result<(VhostName, ShortString), Refusal> {
    match subject(api, call) {
        Ok((Some(vhost), Some(user))) => Ok((vhost, user)),
        Ok(_) | Err(_) if call.method == Method::Put => bad_request("vhost_or_user_not_found"),
        Ok(_) | Err(_) => Err(Refusal::NoObject),
    }
}

/// The permissions of one user in one virtual host.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (vhost, user) = both(api, call)?;
    let rows = api.broker.views().permissions();
    let there = rows.into_iter().find(|row| row.vhost == vhost && row.user == user);
    let operator = api.broker.operator();
    match call.method {
        Method::Get => Ok(Answer::object(shape(&there.ok_or(Refusal::NoObject)?))),
        Method::Put | Method::Post => {
            let record = record(vhost, user, &call.fields()?)?;
            operator.change_access(AccessCommand::SetPermissions(record)).await?;
            Ok(Answer::put(there.is_none()))
        }
        Method::Delete => {
            there.ok_or(Refusal::NoObject)?;
            operator.change_access(AccessCommand::ClearPermissions { vhost, user }).await?;
            Ok(Answer::done())
        }
    }
}

fn record(
    vhost: VhostName,
    user: ShortString,
    fields: &Fields,
) -> Result<PermissionRecord, Refusal> {
    let pattern = |name| fields.text(name).map(str::to_owned);
    let (configure, write, read) = (pattern("configure")?, pattern("write")?, pattern("read")?);
    Ok(PermissionRecord { vhost, user, configure, write, read })
}

/// The topic permissions of one user in one virtual host.
pub(crate) async fn one_topic(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (vhost, user) = both(api, call)?;
    let rows = topic_rows(api, Some(&vhost), Some(&user));
    let operator = api.broker.operator();
    match call.method {
        Method::Get if rows.is_empty() => Err(Refusal::NoObject),
        Method::Get => Ok(Answer::object(rows.iter().map(topic_shape).collect())),
        Method::Put | Method::Post => {
            let record = topic_record(vhost, user, &call.fields()?)?;
            operator.change_access(AccessCommand::SetTopicPermissions(record)).await?;
            Ok(Answer::put(rows.is_empty()))
        }
        Method::Delete if rows.is_empty() => Err(Refusal::NoObject),
        Method::Delete => {
            let exchange = call.name("exchange").map(|name| short("exchange", name)).transpose()?;
            let clear = AccessCommand::ClearTopicPermissions { vhost, user, exchange };
            operator.change_access(clear).await?;
            Ok(Answer::done())
        }
    }
}

fn topic_record(
    vhost: VhostName,
    user: ShortString,
    fields: &Fields,
) -> Result<TopicPermissionRecord, Refusal> {
    let exchange = short("exchange", fields.text("exchange")?)?;
    let (write, read) = (fields.text("write")?.to_owned(), fields.text("read")?.to_owned());
    Ok(TopicPermissionRecord { vhost, user, exchange, write, read })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::tests::assert_has_keys;

    fn names() -> (VhostName, ShortString) {
        (ShortString::from_static("/"), ShortString::from_static("u"))
    }

    #[test]
    fn permissions_have_the_keys_of_rabbitmqs() {
        let fields = Fields::parse(br#"{"configure":".*","write":"","read":"^a"}"#).unwrap();
        let (vhost, user) = names();
        let shown = shape(&record(vhost, user, &fields).unwrap());
        assert_has_keys(&shown, include_str!("gold/perms.json"), &[]);
        assert_eq!(shown.get("read"), Some(&json!("^a")));
    }

    #[test]
    fn missing_patterns_are_refused_by_name() {
        let (vhost, user) = names();
        let fields = Fields::parse(br#"{"configure":".*","write":".*"}"#).unwrap();
        let refused = record(vhost.clone(), user.clone(), &fields).unwrap_err();
        assert_eq!(refused, Refusal::BadRequest("{key_missing,read}".to_owned()));
        let refused = topic_record(vhost, user, &fields).unwrap_err();
        assert_eq!(refused, Refusal::BadRequest("{key_missing,exchange}".to_owned()));
    }
}
