//! Sizes and bounds of the tests that measure: small and wide in every run of the tests, which share
//! their machine and use a debug build; the ones that were asked for in `make acceptance`.

use super::figure;
use std::fmt::Debug;
use std::io::Write;
use std::time::Duration;

/// Whether `make acceptance` runs this.
#[must_use]
pub fn acceptance() -> bool {
    std::env::var_os("QUORATE_TEST_ACCEPTANCE").is_some()
}

/// How many of something.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Variable that overrides it.
    variable: &'static str,
    usual: u64,
    asked: u64,
}

impl Size {
    /// As many as are wanted in this run.
    ///
    /// # Panics
    /// When the variable is set to something else than a number.
    #[must_use]
    pub fn get(self) -> u64 {
        match std::env::var(self.variable) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{}: {text}", self.variable)),
            Err(_) if acceptance() => self.asked,
            Err(_) => self.usual,
        }
    }
}

/// What something measured must keep to.
#[derive(Clone, Copy, Debug)]
pub struct Bound<T> {
    what: &'static str,
    usual: T,
    asked: T,
}

impl<T: Copy + PartialOrd + Debug> Bound<T> {
    /// The bound of this run.
    #[must_use]
    pub fn get(self) -> T {
        if acceptance() { self.asked } else { self.usual }
    }

    /// Prints what was measured, and fails the test if it is more.
    ///
    /// # Panics
    /// When it is more.
    pub fn upto(self, detail: &str, measured: T) {
        self.judge(detail, measured, "at most", measured <= self.get());
    }

    /// Prints what was measured, and fails the test if it is less.
    ///
    /// # Panics
    /// When it is less.
    pub fn at_least(self, detail: &str, measured: T) {
        self.judge(detail, measured, "at least", measured >= self.get());
    }

    fn judge(self, detail: &str, measured: T, how: &str, kept: bool) {
        let what = format!("{}, {detail}", self.what);
        let what = what.trim_end_matches(", ");
        figure(what, measured);
        let verdict = if kept { "ok" } else { "MISSED" };
        let bound = self.get();
        let told = format!("{measured:.2?}");
        row(&format!("{what:<72} {told:>14}   {verdict}: {how} {bound:.2?}"));
        assert!(kept, "{what}: {measured:?}, not {how} {bound:?}");
    }
}

/// Adds to the table what was true of something, without a bound.
pub fn held(what: &str, of: impl Debug) {
    row(&format!("{what:<72} {:>14}   ok", format!("{of:?}")));
}

/// A line of the table that `make acceptance` prints at its end, in the file that it names.
fn row(line: &str) {
    if let Some(path) = std::env::var_os("QUORATE_TEST_TABLE") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.expect("the table of figures");
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

macro_rules! sizes {
    ($($(#[doc = $doc:literal])+ $name:ident = $variable:literal, $usual:literal, $asked:literal;)*) => {
        $($(#[doc = $doc])+
        pub const $name: Size = Size { variable: $variable, usual: $usual, asked: $asked };)*
    };
}

sizes! {
    /// Dead letters that are put back while leaders die.
    REDRIVEN = "QUORATE_TEST_REDRIVEN", 20_000, 1_000_000;
    /// Seconds of full speed, consumers beside publishers.
    BESIDE_SECONDS = "QUORATE_TEST_BESIDE_SECONDS", 4, 60;
    /// Dead letters that go through a chain of three queues.
    LETTERS = "QUORATE_TEST_LETTERS", 5_000, 100_000;
    /// Messages of a backlog.
    BACKLOG = "QUORATE_TEST_BACKLOG", 300_000, 5_000_000;
    /// Queues declared, and idle.
    QUEUES = "QUORATE_TEST_QUEUES", 1_000, 10_000;
    /// Queues that a policy is set over.
    POLICY_QUEUES = "QUORATE_TEST_POLICY_QUEUES", 500, 10_000;
    /// Messages that expire together.
    EXPIRING = "QUORATE_TEST_EXPIRING", 60_000, 1_000_000;
    /// Levels of the delay ladder.
    LEVELS = "QUORATE_TEST_LEVELS", 6, 28;
}

macro_rules! bounds {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $what:literal, $usual:expr, $asked:expr;)*) => {
        $($(#[doc = $doc])+
        pub const $name: Bound<$type> = Bound { what: $what, usual: $usual, asked: $asked };)*
    };
}

bounds! {
    /// Messages consumed of those published, of one publisher and one consumer, or six of each.
    BESIDE_SHARE: f64 = "consumed beside publishers, %", 30.0, 98.0;
    /// The same, of five publishers and two consumers.
    BESIDE_SHARE_OF_TWO: f64 = "consumed beside more publishers, %", 30.0, 90.0;
    /// Messages consumed a second.
    BESIDE_RATE: f64 = "consumed a second beside publishers", 100.0, 55_000.0;
    /// 99 % of the messages take no longer, ms.
    BESIDE_P99: f64 = "end-to-end p99 at full speed, ms", 20_000.0, 500.0;
    /// Publishes and dead letters of large messages together, of what is published where nothing dies.
    LARGE_LETTERS: f64 = "large dead letters beside publishes, %", 20.0, 75.0;
    /// Pause of a queue whose leader is killed.
    LEADER_KILLED: Duration = "leader killed", seconds(6), ms(500);
    /// Pause of a queue whose leader hangs.
    LEADER_FROZEN: Duration = "leader frozen", seconds(6), seconds(1);
    /// Pause of a queue whose leader is asked to stop.
    LEADER_STOPPED: Duration = "leader stopped", seconds(6), ms(100);
    /// Pause over a freeze of all nodes, which takes 1.2 s itself.
    ALL_PAUSED: Duration = "all nodes frozen for 1.2 s", seconds(6), ms(2_200);
    /// How late a message or a queue expires.
    EXPIRES_LATE: Duration = "time to live: late by", ms(1_500), ms(100);
    /// The longest publish to another queue of the group while many expire.
    BESIDE_EXPIRY: Duration = "many expire together", seconds(2), ms(200);
    /// From the binding that gives a kept letter a route to the letter.
    ROUTE_APPEARS: Duration = "a route appears", seconds(10), seconds(1);
    /// `set_policy` over many queues.
    POLICY_SET: Duration = "a policy over many queues", seconds(20), seconds(2);
    /// The longest publish while a policy is set over many queues.
    BESIDE_POLICY: Duration = "a policy over many queues", seconds(5), ms(500);
    /// How late the delay ladder is, over all of its levels.
    LADDER_LATE: Duration = "delay ladder", seconds(30), seconds(1);
    /// Queues declared a second.
    DECLARE_RATE: f64 = "many queues", 25.0, 500.0;
    /// Cores that the cluster uses while many queues are idle.
    IDLE_CORES: f64 = "many queues", 0.6, 0.1;
    /// From the start of all nodes until all are ready, with many queues.
    RESTART: Duration = "many queues", seconds(60), seconds(10);
    /// A page of a hundred queues of many, sorted by any column, over HTTP.
    QUEUE_PAGE: Duration = "many queues, a page of them", seconds(5), ms(100);
    /// Memory of a node, MiB, whatever the backlog.
    BACKLOG_MEMORY: u64 = "a long backlog", 300, 300;
    /// Rate of the slowest quarter of a drain, as a part of the first one's.
    BACKLOG_EVEN: f64 = "a long backlog", 0.1, 0.33;
    /// Disk of all nodes, MiB, when a backlog has been drained.
    BACKLOG_DISK: u64 = "a long backlog", u64::MAX, 300;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a policy over many queues, here: 3")]
    fn what_is_over_its_bound_fails() {
        let bound = Bound { usual: 2_u8, asked: 2, what: "a policy over many queues" };
        bound.upto("here", 2);
        bound.at_least("here", 2);
        bound.upto("here", 3);
    }

    #[test]
    #[should_panic(expected = "not at least 2")]
    fn what_is_under_its_bound_fails() {
        Bound { usual: 2_u8, asked: 2, what: "declares" }.at_least("", 1);
    }
}
