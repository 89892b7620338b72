//! The unacked of a channel against a plain map, and settles on their way.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use crate::channel::settle::{Settles, Slot, Unacked, UnknownTag};
use proptest::prelude::*;
use quorate_client::{HolderRef, Settlement};
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, Holder, Home, NodeId, SessionId, StartNumber,
};
use std::collections::BTreeMap;

fn holder(number: u64) -> HolderRef {
    let session = SessionId { node: NodeId(1), start: StartNumber(1) };
    let holder = Holder::Consumer(ConsumerId { session, number });
    HolderRef { home: Home::Group(GroupId(1)), holder }
}

#[derive(Clone, Debug)]
enum Step {
    /// A delivery of one of four consumers.
    Deliver(u8),
    /// A get: a holder of one delivery.
    Get,
    Settle {
        back: u64,
        multiple: bool,
    },
    All,
    /// One of the consumers ends, and another takes its place.
    Replace(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u8).prop_map(Step::Deliver),
        1 => Just(Step::Get),
        5 => (0..40u64, prop::bool::weighted(0.1))
            .prop_map(|(back, multiple)| Step::Settle { back, multiple }),
        1 => (0..4u8).prop_map(Step::Replace),
        1 => Just(Step::All),
    ]
}

proptest! {
    /// TX-08: whatever a transaction has set aside is there again after a rollback, in its order.
    #[test]
    fn tx_08_what_is_put_back_is_in_its_place(
        deliveries in 1..300u64,
        steps in prop::collection::vec((0..300u64, any::<bool>(), any::<bool>()), 0..60),
    ) {
        let mut unacked = Unacked::default();
        let slot = unacked.hold(holder(1));
        (1..=deliveries).for_each(|tag| unacked.push(tag, slot, DeliveryNumber(tag)));
        let mut model: std::collections::BTreeSet<u64> = (1..=deliveries).collect();
        for (tag, multiple, rolled_back) in steps {
            if rolled_back {
                let mut aside = Vec::new();
                let _ = unacked.set_aside(tag, multiple, &mut aside);
                let _ = unacked.set_aside(tag / 2, false, &mut aside);
                unacked.put_back(aside.into_iter().rev());
            } else {
                let told = unacked.settle(tag, multiple && tag > 0, |_, _| ()).is_ok();
                if told && multiple {
                    model.retain(|kept| *kept > tag);
                } else {
                    model.remove(&tag);
                }
            }
            prop_assert_eq!(unacked.outstanding(), model.len() as u64);
        }
        let mut left = Vec::new();
        unacked.settle(0, true, |_, number| left.push(number.0)).unwrap();
        prop_assert_eq!(left, model.into_iter().collect::<Vec<_>>());
    }

    /// ACK-02 to ACK-05, ACK-07: random settlements, compared with a map of unacked deliveries.
    #[test]
    fn ack_02_to_05_what_is_settled_is_what_a_plain_map_says(
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let mut unacked = Unacked::default();
        let mut model: BTreeMap<u64, (HolderRef, DeliveryNumber)> = BTreeMap::new();
        let mut consumers: Vec<(HolderRef, Slot)> =
            (0..4).map(|number| (holder(number), unacked.hold(holder(number)))).collect();
        let (mut tag, mut made) = (0, 4);
        for step in steps {
            match step {
                Step::Deliver(which) => {
                    tag += 1;
                    let (holder, slot) = consumers[usize::from(which)];
                    unacked.push(tag, slot, DeliveryNumber(tag * 7));
                    model.insert(tag, (holder, DeliveryNumber(tag * 7)));
                }
                Step::Get => {
                    tag += 1;
                    made += 1;
                    let slot = unacked.hold(holder(made));
                    unacked.push(tag, slot, DeliveryNumber(1));
                    unacked.release(slot);
                    model.insert(tag, (holder(made), DeliveryNumber(1)));
                }
                Step::Replace(which) => {
                    made += 1;
                    unacked.release(consumers[usize::from(which)].1);
                    consumers[usize::from(which)] = (holder(made), unacked.hold(holder(made)));
                }
                Step::Settle { back, multiple } => {
                    let to = tag.saturating_sub(back).max(1);
                    let mut seen = Vec::new();
                    let result = unacked.settle(to, multiple, |who, number| seen.push((who, number)));
                    let known = model.contains_key(&to);
                    prop_assert_eq!(result, if known { Ok(()) } else { Err(UnknownTag(to)) });
                    let tags: Vec<u64> = match (known, multiple) {
                        (false, _) => vec![],
                        (true, false) => vec![to],
                        (true, true) => model.range(..=to).map(|(tag, _)| *tag).collect(),
                    };
                    let expected: Vec<_> =
                        tags.iter().map(|tag| model.remove(tag).unwrap()).collect();
                    prop_assert_eq!(seen, expected);
                }
                Step::All => {
                    let mut seen = Vec::new();
                    unacked.settle(0, true, |who, number| seen.push((who, number))).unwrap();
                    let expected: Vec<_> = std::mem::take(&mut model).into_values().collect();
                    prop_assert_eq!(seen, expected);
                }
            }
            prop_assert_eq!(unacked.outstanding(), u64::try_from(model.len()).unwrap());
        }
    }

    /// Whatever is settled arrives once, in ranges that ascend and do not touch.
    #[test]
    fn settles_are_joined_without_loss(
        settles in prop::collection::vec((0..3u64, 1..60u64, any::<bool>()), 0..120),
    ) {
        let mut joined = Settles::default();
        let mut expected: BTreeMap<(HolderRef, bool), Vec<u64>> = BTreeMap::new();
        let mut given = std::collections::BTreeSet::new();
        for (who, number, ack) in settles {
            if given.insert((who, number)) {
                let settlement = if ack { Settlement::Ack } else { Settlement::Discard };
                joined.add(holder(who), DeliveryNumber(number), settlement);
                expected.entry((holder(who), ack)).or_default().push(number);
            }
        }
        let mut seen: BTreeMap<(HolderRef, bool), Vec<u64>> = BTreeMap::new();
        for settle in joined.take() {
            prop_assert!(settle.numbers.is_sorted_by(|a, b| a.1.0 + 1 < b.0.0));
            let ack = settle.settlement == Settlement::Ack;
            for (first, last) in settle.numbers {
                seen.entry((settle.holder, ack)).or_default().extend(first.0..=last.0);
            }
        }
        for ((_, ack), numbers) in &mut expected {
            if *ack {
                numbers.sort_unstable();
            }
        }
        // Acks are a set; of discards the order is kept.
        prop_assert_eq!(seen, expected);
        prop_assert!(joined.is_empty());
    }
}

/// One delivery that is never settled does not keep a place for each that comes after it.
#[test]
fn settled_deliveries_behind_an_unsettled_one_leave_no_trace() {
    let mut unacked = Unacked::default();
    let slot = unacked.hold(holder(1));
    unacked.push(1, slot, DeliveryNumber(1));
    for tag in 2..100_000 {
        unacked.push(tag, slot, DeliveryNumber(tag));
        unacked.settle(tag, false, |_, _| {}).unwrap();
        assert!(unacked.places() < 200, "{} places", unacked.places());
    }
    assert_eq!(unacked.outstanding(), 1);
}
