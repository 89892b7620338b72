//! What a failed test leaves, printed where its failure is: of each node how it is and its last words, and what
//! a node that answers says of the cluster and its queues.

use super::node::Node;
use super::{Cluster, ctl};
use std::fmt::Write;
use std::time::Duration;

/// Lines of each node's log.
const LOG_LINES: usize = 60;
/// Letters of a line.
const LINE_LETTERS: usize = 400;
/// How long a node that may hang is waited for.
const ANSWER: Duration = Duration::from_secs(10);
/// Lines of an answer.
const ANSWER_LINES: usize = 80;
/// What is asked.
const QUESTIONS: [&[&str]; 2] = [
    &["cluster_status"],
    &[
        "list_queues",
        "name",
        "type",
        "leader",
        "messages_ready",
        "messages_unacknowledged",
        "consumers",
    ],
];

/// All of it, as text.
pub(super) fn told(cluster: &Cluster) -> String {
    let mut told = String::new();
    for node in cluster.all() {
        // Writing to a string does not fail.
        let _ = writeln!(told, "--- node {}: {}; its last lines:", node.id(), node.state());
        let log = node.log();
        let lines = log.lines().count();
        append(&mut told, log.lines().skip(lines.saturating_sub(LOG_LINES)));
    }
    match cluster.all().filter(|node| node.runs()).find_map(|node| answers(cluster, node)) {
        Some(answers) => told.push_str(&answers),
        None => told.push_str("--- no node says how the cluster is\n"),
    }
    told
}

/// What a node says; none if it does not answer.
fn answers(cluster: &Cluster, node: &Node) -> Option<String> {
    let mut told = String::new();
    for question in QUESTIONS {
        let (binary, rpc) = (cluster.binary(), node.rpc_address());
        let answer = ctl::run_briefly(binary, &rpc, cluster.secret(), question, ANSWER)?;
        let _ = writeln!(told, "--- {} of node {}:", question.join(" "), node.id());
        append(&mut told, answer.lines().take(ANSWER_LINES));
    }
    Some(told)
}

fn append<'a>(told: &mut String, lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        told.push_str("    ");
        told.extend(line.chars().take(LINE_LETTERS));
        told.push('\n');
    }
}
