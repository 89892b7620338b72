//! A client that gets messages one by one (`basic.get`).

use super::{
    CHANNEL, Clients, Ended, hear,
    queues::{DEAD, GOT, declare},
};
use crate::world::Focus;
use quorate_broker::Connection;
use quorate_client::{Answer, Connection as _, Operation};
use quorate_rpc::chance;
use quorate_types::ShortString;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Time in which a notice arrives that was sent with an answer, if nothing is broken.
const NOTICE: Duration = Duration::from_millis(100);

/// What a client has settled, by queue, without knowing yet that the settle was applied.
pub(super) type Settling = BTreeMap<&'static str, Vec<String>>;

impl Clients {
    pub(super) async fn get(self: Arc<Self>, connection: Connection) -> Result<(), Ended> {
        for queue in GOT {
            declare(&connection, queue).await?;
        }
        let mut settling = Settling::default();
        for queue in GOT.into_iter().cycle() {
            sleep(Duration::from_millis(chance::in_range(1..=20))).await;
            self.get_one(&connection, queue, &mut settling).await?;
        }
        Ok(())
    }

    /// Gets a message and settles it. A node's commands to a group are applied in order: when a get
    /// is answered, all earlier settles of this client in its queue have been applied.
    pub(super) async fn get_one(
        &self,
        connection: &Connection,
        queue: &'static str,
        settling: &mut Settling,
    ) -> Result<(), Ended> {
        let before = settling.remove(queue).unwrap_or_default();
        let asked = self.world.elapsed();
        let get = Operation::Get { queue: ShortString::from_static(queue), no_ack: true };
        let answer = connection.ask(CHANNEL, get).await?;
        if let Answer::Got(Some(got)) = answer {
            let body = String::from_utf8_lossy(&got.message.body).into_owned();
            self.note(&format!("is given {body}"));
            self.world.history.lock().delivered(&body, self.world.elapsed());
            if queue != DEAD {
                self.world.history.lock().came_from(queue, &body, got.redelivered);
            }
            settling.entry(queue).or_default().push(body);
        }
        // Not if the node has begun another session meanwhile.
        hear(connection, Duration::ZERO).await?;
        if self.world.focus == Focus::Network {
            // Nor if the client's consumer has been cancelled, as those of a node that was unreachable
            // for long: its later settles have no effect. The notice may follow the answer.
            let until = Instant::now() + NOTICE;
            while Instant::now() < until {
                hear(connection, until - Instant::now()).await?;
            }
            if self.world.calm_since() > asked {
                return Ok(());
            }
        }
        before.iter().for_each(|body| self.world.history.lock().settled(body));
        Ok(())
    }
}
