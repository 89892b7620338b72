//! The catalog in RabbitMQ's definitions format: the output of `export_definitions`.

use crate::{
    definitions_table::to_json,
    delayed::delays_for,
    exchange::is_reserved,
    machine::Catalog,
    objects::{Binding, Destination, ExchangeRecord, QueueEntry},
    parameter::{ParameterName, ParameterRecord},
    policy::{PolicyKind, PolicyRecord},
    record::{PermissionRecord, TopicPermissionRecord, UserRecord, VhostRecord},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use quorate_types::{QueueType, ShortString};
use serde_json::{Map, Value, json};

impl Catalog {
    /// All definitions, in RabbitMQ's format; `version` is the RabbitMQ version that this broker
    /// reports. Left out are queues that end with their connection, and the exchanges that every
    /// virtual host has.
    #[must_use]
    pub fn definitions(&self, version: &str) -> Value {
        let (mut global, mut parameters) = (Vec::new(), Vec::new());
        for parameter in self.shown_parameters() {
            let value = parameter.to_json();
            match parameter.name {
                ParameterName::Global(_) => global.push(value),
                ParameterName::Vhost { .. } => parameters.push(value),
            }
        }
        parameters.extend(self.policies_of_all(PolicyKind::Operator).map(operator_policy));
        // The queue of a delayed exchange is made with that exchange, so it is left out.
        let is_kept =
            |queue: &&QueueEntry| queue.owner.is_none() && delays_for(&queue.name.name).is_none();
        // Sorted by name like all else, so that an import and an export give the same order.
        let mut queues: Vec<&QueueEntry> = self.queues().filter(is_kept).collect();
        queues.sort_by(|one, other| one.name.cmp(&other.name));
        json!({
            "rabbit_version": version,
            "rabbitmq_version": version,
            "product_name": "RabbitMQ",
            "product_version": version,
            "rabbitmq_definition_format": "cluster",
            "users": self.users().map(user).collect::<Vec<_>>(),
            "vhosts": self.vhosts().map(vhost).collect::<Vec<_>>(),
            "permissions": self.permissions().map(|row| permission(&row)).collect::<Vec<_>>(),
            "topic_permissions":
                self.topic_permissions().map(|row| topic_permission(&row)).collect::<Vec<_>>(),
            "parameters": parameters,
            "global_parameters": global,
            "policies": self.policies_of_all(PolicyKind::User).map(PolicyRecord::to_json).collect::<Vec<_>>(),
            "queues": queues.into_iter().map(queue).collect::<Vec<_>>(),
            "exchanges": self.exchanges().filter(is_declared).map(exchange).collect::<Vec<_>>(),
            "bindings":
                self.bindings().filter(|one| self.is_exported(one)).map(binding).collect::<Vec<_>>(),
        })
    }

    fn policies_of_all(&self, kind: PolicyKind) -> impl Iterator<Item = &PolicyRecord> {
        self.vhosts().flat_map(move |vhost| self.policies(kind, &vhost.name))
    }

    /// A binding is exported if its queue is.
    fn is_exported(&self, binding: &Binding) -> bool {
        match &binding.destination {
            Destination::Queue { id, .. } => {
                self.queue_by_id(*id).is_some_and(|queue| queue.owner.is_none())
            }
            Destination::Exchange(_) => true,
        }
    }
}

fn is_declared(exchange: &&ExchangeRecord) -> bool {
    !exchange.name.name.is_empty() && !is_reserved(&exchange.name.name)
}

fn texts(words: &[ShortString]) -> Vec<&str> {
    words.iter().map(ShortString::as_str).collect()
}

fn user(user: &UserRecord) -> Value {
    json!({
        "name": user.name.as_str(),
        "password_hash": STANDARD.encode(&user.password.bytes),
        "hashing_algorithm": user.password.algorithm.name(),
        "tags": texts(&user.tags),
        "limits": user.limits.to_json(),
    })
}

fn vhost(vhost: &VhostRecord) -> Value {
    let metadata = &vhost.metadata;
    let mut fields = Map::new();
    fields.insert("description".to_owned(), metadata.description.as_str().into());
    fields.insert("tags".to_owned(), texts(&metadata.tags).into());
    if let Some(queue_type) = metadata.default_queue_type {
        fields.insert("default_queue_type".to_owned(), queue_type.name().into());
    }
    if vhost.protected {
        fields.insert("protected_from_deletion".to_owned(), true.into());
    }
    let mut shown = fields.clone();
    shown.insert("name".to_owned(), vhost.name.as_str().into());
    shown.insert("metadata".to_owned(), Value::Object(fields));
    Value::Object(shown)
}

fn permission(row: &PermissionRecord) -> Value {
    json!({
        "user": row.user.as_str(),
        "vhost": row.vhost.as_str(),
        "configure": row.configure,
        "write": row.write,
        "read": row.read,
    })
}

fn topic_permission(row: &TopicPermissionRecord) -> Value {
    json!({
        "user": row.user.as_str(),
        "vhost": row.vhost.as_str(),
        "exchange": row.exchange.as_str(),
        "write": row.write,
        "read": row.read,
    })
}

impl PolicyRecord {
    /// The policy as RabbitMQ's definitions and HTTP API show it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "vhost": self.vhost.as_str(),
            "name": self.name.as_str(),
            "pattern": self.pattern,
            "apply-to": self.apply_to.name(),
            "definition": self.definition.to_json(),
            "priority": self.priority,
        })
    }
}

/// RabbitMQ exports operator policies among the parameters.
fn operator_policy(policy: &PolicyRecord) -> Value {
    json!({
        "vhost": policy.vhost.as_str(),
        "component": "operator_policy",
        "name": policy.name.as_str(),
        "value": {
            "pattern": policy.pattern,
            "apply-to": policy.apply_to.name(),
            "definition": policy.definition.to_json(),
            "priority": policy.priority,
        },
    })
}

impl ParameterRecord {
    /// The parameter as RabbitMQ's definitions and HTTP API show it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        // The value was checked to be JSON when it was set.
        let value: Value = serde_json::from_str(&self.value).unwrap_or_default();
        match &self.name {
            ParameterName::Global(name) => json!({ "name": name.as_str(), "value": value }),
            ParameterName::Vhost { vhost, component, name } => json!({
                "vhost": vhost.as_str(),
                "component": component.as_str(),
                "name": name.as_str(),
                "value": value,
            }),
        }
    }
}

fn queue(queue: &QueueEntry) -> Value {
    let queue_type = match queue.queue_type {
        QueueType::Classic => "classic",
        QueueType::Quorum => "quorum",
    };
    json!({
        "name": queue.name.name.as_str(),
        "vhost": queue.name.vhost.as_str(),
        "type": queue_type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": to_json(&queue.arguments),
    })
}

fn exchange(exchange: &ExchangeRecord) -> Value {
    json!({
        "name": exchange.name.name.as_str(),
        "vhost": exchange.name.vhost.as_str(),
        "type": exchange.kind.name(),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": to_json(&exchange.arguments),
    })
}

fn binding(binding: &Binding) -> Value {
    let (destination, kind) = match &binding.destination {
        Destination::Queue { name, .. } => (name, "queue"),
        Destination::Exchange(name) => (name, "exchange"),
    };
    json!({
        "source": binding.source.name.as_str(),
        "vhost": binding.source.vhost.as_str(),
        "destination": destination.as_str(),
        "destination_type": kind,
        "routing_key": binding.key.as_str(),
        "arguments": to_json(&binding.arguments),
    })
}
