//! A small AMQP client: connects, declares, and hands the connection over to the hot loops.

use super::inbox::Inbox;
use super::scan::{self, METHOD, ScanError};
use amq_protocol::auth::{Credentials, SASLMechanism};
use amq_protocol::frame::{AMQPFrame, ProtocolVersion, WriteContext, gen_frame};
use amq_protocol::protocol::constants::REPLY_SUCCESS;
use amq_protocol::protocol::{AMQPClass, basic, channel, confirm, connection, queue};
use amq_protocol::types::{AMQPValue, FieldTable, ShortString, ShortStringError};
use amq_protocol::uri::AMQPUri;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Largest frame size that the client accepts.
const FRAME_MAX: u32 = 131_072;
/// Time limit for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of declares that are sent before their answers are read.
const PIPELINE: usize = 64;
/// The channel of all methods.
pub(crate) const CHANNEL: u16 = 1;

/// Why a connection cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("{address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    #[error("the server closed the connection")]
    Ended,
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error("no answer to {0} in time")]
    Timeout(&'static str),
    #[error("{0}")]
    Name(#[from] ShortStringError),
}

/// An open connection with an open channel.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) inbox: Inbox,
    pub(crate) frame_max: u32,
}

/// Appends a frame.
pub(crate) fn put(out: &mut Vec<u8>, frame: &AMQPFrame) {
    match gen_frame(frame)(WriteContext::from(std::mem::take(out))) {
        Ok(context) => *out = context.into_inner().0,
        // Only a buffer that cannot grow is ever too small.
        Err(_) => unreachable!("a frame is appended to a vector"),
    }
}

/// The error for a server method that the client did not expect.
pub(crate) fn unexpected(method: AMQPClass) -> ScanError {
    if let Some(why) = closed(&method) {
        return why;
    }
    if let AMQPClass::Basic(basic::AMQPMethod::Cancel(_)) = method {
        return ScanError::Closed(
            "a consumer was cancelled because its queue was deleted".to_owned(),
        );
    }
    ScanError::UnexpectedMethod(Box::new(method))
}

/// The server's reason, if the method is a close.
fn closed(method: &AMQPClass) -> Option<ScanError> {
    let (code, text) = if let AMQPClass::Connection(connection::AMQPMethod::Close(close)) = method {
        (close.reply_code, &close.reply_text)
    } else if let AMQPClass::Channel(channel::AMQPMethod::Close(close)) = method {
        (close.reply_code, &close.reply_text)
    } else {
        return None;
    };
    Some(ScanError::Closed(format!("{code} {text}")))
}

/// `connection.blocked`: true; `connection.unblocked`: false.
pub(crate) fn blocked(method: &AMQPClass) -> Option<bool> {
    if let AMQPClass::Connection(connection::AMQPMethod::Blocked(_)) = method {
        Some(true)
    } else if let AMQPClass::Connection(connection::AMQPMethod::Unblocked(_)) = method {
        Some(false)
    } else {
        None
    }
}

fn client_properties() -> FieldTable {
    let mut capabilities = FieldTable::default();
    for name in [
        "publisher_confirms",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "authentication_failure_close",
    ] {
        capabilities.insert(name.into(), AMQPValue::Boolean(true));
    }
    let mut properties = FieldTable::default();
    properties.insert("product".into(), AMQPValue::LongString("quorate perf".into()));
    properties.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    properties
}

impl Client {
    /// Connects, and opens a channel.
    pub(crate) async fn connect(uri: &AMQPUri) -> Result<Self, ClientError> {
        let (host, port) = (uri.authority.host.as_str(), uri.authority.port);
        let stream = match timeout(ANSWER_TIMEOUT, TcpStream::connect((host, port))).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(source)) => {
                return Err(ClientError::Connect { address: format!("{host}:{port}"), source });
            }
            Err(_) => return Err(ClientError::Timeout("connect")),
        };
        stream.set_nodelay(true)?;
        let inbox = Inbox::new(usize::try_from(FRAME_MAX).unwrap_or(usize::MAX));
        let mut client = Self { stream, inbox, frame_max: FRAME_MAX };
        client.handshake(uri).await?;
        let open = AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {}));
        client.ask(CHANNEL, open, "channel.open").await?;
        Ok(client)
    }

    async fn handshake(&mut self, uri: &AMQPUri) -> Result<(), ClientError> {
        use connection::AMQPMethod::{Open, StartOk, Tune, TuneOk};
        self.send(&[AMQPFrame::ProtocolHeader(ProtocolVersion::amqp_0_9_1())]).await?;
        self.answer("the protocol header").await?;
        let credentials = Credentials::from(uri.authority.userinfo.clone());
        let start_ok = StartOk(connection::StartOk {
            client_properties: client_properties(),
            mechanism: SASLMechanism::Plain.name().into(),
            response: credentials.sasl_auth_string(SASLMechanism::Plain),
            locale: "en_US".into(),
        });
        let tune = self.ask(0, AMQPClass::Connection(start_ok), "connection.start-ok").await?;
        let AMQPClass::Connection(Tune(tune)) = tune else { return Err(unexpected(tune).into()) };
        if tune.frame_max != 0 {
            self.frame_max = tune.frame_max.min(FRAME_MAX);
        }
        let tune_ok = TuneOk(connection::TuneOk {
            channel_max: tune.channel_max,
            frame_max: self.frame_max,
            // No heartbeats: the rates show when a run stands still.
            heartbeat: 0,
        });
        self.send_method(0, AMQPClass::Connection(tune_ok)).await?;
        let virtual_host = ShortString::try_new(uri.vhost.as_str())?;
        let open = Open(connection::Open { virtual_host });
        self.ask(0, AMQPClass::Connection(open), "connection.open").await?;
        Ok(())
    }

    async fn send(&mut self, frames: &[AMQPFrame]) -> Result<(), ClientError> {
        let mut out = Vec::new();
        frames.iter().for_each(|frame| put(&mut out, frame));
        self.stream.write_all(&out).await?;
        Ok(())
    }

    /// Sends a method that has no answer.
    pub(crate) async fn send_method(
        &mut self,
        channel: u16,
        method: AMQPClass,
    ) -> Result<(), ClientError> {
        self.send(&[AMQPFrame::Method(channel, method)]).await
    }

    /// Sends a method and awaits its answer.
    pub(crate) async fn ask(
        &mut self,
        channel: u16,
        method: AMQPClass,
        name: &'static str,
    ) -> Result<AMQPClass, ClientError> {
        self.send_method(channel, method).await?;
        self.answer(name).await
    }

    /// The next method that is an answer.
    async fn answer(&mut self, to: &'static str) -> Result<AMQPClass, ClientError> {
        match timeout(ANSWER_TIMEOUT, self.method()).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Timeout(to)),
        }
    }

    async fn method(&mut self) -> Result<AMQPClass, ClientError> {
        loop {
            while let Some(frame) = self.inbox.next()? {
                if frame.kind != METHOD {
                    continue;
                }
                // Deliveries and confirms that still arrive are ignored.
                let scan::Hot::Other(method) = scan::method(frame.payload)? else { continue };
                let is_return = matches!(*method, AMQPClass::Basic(basic::AMQPMethod::Return(_)));
                if is_return || blocked(&method).is_some() {
                    continue;
                }
                match closed(&method) {
                    Some(why) => return Err(why.into()),
                    None => return Ok(*method),
                }
            }
            let bytes = self.stream.read(self.inbox.room()).await?;
            if bytes == 0 {
                return Err(ClientError::Ended);
            }
            self.inbox.filled(bytes);
        }
    }

    /// Declares durable queues, several at once.
    pub(crate) async fn declare(
        &mut self,
        names: &[ShortString],
        arguments: &FieldTable,
    ) -> Result<(), ClientError> {
        let declare = |queue| {
            queue::AMQPMethod::Declare(queue::Declare {
                queue,
                durable: true,
                arguments: arguments.clone(),
                ..queue::Declare::default()
            })
        };
        self.for_each(names, "queue.declare", declare).await
    }

    /// Purges these queues, one after the other.
    pub(crate) async fn purge(&mut self, names: &[ShortString]) -> Result<(), ClientError> {
        let purge = |queue| queue::AMQPMethod::Purge(queue::Purge { queue, nowait: false });
        self.for_each(names, "queue.purge", purge).await
    }

    /// Deletes these queues, one after the other.
    pub(crate) async fn delete(&mut self, names: &[ShortString]) -> Result<(), ClientError> {
        let delete =
            |queue| queue::AMQPMethod::Delete(queue::Delete { queue, ..queue::Delete::default() });
        self.for_each(names, "queue.delete", delete).await
    }

    async fn for_each(
        &mut self,
        names: &[ShortString],
        what: &'static str,
        method: impl Fn(ShortString) -> queue::AMQPMethod,
    ) -> Result<(), ClientError> {
        let frame =
            |name: &ShortString| AMQPFrame::Method(CHANNEL, AMQPClass::Queue(method(name.clone())));
        for names in names.chunks(PIPELINE) {
            let frames: Vec<AMQPFrame> = names.iter().map(frame).collect();
            self.send(&frames).await?;
            for _ in names {
                self.answer(what).await?;
            }
        }
        Ok(())
    }

    /// Puts the channel into confirm mode.
    pub(crate) async fn confirm(&mut self) -> Result<(), ClientError> {
        let select = confirm::AMQPMethod::Select(confirm::Select { nowait: false });
        self.ask(CHANNEL, AMQPClass::Confirm(select), "confirm.select").await.map(|_| ())
    }

    /// Sets the prefetch of later consumers.
    pub(crate) async fn prefetch(&mut self, prefetch_count: u16) -> Result<(), ClientError> {
        let qos = basic::AMQPMethod::Qos(basic::Qos { prefetch_count, global: false });
        self.ask(CHANNEL, AMQPClass::Basic(qos), "basic.qos").await.map(|_| ())
    }

    /// Consumes from a queue, without awaiting the answer, since deliveries may arrive before it.
    pub(crate) async fn consume(
        &mut self,
        queue: &ShortString,
        tag: u32,
        no_ack: bool,
    ) -> Result<(), ClientError> {
        let consume = basic::AMQPMethod::Consume(basic::Consume {
            queue: queue.clone(),
            consumer_tag: ShortString::try_new(tag.to_string())?,
            no_ack,
            nowait: true,
            ..basic::Consume::default()
        });
        self.send_method(CHANNEL, AMQPClass::Basic(consume)).await
    }

    /// Closes the connection; ignores what arrives before close-ok.
    pub(crate) async fn close(mut self) -> Result<(), ClientError> {
        let close = connection::AMQPMethod::Close(connection::Close {
            reply_code: REPLY_SUCCESS,
            reply_text: "done".into(),
            ..connection::Close::default()
        });
        self.send_method(0, AMQPClass::Connection(close)).await?;
        let closed = async {
            loop {
                let method = self.method().await?;
                if let AMQPClass::Connection(connection::AMQPMethod::CloseOk(_)) = method {
                    return Ok(());
                }
            }
        };
        match timeout(ANSWER_TIMEOUT, closed).await {
            Ok(closed) => closed,
            Err(_) => Err(ClientError::Timeout("connection.close")),
        }
    }
}
