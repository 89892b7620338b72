//! Log lines: written to standard error, filtered by `--log`, as text or JSON; the newest are kept for
//! the web page.
//!
//! Clients choose much of what is logged: names, keys, texts. Whatever it contains, one event is
//! one line, and it cannot control a terminal.
//!
//! Control characters are escaped where a line is written, not where it is logged: that is one
//! place, and it covers the lines of libraries too. `ctl` does the same for its lists
//! (`ctl/value`).

use super::log_lines::{Kept, LogLines};
use super::settings::LogFormat;
use quorate_management::EventRecorder;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Changes the filter; the error says why not.
type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The filter of the process's only log, once it is begun.
static FILTER: OnceLock<SetFilter> = OnceLock::new();

/// Starts logging, and returns the lines that are kept for operators. Only the first call has an
/// effect.
pub(crate) fn begin(filter: &str, format: LogFormat) -> Arc<LogLines> {
    // The settings have been checked, so the filter is valid.
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = Arc::new(LogLines::new());
    let kept = Arc::clone(&lines);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let begun = match format {
        LogFormat::Json => {
            let builder = builder.with_writer(move || Kept::new(io::stderr(), &kept));
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            let set = move |filter| handle.reload(filter).map_err(|error| error.to_string());
            let begun = builder.finish().with(EventRecorder).try_init();
            begun.map(|()| drop(FILTER.set(Box::new(set))))
        }
        LogFormat::Text => {
            let builder = builder.with_writer(move || Visible(Kept::new(io::stderr(), &kept)));
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            let set = move |filter| handle.reload(filter).map_err(|error| error.to_string());
            let begun = builder.finish().with(EventRecorder).try_init();
            begun.map(|()| drop(FILTER.set(Box::new(set))))
        }
    };
    // In tests another subscriber may be installed already.
    drop(begun);
    lines
}

/// Logs only what is at least this important, in place of the setting `log`. openraft's own lines, which
/// are many, stay off.
///
/// # Errors
/// There is no such level, or logging has not begun.
pub(crate) fn set_level(level: &str) -> Result<(), String> {
    if !["trace", "debug", "info", "warn", "error", "off"].contains(&level) {
        return Err(format!("there is no log level '{level}'"));
    }
    let set = FILTER.get().ok_or("the log of this process has no filter")?;
    set(EnvFilter::new(format!("{level},openraft=off")))
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
