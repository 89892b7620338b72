//! How many requests are carried out at the same time, by what they do: one kind does not keep the others
//! waiting.

use crate::api::refusal::Refusal;
use crate::api::route::{Check, Endpoint, Method};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Reads that are carried out at the same time. Further ones wait.
const READS_MAX: usize = 32;
/// Changes at the same time; reads, which may wait for memory, do not keep them waiting.
const CHANGES_MAX: usize = 32;
/// Tasks that are made at the same time. Dry runs are answered when they have ended, and must not keep
/// other requests waiting.
const TASKS_MAX: usize = 8;
/// Browses, explanations, dry runs and exports of definitions at the same time. Each may take seconds.
const LOOKS_MAX: usize = 4;
/// Gets at the same time, each of which may have many bytes.
const GETS_MAX: usize = 2;
/// Publishes at the same time, which wait for other nodes.
const PUBLISHES_MAX: usize = 16;
/// What lists of the whole cluster take at the same time, in units of [`UNIT_QUEUES`] queues. Each of
/// them is in memory as a whole, about 1 KiB a queue, until its answer is written.
const UNITS: usize = 32;
/// What a list of queues takes at least: at most 16 of them are made at the same time.
const LIST_UNITS: usize = 2;
/// What a list of connections, channels or consumers takes. Nobody knows before how many there are.
const CLIENTS_UNITS: usize = 4;
/// Queues for which a list takes one unit.
const UNIT_QUEUES: usize = 4_000;
/// Longest wait for a turn.
pub(crate) const TURN_MAX: Duration = Duration::from_secs(5);
/// Why a request is refused for which there was no turn in that time.
const BUSY: &str = "too many requests are being carried out";

/// The turns of a node.
#[derive(Debug)]
pub(crate) struct Turns {
    reads: Semaphore,
    lists: Semaphore,
    changes: Semaphore,
    looks: Semaphore,
    gets: Semaphore,
    publishes: Semaphore,
    tasks: Semaphore,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            reads: Semaphore::new(READS_MAX),
            lists: Semaphore::new(UNITS),
            changes: Semaphore::new(CHANGES_MAX),
            looks: Semaphore::new(LOOKS_MAX),
            gets: Semaphore::new(GETS_MAX),
            publishes: Semaphore::new(PUBLISHES_MAX),
            tasks: Semaphore::new(TASKS_MAX),
        }
    }

    /// Waits until a request may be carried out, and returns its permit; `None`: it needs none. `queues` gives
    /// the number of queues of the cluster, and is called for lists of queues only.
    ///
    /// # Errors
    /// 503: there was none in time.
    pub(crate) async fn of(
        &self,
        endpoint: Endpoint,
        method: Method,
        queues: impl FnOnce() -> usize,
    ) -> Result<Option<SemaphorePermit<'_>>, Refusal> {
        let turn = match Kind::of(endpoint, method) {
            Kind::Quick => return Ok(None),
            Kind::Queues => return turns(&self.lists, units(queues()), BUSY).await.map(Some),
            Kind::Clients => return turns(&self.lists, CLIENTS_UNITS, BUSY).await.map(Some),
            Kind::Read => &self.reads,
            Kind::Change => &self.changes,
            Kind::Look => &self.looks,
            Kind::Get => &self.gets,
            Kind::Publish => &self.publishes,
            Kind::Task => &self.tasks,
        };
        turns(turn, 1, BUSY).await.map(Some)
    }
}

/// What a request does, as far as it matters for how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A check that must not wait for lists that others ask for.
    Quick,
    /// Lists all queues.
    Queues,
    /// Lists all connections, channels or consumers.
    Clients,
    Read,
    Change,
    Look,
    Get,
    Publish,
    Task,
}

impl Kind {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are alike")]
    fn of(endpoint: Endpoint, method: Method) -> Self {
        use Endpoint as E;
        match endpoint {
            E::Health(Check::QuorumCritical) => Self::Queues,
            // Usually every group has a leader, and it lists nothing.
            E::Health(Check::LeaderlessQueues) => Self::Read,
            E::Health(_) => Self::Quick,
            E::BrowseQueue
            | E::ExplainMessage
            | E::DryRunPolicy
            | E::DryRunOperatorPolicy
            | E::DryRunDefinitions
            | E::DryRunVhostDefinitions => Self::Look,
            E::QueueGet => Self::Get,
            E::Publish => Self::Publish,
            E::Tasks if method == Method::Post => Self::Task,
            _ if method != Method::Get => Self::Change,
            E::Definitions | E::VhostDefinitions => Self::Look,
            E::Overview | E::Queues | E::Vhosts | E::Vhost => Self::Queues,
            E::Connections
            | E::ConnectionsOfUser
            | E::Connection
            | E::ConnectionChannels
            | E::Channels
            | E::Channel
            | E::Consumers => Self::Clients,
            _ => Self::Read,
        }
    }
}

/// What a list takes in a cluster with that many queues.
fn units(queues: usize) -> usize {
    queues.div_ceil(UNIT_QUEUES).clamp(LIST_UNITS, UNITS)
}

/// Waits until `count` permits of a semaphore are free, and takes them.
///
/// # Errors
/// 503 with the reason `busy`: they were not free in time.
pub(crate) async fn turns<'a>(
    turns: &'a Semaphore,
    count: usize,
    busy: &str,
) -> Result<SemaphorePermit<'a>, Refusal> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    match timeout(TURN_MAX, turns.acquire_many(count)).await {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) | Err(_) => Err(Refusal::Unavailable(busy.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const LISTS: (Endpoint, Method) = (Endpoint::Queues, Method::Get);

    async fn take(
        turns: &Turns,
        (endpoint, method): (Endpoint, Method),
        queues: usize,
    ) -> Result<Option<SemaphorePermit<'_>>, Refusal> {
        turns.of(endpoint, method, || queues).await
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_many_queues_are_made_one_after_the_other() {
        let turns = Turns::new();
        let first = take(&turns, LISTS, 1_000_000).await.unwrap();
        assert!(first.is_some());
        assert!(take(&turns, (Endpoint::Overview, Method::Get), 10).await.is_err(), "it waits");
        // Neither other reads nor changes and checks wait for them.
        for other in [
            (Endpoint::Queue, Method::Get),
            (Endpoint::Queue, Method::Put),
            (Endpoint::Vhost, Method::Delete),
            (Endpoint::Publish, Method::Post),
            (Endpoint::Health(Check::LeaderlessQueues), Method::Get),
        ] {
            assert!(take(&turns, other, 1_000_000).await.is_ok(), "{other:?}");
        }
        let check = (Endpoint::Health(Check::Alarms), Method::Get);
        assert!(take(&turns, check, 10).await.unwrap().is_none());
        drop(first);
        assert!(take(&turns, LISTS, 1_000_000).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_few_queues_are_made_together() {
        let turns = Turns::new();
        let mut taken = Vec::new();
        while let Ok(turn) = take(&turns, LISTS, 10).await {
            taken.push(turn);
        }
        assert_eq!(taken.len(), UNITS / LIST_UNITS);
        drop(taken);
        let consumers = (Endpoint::Consumers, Method::Get);
        let _seven = turns.lists.acquire_many(7 * CLIENTS_UNITS as u32).await.unwrap();
        let eighth = take(&turns, consumers, 1_000_000).await.unwrap();
        assert!(eighth.is_some() && take(&turns, consumers, 10).await.is_err());
        assert_eq!((units(0), units(10_000), units(100_000)), (2, 3, 25));
        assert_eq!(units(usize::MAX), UNITS);
    }
}
