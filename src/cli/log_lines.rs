//! The newest lines of the log, kept for operators (`log_tail`, `log_tail_stream`).

use parking_lot::Mutex;
use quorate_management::LogLine;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use tokio::sync::broadcast::{self, Receiver, Sender};

/// Lines that are kept.
const LINES_MAX: usize = 1_000;
/// Bytes that are kept of a line.
const LINE_BYTES_MAX: usize = 4_096;
/// Lines that a reader may be behind before it misses some.
const BEHIND_MAX: usize = 1_024;

/// The newest lines, at most 4 MiB of them, and those who read what follows.
#[derive(Debug)]
pub(crate) struct LogLines {
    newest: Mutex<VecDeque<LogLine>>,
    readers: Sender<LogLine>,
}

impl LogLines {
    /// No lines yet.
    pub(crate) fn new() -> Self {
        Self { newest: Mutex::default(), readers: broadcast::channel(BEHIND_MAX).0 }
    }

    /// The newest lines, at most so many, and all that follow.
    pub(crate) fn read(&self, most: usize) -> (Vec<LogLine>, Receiver<LogLine>) {
        let newest = self.newest.lock();
        let skipped = newest.len().saturating_sub(most);
        // With the lock, so that no line is missed or read twice.
        (newest.iter().skip(skipped).cloned().collect(), self.readers.subscribe())
    }

    fn add(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line.get(..LINE_BYTES_MAX).unwrap_or(line));
        let line: LogLine = Arc::from(line.trim_end_matches('\n'));
        let mut newest = self.newest.lock();
        if newest.len() == LINES_MAX {
            newest.pop_front();
        }
        newest.push_back(Arc::clone(&line));
        // Without readers it is only kept.
        let _ = self.readers.send(line);
    }
}

/// A writer that keeps each line that it writes; each call writes a whole line.
pub(crate) struct Kept<W> {
    writer: W,
    lines: Arc<LogLines>,
}

impl<W> Kept<W> {
    pub(crate) fn new(writer: W, lines: &Arc<LogLines>) -> Self {
        Self { writer, lines: Arc::clone(lines) }
    }
}

impl<W: Write> Write for Kept<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.add(line);
        self.writer.write_all(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_newest_lines_are_kept_and_what_follows_is_read() {
        let lines = Arc::new(LogLines::new());
        let mut writer = Kept::new(Vec::new(), &lines);
        for number in 0..LINES_MAX + 5 {
            writer.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let (newest, mut next) = lines.read(2);
        let newest: Vec<&str> = newest.iter().map(AsRef::as_ref).collect();
        assert_eq!(newest, ["line 1003", "line 1004"]);
        assert_eq!(lines.read(usize::MAX).0.len(), LINES_MAX);
        writer.write_all(&[b'x'; 2 * LINE_BYTES_MAX]).unwrap();
        assert_eq!(next.try_recv().unwrap().len(), LINE_BYTES_MAX);
        assert!(next.try_recv().is_err(), "one line");
    }
}
