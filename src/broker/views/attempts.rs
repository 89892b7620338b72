//! Counts of logins, for operators: by protocol, and by who tried.

use parking_lot::Mutex;
use quorate_types::ShortString;
use std::{collections::BTreeMap, net::IpAddr};

/// Sources that are counted apart. Above that, a new one is counted with its protocol only.
const SOURCES_MAX: usize = 1_000;

/// A protocol that clients log in over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoginProtocol {
    /// AMQP 0-9-1.
    Amqp091,
    /// The HTTP API.
    Http,
}

impl LoginProtocol {
    /// RabbitMQ's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amqp091 => "amqp091",
            Self::Http => "http",
        }
    }
}

/// Logins over one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// The protocol.
    pub protocol: LoginProtocol,
    /// Logins with the right password.
    pub succeeded: u64,
    /// Logins that were refused.
    pub failed: u64,
}

/// Logins of one user from one address over one protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceAttempts {
    /// The address.
    pub from: IpAddr,
    /// The user, as the client named it.
    pub user: ShortString,
    /// The counts.
    pub attempts: Attempts,
}

/// The logins of a node.
#[derive(Debug, Default)]
pub(crate) struct LoginCounters(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    by_protocol: BTreeMap<LoginProtocol, (u64, u64)>,
    by_source: BTreeMap<(IpAddr, ShortString, LoginProtocol), (u64, u64)>,
}

fn count(counts: &mut (u64, u64), succeeded: bool) {
    if succeeded {
        counts.0 += 1;
    } else {
        counts.1 += 1;
    }
}

impl LoginCounters {
    /// Counts a login.
    pub(crate) fn add(
        &self,
        protocol: LoginProtocol,
        user: &ShortString,
        from: IpAddr,
        succeeded: bool,
    ) {
        let mut counted = self.0.lock();
        count(counted.by_protocol.entry(protocol).or_default(), succeeded);
        let sources = &mut counted.by_source;
        let source = (from.to_canonical(), user.detached(), protocol);
        if sources.len() < SOURCES_MAX || sources.contains_key(&source) {
            count(sources.entry(source).or_default(), succeeded);
        }
    }

    pub(crate) fn all(&self) -> Vec<Attempts> {
        let counted = self.0.lock();
        let protocols = [LoginProtocol::Amqp091, LoginProtocol::Http];
        let of = |protocol| counted.by_protocol.get(&protocol).copied().unwrap_or_default();
        let attempts = protocols.map(|protocol| {
            let (succeeded, failed) = of(protocol);
            Attempts { protocol, succeeded, failed }
        });
        attempts.to_vec()
    }

    pub(crate) fn by_source(&self) -> Vec<SourceAttempts> {
        let counted = self.0.lock();
        let sources = counted.by_source.iter();
        let attempts =
            |((from, user, protocol), (succeeded, failed)): (&(_, _, _), &(u64, u64))| {
                let attempts =
                    Attempts { protocol: *protocol, succeeded: *succeeded, failed: *failed };
                SourceAttempts { from: *from, user: ShortString::clone(user), attempts }
            };
        sources.map(attempts).collect()
    }

    pub(crate) fn reset(&self, only_by_source: bool) {
        let mut counted = self.0.lock();
        counted.by_source.clear();
        if !only_by_source {
            counted.by_protocol.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn logins_are_counted_by_protocol_and_by_source() {
        let (logins, user) = (LoginCounters::default(), ShortString::from_static("u"));
        logins.add(LoginProtocol::Amqp091, &user, address(1), true);
        logins.add(LoginProtocol::Amqp091, &user, address(1), false);
        logins.add(LoginProtocol::Http, &user, address(2), false);
        let counts = |attempts: &Attempts| (attempts.succeeded, attempts.failed);
        assert_eq!(logins.all().iter().map(counts).collect::<Vec<_>>(), [(1, 1), (0, 1)]);
        let by_source = logins.by_source();
        let first = by_source.first().map(|source| (source.from, counts(&source.attempts)));
        assert_eq!(first, Some((address(1), (1, 1))));
        logins.reset(true);
        assert_eq!(
            (logins.by_source().len(), logins.all().iter().map(counts).max()),
            (0, Some((1, 1)))
        );
        logins.reset(false);
        assert_eq!(logins.all().iter().map(counts).max(), Some((0, 0)));
    }

    /// A client that tries many names does not fill the memory.
    #[test]
    fn the_number_of_sources_is_bounded() {
        let logins = LoginCounters::default();
        for number in 0..SOURCES_MAX + 10 {
            let user = ShortString::try_from(format!("u{number}")).unwrap_or_default();
            logins.add(LoginProtocol::Http, &user, address(1), false);
        }
        assert_eq!(logins.by_source().len(), SOURCES_MAX);
        assert_eq!(logins.all().last().map(|all| all.failed), Some(SOURCES_MAX as u64 + 10));
    }
}
