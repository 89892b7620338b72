//! An administrator who changes a policy and users through one node after the other while faults happen. What
//! was answered is in force on all nodes in the end; what was not answered may be or not.

use crate::harness::wait::HANGS;
use crate::harness::{Cluster, ctl};
use crate::history::History;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Between two changes.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a change may take before it counts as not answered. Longer than nodes try.
const ANSWER: Duration = Duration::from_secs(15);
/// The policy. It sets a length that no queue reaches, so that its queues are configured again and again.
const POLICY: &str = "chaos-length";
/// The least length; each change sets the next one.
const LENGTH: u64 = 1_000_000;
/// Users that come and go.
const USERS: u64 = 8;

/// What the administrator knows.
#[derive(Debug)]
pub struct Administrator<'a> {
    cluster: &'a Cluster,
    history: &'a History,
    changes: u64,
    /// The length that was answered last.
    length: Option<u64>,
    /// Lengths that were not answered.
    lengths_in_doubt: BTreeSet<u64>,
    /// The users that are there.
    users: BTreeSet<String>,
    /// The users of whom a change was not answered.
    users_in_doubt: BTreeSet<String>,
}

impl<'a> Administrator<'a> {
    /// Nothing has been changed yet.
    #[must_use]
    pub fn new(cluster: &'a Cluster, history: &'a History) -> Self {
        Self {
            cluster,
            history,
            changes: 0,
            length: None,
            lengths_in_doubt: BTreeSet::new(),
            users: BTreeSet::new(),
            users_in_doubt: BTreeSet::new(),
        }
    }

    /// Changes one thing after the other for that time.
    pub async fn work(&mut self, lasts: Duration) {
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            sleep(PAUSE).await;
            self.changes += 1;
            match self.changes.is_multiple_of(2) {
                true => self.change_policy().await,
                false => self.change_user().await,
            }
        }
    }

    async fn change_policy(&mut self) {
        let length = LENGTH + self.changes;
        let definition = format!("{{\"max-length\":{length}}}");
        let set = ["set_policy", POLICY, "^mix-plain-", &definition, "--apply-to", "queues"];
        if self.is_answered(&set).await {
            self.length = Some(length);
        } else {
            self.lengths_in_doubt.insert(length);
        }
    }

    async fn change_user(&mut self) {
        let user = format!("chaos-user-{}", self.changes % USERS);
        let is_there = self.users.contains(&user);
        let answered = match is_there {
            true => self.is_answered(&["delete_user", &user]).await,
            false => self.is_answered(&["add_user", &user, "a password"]).await,
        };
        if !answered {
            self.users_in_doubt.insert(user.clone());
        }
        match is_there {
            true => self.users.remove(&user),
            false => self.users.insert(user),
        };
    }

    /// Whether a node has said that it has done so.
    async fn is_answered(&self, change: &[&str]) -> bool {
        let nodes: Vec<u64> = self.cluster.nodes().iter().map(|node| node.id()).collect();
        let turn = usize::try_from(self.changes / 2).unwrap_or_default() % nodes.len();
        let answer = timeout(ANSWER, self.cluster.ctl(nodes[turn], change)).await;
        answer.is_ok_and(|answer| answer.succeeded().is_ok())
    }

    /// Compares what each node tells with what was answered, until they agree or never will. All
    /// nodes must run.
    pub async fn check(&self) {
        let end = Instant::now() + HANGS;
        loop {
            let mut wrong = Vec::new();
            for node in self.cluster.nodes() {
                wrong.extend(self.wrong_at(node.id()).await);
            }
            if wrong.is_empty() || Instant::now() > end {
                return wrong.into_iter().for_each(|what| self.history.forgotten(what));
            }
            sleep(PAUSE).await;
        }
    }

    /// What a node tells that is not what was answered.
    async fn wrong_at(&self, node: u64) -> Vec<String> {
        let (policies, users) = tokio::join!(
            self.cluster.rows(node, &["list_policies"]),
            self.cluster.rows(node, &["list_users"]),
        );
        let (Ok(policies), Ok(users)) = (policies, users) else {
            return vec![format!("node {node} lists no policies or users")];
        };
        let mut wrong = Vec::new();
        let length = policies.iter().find_map(length_of);
        let in_doubt = length.is_some_and(|length| self.lengths_in_doubt.contains(&length));
        if length != self.length && !in_doubt {
            let wanted = self.length;
            wrong.push(format!("node {node} has the policy's length {length:?}, not {wanted:?}"));
        }
        let listed: BTreeSet<String> = users.iter().map(|row| ctl::text(row, "user")).collect();
        for user in (0..USERS).map(|number| format!("chaos-user-{number}")) {
            let is_listed = listed.contains(&user);
            if !self.users_in_doubt.contains(&user) && is_listed != self.users.contains(&user) {
                wrong.push(format!("node {node} lists '{user}': {is_listed}"));
            }
        }
        wrong
    }
}

/// The length in a row of `list_policies`, if it is the policy's.
fn length_of(row: &Value) -> Option<u64> {
    if ctl::text(row, "name") != POLICY {
        return None;
    }
    // A table in a row is told as text.
    let definition: Value = serde_json::from_str(row["definition"].as_str()?).ok()?;
    definition["max-length"].as_u64()
}
