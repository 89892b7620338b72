//! The house in order: imports go downwards, pure floors stay pure, files say what they are and stay
//! short, cited rules exist, the broker's types and import cycles stay small, a setting has one name,
//! and what README and docs name is there (HOUSE.md).

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

mod pages;
mod rules;
mod settings;
mod sizes;

use quorate_cluster_tests::harness::package_dir;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Each floor, from the bottom, and the floors that it may use.
const FLOORS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("tls", &[]),
    ("queue", &["types"]),
    ("catalog", &["queue", "types"]),
    ("client", &["types"]),
    ("rpc", &["tls", "types"]),
    ("storage", &["queue", "catalog", "types"]),
    ("raft", &["storage", "rpc", "queue", "catalog", "types"]),
    ("broker", &["raft", "storage", "rpc", "client", "queue", "catalog", "types"]),
    ("amqp", &["client", "tls", "types"]),
    // rpc too: its gRPC service for `quorate ctl` lives with what it serves. client: what is changed
    // over HTTP is asked of the broker as clients ask.
    ("management", &["broker", "rpc", "client", "tls", "catalog", "types"]),
];

/// Floors without clocks, sockets, disks and threads.
const PURE: &[&str] = &["types", "queue", "catalog"];

/// What a pure floor may not even reach through others.
const IMPURE: &[&str] = &[
    "axum",
    "crossbeam-channel",
    "fs2",
    "librocksdb-sys",
    "mio",
    "openraft",
    "parking_lot",
    "rocksdb",
    "socket2",
    "tokio",
    "tonic",
    "tracing-subscriber",
];

/// Floors whose tests and fuzz targets build without what replicates and stores.
const WITHOUT_ENGINE: &[&str] = &["client", "amqp"];

/// What replicates and stores, and what nodes talk through.
const ENGINE: &[&str] = &["librocksdb-sys", "openraft", "rocksdb", "tonic"];

/// The most lines that a file may have.
const LINES_MOST: usize = 500;

/// Files that are longer, each with the reason why it is one file.
const LONG_FILES: &[(&str, &str)] = &[];

fn root() -> PathBuf {
    package_dir().parent().expect("cluster-tests lies in the project").to_owned()
}

fn read(path: &Path) -> String {
    read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn toml_of(path: &Path) -> Table {
    read(path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every .rs file of the project, with its path from the root.
fn sources() -> Vec<(String, String)> {
    let found = files("rs");
    assert!(found.len() > 50, "only {} sources found", found.len());
    found
}

/// Every file of `src` and `cluster-tests` with that extension, with its path from the root.
fn files(extension: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join("src"), root.join("cluster-tests")];
    while let Some(folder) = folders.pop() {
        for entry in read_dir(&folder).expect("a folder of the project").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() {
                // Build outputs, and the dependencies of interoperability clients.
                if name != "target"
                    && name != "node_modules"
                    && !name.to_string_lossy().starts_with('.')
                {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|it| it == extension) {
                let from_root = path.strip_prefix(&root).expect("below the root");
                found.push((from_root.display().to_string(), read(&path)));
            }
        }
    }
    found.sort();
    found
}

/// The crates that a manifest names, of every kind of dependency.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|kind| manifest.get(*kind).and_then(Value::as_table))
        .flat_map(|table| table.keys().cloned())
        .collect()
}

fn assert_none(what: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{what}:\n  {}", violations.join("\n  "));
}

#[test]
fn imports_go_downwards() {
    let mut upwards = Vec::new();
    for (floor, allowed) in FLOORS {
        let manifest = toml_of(&root().join("src").join(floor).join("Cargo.toml"));
        for dependency in dependencies(&manifest) {
            if let Some(used) = dependency.strip_prefix("quorate-")
                && !allowed.contains(&used)
            {
                upwards.push(format!("src/{floor} uses {used}"));
            }
        }
    }
    assert_none("imports that go upwards or sideways", &upwards);
}

#[test]
fn every_floor_is_in_the_table() {
    let mut folders = BTreeSet::new();
    for entry in read_dir(root().join("src")).expect("src").flatten() {
        if entry.path().join("Cargo.toml").exists() {
            folders.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    let floors: BTreeSet<String> = FLOORS.iter().map(|(floor, _)| (*floor).to_owned()).collect();
    assert_eq!(folders, floors);
}

/// Crates by name, with the names of what they depend on, as Cargo.lock has them.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let lock = toml_of(&root().join("Cargo.lock"));
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock.get("package").and_then(Value::as_array).expect("packages") {
        let name = package.get("name").and_then(Value::as_str).expect("a name");
        let used = package.get("dependencies").and_then(Value::as_array);
        let used = used.into_iter().flatten().filter_map(Value::as_str);
        // `name`, or `name version` where there are several.
        let names = used.filter_map(|dependency| dependency.split(' ').next()).map(str::to_owned);
        graph.entry(name.to_owned()).or_default().extend(names);
    }
    graph
}

/// Which of those crates a floor reaches, through whatever others.
fn reaches(graph: &BTreeMap<String, BTreeSet<String>>, floor: &str, wrong: &[&str]) -> Vec<String> {
    let start = format!("quorate-{floor}");
    assert!(graph.contains_key(&start), "Cargo.lock has no {start}");
    let mut found = Vec::new();
    let mut reached = BTreeSet::from([start.clone()]);
    let mut ahead = vec![start];
    while let Some(name) = ahead.pop() {
        for next in graph.get(&name).into_iter().flatten() {
            if wrong.contains(&next.as_str()) {
                found.push(format!("src/{floor} reaches {next} through {name}"));
            } else if reached.insert(next.clone()) {
                ahead.push(next.clone());
            }
        }
    }
    found
}

#[test]
fn pure_floors_reach_no_impure_crate() {
    let graph = locked();
    let impure: Vec<_> = PURE.iter().flat_map(|floor| reaches(&graph, floor, IMPURE)).collect();
    assert_none("impure crates in pure floors", &impure);
}

#[test]
fn front_ends_build_without_the_engine() {
    let graph = locked();
    assert!(
        !reaches(&graph, "broker", ENGINE).is_empty(),
        "the crates of the engine have other names"
    );
    let found: Vec<_> =
        WITHOUT_ENGINE.iter().flat_map(|floor| reaches(&graph, floor, ENGINE)).collect();
    assert_none("front ends that need the engine", &found);
}

#[test]
fn every_file_begins_by_saying_what_it_is() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! ") || text.starts_with("//! placeholder"))
        .map(|(path, _)| path)
        .collect();
    assert_none("files that do not begin with `//!` and what they are", &silent);
}

#[test]
fn no_file_is_too_long() {
    let mut wrong = Vec::new();
    let mut long = BTreeSet::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > LINES_MOST {
            if !LONG_FILES.iter().any(|(allowed, _)| *allowed == path) {
                wrong.push(format!("{path}: {lines} lines"));
            }
            long.insert(path);
        }
    }
    for (path, _) in LONG_FILES {
        if !long.contains(*path) {
            wrong.push(format!("{path} is on the list of long files, and is not long"));
        }
    }
    assert_none(&format!("files of more than {LINES_MOST} lines"), &wrong);
}
