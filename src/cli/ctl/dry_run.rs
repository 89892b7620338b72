//! `--dry-run` of policies and definitions: what they would change, without changing it.

use super::Console;
use super::browse::joined;
use super::command::PolicyVerb;
use super::connect::MessageClient;
use super::definitions;
use super::exit::Failure;
use super::explain::cell;
use super::format::{Sheet, render};
use super::options::{Formatter, Invocation};
use super::policies;
use super::value::Value;
use quorate_management::wire::{self, dry_run_policy_request::Change};
use serde_json::Value as Json;

/// Shows what setting or clearing a policy would do.
pub(super) async fn policy(
    verb: PolicyVerb,
    invocation: &Invocation,
    client: &mut MessageClient,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let change = match verb {
        PolicyVerb::SetPolicy(kind) => {
            policies::set_policy(kind, invocation).policy.map(Change::Set)
        }
        PolicyVerb::ClearPolicy(kind) => {
            Some(Change::Clear(policies::policy_request(kind, invocation)))
        }
        // They have no dry run.
        PolicyVerb::ListPolicies(_)
        | PolicyVerb::ListMatching
        | PolicyVerb::SetClusterName
        | PolicyVerb::SetParameter(_)
        | PolicyVerb::ClearParameter(_)
        | PolicyVerb::ListParameters(_) => None,
    };
    let request = wire::DryRunPolicyRequest { caller: wire::caller(), change };
    let answer = client.dry_run_policy(request).await;
    let answer = answer.map_err(|status| policies::refusal(&status))?;
    show(&joined(Ok(answer)).await?, invocation, console);
    Ok(())
}

/// Shows what an import would do.
pub(super) async fn definitions(
    invocation: &Invocation,
    client: &mut MessageClient,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let chunks = definitions::read(invocation)?;
    let answer = client.dry_run_definitions(tokio_stream::iter(chunks)).await;
    let answer = answer.map_err(|status| definitions::refusal(&status))?;
    show(&joined(Ok(answer)).await?, invocation, console);
    Ok(())
}

fn show(run: &Json, invocation: &Invocation, console: &mut Console<'_>) {
    let options = &invocation.options;
    if options.formatter() == Formatter::Json {
        console.say(&format!("{run}\n"));
        return;
    }
    if options.banners() {
        console.say(&summary(run));
    }
    console.say(&render(&sheet(run), options.formatter(), options.headers()));
}

/// The objects and the number of queues, and what is not done.
fn summary(run: &Json) -> String {
    let mut text = "Dry run: nothing is changed.\n".to_owned();
    for (list, what) in [("made", "Makes"), ("changed", "Changes"), ("left_out", "Skips")] {
        for object in run.get(list).and_then(Json::as_array).into_iter().flatten() {
            text.push_str(&format!("{what} {}\n", object.as_str().unwrap_or_default()));
        }
    }
    let count = run.get("queue_count").and_then(Json::as_u64).unwrap_or_default();
    let shown = run.get("queues").and_then(Json::as_array).map_or(0, Vec::len);
    text.push_str(&format!("Queues whose settings change: {count}"));
    text.push_str(&if (shown as u64) < count {
        format!(", of which {shown} are shown\n")
    } else {
        "\n".to_owned()
    });
    text
}

/// A line for each setting that changes.
fn sheet(run: &Json) -> Sheet {
    const COLUMNS: [&str; 9] = [
        "vhost",
        "queue",
        "setting",
        "before",
        "after",
        "source",
        "name",
        "dropped",
        "dead_lettered",
    ];
    let queues = run.get("queues").and_then(Json::as_array).into_iter().flatten();
    let rows = queues.flat_map(|queue| {
        let changes = queue.get("changes").and_then(Json::as_array).into_iter().flatten();
        changes.map(move |change| {
            let of_change =
                ["setting", "before", "after", "source", "name"].map(|name| cell(change.get(name)));
            [cell(queue.get("vhost")), cell(queue.get("name"))]
                .into_iter()
                .chain(of_change)
                .chain([lost(queue, "dropped"), lost(queue, "dead_lettered")])
                .collect()
        })
    });
    Sheet { columns: COLUMNS.map(str::to_owned).to_vec(), rows: rows.collect() }
}

/// How many messages a queue loses at once.
fn lost(queue: &Json, name: &str) -> Value {
    let Some(count) = queue.get(name).and_then(Json::as_u64) else { return Value::word("unknown") };
    let says = |flag: &str| queue.get(flag) == Some(&Json::Bool(true));
    match count {
        _ if says("deleted") && name == "dropped" => {
            Value::word(format!("{count}, with the queue"))
        }
        count if says("at_least") && count > 0 => Value::word(format!("at least {count}")),
        count => Value::Number(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn a_dry_run_is_a_line_for_each_setting() {
        let change = |setting: &str, before: Json, after: Json| {
            json!({ "setting": setting, "before": before, "after": after, "source": "policy",
                "name": "p" })
        };
        let run = json!({
            "queues": [
                { "vhost": "/", "name": "a", "dropped": 0, "dead_lettered": 7, "at_least": true,
                  "deleted": false, "changes": [
                    change("max-length", Json::Null, json!(5)),
                    change("overflow", json!("reject-publish"), json!("drop-head")),
                ] },
                { "vhost": "/", "name": "b", "dropped": null, "dead_lettered": null,
                  "at_least": false, "deleted": false, "changes": [
                    change("expires", json!(1), Json::Null),
                ] },
                { "vhost": "/", "name": "c", "dropped": 2, "dead_lettered": 0, "at_least": false,
                  "deleted": true, "changes": [change("expires", Json::Null, json!(1))] },
            ],
            "queue_count": 4, "made": ["queue 'x' in vhost '/'"], "changed": [], "left_out": [],
        });
        expect![[r#"
            Dry run: nothing is changed.
            Makes queue 'x' in vhost '/'
            Queues whose settings change: 4, of which 3 are shown
        "#]]
        .assert_eq(&summary(&run));
        expect![[r#"
            vhost	queue	setting	before	after	source	name	dropped	dead_lettered
            /	a	max-length		5	policy	p	0	at least 7
            /	a	overflow	reject-publish	drop-head	policy	p	0	at least 7
            /	b	expires	1		policy	p	unknown	unknown
            /	c	expires		1	policy	p	2, with the queue	0
        "#]]
        .assert_eq(&render(&sheet(&run), Formatter::Table, true));
    }
}
