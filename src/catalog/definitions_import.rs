//! RabbitMQ's definitions as commands: the input of `import_definitions`. The whole file is read
//! and applied to a copy of the catalog before any command is proposed.
//!
//! The copy applies commands, queues and bindings with the same `apply` that the replicas use
//! later. The first refusal is reported with the object's name, before anything has been proposed.

mod topology;

use crate::{
    access_command::AccessCommand,
    command::{CatalogCommand, CatalogEntry, CatalogReply},
    definitions_fields::Fields,
    definitions_user::{self, HashPassword},
    machine::Catalog,
    objects::{Binding, Destination, QueueEntry},
    output::CatalogOutput,
    parameter::{ParameterName, ParameterRecord},
    policy::{PolicyKind, PolicyRecord},
    policy_parse::PolicyText,
    record::{CatalogKey, PermissionRecord, TopicPermissionRecord, UserRecord},
    vhost::{VhostMetadata, VhostUpdate},
};
use quorate_types::{
    CatalogIndex, QueueId, QueueType, ResourceName, SessionId, ShortString, Stamp, VhostName,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Why definitions cannot be imported; the error names the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionsError {
    /// The document is not JSON, or not an object.
    #[error("definitions are not valid: {0}")]
    Json(String),
    /// An object cannot be imported.
    #[error("{object}: {reason}")]
    Object {
        /// The object, such as `queue 'q' in vhost '/'`.
        object: String,
        /// The reason, as text.
        reason: String,
    },
}

/// A command, and the object that it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The object, as errors name it.
    pub object: String,
    /// Command that the step proposes.
    pub command: CatalogCommand,
}

/// Definitions that can be imported into the catalog that they were read for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definitions {
    /// Everything except queues and bindings, ordered so that an object follows those that it
    /// needs.
    pub steps: Vec<Step>,
    /// Queues that do not exist yet. Their ids are placeholders.
    pub queues: Vec<QueueEntry>,
    /// Bindings; those to new queues have the placeholder ids.
    pub bindings: Vec<Binding>,
    /// Bindings that cannot be made because the file lacks their exchanges, and why.
    pub left_out: Vec<String>,
    /// Objects that do not exist yet, or differ from those of the file.
    pub changed: Vec<String>,
}

/// The lists of a document.
const LISTS: [&str; 10] = [
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "exchanges",
    "queues",
    "bindings",
];

/// A byte order mark is skipped: some editors write one.
fn json(text: &str) -> Result<Value, DefinitionsError> {
    serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|error| DefinitionsError::Json(error.to_string()))
}

impl Definitions {
    /// Checks what can be checked without a catalog: that the text is JSON, and has the lists.
    ///
    /// # Errors
    /// It is not such a document.
    pub fn check_form(text: &str) -> Result<(), DefinitionsError> {
        let document = json(text)?;
        let document = Fields::document(&document)?;
        LISTS.iter().try_for_each(|list| document.each(list, "object", |_| Ok(())))
    }

    /// Reads definitions in RabbitMQ's JSON format, and applies them to a copy of the catalog.
    /// Exchanges, queues and bindings that exist already stay as they are; other objects that exist
    /// are changed. `creator` and `default_type` belong to the node that will make the queues.
    /// `rabbitmqctl export_definitions` leaves internal exchanges out and keeps their bindings:
    /// such bindings are skipped, as RabbitMQ does.
    ///
    /// # Errors
    /// The first object that cannot be imported.
    pub fn read(
        text: &str,
        catalog: &Catalog,
        creator: SessionId,
        default_type: QueueType,
        hash_password: &HashPassword,
    ) -> Result<Self, DefinitionsError> {
        let document = json(text)?;
        let document = Fields::document(&document)?;
        let mut reading = Reading {
            catalog,
            definitions: Self::default(),
            creator,
            default_type,
            hash_password,
            exchanges: BTreeSet::new(),
            queues: BTreeMap::new(),
            without_internal: true,
        };
        document.each("users", "user", |fields| reading.user(fields))?;
        document.each("vhosts", "vhost", |fields| reading.vhost(fields))?;
        document.each("permissions", "permissions", |fields| reading.permission(fields))?;
        document.each("topic_permissions", "topic permissions", |fields| reading.topic(fields))?;
        document.each("parameters", "parameter", |fields| reading.parameter(fields))?;
        document.each("global_parameters", "global parameter", |fields| reading.global(fields))?;
        document.each("policies", "policy", |fields| reading.policy(fields))?;
        document.each("exchanges", "exchange", |fields| reading.exchange(fields))?;
        document.each("queues", "queue", |fields| reading.queue(fields))?;
        document.each("bindings", "binding", |fields| reading.binding(fields))?;
        reading.definitions.try_out(catalog)?;
        Ok(reading.definitions)
    }

    /// The bindings, with the ids of the queues that exist by now.
    #[must_use]
    pub fn binding_steps(&self, catalog: &Catalog) -> Vec<Step> {
        let now = |binding: &Binding| {
            let mut binding = binding.clone();
            if let Destination::Queue { name, id } = &mut binding.destination {
                let vhost = binding.source.vhost.clone();
                let queue = ResourceName { vhost, name: name.clone() };
                *id = catalog.queue_by_name(&queue).map_or(*id, |entry| entry.id);
            }
            binding_step(&binding)
        };
        self.bindings.iter().map(now).collect()
    }

    /// All steps in their order, those of queues and bindings with the placeholder ids.
    pub(crate) fn all_steps(&self) -> impl Iterator<Item = Step> + '_ {
        let queue = |entry: &QueueEntry| Step {
            object: format!("queue {}", entry.name),
            command: CatalogCommand::AddQueue(entry.clone()),
        };
        let steps = self.steps.iter().cloned().chain(self.queues.iter().map(queue));
        steps.chain(self.bindings.iter().map(binding_step))
    }

    /// Applies everything to a copy of the catalog, and notes what that changes.
    fn try_out(&mut self, catalog: &Catalog) -> Result<(), DefinitionsError> {
        let (mut copy, mut changed) = (catalog.clone(), Vec::new());
        for step in self.all_steps() {
            let out = step.on(&mut copy);
            out.replies.iter().try_for_each(|reply| step.check(reply))?;
            // Every entry changes the catalog's own record.
            if out.changes.iter().any(|key| *key != CatalogKey::State) {
                changed.push(step.object);
            }
        }
        // An existing user takes several steps.
        changed.dedup();
        self.changed = changed;
        Ok(())
    }
}

impl Step {
    /// Applies the step to a copy of the catalog.
    pub(crate) fn on(&self, copy: &mut Catalog) -> CatalogOutput {
        let mut out = CatalogOutput::default();
        let entry = CatalogEntry { stamp: Stamp::default(), commands: vec![self.command.clone()] };
        copy.apply(CatalogIndex(copy.version().0 + 1), &entry, &mut out);
        out
    }

    /// Checks the catalog's reply to the step.
    ///
    /// # Errors
    /// Why the catalog refused the step.
    pub fn check(&self, reply: &CatalogReply) -> Result<(), DefinitionsError> {
        check(&self.object, reply)
    }
}

fn check(object: &str, reply: &CatalogReply) -> Result<(), DefinitionsError> {
    let reason = match reply {
        CatalogReply::Done | CatalogReply::Started(_) => return Ok(()),
        CatalogReply::Refused(exception) => exception.explanation.clone(),
        CatalogReply::Denied(denial) => denial.to_string(),
        CatalogReply::NameTaken { .. } => "the name is already in use".to_owned(),
        CatalogReply::Fenced => "the cluster declared this node dead".to_owned(),
    };
    Err(DefinitionsError::Object { object: object.to_owned(), reason })
}

struct Reading<'a> {
    catalog: &'a Catalog,
    definitions: Definitions,
    creator: SessionId,
    default_type: QueueType,
    hash_password: &'a HashPassword,
    /// New exchanges of the file.
    exchanges: BTreeSet<ResourceName>,
    queues: BTreeMap<ResourceName, QueueId>,
    /// True if no exchange of the file has the field `internal`: such a file leaves internal
    /// exchanges out.
    without_internal: bool,
}

type Read = Result<(), DefinitionsError>;

impl Reading<'_> {
    fn step(&mut self, fields: &Fields<'_>, command: CatalogCommand) {
        self.definitions.steps.push(Step { object: fields.object(), command });
    }

    fn access(&mut self, fields: &Fields<'_>, command: AccessCommand) {
        self.step(fields, CatalogCommand::Access(command));
    }

    fn user(&mut self, fields: &Fields<'_>) -> Read {
        let there = self.catalog.user(&fields.short("name")?);
        let user = definitions_user::read(fields, there, self.hash_password)?;
        if there.is_none() {
            self.access(fields, AccessCommand::AddUser(user));
            return Ok(());
        }
        let UserRecord { name, password, tags, limits } = user;
        let user = || name.clone();
        self.access(fields, AccessCommand::ChangePassword { user: user(), password });
        self.access(fields, AccessCommand::SetUserTags { user: user(), tags });
        self.access(fields, AccessCommand::SetUserLimits { user: user(), limits });
        Ok(())
    }

    fn vhost(&mut self, fields: &Fields<'_>) -> Read {
        let vhost = fields.short("name")?;
        // Version 4.0 writes both fields beside the name and below `metadata`; older versions write
        // them only below `metadata`.
        let below = fields.optional_object("metadata")?;
        let of = below.as_ref().unwrap_or(fields);
        let description = of.optional_text("description")?.unwrap_or_default().to_owned();
        let tags = of.words("tags")?;
        let default_queue_type = match of.optional_text("default_queue_type")? {
            None | Some("undefined") => None,
            Some(name) => Some(queue_type(fields, name)?),
        };
        let protected = of.optional_flag("protected_from_deletion")?;
        let there = self.catalog.vhost(&vhost);
        let change = protected.filter(|given| *given != there.is_some_and(|there| there.protected));
        if there.is_some() {
            let (description, tags) = (Some(description), Some(tags));
            let update = VhostUpdate { description, tags, default_queue_type };
            self.access(fields, AccessCommand::UpdateVhost { vhost: vhost.clone(), update });
        } else {
            let metadata = VhostMetadata { description, tags, default_queue_type };
            self.access(fields, AccessCommand::AddVhost { vhost: vhost.clone(), metadata });
        }
        if let Some(protected) = change {
            if let Some(denial) = self.catalog.unprotectable() {
                return Err(fields.wrong(denial));
            }
            self.access(fields, AccessCommand::SetProtection { vhost, protected });
        }
        Ok(())
    }

    fn permission(&mut self, fields: &Fields<'_>) -> Read {
        let record = PermissionRecord {
            vhost: fields.short("vhost")?,
            user: fields.short("user")?,
            configure: fields.text("configure")?.to_owned(),
            write: fields.text("write")?.to_owned(),
            read: fields.text("read")?.to_owned(),
        };
        self.access(fields, AccessCommand::SetPermissions(record));
        Ok(())
    }

    fn topic(&mut self, fields: &Fields<'_>) -> Read {
        let record = TopicPermissionRecord {
            vhost: fields.short("vhost")?,
            user: fields.short("user")?,
            exchange: fields.short("exchange")?,
            write: fields.text("write")?.to_owned(),
            read: fields.text("read")?.to_owned(),
        };
        self.access(fields, AccessCommand::SetTopicPermissions(record));
        Ok(())
    }

    fn parameter(&mut self, fields: &Fields<'_>) -> Read {
        let (vhost, component) = (fields.short("vhost")?, fields.short("component")?);
        let name = fields.short("name")?;
        match component.as_str() {
            "operator_policy" => {
                let value = fields.required_object("value")?;
                let policy = policy(PolicyKind::Operator, &vhost, &name, &value)?;
                self.step(fields, CatalogCommand::SetPolicy(policy));
                Ok(())
            }
            _ => {
                let name = ParameterName::Vhost { vhost, component, name };
                self.set_parameter(fields, name)
            }
        }
    }

    fn global(&mut self, fields: &Fields<'_>) -> Read {
        let name = ParameterName::Global(fields.short("name")?);
        self.set_parameter(fields, name)
    }

    fn set_parameter(&mut self, fields: &Fields<'_>, name: ParameterName) -> Read {
        let value = fields.value("value")?.to_string();
        let record = ParameterRecord::parse(name, &value).map_err(|error| fields.wrong(error))?;
        self.step(fields, record.set());
        Ok(())
    }

    fn policy(&mut self, fields: &Fields<'_>) -> Read {
        let (vhost, name) = (fields.short("vhost")?, fields.short("name")?);
        let policy = policy(PolicyKind::User, &vhost, &name, fields)?;
        self.step(fields, CatalogCommand::SetPolicy(policy));
        Ok(())
    }
}

fn binding_step(binding: &Binding) -> Step {
    Step { object: binding.object(), command: CatalogCommand::Bind(binding.clone()) }
}

fn queue_type(fields: &Fields<'_>, name: &str) -> Result<QueueType, DefinitionsError> {
    match name {
        // Some versions write the name of the Erlang module.
        "classic" | "rabbit_classic_queue" => Ok(QueueType::Classic),
        "quorum" | "rabbit_quorum_queue" => Ok(QueueType::Quorum),
        other => Err(fields.wrong(format!("unsupported queue type '{other}'"))),
    }
}

fn policy(
    kind: PolicyKind,
    vhost: &VhostName,
    name: &ShortString,
    fields: &Fields<'_>,
) -> Result<PolicyRecord, DefinitionsError> {
    let text = PolicyText {
        kind,
        vhost,
        name,
        pattern: fields.text("pattern")?,
        apply_to: fields.optional_text("apply-to")?.unwrap_or("all"),
        priority: fields.optional_integer("priority")?.unwrap_or(0),
    };
    let definition = fields.object_or_pairs("definition")?;
    text.with(&definition).map_err(|error| fields.wrong(error))
}
