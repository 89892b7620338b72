//! Clients that declare and delete queues, and clients that publish to such a queue through another
//! node as soon as its declare has been answered (NAM 3).

use super::{
    CHANNEL, Clients, Ended, ends, events, publish,
    queues::{declare_with, message},
};
use quorate_broker::Connection;
use quorate_client::{Connection as _, Event, Operation};
use quorate_rpc::chance;
use quorate_types::{FieldTable, ShortString};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::sleep;

impl Clients {
    pub(super) async fn declare_and_delete(
        self: Arc<Self>,
        connection: Connection,
    ) -> Result<(), Ended> {
        while !self.world.is_draining() {
            let declared = self.declared.fetch_add(1, Relaxed) + 1;
            let name = format!("declared-{}-{declared}", self.name);
            let queue = ShortString::try_from(name.as_str()).unwrap();
            declare_with(&connection, queue.clone(), FieldTable::default()).await?;
            self.note(&format!("has declared {name}"));
            self.world.declared.lock().insert(name.clone());
            sleep(Duration::from_millis(chance::in_range(50..=1_500))).await;
            // From here on it may be gone.
            self.world.declared.lock().remove(&name);
            let delete = Operation::QueueDelete { queue, if_unused: false, if_empty: false };
            connection.ask(CHANNEL, delete).await?;
            self.note(&format!("has deleted {name}"));
        }
        Ok(())
    }

    /// Publishes to queues that others have declared. While a queue is in `declared`, no publish to
    /// it may be unroutable.
    pub(super) async fn follow(self: Arc<Self>, connection: Connection) -> Result<(), Ended> {
        let mut number = 0;
        while !self.world.is_draining() {
            let queues: Vec<String> = self.world.declared.lock().iter().cloned().collect();
            for name in queues {
                number += 1;
                let queue = ShortString::try_from(name.as_str()).unwrap();
                if !publish(&connection, message(number, queue, &name))? {
                    self.must_be_gone(&name);
                }
            }
            sleep(Duration::from_millis(chance::in_range(20..=100))).await;
            for event in events(&connection, Duration::ZERO).await {
                let Event::Returned { message, .. } = event else {
                    ends(event)?;
                    continue;
                };
                self.must_be_gone(&String::from_utf8_lossy(&message.body));
            }
        }
        Ok(())
    }

    fn must_be_gone(&self, name: &str) {
        self.note(&format!("finds no queue {name}"));
        if self.world.declared.lock().contains(name) {
            let violation = format!("{name} was declared; node {} does not know it", self.name);
            self.world.history.lock().violation(violation);
        }
    }
}
