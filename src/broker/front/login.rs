//! Logins: the answer to a failed login is delayed, the longer the more logins from its source have
//! failed, so that passwords cannot be guessed as fast as connections are opened (CONN-13,
//! CONN-14).
//!
//! Only failed logins are delayed, so that nobody can lock out others behind the same address. The
//! delay is 1 s, and up to 5 s for a source that has failed often within a minute. At most 4,096
//! answers wait at the same time; further ones are sent at once.
//!
//! A client that hangs up does not shorten a delay. While the delays of eight failed logins of a user
//! from one source have not passed, further logins of that user from there wait before their passwords
//! are checked.

use crate::{Broker, views::attempts::LoginProtocol};
use parking_lot::Mutex;
use quorate_types::{ShortString, Source};
use std::{collections::BTreeMap, net::IpAddr, time::Duration};
use tokio::time::Instant;

/// Longest password, bytes: it bounds the cost of a hash.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;

/// Failed logins that are delayed at the same time. Further ones are answered at once: each delayed
/// login occupies a connection, and good logins need some.
const WAITING_MAX: usize = 4_096;
/// Sources whose failures are remembered.
const SOURCES_MAX: usize = 16_384;
/// How long a source's failures are remembered after the last one.
const MEMORY: Duration = Duration::from_secs(60);
/// Failures of a source after which its next ones wait one delay more.
const STEP: u32 = 4;
/// Most delays that a source waits.
const DELAYS_MAX: u32 = 5;
/// Failed logins of a user from one source whose delays pass at the same time. A right password
/// waits with the others: if it did not, its quick answer would tell it from wrong ones.
const PASSING_MAX: usize = 8;
/// Most times that a login waits for its check. Then it is refused.
const TURNS_MAX: usize = 8;

/// Failed logins of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    sources: BTreeMap<Source, Failed>,
    /// When the delays of failed logins end, by source and user.
    passing: BTreeMap<(Source, ShortString), Vec<Instant>>,
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    failures: u32,
    last: Instant,
}

impl Failures {
    /// Records a failed login. Returns the number of delays that its answer waits.
    fn failed(&mut self, from: IpAddr, now: Instant) -> u32 {
        let fresh = |source: &Failed| now.saturating_duration_since(source.last) < MEMORY;
        let from = Source::of(from);
        if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&from) {
            self.sources.retain(|_, source| fresh(source));
            if self.sources.len() >= SOURCES_MAX {
                self.sources.pop_first();
            }
        }
        let source = self.sources.entry(from).or_insert(Failed { failures: 0, last: now });
        if !fresh(source) {
            source.failures = 0;
        }
        let delays = (1 + source.failures / STEP).min(DELAYS_MAX);
        *source = Failed { failures: source.failures.saturating_add(1), last: now };
        delays
    }
}

impl Failures {
    /// Notes that the delay of a failed login begins, which ends at `until`.
    fn passes(&mut self, from: IpAddr, user: &ShortString, (now, until): (Instant, Instant)) {
        let key = (Source::of(from), user.detached());
        if self.passing.len() >= SOURCES_MAX && !self.passing.contains_key(&key) {
            self.passing.retain(|_, delays| delays.iter().any(|end| *end > now));
            if self.passing.len() >= SOURCES_MAX {
                self.passing.pop_first();
            }
        }
        let delays = self.passing.entry(key).or_default();
        delays.retain(|end| *end > now);
        delays.push(until);
    }

    /// When a login of the user from that source may be tried; `None`: now.
    fn turn(&self, from: IpAddr, user: &ShortString, now: Instant) -> Option<Instant> {
        let delays = self.passing.get(&(Source::of(from), user.clone()))?;
        let passing = delays.iter().filter(|end| **end > now);
        if passing.clone().count() < PASSING_MAX { None } else { passing.min().copied() }
    }
}

/// A delayed answer; counted until it is dropped.
struct Waiting<'a>(&'a Logins);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.lock().waiting -= 1;
    }
}

impl Logins {
    /// Waits for the delay of a failed login.
    async fn wait(&self, from: IpAddr, user: &ShortString, delay: Duration) {
        let (until, _waiting) = {
            let (mut failures, now) = (self.0.lock(), Instant::now());
            let until = now + delay * failures.failed(from, now);
            failures.passes(from, user, (now, until));
            let Some(waiting) = self.waiting(&mut failures) else { return };
            (until, waiting)
        };
        tokio::time::sleep_until(until).await;
    }

    /// Waits until a login of the user may be tried. False: others were tried all the time, so that it
    /// is refused.
    async fn may_try(&self, from: IpAddr, user: &ShortString) -> bool {
        for _ in 0..TURNS_MAX {
            let (until, _waiting) = {
                let mut failures = self.0.lock();
                let Some(until) = failures.turn(from, user, Instant::now()) else { return true };
                let Some(waiting) = self.waiting(&mut failures) else { return false };
                (until, waiting)
            };
            tokio::time::sleep_until(until).await;
        }
        self.0.lock().turn(from, user, Instant::now()).is_none()
    }

    /// Counts one that waits; `None`: too many do.
    fn waiting(&self, failures: &mut Failures) -> Option<Waiting<'_>> {
        (failures.waiting < WAITING_MAX).then(|| {
            failures.waiting += 1;
            Waiting(self)
        })
    }
}

impl Broker {
    /// Authenticates a client by its password, or without one where none is required. A
    /// failure is answered with a delay.
    pub async fn log_in(
        &self,
        protocol: LoginProtocol,
        user: &ShortString,
        password: Option<&[u8]>,
        from: IpAddr,
    ) -> bool {
        let (node, loopback) = (&self.0, from.to_canonical().is_loopback());
        if !node.clients.logins.may_try(from, user).await {
            tracing::info!(%from, ?user, "login refused: too many have failed");
            node.base.context.counters.logins.add(protocol, user, from, false);
            return false;
        }
        let right = match password {
            Some(password) => self.authenticate(user, password, loopback),
            None => self.admits(user, loopback),
        };
        node.base.context.counters.logins.add(protocol, user, from, right);
        if !right {
            tracing::info!(%from, ?user, "login refused");
            let delay = Duration::from_millis(node.base.context.settings.login_failure_delay_ms);
            node.clients.logins.wait(from, user, delay).await;
        }
        right
    }
}

#[cfg(test)]
mod tests;
