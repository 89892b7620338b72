//! Exit codes and failures of `quorate ctl` (CTL-12).

/// Exit codes of `sysexits.h`, as rabbitmqctl uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command was carried out.
    Done = 0,
    /// The command line is wrong.
    Usage = 64,
    /// A named object does not exist, or the name is invalid.
    Data = 65,
    /// The user does not exist.
    NoUser = 67,
    /// The host name cannot be resolved.
    NoHost = 68,
    /// The node cannot be reached, or has refused the command.
    Unavailable = 69,
    /// The answer is invalid, or replicas differ.
    Software = 70,
    /// The command timed out; a retry may succeed.
    TimedOut = 75,
}

impl Exit {
    /// The exit code of the process.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

/// A failed command: the text for standard error, and the exit code.
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
