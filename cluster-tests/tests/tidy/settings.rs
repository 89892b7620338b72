//! A setting has one name, from the key that users write to the fields that carry its value.

use crate::{assert_none, read, root};
use std::collections::BTreeSet;

/// Where the settings are, and where their values go into the option types of the crates.
const TABLE: &str = "src/cli/settings/table.rs";
const WIRING: &[&str] = &["src/cli/wiring.rs", "src/cli/memory.rs"];

/// Fields with another name than their setting, each with the reason.
const OTHER_NAMES: &[(&str, &str)] = &[
    // `me` is this node's id throughout the code, beside the ids of other nodes.
    ("me", "node_id"),
];

fn is_name(text: &str) -> bool {
    text.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// The keys of the table: lines such as `queue_groups: u16 = "12";`.
fn keys(table: &str) -> BTreeSet<&str> {
    let lines = table.lines().filter(|line| line.contains(" = \"") && line.ends_with("\";"));
    lines
        .filter_map(|line| line.trim().split_once(": "))
        .map(|(key, _)| key)
        .filter(|key| is_name(key))
        .collect()
}

/// Pairs of a field and the setting (or the share of the memory) that its value is made of, where a
/// struct is filled or a field is assigned.
fn pairs(source: &str) -> Vec<(String, String)> {
    let code: Vec<_> = source.lines().filter(|line| !line.trim().starts_with("//")).collect();
    let code = code.join(" ");
    let pieces = code.split([',', ';', '{', '}']).map(str::trim);
    let mut found = Vec::new();
    for piece in pieces.filter(|piece| !piece.starts_with("let ")) {
        let parts = piece.split_once(": ").or_else(|| piece.split_once(" = "));
        let Some((left, right)) = parts else { continue };
        let field = left.rsplit('.').next().unwrap_or(left);
        if !is_name(field) {
            continue;
        }
        for from in ["settings.", "memory."] {
            let Some((_, after)) = right.split_once(from) else { continue };
            let end = after.find(|it: char| !it.is_alphanumeric() && it != '_');
            let key = after.get(..end.unwrap_or(after.len())).unwrap_or_default();
            found.push((field.to_owned(), key.to_owned()));
        }
    }
    found
}

#[test]
fn a_setting_has_one_name() {
    let table = read(&root().join(TABLE));
    let keys = keys(&table);
    let mut found = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in WIRING {
        for (field, key) in pairs(&read(&root().join(path))) {
            // Other fields and methods, such as `settings.rpc_address()`.
            if key != "machine_memory_bytes" && !keys.contains(key.as_str()) {
                continue;
            }
            // A `Duration` has no unit in its name.
            let same = field == key || key.strip_suffix("_ms") == Some(&field);
            if !same && !OTHER_NAMES.contains(&(field.as_str(), key.as_str())) {
                wrong.push(format!("{path}: the field {field} has the setting {key}"));
            }
            found.insert(key);
        }
    }
    assert_none("fields that are not named as their settings", &wrong);
    assert!(found.len() > 40, "only {} settings found: {found:?}", found.len());
}

#[test]
fn this_test_sees_what_it_looks_for() {
    let table =
        "    /// a: B = \"c\";\n    node_id: NodeId = \"1\";\n    data_dir: PathBuf = \"q\";\n";
    assert_eq!(keys(table), BTreeSet::from(["node_id", "data_dir"]));
    let source = "raft.beat =\n  ms(settings.heartbeat_ms);\nlet x = settings.y;\n\
        S { a: settings.b.0, c: usize::try_from(memory.d).unwrap_or(1) }";
    let pair = |field: &str, key: &str| (field.to_owned(), key.to_owned());
    assert_eq!(pairs(source), [pair("beat", "heartbeat_ms"), pair("a", "b"), pair("c", "d")]);
}
