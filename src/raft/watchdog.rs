//! A leader whose disk hangs blocks its groups without being replaced: it gives up its leaderships
//! and takes no new ones until the disk answers (DESIGN §8).

use crate::{aligned_runtime::every, leadership, shared::Shared};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How often the log writer is checked.
const EVERY: Duration = Duration::from_millis(100);
/// How often the leaderships that this node has kept are offered again.
const OFFER_AGAIN: Duration = Duration::from_secs(1);

/// Monitors the log writer, until it is aborted.
pub(crate) async fn run(shared: Arc<Shared>) {
    let (mut due, mut offered) = (every(EVERY), Instant::now());
    loop {
        due.tick().await;
        let stalled = shared.writer.is_stalled();
        if shared.gate().set_stalled(stalled) {
            shared.follow_gate();
            if stalled {
                tracing::error!("a disk sync does not finish: giving up all leaderships");
            } else {
                tracing::warn!("disk syncs finish again: leaderships are possible");
            }
        } else if !stalled || offered.elapsed() < OFFER_AGAIN {
            continue;
        }
        if stalled {
            // Again and again: who declines now may take them later, and an election that was under way may
            // be won after the first time.
            leadership::give_up_all(&shared).await;
            offered = Instant::now();
        }
    }
}
