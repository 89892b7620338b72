//! One client connection's handle on the broker.

use crate::client::{
    BindRequest, ChannelId, ConnectionInfo, Consume, DeclareOk, Delivered, Event, ExchangeDeclare,
    GetOk, Pressure, Publish, PublishOutcome, QueueDeclare, Settle,
};
use quorate_types::{ConsumerId, Exception, ReplyCode, ShortString};

/// A client connection. Dropping it without [`Connection::close`] is a loss of the connection:
/// its channels end, its exclusive queues go (CONN-32).
#[derive(Debug)]
pub struct Connection {
    info: ConnectionInfo,
}

fn not_there<T>() -> Result<T, Exception> {
    Err(Exception::new(ReplyCode::InternalError, "not there"))
}

impl Connection {
    /// What was given at the opening.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Waits until there is at least one event, and takes all there are. Cancel-safe.
    pub async fn events(&self, events: &mut Vec<Event>) {
        let _ = events;
    }

    /// Routes and proposes publishes, all that one read of the socket brought, in order.
    /// `outcomes` gets one outcome for each; after a refused one, later publishes of the same
    /// channel are ignored and get no outcome of their own but `Refused` again (PUB-03).
    pub fn publish(&self, publishes: Vec<Publish>, outcomes: &mut Vec<PublishOutcome>) -> Pressure {
        let _ = (publishes, outcomes);
        Pressure::None
    }

    /// Resolves when the socket may be read again after [`Pressure::Wait`]. Cancel-safe.
    pub async fn room(&self) {}

    /// Takes deliveries to be written now, until they have `bytes_max` octets of bodies (at least
    /// one if any is ready). What is taken counts as shown to the client (DLV 4).
    pub fn take_deliveries(&self, bytes_max: usize, deliveries: &mut Vec<Delivered>) {
        let _ = (bytes_max, deliveries);
    }

    /// Limits the unsettled deliveries of all consumers of a channel together (QOS-06, Q-12);
    /// `None` takes the limit away.
    pub fn limit_channel(&self, channel: ChannelId, limit: Option<u16>) {
        let _ = (channel, limit);
    }

    /// Settles deliveries. Needs no answer (ACK-08).
    pub fn settle(&self, settles: Vec<Settle>) {
        let _ = settles;
    }

    /// `basic.consume`. Deliveries may be ready before this returns; the front end shows none of
    /// a consumer before its consume-ok (CON-02).
    ///
    /// # Errors
    /// What the client is told: 404, 405, 403 (exclusive use), 406 (arguments), 541.
    pub async fn consume(&self, consume: Consume) -> Result<ConsumerId, Exception> {
        let _ = consume;
        not_there()
    }

    /// `basic.cancel`: nothing of the consumer is handed out any more; what was shown stays to be
    /// settled (ACK-10). Returns when the queue knows.
    ///
    /// # Errors
    /// 541 when the queue's group does not answer in time.
    pub async fn cancel(&self, consumer: ConsumerId) -> Result<(), Exception> {
        let _ = consumer;
        not_there()
    }

    /// `basic.get`.
    ///
    /// # Errors
    /// 404, 405, 541.
    pub async fn get(
        &self,
        channel: ChannelId,
        queue: ShortString,
        no_ack: bool,
    ) -> Result<Option<GetOk>, Exception> {
        let _ = (channel, queue, no_ack);
        not_there()
    }

    /// The channel has ended, by a close or an error: its consumers end, what they and its gets
    /// hold returns (CHN-05). Deliveries and confirms for it stop at once.
    pub fn close_channel(&self, channel: ChannelId) {
        let _ = channel;
    }

    /// `exchange.declare`.
    ///
    /// # Errors
    /// What EXC-02 to EXC-04 and EXC-13 name.
    pub async fn exchange_declare(&self, declare: ExchangeDeclare) -> Result<(), Exception> {
        let _ = declare;
        not_there()
    }

    /// `exchange.declare` passive (EXC-06).
    ///
    /// # Errors
    /// 404, 403.
    pub fn exchange_exists(&self, exchange: &ShortString) -> Result<(), Exception> {
        let _ = exchange;
        not_there()
    }

    /// `exchange.delete` (EXC-07, 08).
    ///
    /// # Errors
    /// 403, 406, 541.
    pub async fn exchange_delete(
        &self,
        exchange: ShortString,
        if_unused: bool,
    ) -> Result<(), Exception> {
        let _ = (exchange, if_unused);
        not_there()
    }

    /// `exchange.bind` (BND-07).
    ///
    /// # Errors
    /// 403, 404, 541.
    pub async fn exchange_bind(&self, bind: BindRequest) -> Result<(), Exception> {
        let _ = bind;
        not_there()
    }

    /// `exchange.unbind` (BND-04).
    ///
    /// # Errors
    /// 403, 541.
    pub async fn exchange_unbind(&self, bind: BindRequest) -> Result<(), Exception> {
        let _ = bind;
        not_there()
    }

    /// `queue.declare`.
    ///
    /// # Errors
    /// What QUE, EQV, ARG and EXQ name.
    pub async fn queue_declare(&self, declare: QueueDeclare) -> Result<DeclareOk, Exception> {
        let _ = declare;
        not_there()
    }

    /// `queue.declare` passive (QUE-12).
    ///
    /// # Errors
    /// 404, 405.
    pub async fn queue_passive(&self, queue: ShortString) -> Result<DeclareOk, Exception> {
        let _ = queue;
        not_there()
    }

    /// `queue.bind` (BND-01 to 03).
    ///
    /// # Errors
    /// 403, 404, 405, 541.
    pub async fn queue_bind(&self, bind: BindRequest) -> Result<(), Exception> {
        let _ = bind;
        not_there()
    }

    /// `queue.unbind` (BND-04).
    ///
    /// # Errors
    /// 403, 405, 541.
    pub async fn queue_unbind(&self, bind: BindRequest) -> Result<(), Exception> {
        let _ = bind;
        not_there()
    }

    /// `queue.purge`: ready messages removed.
    ///
    /// # Errors
    /// 404, 405, 541.
    pub async fn queue_purge(&self, queue: ShortString) -> Result<u64, Exception> {
        let _ = queue;
        not_there()
    }

    /// `queue.delete`: ready messages that went with it (DEL-01 to 03).
    ///
    /// # Errors
    /// 405, 406, 541.
    pub async fn queue_delete(
        &self,
        queue: ShortString,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, Exception> {
        let _ = (queue, if_unused, if_empty);
        not_there()
    }

    /// The client closes: channels end, exclusive queues are deleted; then close-ok may be sent
    /// (CONN-27).
    pub async fn close(self) {}
}
