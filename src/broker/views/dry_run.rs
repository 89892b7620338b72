//! Dry runs: which queues a policy, the end of one, or definitions would change, and how. Nothing is
//! proposed; the change is applied to a copy of this node's catalog. With many queues that takes long:
//! dry runs take turns, and copy where they may take their time.

use crate::{
    Broker,
    names::definitions::ImportError,
    node::Node,
    views::administration::{DryRuns, Operator},
};
use quorate_catalog::{
    Catalog, CatalogCommand, PolicyName, PolicyRecord, QueueChange, Setting, refusal,
};
use quorate_types::{Exception, ReplyCode, ResourceName, VhostName};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Queues that a dry run names, at most; further ones are counted.
pub const QUEUES_MAX: usize = 1_000;

/// What a change would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryRun {
    /// The queues whose settings would change, by their ids, at most [`QUEUES_MAX`].
    pub queues: Vec<QueueChange>,
    /// Number of all such queues.
    pub queue_count: u64,
    /// Objects that definitions would make.
    pub made: Vec<String>,
    /// Objects that definitions would change.
    pub changed: Vec<String>,
    /// What definitions would pass over, and why.
    pub left_out: Vec<String>,
}

fn compared(before: &Catalog, after: &Catalog) -> DryRun {
    let mut changed = before.changed_queues(after);
    let queues: Vec<_> = changed.by_ref().take(QUEUES_MAX).collect();
    let queue_count = queues.len() as u64 + changed.count() as u64;
    DryRun { queues, queue_count, ..DryRun::default() }
}

/// The turn of a dry run.
///
/// # Errors
/// Others take too long.
async fn dry_run_turn(node: &Node) -> Result<OwnedSemaphorePermit, &'static str> {
    node.turns.dry_run().await.ok_or("other dry runs take too long at present")
}

/// Compares catalogs where it may take its time. The turn lasts to the end of that, whatever becomes
/// of who asks.
///
/// # Errors
/// They are not compared.
async fn in_turn<T: Send + 'static>(
    node: &Arc<Node>,
    turn: OwnedSemaphorePermit,
    compare: impl FnOnce(&Node) -> T + Send + 'static,
) -> Result<T, &'static str> {
    let node = Arc::clone(node);
    let compared = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        compare(&node)
    });
    compared.await.map_err(|_| "the dry run has ended with an error")
}

impl DryRuns<'_> {
    /// What setting a policy would do.
    ///
    /// # Errors
    /// The refusal that setting it would get.
    pub async fn policy(&self, policy: PolicyRecord) -> Result<DryRun, Exception> {
        let vhost = policy.vhost.clone();
        self.command(vhost, CatalogCommand::SetPolicy(policy)).await
    }

    /// What clearing a policy would do.
    ///
    /// # Errors
    /// The refusal that clearing it would get.
    pub async fn clear_policy(&self, name: PolicyName) -> Result<DryRun, Exception> {
        self.0.queues.read_catalog().await?;
        if self.0.base.catalog.read().policy(&name).is_none() {
            return Err(refusal::no_parameter());
        }
        let vhost = name.vhost.clone();
        self.command(vhost, CatalogCommand::ClearPolicy(name)).await
    }

    /// What a command about the policies of a virtual host would do.
    async fn command(
        &self,
        vhost: VhostName,
        command: CatalogCommand,
    ) -> Result<DryRun, Exception> {
        self.0.queues.read_catalog().await?;
        let compare = move |node: &Node| {
            let before = node.base.catalog.read().policies_of(&vhost);
            before.with(command).map(|after| compared(&before, &after))
        };
        let failed = |text| Err(Exception::new(ReplyCode::InternalError, text));
        match dry_run_turn(self.0).await {
            Ok(turn) => in_turn(self.0, turn, compare).await.unwrap_or_else(failed),
            Err(text) => failed(text),
        }
    }

    /// What an import of definitions would do.
    ///
    /// # Errors
    /// The object that cannot be taken, as an import says it.
    pub async fn definitions(&self, text: Arc<str>) -> Result<DryRun, ImportError> {
        let failed = |text: &str| ImportError::Unavailable(text.to_owned());
        let turn = dry_run_turn(self.0).await.map_err(failed)?;
        let definitions = Operator(self.0).read_definitions(text).await?;
        let compare = move |node: &Node| {
            let before = node.base.catalog.read().clone();
            let outcome = definitions.outcome(&before);
            let compared = compared(&before, &outcome.catalog);
            let (made, changed) = (outcome.made, outcome.changed);
            DryRun { made, changed, left_out: definitions.left_out, ..compared }
        };
        in_turn(self.0, turn, compare).await.map_err(failed)
    }
}

impl Broker {
    /// The effective settings of a queue, and where they come from; `None`: this node knows no such
    /// queue.
    #[must_use]
    pub fn queue_settings(&self, queue: &ResourceName) -> Option<Vec<Setting>> {
        let entry = self.0.base.known_queue(queue)?;
        Some(self.0.base.catalog.read().settings_of(&entry))
    }
}
