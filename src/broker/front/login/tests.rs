//! The delays of failed logins.

use super::*;
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

fn host(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(number))
}

fn user() -> ShortString {
    ShortString::from_static("u")
}

#[test]
fn answers_come_the_later_the_more_logins_of_a_source_have_failed() {
    let (mut failures, now) = (Failures::default(), Instant::now());
    let delays: Vec<_> = (0..20).map(|_| failures.failed(host(1), now)).collect();
    assert_eq!(delays.first(), Some(&1));
    assert!(delays.is_sorted());
    assert_eq!(delays.last(), Some(&DELAYS_MAX));
    assert_eq!(failures.failed(host(2), now), 1, "another source has nothing to do with it");
    assert_eq!(failures.failed(host(1), now + MEMORY), 1, "after a while it is forgotten");
}

#[test]
fn one_network_of_ipv6_is_one_source_and_sources_are_bounded() {
    let (mut failures, now) = (Failures::default(), Instant::now());
    let v6 = |high: u64, low: u64| {
        IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))
    };
    for low in 0..100 {
        failures.failed(v6(0x2001_0db8_0000_0000, low), now);
    }
    assert_eq!(failures.sources.len(), 1);
    for number in 0..(2 * SOURCES_MAX as u32) {
        failures.failed(host(number), now);
    }
    assert_eq!(failures.sources.len(), SOURCES_MAX);
}

proptest! {
    /// CONN-14: the delay of a failed login depends only on failures of its own source within a
    /// minute of each other, and is one to five delays.
    #[test]
    fn conn_14_a_source_waits_for_its_own_failures_alone(
        logins in vec((0..3_u32, prop_oneof![60 => 0..3_u64, 1 => 50..70_u64]), 1..200),
    ) {
        let mut now = Instant::now();
        let (mut failures, mut model) = (Failures::default(), BTreeMap::<u32, (u32, Instant)>::new());
        for (source, pass) in logins {
            now += Duration::from_secs(pass);
            let (count, last) = model.entry(source).or_insert((0, now));
            if now - *last >= MEMORY {
                *count = 0;
            }
            let expected = (1 + *count / 4).min(5);
            (*count, *last) = (*count + 1, now);
            prop_assert_eq!(failures.failed(host(source), now), expected);
        }
    }
}

/// CONN-14: the number of delayed answers is bounded, however their clients behave.
#[tokio::test]
async fn conn_14_so_many_wait_and_who_goes_makes_room() {
    let (logins, user) = (Logins::default(), user());
    let long = Duration::from_secs(3_600);
    let mut waits: Vec<_> = (0..WAITING_MAX as u32)
        .map(|number| Box::pin(logins.wait(host(number), &user, long)))
        .collect();
    for wait in &mut waits {
        assert!(futures::poll!(wait).is_pending());
    }
    let mut one_more = Box::pin(logins.wait(host(0), &user, long));
    assert!(futures::poll!(&mut one_more).is_ready(), "answered at once");
    waits.pop();
    let mut one_more = Box::pin(logins.wait(host(0), &user, long));
    assert!(futures::poll!(&mut one_more).is_pending());
    drop((waits, one_more));
    assert_eq!(logins.0.lock().waiting, 0);
}

/// CONN-14: a client that hangs up and connects again is not answered sooner, whatever its password.
#[tokio::test(start_paused = true)]
async fn conn_14_hanging_up_does_not_shorten_the_delay() {
    let (logins, user, other) = (Logins::default(), user(), ShortString::from_static("v"));
    let (delay, began) = (Duration::from_secs(1), Instant::now());
    for _ in 0..PASSING_MAX {
        assert!(logins.may_try(host(1), &user).await);
        let mut answer = Box::pin(logins.wait(host(1), &user, delay));
        assert!(futures::poll!(&mut answer).is_pending());
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    let mut next = Box::pin(logins.may_try(host(1), &user));
    assert!(futures::poll!(&mut next).is_pending());
    assert!(logins.may_try(host(1), &other).await, "another user's logins are not delayed");
    assert!(logins.may_try(host(2), &user).await, "nor those from elsewhere");
    assert!(next.await);
    assert_eq!(began.elapsed(), delay);
    // Who is always late is refused.
    let flood = async {
        loop {
            for _ in 0..PASSING_MAX {
                assert!(futures::poll!(Box::pin(logins.wait(host(3), &user, delay))).is_pending());
            }
            tokio::time::sleep(delay / 2).await;
        }
    };
    let refused = async {
        tokio::time::sleep(delay).await;
        logins.may_try(host(3), &user).await
    };
    tokio::select! {
        () = flood => {}
        may_try = refused => assert!(!may_try),
    }
    assert_eq!(logins.0.lock().waiting, 0);
}

#[test]
fn delays_of_users_are_bounded() {
    let (mut failures, now) = (Failures::default(), Instant::now());
    for number in 0..(2 * SOURCES_MAX as u32) {
        failures.passes(host(number), &user(), (now, now + MEMORY));
    }
    assert_eq!(failures.passing.len(), SOURCES_MAX);
    failures.passes(host(0), &user(), (now + MEMORY, now + 2 * MEMORY));
    assert_eq!(failures.passing.len(), 1, "those that have passed are forgotten");
}
