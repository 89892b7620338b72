//! Complete runs against a faulty broker: what `--verify` must find, and what it must not.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests; the crooked broker knows few methods"
)]

mod crooked;

use super::options::Options;
use super::run::run;
use super::summary::{Summary, Verdict};
use clap::Parser;
use crooked::{Faults, start};

/// A run of 500 messages.
async fn summary(faults: Faults, flags: &str) -> Summary {
    let (at, _) = start(faults).await;
    let line = format!("perf --uri amqp://{at} --verify --messages 500 --drain 2 {flags}");
    let options = Options::try_parse_from(line.split_whitespace()).unwrap();
    options.check().unwrap();
    run(options, Vec::new(), |_| {}).await.unwrap()
}

async fn verdict(faults: Faults) -> (bool, Verdict) {
    let summary = summary(faults, "--confirm 50 --size 100").await;
    assert_eq!(summary.errors, Vec::<String>::new());
    (summary.is_good(), summary.verify.unwrap())
}

#[tokio::test]
async fn an_honest_broker_is_good_at_any_window_size_and_ack() {
    let sizes = ["--size 20", "--size 1024", "--size 30000"];
    let windows = ["--confirm 1", "--confirm 100", "--confirm 1000 --ack-every 1 --prefetch 5"];
    for size in sizes {
        for window in windows {
            let flags = format!("{size} {window}");
            let summary = summary(Faults::default(), &flags).await;
            assert!(summary.is_good(), "{flags}: {summary:?}");
            assert_eq!((summary.published, summary.received), (500, 500), "{flags}");
            let confirm = summary.confirm_us.unwrap();
            let end_to_end = summary.end_to_end_us.unwrap();
            assert_eq!((confirm.count, end_to_end.count), (500, 500), "{flags}");
        }
    }
}

#[tokio::test]
async fn multiple_confirms_settle_all_up_to_them() {
    let faults = Faults { confirm_every: 10, ..Faults::default() };
    let (good, verdict) = verdict(faults).await;
    assert!(good);
    assert_eq!((verdict.confirmed, verdict.unconfirmed), (500, 0));
}

#[tokio::test]
async fn a_lost_message_is_found() {
    let (good, verdict) = verdict(Faults { lose: Some(123), ..Faults::default() }).await;
    assert!(!good);
    assert_eq!((verdict.lost, verdict.doubled, verdict.reordered), (1, 0, 0));
    assert_eq!(verdict.examples, ["1:123 lost"]);
}

#[tokio::test]
async fn a_doubled_message_is_found() {
    let (good, verdict) = verdict(Faults { double: Some(77), ..Faults::default() }).await;
    assert!(!good);
    // The second message is out of order too.
    assert_eq!((verdict.lost, verdict.doubled, verdict.reordered), (0, 1, 1));
    assert_eq!(verdict.examples, ["1:77 doubled"]);
}

#[tokio::test]
async fn a_late_message_is_found() {
    let (good, verdict) = verdict(Faults { late: Some(200), ..Faults::default() }).await;
    assert!(!good);
    assert_eq!((verdict.lost, verdict.doubled, verdict.reordered), (0, 0, 1));
}

#[tokio::test]
async fn what_was_refused_or_not_confirmed_was_promised_nothing() {
    let (good, refused) = verdict(Faults { refuse: Some(5), ..Faults::default() }).await;
    assert!(good);
    assert_eq!((refused.refused, refused.confirmed, refused.lost), (1, 499, 0));
    let (good, silent) = verdict(Faults { silent: Some(5), ..Faults::default() }).await;
    assert!(good);
    assert_eq!((silent.unconfirmed, silent.confirmed, silent.lost), (1, 499, 0));
}

#[tokio::test]
async fn a_backlog_is_consumed_without_publishers_and_acknowledged_to_the_last() {
    let (at, acknowledged) = start(Faults::default()).await;
    let run_with = |flags: &str| {
        let line = format!("perf --uri amqp://{at} --messages 333 {flags}");
        let options = Options::try_parse_from(line.split_whitespace()).unwrap();
        run(options, Vec::new(), |_| {})
    };
    let filled = run_with("--consumers 0 --keep").await.unwrap();
    assert_eq!((filled.published, filled.received), (333, 0));
    assert!(filled.confirm_us.is_some() && filled.end_to_end_us.is_none());
    let drained = run_with("--publishers 0 --no-purge --ack-every 100").await.unwrap();
    assert_eq!((drained.published, drained.received), (0, 333));
    assert_eq!(drained.end_to_end_us, None, "another run's clock says nothing");
    assert_eq!(*acknowledged.lock().unwrap(), 333);
}

#[tokio::test]
async fn a_rate_is_kept() {
    let (at, _) = start(Faults::default()).await;
    let line = format!("perf --uri amqp://{at} --rate 1000 --duration 0.5");
    let options = Options::try_parse_from(line.split_whitespace()).unwrap();
    let summary = run(options, Vec::new(), |_| {}).await.unwrap();
    // Never above the rate; below it only if the machine is busy.
    assert!(summary.published > 0 && summary.published_per_s < 1100.0, "{summary:?}");
}

#[tokio::test]
async fn a_broker_that_goes_away_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let line = format!("perf --uri amqp://{at}");
    let options = Options::try_parse_from(line.split_whitespace()).unwrap();
    let error = run(options, Vec::new(), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("closed") || error.to_string().contains("lost"), "{error}");
}
