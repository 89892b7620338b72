//! Logins: the answer to a failed login is delayed, the longer the more logins from its source have
//! failed, so that passwords cannot be guessed as fast as connections are opened (CONN-13,
//! CONN-14).
//!
//! Only failed logins are delayed, so that nobody can lock out others behind the same address. The
//! delay is 1 s, and up to 5 s for a source that has failed often within a minute. At most 4,096
//! answers wait at the same time; further ones are sent at once.

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

/// A delayed answer; counted until it is dropped.
struct Waiting<'a>(&'a Logins);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.lock().waiting -= 1;
    }
}

impl Logins {
    /// Waits for the delay of a failed login.
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
    /// Authenticates a client by its password, or without one where none is required. A
    /// failure is answered with a delay.
    pub async fn log_in(
        &self,
        protocol: LoginProtocol,
        user: &ShortString,
        password: Option<&[u8]>,
        from: IpAddr,
    ) -> bool {
        let loopback = from.to_canonical().is_loopback();
        let right = match password {
            Some(password) => self.authenticate(user, password, loopback),
            None => self.admits(user, loopback),
        };
        let node = &self.0;
        node.base.context.counters.logins.add(protocol, user, from, right);
        if !right {
            tracing::info!(%from, ?user, "login refused");
            let delay = Duration::from_millis(node.base.context.settings.login_failure_delay_ms);
            node.clients.logins.wait(from, delay).await;
        }
        right
    }
}

#[cfg(test)]
mod tests;
