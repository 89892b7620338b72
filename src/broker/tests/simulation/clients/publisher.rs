//! A client that publishes to every queue of the workload, and waits for the confirms.

use super::{
    Clients, Ended, ends, events, publish,
    queues::{LIFETIME, MORTAL, PUBLISHED, declare, message, one_of},
};
use quorate_broker::Connection;
use quorate_client::Event;
use quorate_rpc::chance;
use quorate_types::ShortString;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::sleep;

/// Most unconfirmed publishes of a client, and of one whose node is alone: its log has many entries
/// then that are never committed.
const WINDOW: usize = 8;
const WINDOW_ALONE: usize = 64;

impl Clients {
    pub(super) async fn publish(self: Arc<Self>, connection: Connection) -> Result<(), Ended> {
        for queue in PUBLISHED {
            declare(&connection, queue).await?;
        }
        let (mut unconfirmed, mut number) = (BTreeMap::new(), 0);
        while !self.world.is_draining() || !unconfirmed.is_empty() {
            let window = match self.world.is_alone(self.node) {
                true => WINDOW_ALONE,
                false => WINDOW,
            };
            if unconfirmed.len() < window && !self.world.is_draining() {
                number += 1;
                let published = self.published.fetch_add(1, Relaxed) + 1;
                let body = format!("{}-{published}", self.name);
                self.publish_one(&connection, number, &body)?;
                unconfirmed.insert(number, body);
            }
            sleep(Duration::from_millis(chance::in_range(5..=30))).await;
            for event in events(&connection, Duration::ZERO).await {
                self.hear_confirm(event, &mut unconfirmed)?;
            }
        }
        Ok(())
    }

    fn publish_one(&self, connection: &Connection, number: u64, body: &str) -> Result<(), Ended> {
        let queue = one_of(&PUBLISHED);
        let lives_until = (queue == MORTAL).then(|| self.world.elapsed() + LIFETIME);
        self.world.history.lock().published(body, self.world.elapsed(), lives_until);
        self.note(&format!("publishes {body} to {queue}"));
        if !publish(connection, message(number, ShortString::from_static(queue), body))? {
            self.world.history.lock().violation(format!("{body}: {queue} does not exist"));
        }
        Ok(())
    }

    fn hear_confirm(
        &self,
        event: Event,
        unconfirmed: &mut BTreeMap<u64, String>,
    ) -> Result<(), Ended> {
        if let Event::Returned { message, .. } = &event {
            let body = String::from_utf8_lossy(&message.body);
            self.world.history.lock().violation(format!("{body} was returned"));
            return Ok(());
        }
        let Event::Confirmed { first, last, taken, .. } = event else { return ends(event) };
        for number in first..=last {
            let Some(body) = unconfirmed.remove(&number) else {
                let violation = format!("publish {number} of {} confirmed twice", self.name);
                self.world.history.lock().violation(violation);
                continue;
            };
            self.note(&format!("{body} is {}", if taken { "taken" } else { "refused" }));
            if taken {
                self.world.history.lock().confirmed(&body);
            }
        }
        Ok(())
    }
}
