//! `explain` and `explain_settings`: what becomes of a message, and where a queue's settings come
//! from.

use super::Console;
use super::browse::joined;
use super::connect::Connected;
use super::exit::Failure;
use super::format::{Sheet, render};
use super::options::{Formatter, Invocation};
use super::policies::argument;
use super::value::Value;
use quorate_management::wire;
use serde_json::Value as Json;

/// Explains one message.
pub(super) async fn message(
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let request = wire::ExplainRequest {
        caller: wire::caller(),
        scope: wire::Scope::Cluster.into(),
        vhost: invocation.options.vhost().to_owned(),
        queue: argument(invocation, 0).to_owned(),
        position: argument(invocation, 1).to_owned(),
        refuse_exclusive: false,
    };
    let explained = joined(connected.messages.explain(request).await).await?;
    if invocation.options.formatter() == Formatter::Json {
        console.say(&format!("{explained}\n"));
        return Ok(());
    }
    let sentences = explained.get("sentences").and_then(Json::as_array).into_iter().flatten();
    let text: String =
        sentences.filter_map(Json::as_str).map(|sentence| format!("{sentence}\n")).collect();
    console.say(&text);
    Ok(())
}

/// Lists the settings of a queue.
pub(super) async fn settings(
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &invocation.options;
    if options.banners() {
        let (queue, vhost) = (argument(invocation, 0), options.vhost());
        console.say(&format!("Listing settings of queue '{queue}' in vhost '{vhost}' ...\n"));
    }
    let request = wire::SettingsRequest {
        caller: wire::caller(),
        scope: wire::Scope::Cluster.into(),
        vhost: options.vhost().to_owned(),
        queue: argument(invocation, 0).to_owned(),
    };
    let settings = joined(connected.messages.get_settings(request).await).await?;
    console.say(&render(&sheet(&settings), options.formatter(), options.headers()));
    Ok(())
}

/// A value of a setting in a cell.
pub(super) fn cell(value: Option<&Json>) -> Value {
    match value {
        None | Some(Json::Null) => Value::Empty,
        Some(Json::String(text)) => Value::text(text.clone()),
        Some(Json::Bool(truth)) => Value::Bool(*truth),
        Some(other @ (Json::Number(_) | Json::Array(_) | Json::Object(_))) => {
            other.as_u64().map_or_else(|| Value::text(other.to_string()), Value::Number)
        }
    }
}

fn sheet(settings: &Json) -> Sheet {
    let columns = ["setting", "value", "source", "name"];
    let rows = settings.as_array().into_iter().flatten();
    let row = |setting: &Json| columns.iter().map(|column| cell(setting.get(*column))).collect();
    Sheet { columns: columns.map(str::to_owned).to_vec(), rows: rows.map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn settings_have_their_sources() {
        let settings = json!([
            { "setting": "max-length", "value": 5, "source": "policy", "name": "p" },
            { "setting": "expires", "value": null, "source": "default", "name": null },
            { "setting": "single-active-consumer", "value": true, "source": "argument",
              "name": "x-single-active-consumer" },
        ]);
        expect![[r#"
            setting	value	source	name
            max-length	5	policy	p
            expires		default	
            single-active-consumer	true	argument	x-single-active-consumer
        "#]]
        .assert_eq(&render(&sheet(&settings), Formatter::Table, true));
    }
}
