//! Sends the heartbeats of all groups that this node leads at the same moment, so that those to one
//! node share a packet and wake it once. openraft would send each group's at a different moment.

use crate::{aligned_runtime::every, shared::Shared};
use futures::future::join_all;
use std::sync::Arc;
use tokio::time::timeout;

/// Sends heartbeats until it is aborted.
pub(crate) async fn run(shared: Arc<Shared>) {
    let period = shared.settings.raft_heartbeat;
    let mut due = every(period);
    loop {
        due.tick().await;
        // Includes a group that was elected just now and has applied no entry of its own term yet.
        let me = Some(shared.settings.me);
        let leading = shared.all().filter(|group| group.leadership().leader == me);
        let beats = leading.map(|group| async move { group.raft().trigger().heartbeat().await });
        // A group whose Raft is too busy to accept its heartbeat does not delay the others; one
        // that has ended ends the process elsewhere.
        let _ = timeout(period, join_all(beats)).await;
    }
}
