//! The queues of delayed exchanges: made before their exchange, gone after it (EXC-17).

use crate::{
    client::QueueDeclare,
    names::{
        declare::{Made, NewQueue},
        queues::Queues,
    },
};
use quorate_catalog::{ExchangeRecord, QueueEntry, delay_config, refusal};
use quorate_types::{Exception, FieldTable, LeaderLocator, QueueType};
use std::sync::Arc;

impl Queues {
    /// Makes the queue of a delayed exchange, if it is not there. An exchange of another type has
    /// none.
    ///
    /// # Errors
    /// The catalog's refusal; `timeout`.
    pub(crate) async fn make_delay_queue(
        self: &Arc<Self>,
        exchange: &ExchangeRecord,
        timeout: &Exception,
    ) -> Result<(), Exception> {
        let Some(name) = exchange.delay_queue() else { return Ok(()) };
        if self.base.catalog.read().queue_by_name(&name).is_some() {
            return Ok(());
        }
        let new = NewQueue {
            config: delay_config(exchange.name.name.clone(), self.base.catalog.read().version()),
            locator: LeaderLocator::default(),
            queue_type: QueueType::Quorum,
            declare: QueueDeclare {
                queue: name.name.clone(),
                durable: true,
                exclusive: false,
                auto_delete: false,
                arguments: FieldTable::default(),
            },
            name,
        };
        match self.make_in_turn(new).await {
            Ok(Made::Ok | Made::NameTaken) => Ok(()),
            Ok(Made::Refused(refused)) => Err(refused),
            Err(_) => Err(timeout.clone()),
        }
    }

    /// A delayed exchange was refused: a queue that was made for it ends, unless the exchange is
    /// there by now.
    pub(crate) fn drop_delay_queue(self: &Arc<Self>, exchange: &ExchangeRecord) {
        let Some(name) = exchange.delay_queue() else { return };
        let entry = self.base.known_queue(&name).filter(|entry| self.check_free(entry).is_ok());
        let Some(entry) = entry else { return };
        let node = Arc::clone(self);
        self.base.context.spawn(async move {
            if let Err(error) = node.delete_queue(&entry, false, false).await {
                tracing::warn!(
                    queue = %entry.name, %error,
                    "cannot delete the queue of a refused delayed exchange"
                );
            }
        });
    }

    /// A delayed exchange's queue is neither bound nor deleted but with its exchange.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check_free(&self, entry: &QueueEntry) -> Result<(), Exception> {
        match self.base.catalog.read().delayed_exchange_of(&entry.name) {
            Some(exchange) => Err(refusal::delay_queue(&entry.name, &exchange)),
            None => Ok(()),
        }
    }
}
