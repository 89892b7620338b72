//! `quorate dev`: a whole cluster on this machine in one command, for trying things. Each node
//! is a child process of the same binary.

mod node;
pub(crate) mod registry;

use super::secret;
use clap::Parser;
use node::{Node, NodePlan, Ports};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// Longest wait for the cluster to serve.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between questions whether it does.
const READY_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for a node to stop by itself.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// Runs a cluster on this machine until Ctrl-C: AMQP ports 5672 and up, rpc 7672 and up, HTTP
/// 15672 and up.
#[derive(Clone, Debug, Parser)]
#[command(name = "dev")]
pub(crate) struct Options {
    /// Number of nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=5))]
    nodes: u16,
    /// Data directory of the cluster, kept when the cluster stops. By default a new directory that
    /// is removed when the cluster stops.
    #[arg(long, value_name = "PATH")]
    data_dir: Option<PathBuf>,
    /// Number that is added to all ports.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    port_offset: u16,
    /// Directory for the logs of the nodes, node-N.log. By default they go to standard error.
    #[arg(long, value_name = "PATH")]
    log_dir: Option<PathBuf>,
    /// Further flags of `quorate server`, given to every node; written after --.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<OsString>,
}

/// Why the cluster does not run, or not any more.
#[derive(Debug, thiserror::Error)]
enum DevError {
    #[error(transparent)]
    Secret(#[from] secret::SecretError),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("--port-offset moves a port above 65535")]
    Offset,
    #[error("node {id} exited: {status}")]
    Ended { id: u16, status: ExitStatus },
    #[error("the cluster is not ready after {seconds} s: {0}", seconds = START_TIMEOUT.as_secs())]
    Start(String),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> DevError {
    |source| DevError::Io { what: what.into(), source }
}

/// Runs the cluster; the exit code says whether it ended as it should.
pub(crate) fn main(options: &Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime
        .map_err(io_error("cannot start the runtime"))
        .and_then(|runtime| runtime.block_on(run(options)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quorate dev: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The nodes' data: a directory that was given, or one of our own, removed when dropped.
struct Data {
    path: PathBuf,
    remove: bool,
}

impl Data {
    fn open(given: Option<&Path>) -> Result<Self, DevError> {
        let own = || {
            let name = format!("quorate-dev-{}-{:08x}", std::process::id(), rand::random::<u32>());
            std::env::temp_dir().join(name)
        };
        let path = given.map_or_else(own, Path::to_owned);
        // In a folder that all may write to, one that is there already is somebody else's.
        let made = DirBuilder::new().recursive(given.is_some()).mode(0o700).create(&path);
        made.map_err(io_error(path.display().to_string()))?;
        Ok(Self { path, remove: given.is_none() })
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if self.remove
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            eprintln!("quorate dev: {}: {error}", self.path.display());
        }
    }
}

fn plans(options: &Options, data: &Path) -> Result<Vec<NodePlan>, DevError> {
    let ports: Option<Vec<(u16, Ports)>> = (1..=options.nodes)
        .map(|id| Ports::of(id, options.port_offset).map(|ports| (id, ports)))
        .collect();
    let ports = ports.ok_or(DevError::Offset)?;
    let members: Vec<String> =
        ports.iter().map(|(id, ports)| format!("{id}=127.0.0.1:{}", ports.rpc)).collect();
    let plan = |(id, ports)| NodePlan {
        id,
        ports,
        data_dir: data.join(format!("node-{id}")),
        cluster: members.join(","),
        extra: options.flags.clone(),
    };
    Ok(ports.into_iter().map(plan).collect())
}

async fn run(options: &Options) -> Result<(), DevError> {
    // Before the nodes would, so that a refusal is told once.
    let variable = std::env::var(secret::VARIABLE).ok();
    let home = std::env::var("HOME").ok();
    let file = std::env::var("QUORATE_CLUSTER_SECRET_FILE").ok().map(PathBuf::from);
    secret::find_or_make(variable.as_deref(), file.as_deref(), home.as_deref())?;
    let program =
        std::env::current_exe().map_err(io_error("cannot find the path of this program"))?;
    let data = Data::open(options.data_dir.as_deref())?;
    if let Some(directory) = &options.log_dir {
        fs::create_dir_all(directory).map_err(io_error(directory.display().to_string()))?;
    }
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(io_error("cannot handle SIGINT"))?;
    let mut terminate =
        signal(SignalKind::terminate()).map_err(io_error("cannot handle SIGTERM"))?;
    let mut nodes = Vec::new();
    for plan in plans(options, &data.path)? {
        let what = format!("cannot start node {}", plan.id);
        let node = Node::start(&program, plan, options.log_dir.as_deref());
        nodes.push(node.map_err(io_error(what))?);
    }
    let _registered = registry::register(options.port_offset, &entries(&nodes));
    let result = tokio::select! {
        result = serve(&mut nodes, &data) => result,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    stop(&mut nodes).await;
    result
}

fn entries(nodes: &[Node]) -> Vec<registry::Entry> {
    let entry = |node: &Node| {
        node.pid().map(|pid| registry::Entry { pid, amqp_port: node.plan.ports.amqp })
    };
    nodes.iter().filter_map(entry).collect()
}

/// Waits until the cluster serves, says so, and goes on until a node ends.
async fn serve(nodes: &mut [Node], data: &Data) -> Result<(), DevError> {
    let until = Instant::now() + START_TIMEOUT;
    loop {
        let mut reasons = Vec::new();
        for node in nodes.iter() {
            if let Err(why) = node.ready().await {
                reasons.push(format!("node {}: {why}", node.plan.id));
            }
        }
        if reasons.is_empty() {
            break;
        }
        if Instant::now() > until {
            return Err(DevError::Start(reasons.join("; ")));
        }
        tokio::select! {
            () = sleep(READY_PAUSE) => {}
            error = first_ended(nodes) => return Err(error),
        }
    }
    println!("{}", greeting(nodes, data));
    Err(first_ended(nodes).await)
}

fn greeting(nodes: &[Node], data: &Data) -> String {
    let mut lines = vec![match nodes.len() {
        1 => "One node is running:".to_owned(),
        count => format!("A cluster of {count} nodes is running:"),
    }];
    for node in nodes {
        let Ports { amqp, rpc, http } = node.plan.ports;
        lines.push(format!(
            "  node {}  amqp://guest:guest@127.0.0.1:{amqp}  rpc 127.0.0.1:{rpc}  http://127.0.0.1:{http}/metrics",
            node.plan.id
        ));
    }
    let kept = if data.remove { "removed when the cluster stops" } else { "kept" };
    lines.push(format!("  data in {} ({kept})", data.path.display()));
    if let Some(first) = nodes.first() {
        lines.push(format!(
            "Inspect it: quorate ctl -n 127.0.0.1:{} cluster_status",
            first.plan.ports.rpc
        ));
        lines.push(format!(
            "Load it: quorate perf --uri amqp://guest:guest@127.0.0.1:{}",
            first.plan.ports.amqp
        ));
    }
    lines.push("Ctrl-C stops it.".to_owned());
    lines.join("\n")
}

/// Waits for any node to end, which none should.
async fn first_ended(nodes: &mut [Node]) -> DevError {
    let ends = nodes.iter_mut().map(|node| {
        Box::pin(async {
            let id = node.plan.id;
            match node.ended().await {
                Ok(status) => DevError::Ended { id, status },
                Err(source) => DevError::Io { what: format!("node {id}"), source },
            }
        })
    });
    futures::future::select_all(ends).await.0
}

/// Stops all nodes, at once.
async fn stop(nodes: &mut [Node]) {
    nodes.iter_mut().for_each(Node::stop);
    for node in nodes {
        if let Err(error) = node.stopped(STOP_PATIENCE).await {
            eprintln!("quorate dev: node {}: {error}", node.plan.id);
        }
    }
}
