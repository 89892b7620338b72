//! A regular expression that a client gives to choose names, within bounds of memory and time.

use regex::{Regex, RegexBuilder};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a compiled regular expression. It is matched in time that is linear in the name.
const COMPILED_BYTES_MAX: usize = 1 << 17;
/// Time that one request may match names. An expression of thousands of states needs a millisecond for
/// a name, and there may be very many names; the usual ones need far less than a microsecond.
const TIME_MAX: Duration = Duration::from_secs(1);

/// The filter of one request.
#[derive(Debug)]
pub(crate) struct NameFilter {
    regex: Regex,
    /// Nanoseconds that matching has taken.
    spent: AtomicU64,
}

impl NameFilter {
    /// The filter that a text means.
    ///
    /// # Errors
    /// The text is no regular expression, or has too many states.
    pub(crate) fn new(text: &str, ignores_case: bool) -> Result<Self, regex::Error> {
        let mut builder = RegexBuilder::new(text);
        builder
            .case_insensitive(ignores_case)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX);
        Ok(Self { regex: builder.build()?, spent: AtomicU64::new(0) })
    }

    /// Whether the name is chosen; false when the time is used up.
    pub(crate) fn is_match(&self, name: &str) -> bool {
        if self.check().is_err() {
            return false;
        }
        let began = Instant::now();
        let matches = self.regex.is_match(name);
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent.fetch_add(took, Relaxed);
        matches
    }

    /// Whether all answers were true ones.
    ///
    /// # Errors
    /// Why not: the time is used up.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if Duration::from_nanos(self.spent.load(Relaxed)) < TIME_MAX {
            return Ok(());
        }
        Err("is a regular expression that takes too long to match")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_filter_ends_when_its_time_is_used_up() {
        let filter = NameFilter::new("^ORD", true).unwrap();
        assert!(filter.is_match("orders") && !filter.is_match("disorder"));
        filter.check().unwrap();
        filter.spent.store(1_000_000_000, Relaxed);
        assert!(!filter.is_match("orders"));
        filter.check().unwrap_err();
    }

    #[test]
    fn an_expression_has_bounded_memory() {
        assert!(NameFilter::new(r"^[\w.]+\d$", true).is_ok());
        assert!(NameFilter::new(r"\w{500}", false).is_err());
        assert!(NameFilter::new("(", false).is_err());
    }
}
