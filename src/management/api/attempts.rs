//! Logins at a node: `/api/auth/attempts/NODE`, and by source below.

use crate::api::call::{Answer, Api, Call};
use crate::api::names::Names;
use crate::api::refusal::Refusal;
use crate::api::route::Method;
use crate::wire;
use serde_json::{Value, json};

/// How the lists are sorted.
const ORDER: &[&str] = &["protocol"];

fn shape(attempt: &wire::Attempt, by_source: bool) -> Value {
    let mut shown = json!({
        "protocol": attempt.protocol,
        "auth_attempts": attempt.succeeded.saturating_add(attempt.failed),
        "auth_attempts_succeeded": attempt.succeeded,
        "auth_attempts_failed": attempt.failed,
    });
    if let Some(fields) = shown.as_object_mut().filter(|_| by_source) {
        fields.insert("remote_address".to_owned(), attempt.from.as_str().into());
        fields.insert("username".to_owned(), attempt.user.as_str().into());
    }
    shown
}

/// Reads the counts of logins, or begins them from 0.
pub(crate) async fn attempts(api: &Api, call: &Call, by_source: bool) -> Result<Answer, Refusal> {
    let names = Names::of(api).await;
    let name = call.name("node").unwrap_or_default();
    let node = names.id(name).ok_or(Refusal::NoObject)?;
    let reset = call.method == Method::Delete;
    let request = wire::AttemptsRequest { caller: wire::caller(), reset, by_source };
    let Some(attempts) = api.cluster.attempts(node, request).await else {
        return Err(Refusal::Unavailable(format!("node {name} does not answer")));
    };
    if reset {
        return Ok(Answer::done());
    }
    let items = attempts.iter().map(|attempt| shape(attempt, by_source)).collect();
    Ok(Answer::list(ORDER, move || items))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_shown_by_protocol_or_by_source() {
        let attempt = wire::Attempt {
            protocol: "amqp091".to_owned(),
            from: "10.0.0.1".to_owned(),
            user: "u".to_owned(),
            succeeded: 3,
            failed: 2,
        };
        let shown = shape(&attempt, false);
        assert_eq!(shown.get("auth_attempts"), Some(&json!(5)));
        assert_eq!(shown.get("remote_address"), None);
        let shown = shape(&attempt, true);
        assert_eq!(shown.get("username"), Some(&json!("u")));
    }
}
