//! Why an operator's command was refused (CTL-12, CTL-13).

use quorate_types::{ShortString, VhostName};

/// Why a change of users, virtual hosts, permissions or limits was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The user does not exist.
    #[error("User {0} does not exist")]
    NoSuchUser(ShortString),
    /// The user exists already.
    #[error("User \"{0}\" already exists")]
    UserExists(ShortString),
    /// The virtual host does not exist.
    #[error("Virtual host '{0}' does not exist")]
    NoSuchVhost(VhostName),
    /// The regular expression is invalid.
    #[error("invalid regular expression '{pattern}': {reason} at {at}")]
    InvalidPattern {
        /// The regular expression, as it was given.
        pattern: String,
        /// The parser's error.
        reason: String,
        /// Position of the error, in bytes from the beginning.
        at: u32,
    },
    /// More tags than a user may have.
    #[error("A user can have at most {most} tags (received {received})")]
    TooManyTags {
        /// Number of tags that is allowed.
        most: u32,
        /// Number of tags in the request.
        received: u32,
    },
}
