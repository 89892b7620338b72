//! Back pressure on publishing connections: whether a connection's socket may be read on, and when it may
//! again (DLV 6; ARCHITECTURE, "Settles overtake publishes").

use crate::{
    client::Pressure,
    front::{connection_state::ConnectionState, in_flight::balance, publisher::Publisher},
    memory::Share,
};
use std::{sync::Arc, time::Duration};
use tokio::time::MissedTickBehavior;

/// Approximate bytes that one read of a socket brings.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of small publishes that all connections of a node may have in flight before those that are
/// ahead of the others have no more than their share.
const NODE_SMALL_BYTES: u64 = 4 << 20;
/// How often the connections are compared.
const BALANCE_INTERVAL: Duration = Duration::from_millis(100);
/// Pause between two checks for room.
const ASK_AGAIN: Duration = Duration::from_millis(100);
impl Publisher {
    /// Whether the connection's socket may be read further.
    pub(crate) fn pressure(&self, state: &ConnectionState) -> Pressure {
        if !state.publishing.in_flight.is_full() && !self.is_full_for(state) {
            return Pressure::None;
        }
        self.base.context.memory.note_waited(Share::InFlight);
        Pressure::Wait
    }

    /// Compares what the connections publish while all together have much in flight; runs as long as the
    /// node.
    pub(crate) async fn balance(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(BALANCE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.base.context.memory.share_held_bytes(Share::InFlight) > NODE_SMALL_BYTES {
                let connections = self.clients.connections.all();
                balance(connections.iter().map(|one| &one.publishing.in_flight));
            }
        }
    }

    /// Resolves when the connection's socket may be read again after [`Pressure::Wait`]. Cancel-safe.
    pub(crate) async fn room(&self, state: &ConnectionState) {
        let ready = || self.has_room_for(state) && !state.publishing.held.lock().busy;
        until_room(state, ready).await;
        self.base.lease.until_held().await;
    }

    /// Whether the connection has to wait: a queue's group or the whole node has more in flight than it
    /// should, and this connection has a part in it. A connection with little in flight does not wait for
    /// those with much, since its next publish may go to another group. But many connections with little
    /// each may have much together.
    pub(crate) fn is_full_for(&self, connection: &ConnectionState) -> bool {
        // Each publish waits behind all others of the node, and these are enough to keep it busy.
        if connection.publishing.in_flight.exceeds_share()
            && self.base.context.memory.share_held_bytes(Share::InFlight) > NODE_SMALL_BYTES
        {
            return true;
        }
        let little = if self.base.context.memory.is_overdrawn(Share::InFlight, true) {
            0
        } else {
            READ_BYTES
        };
        connection.publishing.in_flight.bytes() > little
            && (self.base.proposers.home_bytes_max() as u64
                > self.base.context.settings.group_in_flight_bytes
                || self.base.context.memory.room_bytes(Share::InFlight) == 0)
    }
}

/// Resolves when `ready` returns true. It is checked when publishes of the connection have been answered,
/// and every 100 ms: what other connections have in flight can count too, and this one is not notified of
/// their answers.
pub(crate) async fn until_room(connection: &ConnectionState, ready: impl Fn() -> bool) {
    let in_flight = &connection.publishing.in_flight;
    while tokio::time::timeout(ASK_AGAIN, in_flight.until(&ready)).await.is_err() {}
}
