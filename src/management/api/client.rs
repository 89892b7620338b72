//! Operations of a user that clients have too: carried out on a connection of the user that lasts as
//! long as the request, with the same checks, limits and alarms as over AMQP.

use crate::api::caller::Caller;
use crate::api::refusal::Refusal;
use quorate_broker::{Broker, Connection};
use quorate_client::{
    Answer, ChannelId, Connection as _, ConnectionInfo, Event, GetOk, Operation, Publish,
    PublishOutcome, Settle, Settlement,
};
use quorate_types::{
    DeliveryNumber, Exception, FieldTable, FieldValue, ReplyCode, ShortString, VhostName,
    json_bytes_max, properties_json_bytes_max,
};
use std::future::Future;
use std::time::Duration;

/// The mechanism that lists show of such a connection.
pub(crate) const MECHANISM: &str = "HTTP";
/// The only channel of such a connection.
const CHANNEL: ChannelId = ChannelId { number: 1, opened: 0 };
/// Longest wait for the confirm of a publish, as in RabbitMQ.
const CONFIRM_MAX: Duration = Duration::from_secs(15);
/// A message that was got has the number 1.
const ONLY: DeliveryNumber = DeliveryNumber(1);

/// What becomes of messages that were got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckMode {
    /// They go back to the queue, as by `basic.nack`.
    Requeue,
    /// They are settled as they are got.
    Ack,
    /// They go back to the queue, as by `basic.reject`.
    RejectRequeue,
    /// They are rejected: dropped, or dead-lettered.
    Reject,
}

/// A connection of a user.
#[derive(Debug)]
pub(crate) struct UserConnection(Connection);

/// What a message takes in an answer besides its body and properties, about.
const OVERHEAD_BYTES: usize = 512;

impl UserConnection {
    /// Opens a connection and its channel.
    fn open(broker: &Broker, caller: &Caller, vhost: &VhostName) -> Result<Self, Exception> {
        let name = (ShortString::from_static("connection_name"), FieldValue::text("HTTP API"));
        let info = ConnectionInfo {
            user: caller.user.clone(),
            mechanism: MECHANISM,
            vhost: vhost.clone(),
            peer: caller.client.peer,
            local: caller.client.local,
            client_properties: FieldTable(vec![name]),
            channel_max: CHANNEL.number,
            frame_max: 0,
            heartbeat_s: 0,
            tls: None,
        };
        let connection = broker.connect(info)?;
        connection.open_channel(CHANNEL)?;
        Ok(Self(connection))
    }

    /// Publishes a message. False: no queue takes it.
    pub(crate) async fn publish(&self, publish: Publish) -> Result<bool, Exception> {
        let mut outcomes = Vec::new();
        self.0.publish(vec![publish], &mut outcomes);
        match outcomes.pop() {
            Some(PublishOutcome::Refused(exception)) => Err(exception),
            Some(PublishOutcome::Unroutable) => Ok(false),
            Some(PublishOutcome::Routed) | None => {
                match tokio::time::timeout(CONFIRM_MAX, self.confirmed()).await {
                    Ok(confirmed) => confirmed,
                    Err(_) => Err(Exception::new(
                        ReplyCode::InternalError,
                        "Timed out waiting for a publisher confirm. The message may still have \
                         been enqueued. Check the health of the queues bound to this exchange.",
                    )),
                }
            }
        }
    }

    /// Waits for the confirm of the only publish.
    async fn confirmed(&self) -> Result<bool, Exception> {
        let (mut events, mut routed) = (Vec::new(), true);
        loop {
            self.0.events(&mut events).await;
            for event in events.drain(..) {
                match event {
                    Event::Confirmed { taken: true, .. } => return Ok(routed),
                    Event::Confirmed { taken: false, .. } => {
                        let text = "Unable to publish message. Check queue limits.";
                        return Err(Exception::new(ReplyCode::PreconditionFailed, text));
                    }
                    Event::Returned { .. } => routed = false,
                    Event::ChannelException { exception, .. } | Event::Close(exception) => {
                        return Err(exception);
                    }
                    Event::GetTimedOut { .. }
                    | Event::DeliveriesReady
                    | Event::MaySettle
                    | Event::ConsumerCancelled { .. }
                    | Event::ConsumerTimedOut { .. }
                    | Event::Blocked { .. }
                    | Event::Unblocked => {}
                }
            }
        }
    }

    /// Gets messages, at most `count`, with bodies that are at most about `bytes_max` in JSON; and settles
    /// them.
    pub(crate) async fn get(
        &self,
        queue: &ShortString,
        (count, bytes_max): (usize, usize),
        mode: AckMode,
    ) -> Result<Vec<GetOk>, Exception> {
        let (mut got, mut bytes) = (Vec::new(), 0usize);
        while got.len() < count && bytes < bytes_max {
            let no_ack = mode == AckMode::Ack;
            let get = Operation::Get { queue: queue.clone(), no_ack };
            let answer = match self.0.ask(CHANNEL, get).await {
                // Those that were got are in no queue any more.
                Err(_) if no_ack && !got.is_empty() => break,
                answer => answer?,
            };
            let Answer::Got(Some(message)) = answer else { break };
            let properties = properties_json_bytes_max(&message.message.properties);
            let body = json_bytes_max(&message.message.body);
            bytes = bytes.saturating_add(body + properties + OVERHEAD_BYTES);
            got.push(*message);
            // The broker reads no further bodies while too many wait to be written to a client. These
            // are part of the answer, which has its own bound.
            self.0.report_unwritten(0);
        }
        let settlement = match mode {
            AckMode::Ack => return Ok(got),
            // A look is no delivery: it neither marks a message nor counts towards its delivery limit.
            AckMode::Requeue | AckMode::RejectRequeue => Settlement::Release,
            AckMode::Reject => Settlement::Discard,
        };
        let settle =
            |got: &GetOk| Settle { holder: got.holder, numbers: vec![(ONLY, ONLY)], settlement };
        self.0.settle(got.iter().map(settle).collect());
        Ok(got)
    }

    /// Carries out one operation.
    pub(crate) async fn ask(&self, operation: Operation) -> Result<Answer, Exception> {
        self.0.ask(CHANNEL, operation).await
    }
}

/// Does something on a connection of the user, to its end even if the request is given up: a
/// declare that stopped half-way would have to be cleaned up later.
///
/// # Errors
/// The user may not open the connection; or what was done was refused.
pub(crate) async fn on_connection<T, F>(
    broker: &Broker,
    caller: &Caller,
    vhost: &VhostName,
    work: impl FnOnce(UserConnection) -> F,
) -> Result<T, Exception>
where
    T: Send + 'static,
    F: Future<Output = (UserConnection, Result<T, Exception>)> + Send + 'static,
{
    let work = work(UserConnection::open(broker, caller, vhost)?);
    let done = tokio::spawn(async move {
        let (UserConnection(connection), done) = work.await;
        connection.close().await;
        done
    });
    done.await.unwrap_or_else(|_| {
        Err(Exception::new(ReplyCode::InternalError, "the operation has ended with an error"))
    })
}

/// Carries out one operation of the user.
///
/// # Errors
/// Its refusal.
pub(crate) async fn perform(
    broker: &Broker,
    caller: &Caller,
    vhost: &VhostName,
    operation: Operation,
) -> Result<Answer, Refusal> {
    let done = on_connection(broker, caller, vhost, |connection| async move {
        let answer = connection.ask(operation).await;
        (connection, answer)
    });
    Ok(done.await?)
}
