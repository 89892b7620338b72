//! A leader whose disk hangs blocks its groups without being replaced: it gives up its leaderships
//! and takes no new ones until the disk answers (DESIGN §8).

use crate::{aligned_runtime::every, leadership, shared::Shared};
use std::{sync::Arc, time::Duration};

/// How often the log writer is checked.
const EVERY: Duration = Duration::from_millis(100);

/// Monitors the log writer, until it is aborted.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut due = every(EVERY);
    loop {
        due.tick().await;
        let stalled = shared.writer.is_stalled();
        if !shared.gate().set_stalled(stalled) {
            continue;
        }
        shared.follow_gate();
        if stalled {
            tracing::error!("a disk sync does not finish: giving up all leaderships");
            leadership::give_up_all(&shared).await;
        } else {
            tracing::warn!("disk syncs finish again: leaderships are possible");
        }
    }
}
