//! Parses the text of a setting into a value: the same for flags, environment and file.

use quorate_broker::Amount;
use quorate_tls::{ClientCertificates, LoginFrom};
use quorate_types::{NodeId, QueueType, ShortString};
use std::{collections::BTreeMap, fmt, path::PathBuf};

/// A type of settings. The error says what the text should have been.
pub(crate) trait SettingValue: Sized {
    /// What `--help` shows in the place of the value, with the unit.
    const SHAPE: &'static str;

    /// Parses the text.
    fn take(text: &str) -> Result<Self, String>;
}

macro_rules! whole_number {
    ($($number:ty),*) => {$(
        impl SettingValue for $number {
            const SHAPE: &'static str = "NUMBER";

            fn take(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("is not a whole number from 0 to {}", Self::MAX))
            }
        }
    )*};
}

whole_number!(u16, u32, u64);

impl SettingValue for bool {
    const SHAPE: &'static str = "true|false";

    fn take(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "is neither true nor false".to_owned())
    }
}

impl SettingValue for NodeId {
    const SHAPE: &'static str = "NUMBER";

    fn take(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(0) | Err(_) => Err("is not a whole number from 1 to 65535".to_owned()),
            Ok(id) => Ok(NodeId(id)),
        }
    }
}

impl SettingValue for PathBuf {
    const SHAPE: &'static str = "PATH";

    fn take(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is not a path".to_owned());
        }
        Ok(text.into())
    }
}

impl SettingValue for String {
    const SHAPE: &'static str = "TEXT";

    fn take(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl SettingValue for ShortString {
    const SHAPE: &'static str = "TEXT";

    fn take(text: &str) -> Result<Self, String> {
        Self::try_from(text).map_err(|error| format!("is not a name: {error}"))
    }
}

/// A setting that may be left empty.
impl<T: SettingValue> SettingValue for Option<T> {
    const SHAPE: &'static str = T::SHAPE;

    fn take(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::take(text).map(Some) }
    }
}

/// An amount of memory or disk, bytes: a whole number with or without KiB, MiB, GiB, KB, MB, GB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteCount(pub u64);

const BYTE_UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("", 1),
];

impl SettingValue for ByteCount {
    const SHAPE: &'static str = "BYTES";

    fn take(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = text.get(digits.len()..).unwrap_or_default().trim();
        let factor = BYTE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let number = digits.parse::<u64>().ok();
        factor
            .zip(number)
            .and_then(|(factor, number)| number.checked_mul(factor))
            .map(ByteCount)
            .ok_or_else(|| "is not a number of bytes such as 4194304 or 4MiB".to_owned())
    }
}

/// A limit on memory: bytes, or a fraction of what the machine (or its cgroup) has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryLimit {
    /// An absolute number of bytes.
    Bytes(ByteCount),
    /// Of the machine's memory, above 0 and up to 1.
    Fraction(f64),
}

impl MemoryLimit {
    /// The limit in bytes on a machine that has `total_bytes`.
    #[must_use]
    pub fn bytes_of(self, total_bytes: u64) -> u64 {
        let amount = match self {
            Self::Bytes(bytes) => Amount::Bytes(bytes.0),
            Self::Fraction(fraction) => Amount::OfMemory(fraction),
        };
        amount.bytes_of(total_bytes)
    }
}

impl SettingValue for MemoryLimit {
    const SHAPE: &'static str = "BYTES|FRACTION";

    fn take(text: &str) -> Result<Self, String> {
        if text.contains('.') {
            return match text.parse::<f64>() {
                Ok(fraction) if fraction > 0.0 && fraction <= 1.0 => Ok(Self::Fraction(fraction)),
                Ok(_) | Err(_) => Err("is not a fraction above 0.0 and at most 1.0".to_owned()),
            };
        }
        ByteCount::take(text).map(Self::Bytes)
    }
}

/// An address as people write it, `HOST:PORT`; resolved where it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl SettingValue for HostPort {
    const SHAPE: &'static str = "HOST:PORT";

    fn take(text: &str) -> Result<Self, String> {
        let refuse = || "is not HOST:PORT".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
        let port = port.parse().map_err(|_| refuse())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(host) => host,
            None if host.contains(':') || host.is_empty() => return Err(refuse()),
            None => host,
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

/// The members of the cluster with their rpc addresses, by id; empty for a one-node broker.
pub type Members = BTreeMap<NodeId, HostPort>;

impl SettingValue for Members {
    const SHAPE: &'static str = "ID=HOST:PORT,...";

    fn take(text: &str) -> Result<Self, String> {
        let mut members = Members::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (id, address) = part
                .split_once('=')
                .ok_or_else(|| format!("contains '{part}', which is not ID=HOST:PORT"))?;
            let id = NodeId::take(id.trim())
                .map_err(|why| format!("contains the id '{id}', which {why}"))?;
            let address = HostPort::take(address.trim())
                .map_err(|why| format!("contains the address '{address}', which {why}"))?;
            match members.get(&id) {
                // So one list may be given to all nodes, each of which adds itself, as the chart does.
                Some(known) if *known == address => continue,
                Some(_) => return Err(format!("names node {id} twice")),
                None => {}
            }
            if members.values().any(|other| *other == address) {
                return Err(format!("gives the address {address} to two nodes"));
            }
            members.insert(id, address);
        }
        Ok(members)
    }
}

/// Names of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserNames(pub Vec<String>);

impl SettingValue for UserNames {
    const SHAPE: &'static str = "USER,...";

    fn take(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self::default());
        }
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self(names.map(str::to_owned).collect()))
    }
}

/// The product as which the node identifies itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// RabbitMQ 4.3.5, since clients choose features by that name.
    RabbitMq,
    /// Quorate, by its own name and version.
    Quorate,
}

impl SettingValue for Identity {
    const SHAPE: &'static str = "rabbitmq|quorate";

    fn take(text: &str) -> Result<Self, String> {
        match text {
            "rabbitmq" => Ok(Self::RabbitMq),
            "quorate" => Ok(Self::Quorate),
            other => Err(unknown_word(other, Self::SHAPE)),
        }
    }
}

impl SettingValue for QueueType {
    const SHAPE: &'static str = "classic|quorum";

    fn take(text: &str) -> Result<Self, String> {
        match text {
            "classic" => Ok(Self::Classic),
            "quorum" => Ok(Self::Quorum),
            other => Err(unknown_word(other, Self::SHAPE)),
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text for people.
    Text,
    /// One JSON object a line.
    Json,
}

impl SettingValue for LogFormat {
    const SHAPE: &'static str = "text|json";

    fn take(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(unknown_word(other, Self::SHAPE)),
        }
    }
}

impl SettingValue for ClientCertificates {
    const SHAPE: &'static str = "none|request|require";

    fn take(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "request" => Ok(Self::Request),
            "require" => Ok(Self::Require),
            other => Err(unknown_word(other, Self::SHAPE)),
        }
    }
}

impl SettingValue for LoginFrom {
    const SHAPE: &'static str = "common_name|subject_alternative_name|distinguished_name";

    fn take(text: &str) -> Result<Self, String> {
        match text {
            "common_name" => Ok(Self::CommonName),
            "subject_alternative_name" => Ok(Self::SubjectAlternativeName),
            "distinguished_name" => Ok(Self::DistinguishedName),
            other => Err(unknown_word(other, Self::SHAPE)),
        }
    }
}

fn unknown_word(_given: &str, words: &str) -> String {
    format!("is not one of {}", words.replace('|', ", "))
}
