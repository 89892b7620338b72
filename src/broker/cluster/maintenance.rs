//! Draining and reviving this node (MEM 13, CTL-16).
//!
//! A drained node hands its leaderships over, refuses new clients and closes the present ones little by
//! little, so that they do not all come to the other nodes at the same moment. Its replicas go on. The
//! state is this process's own: a restart ends it.

use crate::{
    client::Event,
    front::{clients::drained, connection_state::ConnectionState},
    node::Node,
    views::administration::{Operator, Views},
};
use quorate_raft::DrainError;
use quorate_types::GroupId;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Longest wait for other nodes to take the leaderships, before the first client is closed: until then
/// the clients' requests need not wait for an election.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);
/// How often it is checked what is left.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Time and number of the steps in which connections are closed: it takes five seconds if there are
/// many, and less if there are few.
const STEP: Duration = Duration::from_millis(100);
const STEPS: usize = 50;

/// What a drained node still has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Groups that it leads.
    pub groups: Vec<GroupId>,
    /// Number of its connections.
    pub connections: usize,
}

impl Left {
    /// The node leads nothing and has no clients.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.groups.is_empty() && self.connections == 0
    }
}

impl Operator<'_> {
    /// Drains this node, or does nothing if it is drained. Does not wait until that has an effect;
    /// see [`Operator::left`].
    ///
    /// # Errors
    /// No other node takes leaderships, or this one is still starting.
    pub async fn drain(&self) -> Result<(), DrainError> {
        // A task, so that a caller who leaves does not leave it half done.
        let draining = self.0.base.context.spawn(drain(Arc::clone(self.0)));
        // The task is not cancelled and does not panic, unless the process ends.
        draining.await.unwrap_or(Err(DrainError::Starting))
    }

    /// Ends the draining, or does nothing if this node is not drained.
    pub async fn revive(&self) {
        let node = self.0;
        let _changing = node.clients.maintenance.lock().await;
        if let Some(groups) = node.base.context.groups()
            && groups.revive()
        {
            tracing::warn!("the node is revived: it takes leaderships and clients again");
        }
        node.clients.drained.send_replace(false);
    }

    /// Waits until this drained node leads nothing, has no clients and refuses new ones, but not longer than
    /// this; returns what is left.
    pub async fn left(&self, within: Duration) -> Left {
        let until = Instant::now() + within;
        loop {
            let (left, refuses) = (left(self.0), *self.0.clients.ports_closed.borrow());
            if left.is_nothing() && refuses || Instant::now() >= until {
                return left;
            }
            sleep(CHECK_INTERVAL).await;
        }
    }
}

impl Views<'_> {
    /// For the ports of clients: whether this node is drained, and where they say whether they are closed.
    #[must_use]
    pub fn ports(&self) -> (watch::Receiver<bool>, watch::Sender<bool>) {
        (self.0.clients.drained.subscribe(), self.0.clients.ports_closed.clone())
    }
}

fn led(node: &Node) -> Vec<GroupId> {
    node.base.context.groups().map(|groups| groups.led()).unwrap_or_default()
}

fn left(node: &Node) -> Left {
    Left { groups: led(node), connections: node.clients.connections.len() }
}

async fn drain(node: Arc<Node>) -> Result<(), DrainError> {
    let _changing = node.clients.maintenance.lock().await;
    if *node.clients.drained.borrow() {
        return Ok(());
    }
    let groups = node.base.context.groups().ok_or(DrainError::Starting)?;
    groups.drain().await?;
    node.clients.drained.send_replace(true);
    let Left { groups, connections } = left(&node);
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    tracing::warn!(
        groups = groups.join(", "),
        connections,
        "the node is drained: it hands its leaderships over and closes its clients"
    );
    // This sees a revival even if another draining follows at once.
    let mut revived = node.clients.drained.subscribe();
    node.base.context.spawn({
        let node = Arc::clone(&node);
        async move {
            tokio::select! {
                () = close_clients(&node) => {}
                _ = revived.changed() => {}
            }
        }
    });
    Ok(())
}

/// Closes all connections, the oldest ones first; never ends, since a login may have been in progress.
async fn close_clients(node: &Node) {
    let handed_over = async {
        while !led(node).is_empty() {
            sleep(CHECK_INTERVAL).await;
        }
    };
    // Their clients are closed all the same.
    let _ = timeout(HAND_OVER_MAX, handed_over).await;
    let most = node.clients.connections.len().div_ceil(STEPS).max(1);
    let mut last = 0;
    loop {
        let mut open = node.clients.connections.all();
        open.sort_unstable_by_key(|one| one.id.number);
        let next: Vec<Arc<ConnectionState>> =
            open.into_iter().filter(|one| one.id.number > last).take(most).collect();
        // After the newest one, what has come or stayed is closed from the beginning.
        last = next.last().map_or(0, |one| one.id.number);
        next.iter().for_each(|one| one.mailbox.put(Event::Close(drained())));
        sleep(STEP).await;
    }
}
