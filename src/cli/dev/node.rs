//! One node of a `dev` cluster: its ports, its process, its readiness.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

/// Ports of node 1; those of node N are higher by N - 1.
const AMQP_PORT: u16 = 5672;
const RPC_PORT: u16 = 7672;
const HTTP_PORT: u16 = 15672;
/// Maximum of bytes of a log line that are passed on at once.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Time limit for one answer to a readiness check.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// The ports of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) amqp: u16,
    pub(crate) rpc: u16,
    pub(crate) http: u16,
}

impl Ports {
    /// The ports of node `id`; `None` when the offset moves them past 65535.
    pub(crate) fn of(id: u16, port_offset: u16) -> Option<Self> {
        let port = |first: u16| first.checked_add(id - 1)?.checked_add(port_offset);
        Some(Self { amqp: port(AMQP_PORT)?, rpc: port(RPC_PORT)?, http: port(HTTP_PORT)? })
    }
}

/// The arguments with which a node is started.
#[derive(Clone, Debug)]
pub(crate) struct NodePlan {
    pub(crate) id: u16,
    pub(crate) ports: Ports,
    pub(crate) data_dir: PathBuf,
    /// The value of `--cluster`, the same for all nodes.
    pub(crate) cluster: String,
    /// Further flags of `quorate server`.
    pub(crate) extra: Vec<OsString>,
}

impl NodePlan {
    /// The flags for `quorate`.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let Ports { amqp, rpc, http } = self.ports;
        let mut flags: Vec<OsString> = [
            "server".to_owned(),
            "--exit-on-stdin-close".to_owned(),
            format!("--node-id={}", self.id),
            format!("--cluster={}", self.cluster),
            format!("--amqp-listen=127.0.0.1:{amqp}"),
            format!("--rpc-listen=127.0.0.1:{rpc}"),
            format!("--http-listen=127.0.0.1:{http}"),
        ]
        .map(OsString::from)
        .to_vec();
        let mut data_dir = OsString::from("--data-dir=");
        data_dir.push(&self.data_dir);
        flags.push(data_dir);
        flags.extend(self.extra.iter().cloned());
        flags
    }
}

/// A node's process. Its standard input is held open: when this process ends, in whatever way, the
/// node reads end of file and stops.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) plan: NodePlan,
    child: Child,
    /// Held here and not in `child`, whose `wait` would close it.
    stdin: Option<ChildStdin>,
}

impl Node {
    /// Starts the process. Its log lines go to standard error, prefixed with the node's number, or
    /// to a file.
    pub(crate) fn start(
        program: &Path,
        plan: NodePlan,
        log_dir: Option<&Path>,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(plan.flags()).stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
        // A process group of its own, so that the terminal's Ctrl-C reaches only this process.
        command.process_group(0);
        match log_dir {
            Some(directory) => {
                let path = directory.join(format!("node-{}.log", plan.id));
                let file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
                command.stderr(file);
            }
            None => {
                command.stderr(Stdio::piped());
            }
        }
        let mut child = command.spawn()?;
        if let Some(log) = child.stderr.take() {
            tokio::spawn(forward(plan.id, log));
        }
        let stdin = child.stdin.take();
        Ok(Self { plan, child, stdin })
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the process to end. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks the process to stop.
    pub(crate) fn stop(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits for a process that was asked to stop; kills it after a time.
    pub(crate) async fn stopped(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        match timeout(patience, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                self.child.start_kill()?;
                self.child.wait().await
            }
        }
    }

    /// Checks whether the node can serve clients.
    ///
    /// # Errors
    /// Why it cannot, as text.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        match timeout(READY_TIMEOUT, health(self.plan.ports.http)).await {
            Ok(Ok((200, _))) => Ok(()),
            Ok(Ok((_, why))) => Err(why),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer".to_owned()),
        }
    }
}

async fn forward(id: u16, log: impl tokio::io::AsyncRead + Unpin) {
    let mut log = BufReader::new(log);
    loop {
        let mut line = Vec::new();
        match (&mut log).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => eprintln!("node {id} | {}", String::from_utf8_lossy(&line).trim_end()),
        }
    }
}

/// Status code and text of the answer to `GET /health/ready`.
async fn health(port: u16) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = "GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LINE_BYTES_MAX).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let code = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    Ok((code.unwrap_or(0), body.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn ports_follow_the_nodes_number_and_the_offset() {
        assert_eq!(Ports::of(1, 0), Some(Ports { amqp: 5672, rpc: 7672, http: 15672 }));
        assert_eq!(Ports::of(3, 100), Some(Ports { amqp: 5774, rpc: 7774, http: 15774 }));
        assert_eq!(Ports::of(3, 50_000), None);
    }

    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        (directory, path)
    }

    fn plan() -> NodePlan {
        NodePlan {
            id: 2,
            ports: Ports::of(2, 0).unwrap(),
            data_dir: "/data/node 2".into(),
            cluster: "1=127.0.0.1:7672".to_owned(),
            extra: vec!["--queue-groups=4".into()],
        }
    }

    #[tokio::test]
    async fn a_node_that_reads_the_end_of_its_input_stops() {
        // Writes its arguments to its log, and exits at the end of its input.
        let (directory, program) = script("printf '%s\\n' \"$@\" >&2; cat; exit 7");
        let mut node = Node::start(&program, plan(), Some(directory.path())).unwrap();
        assert!(timeout(Duration::from_millis(50), node.ended()).await.is_err(), "it runs");
        node.stop();
        let status = node.stopped(Duration::from_secs(600)).await.unwrap();
        assert_eq!(status.code(), Some(7));
        let log = std::fs::read_to_string(directory.path().join("node-2.log")).unwrap();
        let flags: Vec<&str> = log.lines().collect();
        assert_eq!(
            flags,
            [
                "server",
                "--exit-on-stdin-close",
                "--node-id=2",
                "--cluster=1=127.0.0.1:7672",
                "--amqp-listen=127.0.0.1:5673",
                "--rpc-listen=127.0.0.1:7673",
                "--http-listen=127.0.0.1:15673",
                "--data-dir=/data/node 2",
                "--queue-groups=4",
            ]
        );
    }

    #[tokio::test]
    async fn a_node_that_does_not_stop_is_killed() {
        let (_directory, program) = script("exec sleep 60");
        let mut node = Node::start(&program, plan(), None).unwrap();
        node.stop();
        let status = node.stopped(Duration::from_millis(100)).await.unwrap();
        assert_eq!(status.code(), None, "ended by a signal");
    }
}
