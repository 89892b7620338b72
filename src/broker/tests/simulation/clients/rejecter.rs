//! A client that returns every message of the queue with a delivery limit (DLM-04).

use super::{
    Clients, Ended, hear,
    queues::{LIMIT, LIMITED, consume, declare},
};
use quorate_broker::Connection;
use quorate_client::{Connection as _, Settle, Settlement};
use quorate_types::RequeueCause;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

impl Clients {
    pub(super) async fn reject(self: Arc<Self>, connection: Connection) -> Result<(), Ended> {
        declare(&connection, LIMITED).await?;
        consume(&connection, LIMITED).await?;
        loop {
            hear(&connection, Duration::from_millis(100)).await?;
            sleep(self.world.unread_for(self.node)).await;
            let mut deliveries = Vec::new();
            connection.take_deliveries(1 << 20, &mut deliveries);
            for delivered in deliveries {
                let body = String::from_utf8_lossy(&delivered.message.body).into_owned();
                let returned = delivered.counts.map_or(0, |counts| counts.returned);
                self.note(&format!("returns {body}, which was returned {returned} times"));
                self.world.history.lock().shown(&body, returned, LIMIT);
                let numbers = vec![(delivered.number, delivered.number)];
                let settlement = Settlement::Requeue(RequeueCause::Nack);
                connection.settle(vec![Settle { holder: delivered.holder, numbers, settlement }]);
            }
        }
    }
}
