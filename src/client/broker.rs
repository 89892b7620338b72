//! What a front end calls: the broker of its node, and one handle a client connection.
//!
//! A front end is generic over these traits and compiled for the broker that it is given, so a call
//! is as cheap as a direct call of the broker's method.

use crate::{
    event::Event,
    memory::{MemoryBudget, Share},
    operation::{Answer, Operation},
    report::{ChannelReport, SocketReport},
    request::{ChannelId, ConnectionInfo, Delivered, Pressure, Publish, PublishOutcome, Settle},
    settings::FrontSettings,
};
use quorate_types::{Exception, ShortString};
use std::{future::Future, net::IpAddr, sync::Arc};

/// The broker of one node, shared by everything that serves clients.
pub trait Broker: Clone + Send + Sync + 'static {
    /// The broker's handle for one client connection.
    type Connection: Connection;

    /// The budget of bodies held for clients.
    fn memory(&self) -> &Arc<MemoryBudget>;

    /// Settings for front ends.
    fn front_settings(&self) -> FrontSettings;

    /// Whether the user may log in from that address with that password; `None`: by a mechanism
    /// without one. The answer to a failed login is delayed.
    fn log_in(
        &self,
        user: &ShortString,
        password: Option<&[u8]>,
        from: IpAddr,
    ) -> impl Future<Output = bool> + Send;

    /// Opens a connection (`connection.open`), after its user has been authenticated.
    ///
    /// # Errors
    /// 320 while the node is drained; 530 as CONN-20 lists; 541 while the node has not joined its cluster.
    fn connect(&self, info: ConnectionInfo) -> Result<Self::Connection, Exception>;

    /// The reason why publishing is blocked now, for a connection that begins to publish (ALM-02);
    /// `None`: no alarm is on.
    fn alarm(&self) -> Option<String>;
}

/// A client connection. Dropping it without [`Connection::close`] counts as a lost connection: its
/// channels end and its exclusive queues are deleted (CONN-32). All futures are cancel-safe except those of
/// [`Connection::ask`], [`Connection::close`] and [`Connection::end`].
pub trait Connection: Send + Sync + 'static {
    /// The properties that the connection was opened with.
    fn info(&self) -> &ConnectionInfo;

    /// Opens a channel, which lists show until [`Connection::close_channel`].
    ///
    /// # Errors
    /// 530: the user has as many channels as it may have (CHN-03).
    fn open_channel(&self, channel: ChannelId) -> Result<(), Exception>;

    /// Ends a channel after a close or an error: its consumers end, the messages that they and its gets
    /// hold are requeued (CHN-05), and its open transaction is dropped. Deliveries and confirms for it
    /// stop at once.
    fn close_channel(&self, channel: ChannelId);

    /// Limits the unsettled deliveries of all consumers of a channel together (QOS-06, Q-12);
    /// `None` removes the limit.
    fn limit_channel(&self, channel: ChannelId, limit: Option<u16>);

    /// Routes the publishes of one read of the socket and sends them to their queues, in order. `outcomes` gets
    /// one outcome for each; after a refused one, later publishes of the same channel are refused
    /// with the same (PUB-03).
    fn publish(&self, publishes: Vec<Publish>, outcomes: &mut Vec<PublishOutcome>) -> Pressure;

    /// Whether clients may publish to the exchange, as far as this node may say so now (NAM 5).
    ///
    /// # Errors
    /// What PUB-01 lists.
    fn check_publish(&self, exchange: &ShortString) -> Result<(), Exception>;

    /// Whether this node may route publishes now (NAM 5). If not, they are held.
    fn may_route(&self) -> bool;

    /// Settles deliveries, after the client's earlier publishes have been sent. There is no answer
    /// (ACK-08).
    fn settle(&self, settles: Vec<Settle>);

    /// Carries out an operation of a channel. An answer that rests on this node's copy of the catalog is
    /// given only under a routing lease (NAM 5); without one the operation waits, and then fails with 541
    /// . A commit takes the channel's transaction at the call and not
    /// when its future is first polled, so that a close of the channel leaves it alone (TX-07).
    fn ask(
        &self,
        channel: ChannelId,
        operation: Operation,
    ) -> impl Future<Output = Result<Answer, Exception>> + Send;

    /// Rolls the channel's transaction back (TX-08): its publishes are dropped.
    fn roll_back(&self, channel: ChannelId);

    /// `connection.update-secret`: checks the user's permissions again, and cancels consumers that may not
    /// read any more (CONN-30, CONN-31).
    ///
    /// # Errors
    /// 530: the user may not use the virtual host any more.
    fn update_secret(&self) -> Result<(), Exception>;

    /// Waits until there is at least one event, and takes all there are.
    fn events(&self, events: &mut Vec<Event>) -> impl Future<Output = ()> + Send;

    /// Resolves when the socket may be read again after [`Pressure::Wait`].
    fn room(&self) -> impl Future<Output = ()> + Send;

    /// Takes deliveries to be written now, up to `bytes_max` bytes of bodies, but at least one if any is
    /// ready. They count as shown to the client (DLV 4).
    fn take_deliveries(&self, bytes_max: usize, deliveries: &mut Vec<Delivered>);

    /// Bytes of deliveries that may be taken now, in addition to those that wait to be written. 0: none
    /// until some of these have been written, or until the node's budget has room.
    fn delivery_room_bytes(&self) -> usize;

    /// Resolves when the node's budget of bodies has room, for a connection that has waited for it.
    fn budget_room(&self) -> impl Future<Output = ()> + Send;

    /// Reports how many bytes of answers and deliveries wait to be written to the client.
    fn report_unwritten(&self, bytes: usize);

    /// As [`Connection::report_unwritten`], with deliveries that have just been taken.
    fn report_given(&self, bytes: usize);

    /// Whether the memory for deliveries is used up, and this connection holds some of it.
    fn is_pressed(&self) -> bool;

    /// Drops the client, since it reads so slowly that others get nothing.
    fn is_given_up(&self) -> bool;

    /// Reports what the front end holds between two turns: bytes of contents that have not come whole,
    /// for how long they have been under way, and bytes of transactions.
    fn report_unfinished(&self, contents: u64, age_ms: u64, transactions: u64);

    /// Closes the connections of this node that hold most of that share, until the others hold at most
    /// `bytes_max`.
    fn relieve(&self, share: Share, bytes_max: u64);

    /// Reports what lists show of a channel; they show nothing of one that has ended.
    fn report_channel(&self, channel: ChannelId, report: ChannelReport);

    /// Reports what lists show of the socket, and whether it is not being read because of an alarm
    /// (ALM-03).
    fn report_socket(&self, socket: SocketReport, blocked: bool);

    /// Closes the connection at the client's request: what it has published and settled before is carried
    /// out, channels end, and exclusive queues are deleted. The future resolves when close-ok may be sent
    /// (CONN-27).
    fn close(self) -> impl Future<Output = ()> + Send;

    /// Ends the connection because the server closes it. What the client has published and the broker
    /// could not route yet is dropped, as with a lost connection. The future resolves when its exclusive
    /// queues are deleted.
    fn end(self) -> impl Future<Output = ()> + Send;
}
