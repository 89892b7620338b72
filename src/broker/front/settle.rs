//! Settling what consumers and gets hold, giving room to waiting consumers, and ending what a
//! channel holds (ACK, QOS-06, CHN-05, DLV 6).

use crate::{
    client::{ChannelId, Event, HolderRef, Settle, Settlement},
    front::{
        FrontEnd,
        ack_timeout::acknowledgement_timeout,
        client_handle::Client,
        connection_state::{ConnectionState, HeldByChannel},
    },
    peers::message::GetId,
};
use quorate_queue::{Command, Detach};
use quorate_types::{DeliveryNumber, Holder, Home, QueueType, RequeueCause};
use std::{collections::BTreeSet, sync::Arc};

impl Client<'_> {
    /// Settles deliveries, after what the client published before.
    pub(crate) fn settle(&self, settles: Vec<Settle>) {
        let settles = self.state.publishing.held.lock().hold_settles(settles);
        self.node.front.settle(self.state, settles);
    }
}

impl FrontEnd {
    /// Settles what a client settles, and counts it out of what its channels hold.
    pub(crate) fn settle(
        self: &Arc<Self>,
        connection: &Arc<ConnectionState>,
        settles: Vec<Settle>,
    ) {
        self.count_settled(connection, settles, |home, command| {
            // Settles do not overtake what the client published before: a message is not settled
            // before the messages made from it are enqueued, at least within one home.
            let is_ack = matches!(command, Command::Ack { .. });
            if is_ack && connection.publishing.in_flight.bytes() == 0 {
                self.base.proposers.submit_ahead(home, command);
            } else {
                self.base.proposers.submit(home, command);
            }
        });
    }

    /// Counts what a client settles out of what its channels hold; `submit` gets the commands that settle it.
    pub(crate) fn count_settled(
        self: &Arc<Self>,
        connection: &Arc<ConnectionState>,
        settles: Vec<Settle>,
        mut submit: impl FnMut(Home, Command),
    ) {
        let mut opened = BTreeSet::new();
        for settle in settles {
            let Settle { holder: HolderRef { home, holder }, numbers, settlement } = settle;
            let count = numbers.iter().map(|(first, last)| last.0 + 1 - first.0).sum::<u64>();
            let queue_type = settled_at(connection, HolderRef { home, holder }, count, &mut opened);
            if let (Settlement::Ack, Some(queue_type)) = (settlement, queue_type) {
                self.base.context.counters.deliveries(queue_type).acknowledged.add(count);
            }
            let command = match settlement {
                Settlement::Ack => Command::Ack { holder, numbers },
                Settlement::Requeue(cause) => Command::Requeue { holder, numbers, cause },
                Settlement::Discard => Command::Discard { holder, numbers },
                Settlement::Release => Command::Release { holder, numbers },
            };
            submit(home, command);
        }
        for channel in opened {
            self.share_room(connection, channel);
        }
    }

    /// Submits commands in order.
    pub(crate) fn submit(&self, commands: Vec<(Home, Command)>) {
        for (home, command) in commands {
            self.base.proposers.submit(home, command);
        }
    }

    /// Ends everything that a channel held; returns the commands that tell the queues.
    pub(crate) fn end_commands(&self, channel: HeldByChannel) -> Vec<(Home, Command)> {
        let mut commands = Vec::new();
        for (id, consumer) in channel.consumers {
            self.clients.consumers.remove(id.number);
            let (shown, _) = consumer.end();
            let detach = Command::Detach { consumer: id, shown, how: Detach::ChannelEnd };
            commands.push((consumer.home(), detach));
        }
        for HolderRef { home, holder } in channel.gets.into_keys() {
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            let cause = RequeueCause::ChannelEnd;
            commands.push((home, Command::Requeue { holder, numbers, cause }));
        }
        commands
    }
}

impl FrontEnd {
    /// Closes the channels of gets whose messages were held too long (CTO-05).
    pub(crate) fn gets_timed_out(&self, home: Home, gets: Vec<GetId>) {
        let holder = |(session, sequence)| Holder::Get(session, sequence);
        let gets: BTreeSet<_> =
            gets.into_iter().map(|get| HolderRef { home, holder: holder(get) }).collect();
        for connection in self.clients.connections.all() {
            let late: Vec<_> = {
                let held = connection.held.lock();
                let is_late =
                    |channel: &HeldByChannel| channel.gets.keys().any(|get| gets.contains(get));
                let channels = held.channels.iter().filter(|(_, channel)| is_late(channel));
                channels.map(|(channel, _)| *channel).collect()
            };
            for channel in late {
                let exception = acknowledgement_timeout(channel);
                connection.mailbox.put(Event::GetTimedOut { channel, exception });
            }
        }
    }
}

impl ConnectionState {
    /// Whether that channel holds what is to be settled.
    pub(crate) fn is_of(&self, channel: ChannelId, settled: HolderRef) -> bool {
        let held = self.held.lock();
        held.channels.get(&channel).is_some_and(|held| match settled.holder {
            Holder::Consumer(id) => held.consumers.contains_key(&id),
            Holder::Get(..) => held.gets.contains_key(&settled),
        })
    }
}

/// Counts `count` deliveries out of what a holder holds, and returns the type of its queue. If its
/// channel has a limit, the channel is added to `opened`, since its consumers may have room now.
fn settled_at(
    connection: &ConnectionState,
    settled: HolderRef,
    count: u64,
    opened: &mut BTreeSet<ChannelId>,
) -> Option<QueueType> {
    let mut held = connection.held.lock();
    let Holder::Consumer(id) = settled.holder else {
        return held.channels.values_mut().find_map(|channel| channel.gets.remove(&settled));
    };
    let mut channels = held.channels.iter_mut();
    let (number, channel) = channels.find(|(_, channel)| channel.consumers.contains_key(&id))?;
    channel.unsettled = channel.unsettled.saturating_sub(count);
    if channel.limit.is_some() {
        opened.insert(*number);
    }
    let (number, consumer) = (*number, Arc::clone(channel.consumers.get(&id)?));
    // A consumer locks `held` of its connection while its own state is locked.
    drop(held);
    if consumer.settled(count) {
        let mut held = connection.held.lock();
        held.channels.get_mut(&number).and_then(|channel| channel.consumers.remove(&id));
    }
    Some(consumer.about.queue_type)
}
