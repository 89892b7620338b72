//! Exit codes and failures of `quorate ctl` (CTL-12).

/// Codes of sysexits, as rabbitmqctl uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command was carried out.
    Done = 0,
    /// The command line is wrong.
    Usage = 64,
    /// What was named is not there, or is nothing that can be named.
    Data = 65,
    /// There is no such user.
    NoUser = 67,
    /// The host is not known.
    NoHost = 68,
    /// The node cannot be reached, or refused.
    Unavailable = 69,
    /// What came back makes no sense; replicas differ.
    Software = 70,
    /// Not in time; trying again may help.
    TimedOut = 75,
}

impl Exit {
    /// The number that the process exits with.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

/// A command that failed: what is told on standard error, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }
}
