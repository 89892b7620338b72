//! Heartbeats of all groups that this node leads, at one moment, so that those to one node share a
//! packet and wake it once. openraft would send each group's at its own.

use crate::{aligned_runtime::every, shared::Shared};
use futures::future::join_all;
use std::sync::Arc;
use tokio::time::timeout;

/// Sends heartbeats, for ever.
pub(crate) async fn run(shared: Arc<Shared>) {
    let period = shared.settings.raft_heartbeat;
    let mut due = every(period);
    loop {
        due.tick().await;
        // Also one that was elected just now and has nothing of its own term applied yet.
        let me = Some(shared.settings.me);
        let leading = shared.all().filter(|group| group.leadership().leader == me);
        let beats = leading.map(|group| async { group.raft().trigger().heartbeat().await });
        // A group whose Raft is too busy to take it in holds up no other; one that has ended ends
        // the process by itself.
        let _ = timeout(period, join_all(beats)).await;
    }
}
