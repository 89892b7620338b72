//! Why an operator's command was not obeyed (CTL-12, CTL-13).

use quorate_types::{ShortString, VhostName};

/// Why a change of users, virtual hosts, permissions or limits was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// There is no such user.
    #[error("User {0} does not exist")]
    NoSuchUser(ShortString),
    /// There is such a user already.
    #[error("User \"{0}\" already exists")]
    UserExists(ShortString),
    /// There is no such virtual host.
    #[error("Virtual host '{0}' does not exist")]
    NoSuchVhost(VhostName),
    /// A regular expression that is none.
    #[error("invalid regular expression '{pattern}': {reason} at {at}")]
    InvalidPattern {
        /// As it was given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
        /// Where, bytes from its beginning.
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
