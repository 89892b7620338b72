//! Policies and operator policies: `/api/policies`, `/api/operator-policies` and below.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, BY_NAME, Call};
use crate::api::refusal::Refusal;
use crate::api::route::Method;
use quorate_catalog::{PolicyKind, PolicyName, PolicyRecord, PolicyText};
use quorate_types::{ShortString, VhostName};

/// The policies of virtual hosts.
pub(crate) fn list(api: &Api, call: &Call, kind: PolicyKind) -> Result<Answer, Refusal> {
    let (vhosts, broker) = (call.vhosts(api)?, api.broker.clone());
    Ok(Answer::list(BY_NAME, move || {
        // A virtual host may be deleted meanwhile: then it has none.
        let of_vhost = |vhost| broker.views().policies(kind, vhost).unwrap_or_default();
        vhosts.iter().flat_map(of_vhost).map(|policy| policy.to_json()).collect()
    }))
}

fn find(
    api: &Api,
    kind: PolicyKind,
    vhost: &VhostName,
    name: &ShortString,
) -> Result<Option<PolicyRecord>, Refusal> {
    let policies = api.broker.views().policies(kind, vhost)?;
    Ok(policies.into_iter().find(|policy| policy.name == *name))
}

/// What a request says of a policy.
pub(crate) fn given(
    kind: PolicyKind,
    vhost: &VhostName,
    name: &ShortString,
    fields: &Fields,
) -> Result<PolicyRecord, Refusal> {
    let text = PolicyText {
        kind,
        vhost,
        name,
        pattern: fields.text("pattern")?,
        apply_to: fields.optional_text("apply-to")?.unwrap_or("all"),
        priority: fields.optional_integer("priority")?.unwrap_or_default(),
    };
    let parsed = text.with(fields.required("definition")?);
    parsed.map_err(|error| Refusal::BadRequest(format!("{error}\n")))
}

/// One policy: reads, sets or clears it.
pub(crate) async fn one(api: &Api, call: &Call, kind: PolicyKind) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    if call.method == Method::Put {
        let name = call.new_name("name")?;
        let policy = given(kind, &vhost, &name, &call.fields()?)?;
        let was_there = find(api, kind, &vhost, &name)?.is_some();
        api.broker.operator().set_policy(policy).await?;
        return Ok(Answer::put(!was_there));
    }
    let name = call.short("name")?;
    let policy = find(api, kind, &vhost, &name)?.ok_or(Refusal::NoObject)?;
    if call.method == Method::Delete {
        api.broker.operator().clear_policy(PolicyName { kind, vhost, name }).await?;
        return Ok(Answer::done());
    }
    Ok(Answer::object(policy.to_json()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use serde_json::json;

    fn parse(body: &str) -> Result<PolicyRecord, Refusal> {
        let (vhost, name) = (ShortString::from_static("/"), ShortString::from_static("p"));
        given(PolicyKind::User, &vhost, &name, &Fields::parse(body.as_bytes()).unwrap())
    }

    #[test]
    fn a_policy_comes_back_as_it_was_given() {
        let policy = parse(
            r#"{"pattern":"^x","definition":{"max-length":5},"priority":1,"apply-to":"queues"}"#,
        )
        .unwrap();
        assert_eq!(
            policy.to_json(),
            json!({ "vhost": "/", "name": "p", "pattern": "^x", "apply-to": "queues",
                "definition": { "max-length": 5 }, "priority": 1 })
        );
        let least = parse(r#"{"pattern":"","definition":{"max-length":5}}"#).unwrap();
        assert_eq!((least.apply_to.name(), least.priority), ("all", 0));
    }

    /// As in the golden reply, but for its escaped signs.
    #[test]
    fn pol_21_a_wrong_value_is_refused_in_rabbitmqs_words() {
        let refused = parse(r#"{"pattern":"^x","definition":{"max-length":"a"}}"#).unwrap_err();
        let text = "Validation failed\n\n<<\"a\">> is not a valid maximum length\n";
        assert_eq!(refused, Refusal::BadRequest(text.to_owned()));
        for wrong in [
            "{}",
            r#"{"pattern":"x"}"#,
            r#"{"pattern":"(","definition":{"max-length":5}}"#,
            r#"{"pattern":"x","definition":{}}"#,
            r#"{"pattern":"x","definition":[]}"#,
            r#"{"pattern":"x","definition":{"max-length":5},"apply-to":"rabbits"}"#,
            r#"{"pattern":"x","definition":{"max-length":5},"priority":"high"}"#,
        ] {
            assert!(matches!(parse(wrong), Err(Refusal::BadRequest(_))), "{wrong}");
        }
    }
}
