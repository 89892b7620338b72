//! A client that consumes from several queues, and acknowledges most of what it gets.

use super::{
    Clients, Ended,
    getter::Settling,
    hear,
    queues::{CONSUMED, DEAD, consume, declare, one_of},
};
use quorate_broker::Connection;
use quorate_client::{Connection as _, Delivered, Settle, Settlement};
use quorate_rpc::chance;
use quorate_types::RequeueCause;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::sleep;

/// The last unmarked message of each queue and publisher that a consumer was given.
type Last = BTreeMap<(String, String), (u64, String)>;

impl Clients {
    pub(super) async fn consume(self: Arc<Self>, connection: Connection) -> Result<(), Ended> {
        for queue in CONSUMED {
            declare(&connection, queue).await?;
            consume(&connection, queue).await?;
        }
        let (mut settling, mut last) = (Settling::default(), Last::default());
        loop {
            hear(&connection, Duration::from_millis(100)).await?;
            // A client that reads nothing for a while: its node holds deliveries meanwhile.
            let may_pause = !self.world.is_draining() && !self.world.is_one_alone();
            if may_pause && chance::in_range(1..=40) == 1 {
                sleep(Duration::from_millis(chance::in_range(500..=4_000))).await;
            }
            // One whose node is alone reads when its messages have gone to others (DLV 5).
            sleep(self.world.unread_for(self.node)).await;
            let mut deliveries = Vec::new();
            connection.take_deliveries(1 << 20, &mut deliveries);
            for delivered in deliveries {
                self.check_order(&delivered, &mut last);
                self.take(&connection, delivered, &mut settling).await;
            }
            if chance::in_range(1..=10) == 1 {
                self.get_one(&connection, one_of(&CONSUMED), &mut settling).await?;
            }
        }
    }

    /// One consumer gets the messages of one publisher in the order of their publishes, but for those
    /// that it gets again, and dead letters.
    fn check_order(&self, delivered: &Delivered, last: &mut Last) {
        let body = String::from_utf8_lossy(&delivered.message.body).into_owned();
        let Some((publisher, number)) = body.split_once('-') else { return };
        let number: u64 = number.parse().unwrap_or_default();
        let queue = delivered.tag.as_str();
        if delivered.redelivered || queue == DEAD {
            return;
        }
        let key = (queue.to_owned(), publisher.to_owned());
        let (before, after) = last.entry(key).or_default();
        if number < *before {
            self.world.history.lock().late(&body, after, self.world.calm_since());
        }
        (*before, *after) = (number, body);
    }

    async fn take(&self, connection: &Connection, delivered: Delivered, settling: &mut Settling) {
        let body = String::from_utf8_lossy(&delivered.message.body).into_owned();
        self.note(&format!("gets {body} from {}, number {}", delivered.tag, delivered.number));
        self.world.history.lock().delivered(&body, self.world.elapsed());
        // Dead letters of several queues may have the same body.
        if delivered.tag.as_str() != DEAD {
            let mut history = self.world.history.lock();
            history.came_from(delivered.tag.as_str(), &body, delivered.redelivered);
        }
        sleep(Duration::from_millis(chance::in_range(0..=3))).await;
        let returns = !self.world.is_draining() && chance::in_range(1..=10) == 1;
        let settlement =
            if returns { Settlement::Requeue(RequeueCause::Nack) } else { Settlement::Ack };
        let numbers = vec![(delivered.number, delivered.number)];
        connection.settle(vec![Settle { holder: delivered.holder, numbers, settlement }]);
        let queue = CONSUMED.into_iter().find(|queue| *queue == delivered.tag.as_str());
        if let (Some(queue), Settlement::Ack) = (queue, settlement) {
            settling.entry(queue).or_default().push(body);
        }
    }
}
