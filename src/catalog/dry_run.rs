//! What a change of the catalog would do, without doing it: the change is applied to a copy, by the
//! same `apply` that the replicas use, and the effective settings of all queues are compared.

use crate::{
    command::{CatalogCommand, CatalogEntry, CatalogReply},
    definitions_import::Definitions,
    machine::Catalog,
    objects::QueueEntry,
    output::CatalogOutput,
    record::CatalogKey,
    setting_source::{Setting, SettingSource},
};
use quorate_queue::QueueConfig;
use quorate_types::{CatalogIndex, Exception, Stamp, VhostName};
use serde_json::Value;

/// A queue whose effective settings differ.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueChange {
    /// The queue.
    pub entry: QueueEntry,
    /// The settings that differ, in the order in which they are shown.
    pub changes: Vec<SettingChange>,
    /// Its effective settings after the change.
    pub after: QueueConfig,
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingChange {
    /// Its name, as policies have it.
    pub setting: &'static str,
    /// Its value before.
    pub before: Value,
    /// Its value after.
    pub after: Value,
    /// Where the value after comes from.
    pub source: SettingSource,
}

/// What an import comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The catalog after it. New queues have placeholder ids.
    pub catalog: Catalog,
    /// Objects that it makes.
    pub made: Vec<String>,
    /// Objects that it changes.
    pub changed: Vec<String>,
}

impl Definitions {
    /// What the catalog becomes by the import, and what the import makes and changes.
    #[must_use]
    pub fn outcome(&self, catalog: &Catalog) -> Outcome {
        let mut outcome =
            Outcome { catalog: catalog.clone(), made: Vec::new(), changed: Vec::new() };
        for step in self.all_steps() {
            let out = step.on(&mut outcome.catalog);
            let mut keys = out.changes.iter().filter(|key| **key != CatalogKey::State).peekable();
            if keys.peek().is_none() {
                continue;
            }
            let is_new = keys.all(|key| catalog.record(key).is_none());
            let objects = if is_new { &mut outcome.made } else { &mut outcome.changed };
            objects.push(step.object);
        }
        // An existing user takes several steps.
        outcome.changed.dedup();
        outcome
    }
}

impl Catalog {
    /// A copy of what decides about the settings of a virtual host's queues, which is enough to try
    /// its policies out on, and much smaller.
    #[must_use]
    pub fn policies_of(&self, vhost: &VhostName) -> Self {
        let of_vhost = self.queues.iter().filter(|(_, entry)| entry.name.vhost == *vhost);
        let mut copy = Self::empty();
        copy.advance(self.version());
        copy.machine = self.machine;
        copy.queues = of_vhost.map(|(id, entry)| (*id, entry.clone())).collect();
        copy.policies = self.policies.clone();
        copy.parameters = self.parameters.clone();
        if let Some(known) = self.vhosts.get(vhost) {
            copy.insert_vhost(known.record.clone());
        }
        copy
    }

    /// A copy in which a command has been applied.
    ///
    /// # Errors
    /// The refusal of the command.
    pub fn with(&self, command: CatalogCommand) -> Result<Self, Exception> {
        let (mut copy, mut out) = (self.clone(), CatalogOutput::default());
        let entry = CatalogEntry { stamp: Stamp::default(), commands: vec![command] };
        copy.apply(CatalogIndex(self.version().0 + 1), &entry, &mut out);
        for reply in out.replies {
            if let CatalogReply::Refused(exception) = reply {
                return Err(exception);
            }
        }
        Ok(copy)
    }

    /// The queues of this catalog that have other settings in another one, by their ids.
    pub fn changed_queues<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = QueueChange> + 'a {
        let both = self.queues().filter_map(|entry| Some((entry, other.queue_by_id(entry.id)?)));
        both.filter_map(|(entry, then)| {
            let after = other.config_of(then);
            if self.config_of(entry).agrees_with(&after) {
                return None;
            }
            let settings = self.settings_of(entry).into_iter().zip(other.settings_of(then));
            let differs = |(before, after): &(Setting, Setting)| before.value != after.value;
            let change = |(before, after): (Setting, Setting)| SettingChange {
                setting: before.setting,
                before: before.value,
                after: after.value,
                source: after.source,
            };
            let changes = settings.filter(differs).map(change).collect();
            Some(QueueChange { entry: entry.clone(), changes, after })
        })
    }
}
