//! One child process: started, signalled, measured through /proc, and certainly ended.

use super::wait::{eventually, hold};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// What is needed to start a process, again and again.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Path of the program.
    pub binary: PathBuf,
    /// The network namespace that it runs in, if not in ours.
    pub namespace: Option<PathBuf>,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Variables set for it. Every other `QUORATE_*` of ours is taken away.
    pub env: Vec<(String, String)>,
    /// Gets standard output and error of every run, one after the other.
    pub log: PathBuf,
}

/// A running child, killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(launch: &Launch) -> Self {
        let log = File::options().create(true).append(true).open(&launch.log).expect("a log file");
        let mut command = tied_to_us(launch);
        command.args(&launch.args).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("the log file again")).stderr(log);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("QUORATE_")) {
            command.env_remove(name);
        }
        command.envs(launch.env.iter().map(|(name, value)| (name, value)));
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", launch.binary.display()));
        Self { child, ended: None }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the kernel refuses, as it does for a process that is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signal a child");
    }

    /// Ends it as a crash would, and waits until the kernel has closed its sockets.
    pub fn kill9(mut self) {
        self.end();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("wait for a child");
        }
        self.ended
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn exit(mut self) -> ExitStatus {
        let id = self.id();
        let process = &mut self;
        let mut look = || process.ended().ok_or_else(|| format!("process {id} still runs"));
        eventually("a process ends", || std::future::ready(look())).await
    }

    /// Resident memory, bytes.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn rss_bytes(&self) -> u64 {
        let status = read_to_string(self.proc("status")).expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("VmRSS") * 1024
    }

    /// Processor time used since it started, of all its threads.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let stat = read_to_string(self.proc("stat")).expect("a running process");
        // After the name in parentheses, which may hold blanks, comes field 3; 14 and 15 are wanted.
        let fields = stat.rsplit_once(')').expect("a name in parentheses").1;
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().expect("clock ticks"))
            .sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn proc(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.id().to_string()).join(file)
    }

    fn end(&mut self) {
        if self.ended.is_some() {
            return;
        }
        // A child that has ended but was not waited for keeps its id, so this hits nobody else.
        self.child.kill().expect("kill a child");
        self.ended = Some(self.child.wait().expect("wait for a child"));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A command whose process dies with ours, however ours ends; util-linux' `setpriv` does that, and
/// where it is missing a test run that is killed leaves its nodes behind.
fn tied_to_us(launch: &Launch) -> Command {
    let namespace = launch.namespace.as_deref();
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return within(namespace, &launch.binary);
    }
    let mut command = Command::new(setpriv);
    let program = within(namespace, &launch.binary);
    command.args(["--pdeathsig", "KILL"]).arg(program.get_program()).args(program.get_args());
    command
}

/// A command in a network namespace, or in ours.
pub(super) fn within(namespace: Option<&Path>, program: impl AsRef<OsStr>) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace.display())).arg(program);
    command
}

/// Fails with the reason when a process has ended that should run.
///
/// # Errors
/// How it ended.
pub fn still_runs(process: &mut Process) -> Result<(), String> {
    let ended = process.ended();
    hold(ended.is_none(), || format!("it has ended: {ended:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(folder: &Path) -> Process {
        Process::spawn(&Launch {
            binary: "/bin/sh".into(),
            namespace: None,
            args: ["-c", "echo begun; exec sleep 600"].map(str::to_owned).to_vec(),
            env: Vec::new(),
            log: folder.join("log"),
        })
    }

    #[tokio::test]
    async fn a_process_ends_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let process = sleeper(folder.path());
        let proc = process.proc("stat");
        assert!(process.rss_bytes() > 0);
        drop(process);
        assert!(!proc.exists());
    }

    #[tokio::test]
    async fn an_exit_is_seen_with_its_status_and_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let process = Process::spawn(&Launch {
            binary: "/bin/sh".into(),
            namespace: None,
            args: ["-c", "echo refused >&2; exit 3"].map(str::to_owned).to_vec(),
            env: Vec::new(),
            log: log.clone(),
        });
        assert_eq!(process.exit().await.code(), Some(3));
        assert_eq!(read_to_string(log).unwrap(), "refused\n");
    }

    #[tokio::test]
    async fn a_stopped_process_uses_no_processor_time_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::spawn(&Launch {
            binary: "/bin/sh".into(),
            namespace: None,
            args: ["-c", "while :; do :; done"].map(str::to_owned).to_vec(),
            env: Vec::new(),
            log: folder.path().join("log"),
        });
        let used_more = |than: Duration| {
            let used = process.cpu_time();
            std::future::ready(hold(used > than, || format!("used {used:?}")))
        };
        eventually("it runs", || used_more(Duration::from_millis(20))).await;
        process.signal(Signal::STOP);
        eventually("it stops", || {
            let stat = read_to_string(process.proc("stat")).unwrap();
            std::future::ready(hold(stat.contains(") T "), || stat.clone()))
        })
        .await;
        let used = process.cpu_time();
        process.signal(Signal::CONT);
        eventually("it goes on", || used_more(used)).await;
    }
}
