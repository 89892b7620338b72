//! Names and short strings (AMQP 0-9-1, section 4.2.5.3): at most 255 bytes of UTF-8.

use bytes::Bytes;
use std::{borrow::Borrow, fmt};

/// Why bytes are not a short string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has more than 255 bytes.
    #[error("short string of {0} octets is longer than 255")]
    TooLong(usize),
    /// It is not valid UTF-8 (FRM-11).
    #[error("short string is not valid UTF-8")]
    NotUtf8,
}

/// A short string: at most 255 bytes of valid UTF-8, cheap to clone and to cut out of a frame.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortString(Bytes);

impl ShortString {
    /// The empty short string.
    pub const EMPTY: ShortString = ShortString(Bytes::new());

    /// A short string of these bytes.
    ///
    /// # Errors
    /// `TooLong` above 255 bytes, `NotUtf8` for what is not UTF-8.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, NameError> {
        if bytes.len() > 255 {
            return Err(NameError::TooLong(bytes.len()));
        }
        if std::str::from_utf8(&bytes).is_err() {
            return Err(NameError::NotUtf8);
        }
        Ok(Self(bytes))
    }

    /// A short string of a text that the program itself wrote.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        assert!(text.len() <= 255, "a static short string is longer than 255 bytes");
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Checked at construction; an empty text stands for what cannot be.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The name as bytes, without a terminator.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, without a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Number of bytes, 0 to 255.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A copy that does not keep the frame in memory that the string is a part of.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Without CR and LF, as names of queues and exchanges are taken (CHN-12).
    #[must_use]
    pub fn without_line_breaks(&self) -> Self {
        if !self.0.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return self.clone();
        }
        Self(self.0.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect())
    }
}

impl TryFrom<&str> for ShortString {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Self, NameError> {
        Self::from_bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl TryFrom<String> for ShortString {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::from_bytes(Bytes::from(text))
    }
}

impl Borrow<[u8]> for ShortString {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ShortString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ShortString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// A virtual host's name.
pub type VhostName = ShortString;

/// An exchange or queue by name: its virtual host and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName {
    /// Virtual host that the name is in.
    pub vhost: VhostName,
    /// Name within it.
    pub name: ShortString,
}

impl fmt::Display for ResourceName {
    /// As RabbitMQ's texts name a resource: `'q' in vhost '/'`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' in vhost '{}'", self.name, self.vhost)
    }
}
