//! Clients that declare and delete queues, and clients that publish to such a queue through another
//! node as soon as its declare has been answered (NAM 3).

use super::{
    CHANNEL, Clients, Ended, ends,
    queues::{declare_with, message},
};
use quorate_broker::Connection;
use quorate_client::{Connection as _, Event, Operation, PublishOutcome};
use quorate_rpc::chance;
use quorate_types::{FieldTable, ShortString};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

impl Clients {
    pub(super) async fn declare_for_ever(self: Arc<Self>) {
        let mut declared = 0;
        while !self.world.is_draining() {
            let connection = self.connect().await;
            if let Err(ended) = self.declare_and_delete(&connection, &mut declared).await {
                self.note(&format!("declarer ended: {ended}"));
            }
        }
    }

    async fn declare_and_delete(
        &self,
        connection: &Connection,
        declared: &mut u64,
    ) -> Result<(), Ended> {
        while !self.world.is_draining() {
            *declared += 1;
            let name = format!("declared-{}-{declared}", self.name);
            let queue = ShortString::try_from(name.as_str()).unwrap();
            declare_with(connection, queue.clone(), FieldTable::default()).await?;
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

    pub(super) async fn follow_for_ever(self: Arc<Self>) {
        while !self.world.is_draining() {
            let connection = self.connect().await;
            if let Err(ended) = self.follow(&connection).await {
                self.note(&format!("follower ended: {ended}"));
            }
        }
    }

    /// Publishes to queues that others have declared. While a queue is in `declared`, no publish to
    /// it may be unroutable.
    async fn follow(&self, connection: &Connection) -> Result<(), Ended> {
        let mut number = 0;
        while !self.world.is_draining() {
            let queues: Vec<String> = self.world.declared.lock().iter().cloned().collect();
            for name in queues {
                number += 1;
                let queue = ShortString::try_from(name.as_str()).unwrap();
                let publish = message(number, queue, &name);
                let mut outcomes = Vec::new();
                connection.publish(vec![publish], &mut outcomes);
                match outcomes.pop() {
                    Some(PublishOutcome::Refused(exception)) => return Err(exception.into()),
                    Some(PublishOutcome::Unroutable) => self.must_be_gone(&name),
                    Some(PublishOutcome::Routed) | None => {}
                }
            }
            let mut events = Vec::new();
            sleep(Duration::from_millis(chance::in_range(20..=100))).await;
            let _ = timeout(Duration::ZERO, connection.events(&mut events)).await;
            for event in events {
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
