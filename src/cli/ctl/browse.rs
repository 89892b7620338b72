//! `browse` and `peek`: messages of a queue, looked at without consuming them.

use super::Console;
use super::command::{Manual, Verb, plain};
use super::connect::{Connected, call_failure};
use super::exit::{Exit, Failure};
use super::explain;
use super::format::{Sheet, render};
use super::options::{Formatter, Invocation};
use super::value::Value;
use quorate_management::wire;
use serde_json::{Value as Json, json};
use tonic::{Code, Response, Status, Streaming};

/// Messages that are shown, unless `--count` says how many.
const COUNT: u64 = 20;
/// Messages of one call, at most.
const COUNT_MAX: u64 = 10_000;
/// Messages of one page.
const PAGE: u64 = 200;
/// Bytes of each body, without `--full` and with it.
const SHOWN_BYTES: u64 = 100;
const FULL_BYTES: u64 = 4 << 20;
/// Bytes of a body that `peek` shows, as in rabbitmq-queues.
const PEEKED_BYTES: u64 = 64;

/// Verbs that look at messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrowseVerb {
    Browse,
    Peek,
    Explain,
    Settings,
}

const SECTION: &str = "Queues";

/// The manuals of these verbs.
pub(crate) const MANUALS: &[Manual] = &[
    plain(
        Verb::Browse(BrowseVerb::Browse),
        "browse",
        SECTION,
        "[--vhost <vhost>] <queue> [--from <position>] [--count <n>] [--filter <part>=<value> ...] \
         [--full] [--no-table-headers] [--timeout <timeout>]",
        "Shows messages of a queue without consuming them. Parts of a filter: header=NAME=VALUE, \
         routing_key, reason, death_queue, min_age",
        (1, 1),
        &["from", "count", "filter", "full", "no-table-headers"],
    ),
    plain(
        Verb::Browse(BrowseVerb::Peek),
        "peek",
        SECTION,
        "[--vhost <vhost>] <queue> <position> [--timeout <timeout>]",
        "Peeks at the given position of a queue",
        (2, 2),
        &[],
    ),
    plain(
        Verb::Browse(BrowseVerb::Explain),
        "explain",
        SECTION,
        "[--vhost <vhost>] <queue> <position> [--timeout <timeout>]",
        "Says where a message came from, why it died, and what will become of it",
        (2, 2),
        &[],
    ),
    plain(
        Verb::Browse(BrowseVerb::Settings),
        "explain_settings",
        SECTION,
        "[--vhost <vhost>] <queue> [--no-table-headers] [--timeout <timeout>]",
        "Lists the effective settings of a queue, and the argument or policy that each comes from",
        (1, 1),
        &["no-table-headers"],
    ),
];

/// Carries out a verb.
pub(super) async fn run(
    verb: BrowseVerb,
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match verb {
        BrowseVerb::Browse => browse(invocation, connected, console).await,
        BrowseVerb::Peek => peek(invocation, connected, console).await,
        BrowseVerb::Explain => explain::message(invocation, connected, console).await,
        BrowseVerb::Settings => explain::settings(invocation, connected, console).await,
    }
}

/// The failure of a call about messages: what is not there is a data error.
pub(super) fn refusal(status: &Status) -> Failure {
    if matches!(status.code(), Code::NotFound | Code::OutOfRange | Code::InvalidArgument) {
        return Failure::new(Exit::Data, format!("Error:\n{}\n", status.message()));
    }
    call_failure(status)
}

/// JSON that comes in parts.
pub(super) async fn joined(
    answer: Result<Response<Streaming<wire::JsonChunk>>, Status>,
) -> Result<Json, Failure> {
    let mut chunks = answer.map_err(|status| refusal(&status))?.into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.message().await.map_err(|status| refusal(&status))? {
        bytes.extend_from_slice(&chunk.json);
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::new(Exit::Software, format!("Error:\nthe node's answer is no JSON: {error}\n"))
    })
}

/// The number of messages that are wanted.
fn count(invocation: &Invocation) -> Result<u64, Failure> {
    let Some(text) = invocation.options.value("count") else { return Ok(COUNT) };
    let count = text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| {
        let text = format!("Error: --count must be from 1 to {COUNT_MAX}, not {text}\n");
        Failure::new(Exit::Usage, text)
    })
}

/// The parts of a filter, `PART=VALUE` each.
fn filter(invocation: &Invocation) -> Result<Vec<wire::FilterPart>, Failure> {
    let part = |text: &str| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            let text = format!("Error: --filter expects PART=VALUE, not {text}\n");
            Failure::new(Exit::Usage, text)
        })?;
        Ok(wire::FilterPart { name: name.replace('-', "_"), value: value.to_owned() })
    };
    invocation.options.all_values("filter").map(part).collect()
}

fn argument(invocation: &Invocation, place: usize) -> &str {
    invocation.arguments.get(place).map_or("", String::as_str)
}

async fn browse(
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &invocation.options;
    let (mut left, filter) = (count(invocation)?, filter(invocation)?);
    let truncate = if options.has("full") { FULL_BYTES } else { SHOWN_BYTES };
    if options.banners() {
        let (queue, vhost) = (argument(invocation, 0), options.vhost());
        console.say(&format!("Browsing queue '{queue}' in vhost '{vhost}' ...\n"));
    }
    let (mut messages, mut next) = (Vec::new(), options.value("from").map(str::to_owned));
    let mut stale = false;
    while left > 0 {
        let request = wire::BrowseRequest {
            caller: wire::caller(),
            scope: wire::Scope::Cluster.into(),
            vhost: options.vhost().to_owned(),
            queue: argument(invocation, 0).to_owned(),
            from: next.clone().unwrap_or_default(),
            count: u32::try_from(left.min(PAGE)).ok(),
            filter: filter.clone(),
            truncate: Some(truncate),
            refuse_exclusive: false,
        };
        let mut page = joined(connected.messages.browse(request).await).await?;
        let found = page.get_mut("messages").map(Json::take).unwrap_or_default();
        let found = if let Json::Array(found) = found { found } else { Vec::new() };
        left = left.saturating_sub(found.len() as u64);
        messages.extend(found);
        stale |= page.get("stale") == Some(&Json::Bool(true));
        next = page.get("next").and_then(Json::as_str).map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    show(messages, next.as_deref(), invocation, console);
    if stale {
        console.complain(
            "Warning: the queue's group has no majority; newer messages may be missing\n",
        );
    }
    Ok(())
}

fn show(
    messages: Vec<Json>,
    next: Option<&str>,
    invocation: &Invocation,
    console: &mut Console<'_>,
) {
    let options = &invocation.options;
    if options.formatter() == Formatter::Json {
        console.say(&format!("{}\n", json!({ "messages": messages, "next": next })));
        return;
    }
    let columns = COLUMNS.map(str::to_owned).to_vec();
    let sheet = Sheet { columns, rows: messages.iter().map(row).collect() };
    console.say(&render(&sheet, options.formatter(), options.headers()));
    if let Some(next) = next.filter(|_| options.banners()) {
        console.say(&format!("More messages: --from {next}\n"));
    }
}

/// The columns of the table.
const COLUMNS: [&str; 9] = [
    "position",
    "state",
    "exchange",
    "routing_key",
    "delivery_count",
    "age_ms",
    "deaths",
    "payload_bytes",
    "payload",
];

fn row(message: &Json) -> Vec<Value> {
    let text =
        |name: &str| Value::text(message.get(name).and_then(Json::as_str).unwrap_or_default());
    let number =
        |name: &str| Value::Number(message.get(name).and_then(Json::as_u64).unwrap_or_default());
    vec![
        text("position"),
        text("state"),
        text("exchange"),
        text("routing_key"),
        number("delivery_count"),
        number("age_ms"),
        Value::text(deaths(message)),
        number("payload_bytes"),
        text("payload"),
    ]
}

/// The deaths, the latest first: reason, queue and number.
fn deaths(message: &Json) -> String {
    let deaths = message.get("deaths").and_then(Json::as_array).into_iter().flatten();
    let one = |death: &Json| {
        let text = |name: &str| death.get(name).and_then(Json::as_str).unwrap_or_default();
        let count = death.get("count").and_then(Json::as_u64).unwrap_or(1);
        let times = if count > 1 { format!(" x{count}") } else { String::new() };
        format!("{} in {}{times}", text("reason"), text("queue"))
    };
    deaths.map(one).collect::<Vec<_>>().join(", ")
}

async fn peek(
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &invocation.options;
    let [queue, position] = [0, 1].map(|place| argument(invocation, place));
    let node = connected.asked().map(|member| member.name.clone()).unwrap_or_default();
    if options.banners() {
        console.say(&format!(
            "Peeking at quorum queue {queue} at position {position} on node {node} ...\n"
        ));
    }
    let request = wire::BrowseRequest {
        caller: wire::caller(),
        scope: wire::Scope::Cluster.into(),
        vhost: options.vhost().to_owned(),
        queue: queue.to_owned(),
        from: position.to_owned(),
        count: Some(1),
        filter: Vec::new(),
        truncate: Some(PEEKED_BYTES),
        refuse_exclusive: false,
    };
    let page = joined(connected.messages.browse(request).await).await?;
    let Some(message) = page.pointer("/messages/0") else {
        let text = "Error:\nTarget queue does not have a message at that position\n";
        return Err(Failure::new(Exit::Data, text));
    };
    let columns = ["keys", "values"].map(str::to_owned).to_vec();
    let sheet = Sheet { columns, rows: pairs(message) };
    // As rabbitmq-queues does it unless another format is asked for.
    let formatter = options.formatter.unwrap_or(Formatter::Pretty);
    console.say(&render(&sheet, formatter, options.headers()));
    Ok(())
}

/// A message as keys and values, in the order of rabbitmq-queues.
fn pairs(message: &Json) -> Vec<Vec<Value>> {
    let value = |value: &Json| match value.as_str() {
        Some(text) => Value::text(text.to_owned()),
        None => Value::text(value.to_string()),
    };
    let mut rows = Vec::new();
    let mut add = |key: String, of: Option<&Json>| {
        rows.extend(of.map(|of| vec![Value::text(key), value(of)]));
    };
    add("message_id".to_owned(), message.get("position"));
    let none = serde_json::Map::new();
    let properties = message.get("properties").and_then(Json::as_object).unwrap_or(&none);
    let without_headers = properties.iter().filter(|(name, _)| name.as_str() != "headers");
    for (name, property) in without_headers {
        // The id that its publisher gave it is not the queue's.
        let name = if name == "message_id" { "property.message_id" } else { name.as_str() };
        add(name.to_owned(), Some(property));
    }
    add("routing_keys".to_owned(), message.get("routing_key"));
    add("exchange".to_owned(), message.get("exchange"));
    add(format!("payload (max {PEEKED_BYTES} bytes)"), message.get("payload"));
    let headers = properties.get("headers").and_then(Json::as_object).unwrap_or(&none);
    for (name, header) in headers.iter().filter(|(name, _)| name.as_str() != "x-delivery-count") {
        add(format!("header.{name}"), Some(header));
    }
    add("header.x-delivery-count".to_owned(), message.get("delivery_count"));
    rows
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cli::ctl::options::parse;
    use expect_test::expect;

    fn invocation(line: &str) -> Invocation {
        let line: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&line, "quorate ctl").unwrap()
    }

    fn message() -> Json {
        json!({
            "position": "4.812.0", "state": "ready", "exchange": "orders",
            "routing_key": "order.new", "delivery_count": 0, "age_ms": 5,
            "deaths": [{ "reason": "expired", "queue": "work", "count": 2 }],
            "payload_bytes": 7, "payload": "hello 1",
            "properties": { "delivery_mode": 2, "headers": { "h": 1 } },
        })
    }

    #[test]
    fn a_table_has_a_line_for_each_message() {
        let sheet =
            Sheet { columns: COLUMNS.map(str::to_owned).to_vec(), rows: vec![row(&message())] };
        expect![[r#"
            position	state	exchange	routing_key	delivery_count	age_ms	deaths	payload_bytes	payload
            4.812.0	ready	orders	order.new	0	5	expired in work x2	7	hello 1
        "#]]
        .assert_eq(&render(&sheet, Formatter::Table, true));
    }

    /// As in the golden output, but for the position and the signs of the table.
    #[test]
    fn a_peek_has_rabbitmqs_keys() {
        let columns = ["keys", "values"].map(str::to_owned).to_vec();
        let sheet = Sheet { columns, rows: pairs(&message()) };
        expect![[r#"
            keys	values
            message_id	4.812.0
            delivery_mode	2
            routing_keys	order.new
            exchange	orders
            payload (max 64 bytes)	hello 1
            header.h	1
            header.x-delivery-count	0
        "#]]
        .assert_eq(&render(&sheet, Formatter::Table, true));
    }

    #[test]
    fn options_are_read_or_refused_by_name() {
        let given = invocation(
            "browse q --count 7 --filter reason=expired --filter routing-key=a.# --from 4.1.0",
        );
        assert_eq!(count(&given), Ok(7));
        let parts = filter(&given).unwrap();
        let parts: Vec<_> = parts.iter().map(|it| (it.name.as_str(), it.value.as_str())).collect();
        assert_eq!(parts, [("reason", "expired"), ("routing_key", "a.#")]);
        assert_eq!(count(&invocation("browse q")), Ok(COUNT));
        for wrong in ["0", "x", "10001", "-1"] {
            let failure = count(&invocation(&format!("browse q --count={wrong}"))).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.text.contains(wrong), "{}", failure.text);
        }
        let failure = filter(&invocation("browse q --filter red")).unwrap_err();
        assert_eq!(failure.text, "Error: --filter expects PART=VALUE, not red\n");
    }
}
