//! `quorate ctl` as a script would run it: arguments in, exit code and output out.

use super::wait::in_time;
use serde_json::Value;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Between two looks whether a command has ended, where that is not awaited.
const LOOK: Duration = Duration::from_millis(20);

/// What a run of `quorate ctl` gave.
#[derive(Clone, Debug)]
pub struct CtlOutput {
    /// Exit code; -1 where a signal ended it.
    pub code: i32,
    /// The output of the command on standard output.
    pub stdout: String,
    /// The output of the command on standard error.
    pub stderr: String,
}

impl CtlOutput {
    /// Lines of standard output.
    #[must_use]
    pub fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }

    /// Itself, where the command succeeded.
    ///
    /// # Errors
    /// All that it said, where it did not.
    pub fn succeeded(self) -> Result<Self, String> {
        if self.code == 0 { Ok(self) } else { Err(format!("{self:?}")) }
    }

    /// Standard output as a JSON array of rows.
    ///
    /// # Errors
    /// All that it said, where it failed or is no such array.
    pub fn rows(self) -> Result<Vec<Value>, String> {
        let output = self.succeeded()?;
        match serde_json::from_str(&output.stdout) {
            Ok(Value::Array(rows)) => Ok(rows),
            Ok(other) => Err(format!("no array: {other}")),
            Err(error) => Err(format!("{error}: {output:?}")),
        }
    }
}

/// Runs `binary ctl -n rpc ARGS…` with the cluster's secret.
///
/// # Panics
/// When it cannot be started or does not end.
pub async fn run(binary: &Path, rpc: &str, secret: &str, args: &[&str]) -> CtlOutput {
    run_tool("ctl", binary, rpc, secret, args).await
}

/// Runs `binary TOOL -n rpc ARGS…`, such as for the tool `rabbitmq-plugins`.
///
/// # Panics
/// When it cannot be started or does not end.
pub async fn run_tool(
    tool: &str,
    binary: &Path,
    rpc: &str,
    secret: &str,
    args: &[&str],
) -> CtlOutput {
    let mut command = tokio::process::Command::new(binary);
    command.args([tool, "-n", rpc]).args(args).kill_on_drop(true);
    command.env("QUORATE_CLUSTER_SECRET", secret).env_remove("QUORATE_LOG");
    let output = in_time(&format!("ctl {args:?}"), command.output()).await;
    let output = output.unwrap_or_else(|error| panic!("start {}: {error}", binary.display()));
    CtlOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// What `binary ctl -n rpc ARGS…` says, output and errors; none if it fails, or does not end in time. It blocks:
/// for where nothing can be awaited.
pub(super) fn run_briefly(
    binary: &Path,
    rpc: &str,
    secret: &str,
    args: &[&str],
    within: Duration,
) -> Option<String> {
    // A file, since a pipe that nobody empties would stop it.
    let mut said = tempfile::tempfile().ok()?;
    let mut command = std::process::Command::new(binary);
    command.args(["ctl", "-n", rpc]).args(args).stdin(Stdio::null());
    command.env("QUORATE_CLUSTER_SECRET", secret).env_remove("QUORATE_LOG");
    command.stdout(said.try_clone().ok()?).stderr(said.try_clone().ok()?);
    let mut child = command.spawn().ok()?;
    let begun = Instant::now();
    let ended = loop {
        let ended = child.try_wait().ok()?;
        if ended.is_some() || begun.elapsed() > within {
            break ended;
        }
        std::thread::sleep(LOOK);
    };
    let Some(status) = ended else {
        // It may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
        return None;
    };
    let mut text = String::new();
    said.rewind().ok()?;
    said.read_to_string(&mut text).ok()?;
    status.success().then_some(text)
}

/// A row's column as text, whatever JSON type it has.
#[must_use]
pub fn text(row: &Value, column: &str) -> String {
    match row.get(column) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// A row's column as a count.
///
/// # Errors
/// The row, where it has none.
pub fn count(row: &Value, column: &str) -> Result<u64, String> {
    row.get(column).and_then(Value::as_u64).ok_or_else(|| format!("no count '{column}' in {row}"))
}
