//! How much of a connection may be in flight, and who waits for room.

use super::*;
use proptest::{collection::vec, prelude::*};
use std::{
    pin::pin,
    sync::{Arc, atomic::AtomicBool},
    task::{Context, Wake, Waker},
};

/// Notes that it was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_few_large_publishes_may_be_in_flight_up_to_the_setting() {
    let a = InFlight::new(64 << 20);
    a.launched(100);
    assert_eq!(a.bytes_max(), SMALL_BYTES);
    for _ in 0..64 {
        a.launched(100 << 10);
    }
    assert!(a.bytes_max() > 200 * (100 << 10), "{}", a.bytes_max());
    a.launched(1 << 30);
    assert_eq!(a.bytes_max(), 64 << 20);
    assert!(a.is_full());
}

#[tokio::test]
async fn who_waits_is_told_when_publishes_have_been_answered() {
    let a = InFlight::new(64 << 20);
    for _ in 0..3 << 10 {
        a.launched(1 << 10);
    }
    assert!(a.is_full());
    let waits = a.until(|| a.has_room());
    tokio::pin!(waits);
    tokio::select! {
        biased;
        () = &mut waits => unreachable!("nothing has been answered"),
        () = std::future::ready(()) => {}
    }
    a.landed(3 << 20);
    waits.await;
}

#[test]
fn a_connection_that_publishes_more_than_the_others_has_a_smaller_share() {
    let [slow, fast, idle] = [(); 3].map(|()| InFlight::new(64 << 20));
    let publish = |one: &InFlight, times| (0..times).for_each(|_| one.launched(1 << 10));
    publish(&slow, 512);
    publish(&fast, 1024);
    assert!(!fast.exceeds_share(), "they have not been compared");
    balance([&slow, &fast, &idle].into_iter());
    assert!(fast.exceeds_share() && !slow.exceeds_share() && !idle.exceeds_share());
    publish(&slow, 256);
    publish(&fast, 128);
    balance([&slow, &fast, &idle].into_iter());
    assert!(slow.exceeds_share(), "it was ahead of late");
    fast.landed(512 << 10);
    assert!(!fast.exceeds_share());
}

proptest! {
    /// What has landed is in flight no more. A connection reads on only when there is some room again, and
    /// who waits for that is woken by the answer that makes it; no more is ever in flight than the setting
    /// and one publish.
    #[test]
    fn who_waits_for_room_is_woken_by_the_answer_that_makes_it(
        bytes_max in prop_oneof![1_000..1_000_000_u64, 1_000_000..64_000_000_u64],
        steps in vec(prop_oneof![
            2 => (1..100_000_usize).prop_map(Some),
            1 => Just(None),
        ], 1..400),
    ) {
        let (in_flight, mut model) = (InFlight::new(bytes_max), Vec::new());
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        for step in steps {
            match step {
                Some(bytes) if !in_flight.is_full() => {
                    in_flight.launched(bytes);
                    model.push(bytes);
                }
                Some(_) => {
                    prop_assert!(!in_flight.has_room(), "full, and has room");
                    let mut waits = pin!(in_flight.until(|| in_flight.has_room()));
                    woken.0.store(false, Ordering::Relaxed);
                    let polled = waits.as_mut().poll(&mut Context::from_waker(&waker));
                    prop_assert!(polled.is_pending());
                    while !in_flight.has_room() {
                        prop_assert!(!woken.0.load(Ordering::Relaxed), "woken without room");
                        in_flight.landed(model.remove(0));
                    }
                    prop_assert!(woken.0.load(Ordering::Relaxed), "there is room");
                }
                None if !model.is_empty() => in_flight.landed(model.remove(0)),
                None => {}
            }
            prop_assert_eq!(in_flight.bytes(), model.iter().sum::<usize>());
            prop_assert!((in_flight.bytes() as u64) < bytes_max + 100_000);
        }
    }
}
