//! Tasks that put dead letters back, move messages or delete them: `redrive`, `move`,
//! `delete_messages`, `list_tasks`, `pause_task`, `resume_task`, `cancel_task`. A task goes on in the
//! cluster when the command has ended, whatever ended it.

use super::Console;
use super::command::{Manual, Verb, plain};
use super::connect::{TaskClient, call_failure};
use super::exit::{Exit, Failure};
use super::format::{Sheet, render};
use super::job::Job;
use super::progress::Progress;
use super::value::Value;
use quorate_management::wire::{self, task_target::To};
use serde_json::{Value as Json, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

/// How often a task is looked at while a command waits for it.
const LOOK: Duration = Duration::from_millis(200);
/// Part of the time limit that is left for the answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Verbs on tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskVerb {
    Redrive,
    Move,
    DeleteMessages,
    List,
    Pause,
    Resume,
    Cancel,
}

const SECTION: &str = "Queues";
const REDRIVE: &str = "[--vhost <vhost>] <queue> [--to original|queue:<name>|exchange:<name>] \
    [--filter <part>=<value> ...] [--rate <messages/s>] [--max <n>] [--dry-run] [--no-wait] \
    [--timeout <timeout>]";
const MOVE: &str = "[--vhost <vhost>] <queue> --to queue:<name>|exchange:<name> \
    [--filter <part>=<value> ...] [--rate <messages/s>] [--max <n>] [--dry-run] [--no-wait] \
    [--timeout <timeout>]";
const DELETE: &str = "[--vhost <vhost>] <queue> --filter <part>=<value> [--filter ...] \
    [--rate <messages/s>] [--max <n>] [--dry-run] [--no-wait] [--timeout <timeout>]";
const BEGIN: &[&str] = &["to", "filter", "rate", "max", "no-wait"];

/// The manuals of these verbs.
pub(crate) const MANUALS: &[Manual] = &[
    plain(
        Verb::Task(TaskVerb::Redrive),
        "redrive",
        SECTION,
        REDRIVE,
        "Puts dead letters of a queue back to where they died. Parts of a filter: \
         header=NAME=VALUE, routing_key, reason, death_queue, min_age",
        (1, 1),
        BEGIN,
    ),
    plain(
        Verb::Task(TaskVerb::Move),
        "move",
        SECTION,
        MOVE,
        "Moves messages of a queue to another queue or to an exchange",
        (1, 1),
        BEGIN,
    ),
    plain(
        Verb::Task(TaskVerb::DeleteMessages),
        "delete_messages",
        SECTION,
        DELETE,
        "Deletes the messages of a queue that match a filter",
        (1, 1),
        &["filter", "rate", "max", "no-wait"],
    ),
    plain(
        Verb::Task(TaskVerb::List),
        "list_tasks",
        SECTION,
        "[<id>] [--no-table-headers] [--timeout <timeout>]",
        "Lists tasks that put back, move or delete messages",
        (0, 1),
        &["no-table-headers"],
    ),
    plain(
        Verb::Task(TaskVerb::Pause),
        "pause_task",
        SECTION,
        "<id>",
        "Pauses a task: it takes no more messages until it is resumed",
        (1, 1),
        &[],
    ),
    plain(
        Verb::Task(TaskVerb::Resume),
        "resume_task",
        SECTION,
        "<id>",
        "Resumes a task",
        (1, 1),
        &[],
    ),
    plain(
        Verb::Task(TaskVerb::Cancel),
        "cancel_task",
        SECTION,
        "<id>",
        "Cancels a task: it takes no more messages",
        (1, 1),
        &[],
    ),
];

/// Carries out a verb.
pub(super) async fn run(
    verb: TaskVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match verb {
        TaskVerb::Redrive => begin("redrive", job, console).await,
        TaskVerb::Move => begin("move", job, console).await,
        TaskVerb::DeleteMessages => begin("delete", job, console).await,
        TaskVerb::List => list(job, console).await,
        TaskVerb::Pause => control("pause", job, console).await,
        TaskVerb::Resume => control("resume", job, console).await,
        TaskVerb::Cancel => control("cancel", job, console).await,
    }
}

fn usage(text: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("Error: {text}\n"))
}

/// Where the messages go.
fn target(kind: &str, to: Option<&str>) -> Result<Option<wire::TaskTarget>, Failure> {
    let to = match (kind, to) {
        ("delete", _) => return Ok(None),
        ("redrive", None | Some("original")) => To::Original(true),
        (_, None) => return Err(usage("--to is missing: queue:<name> or exchange:<name>")),
        (_, Some(to)) => match to.split_once(':') {
            Some(("queue", name)) => To::Queue(name.to_owned()),
            Some(("exchange", name)) => To::Exchange(name.to_owned()),
            Some(_) | None => {
                let text = "--to expects original, queue:<name> or exchange:<name>, not";
                return Err(usage(format!("{text} {to}")));
            }
        },
    };
    Ok(Some(wire::TaskTarget { to: Some(to) }))
}

/// A number above 0, with or without `/s`.
fn number(job: &Job<'_>, option: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = job.invocation.options.value(option) else { return Ok(None) };
    let digits = text.strip_suffix("/s").filter(|_| option == "rate").unwrap_or(text);
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    let wrong = || usage(format!("--{option} must be a number above 0, not {text}"));
    number.ok_or_else(wrong).map(Some)
}

fn request(kind: &str, job: &Job<'_>) -> Result<wire::CreateTaskRequest, Failure> {
    let options = &job.invocation.options;
    let part = |text: &str| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| usage(format!("--filter expects PART=VALUE, not {text}")))?;
        Ok(wire::FilterPart { name: name.replace('-', "_"), value: value.to_owned() })
    };
    let rate = number(job, "rate")?.map(u32::try_from).transpose();
    Ok(wire::CreateTaskRequest {
        caller: wire::caller(),
        kind: kind.to_owned(),
        vhost: options.vhost().to_owned(),
        queue: job.word(0).to_owned(),
        to: target(kind, options.value("to"))?,
        filter: options.all_values("filter").map(part).collect::<Result<_, Failure>>()?,
        rate: rate.map_err(|_| usage("--rate is too large"))?,
        max: number(job, "max")?,
        dry_run: options.dry_run,
    })
}

/// The failure of a call about tasks.
fn refusal(status: &Status) -> Failure {
    if matches!(status.code(), Code::NotFound | Code::InvalidArgument) {
        return Failure::new(Exit::Data, format!("Error:\n{}\n", status.message()));
    }
    call_failure(status)
}

async fn find(client: &mut TaskClient, id: u64) -> Result<wire::Task, Failure> {
    let request = wire::TasksRequest { caller: wire::caller(), id };
    let listed = client.list_tasks(request).await.map_err(|status| refusal(&status))?;
    let found = listed.into_inner().tasks.into_iter().next();
    found.ok_or_else(|| Failure::new(Exit::Data, format!("Error:\nthere is no task {id}\n")))
}

fn is_active(task: &wire::Task) -> bool {
    matches!(task.state.as_str(), "running" | "paused")
}

async fn begin(kind: &str, job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let request = request(kind, job)?;
    let options = &job.invocation.options;
    let mut client = job.connect().await?.tasks;
    let until = Instant::now() + job.limit.saturating_sub(ANSWER);
    let created = client.create_task(request).await.map_err(|status| refusal(&status))?;
    let mut task = created.into_inner();
    if !options.dry_run {
        job.banner(console, format!("Task {} has begun ...", task.id));
    }
    let (mut progress, begun) = (Progress::of(options), Instant::now());
    while !options.has("no-wait") && task.state == "running" && Instant::now() < until {
        progress.show(console, |_| pace(&task, begun.elapsed()));
        sleep(LOOK).await;
        task = find(&mut client, task.id).await?;
    }
    progress.end(console);
    if options.dry_run {
        return dry_run(job, &mut client, &task, console).await;
    }
    let mut text = summary(&task);
    if is_active(&task) {
        text.push_str(" (see list_tasks)");
    }
    job.answer(console, text, &json_of(&task));
    Ok(())
}

/// What a dry run has found; one that takes too long is cancelled.
async fn dry_run(
    job: &Job<'_>,
    client: &mut TaskClient,
    task: &wire::Task,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let is_complete = !is_active(task);
    if !is_complete {
        let request = wire::ControlTaskRequest {
            caller: wire::caller(),
            id: task.id,
            control: "cancel".to_owned(),
        };
        client.control_task(request).await.map_err(|status| refusal(&status))?;
    }
    let least = if is_complete { "" } else { "at least " };
    let text = format!(
        "{least}{} messages match, {} do not; {} match and have no target; nothing was changed",
        task.taken, task.skipped, task.no_target
    );
    let json = json!({ "matched": task.taken, "skipped": task.skipped,
        "no_target": task.no_target, "complete": is_complete });
    job.answer(console, text, &json);
    Ok(())
}

/// How far a task is and how fast, in one line. How many messages there are to look at is not known.
fn pace(task: &wire::Task, elapsed: Duration) -> String {
    let done = task.moved + task.skipped + task.no_target;
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    format!("{}, {rate:.0}/s", summary(task))
}

/// How far a task is, in one line.
fn summary(task: &wire::Task) -> String {
    let wire::Task { id, state, taken, moved, under_way, skipped, no_target, .. } = task;
    if task.kind == "delete" {
        format!("Task {id} is {state}: {moved} deleted, {skipped} skipped")
    } else {
        format!(
            "Task {id} is {state}: {taken} taken, {moved} moved, {under_way} under way, {skipped} \
             skipped, {no_target} without a target"
        )
    }
}

async fn control(word: &str, job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let id = id(job.word(0))?;
    let mut client = job.connect().await?.tasks;
    let request = wire::ControlTaskRequest { caller: wire::caller(), id, control: word.to_owned() };
    let task = client.control_task(request).await.map_err(|status| refusal(&status))?.into_inner();
    job.answer(console, summary(&task), &json_of(&task));
    Ok(())
}

fn id(text: &str) -> Result<u64, Failure> {
    let id = text.parse::<u64>().ok().filter(|id| *id > 0);
    id.ok_or_else(|| usage(format!("the id of a task is a number, not {text}")))
}

fn to_text(to: Option<&wire::TaskTarget>) -> String {
    match to.and_then(|target| target.to.as_ref()) {
        None => String::new(),
        Some(To::Original(_)) => "original".to_owned(),
        Some(To::Queue(name)) => format!("queue:{name}"),
        Some(To::Exchange(name)) => format!("exchange:{name}"),
    }
}

fn filter_text(task: &wire::Task) -> String {
    let parts: Vec<_> =
        task.filter.iter().map(|part| format!("{}={}", part.name, part.value)).collect();
    parts.join(" ")
}

fn json_of(task: &wire::Task) -> Json {
    json!({
        "id": task.id, "kind": task.kind, "vhost": task.vhost, "queue": task.queue,
        "to": to_text(task.to.as_ref()), "filter": filter_text(task), "rate": task.rate,
        "max": task.max, "dry_run": task.dry_run, "state": task.state,
        "created_by": task.created_by, "created_at": task.created_at, "ended_at": task.ended_at,
        "taken": task.taken, "moved": task.moved, "under_way": task.under_way,
        "skipped": task.skipped, "no_target": task.no_target,
    })
}

const COLUMNS: [&str; 13] = [
    "id",
    "kind",
    "vhost",
    "queue",
    "to",
    "filter",
    "state",
    "taken",
    "moved",
    "under_way",
    "skipped",
    "no_target",
    "created_by",
];

fn row(task: &wire::Task) -> Vec<Value> {
    let kind = if task.dry_run { format!("{} (dry run)", task.kind) } else { task.kind.clone() };
    let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    vec![
        number(task.id),
        Value::text(kind),
        Value::text(task.vhost.clone()),
        Value::text(task.queue.clone()),
        Value::text(to_text(task.to.as_ref())),
        Value::text(filter_text(task)),
        Value::text(task.state.clone()),
        number(task.taken),
        number(task.moved),
        number(task.under_way),
        number(task.skipped),
        number(task.no_target),
        Value::text(task.created_by.clone()),
    ]
}

async fn list(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let id = if job.word(0).is_empty() { 0 } else { id(job.word(0))? };
    job.banner(console, "Listing tasks ...");
    let request = wire::TasksRequest { caller: wire::caller(), id };
    let listed = job.connect().await?.tasks.list_tasks(request).await;
    let tasks = listed.map_err(|status| refusal(&status))?.into_inner().tasks;
    let columns = COLUMNS.map(str::to_owned).to_vec();
    let sheet = Sheet { columns, rows: tasks.iter().map(row).collect() };
    let options = &job.invocation.options;
    console.say(&render(&sheet, options.formatter(), options.headers()));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn targets_are_read_from_their_words() {
        let to = |kind, text| target(kind, text).map(|to| to.and_then(|target| target.to));
        assert_eq!(to("redrive", None).unwrap(), Some(To::Original(true)));
        assert_eq!(to("redrive", Some("original")).unwrap(), Some(To::Original(true)));
        let queue = Some(To::Queue("a:b".to_owned()));
        assert_eq!(to("move", Some("queue:a:b")).unwrap(), queue);
        let exchange = Some(To::Exchange(String::new()));
        assert_eq!(to("redrive", Some("exchange:")).unwrap(), exchange);
        assert_eq!(to("delete", None).unwrap(), None);
        for (kind, wrong) in [("move", None), ("move", Some("original")), ("redrive", Some("q"))] {
            assert!(to(kind, wrong).is_err(), "{kind} {wrong:?}");
        }
    }

    #[test]
    fn ids_are_numbers() {
        assert_eq!(id("12").unwrap(), 12);
        assert!(id("0").is_err() && id("-1").is_err() && id("x").is_err());
    }
}
