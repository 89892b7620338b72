//! Tasks that put dead letters back, move messages or delete them: `/api/quorate/tasks` and below.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, Call};
use crate::api::json;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::Method;
use quorate_broker::{TaskError, TaskRequest};
use quorate_catalog::{TaskControl, TaskDenial, TaskKind, TaskRecord, TaskState, TaskTarget};
use quorate_types::{ResourceName, ShortString, TaskId};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Longest time of a dry run over HTTP; it is cancelled then.
const DRY_RUN_MAX: Duration = Duration::from_secs(30);

/// The fields of a request for a task.
const FIELDS: [&str; 8] = ["kind", "vhost", "queue", "to", "filter", "rate", "max", "dry_run"];

impl From<TaskError> for Refusal {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Refused(exception) => exception.into(),
            TaskError::Denied(TaskDenial::NoTask { .. }) => Self::NoObject,
            TaskError::Denied(TaskDenial::NoQueue) => Self::NotFound(error.to_string()),
            TaskError::Invalid(_)
            | TaskError::Filter(_)
            | TaskError::Denied(TaskDenial::Filter | TaskDenial::Ended { .. }) => {
                Self::BadRequest(error.to_string())
            }
            TaskError::Denied(
                TaskDenial::TooEarly { .. }
                | TaskDenial::TooMany { .. }
                | TaskDenial::TooManyOfVhost { .. }
                | TaskDenial::TooManyOfQueue { .. },
            )
            | TaskError::TimedOut => Self::Unavailable(error.to_string()),
        }
    }
}

/// The tasks that the user may see, or a new one.
pub(crate) async fn all(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    if call.method == Method::Post {
        return create(api, call).await;
    }
    let tasks = api.broker.tasks().all();
    let seen = tasks.into_iter().filter(|task| may_see(api, call, task));
    let shown: Vec<_> = seen.map(|task| shape(&task)).collect();
    Ok(Answer::list(&["id"], move || shown))
}

/// One task.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    Ok(Answer::object(shape(&find(api, call).await?)))
}

/// Pauses, resumes or cancels a task.
pub(crate) async fn control(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = call.name("control").unwrap_or_default();
    let control = TaskControl::ALL.into_iter().find(|it| it.name() == name);
    let control = control.ok_or(Refusal::NoObject)?;
    let task = find(api, call).await?;
    // Who may only read the queue does not stop what another user began.
    let is_own = task.created_by == call.caller.user && control != TaskControl::Resume;
    if !is_own && !call.caller.is_administrator() {
        api.broker.tasks().check_control(&call.caller.user, &task)?;
    }
    let changed = api.broker.tasks().control(task.id, control).await?;
    Ok(Answer::object(shape(&changed)))
}

fn may_see(api: &Api, call: &Call, task: &TaskRecord) -> bool {
    let caller = &call.caller;
    caller.is_administrator()
        || task.created_by == caller.user
        || api.broker.tasks().may_see(&caller.user, task)
}

/// The task of the path; one that the user may not see is not there.
async fn find(api: &Api, call: &Call) -> Result<TaskRecord, Refusal> {
    let id = call.name("task").and_then(|id| id.parse().ok()).map(TaskId);
    let id = id.ok_or(Refusal::NoObject)?;
    let found = api.broker.tasks().find(id).await;
    found.filter(|task| may_see(api, call, task)).ok_or(Refusal::NoObject)
}

async fn create(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let mut request = given(&call.fields()?)?;
    request.check()?;
    if request.dry_run {
        // It changes nothing, and its client waits.
        request.rate = None;
    }
    api.broker.tasks().check(&call.caller.user, &request)?;
    let dry_run = request.dry_run;
    let tasks = api.broker.tasks();
    let created = tasks.create(request, call.caller.user.clone()).await?;
    if !dry_run {
        return Ok(Answer::created(json!({ "id": created.id.0 }), format!("tasks/{}", created.id)));
    }
    let mut ended = tasks.await_end(created, DRY_RUN_MAX).await;
    if ended.state.is_active() {
        match tasks.control(ended.id, TaskControl::Cancel).await {
            Ok(cancelled) => ended = cancelled,
            // It has ended in this moment.
            Err(TaskError::Denied(TaskDenial::Ended { .. })) => {
                ended = tasks.find(ended.id).await.unwrap_or(ended);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let complete = ended.state == TaskState::Done;
    Ok(Answer::object(json!({
        "matched": ended.counts.taken,
        "skipped": ended.counts.skipped,
        "no_target": ended.counts.no_target,
        "complete": complete,
    })))
}

/// A task, as a request asks for it.
fn given(fields: &Fields) -> Result<TaskRequest, Refusal> {
    fields.only(&FIELDS)?;
    let kind = fields.text("kind")?;
    let Some(kind) = TaskKind::ALL.into_iter().find(|it| it.name() == kind) else {
        return bad_request("kind must be redrive, move or delete");
    };
    let name = json::short("queue", fields.text("queue")?)?;
    let vhost = json::short("vhost", fields.text("vhost")?)?;
    Ok(TaskRequest {
        kind,
        queue: ResourceName { vhost, name },
        to: target(kind, fields.get("to"))?,
        filter: match fields.get("filter") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Object(parts)) => filter(parts)?,
            // Nothing else is taken for an empty one, which selects all messages.
            Some(_) => return bad_request("filter must be an object"),
        },
        rate: natural(fields, "rate")?,
        max: natural(fields, "max")?,
        dry_run: fields.flag("dry_run", false)?,
    })
}

fn natural<T: TryFrom<i64>>(fields: &Fields, name: &str) -> Result<Option<T>, Refusal> {
    let Some(value) = fields.optional_integer(name)? else { return Ok(None) };
    match T::try_from(value) {
        Ok(value) => Ok(Some(value)),
        Err(_) => bad_request(format!("{name}: {value} is out of range")),
    }
}

/// `"original"`, `{"queue": NAME}` or `{"exchange": NAME}`; without it a redrive goes to the original
/// queues.
fn target(kind: TaskKind, to: Option<&Value>) -> Result<TaskTarget, Refusal> {
    const FORMS: &str = "to must be \"original\", {\"queue\": NAME} or {\"exchange\": NAME}";
    let fields = match to {
        None if kind == TaskKind::Redrive => return Ok(TaskTarget::Original),
        None => return Ok(TaskTarget::Nowhere),
        Some(Value::String(word)) if word == "original" => return Ok(TaskTarget::Original),
        Some(Value::Object(fields)) if fields.len() == 1 => fields,
        Some(_) => return bad_request(FORMS),
    };
    let name = |field| fields.get(field).and_then(Value::as_str);
    match (name("queue"), name("exchange")) {
        (Some(queue), None) => Ok(TaskTarget::Queue(json::short("to", queue)?)),
        (None, Some(exchange)) => Ok(TaskTarget::Exchange(json::short("to", exchange)?)),
        (Some(_), Some(_)) | (None, None) => bad_request(FORMS),
    }
}

/// The parts of a filter: texts or numbers; `header` also as an object of names and values.
fn filter(fields: &Map<String, Value>) -> Result<Vec<(ShortString, String)>, Refusal> {
    let text = |part: &str, value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) if part == "header" => Ok(truth.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            bad_request(format!("filter {part}: must be a text or a number"))
        }
    };
    let mut parts = Vec::new();
    for (part, value) in fields {
        let name = json::short("filter", part)?;
        match value {
            Value::Object(headers) if part == "header" => {
                for (header, value) in headers {
                    parts.push((name.clone(), format!("{header}={}", text(part, value)?)));
                }
            }
            Value::Array(values) if part == "header" => {
                for value in values {
                    parts.push((name.clone(), text(part, value)?));
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => parts.push((name, text(part, value)?)),
        }
    }
    Ok(parts)
}

/// A task as lists show it.
fn shape(task: &TaskRecord) -> Value {
    let TaskRecord { id, nonce: _, order, state, created_by, created_at, ended_at, counts } = task;
    let to = match &order.to {
        TaskTarget::Nowhere => Value::Null,
        TaskTarget::Original => json!("original"),
        TaskTarget::Queue(name) => json!({ "queue": name.as_str() }),
        TaskTarget::Exchange(name) => json!({ "exchange": name.as_str() }),
    };
    let part =
        |(part, value): &(ShortString, String)| json!({ "part": part.as_str(), "value": value });
    json!({
        "id": id.0,
        "kind": order.kind.name(),
        "vhost": order.name.vhost.as_str(),
        "queue": order.name.name.as_str(),
        "to": to,
        "filter": order.filter.iter().map(part).collect::<Vec<_>>(),
        "rate": order.rate,
        "max": order.max,
        "dry_run": order.dry_run,
        "state": state.name(),
        "created_by": created_by.as_str(),
        "created_at": created_at.0,
        "ended_at": ended_at.map(|at| at.0),
        "progress": {
            "taken": counts.taken,
            "moved": counts.moved,
            "under_way": counts.under_way,
            "skipped": counts.skipped,
            "no_target": counts.no_target,
        },
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parse(body: &Value) -> Result<TaskRequest, Refusal> {
        given(&Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    fn short(text: &'static str) -> ShortString {
        ShortString::from_static(text)
    }

    #[test]
    fn a_task_is_read_as_it_is_given() {
        let whole = json!({ "kind": "move", "vhost": "/", "queue": "parking",
            "to": { "exchange": "orders" }, "rate": 50, "max": "7", "dry_run": true,
            "filter": { "header": { "n": 1, "tenant": "acme" }, "min_age": 5_000 } });
        let request = parse(&whole).unwrap();
        assert_eq!(request.to, TaskTarget::Exchange(short("orders")));
        assert_eq!((request.rate, request.max, request.dry_run), (Some(50), Some(7), true));
        let parts: Vec<_> =
            request.filter.iter().map(|(part, value)| (part.as_str(), value.as_str())).collect();
        assert_eq!(parts, [("header", "n=1"), ("header", "tenant=acme"), ("min_age", "5000")]);
        assert_eq!(request.check(), Ok(()));
        let least = parse(&json!({ "kind": "redrive", "vhost": "/", "queue": "q" })).unwrap();
        assert_eq!((least.to, least.rate, least.max), (TaskTarget::Original, None, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let base = json!({ "kind": "redrive", "vhost": "/", "queue": "q" });
        for (field, value, word) in [
            ("kind", json!("copy"), "kind"),
            ("queue", Value::Null, "queue"),
            ("vhost", Value::Null, "vhost"),
            ("to", json!("elsewhere"), "to"),
            ("to", json!({ "queue": 1 }), "to"),
            ("to", json!({ "queue": "a", "exchange": "b" }), "to"),
            ("rate", json!(-1), "rate"),
            ("rate", json!(1u64 << 40), "rate"),
            ("max", json!("x"), "max"),
            ("filter", json!("x"), "filter"),
            ("filter", json!({ "reason": ["a"] }), "reason"),
            ("dry_run", json!("maybe"), "dry_run"),
            ("dryrun", json!(true), "dryrun"),
        ] {
            let mut body = base.clone();
            body.as_object_mut().unwrap().insert(field.to_owned(), value);
            let refused = parse(&body).unwrap_err();
            let told = refused.to_string();
            assert!(matches!(refused, Refusal::BadRequest(_)) && told.contains(word), "{told}");
        }
    }
}
