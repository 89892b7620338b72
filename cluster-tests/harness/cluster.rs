//! A cluster of real processes of the real binary, on ports and in a folder of its own, gone when
//! the test ends; what a failed test leaves is kept and shown.

use super::aftermath;
use super::ctl::{self, CtlOutput};
use super::links::{Links, Network, Wiring};
use super::machine::Share;
use super::node::Node;
use super::process::Launch;
use super::scale::acceptance;
use super::wait::{HANGS, eventually, hold, try_eventually};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The groups of a cluster with the default settings: 12 of queues, and the catalog's.
pub const GROUPS: f64 = 13.0;

/// Pause between two requests of [`Cluster::counts`].
const COUNT_INTERVAL: Duration = Duration::from_millis(50);

/// How a cluster is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Further arguments of `quorate server`, on every node.
    pub args: Vec<String>,
    /// Variables set for every node; `{node}` in a value is its id.
    pub env: Vec<(String, String)>,
    /// In `make acceptance`, no other cluster of this machine runs meanwhile: for tests that measure.
    pub alone: bool,
    /// How nodes reach each other: [`Cluster::links`].
    pub links: Wiring,
    /// Number of nodes that do not found the cluster, and may join it: [`Cluster::guests`].
    pub guests: u64,
}

impl Options {
    /// For tests that measure: in `make acceptance`, which judges, no other test runs a cluster meanwhile.
    #[must_use]
    pub fn alone() -> Self {
        Self { alone: true, ..Self::default() }
    }

    /// For tests that cut links between nodes: over proxies, which every machine can have.
    #[must_use]
    pub fn proxied() -> Self {
        Self { links: Wiring::Proxies, ..Self::default() }
    }

    /// With one more argument and its value.
    #[must_use]
    pub fn with(mut self, flag: &str, value: &str) -> Self {
        self.args.extend([flag.to_owned(), value.to_owned()]);
        self
    }
}

/// Nodes 1 to n, further ones that may join them, and what they share.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: processes first, then their folder, the machine last.
    nodes: Vec<Node>,
    guests: Vec<Node>,
    links: Links,
    folder: Option<TempDir>,
    binary: PathBuf,
    secret: String,
    _share: Share,
}

impl Cluster {
    /// Starts `nodes` nodes at once and waits until all are ready.
    ///
    /// # Panics
    /// When there is no binary, or a node does not become ready in time.
    pub async fn start(nodes: u64, options: Options) -> Self {
        let cluster = Self::prepare(nodes, options).await;
        cluster.nodes.iter().for_each(Node::spawn);
        cluster.ready().await;
        cluster
    }

    /// A cluster of which no node has been started.
    ///
    /// # Panics
    /// When there is no binary.
    pub async fn prepare(nodes: u64, options: Options) -> Self {
        let share = Share::take(options.alone && acceptance()).await;
        let binary = binary();
        let folder = new_folder();
        let secret = format!("secret-{}", folder.path().display());
        let secret_file = folder.path().join("secret");
        write_secret(&secret_file, &secret);
        let ids: Vec<u64> = (1..=nodes + options.guests).collect();
        let network = (options.links == Wiring::Namespaces)
            .then(|| Network::make(&ids).unwrap_or_else(|error| panic!("a network: {error}")));
        let host = |id| network.as_ref().map_or_else(|| "127.0.0.1".to_owned(), |n| n.address(id));
        let start = |id| Launch {
            namespace: network.as_ref().map(|network| network.path(id)),
            ..launch(id, &binary, folder.path(), &options)
        };
        let mut all: Vec<Node> =
            ids.iter().map(|id| Node::new(*id, host(*id), folder.path(), start(*id))).collect();
        let addresses: Vec<_> = all.iter().map(|node| (node.id(), node.rpc_address())).collect();
        let links = Links::start(&addresses, options.links, network);
        for node in &mut all {
            let id = node.id();
            let known = |(other, _): &&(u64, String)| *other <= nodes || *other == id;
            let known: Vec<_> = addresses.iter().filter(known).cloned().collect();
            let listed = match known.len() {
                1 => String::new(),
                _ => listed(&known, |to| links.address(id, to)),
            };
            node.configure(&listed, &secret_file, &options.args);
        }
        let guests = all.split_off(usize::try_from(nodes).expect("a number of nodes"));
        Self { nodes: all, guests, links, folder: Some(folder), binary, secret, _share: share }
    }

    /// Waits until every node says that it is ready.
    ///
    /// # Panics
    /// When one ends, or is not ready in time.
    pub async fn ready(&self) {
        for node in &self.nodes {
            node.ready().await;
        }
    }

    /// Waits until each node leads its share of the groups. Leaderships move there a second or two after a
    /// start, and meanwhile the queues of a group that moves may have no counts.
    ///
    /// # Panics
    /// When the leaderships do not become spread evenly.
    pub async fn leaders_rest(&self) {
        eventually("leaderships are spread evenly", || async {
            let mut led = Vec::new();
            for node in &self.nodes {
                led.push(node.metrics().await.sum("quorate_group_leader").unwrap_or_default());
            }
            let most = led.iter().copied().fold(0.0, f64::max);
            let least = led.iter().copied().fold(most, f64::min);
            let are_all_led = led.iter().sum::<f64>() > GROUPS - 0.5;
            hold(are_all_led && most - least < 1.5, || format!("{led:?}"))
        })
        .await;
    }

    /// A node by its id, from 1; it may be a guest.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn node(&self, id: u64) -> &Node {
        match self.all().find(|node| node.id() == id) {
            Some(node) => node,
            None => panic!("no node {id}"),
        }
    }

    /// All nodes but the guests, sorted by id.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Nodes that no other one names in its settings and that are not started with the others, sorted by
    /// id: each joins the cluster when it is started.
    #[must_use]
    pub fn guests(&self) -> &[Node] {
        &self.guests
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().chain(&self.guests)
    }

    /// Ids of the nodes other than `id`, without the guests.
    #[must_use]
    pub fn others(&self, id: u64) -> Vec<u64> {
        self.nodes.iter().map(Node::id).filter(|other| *other != id).collect()
    }

    /// Where AMQP clients of a node connect.
    #[must_use]
    pub fn amqp_uri(&self, id: u64) -> String {
        self.node(id).amqp_uri()
    }

    /// The folder that holds everything of this cluster.
    ///
    /// # Panics
    /// Never: the folder lives as long as the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("kept until the drop").path()
    }

    /// The `quorate` under test.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The cluster's secret.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The links between the nodes, as [`Options::links`] asked for.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// `members` as `--cluster` wants them: `1=HOST:PORT,2=…`.
    #[must_use]
    pub fn listed(&self) -> String {
        let addresses: Vec<_> =
            self.nodes.iter().map(|node| (node.id(), node.rpc_address())).collect();
        listed(&addresses, |_| None)
    }

    /// Runs `quorate ctl` against a node.
    pub async fn ctl(&self, id: u64, args: &[&str]) -> CtlOutput {
        ctl::run(&self.binary, &self.node(id).rpc_address(), &self.secret, args).await
    }

    /// The rows of a `list_…` command, asked of a node.
    ///
    /// # Errors
    /// What the command said.
    pub async fn rows(&self, id: u64, args: &[&str]) -> Result<Vec<serde_json::Value>, String> {
        let mut json = args.to_vec();
        json.extend(["-q", "--formatter", "json"]);
        self.ctl(id, &json).await.rows()
    }

    /// Counts of a queue, in the order of the columns asked for. Only the queue's leader knows them: while the
    /// queue has no leader, this repeats the request.
    ///
    /// # Errors
    /// What the command said, or that there is no such queue, or for how long it had no leader.
    pub async fn counts<const N: usize>(
        &self,
        asked: u64,
        queue: &str,
        columns: [&str; N],
    ) -> Result<[u64; N], String> {
        let mut args = vec!["list_queues", "name"];
        args.extend(columns);
        let look = async || -> Result<Result<[u64; N], String>, String> {
            let rows = match self.rows(asked, &args).await {
                Ok(rows) => rows,
                Err(said) => return Ok(Err(said)),
            };
            let Some(row) = rows.iter().find(|row| ctl::text(row, "name") == queue) else {
                return Ok(Err(format!("no queue '{queue}' in {rows:?}")));
            };
            let mut counts = [0; N];
            for (count, column) in counts.iter_mut().zip(columns) {
                *count = ctl::count(row, column)?;
            }
            Ok(Ok(counts))
        };
        try_eventually("a queue's counts", HANGS, COUNT_INTERVAL, look).await?
    }

    /// The node that leads a queue, as a running node tells.
    ///
    /// # Panics
    /// When none is known in time.
    pub async fn leader_of(&self, queue: &str) -> u64 {
        eventually(&format!("'{queue}' has a leader"), || async {
            let asked = self.nodes.iter().find(|node| node.runs()).ok_or("no node runs")?;
            let rows = self.rows(asked.id(), &["list_queues", "name", "leader"]).await?;
            let row = rows.iter().find(|row| ctl::text(row, "name") == queue);
            let name = ctl::text(row.ok_or("not listed")?, "leader");
            self.named(&name).ok_or_else(|| format!("leader '{name}'"))
        })
        .await
    }

    /// The running node that is called so in lists: by one of its ports, or else by the first
    /// number in the name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<u64> {
        let port = name.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let by_port = self.all().find(|node| port.is_some_and(|p| node.ports().contains(&p)));
        let by_number = || {
            let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let id = digits.get(..end)?.parse::<u64>().ok()?;
            self.all().find(|node| node.id() == id)
        };
        by_port.or_else(by_number).filter(|node| node.runs()).map(Node::id)
    }

    /// Processor time of all running nodes.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.nodes.iter().filter(|node| node.runs()).map(Node::cpu_time).sum()
    }

    fn show_what_is_left(&mut self) {
        eprint!("{}", aftermath::told(self));
        if let Some(folder) = self.folder.take() {
            eprintln!("--- kept: {}", folder.keep().display());
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_what_is_left();
        }
    }
}

fn launch(id: u64, binary: &Path, folder: &Path, options: &Options) -> Launch {
    // A home of its own: nothing of the user's `~/.quorate` takes part.
    let mut env = vec![("HOME".to_owned(), folder.display().to_string())];
    // openraft tells every vote; `QUORATE_LOG` of the test run asks for it, or for anything else.
    let log = std::env::var("QUORATE_LOG").unwrap_or_else(|_| "info,openraft=warn".to_owned());
    env.push(("QUORATE_LOG".to_owned(), log));
    let of_node = |value: &String| value.replace("{node}", &id.to_string());
    env.extend(options.env.iter().map(|(name, value)| (name.clone(), of_node(value))));
    Launch {
        binary: binary.to_owned(),
        namespace: None,
        args: Vec::new(),
        env,
        log: folder.join(format!("node-{id}.log")),
    }
}

/// The value of `--cluster` for a node: the addresses of the other nodes are those of its proxies, if
/// the cluster has proxies.
fn listed(addresses: &[(u64, String)], proxy: impl Fn(u64) -> Option<String>) -> String {
    let member = |(id, address): &(u64, String)| {
        format!("{id}={}", proxy(*id).unwrap_or_else(|| address.clone()))
    };
    addresses.iter().map(member).collect::<Vec<_>>().join(",")
}

/// A folder named after the test that runs in this thread.
fn new_folder() -> TempDir {
    let parent = std::env::temp_dir().join("quorate-tests");
    std::fs::create_dir_all(&parent).expect("a folder for test clusters");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test").replace("::", "-");
    tempfile::Builder::new()
        .prefix(&format!("{test}-"))
        .tempdir_in(parent)
        .expect("a folder for this cluster")
}

/// Writes a secret as a node wants to find it: readable by its owner only.
///
/// # Panics
/// When it cannot be written.
pub fn write_secret(path: &Path, secret: &str) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file =
        std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(secret.as_bytes()));
    written.expect("a secret file");
}

/// The binary under test: `QUORATE_BIN`, or what cargo built beside this very test.
///
/// # Panics
/// When there is none, saying how to get one.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("QUORATE_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("the path of this test");
    // A program lies in target/debug, a test in target/debug/deps.
    let folder = test.parent().expect("a program lies in target/*");
    let profile = folder.parent().expect("a test lies in target/*/deps");
    let target = profile.parent().expect("a profile lies in a target folder");
    let candidates = [folder, profile, &target.join("debug"), &target.join("release")];
    let found = candidates.iter().map(|folder| folder.join("quorate")).find(|path| path.exists());
    found.unwrap_or_else(|| {
        panic!("no quorate in {candidates:?}: run `cargo build`, or set QUORATE_BIN")
    })
}
