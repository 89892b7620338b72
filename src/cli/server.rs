//! `quorate server`: one node, from its settings to its end.
//!
//! 1. The cluster secret is found or made.
//! 2. The files of TLS and of definitions are read. The ports are bound, so that one in use is refused before
//!    anything is touched.
//! 3. The data directory is opened and the broker started (`wiring`).
//! 4. The rpc port, then HTTP, then AMQP are served. Definitions are imported when the node is ready
//!    but for them.
//! 5. SIGTERM, SIGINT or the end of standard input (`--exit-on-stdin-close`) stops it: the AMQP
//!    port closes, leaderships are handed over, clients are told, the disk is left in order, the
//!    other ports close.

use super::definitions_file::{DefinitionsFile, DefinitionsFileError};
use super::secret::{self, SecretError};
use super::settings::{HostPort, Identity, Loaded, RABBITMQ_VERSION, Settings};
use super::tls::Tls;
use super::wiring::{self, Clients, Node, WiringError};
use quorate_amqp::{Listeners, TlsListener};
use quorate_management::wire::{
    access_server::AccessServer, admin_server::AdminServer, policies_server::PoliciesServer,
};
use quorate_management::{
    AccessService, AdminService, ListenerFacts, Naming, NodeFacts, Peers, PolicyService, Pulses,
    Router, log_readiness,
};
use quorate_rpc::{ClusterSecret, Connector, Door, ListenError, Listener};
use quorate_tls::{Acceptor, TlsError};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::{TcpListener, lookup_host};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::service::Routes;

/// Why a node stopped after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// A signal, or the end of the parent process, asked it to stop.
    Asked(&'static str),
    /// An error that a node must not survive (DESIGN §8).
    Fatal(String),
}

/// Why a node cannot start. Each error is one line that names the setting to check, if there is
/// one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The cluster secret cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A file of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file of definitions cannot be used.
    #[error(transparent)]
    Definitions(#[from] DefinitionsFileError),
    /// The node cannot listen at an address.
    #[error("setting {setting}: {address}: {source}")]
    Address { setting: &'static str, address: String, source: io::Error },
    /// A port is in use.
    #[error("setting {setting}: {address} is in use by another process")]
    InUse { setting: &'static str, address: String },
    /// The rpc port cannot be served.
    #[error("setting rpc_listen: {0}")]
    Rpc(#[from] ListenError),
    /// A call to the operating system failed.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    /// The broker's parts could not be started.
    #[error(transparent)]
    Wiring(#[from] WiringError),
}

/// The ports of a node, bound.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) rpc: Listener,
    pub(crate) amqp: TcpListener,
    pub(crate) http: TcpListener,
    pub(crate) amqp_tls: Option<TcpListener>,
    pub(crate) http_tls: Option<TcpListener>,
}

impl Ports {
    async fn bind(settings: &Settings) -> Result<Self, StartError> {
        Ok(Self {
            rpc: bind_rpc(&settings.rpc_listen).await?,
            amqp: bind("amqp_listen", &settings.amqp_listen).await?,
            http: bind("http_listen", &settings.http_listen).await?,
            amqp_tls: bind_if_set("amqp_tls_listen", settings.amqp_tls_listen.as_ref()).await?,
            http_tls: bind_if_set("http_tls_listen", settings.http_tls_listen.as_ref()).await?,
        })
    }
}

fn refusal(setting: &'static str, address: &HostPort, source: io::Error) -> StartError {
    let address = address.to_string();
    if source.kind() == io::ErrorKind::AddrInUse {
        StartError::InUse { setting, address }
    } else {
        StartError::Address { setting, address, source }
    }
}

async fn bind(setting: &'static str, address: &HostPort) -> Result<TcpListener, StartError> {
    let bound = TcpListener::bind((address.host.as_str(), address.port)).await;
    bound.map_err(|source| refusal(setting, address, source))
}

async fn bind_if_set(
    setting: &'static str,
    address: Option<&HostPort>,
) -> Result<Option<TcpListener>, StartError> {
    match address {
        Some(address) => bind(setting, address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind_rpc(address: &HostPort) -> Result<Listener, StartError> {
    let setting = "rpc_listen";
    let found = lookup_host((address.host.as_str(), address.port)).await;
    let found: Option<SocketAddr> =
        found.map_err(|source| refusal(setting, address, source))?.next();
    let Some(found) = found else {
        let source = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        return Err(refusal(setting, address, source));
    };
    match Listener::bind(found) {
        Err(ListenError::Bind { error, .. }) => Err(refusal(setting, address, error)),
        other => Ok(other?),
    }
}

/// The node as lists show it.
fn facts(loaded: &Loaded, ports: &Ports) -> io::Result<NodeFacts> {
    let settings = &loaded.settings;
    let (naming, product, product_version) = match settings.identify_as {
        Identity::RabbitMq => (Naming::RabbitMq, "RabbitMQ", RABBITMQ_VERSION),
        Identity::Quorate => (Naming::Quorate, "Quorate", env!("CARGO_PKG_VERSION")),
    };
    let rpc_address = settings.rpc_address().to_string();
    let name = settings.node_name.clone();
    let listener = |address: SocketAddr, protocol, purpose| ListenerFacts {
        interface: address.ip().to_string(),
        port: address.port(),
        protocol,
        purpose,
    };
    let mut listeners = vec![
        listener(ports.amqp.local_addr()?, "amqp", "AMQP 0-9-1"),
        listener(ports.rpc.address(), "clustering", "inter-node and CLI tool communication"),
        listener(ports.http.local_addr()?, "http", "HTTP API"),
    ];
    if let Some(amqp) = &ports.amqp_tls {
        listeners.push(listener(amqp.local_addr()?, "amqp/ssl", "AMQP 0-9-1 over TLS"));
    }
    if let Some(http) = &ports.http_tls {
        listeners.push(listener(http.local_addr()?, "https", "HTTP API over TLS (HTTPS)"));
    }
    Ok(NodeFacts {
        id: settings.node_id,
        name: name.unwrap_or_else(|| naming.name(settings.node_id, &rpc_address)),
        naming,
        product: product.to_owned(),
        product_version: product_version.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_dir: settings.data_dir.display().to_string(),
        config_file: loaded
            .file
            .as_ref()
            .map_or_else(String::new, |file| file.display().to_string()),
        listeners,
        started: Instant::now(),
    })
}

fn find_secret(settings: &Settings) -> Result<ClusterSecret, SecretError> {
    let variable = std::env::var(secret::VARIABLE).ok();
    let home = std::env::var("HOME").ok();
    let file = settings.cluster_secret_file.as_deref();
    secret::find_or_make(variable.as_deref(), file, home.as_deref())?.cluster_secret()
}

/// Runs a node until it is asked to stop, or must. AMQP clients are served as `clients` says.
///
/// # Errors
/// Why it could not start.
pub(crate) async fn run(
    loaded: Loaded,
    exit_on_stdin_close: bool,
    clients: Clients,
) -> Result<ExitReason, StartError> {
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let asked = stop_requests(exit_on_stdin_close)?;
    let settings = &loaded.settings;
    let secret = find_secret(settings)?;
    let tls = Tls::load(settings)?;
    let definitions =
        settings.definitions_file.as_deref().map(DefinitionsFile::read).transpose()?;
    let ports = Ports::bind(settings).await?;
    let system = |source| StartError::System { what: "cannot use the bound ports", source };
    let facts = Arc::new(facts(&loaded, &ports).map_err(system)?);
    let Ports { rpc, amqp, http, amqp_tls, http_tls } = ports;

    tracing::info!(
        node = %facts.id, name = facts.name, version = facts.version, data_dir = facts.data_dir,
        "node is starting"
    );
    tls.keep_current();
    let mut node = wiring::start(settings, &facts, secret.clone(), tls.rpc.clone()).await?;
    let importing = definitions.map(|file| file.begin_import(node.broker.clone()));

    let (stop, stopping) = watch::channel(false);
    let peers = Peers::new(settings.node_id, Connector::new(secret, tls.rpc.map(|rpc| rpc.dialer)));
    let runtimes = [("quorate", Handle::current()), ("clients", clients.runtime.clone())];
    let pulses = Pulses::watch(&runtimes);
    let routes = routes(&node, &facts, pulses.clone(), peers.clone());
    let rpc = tokio::spawn(serve_rpc(rpc, routes, node.door(), stopping.clone()));
    let api = quorate_management::api(node.broker.clone(), Arc::clone(&facts), peers);
    let router = quorate_management::router(node.broker.clone(), Arc::clone(&facts), pulses);
    let router = router.merge(api);
    let http = serve_http(http, http_tls.zip(tls.http), &router, &stopping);
    let amqp = Listeners {
        plain: handed_over(amqp, &clients.runtime).map_err(system)?,
        tls: amqps(amqp_tls.zip(tls.amqp), settings, &clients.runtime).map_err(system)?,
    };
    node.serve_amqp(amqp, &clients);
    tracing::info!("node started, waiting for a majority of the nodes and leaders of all groups");
    let reporting = tokio::spawn(log_readiness(node.broker.clone()));

    let reason = tokio::select! {
        signal = asked => ExitReason::Asked(signal.unwrap_or("end of the signal streams")),
        fatal = node.fatal() => ExitReason::Fatal(fatal),
    };
    if let ExitReason::Asked(signal) = reason {
        reporting.abort();
        if let Some(importing) = importing {
            importing.abort();
        }
        tracing::info!(signal, "node is stopping");
        node.stop().await;
        stop.send_replace(true);
        log_end("rpc", rpc.await);
        for http in http {
            if let Err(error) = http.await {
                tracing::warn!(port = "http", %error, "the server of a port failed");
            }
        }
        tracing::info!("node stopped");
    }
    Ok(reason)
}

/// What the rpc port serves: the links of other nodes, and what `quorate ctl` asks.
fn routes(node: &Node, facts: &Arc<NodeFacts>, pulses: Pulses, peers: Peers) -> Routes {
    let broker = &node.broker;
    let admin = AdminService::new(broker.clone(), Arc::clone(facts), pulses, peers.clone());
    let access = AccessService::new(broker.clone(), peers);
    let policies = PolicyService::new(broker.clone(), Arc::clone(facts));
    let routes = node.routes.clone().add_service(AdminServer::new(admin));
    let routes = routes.add_service(AccessServer::new(access));
    routes.add_service(PoliciesServer::new(policies))
}

/// Serves the same pages on the port without TLS and, if there is one, on that with TLS.
fn serve_http(
    plain: TcpListener,
    secured: Option<(TcpListener, Acceptor)>,
    router: &Router,
    stopping: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let secured = secured.map(|(listener, tls)| (listener, Some(tls)));
    let ports = [(plain, None)].into_iter().chain(secured);
    let serve = |(listener, tls)| {
        let stop = stopped(stopping.clone());
        tokio::spawn(quorate_management::serve(listener, tls, router.clone(), stop))
    };
    ports.map(serve).collect()
}

/// The port of AMQP clients with TLS, for the runtime that serves it.
fn amqps(
    port: Option<(TcpListener, Acceptor)>,
    settings: &Settings,
    runtime: &Handle,
) -> io::Result<Option<TlsListener>> {
    let Some((listener, acceptor)) = port else { return Ok(None) };
    let tls_login_from = settings.tls_login_from;
    Ok(Some(TlsListener { listener: handed_over(listener, runtime)?, acceptor, tls_login_from }))
}

/// The listener, registered with another runtime.
fn handed_over(listener: TcpListener, to: &Handle) -> io::Result<TcpListener> {
    let listener = listener.into_std()?;
    let _entered = to.enter();
    TcpListener::from_std(listener)
}

fn log_end<E: std::fmt::Display>(
    port: &'static str,
    ended: Result<Result<(), E>, tokio::task::JoinError>,
) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(port, %error, "the server of a port failed"),
        Err(error) => tracing::warn!(port, %error, "the server of a port failed"),
    }
}

async fn serve_rpc(
    listener: Listener,
    routes: Routes,
    door: Door,
    stopping: watch::Receiver<bool>,
) -> Result<(), ListenError> {
    listener.serve(routes, door, stopped(stopping)).await
}

/// Resolves when the node stops.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    // The loss of the sender means a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// The requests to stop: signals, and the end of standard input if that is enabled.
fn stop_requests(
    exit_on_stdin_close: bool,
) -> Result<impl Future<Output = Option<&'static str>>, StartError> {
    let system = |what| move |source| StartError::System { what, source };
    let mut terminate = signal(SignalKind::terminate()).map_err(system("cannot handle SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("cannot handle SIGINT"))?;
    let stdin_closed = stdin_end(exit_on_stdin_close)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => Some("SIGTERM"),
            _ = interrupt.recv() => Some("SIGINT"),
            _ = stdin_closed => Some("end of standard input"),
        }
    })
}

/// Resolves at the end of standard input; never, if that is disabled.
fn stdin_end(counts: bool) -> Result<impl Future<Output = ()>, StartError> {
    let (ended, end) = oneshot::channel();
    if counts {
        // A thread, since a read of standard input cannot be cancelled.
        let read = move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            let _ = ended.send(());
        };
        let spawned = std::thread::Builder::new().name("stdin".to_owned()).spawn(read);
        spawned.map_err(|source| StartError::System { what: "cannot start a thread", source })?;
    }
    Ok(async move {
        if end.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
