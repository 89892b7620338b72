//! What the rooms of the broker share: this node's proposers, groups, links, catalog copy,
//! connections and consumers.

use crate::{
    alarms::Alarms,
    base::Base,
    bodies::Bodies,
    client::Event,
    configure::Configurer,
    connection_state::ConnectionState,
    consumer::FrontConsumer,
    context::Context,
    counts::Counts,
    dead_letter::DeadLetters,
    failures::Failures,
    hearing::Hearing,
    led_homes::LedHomes,
    making::Making,
    names::{CatalogClient, CatalogCopy, RoutingLease},
    once_per_minute::OncePerMinute,
    proposers::Proposers,
    reconciler::Reconciler,
    registry::Registry,
    timer::Timer,
    tracer::Tracer,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use quorate_rpc::chance;
use quorate_storage::DatabaseStats;
use quorate_types::{ConsumerId, Exception, GroupId, Home, ReplyCode, ShortString, Term};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock, Weak},
};

/// Leaderships that began before the broker did.
pub(crate) type Early = Mutex<BTreeMap<GroupId, Term>>;

/// One node's broker, shared by all its rooms.
pub(crate) struct Node {
    pub(crate) this: Weak<Node>,
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: Arc<CatalogCopy>,
    pub(crate) catalog_client: Arc<CatalogClient>,
    pub(crate) lease: Arc<RoutingLease>,
    pub(crate) making: Arc<Making>,
    pub(crate) led: Arc<LedHomes>,
    pub(crate) hearing: Hearing,
    pub(crate) proposers: Arc<Proposers>,
    pub(crate) letters: Arc<DeadLetters>,
    pub(crate) connections: Registry<Arc<ConnectionState>>,
    pub(crate) consumers: Registry<Arc<FrontConsumer>>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) failures: Failures,
    pub(crate) reconciler: Reconciler,
    /// Somebody was told that a connection-bound queue of this node is gone.
    pub(crate) gone: tokio::sync::Notify,
    pub(crate) configurer: Arc<Configurer>,
    pub(crate) alarms: Alarms,
    /// When who holds most of them was last looked for.
    pub(crate) relief: Mutex<Option<tokio::time::Instant>>,
    pub(crate) logins: crate::login::Logins,
    /// What other nodes count against limits.
    pub(crate) counts: Counts,
    pub(crate) early: Early,
    /// Groups that this node is about to announce itself to again.
    pub(crate) reannouncing: Mutex<BTreeSet<GroupId>>,
    /// When a missing alternate exchange was last told of.
    pub(crate) warned_of_alternate: Mutex<OncePerMinute<()>>,
    pub(crate) bodies: Arc<Bodies>,
    /// Held by the message to many queues whose turn it is to send copies.
    pub(crate) spreading: tokio::sync::Mutex<()>,
    pub(crate) tracer: Tracer,
    /// The database's numbers.
    pub(crate) storage_stats: OnceLock<StatsSource>,
    /// Whether this run's session is in force.
    pub(crate) started: tokio::sync::watch::Sender<bool>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.context.me)
    }
}

/// Where the database's numbers come from.
pub(crate) type StatsSource = Box<dyn Fn() -> DatabaseStats + Send + Sync>;

impl Node {
    /// A node that serves nobody yet.
    pub(crate) fn new(base: Base) -> Arc<Self> {
        let (configurer, timer) = (Configurer::new(&base), Timer::new(&base));
        let letters = DeadLetters::new(&base);
        let Base { context, catalog, lease, catalog_client, led, proposers, bodies } = base;
        let settings = &context.settings;
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            catalog,
            catalog_client,
            lease,
            making: Arc::default(),
            hearing: Hearing::new(
                led.queue_groups().map(Home::Group),
                settings.consumer_disconnected_timeout_ms,
            ),
            led,
            proposers,
            letters,
            connections: Registry::default(),
            consumers: Registry::default(),
            timer: Arc::new(timer),
            failures: Failures::new(settings.me, &settings.members),
            reconciler: Reconciler::default(),
            gone: tokio::sync::Notify::new(),
            configurer,
            alarms: Alarms::new(&settings.alarms),
            relief: Mutex::default(),
            logins: Default::default(),
            counts: Default::default(),
            early: Early::default(),
            reannouncing: Mutex::default(),
            warned_of_alternate: Mutex::default(),
            bodies,
            spreading: <_>::default(),
            tracer: Tracer::default(),
            storage_stats: OnceLock::new(),
            started: tokio::sync::watch::Sender::new(false),
            context: Arc::clone(&context),
        })
    }

    /// The node, shared, for tasks that outlive a call; `None` while it is being made or dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// A consumer of this run of the node.
    pub(crate) fn consumer(&self, id: ConsumerId) -> Option<Arc<FrontConsumer>> {
        (self.context.session() == Some(id.session))
            .then(|| self.consumers.get(id.number))
            .flatten()
    }

    /// A server-given name (QUE-06, CON-01).
    pub(crate) fn generated_name(&self, prefix: &str) -> ShortString {
        let chance: [u8; 16] = chance::random();
        let name = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(chance));
        // A prefix of ours and 22 characters are a short string.
        ShortString::try_from(name).unwrap_or_default()
    }

    /// Closes all client connections.
    pub(crate) fn close_all(&self, why: &str) {
        for connection in self.connections.all() {
            let exception = Exception::new(ReplyCode::ConnectionForced, why);
            connection.mailbox.put(Event::Close(exception));
        }
    }
}
