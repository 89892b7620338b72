//! Log lines: written to standard error, filtered by `--log`, as text or JSON; the newest are kept for
//! the web page.
//!
//! Clients choose much of what is logged: names, keys, texts. Whatever it contains, one event is
//! one line, and it cannot control a terminal.
//!
//! Control characters are escaped where a line is written, not where it is logged: that is one
//! place, and it covers the lines of libraries too. `ctl` does the same for its lists
//! (`ctl/value`).

use super::settings::LogFormat;
use quorate_management::EventRecorder;
use std::io::{self, Write};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging. Only the first call has an effect.
pub(crate) fn begin(filter: &str, format: LogFormat) {
    // The settings have been checked, so the filter is valid.
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let begun = match format {
        LogFormat::Json => {
            let builder = builder.with_writer(io::stderr).json().flatten_event(true);
            builder.finish().with(EventRecorder).try_init()
        }
        LogFormat::Text => {
            let builder = builder.with_writer(|| Visible(io::stderr()));
            builder.finish().with(EventRecorder).try_init()
        }
    };
    // In tests another subscriber may be installed already.
    drop(begun);
}

/// A writer that escapes every control character except the line end; each call writes a whole
/// line.
struct Visible<W>(W);

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (text, end) = match text.strip_suffix('\n') {
            Some(text) => (text, "\n"),
            None => (text.as_ref(), ""),
        };
        if text.contains(char::is_control) {
            let escape = |letter: char| match letter.is_control() {
                true => letter.escape_default().to_string(),
                false => letter.to_string(),
            };
            let escaped: String = text.chars().map(escape).collect();
            self.0.write_all((escaped + end).as_bytes())?;
        } else {
            self.0.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A line end in a name does not start a new line, and no name can clear the screen.
    #[test]
    fn an_event_is_one_line_whatever_clients_put_into_it() {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_writer(move || Visible(writer.clone()))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(user = %"x\n2026-01-01 INFO login ok\u{1b}[2J\u{9b}2J", "ü refused\r");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with('\n') && text.contains("ü refused\\r"), "{text}");
        assert!(!text.trim_end_matches('\n').contains(char::is_control), "{text:?}");
        assert!(text.contains("x\\n2026-01-01"), "{text}");
    }
}
