//! Placement of leaderships: they are spread evenly over the nodes, moved to the preferred node
//! when it has caught up, and handed over before a stop (DESIGN §2).

use crate::{
    codec::decode_transfer_answer, group::Group, reach::Replicas, service::Service, shared::Shared,
};
use bytes::Bytes;
use futures::future::join_all;
use quorate_rpc::Lane;
use quorate_types::{BootNumber, GroupId, NodeId};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio::time::timeout;

/// How often leaderships are checked.
const EVERY: Duration = Duration::from_millis(500);
/// How long a newly linked node gets no leadership: it may soon be lost again.
const SETTLED: Duration = Duration::from_millis(1500);
/// While a process is younger than this, changes of leaderships count as part of its start.
const FIRST: Duration = Duration::from_secs(10);
/// How long a group stays where it is after a handover by preference, failed or not.
const PAUSE: Duration = Duration::from_secs(5);
/// Number of entries that a follower may lack to be given the leadership: those in flight.
const BEHIND_MAX: u64 = 64;
/// Longest wait for a node's answer whether it would take a leadership.
const READY_TIMEOUT: Duration = Duration::from_millis(500);
/// Time after which a leadership is offered again: longer than an election among nodes that are ready.
const OFFER_AGAIN: Duration = Duration::from_millis(400);
/// Longest wait for a handover by preference.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a leadership was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// This node does not lead the group.
    #[error("this node does not lead the group")]
    NotLeader,
    /// The other node is not linked, not a voter, or too far behind.
    #[error("the other node is not connected or its log is behind")]
    NotCaughtUp,
    /// The other node takes no leadership at present: its disk hangs, or it is drained or about to
    /// stop.
    #[error("the other node does not take leaderships now")]
    Declined,
    /// The other node was not elected in time.
    #[error("the other node was not elected in time")]
    Timeout,
}

/// The nodes in the order in which they should lead a group: the first one is its preferred leader.
/// Group g prefers node g mod n; the groups that a node led are spread evenly over the others.
pub(crate) fn preference(group: GroupId, members: &[NodeId]) -> Vec<NodeId> {
    let count = members.len();
    if count == 0 {
        return Vec::new();
    }
    let group = usize::from(group.0);
    let mut order: Vec<NodeId> =
        members.iter().cycle().skip(group % count).take(count).copied().collect();
    if let Some((_, others)) = order.split_first_mut()
        && !others.is_empty()
    {
        let turn = (group / count) % others.len();
        others.rotate_left(turn);
    }
    order
}

/// The preference of a group among its voters.
pub(crate) fn order(group: &Group) -> Vec<NodeId> {
    let mut voters = group.voters();
    voters.sort_unstable();
    preference(group.id(), &voters)
}

/// Moves leaderships to the preferred nodes, until it is aborted.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut due = tokio::time::interval(EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut seen, mut led, began) = (Seen::default(), Led::default(), Instant::now());
    loop {
        due.tick().await;
        seen.update(&shared);
        if !shared.gate().is_leaving()
            && let Some(groups) = led.update(groups_led(&shared), began.elapsed() < FIRST)
        {
            tracing::info!(groups = names(groups), "this node leads");
        }
        if !shared.settings.balance || !shared.gate().may_lead() {
            continue;
        }
        for group in shared.all() {
            seen.place(&shared, &group).await;
        }
    }
}

/// Groups that this process has been elected in and not deposed.
pub(crate) fn groups_led(shared: &Shared) -> BTreeSet<GroupId> {
    let led = shared.all().filter(|group| group.standing().is_elected());
    led.map(|group| group.id()).collect()
}

/// Groups in the format of the log.
fn names<'a>(groups: impl IntoIterator<Item = &'a GroupId>) -> String {
    let names: Vec<String> = groups.into_iter().map(ToString::to_string).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The groups that this node leads, as logged last. They are logged in one line when they have
/// stayed the same for one turn, since in a hand-over they change one by one.
#[derive(Debug, Default)]
struct Led {
    seen: BTreeSet<GroupId>,
    logged: BTreeSet<GroupId>,
}

impl Led {
    /// The groups to log now, if they have changed.
    fn update(&mut self, now: BTreeSet<GroupId>, starts: bool) -> Option<&BTreeSet<GroupId>> {
        let settled = now == self.seen;
        self.seen = now;
        let news = settled && self.seen != self.logged;
        if news || starts {
            self.logged.clone_from(&self.seen);
        }
        (news && !starts).then_some(&self.logged)
    }
}

/// The state of the placement between two turns.
#[derive(Default)]
struct Seen {
    linked: BTreeMap<NodeId, (BootNumber, Instant)>,
    moved: BTreeMap<GroupId, Instant>,
}

impl Seen {
    fn update(&mut self, shared: &Shared) {
        let linked = shared.links.all_connected();
        self.linked.retain(|node, _| linked.iter().any(|peer| peer.node == *node));
        for peer in linked {
            let since = self.linked.entry(peer.node).or_insert((peer.boot, Instant::now()));
            if since.0 != peer.boot {
                *since = (peer.boot, Instant::now());
            }
        }
    }

    async fn place(&mut self, shared: &Shared, group: &Arc<Group>) {
        let order = order(group);
        let Some(preferred) = order.first().copied() else { return };
        if preferred == shared.settings.me {
            self.lead(group, order.len()).await;
        } else if group.is_leading() {
            self.give(shared, group, preferred).await;
        }
    }

    /// This node should lead the group. If no node leads, it starts an election without waiting for
    /// a timeout; if another node leads, that one will hand over.
    async fn lead(&self, group: &Group, voters: usize) {
        let majority = voters / 2 + 1;
        if group.leadership().leader.is_none() && self.linked.len() + 1 >= majority {
            // With a pre-vote, so that a leader that this node does not know yet is not disturbed.
            let _ = group.raft().trigger().elect(true).await;
        }
    }

    async fn give(&mut self, shared: &Shared, group: &Arc<Group>, preferred: NodeId) {
        let settled =
            self.linked.get(&preferred).is_some_and(|(_, since)| since.elapsed() >= SETTLED);
        let paused = self.moved.get(&group.id()).is_some_and(|moved| moved.elapsed() < PAUSE);
        let me = shared.settings.me;
        let worse = || shared.reach().is_worse(me, preferred, &Replicas::of(group));
        if !settled || paused || !has_caught_up(group, preferred) || worse() {
            return;
        }
        self.moved.insert(group.id(), Instant::now());
        match transfer(shared, group, preferred, TRANSFER_TIMEOUT).await {
            Ok(()) => {
                tracing::debug!(group = %group.id(), to = %preferred, "leadership transferred")
            }
            Err(error) => {
                tracing::debug!(
                    group = %group.id(), to = %preferred, "leadership not transferred: {error}"
                );
            }
        }
    }
}

/// True if a follower lacks no more entries than those in flight.
fn has_caught_up(group: &Group, node: NodeId) -> bool {
    let Some(voter) = group.voter_on(node) else { return false };
    group.lag(voter).is_some_and(|lag| lag <= BEHIND_MAX)
}

/// Asks a node whether it would take a leadership; `None`: it does not answer in time.
async fn takes(shared: &Shared, group: &Group, node: NodeId) -> Option<bool> {
    let number = Service::Ready.number();
    let links = &shared.links;
    let asked = links.call(node, Lane::Control, number, group.id(), Bytes::new(), READY_TIMEOUT);
    asked.await.ok().map(|answer| decode_transfer_answer(&answer).unwrap_or(false))
}

/// Whether a node says that it would take a leadership.
pub(crate) async fn is_ready(shared: &Shared, group: &Group, node: NodeId) -> bool {
    takes(shared, group, node).await == Some(true)
}

/// Hands a group over, and waits until the other node is known as its leader.
pub(crate) async fn transfer(
    shared: &Shared,
    group: &Group,
    to: NodeId,
    deadline: Duration,
) -> Result<(), TransferError> {
    if !group.standing().is_elected() {
        return Err(TransferError::NotLeader);
    }
    if shared.departures().leaves(to) {
        return Err(TransferError::Declined);
    }
    let voter = group.voter_on(to).filter(|_| has_caught_up(group, to));
    let (Some(voter), Some(_)) = (voter, shared.links.connected(to)) else {
        return Err(TransferError::NotCaughtUp);
    };
    if !is_ready(shared, group, to).await {
        return Err(TransferError::Declined);
    }
    tokio::select! {
        elected = timeout(deadline, offer(shared, group, voter)) => {
            if elected.map_err(|_| TransferError::Timeout)? != Some(to) {
                return Err(TransferError::Timeout);
            }
            group.metrics().transfers.add(1);
            Ok(())
        }
        // The node was asked before it announced its stop.
        () = shared.departures().wait_for(to) => Err(TransferError::Declined),
    }
}

/// Offers a group to a voter until another node leads it; returns which. Openraft does not say that the
/// voter refuses, as it does while it has not flushed its log to the end; after the first offer there are
/// no new entries, so a later one succeeds.
async fn offer(shared: &Shared, group: &Group, voter: u64) -> Option<NodeId> {
    let me = shared.settings.me;
    let mut leadership = group.watch_leadership();
    loop {
        // A group that has ended, or is led by another node, offers nothing.
        let _ = group.raft().trigger().transfer_leader(voter).await;
        let elected = leadership.wait_for(|now| now.leader.is_some_and(|leader| leader != me));
        if let Ok(elected) = timeout(OFFER_AGAIN, elected).await {
            return elected.ok()?.leader;
        }
    }
}

/// Hands over all groups that this node leads; returns those that it still leads at the deadline,
/// or when no node is left that could take them.
pub(crate) async fn hand_over_all(shared: &Shared, deadline: Duration) -> Vec<GroupId> {
    let others: Vec<NodeId> = shared.links.peers().collect();
    let led = groups_led(shared);
    if led.is_empty() || others.is_empty() {
        return led.into_iter().collect();
    }
    tracing::info!(
        groups = names(&led),
        seconds = deadline.as_secs(),
        "handing leaderships over, waiting for the other nodes"
    );
    let handing = async {
        // More than once, since an election in progress may still be won.
        while shared.all().any(|group| group.standing().is_elected() && has_successors(&group)) {
            join_all(shared.all().map(async |group| hand_over(shared, &group).await)).await;
        }
    };
    let nobody_left = shared.departures().wait_for_all(&shared.links, &others);
    // Groups that were not handed over by then are left to an election.
    let kept = || groups_led(shared);
    tokio::select! {
        () = handing => tracing::info!("leaderships are handed over"),
        () = nobody_left => tracing::info!(
            groups = names(&kept()), "no node is available to take over leaderships"
        ),
        () = tokio::time::sleep(deadline) => tracing::warn!(
            groups = names(&kept()), "leaderships were not taken over in time"
        ),
    }
    kept().into_iter().collect()
}

/// Whether the group has other voters, so that it can be handed over.
fn has_successors(group: &Group) -> bool {
    group.voters().len() > 1
}

/// Tries the other voters in order, repeatedly, until one leads.
async fn hand_over(shared: &Shared, group: &Group) {
    while has_successors(group) && !hand_over_once(shared, group).await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Tries the other voters in order, once; true if this node does not lead the group any more.
pub(crate) async fn hand_over_once(shared: &Shared, group: &Group) -> bool {
    if !group.standing().is_elected() {
        return true;
    }
    for node in order(group).into_iter().filter(|node| *node != shared.settings.me) {
        if transfer(shared, group, node, TRANSFER_TIMEOUT).await.is_ok() {
            return true;
        }
    }
    false
}

/// Offers all leaderships to any node, without waiting for the outcome, because the disk hangs. A
/// group whose transfer fails has no heartbeats from then on, so that an election follows. A group that
/// every other node declines, since all are drained, stop, or have a disk that hangs too, is kept: it goes
/// on when the disk does, unless another node takes it the next time.
pub(crate) async fn give_up_all(shared: &Shared) {
    let giving = shared.all().filter(|group| group.standing().is_elected());
    join_all(giving.map(async |group| give_up(shared, &group).await)).await;
}

async fn give_up(shared: &Shared, group: &Group) {
    let others = order(group).into_iter().filter(|node| *node != shared.settings.me);
    let linked = others.filter(|node| shared.links.connected(*node).is_some());
    let mut best = None;
    for node in linked {
        match takes(shared, group, node).await {
            Some(true) if has_caught_up(group, node) => {
                best = Some(node);
                break;
            }
            Some(true) | None => best = best.or(Some(node)),
            Some(false) => {}
        }
    }
    // Nothing is given up for a disk that answers by now.
    let best = best.filter(|_| shared.writer.is_stalled());
    if let Some(voter) = best.and_then(|node| group.voter_on(node)) {
        // A group that has ended leads nothing.
        let _ = group.raft().trigger().transfer_leader(voter).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u16) -> Vec<NodeId> {
        (1..=count).map(NodeId).collect()
    }

    #[test]
    fn groups_are_spread_evenly_with_and_without_a_node() {
        for count in [3_u16, 5] {
            let members = members(count);
            let groups = u32::from(count) * u32::from(count - 1);
            let led = |node: NodeId, without: Option<NodeId>| {
                let groups = (0..groups as u16).map(GroupId);
                groups
                    .filter(|group| {
                        let order = preference(*group, &members);
                        order.iter().find(|node| Some(**node) != without) == Some(&node)
                    })
                    .count() as u32
            };
            for node in &members {
                assert_eq!(led(*node, None), groups / u32::from(count));
                for without in members.iter().filter(|without| *without != node) {
                    let share = groups / u32::from(count - 1);
                    assert_eq!(led(*node, Some(*without)), share, "{node} without {without}");
                }
            }
        }
    }

    #[test]
    fn led_groups_are_logged_when_they_have_settled() {
        let groups =
            |ids: &[u16]| -> BTreeSet<GroupId> { ids.iter().copied().map(GroupId).collect() };
        let mut led = Led::default();
        assert_eq!(led.update(groups(&[1]), true), None);
        assert_eq!(led.update(groups(&[1]), true), None, "part of the start");
        assert_eq!(led.update(groups(&[1]), false), None);
        assert_eq!(led.update(groups(&[1, 2]), false), None, "more may come");
        assert_eq!(led.update(groups(&[1, 2]), false), Some(&groups(&[1, 2])));
        assert_eq!(led.update(groups(&[1, 2]), false), None, "once");
        assert_eq!(led.update(groups(&[1]), false), None);
        assert_eq!(led.update(groups(&[1, 2]), false), None);
        assert_eq!(led.update(groups(&[1, 2]), false), None, "gone and back within a turn");
        assert_eq!(led.update(groups(&[]), false), None);
        assert_eq!(led.update(groups(&[]), false), Some(&groups(&[])));
        assert_eq!(names(&groups(&[1, 2])), "1, 2");
        assert_eq!(names(&groups(&[])), "none");
    }

    #[test]
    fn an_order_names_every_node_once() {
        for group in 0..20 {
            let mut order = preference(GroupId(group), &members(5));
            order.sort_unstable();
            assert_eq!(order, members(5));
        }
        assert_eq!(preference(GroupId(3), &[]), []);
        assert_eq!(preference(GroupId(3), &members(1)), members(1));
    }
}
