//! The two lanes that this node has opened to one process.

use crate::{
    call::Calls,
    hello::PeerHello,
    lane::{Lane, LaneQueue},
};
use std::sync::Arc;

/// Both lanes to one process, and the calls in progress on them.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: PeerHello,
    pub(crate) calls: Arc<Calls>,
    control: Arc<LaneQueue>,
    bulk: Arc<LaneQueue>,
}

impl Connection {
    pub(crate) fn new(peer: PeerHello, control: Arc<LaneQueue>, bulk: Arc<LaneQueue>) -> Self {
        Self { peer, calls: Calls::new(peer.node), control, bulk }
    }

    pub(crate) fn lane(&self, lane: Lane) -> &LaneQueue {
        match lane {
            Lane::Control => &self.control,
            Lane::Bulk => &self.bulk,
        }
    }

    /// Ends both streams; callers that wait for answers get an error.
    pub(crate) fn close(&self) {
        self.control.close();
        self.bulk.close();
        self.calls.close();
    }
}
