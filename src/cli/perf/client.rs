//! A small AMQP client: connects, declares, and hands the connection over to the hot loops.

use super::inbox::Inbox;
use super::scan::{self, METHOD, ScanError};
use super::uri::Uri;
use bytes::{Bytes, BytesMut};
use quorate_amqp::codec::PROTOCOL_HEADER;
use quorate_amqp::codec::cold::{Cold, basic, channel, confirm, connection, queue};
use quorate_amqp::codec::method::Method;
use quorate_types::{FieldTable, FieldValue, NameError, ShortString};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Largest frame that is agreed to.
const FRAME_MAX: u32 = 131_072;
/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Declares sent before their answers are read.
const PIPELINE: usize = 64;
/// The channel that everything happens on.
pub(crate) const CHANNEL: u16 = 1;

/// Why a connection is of no use.
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
    Name(#[from] NameError),
}

/// An open connection with an open channel.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) inbox: Inbox,
    pub(crate) frame_max: u32,
}

/// What a server method means to a client that did not expect it.
pub(crate) fn unexpected(method: &Method) -> ScanError {
    let Method::Cold(cold) = method else { return ScanError::Unexpected("message") };
    if let Some(why) = closed(cold) {
        return why;
    }
    if let Cold::Basic(basic::Method::Cancel(_)) = cold.as_ref() {
        return ScanError::Closed(
            "a consumer was cancelled because its queue was deleted".to_owned(),
        );
    }
    ScanError::Unexpected(cold.name())
}

/// Why the server closes, if that is what the method does.
fn closed(cold: &Cold) -> Option<ScanError> {
    let (code, text) = if let Cold::Connection(connection::Method::Close(close)) = cold {
        (close.reply_code, &close.reply_text)
    } else if let Cold::Channel(channel::Method::Close(close)) = cold {
        (close.reply_code, &close.reply_text)
    } else {
        return None;
    };
    Some(ScanError::Closed(format!("{code} {text}")))
}

/// `connection.blocked`: true; `connection.unblocked`: false.
pub(crate) fn blocked(method: &Method) -> Option<bool> {
    let Method::Cold(cold) = method else { return None };
    if let Cold::Connection(connection::Method::Blocked(_)) = cold.as_ref() {
        Some(true)
    } else if let Cold::Connection(connection::Method::Unblocked(_)) = cold.as_ref() {
        Some(false)
    } else {
        None
    }
}

impl Client {
    /// Connects, and opens a channel.
    pub(crate) async fn connect(uri: &Uri) -> Result<Self, ClientError> {
        let address = format!("{}:{}", uri.host, uri.port);
        let connecting = TcpStream::connect((uri.host.as_str(), uri.port));
        let stream = match timeout(ANSWER_TIMEOUT, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(source)) => return Err(ClientError::Connect { address, source }),
            Err(_) => return Err(ClientError::Timeout("connect")),
        };
        stream.set_nodelay(true)?;
        let inbox = Inbox::new(usize::try_from(FRAME_MAX).unwrap_or(usize::MAX));
        let mut client = Self { stream, inbox, frame_max: FRAME_MAX };
        client.handshake(uri).await?;
        client.ask(CHANNEL, channel::Open::default(), "channel.open").await?;
        Ok(client)
    }

    async fn handshake(&mut self, uri: &Uri) -> Result<(), ClientError> {
        self.stream.write_all(&PROTOCOL_HEADER).await?;
        self.answer("the protocol header").await?;
        let capability =
            |name: &'static str| (ShortString::from_static(name), FieldValue::Bool(true));
        let capabilities = FieldTable(vec![
            capability("publisher_confirms"),
            capability("basic.nack"),
            capability("consumer_cancel_notify"),
            capability("connection.blocked"),
            capability("authentication_failure_close"),
        ]);
        let client_properties = FieldTable(vec![
            (ShortString::from_static("product"), FieldValue::text("quorate perf")),
            (ShortString::from_static("capabilities"), FieldValue::Table(capabilities)),
        ]);
        let start_ok = connection::StartOk {
            client_properties,
            mechanism: ShortString::from_static("PLAIN"),
            response: Bytes::from(format!("\0{}\0{}", uri.user, uri.password)),
            locale: ShortString::from_static("en_US"),
        };
        let tune = self.ask(0, start_ok, "connection.start-ok").await?;
        let Cold::Connection(connection::Method::Tune(tune)) = tune else {
            return Err(ScanError::Unexpected(tune.name()).into());
        };
        if tune.frame_max != 0 {
            self.frame_max = tune.frame_max.min(FRAME_MAX);
        }
        let tune_ok = connection::TuneOk {
            channel_max: tune.channel_max,
            frame_max: self.frame_max,
            // None: a run that stands still is noticed by its rates.
            heartbeat: 0,
        };
        self.tell(0, tune_ok).await?;
        let virtual_host = ShortString::try_from(uri.vhost.as_str())?;
        let open = connection::Open { virtual_host, ..connection::Open::default() };
        self.ask(0, open, "connection.open").await?;
        Ok(())
    }

    /// Sends a method that has no answer.
    pub(crate) async fn tell(
        &mut self,
        channel: u16,
        method: impl Into<Cold>,
    ) -> Result<(), ClientError> {
        let mut out = BytesMut::new();
        method.into().put(&mut out, channel);
        self.stream.write_all(&out).await?;
        Ok(())
    }

    /// Sends a method and awaits its answer.
    pub(crate) async fn ask(
        &mut self,
        channel: u16,
        method: impl Into<Cold>,
        name: &'static str,
    ) -> Result<Cold, ClientError> {
        self.tell(channel, method).await?;
        self.answer(name).await
    }

    /// The next method that is an answer.
    async fn answer(&mut self, to: &'static str) -> Result<Cold, ClientError> {
        match timeout(ANSWER_TIMEOUT, self.method()).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Timeout(to)),
        }
    }

    async fn method(&mut self) -> Result<Cold, ClientError> {
        loop {
            while let Some(frame) = self.inbox.next()? {
                if frame.kind != METHOD {
                    continue;
                }
                // Deliveries and confirms that are still under way are nobody's any more.
                let scan::Hot::Other(method) = scan::method(frame.payload)? else { continue };
                if blocked(&method).is_some() {
                    continue;
                }
                let Method::Cold(cold) = *method else { continue };
                match closed(&cold) {
                    Some(why) => return Err(why.into()),
                    None => return Ok(*cold),
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
        arguments: &[(String, FieldValue)],
    ) -> Result<(), ClientError> {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.0.push((ShortString::try_from(name.as_str())?, value.clone()));
        }
        self.for_each(names, "queue.declare", |name| {
            let declare = queue::Declare {
                queue: name.clone(),
                durable: true,
                arguments: table.clone(),
                ..queue::Declare::default()
            };
            declare.into()
        })
        .await
    }

    /// Purges queues.
    pub(crate) async fn purge(&mut self, names: &[ShortString]) -> Result<(), ClientError> {
        let purge = |name: &ShortString| {
            queue::Purge { queue: name.clone(), ..queue::Purge::default() }.into()
        };
        self.for_each(names, "queue.purge", purge).await
    }

    /// Deletes queues.
    pub(crate) async fn delete(&mut self, names: &[ShortString]) -> Result<(), ClientError> {
        let delete = |name: &ShortString| {
            queue::Delete { queue: name.clone(), ..queue::Delete::default() }.into()
        };
        self.for_each(names, "queue.delete", delete).await
    }

    async fn for_each(
        &mut self,
        names: &[ShortString],
        what: &'static str,
        method: impl Fn(&ShortString) -> Cold,
    ) -> Result<(), ClientError> {
        for names in names.chunks(PIPELINE) {
            let mut out = BytesMut::new();
            names.iter().for_each(|name| method(name).put(&mut out, CHANNEL));
            self.stream.write_all(&out).await?;
            for _ in names {
                self.answer(what).await?;
            }
        }
        Ok(())
    }

    /// Puts the channel into confirm mode.
    pub(crate) async fn confirm(&mut self) -> Result<(), ClientError> {
        self.ask(CHANNEL, confirm::Select::default(), "confirm.select").await.map(|_| ())
    }

    /// Sets the prefetch of the consumers to come.
    pub(crate) async fn prefetch(&mut self, prefetch_count: u16) -> Result<(), ClientError> {
        let qos = basic::Qos { prefetch_count, ..basic::Qos::default() };
        self.ask(CHANNEL, qos, "basic.qos").await.map(|_| ())
    }

    /// Consumes from a queue, without awaiting the answer, since deliveries may come before it.
    pub(crate) async fn consume(
        &mut self,
        queue: &ShortString,
        tag: u32,
        no_ack: bool,
    ) -> Result<(), ClientError> {
        let consume = basic::Consume {
            queue: queue.clone(),
            consumer_tag: ShortString::try_from(tag.to_string())?,
            no_ack,
            nowait: true,
            ..basic::Consume::default()
        };
        self.tell(CHANNEL, consume).await
    }

    /// Closes the connection; what comes until close-ok is passed over.
    pub(crate) async fn close(mut self) -> Result<(), ClientError> {
        let close = connection::Close {
            reply_code: 200,
            reply_text: ShortString::from_static("done"),
            ..connection::Close::default()
        };
        self.tell(0, close).await?;
        let closed = async {
            loop {
                let method = self.method().await?;
                if let Cold::Connection(connection::Method::CloseOk(_)) = method {
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
