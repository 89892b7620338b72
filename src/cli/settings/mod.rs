//! Settings of a node: defaults < TOML file < `QUORATE_*` environment < flags (DESIGN §1).

mod check;
mod flags;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use flags::{command, flags_of};
pub use table::Settings;
pub use value::{ByteCount, HostPort, Identity, LogFormat};
#[cfg(test)]
use value::{Members, MemoryLimit};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use table::SPECS;
use value::SettingValue;

/// The version that a node passes for.
pub const RABBITMQ_VERSION: &str = "4.3.5";

/// Why a node cannot start with its settings; the error always names the setting.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A value that is invalid for the setting.
    #[error("setting {name} ({origin}): '{value}' {why}")]
    Value {
        /// Name of the setting.
        name: String,
        /// Where the value was given.
        origin: String,
        /// The value that was given.
        value: String,
        /// Why the value is refused.
        why: String,
    },
    /// A name in the file that is no setting.
    #[error("setting {name} (in {file}): there is no such setting")]
    Unknown {
        /// The unknown name.
        name: String,
        /// Name of the file.
        file: String,
    },
    /// Settings that contradict each other.
    #[error("setting {name}: {why}")]
    Contradiction {
        /// The setting to change.
        name: &'static str,
        /// What it contradicts, and how.
        why: String,
    },
    /// The file itself.
    #[error("setting config: file {file}: {why}")]
    File {
        /// Name of the file.
        file: String,
        /// Why the file cannot be used.
        why: String,
    },
}

/// Texts of settings by name, from one origin.
type Layer = BTreeMap<String, String>;

/// The settings given, by origin; flags win over the environment, and that over the file.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    flags: Layer,
    environment: Layer,
    file: Layer,
    file_name: String,
}

impl Layers {
    /// The value of a setting, from the highest layer that has it.
    fn take<T: SettingValue>(&self, name: &str, default: &str) -> Result<T, SettingError> {
        let (text, origin) = self.find(name, default);
        T::take(text).map_err(|why| SettingError::Value {
            name: name.to_owned(),
            origin,
            value: text.to_owned(),
            why,
        })
    }

    fn find<'a>(&'a self, name: &str, default: &'a str) -> (&'a str, String) {
        if let Some(text) = self.flags.get(name) {
            return (text, format!("from --{}", name.replace('_', "-")));
        }
        if let Some(text) = self.environment.get(name) {
            return (text, format!("from QUORATE_{}", name.to_uppercase()));
        }
        if let Some(text) = self.file.get(name) {
            return (text, format!("in {}", self.file_name));
        }
        (default, "default".to_owned())
    }
}

impl Settings {
    /// Where other nodes reach this one's rpc port.
    #[must_use]
    pub fn rpc_address(&self) -> HostPort {
        let member = self.cluster.get(&self.node_id);
        match (&self.rpc_advertise, member) {
            (Some(address), _) | (None, Some(address)) => address.clone(),
            (None, None) => reachable(&self.rpc_listen),
        }
    }

    /// Where clients reach this node, for lists.
    #[must_use]
    pub fn amqp_address(&self) -> HostPort {
        self.amqp_advertise.clone().unwrap_or_else(|| reachable(&self.amqp_listen))
    }
}

impl Settings {
    /// The file that a setting of TLS names.
    pub(crate) fn tls_file(&self, setting: &str) -> Option<PathBuf> {
        match setting {
            "tls_certificate_file" => self.tls_certificate_file.clone(),
            "tls_key_file" => self.tls_key_file.clone(),
            "tls_ca_file" => self.tls_ca_file.clone(),
            "rpc_tls_certificate_file" => self.rpc_tls_certificate_file.clone(),
            "rpc_tls_key_file" => self.rpc_tls_key_file.clone(),
            "rpc_tls_ca_file" => self.rpc_tls_ca_file.clone(),
            _ => None,
        }
    }
}

/// Other nodes cannot connect to an address such as 0.0.0.0; the host's name is used instead.
fn reachable(listen: &HostPort) -> HostPort {
    if listen.host != "0.0.0.0" && listen.host != "::" {
        return listen.clone();
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    };
    HostPort { host, port: listen.port }
}

/// The settings of a node, and warnings about them.
#[derive(Debug)]
pub struct Loaded {
    /// The settings, checked.
    pub settings: Settings,
    /// The file they came from, if any.
    pub file: Option<PathBuf>,
    /// One line each, to be logged.
    pub warnings: Vec<String>,
    /// Every setting as text, for operators.
    pub shown: Vec<ShownSetting>,
}

/// A setting as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownSetting {
    /// Its name.
    pub name: &'static str,
    /// Its value, as text.
    pub value: String,
    /// Where the value was given.
    pub origin: String,
}

/// Reads settings from flags, an environment and the file that either names (`--config`,
/// `QUORATE_CONFIG`).
///
/// # Errors
/// A [`SettingError`] that names the setting.
pub(crate) fn load(
    mut flags: Layer,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded, SettingError> {
    let (mut environment, warnings) = environment_layer(environment);
    let file = flags.remove("config").or_else(|| environment.remove("config")).map(PathBuf::from);
    let mut layers = Layers { flags, environment, ..Layers::default() };
    if let Some(path) = &file {
        layers.file_name = path.display().to_string();
        layers.file = read_file(path)?;
    }
    let settings = Settings::take(&layers)?;
    check::check(&settings)?;
    let shown = SPECS.iter().map(|spec| {
        let (value, origin) = layers.find(spec.name, spec.default);
        ShownSetting { name: spec.name, value: value.to_owned(), origin }
    });
    Ok(Loaded { settings, file, warnings, shown: shown.collect() })
}

/// Settings from flags alone.
#[cfg(test)]
pub(crate) fn settings_of(flags: &[(&str, &str)]) -> Result<Settings, SettingError> {
    let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load(flags.collect(), Vec::new()).map(|loaded| loaded.settings)
}

/// Variables that begin with `QUORATE_` and are not settings.
const OTHER_VARIABLES: [&str; 2] = ["cluster_secret", "uri"];

fn environment_layer(
    environment: impl IntoIterator<Item = (String, String)>,
) -> (Layer, Vec<String>) {
    let mut layer = Layer::new();
    let mut warnings = Vec::new();
    for (variable, value) in environment {
        let Some(name) = variable.strip_prefix("QUORATE_").map(str::to_lowercase) else { continue };
        if name == "config" || is_setting(&name) {
            layer.insert(name, value);
        } else if !OTHER_VARIABLES.contains(&name.as_str()) {
            warnings.push(format!("{variable} is set, but there is no setting {name}"));
        }
    }
    (layer, warnings)
}

fn is_setting(name: &str) -> bool {
    SPECS.iter().any(|spec| spec.name == name)
}

fn read_file(path: &Path) -> Result<Layer, SettingError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| SettingError::File { file: file.clone(), why: error.to_string() })?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| {
        let line = error
            .span()
            .map_or(0, |span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
        let why = format!("line {line}: {}", error.message().replace('\n', ", "));
        SettingError::File { file: file.clone(), why }
    })?;
    let mut layer = Layer::new();
    for (name, value) in table {
        if !is_setting(&name) {
            return Err(SettingError::Unknown { name, file });
        }
        let text = text_of(&value).map_err(|why| SettingError::Value {
            name: name.clone(),
            origin: format!("in {file}"),
            value: format!("a value of type {}", value.type_str()),
            why,
        })?;
        layer.insert(name, text);
    }
    Ok(layer)
}

/// A TOML value in the syntax of a flag. The only table is the cluster's: `cluster = { 1 =
/// "HOST:PORT", … }`.
fn text_of(value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(format!("{number:?}")),
        toml::Value::Boolean(yes) => Ok(yes.to_string()),
        toml::Value::Table(table) => {
            let parts: Result<Vec<_>, _> = table
                .iter()
                .map(|(key, value)| text_of(value).map(|text| format!("{key}={text}")))
                .collect();
            Ok(parts?.join(","))
        }
        toml::Value::Array(_) | toml::Value::Datetime(_) => {
            Err("cannot be the value of a setting".to_owned())
        }
    }
}
