//! A broker with one queue in memory that can lose, double or reorder messages.

use bytes::{Bytes, BytesMut};
use quorate_amqp::codec::cold::{Cold, basic, channel, confirm, connection, queue};
use quorate_amqp::codec::content::{self, ContentHeader};
use quorate_amqp::codec::frame::{self, Kind};
use quorate_amqp::codec::hot;
use quorate_amqp::codec::method::Method;
use quorate_types::ShortString;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const FRAME_MAX: u32 = 8192;

/// The faults of the broker, by the number of the publish on its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lose: Option<u64>,
    pub(super) double: Option<u64>,
    /// Delivered after the next message.
    pub(super) late: Option<u64>,
    /// Refused with basic.nack, and not delivered.
    pub(super) refuse: Option<u64>,
    /// Never confirmed, though delivered.
    pub(super) silent: Option<u64>,
    /// Number of publishes that one confirm settles.
    pub(super) confirm_every: u64,
}

type Consumer = (ShortString, mpsc::UnboundedSender<(ShortString, Bytes)>);

#[derive(Default)]
struct Queue {
    waiting: Vec<Bytes>,
    consumer: Option<Consumer>,
    held_back: Option<Bytes>,
}

impl Queue {
    fn add(&mut self, body: Bytes) {
        match &self.consumer {
            Some((tag, deliveries)) => {
                let _ = deliveries.send((tag.clone(), body));
            }
            None => self.waiting.push(body),
        }
    }
}

struct Session {
    stream: TcpStream,
    out: BytesMut,
    queue: Arc<Mutex<Queue>>,
    faults: Faults,
    deliveries: mpsc::UnboundedSender<(ShortString, Bytes)>,
    publishes: u64,
    delivered: u64,
    acknowledged: Arc<Mutex<u64>>,
    /// A publish whose body is incomplete.
    open: Option<(u64, Vec<u8>)>,
}

/// Starts the broker: returns its address, and the highest delivery tag acknowledged to it.
pub(super) async fn start(faults: Faults) -> (SocketAddr, Arc<Mutex<u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let queue = Arc::new(Mutex::new(Queue::default()));
    let acknowledged = Arc::new(Mutex::new(0));
    let acks = Arc::clone(&acknowledged);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (deliveries, inbox) = mpsc::unbounded_channel();
            let session = Session {
                stream,
                out: BytesMut::new(),
                queue: Arc::clone(&queue),
                faults,
                deliveries,
                publishes: 0,
                delivered: 0,
                acknowledged: Arc::clone(&acks),
                open: None,
            };
            tokio::spawn(session.serve(inbox));
        }
    });
    (at, acknowledged)
}

impl Session {
    async fn serve(mut self, mut inbox: mpsc::UnboundedReceiver<(ShortString, Bytes)>) {
        let mut header = [0; 8];
        self.stream.read_exact(&mut header).await.unwrap();
        let mechanisms = Bytes::from_static(b"PLAIN AMQPLAIN");
        self.send(0, connection::Start { mechanisms, ..Default::default() });
        let mut input = BytesMut::new();
        loop {
            self.stream.write_all(&self.out).await.unwrap();
            self.out.clear();
            tokio::select! {
                read = self.stream.read_buf(&mut input) => {
                    if !read.is_ok_and(|bytes| bytes > 0) {
                        return;
                    }
                    while let Some(frame) = frame::take(&mut input, FRAME_MAX).unwrap() {
                        match frame.kind {
                            Kind::Method => self.method(Method::decode(frame.payload).unwrap()),
                            Kind::Header => {
                                let header = ContentHeader::decode(frame.payload).unwrap();
                                self.open = Some((header.body_bytes, Vec::new()));
                                self.piece(&[]);
                            }
                            Kind::Body => self.piece(&frame.payload),
                            Kind::Heartbeat => {}
                        }
                    }
                }
                Some((tag, body)) = inbox.recv() => self.deliver(tag, &body),
            }
        }
    }

    fn send(&mut self, channel: u16, method: impl Into<Cold>) {
        method.into().put(&mut self.out, channel);
    }

    fn deliver(&mut self, consumer_tag: ShortString, body: &[u8]) {
        self.delivered += 1;
        let deliver = hot::Deliver {
            consumer_tag,
            delivery_tag: self.delivered,
            redelivered: false,
            exchange: ShortString::EMPTY,
            routing_key: ShortString::EMPTY,
        };
        deliver.put(&mut self.out, 1);
        content::put(&mut self.out, 1, &[0, 0], body, FRAME_MAX);
    }

    fn method(&mut self, method: Method) {
        let cold = match method {
            Method::Cold(cold) => *cold,
            Method::Ack(ack) => {
                *self.acknowledged.lock().unwrap() = ack.delivery_tag;
                return;
            }
            _ => return,
        };
        match cold {
            Cold::Connection(connection::Method::StartOk(_)) => {
                let tune =
                    connection::Tune { channel_max: 10, frame_max: FRAME_MAX, heartbeat: 60 };
                self.send(0, tune);
            }
            Cold::Connection(connection::Method::Open(_)) => {
                self.send(0, connection::OpenOk::default());
            }
            Cold::Connection(connection::Method::Close(_)) => {
                self.send(0, connection::CloseOk::default());
            }
            Cold::Channel(channel::Method::Open(_)) => self.send(1, channel::OpenOk::default()),
            Cold::Confirm(confirm::Method::Select(_)) => {
                self.send(1, confirm::SelectOk::default());
            }
            Cold::Queue(queue::Method::Declare(_)) => self.send(1, queue::DeclareOk::default()),
            Cold::Queue(queue::Method::Purge(_)) => self.send(1, queue::PurgeOk::default()),
            Cold::Queue(queue::Method::Delete(_)) => self.send(1, queue::DeleteOk::default()),
            Cold::Basic(basic::Method::Qos(_)) => self.send(1, basic::QosOk::default()),
            Cold::Basic(basic::Method::Consume(consume)) => {
                let mut queue = self.queue.lock().unwrap();
                queue.consumer = Some((consume.consumer_tag, self.deliveries.clone()));
                for body in std::mem::take(&mut queue.waiting) {
                    queue.add(body);
                }
            }
            _ => {}
        }
    }

    fn piece(&mut self, part: &[u8]) {
        let (bytes, mut body) = self.open.take().unwrap();
        body.extend_from_slice(part);
        if (body.len() as u64) < bytes {
            self.open = Some((bytes, body));
            return;
        }
        self.publishes += 1;
        self.published(self.publishes, Bytes::from(body));
    }

    fn published(&mut self, number: u64, body: Bytes) {
        let is = |fault: Option<u64>| fault == Some(number);
        let faults = self.faults;
        if is(faults.refuse) {
            hot::Nack { delivery_tag: number, multiple: false, requeue: false }
                .put(&mut self.out, 1);
            return;
        }
        {
            let mut queue = self.queue.lock().unwrap();
            if is(faults.late) {
                queue.held_back = Some(body);
            } else if !is(faults.lose) {
                if is(faults.double) {
                    queue.add(body.clone());
                }
                queue.add(body);
                if let Some(late) = queue.held_back.take() {
                    queue.add(late);
                }
            }
        }
        let every = faults.confirm_every.max(1);
        let crosses_fault =
            [faults.refuse, faults.silent].iter().flatten().any(|fault| number > *fault);
        if is(faults.silent) {
            return;
        }
        if crosses_fault || faults.silent.is_some() {
            // One by one, so that publishes with a fault are not settled too.
            hot::Ack { delivery_tag: number, multiple: false }.put(&mut self.out, 1);
        } else if number.is_multiple_of(every) {
            hot::Ack { delivery_tag: number, multiple: every > 1 }.put(&mut self.out, 1);
        }
    }
}
