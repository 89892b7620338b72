//! The catalog's refusals, as clients see them: RabbitMQ's codes and texts, verbatim (EXC, BND,
//! QUE, EXQ, ARG of spec/amqp-semantics.md).

use crate::{denial::Denial, objects::Binding};
use quorate_types::{
    ArgumentError, Exception, FieldValue, MachineVersion, QueueType, ReplyCode, ResourceName,
    ShortString, VhostName,
};

fn precondition(text: String) -> Exception {
    Exception::new(ReplyCode::PreconditionFailed, text)
}

/// The virtual host does not exist (CONN-20).
#[must_use]
pub fn no_vhost(vhost: &VhostName) -> Exception {
    Exception::new(ReplyCode::NotAllowed, format!("vhost {vhost} not found"))
}

/// A virtual host that a command names does not exist.
#[must_use]
pub fn no_such_vhost(vhost: &VhostName) -> Exception {
    Exception::new(ReplyCode::NotFound, Denial::NoSuchVhost(vhost.clone()).to_string())
}

/// MEM 15: not all nodes know what the command says.
#[must_use]
pub fn too_early(object: &str, since: MachineVersion, machine: MachineVersion) -> Exception {
    precondition(format!(
        "{object} needs machine version {since}; the cluster has version {machine} until all nodes run \
         a release that knows it"
    ))
}

/// POL-25: no such parameter or policy to clear.
#[must_use]
pub fn no_parameter() -> Exception {
    precondition("Parameter does not exist".to_owned())
}

/// A policy's pattern that this version cannot compile.
#[must_use]
pub fn unknown_pattern(policy: &ShortString) -> Exception {
    precondition(format!("the pattern of policy '{policy}' cannot be used"))
}

/// CONN-20: the virtual host has reached its limit of connections.
#[must_use]
pub fn vhost_connection_limit(vhost: &VhostName, user: &ShortString, limit: u64) -> Exception {
    let text = format!(
        "access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached"
    );
    Exception::new(ReplyCode::NotAllowed, text)
}

/// CONN-20: the node has reached its limit of connections.
#[must_use]
pub fn node_connection_limit(limit: u64) -> Exception {
    let text = format!("connection refused: node connection limit ({limit}) is reached");
    Exception::new(ReplyCode::NotAllowed, text)
}

/// CONN-20: the user has reached its limit of connections.
#[must_use]
pub fn user_connection_limit(user: &ShortString, limit: u64) -> Exception {
    let text =
        format!("connection refused for user '{user}': user connection limit ({limit}) is reached");
    Exception::new(ReplyCode::NotAllowed, text)
}

/// CONN-20, ACL-01: the user has no permissions in the virtual host.
#[must_use]
pub fn no_permissions(vhost: &VhostName, user: &ShortString) -> Exception {
    let text = format!("access to vhost '{vhost}' refused for user '{user}'");
    Exception::new(ReplyCode::NotAllowed, text)
}

/// CHN-03: the user has reached its limit of channels.
#[must_use]
pub fn user_channel_limit(user: &ShortString, limit: u64) -> Exception {
    let text = format!(
        "number of channels opened for user '{user}' has reached the maximum allowed user limit \
         of ({limit})"
    );
    Exception::new(ReplyCode::NotAllowed, text)
}

/// CHN-03: the node has reached its limit of channels.
#[must_use]
pub fn node_channel_limit(node: &str, limit: u64) -> Exception {
    let text = format!(
        "number of channels opened on node '{node}' has reached the maximum allowed limit of {limit}"
    );
    Exception::new(ReplyCode::NotAllowed, text)
}

/// CONN-33: the virtual host of the connection was deleted.
#[must_use]
pub fn vhost_deleted(vhost: &VhostName) -> Exception {
    Exception::new(ReplyCode::ConnectionForced, format!("vhost '{vhost}' is deleted"))
}

/// CONN-33: the user of the connection was deleted.
#[must_use]
pub fn user_deleted(user: &ShortString) -> Exception {
    Exception::new(ReplyCode::ConnectionForced, format!("user '{user}' is deleted"))
}

/// ACL-04: the user lacks the permission for the queue or exchange.
pub(crate) fn access(
    access: &str,
    kind: &str,
    name: &ResourceName,
    user: &ShortString,
) -> Exception {
    let text = format!("{access} access to {kind} {name} refused for user '{user}'");
    Exception::new(ReplyCode::AccessRefused, text)
}

/// ACL-15: the user lacks the permission for the topic.
pub(crate) fn topic(
    access: &str,
    key: &ShortString,
    exchange: &ResourceName,
    user: &ShortString,
) -> Exception {
    let text = format!(
        "{access} access to topic '{key}' in exchange {exchange} refused for user '{user}'"
    );
    Exception::new(ReplyCode::AccessRefused, text)
}

/// QUE-11: the virtual host has reached its limit of queues.
pub(crate) fn queue_limit(queue: &ResourceName, limit: u64) -> Exception {
    precondition(format!(
        "cannot declare queue '{}': queue limit in vhost '{}' ({limit}) is reached",
        queue.name, queue.vhost
    ))
}

/// QUE-11: the cluster has reached its limit of queues.
#[must_use]
pub fn cluster_queue_limit(queue: &ResourceName, limit: u64) -> Exception {
    precondition(format!(
        "cannot declare queue '{}': queue limit in cluster ({limit}) is reached",
        queue.name
    ))
}

/// EXC-12: the cluster has reached its limit of exchanges.
#[must_use]
pub fn exchange_limit(exchange: &ResourceName, limit: u64) -> Exception {
    precondition(format!(
        "cannot declare exchange {exchange}: exchange limit of {limit} is reached"
    ))
}

/// The cluster has reached its limit of bindings.
#[must_use]
pub fn binding_limit(binding: &Binding, limit: u64) -> Exception {
    precondition(format!(
        "cannot add {}: binding limit in cluster ({limit}) is reached",
        binding.object()
    ))
}

/// EXC-02, EXC-07, BND-01: the operation is not possible on the default exchange.
#[must_use]
pub fn default_exchange() -> Exception {
    Exception::new(ReplyCode::AccessRefused, "operation not permitted on the default exchange")
}

/// EXC-06, BND-02, PUB-01: no such exchange.
#[must_use]
pub fn no_exchange(exchange: &ResourceName) -> Exception {
    Exception::new(ReplyCode::NotFound, format!("no exchange {exchange}"))
}

/// EXC-02: the exchange type is unknown.
#[must_use]
pub fn unknown_exchange_type(kind: &str) -> Exception {
    precondition(format!("unknown exchange type '{kind}'"))
}

/// EXC-03: the name of a new exchange may not begin with `amq.`.
#[must_use]
pub fn reserved_exchange_name(exchange: &ResourceName) -> Exception {
    let text = format!("exchange name '{}' contains reserved prefix 'amq.*'", exchange.name);
    Exception::new(ReplyCode::AccessRefused, text)
}

/// EXC-17: the argument for the routing of a delayed exchange is missing or invalid.
#[must_use]
pub fn delayed_type() -> Exception {
    let text = "Invalid argument, 'x-delayed-type' must be an existing exchange type";
    Exception::new(ReplyCode::PreconditionFailed, text)
}

/// EXC-17: the name of a delayed exchange is too long for the name of its queue, which adds a
/// prefix.
#[must_use]
pub fn delayed_exchange_name(exchange: &ResourceName, prefix: &str) -> Exception {
    let most = usize::from(u8::MAX) - prefix.len();
    let text = format!("a delayed exchange's name may have at most {most} bytes, not {exchange}");
    Exception::new(ReplyCode::PreconditionFailed, text)
}

/// EXC-17: the queue belongs to a delayed exchange, so clients cannot change it.
#[must_use]
pub fn delay_queue(queue: &ResourceName, exchange: &ShortString) -> Exception {
    let text = format!("{queue} belongs to delayed exchange '{exchange}' and goes with it");
    Exception::new(ReplyCode::AccessRefused, text)
}

/// EXC-17: a delayed exchange has lost its queue, or its queue does not exist yet.
#[must_use]
pub fn no_delay_queue(exchange: &ResourceName) -> Exception {
    let text = format!("exchange {exchange} cannot delay messages now: its queue is missing");
    Exception::new(ReplyCode::InternalError, text)
}

/// EXC-03: an exchange argument that is a name must be a long string.
#[must_use]
pub fn wrong_exchange_argument(
    exchange: &ResourceName,
    argument: &str,
    value: &FieldValue,
) -> Exception {
    let kind = value.type_name();
    precondition(format!("invalid type '{kind}' for arg '{argument}' in exchange {exchange}"))
}

/// EXC-14: the property cannot be hashed.
#[must_use]
pub fn unsupported_hash_property(property: &str) -> Exception {
    precondition(format!("Unsupported property: {property}"))
}

/// EXC-14: a header and a property to hash were both given.
#[must_use]
pub fn two_things_to_hash() -> Exception {
    precondition("hash-header and hash-property are mutually exclusive".to_owned())
}

/// EXC-14: the weight is below 1.
#[must_use]
pub fn weight_too_small() -> Exception {
    precondition("The binding key must be greater than 0".to_owned())
}

/// EXC-14: the weight is above the largest one.
#[must_use]
pub fn weight_too_large(most: u32) -> Exception {
    precondition(format!("The binding key must not exceed {most}"))
}

/// EXC-14: the binding key is not a weight.
#[must_use]
pub fn weight_no_integer(key: &ShortString) -> Exception {
    let key = term(&FieldValue::LongString(key.to_bytes()));
    precondition(format!("The binding key must be an integer: {key}"))
}

/// EXC-15: a binding of an `x-local-random` exchange has no key.
#[must_use]
pub fn local_random_key(key: &ShortString) -> Exception {
    precondition(format!("Non empty binding '{key}' key not permitted"))
}

/// EXC-15: an `x-local-random` exchange cannot be bound to a queue of this type.
#[must_use]
pub fn local_random_queue_type(queue_type: QueueType) -> Exception {
    let kind = queue_type.name();
    precondition(format!("Queue type rabbit_{kind}_queue not valid for this exchange type"))
}

/// EXC-15: an `x-local-random` exchange can be bound only to queues, in RabbitMQ's words.
#[must_use]
pub fn local_random_exchange() -> Exception {
    precondition("Destination not found".to_owned())
}

/// EXC-07: exchanges named `amq.*` cannot be deleted.
#[must_use]
pub fn system_exchange(exchange: &ResourceName) -> Exception {
    let text = format!("deletion of system exchange {exchange} not allowed");
    Exception::new(ReplyCode::AccessRefused, text)
}

/// EXC-08: the exchange is the source of a binding.
#[must_use]
pub fn exchange_in_use(exchange: &ResourceName) -> Exception {
    precondition(format!("exchange {exchange} in use"))
}

/// EXC-10: clients may not publish to an internal exchange.
#[must_use]
pub fn internal_exchange(exchange: &ResourceName) -> Exception {
    let text = format!("cannot publish to internal exchange {exchange}");
    Exception::new(ReplyCode::AccessRefused, text)
}

/// BND-09: the pattern would be too costly to match.
#[must_use]
pub fn too_many_hashes(key: &ShortString, hashes: usize, most: usize) -> Exception {
    precondition(format!(
        "Topic binding key '{key}' uses {hashes} '#' wildcards, at most {most} are allowed"
    ))
}

/// QUE-12, BND-02, CON-02: no such queue.
#[must_use]
pub fn no_queue(queue: &ResourceName) -> Exception {
    Exception::new(ReplyCode::NotFound, format!("no queue {queue}"))
}

/// EXQ-02, EXQ-03: the queue belongs to another connection, or is exclusive on one side only.
#[must_use]
pub fn exclusive_queue(queue: &ResourceName) -> Exception {
    let text = format!(
        "cannot obtain exclusive access to locked queue {queue}. It could be originally declared \
         on another connection or the exclusive property value does not match that of the \
         original declaration."
    );
    Exception::new(ReplyCode::ResourceLocked, text)
}

/// QUE-09: only the server may give names that begin with `amq.`.
#[must_use]
pub fn reserved_queue_name(queue: &ResourceName) -> Exception {
    let text = format!("queue name '{}' contains reserved prefix 'amq.*'", queue.name);
    Exception::new(ReplyCode::AccessRefused, text)
}

/// QUE-07: a quorum queue cannot have a name given by the server.
#[must_use]
pub fn server_named_quorum_queue() -> Exception {
    precondition("Cannot declare a server-named queue for type rabbit_quorum_queue".to_owned())
}

/// QUE-08: the queue type does not support the property.
#[must_use]
pub fn invalid_property(queue: &ResourceName, property: &str) -> Exception {
    precondition(format!("invalid property '{property}' for queue {queue}"))
}

/// DEL-02: the queue has consumers.
#[must_use]
pub fn queue_in_use(queue: &ResourceName) -> Exception {
    precondition(format!("queue {queue} in use"))
}

/// DEL-02: the queue has ready messages.
#[must_use]
pub fn queue_not_empty(queue: &ResourceName) -> Exception {
    precondition(format!("queue {queue} not empty"))
}

/// ARG-01, ARG-02, ARG-03, ARG-12: an argument of a declare is invalid.
#[must_use]
pub fn invalid_argument(error: &ArgumentError, queue: &ResourceName) -> Exception {
    precondition(match error {
        ArgumentError::Invalid { name, reason } => {
            format!("invalid arg '{name}' for queue {queue}: {reason}")
        }
        ArgumentError::WrongQueueType { name, queue_type } => {
            let kind = queue_type.name();
            format!("invalid arg '{name}' for queue {queue} of queue type rabbit_{kind}_queue")
        }
        ArgumentError::WrongType { name, type_name } => {
            format!("invalid type '{type_name}' for arg '{name}' in queue {queue}")
        }
    })
}

/// whether there is such a queue is not known, since the catalog has no majority.
#[must_use]
pub fn look_up_timeout(queue: &ResourceName) -> Exception {
    timeout(format!("failed to look up queue {queue} because the operation timed out"))
}

/// EXC-13, Q-60: the catalog has no majority.
#[must_use]
pub fn exchange_declare_timeout(exchange: &ResourceName) -> Exception {
    timeout(format!("failed to declare exchange {exchange} because the operation timed out"))
}

/// EXC-13, Q-60: the catalog has no majority.
#[must_use]
pub fn exchange_delete_timeout(exchange: &ResourceName) -> Exception {
    timeout(format!("failed to delete exchange {exchange} due to a timeout"))
}

/// BND-10, Q-60: the catalog has no majority.
#[must_use]
pub fn bind_timeout() -> Exception {
    timeout("Could not add binding due to timeout".to_owned())
}

/// BND-10, Q-60: the catalog has no majority.
#[must_use]
pub fn unbind_timeout() -> Exception {
    timeout("Could not remove binding due to timeout".to_owned())
}

fn timeout(text: String) -> Exception {
    Exception::new(ReplyCode::InternalError, text)
}

/// The object that an equivalence text is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// `queue` or `exchange`.
    pub(crate) kind: &'static str,
    pub(crate) name: &'a ResourceName,
}

impl Subject<'_> {
    /// EXC-04, EQV-01, EQV-03: both sides have the property, with different values.
    pub(crate) fn different(self, arg: &str, received: &str, current: &str) -> Exception {
        self.inequivalent(arg, format!("received '{received}' but current is '{current}'"))
    }

    /// EXC-04, EQV-03, EQV-04: an argument differs, or one side lacks it.
    pub(crate) fn different_argument(
        self,
        arg: &str,
        received: Option<&FieldValue>,
        current: Option<&FieldValue>,
    ) -> Exception {
        let shown =
            |value: &FieldValue| format!("'{}' of type '{}'", shown(value), value.type_name());
        let text = match (received, current) {
            (Some(received), Some(current)) => {
                return self.different(arg, &self::shown(received), &self::shown(current));
            }
            (None, Some(current)) => {
                format!("received none but current is the value {}", shown(current))
            }
            (Some(received), None) => {
                format!("received the value {} but current is none", shown(received))
            }
            (None, None) => "received none but current is none".to_owned(),
        };
        self.inequivalent(arg, text)
    }

    fn inequivalent(self, arg: &str, text: String) -> Exception {
        let Subject { kind, name } = self;
        precondition(format!("inequivalent arg '{arg}' for {kind} {name}: {text}"))
    }
}

/// A value as an error text shows it: strings as they are, other values as terms.
fn shown(value: &FieldValue) -> String {
    match value.as_long_string() {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => term(value),
    }
}

/// A value as RabbitMQ prints terms: `<<"text">>`, `1`, `true`, `[{longstr,<<"a">>}]`.
pub(crate) fn term(value: &FieldValue) -> String {
    match value {
        FieldValue::Bool(value) => value.to_string(),
        FieldValue::I8(_)
        | FieldValue::U8(_)
        | FieldValue::I16(_)
        | FieldValue::U16(_)
        | FieldValue::I32(_)
        | FieldValue::U32(_)
        | FieldValue::I64(_) => value.as_integer().unwrap_or_default().to_string(),
        FieldValue::F32(value) => format!("{value:?}"),
        FieldValue::F64(value) => format!("{value:?}"),
        FieldValue::Decimal { scale, value } => format!("{{{scale},{value}}}"),
        FieldValue::LongString(bytes) | FieldValue::ByteArray(bytes) => {
            format!("<<\"{}\">>", String::from_utf8_lossy(bytes))
        }
        FieldValue::Timestamp(seconds) => seconds.to_string(),
        FieldValue::Void => "undefined".to_owned(),
        FieldValue::Array(values) => {
            let typed = |value: &FieldValue| format!("{{{},{}}}", value.type_name(), term(value));
            format!("[{}]", values.iter().map(typed).collect::<Vec<_>>().join(","))
        }
        FieldValue::Table(table) => {
            let field = |(name, value): &(ShortString, FieldValue)| {
                format!("{{<<\"{name}\">>,{},{}}}", value.type_name(), term(value))
            };
            format!("[{}]", table.0.iter().map(field).collect::<Vec<_>>().join(","))
        }
    }
}
