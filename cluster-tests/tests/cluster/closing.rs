//! What comes last: on a connection that is closed, of a consumer that is cancelled, of a queue that is
//! deleted (CONN-26, CONN-27, CON-09, DEL-04).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::wire::{self, Frame, Wire, frame};
use quorate_cluster_tests::harness::{Cluster, Options};

const CLOSE_OK: (u16, u16) = (10, 51);
const DELIVER: (u16, u16) = (60, 60);
const CANCEL_OK: (u16, u16) = (60, 31);

fn method(class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    [&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat()
}

/// A whole publish on channel 1.
fn publish(queue: &str, body: &[u8]) -> Vec<u8> {
    [
        frame(wire::METHOD, 1, &method(60, 40, &wire::basic_publish(queue, false))),
        frame(wire::HEADER, 1, &wire::content_header(60, body.len() as u64, None)),
        frame(wire::BODY, 1, body),
    ]
    .concat()
}

/// More than sockets hold.
fn many_publishes() -> Vec<u8> {
    publish("nowhere", &[1; 64 << 10]).repeat(256)
}

/// The broker has said that it sends nothing more, and reads on: what is sent is not answered with a
/// reset, which would show with the second sending.
async fn is_read_on(wire: &mut Wire) {
    assert_eq!(wire.next().await, None);
    for _ in 0..2 {
        wire.try_send(&many_publishes()).await.expect("it is read and thrown away");
    }
}

/// CONN-27: publishes of other threads may still be in a client's buffers when it closes.
#[tokio::test(flavor = "multi_thread")]
async fn conn_27_a_client_that_goes_on_writing_gets_its_close_ok() {
    let cluster = Cluster::start(1, Options::default()).await;
    let mut wire = Wire::open_channel(&cluster.node(1).amqp_address()).await;
    let close = [&200_u16.to_be_bytes()[..], &wire::short("done"), &[0; 4]].concat();
    wire.method(0, 10, 50, &close).await;
    wire.try_send(&many_publishes()).await.expect("no reset");
    assert_eq!(wire.next().await.as_ref().and_then(Frame::method), Some(CLOSE_OK));
    is_read_on(&mut wire).await;
}

/// CONN-26: of a close by the broker too.
#[tokio::test(flavor = "multi_thread")]
async fn conn_26_a_client_that_goes_on_writing_reads_why_it_is_closed() {
    let cluster = Cluster::start(1, Options::default()).await;
    let mut wire = Wire::open_channel(&cluster.node(1).amqp_address()).await;
    // A second connection.open.
    wire.method(0, 10, 40, &[1, b'/', 0, 0]).await;
    wire.try_send(&many_publishes()).await.expect("no reset");
    let close = wire.next().await.expect("a close");
    assert_eq!(close.method(), Some((10, 50)));
    wire.method(0, 10, 51, &[]).await;
    is_read_on(&mut wire).await;
}

/// What the channel published before the cancel has come, or has been refused to, the consumer when
/// cancel-ok comes; as on the peer, which handles both in their order.
#[tokio::test(flavor = "multi_thread")]
async fn con_09_what_was_published_before_a_cancel_is_delivered_before_cancel_ok() {
    const MESSAGES: usize = 500;
    let cluster = Cluster::start(3, Options::default()).await;
    for node in cluster.nodes() {
        for (queue, exclusive) in [("shared", false), ("own", true)] {
            let queue = format!("{queue}-{}", node.id());
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            let mut declare = wire::queue_declare(&queue, &[]);
            if exclusive {
                let bits = declare.len() - 5;
                declare.get_mut(bits).map(|bits| *bits = 0b100).expect("the bits");
            }
            wire.method(1, 50, 10, &declare).await;
            wire.expect(1, 50, 11).await;
            for no_ack in [true, false] {
                wire.method(1, 60, 20, &wire::basic_consume(&queue, no_ack)).await;
                let tag = wire.expect(1, 60, 21).await.arguments().to_vec();
                let mut all = publish(&queue, b"hello").repeat(MESSAGES);
                let cancel = method(60, 30, &[&tag[..], &[0]].concat());
                all.extend(frame(wire::METHOD, 1, &cancel));
                wire.send(&all).await;
                let mut delivered = 0;
                loop {
                    let frame = wire.next().await.expect("the connection stays");
                    match frame.method() {
                        Some(DELIVER) => delivered += 1,
                        Some(CANCEL_OK) => break,
                        Some(_) | None => {}
                    }
                }
                assert_eq!(delivered, MESSAGES, "{queue}, no-ack {no_ack}");
            }
        }
    }
}

/// DEL-04: also where the consumer is on another channel.
#[tokio::test(flavor = "multi_thread")]
async fn del_04_delete_ok_comes_before_the_cancels_that_it_causes() {
    let cluster = Cluster::start(3, Options::default()).await;
    let notify = [&wire::short("consumer_cancel_notify")[..], b"t\x01"].concat();
    let properties = [&wire::short("capabilities")[..], b"F", &wire::long(&notify)].concat();
    let mut wire = Wire::open_as(&cluster.node(1).amqp_address(), &properties).await;
    for channel in [1, 2] {
        wire.method(channel, 20, 10, &[0]).await;
        wire.expect(channel, 20, 11).await;
    }
    for queue in ["one", "two", "three"] {
        wire.method(2, 50, 10, &wire::queue_declare(queue, &[])).await;
        wire.expect(2, 50, 11).await;
        for channel in [1, 2] {
            wire.method(channel, 60, 20, &wire::basic_consume(queue, false)).await;
            wire.expect(channel, 60, 21).await;
        }
        let delete = [&[0, 0][..], &wire::short(queue), &[0]].concat();
        wire.method(2, 50, 40, &delete).await;
        wire.expect(2, 50, 41).await;
        let mut cancelled = Vec::new();
        for _ in 0..2 {
            let cancel = wire.next().await.expect("a cancel");
            assert_eq!(cancel.method(), Some((60, 30)), "{queue}");
            cancelled.push(cancel.channel);
        }
        cancelled.sort_unstable();
        assert_eq!(cancelled, [1, 2]);
    }
}
