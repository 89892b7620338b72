//! What bad input gets: the connection is closed with the right code, the node lives and serves, and
//! its memory does not move (FRM, Q-02 to Q-04).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::publish_confirmed;
use quorate_cluster_tests::harness::amqp::{connect, declare_quorum, get, open_confirming};
use quorate_cluster_tests::harness::wire::{self, Wire, frame, frame_head};
use quorate_cluster_tests::harness::{Cluster, Node, Options};

/// What an honest broker's memory moves by from one moment to the next.
const MEMORY_BOUND: u64 = 48 << 20;
/// Each bad thing is sent so often: what leaks a little leaks it often.
const ROUNDS: usize = 8;

/// Sends `bytes` on fresh connections with an open channel, many at once; the broker must close each
/// with `code`, and live.
async fn closes(node: &Node, bytes: &[u8], code: u16) {
    let rounds = (0..ROUNDS).map(|_| async {
        let mut wire = Wire::open_channel(&node.amqp_address()).await;
        wire.send(bytes).await;
        let close = wire.closed().await.expect("a connection.close before the end");
        assert_eq!(close.code, code, "{close:?}");
    });
    futures::future::join_all(rounds).await;
}

/// A node that serves, before and after `bad`, without its memory having moved.
async fn lives_through(bad: impl AsyncFnOnce(&Node)) {
    let cluster = Cluster::start(1, Options::default()).await;
    let node = cluster.node(1);
    let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_quorum(&channel, "witness").await;
    publish_confirmed(&channel, "witness", b"before").await;
    let before = node.rss_bytes();
    bad(node).await;
    let after = node.rss_bytes();
    assert!(after < before + MEMORY_BOUND, "memory went from {before} to {after} bytes");
    publish_confirmed(&channel, "witness", b"after").await;
    for body in [&b"before"[..], b"after"] {
        assert_eq!(get(&channel, "witness").await.as_deref(), Some(body));
    }
    connect(&node.amqp_uri()).await;
}

fn method(class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    let mut payload = class.to_be_bytes().to_vec();
    payload.extend(method.to_be_bytes());
    payload.extend(arguments);
    payload
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_none_are_501() {
    lives_through(async |node| {
        let mut wrong_end = frame(wire::METHOD, 1, &method(20, 10, &[0]));
        *wrong_end.last_mut().expect("an end") = b'X';
        // FRM-02.
        closes(node, &wrong_end, 501).await;
        // FRM-03.
        closes(node, &frame(4, 1, b"abcd"), 501).await;
        // FRM-05.
        closes(node, &frame(wire::HEARTBEAT, 0, b"payload"), 501).await;
        // FRM-11 and Q-04: fields too short, and bytes left over.
        closes(node, &frame(wire::METHOD, 1, &method(50, 10, &[0])), 501).await;
        closes(node, &frame(wire::METHOD, 1, &method(60, 10, &[0; 64])), 501).await;
        // A method frame without room for a method.
        closes(node, &frame(wire::METHOD, 1, &[0, 20]), 501).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_beyond_the_limit_is_501_before_its_bytes_are_awaited() {
    lives_through(async |node| {
        // FRM-01: one byte more than is tolerated, and 4 GiB; only the head is sent.
        for size in [131_072 + 1, u32::MAX] {
            for kind in [wire::METHOD, wire::HEADER, wire::BODY] {
                closes(node, &frame_head(kind, 1, size), 501).await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_length_of_4_gib_inside_a_frame_takes_no_memory() {
    lives_through(async |node| {
        // A table in queue.declare that claims 4 GiB, in a frame of a few bytes.
        let mut table = vec![0, 0];
        table.extend(wire::short("q"));
        table.extend([0, 255, 255, 255, 255]);
        closes(node, &frame(wire::METHOD, 1, &method(50, 10, &table)), 501).await;
        // A long string inside a table that claims more than the table has.
        let field = [wire::short("k"), vec![b'S', 255, 255, 255, 255]].concat();
        let lying = wire::queue_declare("q", &field);
        closes(node, &frame(wire::METHOD, 1, &method(50, 10, &lying)), 501).await;
        // FRM-09: a body of more than 512 MiB is refused from its header.
        for size in [536_870_913, u64::from(u32::MAX), u64::MAX] {
            closes(node, &publish(&wire::content_header(60, size, None)), 501).await;
        }
    })
    .await;
}

/// basic.publish and its content header.
fn publish(header: &[u8]) -> Vec<u8> {
    let publish = method(60, 40, &wire::basic_publish("witness-not", false));
    [frame(wire::METHOD, 1, &publish), frame(wire::HEADER, 1, header)].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_larger_than_allowed_is_406_without_being_kept() {
    lives_through(async |node| {
        // PUB-02 and Q-05: allowed by the frame rules, but not by the setting.
        let mut wire = Wire::open_channel(&node.amqp_address()).await;
        wire.send(&publish(&wire::content_header(60, (16 << 20) + 1, None))).await;
        let piece = frame(wire::BODY, 1, &vec![0; 64 << 10]);
        for _ in 0..256 {
            wire.send(&piece).await;
        }
        wire.send(&frame(wire::BODY, 1, &[0])).await;
        let close = wire.channel_close(1).await.expect("channel.close");
        assert_eq!(close.code, 406, "{close:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_and_frames_out_of_place_get_their_codes() {
    lives_through(async |node| {
        // FRM-12 and Q-04: no such method, no such class.
        closes(node, &frame(wire::METHOD, 1, &method(60, 999, &[])), 540).await;
        closes(node, &frame(wire::METHOD, 1, &method(999, 10, &[])), 540).await;
        // FRM-12: a method that only servers send.
        closes(node, &frame(wire::METHOD, 1, &method(50, 11, &[0; 9])), 503).await;
        // FRM-13: a method on a channel that is not open.
        closes(node, &frame(wire::METHOD, 7, &method(60, 10, &[0; 7])), 504).await;
        // FRM-06: a body and a header where a method is due, on an open channel and a closed one.
        for channel in [1, 7] {
            closes(node, &frame(wire::BODY, channel, b"body"), 505).await;
            let header = wire::content_header(60, 4, None);
            closes(node, &frame(wire::HEADER, channel, &header), 505).await;
        }
        // FRM-04, FRM-05.
        closes(node, &frame(wire::BODY, 0, b"body"), 505).await;
        closes(node, &frame(wire::HEARTBEAT, 1, b""), 505).await;
        // FRM-07: a body without a header, a header of another class.
        let publish = frame(wire::METHOD, 1, &method(60, 40, &wire::basic_publish("q", false)));
        closes(node, &[publish.clone(), frame(wire::BODY, 1, b"body")].concat(), 505).await;
        let other = frame(wire::HEADER, 1, &wire::content_header(50, 4, None));
        closes(node, &[publish, other].concat(), 505).await;
        // CHN-04.
        closes(node, &frame(wire::METHOD, 1, &method(20, 10, &[0])), 504).await;
        // CONN-23: a handshake method when the handshake is over.
        closes(node, &frame(wire::METHOD, 0, &method(10, 40, &[1, b'/', 0, 0])), 504).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_nested_8000_deep_do_not_reach_the_stack() {
    lives_through(async |node| {
        // What a frame of 8 KiB has room for, before anyone has logged in (FRM-01).
        let early = wire::nested_arrays(1_000);
        for _ in 0..ROUNDS {
            let mut wire = Wire::connect(&node.amqp_address()).await;
            wire.send(wire::PROTOCOL_HEADER).await;
            wire.expect(0, 10, 10).await;
            wire.method(0, 10, 11, &wire::start_ok(&early)).await;
            let close = wire.closed().await.expect("a connection.close before the end");
            assert_eq!(close.code, 502, "{close:?}");
        }
        let nested = wire::nested_arrays(8_000);
        let declare = method(50, 10, &wire::queue_declare("nested", &nested));
        closes(node, &frame(wire::METHOD, 1, &declare), 502).await;
        // FRM-11: headers of a content.
        let header = wire::content_header(60, 0, Some(&nested));
        closes(node, &publish(&header), 541).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_protocols_are_told_which_one_is_spoken() {
    lives_through(async |node| {
        // AMQP 1.0 with and without SASL, 0-8, and things that are no AMQP.
        for header in [
            &b"AMQP\x03\x01\x00\x00"[..],
            b"AMQP\x00\x01\x00\x00",
            b"AMQP\x01\x01\x08\x00",
            b"AMQP\x00\x00\x09\x02",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        ] {
            let mut wire = Wire::connect(&node.amqp_address()).await;
            wire.send(header).await;
            let answer = wire.rest().await;
            assert_eq!(answer, wire::PROTOCOL_HEADER, "{header:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negotiation_out_of_range_is_530() {
    lives_through(async |node| {
        // channel-max, frame-max, heartbeat.
        for (channel_max, frame_max) in
            [(0_u16, 131_072_u32), (u16::MAX, 131_072), (2047, 0), (2047, 1000), (2047, 1 << 30)]
        {
            let mut wire = Wire::connect(&node.amqp_address()).await;
            wire.send(wire::PROTOCOL_HEADER).await;
            wire.expect(0, 10, 10).await;
            wire.method(0, 10, 11, &wire::start_ok(&[])).await;
            wire.expect(0, 10, 30).await;
            let tune = [&channel_max.to_be_bytes()[..], &frame_max.to_be_bytes(), &[0, 0]];
            wire.method(0, 10, 31, &tune.concat()).await;
            let close = wire.closed().await.expect("a connection.close before the end");
            assert_eq!(close.code, 530, "{channel_max}, {frame_max}: {close:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_survived() {
    lives_through(async |node| {
        // A small generator of its own, so that a failure can be had again.
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut noise = move |length: usize| -> Vec<u8> {
            let byte = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            };
            std::iter::repeat_with(byte).take(length).collect()
        };
        for length in [1, 7, 8, 100, 10_000, 200_000] {
            let mut wire = Wire::connect(&node.amqp_address()).await;
            wire.send(&noise(length)).await;
            drop(wire);
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            wire.send(&noise(length)).await;
            drop(wire);
            // Noise in good frames.
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            for kind in [wire::METHOD, wire::HEADER, wire::BODY] {
                wire.send(&frame(kind, 1, &noise(length.min(100_000)))).await;
            }
        }
    })
    .await;
}
