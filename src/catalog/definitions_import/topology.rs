//! Exchanges, queues and bindings of a definitions file.

use super::{Read, Reading, queue_type};
use crate::{
    command::CatalogCommand,
    definitions_fields::Fields,
    definitions_import::DefinitionsError,
    exchange::{is_reserved, of_every_vhost},
    objects::{Binding, Destination, ExchangeRecord, ExchangeType, QueueEntry},
    queue_entry::{check_queue_properties, resolve_queue_type},
    refusal,
};
use quorate_types::{GroupId, Home, QueueArguments, QueueId, ResourceName, ShortString, VhostName};

impl Reading<'_> {
    pub(super) fn exchange(&mut self, fields: &Fields<'_>) -> Read {
        self.without_internal &= !fields.has("internal");
        let name = ResourceName { vhost: fields.short("vhost")?, name: fields.short("name")? };
        if self.catalog.exchange(&name).is_some() {
            return Ok(());
        }
        if name.name.is_empty() || is_reserved(&name.name) {
            self.leave_out_reserved(fields);
            return Ok(());
        }
        let kind = ExchangeType::parse(fields.text("type")?);
        let record = ExchangeRecord {
            name,
            kind: kind.map_err(|refused| fields.wrong(refused.explanation))?,
            // As in RabbitMQ.
            durable: fields.truth_or("durable", true)?,
            auto_delete: fields.truth("auto_delete")?,
            internal: fields.truth("internal")?,
            arguments: fields.table("arguments")?,
        };
        self.exchanges.insert(record.name.clone());
        self.step(fields, CatalogCommand::DeclareExchange(record));
        Ok(())
    }

    pub(super) fn queue(&mut self, fields: &Fields<'_>) -> Read {
        let name = ResourceName { vhost: fields.short("vhost")?, name: fields.short("name")? };
        if name.name.is_empty() {
            return Err(fields.wrong("'name' is empty"));
        }
        if self.catalog.queue_by_name(&name).is_some() {
            return Ok(());
        }
        if is_reserved(&name.name) {
            self.leave_out_reserved(fields);
            return Ok(());
        }
        // As in RabbitMQ.
        let durable = fields.truth_or("durable", true)?;
        let auto_delete = fields.truth("auto_delete")?;
        let arguments = fields.table("arguments")?;
        let default = match fields.optional_text("type")? {
            Some(name) => queue_type(fields, name)?,
            None => self
                .catalog
                .vhost(&name.vhost)
                .and_then(|vhost| vhost.metadata.default_queue_type)
                .unwrap_or(self.default_type),
        };
        let parsed = QueueArguments::parse(&arguments, default)
            .map_err(|error| fields.wrong(refusal::invalid_argument(&error, &name).explanation))?;
        let given = parsed.queue_type;
        let queue_type = resolve_queue_type(given, default, durable, false, auto_delete);
        check_queue_properties(&name, queue_type, durable, false, auto_delete)
            .map_err(|refused| fields.wrong(refused.explanation))?;
        // No group has this number, so no queue has this id.
        let position = self.definitions.queues.len() as u64;
        let id = QueueId { home: Home::Group(GroupId(u16::MAX)), index: u64::MAX, position };
        let creator = self.creator;
        let owner = None;
        let entry =
            QueueEntry { name, id, creator, queue_type, durable, auto_delete, owner, arguments };
        self.queues.insert(entry.name.clone(), id);
        self.definitions.queues.push(entry);
        Ok(())
    }

    /// A name that no client can declare: RabbitMQ leaves these out too.
    fn leave_out_reserved(&mut self, fields: &Fields<'_>) {
        self.definitions.left_out.push(format!("{}: its name is reserved", fields.object()));
    }

    pub(super) fn binding(&mut self, fields: &Fields<'_>) -> Read {
        let vhost = fields.short("vhost")?;
        let source = ResourceName { vhost: vhost.clone(), name: fields.short("source")? };
        if source.name.is_empty() {
            // Every queue is bound to the default exchange.
            return Ok(());
        }
        let destination = fields.short("destination")?;
        let destination = match fields.text("destination_type")? {
            "exchange" => Destination::Exchange(destination),
            "queue" => {
                let Some(queue) = self.queue_destination(fields, &vhost, destination)? else {
                    self.leave_out_reserved(fields);
                    return Ok(());
                };
                queue
            }
            other => return Err(fields.wrong(format!("unknown destination_type '{other}'"))),
        };
        let (key, arguments) = (fields.short("routing_key")?, fields.table("arguments")?);
        let to = match &destination {
            Destination::Exchange(name) => Some(ResourceName { vhost, name: name.clone() }),
            Destination::Queue { .. } => None,
        };
        let missing = std::iter::once(&source).chain(&to).find(|name| !self.has_exchange(name));
        if let Some(missing) = missing.filter(|it| self.without_internal || is_reserved(&it.name)) {
            self.definitions.left_out.push(format!(
                "{}: {}",
                fields.object(),
                refusal::no_exchange(missing).explanation
            ));
            return Ok(());
        }
        self.definitions.bindings.push(Binding { source, destination, key, arguments });
        Ok(())
    }

    /// True if the exchange exists, or is in the file.
    fn has_exchange(&self, name: &ResourceName) -> bool {
        self.exchanges.contains(name)
            || self.catalog.exchange(name).is_some()
            // Of a virtual host that the file makes.
            || of_every_vhost(&name.vhost).any(|it| it.name == *name)
    }

    /// The queue that a binding leads to; `None`: it was left out for its name.
    fn queue_destination(
        &self,
        fields: &Fields<'_>,
        vhost: &VhostName,
        name: ShortString,
    ) -> Result<Option<Destination>, DefinitionsError> {
        let full = ResourceName { vhost: vhost.clone(), name: name.clone() };
        let there = || self.catalog.queue_by_name(&full).map(|entry| entry.id);
        let known = self.queues.get(&full).copied().or_else(there);
        match known {
            Some(id) => Ok(Some(Destination::Queue { name, id })),
            None if is_reserved(&name) => Ok(None),
            None => Err(fields.wrong(refusal::no_queue(&full).explanation)),
        }
    }
}
