//! Proposing to the catalog from any node: to its leader, which joins what waits into one entry.
//!
//! An entry that no replica can decode would end every replica. So each command is encoded, decoded
//! and compared before it is proposed, and one that does not come back unchanged is refused with
//! the name of its object. Catalog commands are rare enough for this.

use super::{CatalogCopy, RoutingLease, formation::formation};
use crate::{
    context::{CallError, Context},
    peers::{PeerReply, PeerRequest},
};
use parking_lot::Mutex;
use quorate_catalog::{CatalogCommand, CatalogEntry, CatalogReply, refusal};
use quorate_raft::Groups;
use quorate_storage::{CommandEntry, codec};
use quorate_types::{CatalogIndex, Exception, GroupId, LogIndex, ReplyCode, Stamp, Timestamp};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Replies of applied entries that are remembered for whoever proposed them.
const REPLIES_MAX: usize = 1_024;
/// Commands and bytes in one entry; a larger proposal makes an entry of its own.
const ENTRY_COMMANDS_MAX: usize = 2_000;
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Between two tries to find a leader that answers.
const RETRY: Duration = Duration::from_millis(20);

/// The replies to a proposal, and the index of its entry.
pub(crate) type Outcome = (CatalogIndex, Vec<CatalogReply>);

/// Proposes to the catalog, from this node and, where it leads, for others.
#[derive(Debug)]
pub(crate) struct CatalogClient {
    context: Arc<Context>,
    catalog: Arc<CatalogCopy>,
    lease: Arc<RoutingLease>,
    waiting: Mutex<Waiting>,
    /// Of entries that this node has applied as the leader, for whoever proposed them.
    replies: Mutex<BTreeMap<LogIndex, Vec<CatalogReply>>>,
}

#[derive(Debug, Default)]
struct Waiting {
    proposals: Vec<Proposal>,
    busy: bool,
}

/// What one caller proposes together.
#[derive(Debug)]
struct Proposal {
    commands: Vec<CatalogCommand>,
    /// Encoded.
    bytes: usize,
    caller: oneshot::Sender<Option<Outcome>>,
}

/// How many proposals of these numbers of commands and bytes make one entry: at least one, if
/// there are any.
fn fitting(proposals: impl Iterator<Item = (usize, usize)>) -> usize {
    let (mut commands, mut bytes, mut count) = (0, 0, 0);
    for (more_commands, more_bytes) in proposals {
        commands += more_commands;
        bytes += more_bytes;
        if count > 0 && (commands > ENTRY_COMMANDS_MAX || bytes > ENTRY_BYTES_MAX) {
            break;
        }
        count += 1;
    }
    count
}

impl CatalogClient {
    /// Nothing waits.
    pub(crate) fn new(
        context: Arc<Context>,
        catalog: Arc<CatalogCopy>,
        lease: Arc<RoutingLease>,
    ) -> Self {
        Self { context, catalog, lease, waiting: Mutex::default(), replies: Mutex::default() }
    }

    /// Remembers the replies of an entry that this node has applied.
    pub(crate) fn applied(&self, index: LogIndex, replies: Vec<CatalogReply>) {
        let mut known = self.replies.lock();
        known.insert(index, replies);
        while known.len() > REPLIES_MAX {
            known.pop_first();
        }
    }

    /// Proposes one command to the catalog and waits until this node has applied it.
    pub(crate) async fn propose(
        self: &Arc<Self>,
        command: CatalogCommand,
    ) -> Result<(CatalogIndex, CatalogReply), CallError> {
        self.propose_counting_tries(command).await.0
    }

    /// As [`CatalogClient::propose`]; also returns whether there were several tries, in which case
    /// an earlier one may have been applied long before.
    pub(crate) async fn propose_counting_tries(
        self: &Arc<Self>,
        command: CatalogCommand,
    ) -> (Result<(CatalogIndex, CatalogReply), CallError>, bool) {
        let mut tries = 0;
        let outcome = self.propose_counting(vec![command], &mut tries).await;
        // An entry has one reply for each command.
        let first = |replies: Vec<_>| replies.into_iter().next().unwrap_or(CatalogReply::Done);
        (outcome.map(|(index, replies)| (index, first(replies))), tries > 1)
    }

    /// Proposes commands, repeatedly until some leader has applied them (each is harmless when
    /// repeated), and waits until this node has applied them too. None is proposed if one of them
    /// could not be read by the replicas.
    pub(crate) async fn propose_all(
        self: &Arc<Self>,
        commands: Vec<CatalogCommand>,
    ) -> Result<Outcome, CallError> {
        if let Some(refused) = unreadable(&commands) {
            let replies = commands.iter().map(|_| CatalogReply::Refused(refused.clone())).collect();
            return Ok((self.catalog.read().version(), replies));
        }
        self.propose_counting(commands, &mut 0).await
    }

    async fn propose_counting(
        self: &Arc<Self>,
        commands: Vec<CatalogCommand>,
        tries: &mut u32,
    ) -> Result<Outcome, CallError> {
        if let Some(refused) = self.too_early(&commands) {
            let replies = commands.iter().map(|_| CatalogReply::Refused(refused.clone())).collect();
            return Ok((self.catalog.read().version(), replies));
        }
        let deadline = Instant::now() + self.context.operation_timeout();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(CallError::TimedOut);
            }
            *tries += 1;
            let tried = tokio::time::timeout(left, self.try_propose(&commands)).await;
            match tried {
                Ok(Some(outcome)) => {
                    let applied = self.catalog.applied(outcome.0);
                    return match tokio::time::timeout(left, applied).await {
                        Ok(()) => Ok(outcome),
                        Err(_) => Err(CallError::TimedOut),
                    };
                }
                Ok(None) => tokio::time::sleep(RETRY).await,
                Err(_) => return Err(CallError::TimedOut),
            }
        }
    }

    /// Why a command cannot be proposed yet (MEM 15).
    fn too_early(&self, commands: &[CatalogCommand]) -> Option<Exception> {
        let machine = self.catalog.read().machine();
        let command = commands.iter().find(|command| command.since() > machine)?;
        Some(refusal::too_early(&command.object(), command.since(), machine))
    }

    async fn try_propose(self: &Arc<Self>, commands: &[CatalogCommand]) -> Option<Outcome> {
        let leader = self.context.catalog_leader()?;
        let request = PeerRequest::Catalog(commands.to_vec());
        let bound = self.context.operation_timeout();
        let reply = self.context.peers.ask(leader, request, bound).await?;
        let PeerReply::Catalog { index, replies } = reply else { return None };
        Some((index, replies))
    }

    /// Proposes commands as the catalog's leader; `None` if this node does not lead it (any more).
    pub(crate) async fn propose_here(
        self: &Arc<Self>,
        commands: Vec<CatalogCommand>,
    ) -> Option<Outcome> {
        let entry = CatalogEntry { stamp: Stamp::default(), commands };
        let bytes = codec::catalog::encode_entry(&entry).len();
        let commands = entry.commands;
        let (caller, receiver) = oneshot::channel();
        let begin = {
            let mut waiting = self.waiting.lock();
            waiting.proposals.push(Proposal { commands, bytes, caller });
            !std::mem::replace(&mut waiting.busy, true)
        };
        if begin {
            let client = Arc::clone(self);
            self.context.spawn(async move { client.work_off_proposals().await });
        }
        receiver.await.ok().flatten()
    }

    /// Proposes what waits, entry by entry, until nothing does.
    async fn work_off_proposals(self: Arc<Self>) {
        loop {
            let proposals = {
                let mut waiting = self.waiting.lock();
                let sizes = waiting.proposals.iter().map(|it| (it.commands.len(), it.bytes));
                let fit = fitting(sizes);
                if fit == 0 {
                    waiting.busy = false;
                    return;
                }
                waiting.proposals.drain(..fit).collect::<Vec<_>>()
            };
            self.propose_entry(proposals).await;
        }
    }

    async fn propose_entry(&self, proposals: Vec<Proposal>) {
        let stamp = Stamp { time: Timestamp(0), wall: self.context.settings.wall.now() };
        let Some(mut commands) = self.formation() else {
            proposals.into_iter().for_each(|proposal| drop(proposal.caller.send(None)));
            return;
        };
        let own_count = commands.len();
        let mut callers = Vec::new();
        for proposal in proposals {
            callers.push((proposal.commands.len(), proposal.caller));
            commands.extend(proposal.commands);
        }
        let command = codec::catalog::encode_entry(&CatalogEntry { stamp, commands });
        let entry = CommandEntry { command, bodies: Vec::new() };
        let replies = match self.context.groups() {
            // Not before all of earlier terms is applied: what comes first is decided by it.
            Some(groups) if self.lease.leads() => self.write_to_catalog(groups, entry).await,
            Some(_) | None => None,
        };
        let Some((index, replies)) = replies else {
            callers.into_iter().for_each(|(_, caller)| drop(caller.send(None)));
            return;
        };
        let mut replies = replies.into_iter().skip(own_count);
        for (count, caller) in callers {
            let own = replies.by_ref().take(count).collect();
            // A caller may have given up.
            drop(caller.send(Some((index, own))));
        }
    }

    /// Proposes an entry and waits for what it was replied.
    async fn write_to_catalog(&self, groups: &Groups, entry: CommandEntry) -> Option<Outcome> {
        let written = groups.catalog_group()?.write(entry).await;
        let id = written
            .inspect_err(|error| tracing::debug!(%error, "catalog commands were not applied"))
            .ok()?;
        let replies = self.replies.lock().remove(&id.index)?;
        Some((CatalogIndex(id.index.0), replies))
    }

    /// Brings this node's copy up to a linearizable read (NAM 6, LET 5); false without a majority.
    pub(crate) async fn read(&self) -> bool {
        self.context.read_group(GroupId::CATALOG).await
    }

    /// What this node, as the leader, puts before anything that it proposes.
    fn formation(&self) -> Option<Vec<CatalogCommand>> {
        let Context { me, boot, settings, peers, .. } = &*self.context;
        let linked: Vec<_> =
            peers.all_connected().into_iter().map(|peer| (peer.node, peer.boot)).collect();
        let catalog = self.catalog.read();
        formation(&catalog, (*me, *boot), &linked, settings.shape, settings.members.len())
    }
}

/// Why none of these commands may be proposed, if one is such that every replica would fail at its
/// entry, and again whenever it starts.
fn unreadable(commands: &[CatalogCommand]) -> Option<Exception> {
    let command = commands.iter().find(|command| !codec::catalog::can_be_read_again(command))?;
    let text = format!("{} cannot be stored: what it says cannot be read again", command.object());
    tracing::error!(
        object = ?command.object(), "refusing a catalog command that could not be decoded again"
    );
    Some(Exception::new(ReplyCode::PreconditionFailed, text))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use quorate_catalog::{ExchangeRecord, ExchangeType};
    use quorate_types::{FieldTable, FieldValue, ResourceName, ShortString, VhostName};

    #[test]
    fn an_entry_is_bounded_in_commands_and_in_bytes() {
        let fit = |proposals: &[(usize, usize)]| fitting(proposals.iter().copied());
        assert_eq!(fit(&[]), 0);
        assert_eq!(fit(&[(1, 100); 5_000]), 2_000);
        assert_eq!(fit(&[(1, 128 << 10); 2_000]), 8, "as large as a client's frame may be");
        assert_eq!(fit(&[(1, 8 << 20), (1, 10)]), 1, "a large one by itself");
        assert_eq!(fit(&[(1, 10), (1, 8 << 20)]), 1);
        assert_eq!(fit(&[(9_000, 10), (1, 10)]), 1);
    }

    fn exchange(name: &'static str, depth: usize) -> CatalogCommand {
        let value =
            (0..depth).fold(FieldValue::F64(f64::NAN), |value, _| FieldValue::Array(vec![value]));
        let vhost = VhostName::from(ShortString::from_static("/"));
        CatalogCommand::DeclareExchange(ExchangeRecord {
            name: ResourceName { vhost, name: ShortString::from_static(name) },
            kind: ExchangeType::Direct,
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: FieldTable(vec![(ShortString::from_static("a"), value)]),
        })
    }

    /// An entry that can be written but not read would stop every replica, so it is not proposed, and
    /// the refusal names the object.
    #[test]
    fn what_cannot_be_read_again_is_refused_by_name() {
        assert!(unreadable(&[exchange("good", 15)]).is_none());
        let refused = unreadable(&[exchange("good", 15), exchange("bad", 16)]).unwrap();
        assert!(refused.explanation.contains("exchange 'bad' in vhost '/'"), "{refused:?}");
    }
}
