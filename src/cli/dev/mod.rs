//! `quorate dev`: runs a whole cluster on this machine with one command, for trials. Each node is a
//! child process of the same binary.

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

/// Time limit for the start of the cluster.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two checks of the nodes' readiness.
const READY_PAUSE: Duration = Duration::from_millis(100);
/// Time for ready nodes to write their last log lines before the greeting.
const LAST_WORDS: Duration = Duration::from_millis(400);
/// Time limit for a node to stop by itself.
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

/// Why the cluster cannot run, or has stopped.
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

/// Runs the cluster; the exit code says whether it stopped without an error.
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

/// The nodes' data: the given directory, or a temporary one that is removed when dropped.
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
        // In a folder that everybody can write to, an existing directory may belong to another
        // user.
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
    // Checked here before the nodes check it, so that an error is printed once.
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
    eprintln!("quorate dev: starting {} nodes, waiting until all of them are ready", options.nodes);
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

/// Waits until the cluster serves, prints the greeting, and runs until a node exits.
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
    sleep(LAST_WORDS).await;
    let ports: Vec<Ports> = nodes.iter().map(|node| node.plan.ports).collect();
    println!("{}", greeting(&ports, data));
    Err(first_ended(nodes).await)
}

/// A line across the terminal with a text in it.
fn headline(text: &str) -> String {
    format!("{:=^80}", format!(" {text} "))
}

/// The greeting. It follows all lines of the nodes, and ends with the addresses to connect to.
fn greeting(nodes: &[Ports], data: &Data) -> String {
    let running = match nodes.len() {
        1 => "Quorate: one node is running".to_owned(),
        count => format!("Quorate: {count} nodes are running"),
    };
    let kept = if data.remove { "removed when the cluster stops" } else { "kept" };
    let mut lines = vec![
        String::new(),
        headline(&running),
        format!("  Data:     {} ({kept})", data.path.display()),
    ];
    if let Some(Ports { amqp, rpc, http }) = nodes.first() {
        lines.push(format!("  Web page: http://127.0.0.1:{http}/ (guest, guest)"));
        lines.push(format!("  Metrics:  http://127.0.0.1:{http}/metrics"));
        lines.push(format!("  Inspect:  quorate ctl -n 127.0.0.1:{rpc} cluster_status"));
        lines.push(format!("  Load:     quorate perf --uri amqp://guest:guest@127.0.0.1:{amqp}"));
    }
    for (at, Ports { amqp, .. }) in nodes.iter().enumerate() {
        let label = if at == 0 { "Connect:" } else { "" };
        lines.push(format!("  {label:9} amqp://guest:guest@127.0.0.1:{amqp}"));
    }
    lines.push(headline("Ctrl-C stops it"));
    lines.join("\n") + "\n"
}

/// Waits until any node exits, which none should.
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
    let (count, seconds) = (nodes.len(), STOP_PATIENCE.as_secs());
    eprintln!("quorate dev: stopping {count} nodes, at most {seconds} s each");
    nodes.iter_mut().for_each(Node::stop);
    for node in nodes {
        match node.stopped(STOP_PATIENCE).await {
            Ok(status) if status.success() => {}
            Ok(status) => eprintln!("quorate dev: node {} exited: {status}", node.plan.id),
            Err(error) => eprintln!("quorate dev: node {}: {error}", node.plan.id),
        }
    }
    eprintln!("quorate dev: stopped");
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_greeting_ends_with_where_to_connect() {
        let ports: Vec<Ports> = (1..=3).map(|id| Ports::of(id, 0).unwrap()).collect();
        let data = Data { path: "/data".into(), remove: false };
        expect_test::expect![[r"

            ========================= Quorate: 3 nodes are running =========================
              Data:     /data (kept)
              Web page: http://127.0.0.1:15672/ (guest, guest)
              Metrics:  http://127.0.0.1:15672/metrics
              Inspect:  quorate ctl -n 127.0.0.1:7672 cluster_status
              Load:     quorate perf --uri amqp://guest:guest@127.0.0.1:5672
              Connect:  amqp://guest:guest@127.0.0.1:5672
                        amqp://guest:guest@127.0.0.1:5673
                        amqp://guest:guest@127.0.0.1:5674
            =============================== Ctrl-C stops it ================================
        "]]
        .assert_eq(&greeting(&ports, &data));
    }
}
