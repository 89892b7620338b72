//! Runtime parameters: JSON values by name, of the whole cluster or of a component in a virtual
//! host (VLM-03). Policies have commands of their own.

use crate::{
    access_command::AccessCommand,
    command::{CatalogCommand, CatalogReply},
    limits::{LIMITS_PARAMETER, VHOST_LIMITS, VhostLimits},
    machine::Catalog,
    output::{CatalogEvent, CatalogOutput},
    record::{CatalogKey, VhostRecord},
    refusal,
};
use quorate_queue::LETTERS_MAX;
use quorate_types::{MachineVersion, ShortString, VhostName};

/// Bytes of a parameter's value: every node keeps it in memory.
pub const PARAMETER_BYTES_MAX: usize = 1 << 16;

/// The global parameter for the number of waiting dead letters at which a queue accepts no more
/// messages. Queue groups decide by it, so it is one value for the cluster and part of the
/// queues' settings.
const LETTERS_PARAMETER: &str = "dead_letters_max";

/// The global parameter with the name of the cluster.
pub const CLUSTER_NAME: &str = "cluster_name";

/// What is common to the settings of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonSettings {
    /// Number of waiting dead letters at which a queue accepts no more messages.
    pub letters_max: u64,
    /// All replicas know delayed retries (RQU-07, MEM 15).
    pub delays_returns: bool,
}

/// A parameter's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParameterName {
    /// A parameter of the whole cluster.
    Global(ShortString),
    /// A parameter of a virtual host.
    Vhost {
        /// Name of the virtual host.
        vhost: VhostName,
        /// The component that uses it.
        component: ShortString,
        /// Name, unique within the component.
        name: ShortString,
    },
}

/// A runtime parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterRecord {
    /// Name of the parameter.
    pub name: ParameterName,
    /// Value, as JSON.
    pub value: String,
}

/// Why a parameter is invalid; the text is that of `rabbitmqctl`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Policies have commands of their own.
    #[error("policies may not be set using this method")]
    Policy,
    /// The limits of a virtual host are not what they must be.
    #[error("limits of a virtual host {0}")]
    VhostLimits(String),
    /// The name of the cluster is not a text that can be shown.
    #[error(
        "parameter '{CLUSTER_NAME}' must be a text of 1 to 255 bytes without control characters, not {0}"
    )]
    ClusterName(String),
    /// The value is longer than [`PARAMETER_BYTES_MAX`].
    #[error("parameter value must not exceed {PARAMETER_BYTES_MAX} bytes")]
    TooLong,
    /// The value is not JSON.
    #[error("JSON decoding error. Reason: {{error,{{failed_to_decode_json,{0}}}}}")]
    Json(String),
    /// The value of a parameter that queue settings depend on is out of range.
    #[error("parameter '{LETTERS_PARAMETER}' must be an integer above 0, not {0}")]
    NoBound(String),
}

impl ParameterName {
    /// True if queue settings depend on the parameter.
    #[must_use]
    pub fn is_of_settings(&self) -> bool {
        matches!(self, Self::Global(name) if name.as_str() == LETTERS_PARAMETER)
    }

    /// True if only administrators may change the parameter: it has effects beyond what its user owns.
    #[must_use]
    pub fn is_of_administrators(&self) -> bool {
        self.is_of_settings() || self.limited_vhost().is_some()
    }

    /// The virtual host whose limits the parameter is.
    fn limited_vhost(&self) -> Option<&VhostName> {
        match self {
            Self::Vhost { vhost, component, .. } if component.as_str() == VHOST_LIMITS => {
                Some(vhost)
            }
            Self::Vhost { .. } | Self::Global(_) => None,
        }
    }

    /// The command that clears the parameter.
    #[must_use]
    pub fn clear(self) -> CatalogCommand {
        match self.limited_vhost() {
            Some(vhost) => limit(vhost, VhostLimits::default()),
            None => CatalogCommand::ClearParameter(self),
        }
    }

    fn is_of_cluster(&self) -> bool {
        matches!(self, Self::Global(name) if name.as_str() == CLUSTER_NAME)
    }
}

fn limit(vhost: &VhostName, limits: VhostLimits) -> CatalogCommand {
    CatalogCommand::Access(AccessCommand::SetVhostLimits { vhost: vhost.clone(), limits })
}

/// Whether a cluster may have this name, which monitors show.
fn is_cluster_name(value: &serde_json::Value) -> bool {
    let is_fit = |name: &str| (1..=255).contains(&name.len()) && !name.contains(char::is_control);
    value.as_str().is_some_and(is_fit)
}

impl ParameterRecord {
    /// A parameter with a value written in JSON.
    ///
    /// # Errors
    /// What [`ParameterError`] names.
    pub fn parse(name: ParameterName, value: &str) -> Result<Self, ParameterError> {
        if let ParameterName::Vhost { component, name, .. } = &name {
            match component.as_str() {
                "policy" | "operator_policy" => return Err(ParameterError::Policy),
                VHOST_LIMITS if name.as_str() != LIMITS_PARAMETER => {
                    let text = format!("are the parameter '{LIMITS_PARAMETER}', not '{name}'");
                    return Err(ParameterError::VhostLimits(text));
                }
                _ => {}
            }
        }
        if value.len() > PARAMETER_BYTES_MAX {
            return Err(ParameterError::TooLong);
        }
        match serde_json::from_str::<serde_json::Value>(value) {
            Ok(value) if name.is_of_settings() && value.as_u64().is_none_or(|max| max == 0) => {
                Err(ParameterError::NoBound(value.to_string()))
            }
            Ok(value) if name.is_of_cluster() && !is_cluster_name(&value) => {
                Err(ParameterError::ClusterName(value.to_string()))
            }
            Ok(value) => {
                if name.limited_vhost().is_some() {
                    VhostLimits::parse(&value)?;
                }
                Ok(Self { name, value: value.to_string() })
            }
            Err(_) => Err(ParameterError::Json(crate::term::binary(value))),
        }
    }
}

fn record((name, value): (&ParameterName, &String)) -> ParameterRecord {
    ParameterRecord { name: name.clone(), value: value.clone() }
}

/// Limits that an earlier binary kept as a parameter are not in force, and not shown.
fn is_shown(parameter: &ParameterRecord) -> bool {
    parameter.name.limited_vhost().is_none()
}

impl ParameterRecord {
    /// The command that sets the parameter.
    #[must_use]
    pub fn set(self) -> CatalogCommand {
        // The value was checked when the parameter was made.
        let limits = |value: &str| VhostLimits::parse(&serde_json::from_str(value).ok()?).ok();
        match (self.name.limited_vhost(), limits(&self.value)) {
            (Some(vhost), Some(limits)) => limit(vhost, limits),
            _ => CatalogCommand::SetParameter(self),
        }
    }
}

impl Catalog {
    /// All parameters as clients see them: those that are kept, and the limits of virtual hosts.
    pub fn shown_parameters(&self) -> impl Iterator<Item = ParameterRecord> + '_ {
        let limits = self.vhosts().filter_map(VhostRecord::limits_parameter);
        limits.chain(self.parameters().filter(is_shown))
    }

    /// The parameters of a virtual host as clients see them; with `None` the global ones.
    #[must_use]
    pub fn parameters_of(&self, of: Option<&VhostName>) -> Vec<ParameterRecord> {
        let is_of = |name: &ParameterName| match name {
            ParameterName::Global(_) => of.is_none(),
            ParameterName::Vhost { vhost, .. } => of == Some(vhost),
        };
        let vhost = of.and_then(|of| self.vhosts.get(of));
        let limits = vhost.and_then(|vhost| vhost.record.limits_parameter());
        let kept = self.parameters.iter().filter(|(name, _)| is_of(name)).map(record);
        limits.into_iter().chain(kept.filter(is_shown)).collect()
    }

    /// All parameters that are kept as such, global ones first, sorted by name.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterRecord> + '_ {
        self.parameters.iter().map(record)
    }

    /// The parameter of that name, also if it is the limits of a virtual host.
    #[must_use]
    pub fn parameter(&self, name: &ParameterName) -> Option<ParameterRecord> {
        if let Some(of) = name.limited_vhost() {
            let limits = self.vhosts.get(of)?.record.limits_parameter();
            return limits.filter(|limits| limits.name == *name);
        }
        let value = self.parameters.get(name)?.clone();
        Some(ParameterRecord { name: name.clone(), value })
    }

    /// What is common to the settings of all queues.
    #[must_use]
    pub fn common_settings(&self) -> CommonSettings {
        CommonSettings {
            letters_max: self.letters_max(),
            delays_returns: self.machine() >= MachineVersion::RETRIES,
        }
    }

    fn letters_max(&self) -> u64 {
        let name = ParameterName::Global(ShortString::from_static(LETTERS_PARAMETER));
        let set = self.parameters.get(&name).and_then(|value| value.parse().ok());
        set.unwrap_or(LETTERS_MAX)
    }

    /// True if a parameter says that number.
    pub(crate) fn has_letters_max(&self) -> bool {
        let name = ParameterName::Global(ShortString::from_static(LETTERS_PARAMETER));
        self.parameters.contains_key(&name)
    }

    pub(crate) fn set_parameter(
        &mut self,
        record: &ParameterRecord,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let name = match &record.name {
            ParameterName::Global(name) => ParameterName::Global(name.detached()),
            ParameterName::Vhost { vhost, component, name } => {
                let Some(vhost) = self.vhosts.kept_name(vhost).cloned() else {
                    return CatalogReply::Refused(refusal::no_such_vhost(vhost));
                };
                let (component, name) = (component.detached(), name.detached());
                ParameterName::Vhost { vhost, component, name }
            }
        };
        if self.parameters.get(&name) != Some(&record.value) {
            self.parameters.insert(name.clone(), record.value.clone());
            self.parameter_changed(name, out);
        }
        CatalogReply::Done
    }

    /// Removes the parameters of a virtual host that is removed.
    pub(crate) fn remove_parameters_of(&mut self, of: &VhostName, out: &mut CatalogOutput) {
        let is_of = |name: &&ParameterName| match name {
            ParameterName::Global(_) => false,
            ParameterName::Vhost { vhost, .. } => vhost == of,
        };
        let names: Vec<_> = self.parameters.keys().filter(is_of).cloned().collect();
        names.iter().for_each(|name| drop(self.clear_parameter(name, out)));
    }

    pub(crate) fn clear_parameter(
        &mut self,
        name: &ParameterName,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if self.parameters.remove(name).is_some() {
            self.parameter_changed(name.clone(), out);
        }
        CatalogReply::Done
    }

    fn parameter_changed(&mut self, name: ParameterName, out: &mut CatalogOutput) {
        if name.is_of_settings() {
            out.events.push(CatalogEvent::PoliciesChanged);
        }
        self.changed(CatalogKey::Parameter(name), out);
    }
}
