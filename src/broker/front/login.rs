//! Logins: whoever fails is answered late, the later the more often logins from there have failed,
//! so that passwords cannot be guessed as fast as connections are opened (CONN-13, CONN-14).
//!
//! Only failed logins are delayed, so that nobody can lock out others behind the same address. The
//! delay is 1 s, and up to 5 s for a source that has failed often within a minute. At most 4,096
//! answers wait at the same time; further ones are sent at once.

use crate::Broker;
use parking_lot::Mutex;
use quorate_types::{ShortString, Source};
use std::{collections::BTreeMap, net::IpAddr, time::Duration};
use tokio::time::Instant;

/// Bytes of a password, at most: a hash must not cost more than it is worth.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// Logins that are answered late at the same time. Further ones are answered at once: a client
/// that is waited for costs a connection, and good logins need some.
const WAITING_MAX: usize = 4_096;
/// Sources whose failures are remembered.
const SOURCES_MAX: usize = 16_384;
/// How long a source's failures are remembered after the last one.
const MEMORY: Duration = Duration::from_secs(60);
/// Failures of a source after which the next ones are answered later by one delay more.
const STEP: u32 = 4;
/// Delays that a source waits at most.
const DELAYS_MAX: u32 = 5;

/// Failed logins of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    sources: BTreeMap<Source, Failed>,
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    failures: u32,
    last: Instant,
}

impl Failures {
    /// A login has failed: how many delays its answer waits.
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

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a Logins);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.lock().waiting -= 1;
    }
}

impl Logins {
    /// Waits as long as a failed login has to.
    async fn wait(&self, from: IpAddr, delay: Duration) {
        let (delays, _waiting) = {
            let mut failures = self.0.lock();
            let delays = failures.failed(from, Instant::now());
            if failures.waiting >= WAITING_MAX {
                return;
            }
            failures.waiting += 1;
            (delays, Waiting(self))
        };
        tokio::time::sleep(delay * delays).await;
    }
}

impl Broker {
    /// Lets a client in by its password, or without one where none is asked for. One that is
    /// not let in learns of it late.
    pub async fn log_in(&self, user: &ShortString, password: Option<&[u8]>, from: IpAddr) -> bool {
        let loopback = from.to_canonical().is_loopback();
        let right = match password {
            Some(password) => self.authenticate(user, password, loopback),
            None => self.admits(user, loopback),
        };
        if !right {
            let node = &self.0;
            tracing::info!(%from, ?user, "login refused");
            node.base.context.counters.logins_refused.add(1);
            let delay = Duration::from_millis(node.base.context.settings.login_failure_delay_ms);
            node.clients.logins.wait(from, delay).await;
        }
        right
    }
}

#[cfg(test)]
mod tests;
