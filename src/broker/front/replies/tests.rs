//! Waiting replies are bounded and in order.

use super::*;
use crate::client::{ChannelId, HolderRef};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use quorate_types::{DeliveryNumber, Holder, Home, NodeId};

fn reply(body: usize) -> Delivered {
    let id = ConsumerId {
        session: quorate_types::SessionId { node: NodeId(1), start: quorate_types::StartNumber(1) },
        number: 1,
    };
    Delivered {
        channel: ChannelId { number: 1, opened: 0 },
        consumer: id,
        tag: ShortString::EMPTY,
        holder: HolderRef { home: Home::Node(NodeId(1)), holder: Holder::Consumer(id) },
        number: DeliveryNumber(0),
        no_ack: true,
        redelivered: false,
        counts: None,
        message: quorate_types::Message {
            body: Bytes::from(vec![0; body]),
            ..quorate_types::Message::default()
        },
    }
}

/// DRT-04: waiting replies are bounded; further ones are dropped until some have been read.
#[test]
fn drt_04_replies_to_who_does_not_read_are_dropped() {
    let memory = MemoryBudget::new(1 << 30);
    let replies = Replies::new(&memory);
    let mut accepted = 0;
    while replies.push(reply(1 << 20)) {
        accepted += 1;
    }
    assert_eq!(accepted, 16);
    let mut taken = Vec::new();
    assert!(replies.take(1, &mut taken) > 1 << 20);
    assert_eq!(taken.len(), 1);
    assert!(!replies.is_empty());
    assert!(replies.push(reply(0)));
    replies.take(usize::MAX, &mut taken);
    assert!(replies.is_empty());
    assert_eq!((replies.0.lock().bytes, memory.held_bytes()), (0, 0));
    // A single reply of any size is accepted.
    assert!(replies.push(reply(WAITING_BYTES_MAX * 2)));
}

proptest! {
    /// DRT-04: replies are taken in order, each once, about as many bytes as asked for. No more
    /// wait than the bound and one reply, and the waiting bytes are counted.
    #[test]
    fn drt_04_replies_come_out_in_order_and_are_bounded(
        steps in vec(prop_oneof![
            3 => (0..6_000_000_usize).prop_map(Ok),
            1 => (0..12_000_000_usize).prop_map(Err),
        ], 1..60),
    ) {
        let memory = MemoryBudget::new(1 << 30);
        let (replies, mut model) = (Replies::new(&memory), VecDeque::new());
        for (number, step) in (0..).map(DeliveryNumber).zip(steps) {
            match step {
                Ok(body) => {
                    let one = Delivered { number, ..reply(body) };
                    let waiting: usize = model.iter().map(|(_, bytes)| bytes).sum();
                    let cost = cost_bytes(&one);
                    let pushed = replies.push(one);
                    prop_assert_eq!(pushed, waiting < WAITING_BYTES_MAX);
                    pushed.then(|| model.push_back((number, cost)));
                }
                Err(bytes_max) => {
                    let mut taken = Vec::new();
                    let bytes = replies.take(bytes_max, &mut taken);
                    let numbers = taken.iter().map(|one| (one.number, cost_bytes(one)));
                    let numbers: Vec<_> = numbers.collect();
                    let expected: Vec<_> = model.drain(..numbers.len()).collect();
                    prop_assert_eq!(&numbers, &expected);
                    let costs: Vec<_> = numbers.iter().map(|(_, cost)| *cost).collect();
                    prop_assert_eq!(bytes, costs.iter().sum::<usize>());
                    let last = costs.last().copied().unwrap_or(0);
                    prop_assert!(bytes - last < bytes_max.max(1), "no more than asked for, and one");
                    prop_assert!(bytes >= bytes_max || model.is_empty());
                }
            }
            let waiting: u64 = model.iter().map(|(_, bytes)| *bytes as u64).sum();
            prop_assert_eq!(replies.is_empty(), model.is_empty());
            let held = memory.held_bytes();
            prop_assert!(held <= waiting && waiting < held + (16 << 10), "{} of {}", held, waiting);
        }
    }
}
