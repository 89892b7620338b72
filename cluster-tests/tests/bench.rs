//! The table of figures: the same loads, made by the same generator, on a cluster of ours and, where
//! the peer is installed, on RabbitMQ. `make bench` runs it, with a release build.

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use quorate_cluster_tests::harness::{Cluster, Node, Options, binary, package_dir};
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// One row of the table.
struct Row {
    what: &'static str,
    /// Flags of `quorate perf`.
    flags: &'static [&'static str],
    /// Nodes, from 0, of queues, publishers and consumers; none for all in turn.
    nodes: Option<[usize; 3]>,
}

const ROWS: &[Row] = &[
    Row { what: "1 KiB, one queue, all on the leader's node", flags: &[], nodes: Some([0, 0, 0]) },
    Row { what: "1 KiB, one queue, each on another node", flags: &[], nodes: Some([0, 1, 2]) },
    Row {
        what: "1 KiB, ten queues",
        flags: &["--queues", "10", "-x", "3", "-y", "3"],
        nodes: None,
    },
    Row {
        what: "1 KiB, a hundred queues",
        flags: &["--queues", "100", "-x", "3", "-y", "3"],
        nodes: None,
    },
    Row { what: "20 bytes, one queue", flags: &["-s", "20"], nodes: Some([0, 0, 0]) },
    Row { what: "16 KiB, one queue", flags: &["-s", "16384"], nodes: Some([0, 0, 0]) },
    Row { what: "100 KiB, one queue", flags: &["-s", "102400"], nodes: Some([0, 0, 0]) },
    // As PerfTest does it by itself, and as it is often tried out.
    Row { what: "1 KiB, full speed, one of each", flags: FULL_SPEED, nodes: Some([0, 0, 0]) },
    Row { what: "1 KiB, full speed, six queues", flags: FULL_SPEED_OF_SIX, nodes: Some([0, 0, 0]) },
    Row {
        what: "1 KiB, five publishers, two consumers",
        flags: FIVE_AND_TWO,
        nodes: Some([0, 0, 0]),
    },
    // What the rules cost where nothing dies, against the first row; then every message dies.
    Row {
        what: "1 KiB, one queue, dead-letter rules unused",
        flags: &["--queue-arg", DLX, "--queue-arg", DLX_KEY],
        nodes: Some([0, 0, 0]),
    },
    Row { what: "dead letters, 1 KiB", flags: LETTERS, nodes: Some([0, 0, 0]) },
    Row { what: "dead letters, 1 KiB, ten queues", flags: LETTERS_OF_TEN, nodes: None },
    Row { what: "dead letters, 100 KiB", flags: LARGE_LETTERS, nodes: Some([0, 0, 0]) },
    Row { what: "window of 1, leader's node", flags: &["-c", "1"], nodes: Some([0, 0, 0]) },
    Row { what: "window of 1, another node", flags: &["-c", "1"], nodes: Some([0, 1, 2]) },
];

/// No confirms, no prefetch, each delivery acknowledged.
const FULL_SPEED: &[&str] = &["-c", "0", "-q", "0", "-A", "1"];
const FULL_SPEED_OF_SIX: &[&str] =
    &["-c", "0", "-q", "0", "-A", "1", "-x", "6", "-y", "6", "--queues", "6"];
const FIVE_AND_TWO: &[&str] = &["-c", "0", "-q", "0", "-A", "1", "-x", "5", "-y", "2"];

/// Arguments of a queue whose dead letters go to the first queue of perf's that are called so.
const DLX: &str = "x-dead-letter-exchange=";
const DLX_KEY: &str = "x-dead-letter-routing-key=letters-1";
/// Rows with them measure the letters that arrive.
const LETTERS: &[&str] = &["--nack", "--queue-arg", DLX, "--queue-arg", DLX_KEY];
const LARGE_LETTERS: &[&str] =
    &["-s", "102400", "-c", "100", "--nack", "--queue-arg", DLX, "--queue-arg", DLX_KEY];
const LETTERS_OF_TEN: &[&str] =
    &["--queues", "10", "-x", "3", "-y", "3", "--nack", "--queue-arg", DLX, "--queue-arg", DLX_KEY];

/// A cluster to load.
struct Broker {
    name: &'static str,
    uris: Vec<String>,
    pids: Vec<String>,
}

fn environment(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

impl Broker {
    /// One run of the generator; its summary.
    fn load(&self, row: &Row, queue: &str) -> Value {
        let mut perf = Command::new(binary());
        perf.args(["perf", "--json", "--warmup", "2", "--queue-name", queue]);
        perf.args(["--duration", &environment("BENCH_SECONDS", "8")]).args(row.flags);
        perf.args(["--pids", &self.pids.join(",")]);
        match row.nodes {
            None => perf.args(["--uri", &self.uris.join(",")]),
            Some([queues, publishers, consumers]) => perf
                .args(["--declare-uri", &self.uris[queues]])
                .args(["--publisher-uri", &self.uris[publishers]])
                .args(["--consumer-uri", &self.uris[consumers]]),
        };
        let letters = row.flags.contains(&"--nack").then(|| self.take_letters());
        let mut run = summary(&perf.output().expect("perf starts"));
        if let Some(letters) = letters {
            let taken = summary(&letters.wait_with_output().expect("perf ends"));
            run["received_per_s"] = taken["received_per_s"].clone();
        }
        run
    }

    /// Takes the letters that arrive, for as long as a run is.
    fn take_letters(&self) -> Child {
        let mut perf = Command::new(binary());
        perf.args([
            "perf",
            "--json",
            "--warmup",
            "3",
            "--queue-name",
            "letters",
            "--publishers",
            "0",
        ]);
        perf.args(["--duration", &environment("BENCH_SECONDS", "8"), "--uri", &self.uris[2]]);
        let perf = perf.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("perf starts");
        // Its queue is declared, its consumer attached.
        std::thread::sleep(Duration::from_secs(1));
        perf
    }
}

fn summary(perf: &Output) -> Value {
    let said = String::from_utf8_lossy(&perf.stdout);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {perf:?}"))
}

/// The figures of a row: the median run by messages a second.
fn figures(broker: &Broker, row: &Row, number: usize) -> String {
    let rounds: usize = environment("BENCH_ROUNDS", "1").parse().expect("BENCH_ROUNDS");
    let queue = |round| format!("bench-{number}-{round}");
    let mut runs: Vec<Value> = (0..rounds).map(|round| broker.load(row, &queue(round))).collect();
    let rate = |run: &Value| run["received_per_s"].as_f64().unwrap_or_default();
    runs.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    let run = &runs[rounds / 2];
    let confirm = |quantile: &str| run["confirm_us"][quantile].as_f64().unwrap_or_default() / 1e3;
    let cpu = run["broker_cpu_us_per_message"].as_f64().unwrap_or_default();
    let (p50, p99) = (confirm("p50"), confirm("p99"));
    let published = run["published_per_s"].as_f64().unwrap_or_default();
    let end_to_end = run["end_to_end_us"]["p99"].as_f64().unwrap_or_default() / 1e3;
    format!(
        "{:>8.0} msg/s of {published:>8.0} {cpu:>6.1} us CPU, confirm p50 {p50:>7.2} p99 {p99:>7.2} ms, end to end p99 {end_to_end:>8.1} ms",
        rate(run)
    )
}

/// The script that installs, starts and stops RabbitMQ.
struct PeerScript(PathBuf);

impl PeerScript {
    fn run(&self, verb: &str) -> Output {
        Command::new("bash").arg(&self.0).arg(verb).output().expect("the peer's script")
    }

    fn lines(&self, verb: &str) -> Vec<String> {
        String::from_utf8_lossy(&self.run(verb).stdout).lines().map(str::to_owned).collect()
    }

    fn must(&self, verb: &str) {
        let output = self.run(verb);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {verb}: {said}", self.0.display());
    }
}

/// The script, where RabbitMQ is installed.
fn peer() -> Option<PeerScript> {
    let script = package_dir().join("peer/rabbitmq.sh");
    let script = PeerScript(std::env::var_os("PEER_SCRIPT").map_or(script, PathBuf::from));
    let version = script.run("version");
    if !version.status.success() {
        println!("only Quorate: RabbitMQ is not installed here (make peer)");
        return None;
    }
    println!("RabbitMQ {}", String::from_utf8_lossy(&version.stdout).trim());
    Some(script)
}

fn table(broker: &Broker, table: &mut String) {
    // Writing to a string does not fail.
    let _ = writeln!(table, "\n{}", broker.name);
    for (number, row) in ROWS.iter().enumerate() {
        let figures = figures(broker, row, number);
        let _ = writeln!(table, "  {:<44}{figures}", row.what);
        println!("{}: {}: {figures}", broker.name, row.what);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for minutes: make bench"]
async fn the_table_of_figures() {
    let mut all = String::new();
    // One cluster after the other: both at once would measure neither.
    let peer = tokio::task::block_in_place(|| peer().inspect(|peer| peer.must("stop")));
    {
        let cluster = Cluster::start(3, Options::alone()).await;
        let uris = cluster.nodes().iter().map(Node::amqp_uri).collect();
        let pids = cluster.nodes().iter().map(|node| node.pid().to_string()).collect();
        tokio::task::block_in_place(|| table(&Broker { name: "Quorate", uris, pids }, &mut all));
    }
    if let Some(peer) = peer {
        tokio::task::block_in_place(|| {
            peer.must("start");
            let (uris, pids) = (peer.lines("uris"), peer.lines("pids"));
            table(&Broker { name: "RabbitMQ", uris, pids }, &mut all);
            peer.must("stop");
        });
    }
    println!("{all}");
}
