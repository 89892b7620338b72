//! `quorate server`: one node, from its settings to its end.
//!
//! 1. The cluster secret is found or made.
//! 2. The files of TLS and of definitions are read. The ports are bound, so that one in use is refused before
//!    anything is touched.
//! 3. The data directory is opened. The rpc port and HTTP are served: nodes that start at the same time
//!    ask each other whether there is a cluster.
//! 4. A node with an empty directory enters the cluster (`joining`).
//! 5. The groups and the broker start (`wiring`), and AMQP is served. Definitions are imported when the
//!    node is ready but for them.
//! 6. SIGTERM, SIGINT or the end of standard input (`--exit-on-stdin-close`) stops it: the AMQP
//!    port closes, leaderships are handed over, clients are told, the disk is left in order, the
//!    other ports close.

use super::definitions_file::{DefinitionsFile, DefinitionsFileError};
use super::log_lines::LogLines;
use super::own_process::{OwnProcess, certificate_files};
use super::secret::{self, SecretError};
use super::settings::{HostPort, Identity, Loaded, RABBITMQ_VERSION, Settings};
use super::tls::Tls;
use super::wiring::{self, Clients, Prepared, WiringError};
use quorate_amqp::{Listeners, TlsListener};
use quorate_management::wire::{
    access_server::AccessServer, admin_server::AdminServer, events_server::EventsServer,
    messages_server::MessagesServer, parts_server::PartsServer, policies_server::PoliciesServer,
    process_admin_server::ProcessAdminServer, statistics_server::StatisticsServer,
    tasks_server::TasksServer,
};
use quorate_management::{
    AccessService, AdminService, Browser, EventService, ListenerFacts, MessageService, Naming,
    NodeFacts, PartService, Peers, PolicyService, ProcessService, Pulses, Rates, Router, Sampling,
    Sessions, StatisticsService, TaskService, log_readiness,
};
use quorate_rpc::{ClusterSecret, Connector, ListenError, Listener};
use quorate_tls::{Acceptor, TlsError};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, lookup_host};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::service::Routes;

/// How long a stopping node waits for answers to operators that are still being sent.
const SERVERS_END_MAX: Duration = Duration::from_secs(1);

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
    pub(crate) metrics: Option<TcpListener>,
}

impl Ports {
    async fn bind(settings: &Settings) -> Result<Self, StartError> {
        Ok(Self {
            rpc: bind_rpc(&settings.rpc_listen).await?,
            amqp: bind("amqp_listen", &settings.amqp_listen).await?,
            http: bind("http_listen", &settings.http_listen).await?,
            amqp_tls: bind_if_set("amqp_tls_listen", settings.amqp_tls_listen.as_ref()).await?,
            http_tls: bind_if_set("http_tls_listen", settings.http_tls_listen.as_ref()).await?,
            metrics: bind_if_set("metrics_listen", settings.metrics_listen.as_ref()).await?,
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
    if let Some(metrics) = &ports.metrics {
        let purpose = "Prometheus exporter API over HTTP";
        listeners.push(listener(metrics.local_addr()?, "http/prometheus", purpose));
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
        certificates: certificate_files(settings),
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
    lines: Arc<LogLines>,
    exit_on_stdin_close: bool,
    clients: Clients,
) -> Result<ExitReason, StartError> {
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let stop = Arc::new(Notify::new());
    let mut asked = Box::pin(stop_requests(exit_on_stdin_close, Arc::clone(&stop))?);
    let process = Arc::new(OwnProcess::new(&loaded, lines, stop));
    let settings = &loaded.settings;
    let secret = find_secret(settings)?;
    let tls = Tls::load(settings)?;
    let definitions =
        settings.definitions_file.as_deref().map(DefinitionsFile::read).transpose()?;
    let ports = Ports::bind(settings).await?;
    let system = |source| StartError::System { what: "cannot use the bound ports", source };
    let facts = Arc::new(facts(&loaded, &ports).map_err(system)?);
    let Ports { rpc, amqp, http, amqp_tls, http_tls, metrics } = ports;

    tracing::info!(
        node = %facts.id, name = facts.name, version = facts.version, data_dir = facts.data_dir,
        "node is starting"
    );
    tls.keep_current();
    let prepared = wiring::prepare(settings, &facts, secret.clone(), tls.rpc.clone())?;
    let importing = definitions.map(|file| file.begin_import(prepared.broker.clone()));
    let connector = Connector::new(secret, tls.rpc.map(|rpc| rpc.dialer));
    let pulses =
        Pulses::watch(&[("quorate", Handle::current()), ("clients", clients.runtime.clone())]);
    let http = HttpPorts { plain: http, tls: http_tls.zip(tls.http), metrics };
    let rates = Rates::new(sampling(settings));
    tokio::spawn(rates.clone().run(prepared.broker.clone()));
    let inside = (pulses, rates);
    let served = Served::begin(&prepared, &facts, process, (rpc, http), inside, connector.clone());
    let amqp = Listeners {
        plain: handed_over(amqp, &clients.runtime).map_err(system)?,
        tls: amqps(amqp_tls.zip(tls.amqp), settings, &clients.runtime).map_err(system)?,
    };
    let joined = tokio::select! {
        joined = prepared.enter(settings, &connector) => joined?,
        signal = &mut asked => return Ok(abandon(prepared, served, signal).await),
    };
    let mut node = prepared.start(settings, joined).await?;
    node.serve_amqp(amqp, &clients);
    tracing::info!("node started, waiting for a majority of the nodes and leaders of all groups");
    let reporting = tokio::spawn(log_readiness(node.broker.clone()));

    let reason = tokio::select! {
        signal = asked => ExitReason::Asked(named(signal)),
        fatal = node.fatal() => ExitReason::Fatal(fatal),
    };
    if let ExitReason::Asked(signal) = reason {
        reporting.abort();
        if let Some(importing) = importing {
            importing.abort();
        }
        tracing::info!(signal, "node is stopping");
        node.stop().await;
        served.end().await;
        tracing::info!("node stopped");
    }
    Ok(reason)
}

fn named(signal: Option<&'static str>) -> &'static str {
    signal.unwrap_or("end of the signal streams")
}

/// Ends a node that was asked to stop before it had entered a cluster.
async fn abandon(prepared: Prepared, served: Served, signal: Option<&'static str>) -> ExitReason {
    let signal = named(signal);
    tracing::info!(signal, "node is stopping before it has entered a cluster");
    prepared.abandon();
    served.end().await;
    tracing::info!("node stopped");
    ExitReason::Asked(signal)
}

/// The ports of HTTP, bound.
struct HttpPorts {
    plain: TcpListener,
    tls: Option<(TcpListener, Acceptor)>,
    metrics: Option<TcpListener>,
}

/// The ports that are served from the beginning to the end: those of nodes and operators.
struct Served {
    stop: watch::Sender<bool>,
    rpc: JoinHandle<Result<(), ListenError>>,
    http: Vec<JoinHandle<()>>,
}

impl Served {
    fn begin(
        prepared: &Prepared,
        facts: &Arc<NodeFacts>,
        process: Arc<OwnProcess>,
        (rpc, http): (Listener, HttpPorts),
        (pulses, rates): (Pulses, Rates),
        connector: Connector,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        let peers = Peers::new(facts.id, connector);
        let routes = routes(prepared, facts, (pulses.clone(), rates.clone()), peers.clone());
        let routes = routes.add_service(ProcessAdminServer::new(ProcessService::new(process)));
        let (door, stopped) = (prepared.door(), stopped(stopping.clone()));
        let rpc = tokio::spawn(async move { rpc.serve(routes, door, stopped).await });
        let (broker, facts) = (&prepared.broker, Arc::clone(facts));
        let sessions = Sessions::new(facts.id);
        let page = quorate_management::page(broker.clone(), Arc::clone(&facts), sessions.clone());
        let inside = (sessions, rates.clone());
        let api = quorate_management::api(broker.clone(), Arc::clone(&facts), peers, inside);
        let health = quorate_management::health_pages(broker.clone(), pulses);
        let metrics = quorate_management::metric_pages(broker.clone(), facts, rates);
        let all = health.merge(metrics.clone()).merge(api).merge(page);
        Self { stop, rpc, http: serve_http(http, &all, &metrics, &stopping) }
    }

    /// Ends the servers after the groups. A request that still waits for a group would wait until its
    /// time is up, and a client that does not read its answer for ever: they have [`SERVERS_END_MAX`].
    async fn end(self) {
        self.stop.send_replace(true);
        let ended = async {
            log_end("rpc", self.rpc.await);
            for http in self.http {
                if let Err(error) = http.await {
                    tracing::warn!(port = "http", %error, "the server of a port failed");
                }
            }
        };
        if timeout(SERVERS_END_MAX, ended).await.is_err() {
            tracing::info!("stopping although requests of operators are still open");
        }
    }
}

fn sampling(settings: &Settings) -> Sampling {
    Sampling {
        interval: Duration::from_millis(settings.statistics_interval_ms),
        retention: Duration::from_millis(settings.statistics_retention_ms),
    }
}

/// What the rpc port serves: the links of other nodes, and what `quorate ctl` asks.
fn routes(
    prepared: &Prepared,
    facts: &Arc<NodeFacts>,
    (pulses, rates): (Pulses, Rates),
    peers: Peers,
) -> Routes {
    let broker = &prepared.broker;
    let statistics = StatisticsService::new(broker.clone(), rates);
    let admin = AdminService::new(broker.clone(), Arc::clone(facts), pulses, peers.clone());
    let access = AccessService::new(broker.clone(), peers.clone());
    let policies = PolicyService::new(broker.clone(), Arc::clone(facts));
    let messages = MessageService::new(Browser::new(broker.clone(), peers));
    let routes = prepared.routes.clone().add_service(AdminServer::new(admin));
    let routes = routes.add_service(AccessServer::new(access));
    let routes = routes.add_service(PartsServer::new(PartService::new(broker.clone())));
    let routes = routes.add_service(StatisticsServer::new(statistics));
    let routes = routes.add_service(EventsServer::new(EventService));
    let routes = routes.add_service(PoliciesServer::new(policies));
    let routes = routes.add_service(TasksServer::new(TaskService::new(broker.clone())));
    routes.add_service(MessagesServer::new(messages))
}

/// Serves `all` pages on the port without TLS and on that with TLS, and `metrics` on the port for them, if
/// there are such ports.
fn serve_http(
    ports: HttpPorts,
    all: &Router,
    metrics: &Router,
    stopping: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let secured = ports.tls.map(|(listener, tls)| (listener, Some(tls), all));
    let of_metrics = ports.metrics.map(|listener| (listener, None, metrics));
    let ports = [(ports.plain, None, all)].into_iter().chain(secured).chain(of_metrics);
    let serve = |(listener, tls, router): (_, _, &Router)| {
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

/// Resolves when the node stops.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    // The loss of the sender means a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// The requests to stop: signals, those of operators, and the end of standard input if that is enabled.
fn stop_requests(
    exit_on_stdin_close: bool,
    by_operator: Arc<Notify>,
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
            () = by_operator.notified() => Some("an operator's command"),
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
