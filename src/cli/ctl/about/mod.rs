//! What a node tells about itself: versions, settings, memory, log, resolver, threads
//! (`rabbitmq-diagnostics`).

mod events;
mod log;
mod manuals;
mod memory;
mod sizes;
mod threads;

pub(crate) use manuals::MANUALS;

use super::Console;
use super::checks::own;
use super::connect::{Connected, call_failure};
use super::exit::{Exit, Failure};
use super::format::render;
use super::job::{Job, asked_name};
use super::options::Formatter;
use super::replicas;
use quorate_management::wire;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tonic::Code;

/// A question about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AboutVerb {
    ServerVersion,
    ErlangVersion,
    Environment,
    OsEnv,
    CommandLineArguments,
    LogLocation,
    LogTail,
    LogTailStream,
    DiscoverPeers,
    ResolveHostname,
    ResolverInfo,
    NetworkInterfaces,
    TlsVersions,
    CipherSuites,
    MemoryBreakdown,
    ThreadStats,
    MetadataStore,
    MessageSizes,
    EventStream,
}

/// Answers a question about a node.
pub(super) async fn run(
    verb: AboutVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    use AboutVerb as V;
    let mut connected = job.connect().await?;
    let name = asked_name(&connected, job.target).to_owned();
    job.banner(console, banner(verb, job, &name)?);
    match verb {
        V::ServerVersion | V::ErlangVersion => version(verb, job, &connected, console),
        V::LogTail | V::LogTailStream => log::tail(verb, job, &mut connected, console).await,
        V::ResolveHostname => resolve(job, &name, &mut connected, console).await,
        V::MemoryBreakdown => {
            let (text, json) = memory::breakdown(own(&connected)?, memory::unit(job)?);
            job.answer(console, text, &json);
            Ok(())
        }
        V::ThreadStats => threads::stats(job, &mut connected, console).await,
        V::EventStream => events::stream(job, &mut connected, console).await,
        V::MessageSizes => {
            let options = &job.invocation.options;
            let formatter = options.formatter.unwrap_or(Formatter::Pretty);
            let sheet = sizes::sheet(&connected.cluster);
            console.say(&render(&sheet, formatter, options.headers()));
            Ok(())
        }
        V::MetadataStore => {
            let sheet = replicas::status_of(&connected.cluster, 0);
            let options = &job.invocation.options;
            let formatter = options.formatter.unwrap_or(Formatter::Pretty);
            console.say(&render(&sheet, formatter, options.headers()));
            Ok(())
        }
        V::Environment
        | V::OsEnv
        | V::CommandLineArguments
        | V::LogLocation
        | V::DiscoverPeers
        | V::ResolverInfo
        | V::NetworkInterfaces
        | V::TlsVersions
        | V::CipherSuites => {
            let process = process(&mut connected).await?;
            let (text, json) = described(verb, &process, &connected, &name);
            job.answer(console, text, &json);
            Ok(())
        }
    }
}

/// The time that a question itself takes.
pub(super) fn duration(verb: AboutVerb, job: &Job<'_>) -> Result<Duration, Failure> {
    match verb {
        AboutVerb::LogTailStream | AboutVerb::EventStream => log::duration(job),
        AboutVerb::ThreadStats => threads::interval(job),
        AboutVerb::ServerVersion
        | AboutVerb::ErlangVersion
        | AboutVerb::Environment
        | AboutVerb::OsEnv
        | AboutVerb::CommandLineArguments
        | AboutVerb::LogLocation
        | AboutVerb::LogTail
        | AboutVerb::DiscoverPeers
        | AboutVerb::ResolveHostname
        | AboutVerb::ResolverInfo
        | AboutVerb::NetworkInterfaces
        | AboutVerb::TlsVersions
        | AboutVerb::CipherSuites
        | AboutVerb::MemoryBreakdown
        | AboutVerb::MetadataStore
        | AboutVerb::MessageSizes => Ok(Duration::ZERO),
    }
}

/// What the asked node says of its process.
pub(super) async fn process(connected: &mut Connected) -> Result<wire::Process, Failure> {
    let request = wire::NodeRequest { caller: wire::caller() };
    let process = connected.process.describe(request).await;
    Ok(process.map_err(|status| call_failure(&status))?.into_inner())
}

/// The line before the answer.
fn banner(verb: AboutVerb, job: &Job<'_>, node: &str) -> Result<String, Failure> {
    use AboutVerb as V;
    Ok(match verb {
        V::ServerVersion => format!("Asking node {node} for its RabbitMQ version..."),
        V::ErlangVersion => format!("Asking node {node} for its Erlang/OTP version..."),
        V::Environment => format!("Settings of node {node} ..."),
        V::OsEnv => {
            format!("Listing RabbitMQ-specific environment variables defined on node {node}...")
        }
        V::CommandLineArguments => format!("Command line arguments of node {node} ..."),
        V::LogLocation => format!("Log file location(s) on node {node} ..."),
        V::LogTail => format!("Last {} log lines on node {node} ...", log::lines(job)?),
        V::LogTailStream => format!("Streaming logs from node {node} ..."),
        V::DiscoverPeers => "Discovering peers nodes ...".to_owned(),
        V::ResolveHostname => {
            let (host, family) = (job.word(0), family(job)?.1);
            format!("Asking node {node} to resolve hostname {host} to {family} addresses...")
        }
        V::ResolverInfo => {
            format!("Asking node {node} for its effective hostname resolver configuration...")
        }
        V::NetworkInterfaces => {
            format!("Asking node {node} to report its network interfaces ...")
        }
        V::TlsVersions => "Listing all TLS versions supported by the runtime...".to_owned(),
        V::CipherSuites => "Listing available cipher suites in OpenSSL format".to_owned(),
        V::MemoryBreakdown => format!("Reporting memory breakdown on node {node}..."),
        V::ThreadStats => {
            let seconds = threads::interval(job)?.as_secs();
            format!("Will collect runtime thread stats on {node} for {seconds} seconds...")
        }
        V::MetadataStore => format!("Status of metadata store on node {node} ..."),
        V::MessageSizes => {
            format!("Gathering message size statistics across the cluster using node {node} ...")
        }
        V::EventStream => format!("Streaming events from node {node} ..."),
    })
}

/// The node's version. It has no Erlang; scripts get the version of Quorate in its place.
fn version(
    verb: AboutVerb,
    job: &Job<'_>,
    connected: &Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let node = own(connected)?;
    let version = if verb == AboutVerb::ServerVersion {
        node.product_version.clone()
    } else {
        format!("Quorate {}, without Erlang/OTP", node.version)
    };
    job.answer(console, &version, &json!({ "result": "ok", "value": version }));
    Ok(())
}

fn pairs(variables: &[wire::Variable]) -> Value {
    let pair = |it: &wire::Variable| (it.name.clone(), Value::from(it.value.as_str()));
    Value::Object(variables.iter().map(pair).collect::<Map<_, _>>())
}

/// What the process says of itself, as text and as JSON.
fn described(
    verb: AboutVerb,
    process: &wire::Process,
    connected: &Connected,
    name: &str,
) -> (String, Value) {
    match verb {
        AboutVerb::Environment => (environment(process), pairs(&process.settings)),
        AboutVerb::OsEnv => {
            let line = |it: &wire::Variable| format!("{}={}", it.name, it.value);
            let lines: Vec<String> = process.environment.iter().map(line).collect();
            let none = format!("Node {name} reported no relevant environment variables.");
            let variables = pairs(&process.environment);
            let json = json!({ "result": "ok", "node": name, "variables": variables });
            (if lines.is_empty() { none } else { lines.join("\n") }, json)
        }
        AboutVerb::CommandLineArguments => (process.arguments.join("\n"), json!(process.arguments)),
        AboutVerb::LogLocation => {
            let json = json!({ "result": "ok", "node_name": name, "paths": [process.log] });
            (process.log.clone(), json)
        }
        AboutVerb::DiscoverPeers => peers(process, connected),
        AboutVerb::NetworkInterfaces => interfaces(process, name),
        AboutVerb::TlsVersions => {
            (process.tls_versions.join("\n"), json!({ "versions": process.tls_versions }))
        }
        AboutVerb::CipherSuites => {
            (process.cipher_suites.join("\n"), json!({ "cipher_suites": process.cipher_suites }))
        }
        AboutVerb::ResolverInfo
        | AboutVerb::ServerVersion
        | AboutVerb::ErlangVersion
        | AboutVerb::LogTail
        | AboutVerb::LogTailStream
        | AboutVerb::ResolveHostname
        | AboutVerb::MemoryBreakdown
        | AboutVerb::ThreadStats
        | AboutVerb::MetadataStore
        | AboutVerb::MessageSizes
        | AboutVerb::EventStream => resolver(name),
    }
}

/// The settings, and where they were given.
pub(super) fn environment(process: &wire::Process) -> String {
    let line = |it: &wire::Variable| format!("{} = \"{}\" ({})", it.name, it.value, it.origin);
    process.settings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The nodes that the setting `cluster` names.
fn peers(process: &wire::Process, connected: &Connected) -> (String, Value) {
    let names = super::names::Names::of(&connected.cluster);
    let nodes = names.nodes(&process.nodes);
    let none = "No peers discovered".to_owned();
    let text = if nodes.is_empty() { none } else { nodes.join("\n") };
    (text, json!({ "result": "ok", "peers": nodes }))
}

fn interfaces(process: &wire::Process, name: &str) -> (String, Value) {
    let line = |it: &wire::Interface| {
        format!("Interface {}\naddresses: {}\n", it.name, it.addresses.join(", "))
    };
    let lines: Vec<String> = process.interfaces.iter().map(line).collect();
    let shape = |it: &wire::Interface| (it.name.clone(), json!({ "addresses": it.addresses }));
    let shapes: Map<_, _> = process.interfaces.iter().map(shape).collect();
    let none = format!("Node {name} reported no network interfaces");
    let text = if lines.is_empty() { none } else { lines.join("\n") };
    let json = json!({ "result": "ok", "node": name, "interfaces": shapes });
    (text.trim_end().to_owned(), json)
}

/// A node asks the resolver of its operating system, which these files configure.
fn resolver(name: &str) -> (String, Value) {
    let info = [
        ("lookup", "native"),
        ("hosts_file", "/etc/hosts"),
        ("resolv_conf", "/etc/resolv.conf"),
        ("cache_size", "0"),
    ];
    let text = "Lookup order: native\nHosts file: /etc/hosts\nResolver conf file: \
                /etc/resolv.conf\nCache size: 0";
    let info: Map<_, _> =
        info.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    (text.to_owned(), json!({ "result": "ok", "node": name, "resolver": info }))
}

/// The address family of `--address-family`: whether it is IPv6, and its name.
fn family(job: &Job<'_>) -> Result<(bool, &'static str), Failure> {
    let given = job.invocation.options.value("address-family").unwrap_or("IPv4");
    match given.to_lowercase().as_str() {
        "ipv4" => Ok((false, "IPv4")),
        "ipv6" => Ok((true, "IPv6")),
        _ => {
            let text = format!(
                "Error:\nunsupported IP address family {given}. Valid values are: ipv4, ipv6\n"
            );
            Err(Failure::new(Exit::Data, text))
        }
    }
}

/// The addresses of a host, as the node's resolver finds them.
async fn resolve(
    job: &Job<'_>,
    name: &str,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let (ipv6, family) = family(job)?;
    let host = job.word(0).to_owned();
    let request = wire::ResolveRequest { caller: wire::caller(), host: host.clone(), ipv6 };
    match connected.process.resolve(request).await {
        Ok(reply) => {
            let addresses = reply.into_inner().addresses;
            let json = json!({
                "result": "ok",
                "node": name,
                "hostname": host,
                "address_family": family,
                "addresses": addresses,
            });
            job.answer(console, addresses.join("\n"), &json);
            Ok(())
        }
        Err(status) if status.code() == Code::NotFound => {
            let text = "Error:\nHostname does not resolve (resolution failed with an nxdomain)\n";
            Err(Failure::new(Exit::Data, text))
        }
        Err(status) => Err(call_failure(&status)),
    }
}
