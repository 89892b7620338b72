//! Regular expressions that users write, bounded in size and in the time that they take: matched
//! in time linear in the name, so that no pattern can stall a replica.

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::{self, ErrorKind};

/// Octets of a pattern (POL-22).
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// Octets that a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Groups within groups.
const NEST_MAX: u32 = 64;

/// A pattern, compiled. Two are equal if they were written equally.
#[derive(Clone, Debug)]
pub struct Pattern {
    matches: Regex,
    /// What a name must not begin with: `^(?!this)…`, the one look-ahead that the documents use.
    not: Option<Regex>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        let not = |pattern: &Self| pattern.not.as_ref().map(|regex| regex.as_str().to_owned());
        self.matches.as_str() == other.matches.as_str() && not(self) == not(other)
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Longer than [`PATTERN_BYTES_MAX`].
    #[error("pattern must not exceed {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// No regular expression: RabbitMQ's reason where there is one, and the octet that it is about.
    #[error("{{\"{reason}\",{offset}}}")]
    Invalid {
        /// Reason.
        reason: String,
        /// Octet.
        offset: usize,
    },
}

impl Pattern {
    /// Compiles a text.
    ///
    /// # Errors
    /// What is no regular expression, or one too large; look-around other than a leading
    /// `^(?!…)` and back-references are none, since they take more than linear time.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let Some((not, rest)) = without_look_ahead(text) else {
            return Ok(Self { matches: compiled(text, text)?, not: None });
        };
        let not = compiled(&format!("^(?:{not})"), text)?;
        Ok(Self { matches: compiled(&format!("^(?:{rest})"), text)?, not: Some(not) })
    }

    /// True if the pattern is found anywhere in the name (POL-01).
    #[must_use]
    pub fn is_match(&self, name: &str) -> bool {
        self.matches.is_match(name) && !self.not.as_ref().is_some_and(|not| not.is_match(name))
    }
}

/// `X` and `Y` of `^(?!X)Y`.
fn without_look_ahead(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("^(?!")?;
    let (mut depth, mut escaped, mut in_class) = (0, false, false);
    for (at, letter) in rest.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class && depth == 0 => {
                let (inner, rest) = rest.split_at(at);
                return rest.strip_prefix(')').map(|rest| (inner, rest));
            }
            ')' if !in_class => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Compiles `pattern`; an error speaks of `written`.
fn compiled(pattern: &str, written: &str) -> Result<Regex, PatternError> {
    if let Err(error) = ast::parse::Parser::new().parse(pattern) {
        return Err(invalid(&error, written));
    }
    RegexBuilder::new(pattern)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .nest_limit(NEST_MAX)
        .build()
        .map_err(|error| {
            let reason = match error {
                regex::Error::CompiledTooBig(_) => "regular expression is too large".to_owned(),
                other => other.to_string().replace('\n', " "),
            };
            PatternError::Invalid { reason, offset: 0 }
        })
}

/// As RabbitMQ's regular expressions (PCRE) tell it, where they do.
fn invalid(error: &ast::Error, written: &str) -> PatternError {
    let (reason, offset) = match error.kind() {
        ErrorKind::GroupUnclosed => ("missing )".to_owned(), written.len()),
        ErrorKind::ClassUnclosed => {
            ("missing terminating ] for character class".to_owned(), written.len())
        }
        ErrorKind::GroupUnopened => ("unmatched parentheses".to_owned(), error.span().start.offset),
        ErrorKind::RepetitionMissing => ("nothing to repeat".to_owned(), error.span().start.offset),
        other => (other.to_string(), error.span().start.offset),
    };
    PatternError::Invalid { reason, offset }
}
