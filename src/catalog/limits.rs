//! Limits of virtual hosts and users (VLM-01, VLM-02). The broker counts connections and channels;
//! the catalog counts queues.

use crate::{
    command::CatalogReply,
    denial::Denial,
    machine::{Catalog, Vhost},
    output::CatalogOutput,
    parameter::{ParameterError, ParameterName, ParameterRecord},
    record::{CatalogKey, VhostRecord},
    refusal,
    server_name::server_named_queue,
};
use quorate_types::{Exception, ResourceName, ShortString, VhostName};
use serde_json::{Map, Value};

/// The component under which RabbitMQ keeps the limits of a virtual host as a runtime parameter.
pub(crate) const VHOST_LIMITS: &str = "vhost-limits";

/// The name of that parameter.
pub(crate) const LIMITS_PARAMETER: &str = "limits";

const CONNECTIONS: &str = "max-connections";
const QUEUES: &str = "max-queues";
const CHANNELS: &str = "max-channels";

/// A limit as it was set; a negative value means no limit.
pub type Limit = i64;

/// Limits of a virtual host; `None`: not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostLimits {
    /// `max-connections`: client connections at once.
    pub connections_max: Option<Limit>,
    /// `max-queues`: queues at once.
    pub queues_max: Option<Limit>,
}

/// Limits of a user; `None`: not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// `max-connections`: client connections at once.
    pub connections_max: Option<Limit>,
    /// `max-channels`: channels at once.
    pub channels_max: Option<Limit>,
}

/// The limits of a user that are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserLimit {
    /// `max-connections`: client connections at once.
    Connections,
    /// `max-channels`: channels at once.
    Channels,
    /// Both limits of the user.
    All,
}

/// True if `count` has reached the limit: one more would exceed it.
#[must_use]
pub fn reached(limit: Option<Limit>, count: u64) -> Option<u64> {
    let limit = u64::try_from(limit?).ok()?;
    (count >= limit).then_some(limit)
}

fn set_limits(limits: [(&str, Option<Limit>); 2]) -> Value {
    let set = limits.into_iter().filter_map(|(name, limit)| Some((name.to_owned(), limit?.into())));
    Value::Object(set.collect::<Map<_, _>>())
}

impl VhostLimits {
    /// The limits that are set, by RabbitMQ's names.
    #[must_use]
    pub fn to_json(self) -> Value {
        set_limits([(CONNECTIONS, self.connections_max), (QUEUES, self.queues_max)])
    }

    /// Limits by RabbitMQ's names; those that are not named are not set.
    ///
    /// # Errors
    /// [`ParameterError::VhostLimits`] with the value that is not an object of integers of these names.
    pub(crate) fn parse(value: &Value) -> Result<Self, ParameterError> {
        let wrong = |text: String| ParameterError::VhostLimits(text);
        let Some(fields) = value.as_object() else {
            return Err(wrong(format!("must be an object, not {value}")));
        };
        let mut limits = Self::default();
        for (name, value) in fields {
            let limit = match name.as_str() {
                CONNECTIONS => &mut limits.connections_max,
                QUEUES => &mut limits.queues_max,
                _ => return Err(wrong(format!("have no '{name}'"))),
            };
            let Some(number) = value.as_i64() else {
                return Err(wrong(format!("have an integer '{name}', not {value}")));
            };
            *limit = Some(number);
        }
        Ok(limits)
    }
}

impl VhostRecord {
    /// The limits of the virtual host as the runtime parameter that RabbitMQ keeps them as, if one is set.
    pub(crate) fn limits_parameter(&self) -> Option<ParameterRecord> {
        let name = ParameterName::Vhost {
            vhost: self.name.clone(),
            component: ShortString::from_static(VHOST_LIMITS),
            name: ShortString::from_static(LIMITS_PARAMETER),
        };
        let is_set = self.limits != VhostLimits::default();
        is_set.then(|| ParameterRecord { name, value: self.limits.to_json().to_string() })
    }
}

impl UserLimits {
    /// The limits that are set, by RabbitMQ's names.
    #[must_use]
    pub fn to_json(self) -> Value {
        set_limits([(CONNECTIONS, self.connections_max), (CHANNELS, self.channels_max)])
    }

    /// These limits, replaced by those of `other` that are set.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            connections_max: other.connections_max.or(self.connections_max),
            channels_max: other.channels_max.or(self.channels_max),
        }
    }

    /// These limits without those that are cleared.
    #[must_use]
    pub fn without(self, which: UserLimit) -> Self {
        match which {
            UserLimit::Connections => Self { connections_max: None, ..self },
            UserLimit::Channels => Self { channels_max: None, ..self },
            UserLimit::All => Self::default(),
        }
    }
}

impl Catalog {
    /// Limits of a virtual host.
    #[must_use]
    pub fn vhost_limits(&self, vhost: &VhostName) -> VhostLimits {
        self.vhost(vhost).map(|record| record.limits).unwrap_or_default()
    }

    /// Limits of a user.
    #[must_use]
    pub fn user_limits(&self, user: &ShortString) -> UserLimits {
        self.user(user).map(|record| record.limits).unwrap_or_default()
    }

    /// QUE-11: checks that a virtual host may have one more queue, in addition to those that have
    /// entries and to `uncounted` queues without an entry.
    ///
    /// # Errors
    /// 406.
    pub fn check_queue_limit(
        &self,
        queue: &ResourceName,
        uncounted: usize,
    ) -> Result<(), Exception> {
        let Some(vhost) = self.vhosts.get(&queue.vhost) else { return Ok(()) };
        check_queues(vhost, queue, uncounted)
    }

    /// Like [`Catalog::check_queue_limit`], for an entry that is added. A queue named by the server
    /// was counted when it was declared.
    pub(crate) fn check_new_entry(vhost: &Vhost, queue: &ResourceName) -> Result<(), Exception> {
        match server_named_queue(&queue.vhost, &queue.name) {
            Some(_) => Ok(()),
            None => check_queues(vhost, queue, 0),
        }
    }

    /// `set_vhost_limits`: replaces all limits; without any limit it clears them.
    pub(crate) fn set_vhost_limits(
        &mut self,
        name: &VhostName,
        limits: VhostLimits,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let Some(vhost) = self.vhosts.get_mut(name) else {
            return CatalogReply::Denied(Denial::NoSuchVhost(name.detached()));
        };
        if vhost.record.limits != limits {
            vhost.record.limits = limits;
            self.changed(CatalogKey::Vhost(name.detached()), out);
        }
        CatalogReply::Done
    }

    /// `set_user_limits`: sets the given limits; the others stay as they are.
    pub(crate) fn set_user_limits(
        &mut self,
        user: &ShortString,
        limits: UserLimits,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        self.change_user(user, out, |record| record.limits = record.limits.merged(limits))
    }

    /// rabbitmqctl's `clear_user_limits`.
    pub(crate) fn clear_user_limits(
        &mut self,
        user: &ShortString,
        which: UserLimit,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        self.change_user(user, out, |record| record.limits = record.limits.without(which))
    }
}

fn check_queues(vhost: &Vhost, queue: &ResourceName, uncounted: usize) -> Result<(), Exception> {
    let count = (vhost.queues.len() + uncounted) as u64;
    match reached(vhost.record.limits.queues_max, count) {
        Some(limit) => Err(refusal::queue_limit(queue, limit)),
        None => Ok(()),
    }
}
