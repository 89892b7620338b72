//! Definitions: the catalog written out, and read in again (CTL, `export_definitions`,
//! `import_definitions`, setting `definitions_file`). Everything is tried out before anything is
//! proposed; after that only what others change meanwhile, or the loss of the majority, can stop an
//! import half-way.
//!
//! Nodes that start together import the same file together. Each command is harmless when repeated,
//! but for a new user with a password: each importer hashes it with a salt of its own, so the second
//! one is refused, reads the definitions again, and finds the user there.

use crate::{
    client::QueueDeclare,
    context::CallError,
    names::{
        declare::{Made, NewQueue},
        queues::Queues,
    },
    settings::NodeLimits,
    views::{
        administration::{Operator, Views},
        operator::hash_password,
    },
};
use quorate_catalog::{
    Catalog, CatalogCommand, Definitions, DefinitionsError, QueueEntry, Step, effective,
    leader_locator, refusal,
};
use quorate_types::{CatalogIndex, QueueArguments};
use std::{collections::BTreeSet, sync::Arc};

/// Commands in one catalog entry.
const STEPS_AT_ONCE: usize = 500;
/// Queues made at once.
const QUEUES_AT_ONCE: usize = 64;
/// How often definitions are read, if others change the catalog between the reading and the import.
const READS_MAX: u32 = 5;

/// What an import has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Objects that were made or changed, in part by others who imported at the same time.
    pub changed: BTreeSet<String>,
    /// What was passed over, and why.
    pub left_out: Vec<String>,
}

/// Why definitions were not imported, or not wholly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// What they say; it names the object.
    #[error(transparent)]
    Invalid(#[from] DefinitionsError),
    /// The cluster could not take them now.
    #[error("{0}")]
    Unavailable(String),
}

fn unavailable(what: &str) -> ImportError {
    ImportError::Unavailable(format!("{what}: the operation timed out"))
}

impl Views<'_> {
    /// Everything that definitions carry, as JSON; `version` is the one that this node passes for.
    #[must_use]
    pub fn export_definitions(&self, version: &str) -> String {
        let catalog = self.0.base.catalog.read().clone();
        catalog.definitions(version).to_string()
    }
}

impl Operator<'_> {
    /// Imports definitions written in JSON.
    ///
    /// # Errors
    /// The object that cannot be taken, and then nothing has been changed; or that the cluster did
    /// not take all of it in time: importing again goes on.
    pub async fn import_definitions(&self, text: Arc<str>) -> Result<Imported, ImportError> {
        let (mut reads, mut changed) = (0, BTreeSet::new());
        loop {
            let definitions = self.read_definitions(Arc::clone(&text)).await?;
            reads += 1;
            changed.extend(definitions.changed.iter().cloned());
            match self.apply_definitions(&definitions).await {
                // It was taken when it was tried out: others have changed the catalog since then.
                Err(ImportError::Invalid(error)) if reads < READS_MAX => {
                    tracing::debug!(%error, "definitions are read again");
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(Imported { changed, left_out: definitions.left_out }),
            }
        }
    }

    /// Reads definitions for the present catalog.
    pub(crate) async fn read_definitions(
        &self,
        text: Arc<str>,
    ) -> Result<Definitions, ImportError> {
        let node = &self.0;
        let session = node.base.context.session().filter(|_| node.base.lease.is_held());
        let (true, Some(session)) = (node.base.catalog_client.read().await, session) else {
            return Err(unavailable("definitions"));
        };
        let default_type = node.base.context.settings.default_queue_type;
        // A large file takes a while: that is not for the threads that serve clients.
        let hash = |password: &[u8]| hash_password(password).map_err(|error| error.to_string());
        let reader = Arc::clone(node);
        let read = move || {
            let catalog = reader.base.catalog.read().clone();
            Definitions::read(&text, &catalog, session, default_type, &hash)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let definitions = read.map_err(|_| unavailable("definitions"))??;
        check_sizes(&definitions, &node.base.context.settings.limits)?;
        Ok(definitions)
    }

    async fn apply_definitions(&self, definitions: &Definitions) -> Result<(), ImportError> {
        let node = &self.0;
        let mut index = node.queues.propose_steps(&definitions.steps).await?;
        node.queues.make_delay_queues().await?;
        for queues in definitions.queues.chunks(QUEUES_AT_ONCE) {
            node.queues.make_queues(queues).await?;
        }
        let bindings = definitions.binding_steps(&node.base.catalog.read());
        index = index.max(node.queues.propose_steps(&bindings).await?);
        node.queues.await_policies(index).await;
        for left_out in &definitions.left_out {
            tracing::warn!("definitions import skipped {left_out}");
        }
        Ok(())
    }
}

/// What clients may not declare is not imported either.
fn check_sizes(definitions: &Definitions, limits: &NodeLimits) -> Result<(), DefinitionsError> {
    let exchanges = definitions.steps.iter().filter_map(|step| {
        let CatalogCommand::DeclareExchange(exchange) = &step.command else { return None };
        Some((step.object.clone(), &exchange.arguments))
    });
    let queues = definitions.queues.iter();
    let queues = queues.map(|queue| (format!("queue {}", queue.name), &queue.arguments));
    let bindings = definitions.bindings.iter();
    let bindings = bindings.map(|binding| (binding.object(), &binding.arguments));
    exchanges.chain(queues).chain(bindings).try_for_each(|(object, arguments)| {
        limits.check_arguments(arguments, &object).map_err(|refused| {
            let reason = refused.explanation;
            DefinitionsError::Object { object, reason }
        })
    })
}

impl Queues {
    /// Proposes commands in their order; the index of the last entry.
    async fn propose_steps(self: &Arc<Self>, steps: &[Step]) -> Result<CatalogIndex, ImportError> {
        let mut last = CatalogIndex(0);
        for steps in steps.chunks(STEPS_AT_ONCE) {
            let commands = steps.iter().map(|step| step.command.clone()).collect();
            let (index, replies) =
                self.base.catalog_client.propose_all(commands).await.map_err(|_| {
                    unavailable(steps.first().map_or("definitions", |step| step.object.as_str()))
                })?;
            for (step, reply) in steps.iter().zip(&replies) {
                step.check(reply)?;
            }
            last = index;
        }
        Ok(last)
    }

    /// Makes the queues of delayed exchanges that have come.
    async fn make_delay_queues(self: &Arc<Self>) -> Result<(), ImportError> {
        let without = |catalog: &Catalog| -> Vec<_> {
            catalog.delayed_exchanges_without_queue().cloned().collect()
        };
        let exchanges = without(&self.base.catalog.read());
        for exchange in exchanges {
            let object = format!("exchange {}", exchange.name);
            let timeout = refusal::exchange_declare_timeout(&exchange.name);
            self.make_delay_queue(&exchange, &timeout).await.map_err(|refused| {
                let reason = refused.explanation;
                DefinitionsError::Object { object, reason }
            })?;
        }
        Ok(())
    }

    /// Makes queues at the same time.
    async fn make_queues(self: &Arc<Self>, queues: &[QueueEntry]) -> Result<(), ImportError> {
        let made = queues.iter().map(|entry| {
            let made = Arc::clone(self).make_queue(self.new_queue(entry));
            (&entry.name, self.base.context.spawn(made))
        });
        for (name, made) in made.collect::<Vec<_>>() {
            let object = format!("queue {name}");
            match made.await {
                // One that someone else has made meanwhile stays as it is.
                Ok(Ok(Made::Ok | Made::NameTaken)) => {}
                Ok(Ok(Made::Refused(exception))) => {
                    let reason = exception.explanation;
                    return Err(DefinitionsError::Object { object, reason }.into());
                }
                Ok(Err(CallError::TimedOut | CallError::SessionEnded)) | Err(_) => {
                    return Err(unavailable(&object));
                }
            }
        }
        Ok(())
    }

    /// The queue that an entry of definitions asks for.
    fn new_queue(&self, entry: &QueueEntry) -> NewQueue {
        let QueueEntry { name, queue_type, durable, auto_delete, arguments, .. } = entry.clone();
        // They were parsed when they were read.
        let parsed = QueueArguments::parse(&arguments, queue_type).unwrap_or_default();
        let catalog = self.base.catalog.read();
        let policy = catalog.queue_policies(&name, queue_type).definition();
        let (kind, resolved_at) = ((queue_type, durable, auto_delete), catalog.version());
        NewQueue {
            config: effective(&parsed, &policy, kind, catalog.common_settings(), resolved_at),
            locator: leader_locator(&parsed, &policy),
            queue_type,
            declare: QueueDeclare {
                queue: name.name.clone(),
                durable,
                exclusive: false,
                auto_delete,
                arguments,
            },
            name,
        }
    }
}
