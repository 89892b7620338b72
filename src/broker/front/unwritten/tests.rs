//! What a connection may read ahead, and its one fetched body at a time.

#![expect(clippy::indexing_slicing, reason = "tests")]

use super::*;
use futures::FutureExt;
use proptest::{collection::vec, prelude::*};

#[test]
fn answers_are_read_one_by_one_while_there_is_room() {
    let budget = MemoryBudget::new(1 << 20);
    let unwritten = Unwritten::new(&budget, 100);
    let mut first = Box::pin(unwritten.until_room());
    let mut second = Box::pin(unwritten.until_room());
    let Some(turn) = first.as_mut().now_or_never() else { unreachable!("there is room") };
    assert!(second.as_mut().now_or_never().is_none(), "the first one's size is not known yet");
    unwritten.read(160);
    drop(turn);
    assert!(second.as_mut().now_or_never().is_none(), "160 of 100 bytes wait");
    assert_eq!((unwritten.room_bytes(), budget.held_bytes()), (0, 160));
    unwritten.set(100);
    assert!(second.as_mut().now_or_never().is_none());
    unwritten.set(99);
    assert!(second.as_mut().now_or_never().is_some());
}

#[test]
fn while_the_budget_is_full_each_connection_has_one_message_up_to_a_bound() {
    let budget = MemoryBudget::new(16 * 50);
    let share = budget.share_bytes_max(Share::Deliveries);
    let bytes_max = 2 * share;
    let (one, other) = (Unwritten::new(&budget, bytes_max), Unwritten::new(&budget, bytes_max));
    let mut elsewhere = budget.account(Share::Deliveries);
    elsewhere.set(share + share / 4);
    assert_eq!((one.room_bytes(), other.room_bytes()), (0, 0), "too many have done that");
    one.given(10);
    one.set(0);
    assert_eq!((one.room_bytes(), other.room_bytes()), (1, 0), "one is known to take them");
    elsewhere.set(2 * share);
    assert_eq!(one.room_bytes(), 0);
    elsewhere.set(share);
    assert_eq!(one.room_bytes(), 1, "its client has taken everything");
    assert_eq!(one.waits(), (0, Duration::ZERO));
    one.set(10);
    assert!(one.waits().0 == 10);
    assert_eq!((one.room_bytes(), other.room_bytes()), (0, 1));
    let mut waiting = Box::pin(one.until_room());
    assert!(waiting.as_mut().now_or_never().is_none());
    let mut budget_room = Box::pin(one.budget_room());
    assert!(budget_room.as_mut().now_or_never().is_none());
    elsewhere.set(0);
    assert!(budget_room.as_mut().now_or_never().is_some(), "woken by the released bytes");
    assert!(waiting.as_mut().now_or_never().is_some());
    assert_eq!(one.room_bytes() as u64, share - 10);
}

#[test]
fn one_body_is_fetched_at_a_time() {
    let budget = MemoryBudget::new(1 << 20);
    let unwritten = Unwritten::new(&budget, 100);
    let fetches = Arc::new(Semaphore::new(1));
    let turn = unwritten.turn_to_fetch(&fetches).now_or_never();
    let other = Unwritten::new(&budget, 100);
    let mut elsewhere = Box::pin(other.turn_to_fetch(&fetches));
    assert!(elsewhere.as_mut().now_or_never().is_none(), "as many as the node fetches at once");
    let mut next = Box::pin(unwritten.turn_to_fetch(&fetches));
    assert!(next.as_mut().now_or_never().is_none());
    let fetched =
        turn.map(|turn| unwritten.fetched(vec![bytes::Bytes::from_static(b"body")], turn));
    assert!(next.as_mut().now_or_never().is_none(), "it waits to be taken");
    assert!(elsewhere.as_mut().now_or_never().is_some(), "the node's turn is over");
    // A fetched body is taken, however much of the budget is used up, if nothing else waits.
    let mut others = budget.account(Share::Deliveries);
    others.set(1 << 20);
    assert_eq!((unwritten.room_bytes(), other.room_bytes()), (1, 0));
    drop(others);
    assert_eq!(budget.held_bytes(), 4);
    drop(fetched);
    assert!(next.as_mut().now_or_never().is_some());
    assert_eq!(budget.held_bytes(), 0);
}

/// Bytes of the largest message.
const MESSAGE_MAX: usize = 300;
const CONNECTIONS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The connection reads messages as far as it may, the last one of that size.
    Read(usize),
    /// The client takes this many bytes.
    Write(usize),
    /// A body is fetched for the connection, or the fetched one is taken.
    Fetch(usize),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Whatever clients read and do not read: one connection holds at most its bound and one
    /// message, all together at most twice their share and a message each. The counted bytes are
    /// those that wait. A client that has taken everything continues as long as the others have not
    /// gone that far.
    #[test]
    fn what_is_read_ahead_is_bounded_and_counted(
        steps in vec((0..CONNECTIONS, prop_oneof![
            3 => (1..MESSAGE_MAX).prop_map(Step::Read),
            2 => (0..3_000_usize).prop_map(Step::Write),
            1 => (1..MESSAGE_MAX).prop_map(Step::Fetch),
        ]), 1..120),
    ) {
        let budget = MemoryBudget::new(16 * 500);
        let share = budget.share_bytes_max(Share::Deliveries);
        let all: Vec<_> = (0..CONNECTIONS).map(|_| Unwritten::new(&budget, 1_500)).collect();
        let fetches = Arc::new(Semaphore::new(CONNECTIONS));
        let mut waiting = [0_usize; CONNECTIONS];
        let mut fetched: [Option<Fetched>; CONNECTIONS] = [const { None }; CONNECTIONS];
        for (at, step) in steps {
            let one = &all[at];
            match step {
                Step::Read(bytes) => {
                    let room = one.room_bytes();
                    prop_assert!(room == 0 || waiting[at] < 1_500);
                    if room > 0 {
                        waiting[at] += room - 1 + bytes;
                        one.given(waiting[at]);
                    }
                }
                Step::Write(bytes) => {
                    waiting[at] = waiting[at].saturating_sub(bytes);
                    one.set(waiting[at]);
                }
                Step::Fetch(bytes) => match fetched[at].take() {
                    Some(body) => {
                        prop_assert!(waiting[at] > 0 || one.room_bytes() > 0, "it may be taken");
                        drop(body);
                    }
                    None => {
                        let turn = one.turn_to_fetch(&fetches).now_or_never();
                        prop_assert_eq!(turn.is_some(), one.room_bytes() > 0);
                        let body = vec![0; bytes].into();
                        fetched[at] = turn.map(|turn| one.fetched(vec![body], turn));
                    }
                },
            }
            let bodies = fetched.iter().flatten().flat_map(|fetched| &fetched.bodies).map(bytes::Bytes::len);
            let held = waiting.iter().copied().chain(bodies).sum::<usize>();
            prop_assert_eq!(budget.held_bytes(), held as u64);
            prop_assert_eq!(one.waits().0, waiting[at] as u64);
            prop_assert!(waiting[at] <= 1_500 + MESSAGE_MAX);
            let most = 2 * share as usize + CONNECTIONS * MESSAGE_MAX;
            prop_assert!(held <= most, "{} of {}", held, most);
            prop_assert_eq!(one.is_pressed(), waiting[at] > 0 && held as u64 >= share);
            let may_go_on = waiting[at] == 0 && (held as u64) < share + share / 4;
            prop_assert!(!may_go_on || one.room_bytes() > 0, "its client takes everything");
        }
    }
}
