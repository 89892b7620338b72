//! Operations asked of the broker.

use crate::channel::{Answer, Operation};
use quorate_broker::{Broker, Connection};
use quorate_client::ChannelId;
use quorate_types::Exception;

/// Prefix of consumer tags that the server makes (CON-01).
const CONSUMER_TAG_PREFIX: &str = "amq.ctag-";

/// Asks the broker.
pub(crate) async fn perform(
    connection: &Connection,
    broker: &Broker,
    channel: ChannelId,
    operation: Operation,
) -> Result<Answer, Exception> {
    let done = |()| Answer::Done;
    match operation {
        Operation::ExchangeDeclare(declare) => connection.exchange_declare(declare).await.map(done),
        Operation::ExchangeExists(exchange) => connection.exchange_exists(&exchange).map(done),
        Operation::Publishable(exchange) => connection.check_publish(&exchange).map(done),
        Operation::ExchangeDelete { exchange, if_unused } => {
            connection.exchange_delete(exchange, if_unused).await.map(done)
        }
        Operation::ExchangeBind(bind) => connection.exchange_bind(bind).await.map(done),
        Operation::ExchangeUnbind(bind) => connection.exchange_unbind(bind).await.map(done),
        Operation::QueueDeclare(declare) => {
            connection.queue_declare(declare).await.map(Answer::Declared)
        }
        Operation::QueueExists(queue) => {
            connection.queue_passive(queue).await.map(Answer::Declared)
        }
        Operation::QueueBind(bind) => connection.queue_bind(bind).await.map(done),
        Operation::QueueUnbind(bind) => connection.queue_unbind(bind).await.map(done),
        Operation::QueuePurge(queue) => connection.queue_purge(queue).await.map(Answer::Removed),
        Operation::QueueDelete { queue, if_unused, if_empty } => {
            connection.queue_delete(queue, if_unused, if_empty).await.map(Answer::Removed)
        }
        Operation::Consume(mut consume) => {
            if consume.tag.is_empty() {
                consume.tag = broker.generated_name(CONSUMER_TAG_PREFIX);
            }
            let tag = consume.tag.clone();
            let consumer = connection.consume(*consume).await?;
            Ok(Answer::Consuming { consumer, tag })
        }
        Operation::ConsumeReplies { mut tag } => {
            if tag.is_empty() {
                tag = broker.generated_name(CONSUMER_TAG_PREFIX);
            }
            let (consumer, name) = connection.consume_replies(channel, tag.clone())?;
            Ok(Answer::ConsumingReplies { consumer, tag, name })
        }
        Operation::Route(publish) => {
            let routed = connection.route(*publish).await?;
            Ok(Answer::Routed(routed.map(Box::new)))
        }
        Operation::Commit { publishes, settles } => {
            connection.commit(channel, publishes, settles).await.map(done)
        }
        Operation::Cancel(consumer) => connection.cancel(consumer).await.map(done),
        Operation::Get { queue, no_ack } => {
            let got = connection.get(channel, queue, no_ack).await?;
            Ok(Answer::Got(got.map(Box::new)))
        }
    }
}
