//! A command line that is being carried out: what is asked, of which node, and for how long.

use super::Console;
use super::connect::{self, Connected, Target};
use super::exit::{Exit, Failure};
use super::options::{Formatter, Invocation};
use quorate_rpc::Connector;
use serde_json::Value;
use std::time::Duration;

/// A command line that is being carried out.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) invocation: &'a Invocation,
    pub(crate) target: &'a Target,
    /// Absent if this command cannot reach nodes, and need not.
    pub(crate) connector: Option<&'a Connector>,
    /// How long it may take.
    pub(crate) limit: Duration,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) is_well: bool,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl<'a> Job<'a> {
    /// What reaches nodes.
    pub(crate) fn connector(&self) -> Result<&'a Connector, Failure> {
        self.connector.ok_or_else(|| refused("no cluster secret was found"))
    }

    pub(crate) async fn connect(&self) -> Result<Connected, Failure> {
        connect::connect(self.target, self.connector()?).await
    }

    /// The nth argument; empty if there is none.
    pub(crate) fn word(&self, place: usize) -> &str {
        self.invocation.arguments.get(place).map_or("", String::as_str)
    }

    pub(crate) fn is_json(&self) -> bool {
        self.invocation.options.formatter() == Formatter::Json
    }

    /// Prints a line before the answer, if such lines are wanted.
    pub(crate) fn banner(&self, console: &mut Console<'_>, line: impl AsRef<str>) {
        if self.invocation.options.banners() {
            console.say(&format!("{}\n", line.as_ref()));
        }
    }

    /// Prints an answer as text or as JSON.
    pub(crate) fn answer(&self, console: &mut Console<'_>, text: impl AsRef<str>, json: &Value) {
        if self.is_json() {
            console.say(&format!("{json}\n"));
        } else {
            console.say(&format!("{}\n", text.as_ref()));
        }
    }

    /// Prints what a check has found; fails if that is bad. Of some checks only the exit code tells
    /// with `--silent`.
    pub(crate) fn conclude(
        &self,
        found: &Found,
        may_be_silent: bool,
        console: &mut Console<'_>,
    ) -> Result<(), Failure> {
        let text = if self.is_json() {
            format!("{}\n", found.json)
        } else if may_be_silent && self.invocation.options.silent {
            String::new()
        } else {
            format!("{}\n", found.text)
        };
        if found.is_well {
            console.say(&text);
            return Ok(());
        }
        Err(Failure::new(Exit::Unavailable, text))
    }
}

/// The name of the node that was asked.
pub(crate) fn asked_name<'a>(connected: &'a Connected, target: &'a Target) -> &'a str {
    connected.asked().map_or(target.text.as_str(), |member| member.name.as_str())
}

/// A refusal of a node, or of the command itself.
pub(crate) fn refused(text: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Unavailable, format!("Error:\n{text}\n"))
}
