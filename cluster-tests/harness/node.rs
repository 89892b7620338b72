//! One node of a cluster under test: its ports, its folder, its process.

use super::ports::Port;
use super::process::{Launch, Process, still_runs};
use super::wait::{eventually, hold};
use super::{http, metrics::Metrics};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A node, running or not.
#[derive(Debug)]
pub struct Node {
    id: u64,
    amqp: Port,
    rpc: Port,
    http: Port,
    host: String,
    folder: PathBuf,
    launch: Launch,
    /// The binary that it is started with, if not that of its launch.
    binary: Mutex<Option<PathBuf>>,
    process: Mutex<Option<Process>>,
}

impl Node {
    pub(super) fn new(id: u64, host: String, folder: &Path, launch: Launch) -> Self {
        Self {
            id,
            amqp: Port::reserve(),
            rpc: Port::reserve(),
            http: Port::reserve(),
            host,
            folder: folder.join(format!("node-{id}")),
            launch,
            binary: Mutex::new(None),
            process: Mutex::new(None),
        }
    }

    /// Completes the launch once the ports of all members are known.
    pub(super) fn configure(&mut self, members: &str, secret_file: &Path, further: &[String]) {
        let id = self.id.to_string();
        let data = self.folder.display().to_string();
        let (amqp, rpc, http) = (self.amqp_address(), self.rpc_address(), self.http_address());
        let secret = secret_file.display().to_string();
        self.launch.args.push("server".to_owned());
        for (flag, value) in [
            ("--node-id", id),
            ("--data-dir", data),
            ("--amqp-listen", amqp),
            ("--rpc-listen", rpc),
            ("--http-listen", http),
            ("--cluster", members.to_owned()),
            ("--cluster-secret-file", secret),
        ] {
            // A broker of one node is started without `--cluster`.
            if !value.is_empty() {
                self.launch.set(flag, &value);
            }
        }
        self.launch.args.extend_from_slice(further);
    }

    /// Its id, from 1.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where AMQP clients connect, `HOST:PORT`.
    #[must_use]
    pub fn amqp_address(&self) -> String {
        self.address(&self.amqp)
    }

    /// Where nodes and `quorate ctl` connect.
    #[must_use]
    pub fn rpc_address(&self) -> String {
        self.address(&self.rpc)
    }

    /// Where metrics and health are asked for.
    #[must_use]
    pub fn http_address(&self) -> String {
        self.address(&self.http)
    }

    /// URI of its AMQP port for user `guest`: `amqp://guest:guest@HOST:PORT/%2f`.
    #[must_use]
    pub fn amqp_uri(&self) -> String {
        format!("amqp://guest:guest@{}/%2f", self.amqp_address())
    }

    /// The ports that it holds.
    #[must_use]
    pub fn ports(&self) -> [u16; 3] {
        [self.amqp.number(), self.rpc.number(), self.http.number()]
    }

    /// Its data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.folder
    }

    /// How it is started; a copy to change and to start something else with.
    #[must_use]
    pub fn launch(&self) -> Launch {
        let mut launch = self.launch.clone();
        if let Some(binary) = &*self.binary.lock().unwrap_or_else(PoisonError::into_inner) {
            launch.binary.clone_from(binary);
        }
        launch
    }

    /// From its next start on it runs this binary; `None`: the one under test.
    pub fn set_binary(&self, binary: Option<PathBuf>) {
        *self.binary.lock().unwrap_or_else(PoisonError::into_inner) = binary;
    }

    /// A command in the network namespace that it runs in.
    #[must_use]
    pub fn command(&self, program: &str) -> std::process::Command {
        super::process::within(self.launch.namespace.as_deref(), program)
    }

    /// Its log so far: every run, output and errors.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(&self.launch.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Starts its process, and waits for nothing.
    ///
    /// # Panics
    /// When it runs already.
    pub fn spawn(&self) {
        self.spawn_with(&[]);
    }

    /// As [`Node::spawn`], this once with other flags.
    ///
    /// # Panics
    /// When it runs already.
    pub fn spawn_with(&self, flags: &[(&str, &str)]) {
        let mut launch = self.launch();
        flags.iter().for_each(|(flag, value)| launch.set(flag, value));
        self.spawn_as(&launch);
    }

    /// As [`Node::spawn`], this once launched like that.
    ///
    /// # Panics
    /// When it runs already.
    pub fn spawn_as(&self, launch: &Launch) {
        let mut process = self.process();
        assert!(process.is_none(), "node {} runs already", self.id);
        *process = Some(Process::spawn(launch));
    }

    /// Starts its process and waits until it is ready to serve.
    ///
    /// # Panics
    /// When it ends, or is not ready in time.
    pub async fn restart(&self) {
        self.spawn();
        self.ready().await;
    }

    /// Waits until `/health/ready` says yes.
    ///
    /// # Panics
    /// When the process ends before, or is not ready in time.
    pub async fn ready(&self) {
        let what = format!("node {} is ready", self.id);
        eventually(&what, || async {
            let ended = match self.process().as_mut() {
                Some(process) => still_runs(process),
                None => Err("it was not started".to_owned()),
            };
            if let Err(reason) = ended {
                panic!("node {} does not become ready: {reason}", self.id);
            }
            let answer = self.get("/health/ready").await?;
            hold(answer.status == 200, || format!("{answer:?}"))
        })
        .await;
    }

    /// Ends it as a crash would: SIGKILL, nothing handed over.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill9(&self) {
        self.taken().kill9();
    }

    /// Asks it to stop, waits until it has, and tells how and how long it took.
    ///
    /// # Panics
    /// When it does not run, or does not stop in time.
    pub async fn sigterm(&self) -> (ExitStatus, Duration) {
        let process = self.taken();
        process.signal(Signal::TERM);
        let asked = Instant::now();
        (process.exit().await, asked.elapsed())
    }

    /// Waits until it has ended by itself, and tells how.
    ///
    /// # Panics
    /// When it does not run, or does not end in time.
    pub async fn ends(&self) -> ExitStatus {
        self.taken().exit().await
    }

    /// Takes note of its end, if it has ended by itself: it can be started again.
    pub fn reap(&self) {
        if !self.runs() {
            self.process().take();
        }
    }

    /// Freezes it (SIGSTOP): its sockets stay open and nobody answers.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&self) {
        self.running(|process| process.signal(Signal::STOP));
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&self) {
        self.running(|process| process.signal(Signal::CONT));
    }

    /// Whether its process runs, frozen or not.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.process().as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// How its process is, or how it ended.
    pub(super) fn state(&self) -> String {
        match self.process().as_mut().map(Process::ended) {
            Some(None) => "runs".to_owned(),
            Some(Some(status)) => format!("has ended by itself, {status}"),
            None => "was ended by the test, or not started".to_owned(),
        }
    }

    /// Process id.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running(Process::id)
    }

    /// Resident memory, bytes.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn rss_bytes(&self) -> u64 {
        self.running(|process| process.rss_bytes())
    }

    /// Processor time since its start.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.running(|process| process.cpu_time())
    }

    /// GET over its HTTP port.
    ///
    /// # Errors
    /// What the socket says.
    pub async fn get(&self, path: &str) -> Result<http::Response, String> {
        http::get(&self.http_address(), path).await.map_err(|error| error.to_string())
    }

    /// One scrape of `/metrics`.
    ///
    /// # Panics
    /// When it does not answer 200 with what Prometheus reads.
    pub async fn metrics(&self) -> Metrics {
        let answer = self.get("/metrics").await.expect("/metrics");
        assert_eq!(answer.status, 200, "/metrics: {}", answer.body);
        Metrics::parse(&answer.body).unwrap_or_else(|error| panic!("/metrics: {error}"))
    }

    /// The address of a port on its machine, `HOST:PORT`.
    #[must_use]
    pub fn address(&self, port: &Port) -> String {
        format!("{}:{}", self.host, port.number())
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self) -> Process {
        match self.process().take() {
            Some(process) => process,
            None => panic!("node {} does not run", self.id),
        }
    }

    fn running<T>(&self, look: impl FnOnce(&Process) -> T) -> T {
        match self.process().as_ref() {
            Some(process) => look(process),
            None => panic!("node {} does not run", self.id),
        }
    }
}

impl Launch {
    /// Gives a flag another value, or adds it.
    pub fn set(&mut self, flag: &str, value: &str) {
        match self.args.iter().position(|arg| arg == flag).map(|at| at + 1) {
            Some(at) if at < self.args.len() => value.clone_into(&mut self.args[at]),
            _ => self.args.extend([flag.to_owned(), value.to_owned()]),
        }
    }

    /// Takes a flag and its value away.
    pub fn unset(&mut self, flag: &str) {
        if let Some(at) = self.args.iter().position(|arg| arg == flag) {
            self.args.drain(at..(at + 2).min(self.args.len()));
        }
    }
}
