//! The pattern of a policy: searched for anywhere in a name (POL-01), bounded like the patterns of
//! permissions.
//!
//! Patterns are matched in linear time, so look-around and back references are refused. A leading
//! `^(?!…)` is supported nevertheless, because RabbitMQ's documentation uses it.

use crate::{denial::Denial, pattern::Pattern};

/// Largest length of a policy's pattern, bytes (POL-22).
pub const POLICY_PATTERN_BYTES_MAX: usize = 1_024;

/// A policy's pattern, compiled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicyPattern {
    found: Pattern,
    /// A pattern that the name must not begin with: `X` of `^(?!X)Y`, the only look-ahead that the
    /// documentation uses.
    not: Option<Pattern>,
}

/// Why a text is not a pattern, in RabbitMQ's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PolicyPatternError {
    #[error("pattern must not exceed {POLICY_PATTERN_BYTES_MAX} bytes")]
    TooLong,
    #[error("pattern should be regular expression but is invalid: {{\"{reason}\",{at}}}")]
    Invalid { reason: String, at: usize },
}

impl PolicyPattern {
    /// Compiles a text.
    ///
    /// # Errors
    /// The text is not a regular expression, or is too large. Look-around other than a leading
    /// `^(?!…)`, and back references, are refused because they take more than linear time.
    pub(crate) fn parse(text: &str) -> Result<Self, PolicyPatternError> {
        if text.len() > POLICY_PATTERN_BYTES_MAX {
            return Err(PolicyPatternError::TooLong);
        }
        let compiled = |source: &str| {
            Pattern::written(text, source).map_err(|denial| invalid(denial, source, text))
        };
        match without_look_ahead(text) {
            Some((not, rest)) => Ok(Self {
                not: Some(compiled(&format!("^(?:{not})"))?),
                found: compiled(&format!("^(?:{rest})"))?,
            }),
            // The empty pattern matches every name; as a permission it matches none (ACL-02).
            None if text.is_empty() => Ok(Self { found: compiled(".*")?, not: None }),
            None => Ok(Self { found: compiled(text)?, not: None }),
        }
    }

    /// True if the pattern is found in the name.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        self.found.matches(name) && !self.not.as_ref().is_some_and(|not| not.matches(name))
    }
}

/// True if the text is a policy's pattern that is found in the name.
#[must_use]
pub fn is_pattern_of(text: &str, name: &str) -> bool {
    PolicyPattern::parse(text).is_ok_and(|pattern| pattern.matches(name.as_bytes()))
}

/// Splits `^(?!X)Y` into `X` and `Y`.
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

fn invalid(denial: Denial, source: &str, text: &str) -> PolicyPatternError {
    let Denial::InvalidPattern { reason, at, .. } = denial else {
        return PolicyPatternError::Invalid { reason: denial.to_string(), at: 0 };
    };
    // A position within a part of the text would mislead.
    let at = if source == text { at as usize } else { text.len() };
    PolicyPatternError::Invalid { reason, at }
}
