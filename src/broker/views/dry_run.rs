//! Dry runs: which queues a policy, the end of one, or definitions would change, and how. Nothing is
//! proposed; the change is applied to a copy of this node's catalog.

use crate::{Broker, names::definitions::ImportError, views::administration::Operator};
use quorate_catalog::{
    Catalog, CatalogCommand, PolicyName, PolicyRecord, QueueChange, Setting, refusal,
};
use quorate_types::{Exception, ReplyCode, ResourceName};
use std::sync::Arc;

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

impl Operator<'_> {
    /// What setting a policy would do.
    ///
    /// # Errors
    /// The refusal that setting it would get.
    pub async fn dry_run_policy(&self, policy: PolicyRecord) -> Result<DryRun, Exception> {
        self.dry_run(CatalogCommand::SetPolicy(policy)).await
    }

    /// What clearing a policy would do.
    ///
    /// # Errors
    /// The refusal that clearing it would get.
    pub async fn dry_run_clear_policy(&self, name: PolicyName) -> Result<DryRun, Exception> {
        self.0.base.catalog_client.read().await;
        if self.0.base.catalog.read().policy(&name).is_none() {
            return Err(refusal::no_parameter());
        }
        self.dry_run(CatalogCommand::ClearPolicy(name)).await
    }

    /// Compares where it may take its time.
    async fn dry_run(&self, command: CatalogCommand) -> Result<DryRun, Exception> {
        self.0.base.catalog_client.read().await;
        let before = self.0.base.catalog.read().clone();
        let compare = move || before.with(command).map(|after| compared(&before, &after));
        let compared = tokio::task::spawn_blocking(compare).await;
        compared.unwrap_or_else(|_| {
            Err(Exception::new(ReplyCode::InternalError, "the dry run has ended with an error"))
        })
    }

    /// What an import of definitions would do.
    ///
    /// # Errors
    /// The object that cannot be taken, as an import says it.
    pub async fn dry_run_definitions(&self, text: Arc<str>) -> Result<DryRun, ImportError> {
        let definitions = self.read_definitions(text).await?;
        let before = self.0.base.catalog.read().clone();
        let compare = move || {
            let outcome = definitions.outcome(&before);
            let compared = compared(&before, &outcome.catalog);
            let (made, changed) = (outcome.made, outcome.changed);
            DryRun { made, changed, left_out: definitions.left_out, ..compared }
        };
        let compared = tokio::task::spawn_blocking(compare).await;
        let failed = |_| ImportError::Unavailable("the dry run has ended with an error".to_owned());
        compared.map_err(failed)
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
