//! Regular expressions of permissions: they are searched for in names (ACL-02), in time that is
//! linear in the name, and bounded in size.
//!
//! Users write these patterns, so matching must not take exponential time. The crate `regex`
//! guarantees linear time and a bounded size, and has no look-around and no back references. A
//! pattern is compiled together with the record that contains it.

use crate::denial::Denial;
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ast::{self, ErrorKind};

/// Largest length of a pattern, bytes.
const PATTERN_BYTES_MAX: usize = 4_096;
/// Largest size of a compiled pattern, bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Largest depth of nested groups.
const NESTED_MAX: u32 = 64;

/// A compiled pattern. Two are equal if their texts are equal.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    /// `.*`, which most permissions have: every name matches without a search.
    Everything,
    /// The empty pattern, which means `^$` (ACL-02).
    EmptyName,
    Search(Regex),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// The pattern `.*`, which every name matches.
    pub(crate) fn everything() -> Self {
        Self { text: ".*".to_owned(), matcher: Matcher::Everything }
    }

    /// Compiles a pattern.
    ///
    /// # Errors
    /// [`Denial::InvalidPattern`] if the text is not a regular expression, or too large.
    pub fn new(text: &str) -> Result<Self, Denial> {
        Self::written(text, text)
    }

    /// Compiles `source`, the syntax of this crate for the pattern `text`.
    pub(crate) fn written(text: &str, source: &str) -> Result<Self, Denial> {
        let matcher = match source {
            ".*" | "^.*" => Matcher::Everything,
            "" => Matcher::EmptyName,
            _ => Matcher::Search(compile(source)?),
        };
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// The text of the pattern.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the pattern is found in the name.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Everything => true,
            Matcher::EmptyName => name.is_empty(),
            Matcher::Search(regex) => regex.is_match(name),
        }
    }
}

fn compile(source: &str) -> Result<Regex, Denial> {
    let refuse = |reason: &str, at: usize| {
        Err(Denial::InvalidPattern {
            pattern: source.to_owned(),
            reason: reason.to_owned(),
            at: u32::try_from(at).unwrap_or(u32::MAX),
        })
    };
    if source.len() > PATTERN_BYTES_MAX {
        return refuse("regular expression is too long", PATTERN_BYTES_MAX);
    }
    let translated = with_literal_braces(source);
    let parsed = ast::parse::ParserBuilder::new().nest_limit(NESTED_MAX).build().parse(&translated);
    if let Err(error) = parsed {
        let (reason, at) = explained(&error, source.len());
        return refuse(&reason, at.min(source.len()));
    }
    // Character classes are those of ASCII, as in RabbitMQ, unless the pattern itself contains
    // other characters.
    let built = |unicode| {
        let mut builder = RegexBuilder::new(&translated);
        builder.unicode(unicode).nest_limit(NESTED_MAX);
        builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX).build()
    };
    match built(false).or_else(|_| built(true)) {
        Ok(regex) => Ok(regex),
        Err(regex::Error::CompiledTooBig(_)) => refuse("regular expression is too large", 0),
        Err(_) => refuse("unsupported regular expression", 0),
    }
}

/// The parser's error in PCRE's words, if PCRE has words for it, and its position.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest has no words in PCRE")]
fn explained(error: &ast::Error, end: usize) -> (String, usize) {
    let at = error.span().start.offset;
    let (words, at) = match error.kind() {
        ErrorKind::GroupUnclosed => ("missing )", end),
        ErrorKind::GroupUnopened => ("unmatched parentheses", at),
        ErrorKind::RepetitionMissing => ("nothing to repeat", at),
        ErrorKind::ClassUnclosed => ("missing terminating ] for character class", end),
        ErrorKind::EscapeUnexpectedEof => ("\\ at end of pattern", end),
        ErrorKind::ClassRangeInvalid => ("range out of order in character class", at),
        ErrorKind::UnsupportedBackreference => ("back references are not supported", at),
        ErrorKind::UnsupportedLookAround => ("look-around is not supported", at),
        other => return (other.to_string(), at),
    };
    (words.to_owned(), at)
}

/// Escapes braces that are not repetitions, which PCRE takes literally.
fn with_literal_braces(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(place) = rest.find(['\\', '{']) {
        let (before, special) = rest.split_at(place);
        out.push_str(before);
        let taken = if special.starts_with('\\') {
            escape_len(special)
        } else {
            if !is_repetition(special) {
                out.push('\\');
            }
            1
        };
        let (taken, after) = special.split_at(taken);
        out.push_str(taken);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Length of an escape sequence at the beginning, bytes: `\d`, or `\x{41}` with its braces.
fn escape_len(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    let Some((_, letter)) = letters.next() else { return text.len() };
    let after = letters.next();
    let has_braces = matches!(letter, 'x' | 'u' | 'U' | 'p' | 'P' | 'b');
    match after {
        Some((_, '{')) if has_braces => text.find('}').map_or(text.len(), |end| end + 1),
        Some((end, _)) => end,
        None => text.len(),
    }
}

/// `{2}`, `{2,}`, `{2,3}`.
fn is_repetition(text: &str) -> bool {
    let inside = text.strip_prefix('{').and_then(|text| text.split_once('}'));
    let Some((inside, _)) = inside else { return false };
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && is_digits(least) && is_digits(most)
}

/// A pattern that matches exactly the text.
pub(crate) fn quoted(text: &str) -> String {
    regex::escape(text)
}
