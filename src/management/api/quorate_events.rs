//! What has happened lately on the nodes: `/api/quorate/events`.
//!
//! `since` is the `next` of the answer before: the number of the last event that was read of each
//! node, `1:1700000000000,2:1700000000001`.

use crate::api::call::{Answer, Api, Call};
use crate::api::names::Names;
use crate::api::refusal::{Refusal, bad_request};
use crate::page;
use serde_json::json;
use std::collections::BTreeMap;

/// Events of one node in an answer.
const EVENTS_MAX: u32 = 200;
/// Nodes that a request may name.
const NODES_MAX: usize = 1_000;

/// The number of the last event that was read, by node.
type Cursor = BTreeMap<u32, u64>;

fn cursor(text: &str) -> Result<Cursor, Refusal> {
    let wrong =
        |part: &str| bad_request(format!("since must be NODE:NUMBER,..., not '{part:.40}'"));
    let mut cursor = Cursor::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let parsed = part.split_once(':').and_then(|(node, number)| {
            Some((node.parse::<u32>().ok()?, number.parse::<u64>().ok()?))
        });
        let Some((node, number)) = parsed else { return wrong(part) };
        if cursor.len() == NODES_MAX {
            return wrong("more nodes than a cluster has");
        }
        cursor.insert(node, number);
    }
    Ok(cursor)
}

fn shown(cursor: &Cursor) -> String {
    let parts: Vec<_> = cursor.iter().map(|(node, number)| format!("{node}:{number}")).collect();
    parts.join(",")
}

/// The newest events of all nodes, the oldest first.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let mut cursor = cursor(call.query.get("since").unwrap_or_default())?;
    let this = u32::from(api.facts.id.0);
    let since = |cursor: &Cursor, node| cursor.get(&node).copied().unwrap_or_default();
    let listed = api.cluster.events(&cursor, EVENTS_MAX).await;
    let own = page::newest(since(&cursor, this), EVENTS_MAX as usize);
    let (names, mut events) = (Names::known(api), Vec::new());
    for (node, of_node) in listed.items.into_iter().chain([(this, own)]) {
        if let Some(last) = of_node.last() {
            cursor.insert(node, last.number);
        }
        events.extend(of_node.into_iter().map(|event| (event.time_ms, node, event)));
    }
    events.sort_by_key(|(time_ms, node, event)| (*time_ms, *node, event.number));
    let events: Vec<_> =
        events.iter().map(|(_, node, event)| page::event_json(names.name(*node), event)).collect();
    let answer = json!({ "events": events, "next": shown(&cursor) });
    Ok(Answer::object(answer).without(listed.silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_given_back_as_it_was_got() {
        let text = "1:1700000000000,3:5";
        assert_eq!(cursor(text).map(|cursor| shown(&cursor)), Ok(text.to_owned()));
        assert_eq!(cursor(""), Ok(Cursor::new()));
        for wrong in ["1", "a:1", "1:-1", "1:2,x", "1:99999999999999999999"] {
            assert!(matches!(cursor(wrong), Err(Refusal::BadRequest(_))), "{wrong}");
        }
    }
}
