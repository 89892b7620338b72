//! Shows on standard error how far a command is that takes longer than a second: on a terminal in one
//! line that is rewritten, elsewhere in a line every few seconds; not with `--quiet` and `--silent`.

use super::Console;
use super::options::Options;
use super::value::visible;
use std::convert::Infallible;
use std::future::Future;
use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, interval};

/// A command that is done before says nothing.
const FIRST: Duration = Duration::from_secs(1);
/// How often the line on a terminal is rewritten.
const REWRITE: Duration = Duration::from_millis(250);
/// How often there is a line elsewhere.
const LINE: Duration = Duration::from_secs(5);
/// Width of a terminal that does not say how wide it is.
const WIDTH: usize = 80;
/// Returns to the beginning of the line, and erases it.
const ERASE: &str = "\r\u{1b}[2K";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Quiet,
    /// One line, at most so wide.
    Terminal(usize),
    Lines,
}

/// The progress of a command.
#[derive(Debug)]
pub(crate) struct Progress {
    style: Style,
    begun: Instant,
    shown: Option<Instant>,
    /// True if a line is on the terminal.
    is_open: bool,
}

impl Progress {
    /// The progress of a command that begins now.
    pub(crate) fn of(options: &Options) -> Self {
        let style = if options.quiet || options.silent {
            Style::Quiet
        } else if std::io::stderr().is_terminal() {
            let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
            Style::Terminal(columns.unwrap_or(WIDTH))
        } else {
            Style::Lines
        };
        Self::with(style)
    }

    fn with(style: Style) -> Self {
        Self { style, begun: Instant::now(), shown: None, is_open: false }
    }

    /// Shows how far the command is, if it is time to; the text gets the time since its beginning.
    pub(crate) fn show(
        &mut self,
        console: &mut Console<'_>,
        text: impl FnOnce(Duration) -> String,
    ) {
        self.show_at(Instant::now(), console, text);
    }

    fn show_at(
        &mut self,
        now: Instant,
        console: &mut Console<'_>,
        text: impl FnOnce(Duration) -> String,
    ) {
        let pause = match self.style {
            Style::Quiet => return,
            Style::Terminal(_) => REWRITE,
            Style::Lines => LINE,
        };
        let elapsed = now - self.begun;
        if elapsed < FIRST || self.shown.is_some_and(|shown| now - shown < pause) {
            return;
        }
        self.shown = Some(now);
        let text = visible(&text(elapsed));
        if let Style::Terminal(width) = self.style {
            let text: String = text.chars().take(width.saturating_sub(1)).collect();
            console.complain(&format!("{ERASE}{text}"));
            self.is_open = true;
        } else {
            console.complain(&format!("{text}\n"));
        }
    }

    /// Takes the line off the terminal.
    pub(crate) fn end(&mut self, console: &mut Console<'_>) {
        if std::mem::take(&mut self.is_open) {
            console.complain(ERASE);
        }
    }

    /// Waits for work, and shows meanwhile how far it is.
    pub(crate) async fn during<T>(
        &mut self,
        console: &mut Console<'_>,
        work: impl Future<Output = T>,
        text: impl Fn(Duration) -> String,
    ) -> T {
        let (mut work, mut due) = (pin!(work), interval(REWRITE));
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.end(console);
                    return done;
                }
                _ = due.tick() => self.show(console, &text),
            }
        }
    }
}

impl Drop for Progress {
    /// Of a command whose time is up.
    fn drop(&mut self) {
        if self.is_open {
            let _ = std::io::stderr().write_all(ERASE.as_bytes());
        }
    }
}

/// Waits for work, and watches something meanwhile.
pub(crate) async fn beside<T>(
    work: impl Future<Output = T>,
    watch: impl Future<Output = Infallible>,
) -> T {
    tokio::select! {
        biased;
        done = work => done,
        never = watch => match never {},
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// What is shown of a command that takes this long.
    fn shown(style: Style, takes_ms: u64) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err };
        let mut progress = Progress::with(style);
        let text = |elapsed: Duration| format!("step\t{} of a long way", elapsed.as_secs());
        for ms in (0..takes_ms).step_by(100) {
            let now = progress.begun + Duration::from_millis(ms);
            progress.show_at(now, &mut console, text);
        }
        progress.end(&mut console);
        assert!(out.is_empty());
        String::from_utf8(err).unwrap()
    }

    #[test]
    fn a_short_command_says_nothing_and_a_long_one_a_line_every_few_seconds() {
        assert_eq!(shown(Style::Lines, 900), "");
        let lines = shown(Style::Lines, 12_000);
        let expected = "step\\t1 of a long way\nstep\\t6 of a long way\nstep\\t11 of a long way\n";
        assert_eq!(lines, expected);
        assert_eq!(shown(Style::Quiet, 12_000), "");
    }

    #[test]
    fn a_terminal_has_one_line_which_is_rewritten_and_erased() {
        let written = shown(Style::Terminal(10), 1_400);
        assert_eq!(written, format!("{ERASE}step\\t1 o{ERASE}step\\t1 o{ERASE}"));
    }

    #[tokio::test]
    async fn what_is_watched_ends_with_the_work() {
        assert_eq!(beside(async { 7 }, std::future::pending()).await, 7);
    }
}
