//! Methods of classes exchange and queue: resolves empty names and passes the operation to the
//! broker (CHN-12 to CHN-15).

use crate::{
    channel::{
        Action, Out, Then,
        machine::{Channel, Waiting},
    },
    codec::{
        cold::{Cold, exchange, queue},
        method::MethodId,
    },
    connection::close::Fault,
};
use quorate_client::{BindRequest, DeclareOk, ExchangeDeclare, Operation, QueueDeclare};
use quorate_types::{ReplyCode, ShortString};

impl Channel {
    /// Passes an operation to the broker; the channel's later frames wait for the answer.
    pub(crate) fn ask(
        &mut self,
        id: MethodId,
        nowait: bool,
        then: Then,
        operation: Operation,
        out: &mut Out<'_>,
    ) {
        self.waiting = Some(Waiting::Answer { id, nowait, then });
        out.act(Action::Start(self.id, operation));
    }

    fn ask_plainly(
        &mut self,
        id: MethodId,
        nowait: bool,
        reply: impl Into<Cold>,
        operation: Operation,
        out: &mut Out<'_>,
    ) {
        self.ask(id, nowait, Then::Reply(Box::new(reply.into())), operation, out);
    }

    pub(crate) fn exchange_method(
        &mut self,
        method: exchange::Method,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        match method {
            exchange::Method::Declare(declare) => self.exchange_declare(declare, out),
            exchange::Method::Delete(delete) => {
                let exchange::Delete { ticket: _, exchange, if_unused, nowait } = delete;
                let exchange = exchange.without_line_breaks();
                let operation = Operation::ExchangeDelete { exchange, if_unused };
                let id = exchange::Delete::ID;
                self.ask_plainly(id, nowait, exchange::DeleteOk {}, operation, out);
            }
            exchange::Method::Bind(bind) => {
                let id = exchange::Bind::ID;
                let operation = Operation::ExchangeBind(BindRequest {
                    destination: bind.destination.without_line_breaks(),
                    source: bind.source.without_line_breaks(),
                    routing_key: bind.routing_key,
                    arguments: bind.arguments,
                });
                self.ask_plainly(id, bind.nowait, exchange::BindOk {}, operation, out);
            }
            exchange::Method::Unbind(unbind) => {
                let id = exchange::Unbind::ID;
                let operation = Operation::ExchangeUnbind(BindRequest {
                    destination: unbind.destination.without_line_breaks(),
                    source: unbind.source.without_line_breaks(),
                    routing_key: unbind.routing_key,
                    arguments: unbind.arguments,
                });
                self.ask_plainly(id, unbind.nowait, exchange::UnbindOk {}, operation, out);
            }
            other @ (exchange::Method::DeclareOk(_)
            | exchange::Method::DeleteOk(_)
            | exchange::Method::BindOk(_)
            | exchange::Method::UnbindOk(_)) => return Err(only_servers(Cold::Exchange(other))),
        }
        Ok(())
    }

    fn exchange_declare(&mut self, declare: exchange::Declare, out: &mut Out<'_>) {
        let exchange = declare.exchange.without_line_breaks();
        let operation = if declare.passive {
            Operation::ExchangeExists(exchange)
        } else {
            Operation::ExchangeDeclare(ExchangeDeclare {
                exchange,
                kind: declare.kind,
                durable: declare.durable,
                auto_delete: declare.auto_delete,
                internal: declare.internal,
                arguments: declare.arguments,
            })
        };
        let id = exchange::Declare::ID;
        self.ask_plainly(id, declare.nowait, exchange::DeclareOk {}, operation, out);
    }

    pub(crate) fn queue_method(
        &mut self,
        method: queue::Method,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        match method {
            queue::Method::Declare(declare) => self.queue_declare(declare, out),
            queue::Method::Bind(bind) => {
                let (id, nowait) = (queue::Bind::ID, bind.nowait);
                let queue::Bind { queue, exchange, routing_key, arguments, .. } = bind;
                let (destination, routing_key) = self.bound(queue, routing_key, id)?;
                let source = exchange.without_line_breaks();
                let bind = BindRequest { destination, source, routing_key, arguments };
                self.ask_plainly(id, nowait, queue::BindOk {}, Operation::QueueBind(bind), out);
                Ok(())
            }
            queue::Method::Unbind(unbind) => {
                let id = queue::Unbind::ID;
                let queue::Unbind { ticket: _, queue, exchange, routing_key, arguments } = unbind;
                let (destination, routing_key) = self.bound(queue, routing_key, id)?;
                let source = exchange.without_line_breaks();
                let bind = BindRequest { destination, source, routing_key, arguments };
                self.ask_plainly(id, false, queue::UnbindOk {}, Operation::QueueUnbind(bind), out);
                Ok(())
            }
            queue::Method::Purge(queue::Purge { ticket: _, queue, nowait }) => {
                let id = queue::Purge::ID;
                let queue = self.named(queue, id)?;
                self.ask(id, nowait, Then::Purged, Operation::QueuePurge(queue), out);
                Ok(())
            }
            queue::Method::Delete(delete) => {
                let id = queue::Delete::ID;
                let queue::Delete { ticket: _, queue, if_unused, if_empty, nowait } = delete;
                let queue = self.named(queue.without_line_breaks(), id)?;
                let operation = Operation::QueueDelete { queue, if_unused, if_empty };
                self.ask(id, nowait, Then::Deleted, operation, out);
                Ok(())
            }
            other @ (queue::Method::DeclareOk(_)
            | queue::Method::BindOk(_)
            | queue::Method::PurgeOk(_)
            | queue::Method::DeleteOk(_)
            | queue::Method::UnbindOk(_)) => Err(only_servers(Cold::Queue(other))),
        }
    }

    fn queue_declare(&mut self, declare: queue::Declare, out: &mut Out<'_>) -> Result<(), Fault> {
        let id = queue::Declare::ID;
        let queue = declare.queue.without_line_breaks();
        let operation = if declare.passive {
            if queue.is_empty() {
                // An empty name does not mean the last declared queue here (CHN-13).
                let text = format!("no queue '' in vhost '{}'", out.env.vhost);
                return Err(Fault::new(ReplyCode::NotFound, text, id));
            }
            Operation::QueueExists(queue)
        } else {
            Operation::QueueDeclare(QueueDeclare {
                queue,
                durable: declare.durable,
                exclusive: declare.exclusive,
                auto_delete: declare.auto_delete,
                arguments: declare.arguments,
            })
        };
        self.ask(id, declare.nowait, Then::Declared, operation, out);
        Ok(())
    }

    /// The queue of a name: an empty name means the last declared queue (CHN-13).
    pub(crate) fn named(&self, queue: ShortString, id: MethodId) -> Result<ShortString, Fault> {
        if !queue.is_empty() {
            return Ok(queue);
        }
        self.last_queue
            .clone()
            .ok_or_else(|| Fault::new(ReplyCode::NotFound, "no previously declared queue", id))
    }

    /// The queue and key of a bind: if both are empty, the key is the last declared queue's name
    /// too (CHN-14).
    fn bound(
        &self,
        queue: ShortString,
        routing_key: ShortString,
        id: MethodId,
    ) -> Result<(ShortString, ShortString), Fault> {
        let queue = queue.without_line_breaks();
        let both_empty = queue.is_empty() && routing_key.is_empty();
        let queue = self.named(queue, id)?;
        let routing_key = if both_empty { queue.clone() } else { routing_key };
        Ok((queue, routing_key))
    }

    /// Sends `queue.declare-ok`; the queue is the last declared one from now on, after a passive
    /// declare too (CHN-13).
    pub(crate) fn declared(&mut self, declared: DeclareOk, nowait: bool, out: &mut Out<'_>) {
        self.last_queue = Some(declared.queue.clone());
        if !nowait {
            let declare_ok = queue::DeclareOk {
                queue: declared.queue,
                message_count: count(declared.messages),
                consumer_count: declared.consumers,
            };
            out.reply(self.id, declare_ok);
        }
    }
}

/// A count in the 32 bits of the protocol.
pub(crate) fn count(messages: u64) -> u32 {
    u32::try_from(messages).unwrap_or(u32::MAX)
}

/// The fault for a method that only servers may send (FRM-12).
pub(crate) fn only_servers(method: Cold) -> Fault {
    super::publish::unimplemented_method(method.id())
}
