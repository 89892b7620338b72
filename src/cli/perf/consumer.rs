//! One consumer: reads and acknowledges deliveries, and records latencies and arrivals.

use super::client::{CHANNEL, Client, ClientError, unexpected};
use super::message::{self, HEAD_BYTES, Head};
use super::scan::{self, BODY, Frame, HEADER, HEARTBEAT, Hot, METHOD, ScanError};
use super::shared::{Latencies, Phase, Shared, latencies, record};
use super::verify::{Arrival, Order};
use bytes::BytesMut;
use quorate_amqp::codec::hot;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::sleep;

/// Longest time that a delivery waits to be acknowledged together with others.
const ACK_DELAY: Duration = Duration::from_millis(50);

/// The result of a consumer.
#[derive(Debug)]
pub(crate) struct Consumed {
    pub(crate) latencies: Latencies,
    pub(crate) reordered: u64,
    pub(crate) error: Option<String>,
}

/// A delivery whose body is incomplete.
#[derive(Clone, Copy, Debug)]
struct Open {
    delivery_tag: u64,
    redelivered: bool,
    queue: u32,
    /// Bytes of the body that have not arrived yet; `None` before the header.
    left: Option<u64>,
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
}

/// How a consumer settles deliveries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settling {
    /// Number of deliveries that are settled together; 0: the broker acknowledges.
    pub(crate) every: u64,
    /// True if it rejects deliveries.
    pub(crate) nack: bool,
}

struct Consumer {
    shared: Arc<Shared>,
    settling: Settling,
    unacked: u64,
    last_tag: u64,
    open: Option<Open>,
    arrivals: Vec<Arrival>,
    order: Order,
    latencies: Latencies,
    acks: BytesMut,
}

/// Consumes until the phase is `Stop`. `client` has sent its consumes already.
pub(crate) async fn consume(
    at: u16,
    client: Client,
    settling: Settling,
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
) -> Consumed {
    let mut consumer = Consumer {
        shared,
        settling,
        unacked: 0,
        last_tag: 0,
        open: None,
        arrivals: Vec::new(),
        order: Order::default(),
        latencies: latencies(),
        acks: BytesMut::new(),
    };
    let error = consumer.run(client, phase).await.err();
    Consumed {
        latencies: consumer.latencies,
        reordered: consumer.order.reordered,
        error: error.map(|error| format!("consumer {}: {error}", at + 1)),
    }
}

impl Consumer {
    async fn run(
        &mut self,
        mut client: Client,
        mut phase: watch::Receiver<Phase>,
    ) -> Result<(), ClientError> {
        loop {
            self.deliveries(&mut client)?;
            if !self.acks.is_empty() {
                client.stream.write_all(&self.acks).await?;
                self.acks.clear();
            }
            if *phase.borrow_and_update() == Phase::Stop {
                break;
            }
            tokio::select! {
                read = client.stream.read(client.inbox.room()) => {
                    let bytes = read?;
                    if bytes == 0 {
                        return Err(ClientError::Ended);
                    }
                    client.inbox.filled(bytes);
                }
                () = sleep(ACK_DELAY), if self.unacked > 0 => self.acknowledge(),
                changed = phase.changed() => if changed.is_err() { break },
            }
        }
        self.acknowledge();
        client.stream.write_all(&self.acks).await?;
        client.close().await
    }

    /// Handles the frames that were read.
    fn deliveries(&mut self, client: &mut Client) -> Result<(), ClientError> {
        let now_ns = self.shared.now_ns();
        let measuring = self.shared.is_measuring();
        let mut received = 0;
        while let Some(frame) = client.inbox.next()? {
            if let Some(open) = self.frame(frame)? {
                received += 1;
                self.arrived(open, measuring.then_some(now_ns));
            }
        }
        if received > 0 {
            self.shared.received.fetch_add(received, Relaxed);
            if let Some(ledger) = &self.shared.ledger {
                ledger.lock().record(&self.arrivals);
                self.arrivals.clear();
            }
        }
        Ok(())
    }

    /// Handles a frame; returns the delivery that it completes.
    fn frame(&mut self, frame: Frame<'_>) -> Result<Option<Open>, ClientError> {
        match (frame.kind, self.open.as_mut()) {
            (METHOD, None) => {
                self.method(frame.payload)?;
                return Ok(None);
            }
            (HEADER, Some(open)) if open.left.is_none() => {
                let size = frame.payload.get(4..12).and_then(|bytes| bytes.first_chunk::<8>());
                let size = size.ok_or(ScanError::Unexpected("short content header"))?;
                open.left = Some(u64::from_be_bytes(*size));
            }
            (BODY, Some(open)) => {
                let bytes = frame.payload.len() as u64;
                let left = open.left.and_then(|left| left.checked_sub(bytes));
                open.left = Some(left.ok_or(ScanError::Unexpected("body frame"))?);
                let room = open.head.iter_mut().skip(open.head_bytes);
                room.zip(frame.payload).for_each(|(slot, byte)| *slot = *byte);
                open.head_bytes = (open.head_bytes + frame.payload.len()).min(HEAD_BYTES);
            }
            // Heartbeats may arrive between any two frames.
            (HEARTBEAT, _) => return Ok(None),
            _ => return Err(ScanError::Unexpected("frame").into()),
        }
        let complete = self.open.is_some_and(|open| open.left == Some(0));
        Ok(if complete { self.open.take() } else { None })
    }

    fn method(&mut self, payload: &[u8]) -> Result<(), ClientError> {
        match scan::method(payload)? {
            Hot::Deliver { consumer_tag, delivery_tag, redelivered } => {
                self.open = Some(Open {
                    delivery_tag,
                    redelivered,
                    queue: number(consumer_tag),
                    left: None,
                    head: [0; HEAD_BYTES],
                    head_bytes: 0,
                });
                Ok(())
            }
            Hot::Ack { .. } | Hot::Nack { .. } => {
                Err(ScanError::Unexpected("publisher confirm").into())
            }
            Hot::Other(method) => Err(unexpected(*method).into()),
        }
    }

    /// Handles a complete delivery; `now_ns` if its latency is to be recorded.
    fn arrived(&mut self, open: Open, now_ns: Option<u64>) {
        let body = open.head.get(..open.head_bytes).unwrap_or_default();
        let head = Head::read(body);
        let sent_ns = match head {
            // The message is from another run, whose clock is different.
            Some(head) if head.run != self.shared.run => None,
            Some(head) => Some(head.sent_ns),
            None => message::sent_ns(body),
        };
        if let Some((sent_ns, now_ns)) = sent_ns.zip(now_ns) {
            record(&mut self.latencies, sent_ns, now_ns);
        }
        let own = head.filter(|head| head.run == self.shared.run);
        if let Some(head) = own.filter(|_| self.shared.ledger.is_some()) {
            let arrival = Arrival {
                publisher: head.publisher,
                number: head.number,
                redelivered: open.redelivered,
            };
            self.order.record(open.queue, arrival);
            self.arrivals.push(arrival);
        }
        if self.settling.every > 0 {
            self.last_tag = open.delivery_tag;
            self.unacked += 1;
            if self.unacked >= self.settling.every {
                self.acknowledge();
            }
        }
    }

    /// Settles all deliveries so far.
    fn acknowledge(&mut self) {
        if self.unacked == 0 {
            return;
        }
        let (delivery_tag, multiple) = (self.last_tag, self.unacked > 1);
        if self.settling.nack {
            let nack = hot::Nack { delivery_tag, multiple, requeue: false };
            nack.put(&mut self.acks, CHANNEL);
        } else {
            hot::Ack { delivery_tag, multiple }.put(&mut self.acks, CHANNEL);
        }
        self.unacked = 0;
    }
}

/// The queue's index, which the consumer tag contains.
fn number(tag: &[u8]) -> u32 {
    tag.iter().fold(0, |number: u32, digit| {
        number.wrapping_mul(10).wrapping_add(u32::from(digit.wrapping_sub(b'0')))
    })
}
