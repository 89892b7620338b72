//! The errors of requests that this node gives up before it has asked anybody: publishes that they must not
//! overtake are still held, or the node has no routing lease under which it could answer (NAM 5, Q-60).
//! Their texts are those of requests that were asked and not answered in time.

use crate::{
    client::Operation,
    front::{
        client_handle::Client,
        consume::{cancel_timeout, consume_timeout, get_timeout},
    },
    names::{
        declare::declare_timeout,
        delete::{delete_timeout, purge_timeout},
    },
};
use quorate_catalog::refusal;
use quorate_types::{Exception, ReplyCode, ShortString};

impl Client<'_> {
    /// 541 for this request, with the text that RabbitMQ has for it.
    pub(crate) fn timed_out(&self, operation: &Operation) -> Exception {
        let name = |name: &ShortString| self.resource(name);
        match operation {
            Operation::ExchangeDeclare(declare) => {
                refusal::exchange_declare_timeout(&name(&declare.exchange))
            }
            Operation::ExchangeExists(exchange) => {
                refusal::exchange_declare_timeout(&name(exchange))
            }
            Operation::ExchangeDelete { exchange, .. } => {
                refusal::exchange_delete_timeout(&name(exchange))
            }
            Operation::ExchangeBind(_) | Operation::QueueBind(_) => refusal::bind_timeout(),
            Operation::ExchangeUnbind(_) | Operation::QueueUnbind(_) => refusal::unbind_timeout(),
            Operation::QueueDeclare(declare) => declare_timeout(&name(&declare.queue)),
            Operation::QueueExists(queue) => declare_timeout(&name(queue)),
            Operation::QueuePurge(queue) => purge_timeout(&name(queue)),
            Operation::QueueDelete { queue, .. } => delete_timeout(&name(queue)),
            Operation::Consume(consume) => consume_timeout(&name(&consume.queue)),
            Operation::Get { queue, .. } => get_timeout(&name(queue)),
            Operation::Cancel(consumer) => {
                let consumer = self.node.clients.consumer(*consumer);
                let tag = consumer.map(|consumer| consumer.about.tag.clone()).unwrap_or_default();
                cancel_timeout(&tag)
            }
            Operation::Commit { .. }
            | Operation::ConsumeReplies { .. }
            | Operation::Publishable(_)
            | Operation::Route(_) => {
                let text = "the operation timed out before it was begun";
                Exception::new(ReplyCode::InternalError, text)
            }
        }
    }
}
