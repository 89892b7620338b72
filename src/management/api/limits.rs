//! Limits of virtual hosts and users: `/api/vhost-limits`, `/api/user-limits`.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, Call};
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::Method;
use quorate_catalog::{AccessCommand, UserLimit, UserLimits, VhostLimits};
use serde_json::json;

/// A client reads limits by these names.
const CONNECTIONS: &str = "max-connections";
const QUEUES: &str = "max-queues";
const CHANNELS: &str = "max-channels";

/// The limits of virtual hosts that have some: of those that the caller sees, or of one.
pub(crate) fn list_vhosts(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let mut records = api.broker.views().vhosts();
    if call.name("vhost").is_some() {
        let vhost = call.vhost(api)?;
        records.retain(|record| record.name == vhost);
    } else if !call.caller.is_monitor() {
        let usable = api.broker.lookup().usable_vhosts(&call.caller.user);
        records.retain(|record| usable.contains(&record.name));
    }
    records.retain(|record| record.limits != VhostLimits::default());
    let shape =
        |vhost: &str, limits: VhostLimits| json!({ "vhost": vhost, "value": limits.to_json() });
    Ok(Answer::list(&["vhost"], move || {
        records.iter().map(|record| shape(record.name.as_str(), record.limits)).collect()
    }))
}

/// The limits of users that have some: of all, or of one.
pub(crate) fn list_users(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let mut users = api.broker.views().users();
    if call.name("user").is_some() {
        let user = call.short("user")?;
        api.broker.lookup().user(&user).ok_or(Refusal::NoObject)?;
        users.retain(|record| record.name == user);
    }
    users.retain(|record| record.limits != UserLimits::default());
    let shape = |user: &str, limits: UserLimits| json!({ "user": user, "value": limits.to_json() });
    Ok(Answer::list(&["user"], move || {
        users.iter().map(|record| shape(record.name.as_str(), record.limits)).collect()
    }))
}

/// The value of a limit.
fn value(fields: &Fields) -> Result<i64, Refusal> {
    fields.required("value")?;
    match fields.optional_integer("value")? {
        Some(value) => Ok(value),
        None => bad_request("value must be an integer"),
    }
}

/// The limits of a virtual host with one of them set, or cleared with `None`.
fn with_vhost_limit(
    limits: VhostLimits,
    name: &str,
    value: Option<i64>,
) -> Result<VhostLimits, Refusal> {
    match name {
        CONNECTIONS => Ok(VhostLimits { connections_max: value, ..limits }),
        QUEUES => Ok(VhostLimits { queues_max: value, ..limits }),
        other => bad_request(format!("Unrecognised limit '{other}'")),
    }
}

/// Sets or clears a limit of a virtual host.
pub(crate) async fn vhost(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    let value = match call.method {
        Method::Delete => None,
        Method::Get | Method::Put | Method::Post => Some(value(&call.fields()?)?),
    };
    let mut records = api.broker.views().vhosts().into_iter();
    let limits = records.find(|record| record.name == vhost).map(|record| record.limits);
    let name = call.name("name").unwrap_or_default();
    let limits = with_vhost_limit(limits.unwrap_or_default(), name, value)?;
    let set = AccessCommand::SetVhostLimits { vhost, limits };
    api.broker.operator().change_access(set).await?;
    Ok(Answer::done())
}

/// A limit of a user by its name.
fn user_limit(name: &str) -> Result<UserLimit, Refusal> {
    match name {
        CONNECTIONS => Ok(UserLimit::Connections),
        CHANNELS => Ok(UserLimit::Channels),
        other => bad_request(format!("Unrecognised limit '{other}'")),
    }
}

/// Sets or clears a limit of a user.
pub(crate) async fn user(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let user = call.short("user")?;
    let which = user_limit(call.name("name").unwrap_or_default())?;
    let command = match call.method {
        Method::Delete => AccessCommand::ClearUserLimits { user, which },
        Method::Get | Method::Put | Method::Post => {
            let value = Some(value(&call.fields()?)?);
            let limits = match which {
                UserLimit::Connections => {
                    UserLimits { connections_max: value, ..UserLimits::default() }
                }
                UserLimit::Channels => UserLimits { channels_max: value, ..UserLimits::default() },
                UserLimit::All => UserLimits { connections_max: value, channels_max: value },
            };
            AccessCommand::SetUserLimits { user, limits }
        }
    };
    api.broker.operator().change_access(command).await?;
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn vlm_01_limits_are_set_one_by_one() {
        let none = VhostLimits::default();
        let set = with_vhost_limit(none, "max-queues", Some(5)).unwrap();
        assert_eq!(set.to_json(), json!({ "max-queues": 5 }));
        let both = with_vhost_limit(set, "max-connections", Some(-1)).unwrap();
        assert_eq!(both.to_json(), json!({ "max-queues": 5, "max-connections": -1 }));
        assert_eq!(with_vhost_limit(set, "max-queues", None), Ok(none));
        assert!(with_vhost_limit(none, "max-fun", None).is_err());
        assert!(user_limit("max-queues").is_err() && user_limit("max-channels").is_ok());
    }

    #[test]
    fn a_limit_is_an_integer() {
        let parse = |body: &str| value(&Fields::parse(body.as_bytes()).unwrap());
        assert_eq!(parse(r#"{"value":7}"#), Ok(7));
        assert_eq!(parse(r#"{"value":"7"}"#), Ok(7));
        assert!(parse("{}").is_err() && parse(r#"{"value":"x"}"#).is_err());
    }
}
