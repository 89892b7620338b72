//! The parts that several rooms of the broker use, from below upwards: each part knows only those
//! listed before it.

use crate::{
    context::Context,
    front::proposers::Proposers,
    leader::{bodies::Bodies, led_homes::LedHomes},
    names::{CatalogClient, CatalogCopy, RoutingLease},
    settings::BrokerSettings,
};
use parking_lot::RwLock;
use quorate_catalog::Catalog;
use quorate_types::Home;
use std::sync::Arc;

/// The parts that several rooms use.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: Arc<CatalogCopy>,
    pub(crate) lease: Arc<RoutingLease>,
    pub(crate) catalog_client: Arc<CatalogClient>,
    pub(crate) led: Arc<LedHomes>,
    pub(crate) proposers: Arc<Proposers>,
    pub(crate) bodies: Arc<Bodies>,
}

impl Base {
    /// The parts of a node whose groups and links do not run yet. Must be called within a tokio
    /// runtime.
    pub(crate) fn new(settings: BrokerSettings, catalog: Arc<RwLock<Catalog>>) -> Self {
        let groups = settings.shape.groups().map(Home::Group);
        let nodes = settings.members.iter().map(|node| Home::Node(*node));
        let homes: Vec<_> = groups.chain(nodes).collect();
        let context = Arc::new(Context::new(settings));
        let catalog = Arc::new(CatalogCopy::new(catalog));
        let lease = Arc::new(RoutingLease::new(Arc::clone(&context), Arc::clone(&catalog)));
        let catalog_client =
            CatalogClient::new(Arc::clone(&context), Arc::clone(&catalog), Arc::clone(&lease));
        let led = Arc::new(LedHomes::new(&context, &homes));
        let proposers = Proposers::new(&context, &homes);
        let bodies = Bodies::new(Arc::clone(&context), Arc::clone(&led), Arc::clone(&proposers));
        Self {
            context,
            catalog,
            lease,
            catalog_client: Arc::new(catalog_client),
            led,
            proposers,
            bodies: Arc::new(bodies),
        }
    }
}
