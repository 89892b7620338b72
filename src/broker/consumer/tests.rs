//! What a consumer tells its queue's home, and those of its channel's other consumers.

use super::*;
use crate::testing;
use quorate_types::{GroupId, NodeId};

#[tokio::test]
async fn qos_06_a_full_channel_pauses_its_consumers_each_at_its_own_home() {
    let node = testing::node();
    let connection = testing::connection(&node);
    let channel = ChannelId { number: 1, opened: 1 };
    let homes = [Home::Group(GroupId(1)), Home::Group(GroupId(2)), Home::Node(NodeId(1))];
    let consumers: Vec<_> = (1..)
        .zip(homes)
        .map(|(number, home)| {
            let new = NewConsumer {
                id: ConsumerId { session: testing::SESSION, number },
                queue: QueueId { home, index: 1, position: 0 },
                queue_type: QueueType::Quorum,
                has_delivery_limit: false,
                channel,
                tag: ShortString::default(),
                no_ack: false,
                prefetch: 0,
                windowed: false,
                arguments: FieldTable::default(),
                room: Some(1),
            };
            Arc::new(FrontConsumer::new(new, Arc::clone(&connection)))
        })
        .collect();
    let entries = consumers.iter().map(|consumer| (consumer.id, Arc::clone(consumer)));
    connection.held.lock().channels.entry(channel).or_default().consumers.extend(entries);
    let mut commands = Vec::new();
    if let Some(first) = consumers.first() {
        first.close_gate(&mut first.state.lock(), &mut commands);
    }
    let mut released = Vec::new();
    for (home, command) in commands {
        let Command::Release { holder: Holder::Consumer(id), .. } = command else { continue };
        released.push((id.number, home));
    }
    released.sort_unstable();
    assert_eq!(released, (1..).zip(homes).collect::<Vec<_>>());
}
