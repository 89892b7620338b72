//! One node's broker: its rooms, put together.

use crate::{
    base::Base,
    cluster::{Cluster, alarms::Alarms, failures::Failures},
    front::{FrontEnd, clients::Clients, direct_replies::DirectReplies, publisher::Publisher},
    leader::{Leader, dead_letter::DeadLetters, timer::Timer},
    names::{configure::Configurer, exclusive::ExclusiveQueues, queues::Queues},
    views::turns::Turns,
};
use std::sync::Arc;

/// One node's broker. Each room knows only the rooms that are listed before it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) base: Base,
    pub(crate) letters: Arc<DeadLetters>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) replies: Arc<DirectReplies>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) exclusive: Arc<ExclusiveQueues>,
    pub(crate) front: Arc<FrontEnd>,
    pub(crate) leader: Arc<Leader>,
    pub(crate) cluster: Arc<Cluster>,
    /// Turns of requests that take long.
    pub(crate) turns: Turns,
}

quorate_types::declare_shared!(Node: base, letters, clients, alarms, replies, publisher, queues,
    exclusive, front, leader, cluster, turns);

impl Node {
    /// A broker without clients.
    pub(crate) fn new(base: Base) -> Arc<Self> {
        let settings = &base.context.settings;
        let failures = Arc::new(Failures::new(settings.me, &settings.members));
        let (configurer, timer) = (Configurer::new(&base), Arc::new(Timer::new(&base)));
        let letters = DeadLetters::new(&base);
        let clients = Arc::new(Clients::new(&base));
        let alarms = Arc::new(Alarms::new(&base, &clients));
        let replies = Arc::new(DirectReplies::new(&base, &clients));
        let publisher = Arc::new(Publisher::new(&base, &clients, &replies, &alarms));
        let queues = Arc::new(Queues::new(&base, &configurer));
        let exclusive = Arc::new(ExclusiveQueues::new(&base, &queues));
        let front = Arc::new(FrontEnd::new(&base, &clients, &publisher, &letters));
        let leader = Arc::new(Leader::new(&base, &letters, &timer, &queues, &failures));
        let cluster = Arc::new(Cluster::new(&base, &clients, &leader, &failures));
        Arc::new(Self {
            letters,
            clients,
            alarms,
            replies,
            publisher,
            queues,
            exclusive,
            front,
            leader,
            cluster,
            turns: Turns::new(),
            base,
        })
    }
}
