//! Sizes and bounds of the tests that measure. Every run of the tests has small sizes and shows what it
//! measures; `make acceptance` has the sizes that were asked for and judges.

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

/// What something measured must keep to: in `make acceptance`, if it is a matter of time and so of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Bound<T> {
    what: &'static str,
    /// Whether it holds in every run of the tests.
    always: bool,
    bound: T,
}

impl<T: Copy + PartialOrd + Debug> Bound<T> {
    /// Whether this is no more than the bound, or this run has none.
    #[must_use]
    pub fn allows(self, measured: T) -> bool {
        !self.holds_here() || measured <= self.bound
    }

    /// Prints what was measured, and fails the test if it is more than the bound of this run.
    ///
    /// # Panics
    /// When it is more.
    pub fn upto(self, detail: &str, measured: T) {
        self.judge(detail, measured, "at most", measured <= self.bound);
    }

    /// Prints what was measured, and fails the test if it is less than the bound of this run.
    ///
    /// # Panics
    /// When it is less.
    pub fn at_least(self, detail: &str, measured: T) {
        self.judge(detail, measured, "at least", measured >= self.bound);
    }

    fn holds_here(self) -> bool {
        self.always || acceptance()
    }

    fn judge(self, detail: &str, measured: T, how: &str, kept: bool) {
        let what = format!("{}, {detail}", self.what);
        let what = what.trim_end_matches(", ");
        figure(what, measured);
        if !self.holds_here() {
            return;
        }
        let verdict = if kept { "ok" } else { "MISSED" };
        let bound = self.bound;
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
    /// What the rates of the mix of queues are divided by, where most tests want each kind of traffic, but no load.
    MIX_DIVISOR = "QUORATE_TEST_MIX_DIVISOR", 4, 1;
    /// Messages of 8 MiB that die together: more than a node may hold in memory of them.
    LARGE_DEAD = "QUORATE_TEST_LARGE_DEAD", 50, 150;
    /// MiB of the largest body.
    BODY_MIB = "QUORATE_TEST_BODY_MIB", 16, 128;
    /// Levels of the delay ladder.
    LEVELS = "QUORATE_TEST_LEVELS", 6, 28;
}

/// In every run.
const ALWAYS: bool = true;
/// In `make acceptance` only.
const ASKED: bool = false;

macro_rules! bounds {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $what:literal, $when:ident, $bound:expr;)*) => {
        $($(#[doc = $doc])+
        pub const $name: Bound<$type> = Bound { what: $what, always: $when, bound: $bound };)*
    };
}

bounds! {
    /// Messages consumed of those published, of one publisher and one consumer, or six of each.
    BESIDE_SHARE: f64 = "consumed beside publishers, %", ASKED, 98.0;
    /// The same, of five publishers and two consumers.
    BESIDE_SHARE_OF_TWO: f64 = "consumed beside more publishers, %", ASKED, 90.0;
    /// Messages consumed a second.
    BESIDE_RATE: f64 = "consumed a second beside publishers", ASKED, 55_000.0;
    /// 99 % of the messages take no longer, ms.
    BESIDE_P99: f64 = "end-to-end p99 at full speed, ms", ASKED, 500.0;
    /// Publishes and dead letters of large messages together, of what is published where nothing dies.
    LARGE_LETTERS: f64 = "large dead letters beside publishes, %", ASKED, 75.0;
    /// Pause of a queue whose leader is killed.
    LEADER_KILLED: Duration = "leader killed", ASKED, ms(500);
    /// Pause of a queue whose leader hangs.
    LEADER_FROZEN: Duration = "leader frozen", ASKED, seconds(1);
    /// The same with a lease of 3 s: less than two leases, which an election at random would take.
    LEASE_ENDED: Duration = "leader frozen, lease of 3 s", ASKED, ms(5_700);
    /// Pause of a queue whose leader is asked to stop.
    LEADER_STOPPED: Duration = "leader stopped", ASKED, ms(100);
    /// Pause over a freeze of all nodes, which takes 1.2 s itself.
    ALL_PAUSED: Duration = "all nodes frozen for 1.2 s", ASKED, ms(2_200);
    /// How late a message or a queue expires.
    EXPIRES_LATE: Duration = "time to live: late by", ASKED, ms(100);
    /// The longest publish to another queue of the group while many expire.
    BESIDE_EXPIRY: Duration = "many expire together", ASKED, ms(200);
    /// From the binding that gives a kept letter a route to the letter.
    ROUTE_APPEARS: Duration = "a route appears", ASKED, seconds(1);
    /// `set_policy` over many queues.
    POLICY_SET: Duration = "a policy over many queues", ASKED, seconds(2);
    /// The longest publish while a policy is set over many queues.
    BESIDE_POLICY: Duration = "a policy over many queues", ASKED, ms(500);
    /// How late the delay ladder is, over all of its levels.
    LADDER_LATE: Duration = "delay ladder", ASKED, seconds(1);
    /// Queues declared a second.
    DECLARE_RATE: f64 = "many queues", ASKED, 500.0;
    /// Cores that the cluster uses while many queues are idle.
    IDLE_CORES: f64 = "many queues", ASKED, 0.1;
    /// From the start of all nodes until all are ready, with many queues.
    RESTART: Duration = "many queues", ASKED, seconds(10);
    /// A page of a hundred queues of many, sorted by any column, over HTTP.
    QUEUE_PAGE: Duration = "many queues, a page of them", ASKED, ms(100);
    /// Memory of a node, MiB, whatever the backlog.
    BACKLOG_MEMORY: u64 = "a long backlog", ALWAYS, 300;
    /// Rate of the slowest quarter of a drain, as a part of the first one's.
    BACKLOG_EVEN: f64 = "a long backlog", ASKED, 0.33;
    /// Disk of all nodes, MiB, when a backlog has been drained.
    BACKLOG_DISK: u64 = "a long backlog", ASKED, 300;
    /// The longest time without a confirm while a link between two nodes is cut, which a third one reaches.
    LINK_CUT: Duration = "one link is cut", ASKED, seconds(5);
    /// The longest passive declare while large messages die together.
    BESIDE_LETTERS: Duration = "large messages die together", ASKED, seconds(5);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a policy over many queues, here: 3")]
    fn what_is_over_its_bound_fails() {
        let bound = Bound { bound: 2_u8, always: true, what: "a policy over many queues" };
        bound.upto("here", 2);
        bound.at_least("here", 2);
        bound.upto("here", 3);
    }

    #[test]
    fn what_is_a_matter_of_time_fails_in_acceptance_only() {
        let bound = Bound { bound: 2_u8, always: false, what: "declares" };
        let missed = std::panic::catch_unwind(|| bound.upto("here", 3)).is_err();
        assert_eq!((missed, bound.allows(3)), (acceptance(), !acceptance()));
    }

    #[test]
    #[should_panic(expected = "not at least 2")]
    fn what_is_under_its_bound_fails() {
        Bound { bound: 2_u8, always: true, what: "declares" }.at_least("", 1);
    }
}
