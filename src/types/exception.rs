//! Reply codes and exceptions (AMQP 0-9-1, section 1.1; CONN-24, CONN-25).

use std::fmt;

/// A reply code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum ReplyCode {
    ContentTooLarge = 311,
    NoRoute = 312,
    NoConsumers = 313,
    ConnectionForced = 320,
    InvalidPath = 402,
    AccessRefused = 403,
    NotFound = 404,
    ResourceLocked = 405,
    PreconditionFailed = 406,
    FrameError = 501,
    SyntaxError = 502,
    CommandInvalid = 503,
    ChannelError = 504,
    UnexpectedFrame = 505,
    ResourceError = 506,
    NotAllowed = 530,
    NotImplemented = 540,
    InternalError = 541,
}

const ALL: [ReplyCode; 18] = [
    ReplyCode::ContentTooLarge,
    ReplyCode::NoRoute,
    ReplyCode::NoConsumers,
    ReplyCode::ConnectionForced,
    ReplyCode::InvalidPath,
    ReplyCode::AccessRefused,
    ReplyCode::NotFound,
    ReplyCode::ResourceLocked,
    ReplyCode::PreconditionFailed,
    ReplyCode::FrameError,
    ReplyCode::SyntaxError,
    ReplyCode::CommandInvalid,
    ReplyCode::ChannelError,
    ReplyCode::UnexpectedFrame,
    ReplyCode::ResourceError,
    ReplyCode::NotAllowed,
    ReplyCode::NotImplemented,
    ReplyCode::InternalError,
];

impl ReplyCode {
    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The code of that number, if there is one.
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        ALL.into_iter().find(|code| code.number() == number)
    }

    /// The name that reply texts begin with (CONN-24).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ContentTooLarge => "CONTENT_TOO_LARGE",
            Self::NoRoute => "NO_ROUTE",
            Self::NoConsumers => "NO_CONSUMERS",
            Self::ConnectionForced => "CONNECTION_FORCED",
            Self::InvalidPath => "INVALID_PATH",
            Self::AccessRefused => "ACCESS_REFUSED",
            Self::NotFound => "NOT_FOUND",
            Self::ResourceLocked => "RESOURCE_LOCKED",
            Self::PreconditionFailed => "PRECONDITION_FAILED",
            Self::FrameError => "FRAME_ERROR",
            Self::SyntaxError => "SYNTAX_ERROR",
            Self::CommandInvalid => "COMMAND_INVALID",
            Self::ChannelError => "CHANNEL_ERROR",
            Self::UnexpectedFrame => "UNEXPECTED_FRAME",
            Self::ResourceError => "RESOURCE_ERROR",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::NotImplemented => "NOT_IMPLEMENTED",
            Self::InternalError => "INTERNAL_ERROR",
        }
    }

    /// What an exception with this code closes (CONN-25).
    #[must_use]
    pub fn scope(self) -> Scope {
        match self {
            Self::ContentTooLarge
            | Self::NoRoute
            | Self::NoConsumers
            | Self::AccessRefused
            | Self::NotFound
            | Self::ResourceLocked
            | Self::PreconditionFailed => Scope::Channel,
            Self::ConnectionForced
            | Self::InvalidPath
            | Self::FrameError
            | Self::SyntaxError
            | Self::CommandInvalid
            | Self::ChannelError
            | Self::UnexpectedFrame
            | Self::ResourceError
            | Self::NotAllowed
            | Self::NotImplemented
            | Self::InternalError => Scope::Connection,
        }
    }
}

/// What an exception closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A soft error: the channel.
    Channel,
    /// A hard error: the connection.
    Connection,
}

/// An exception: code and text that a client gets when one of its operations fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Exception {
    /// Reply code; decides what is closed.
    pub code: ReplyCode,
    /// Explanation, without the code's name.
    pub explanation: String,
}

impl Exception {
    /// An exception with `code` and an explanation that names the offending thing.
    pub fn new(code: ReplyCode, explanation: impl Into<String>) -> Self {
        Self { code, explanation: explanation.into() }
    }

    /// The reply text, cut to 255 bytes at a character's border (CONN-24).
    #[must_use]
    pub fn reply_text(&self) -> String {
        let mut text = self.to_string();
        if text.len() > 255 {
            let end = (0..=255).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            text.truncate(end);
        }
        text
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.code.name(), self.explanation)
    }
}
