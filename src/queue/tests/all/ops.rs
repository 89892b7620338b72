//! Random commands: an [`Op`] names objects by small numbers, whatever objects exist.

use proptest::prelude::*;
use quorate_queue::{Detach, RequeueCause};
use quorate_types::Overflow;

#[derive(Clone, Debug)]
pub enum Op {
    Create {
        durable: bool,
        auto_delete: bool,
        rules: Rules,
    },
    End {
        queue: usize,
        if_unused: bool,
        if_empty: bool,
    },
    Configure {
        queue: usize,
        at: u64,
        rules: Rules,
    },
    Inspect {
        queue: usize,
        renew: bool,
    },
    Enqueue {
        queue: usize,
        node: u16,
        level: u8,
        count: u32,
        expiration: Option<u64>,
    },
    Attach {
        queue: usize,
        node: u16,
        prefetch: Option<u32>,
        up_to: u64,
        exclusive: bool,
        priority: i64,
        timeout: Option<u64>,
    },
    Detach {
        consumer: usize,
        shown: u64,
        how: Detach,
    },
    EndDelivery {
        consumer: usize,
        numbers: Vec<(u64, u64)>,
        how: How,
    },
    EndGet {
        get: usize,
        how: How,
    },
    Credit {
        consumer: usize,
        up_to: u64,
    },
    Get {
        queue: usize,
        node: u16,
    },
    Purge {
        queue: usize,
    },
    /// The dead-letter worker's routing of letters without a destination.
    Route {
        queue: usize,
        first: u64,
        count: u64,
        keep: bool,
    },
    Suspect {
        node: u16,
    },
    Back {
        node: u16,
    },
    TimedOut {
        node: u16,
    },
    Down {
        node: u16,
    },
    NewStart {
        node: u16,
    },
    SessionEnded {
        node: u16,
    },
    Stale {
        queue: usize,
        node: u16,
    },
    Repeat {
        queue: usize,
        node: u16,
    },
    Gap {
        queue: usize,
        node: u16,
    },
    Continue,
    NewLife,
    Wait(u64),
}

/// The settings on which a queue's rules depend; most queues have few of them.
#[derive(Clone, Debug)]
pub struct Rules {
    pub quorum: bool,
    pub ttl: Option<u64>,
    pub expires: Option<u64>,
    pub length_max: Option<u64>,
    pub length_bytes_max: Option<u64>,
    pub overflow: Overflow,
    pub dead_letters: bool,
    pub letters_max: Option<u64>,
    pub delivery_limit: Option<u32>,
    pub failures: bool,
    pub single_active: bool,
    pub timeout: Option<u64>,
}

fn rarely<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.2, value)
}

fn rules() -> impl Strategy<Value = Rules> {
    let overflow = prop_oneof![
        2 => Just(Overflow::DropHead),
        1 => Just(Overflow::RejectPublish),
        2 => Just(Overflow::RejectPublishDlx),
    ];
    let limits = (rarely(0u64..40), rarely(0u64..4_000), overflow, rarely(0u32..3), any::<bool>());
    let times = (rarely(0u64..60), prop::option::weighted(0.1, 60u64..400), rarely(5u64..80));
    let kinds = (any::<bool>(), 0u8..5);
    let letters = (any::<bool>(), rarely(1u64..20), 0u64..10);
    (limits, times, kinds, letters).prop_map(|(limits, times, (quorum, single), letters)| {
        let (dead_letters, letters_max, little) = letters;
        let (length_max, length_bytes_max, overflow, delivery_limit, failures) = limits;
        // Queues that dead-letter refused messages also refuse (LEN-12).
        let refuses = dead_letters && overflow == Overflow::RejectPublishDlx;
        let length_max = length_max.or_else(|| refuses.then_some(little));
        let (ttl, expires, timeout) = times;
        Rules {
            quorum,
            ttl,
            expires,
            length_max,
            length_bytes_max,
            overflow,
            dead_letters,
            letters_max,
            delivery_limit,
            failures,
            single_active: single == 0,
            timeout,
        }
    })
}

#[derive(Clone, Copy, Debug)]
pub enum How {
    Ack,
    Discard,
    Release,
    Requeue(RequeueCause),
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => Just(How::Ack),
        1 => Just(How::Discard),
        1 => Just(How::Release),
        1 => Just(How::Requeue(RequeueCause::Reject)),
        2 => Just(How::Requeue(RequeueCause::Nack)),
        1 => Just(How::Requeue(RequeueCause::Recover)),
        1 => Just(How::Requeue(RequeueCause::ChannelEnd)),
    ]
}

fn numbers() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0u64..30, 0u64..12), 1..3).prop_map(|steps| {
        let mut low = 0;
        let mut ranges = Vec::new();
        for (gap, length) in steps {
            ranges.push((low + gap, low + gap + length));
            low += gap + length + 1;
        }
        ranges
    })
}

fn up_to() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(u64::MAX), 2 => 0u64..40]
}

/// Random commands; `counts` gives the number of messages of an enqueue.
#[expect(clippy::too_many_lines, reason = "one line an operation")]
pub fn op(counts: impl Strategy<Value = u32> + 'static) -> impl Strategy<Value = Op> {
    let q = 0usize..4;
    let c = 0usize..8;
    let node = 1u16..3;
    let prefetch = prop_oneof![1 => Just(None), 3 => (1u32..12).prop_map(Some)];
    let detach = prop_oneof![Just(Detach::Cancel), Just(Detach::ChannelEnd)];
    let terms = (prefetch, up_to(), 0u8..8, -1i64..2, rarely(1u64..50));
    let attach = (q.clone(), node.clone(), terms).prop_map(
        |(queue, node, (prefetch, up_to, exclusive, priority, timeout))| Op::Attach {
            queue,
            node,
            prefetch,
            up_to,
            exclusive: exclusive == 0,
            priority,
            timeout,
        },
    );
    let create = (0u8..3, 0u8..4, rules()).prop_map(|(transient, auto_delete, rules)| Op::Create {
        durable: transient > 0,
        auto_delete: auto_delete == 0,
        rules,
    });
    let expiration = rarely(0u64..60);
    let enqueue = (q.clone(), node.clone(), 0u8..5, counts, expiration).prop_map(
        |(queue, node, level, count, expiration)| {
            let level = level.saturating_sub(2);
            Op::Enqueue { queue, node, level, count, expiration }
        },
    );
    let end = (q.clone(), 0u8..3).prop_map(|(queue, mode)| Op::End {
        queue,
        if_unused: mode == 1,
        if_empty: mode == 2,
    });
    prop_oneof![
        4 => create,
        6 => end,
        2 => (q.clone(), 0u64..5, rules())
            .prop_map(|(queue, at, rules)| Op::Configure { queue, at, rules }),
        6 => (q.clone(), any::<bool>()).prop_map(|(queue, renew)| Op::Inspect { queue, renew }),
        50 => enqueue,
        24 => attach,
        12 => (c.clone(), 0u64..20, detach)
            .prop_map(|(consumer, shown, how)| Op::Detach { consumer, shown, how }),
        80 => (c.clone(), numbers(), how())
            .prop_map(|(consumer, numbers, how)| Op::EndDelivery { consumer, numbers, how }),
        16 => (c.clone(), how()).prop_map(|(get, how)| Op::EndGet { get, how }),
        16 => (c, up_to()).prop_map(|(consumer, up_to)| Op::Credit { consumer, up_to }),
        30 => (q.clone(), node.clone()).prop_map(|(queue, node)| Op::Get { queue, node }),
        2 => q.clone().prop_map(|queue| Op::Purge { queue }),
        16 => (q.clone(), 0u64..20, prop_oneof![0u64..20, Just(10_000)], prop::bool::weighted(0.3))
            .prop_map(|(queue, first, count, keep)| Op::Route { queue, first, count, keep }),
        5 => node.clone().prop_map(|node| Op::Suspect { node }),
        8 => node.clone().prop_map(|node| Op::Back { node }),
        2 => node.clone().prop_map(|node| Op::TimedOut { node }),
        1 => node.clone().prop_map(|node| Op::Down { node }),
        1 => node.clone().prop_map(|node| Op::NewStart { node }),
        1 => node.clone().prop_map(|node| Op::SessionEnded { node }),
        3 => (q.clone(), node.clone()).prop_map(|(queue, node)| Op::Stale { queue, node }),
        6 => (q.clone(), node.clone()).prop_map(|(queue, node)| Op::Repeat { queue, node }),
        3 => (q, node).prop_map(|(queue, node)| Op::Gap { queue, node }),
        6 => Just(Op::Continue),
        1 => Just(Op::NewLife),
        10 => (1u64..80).prop_map(Op::Wait),
    ]
}

/// Entries of a few commands each.
pub fn entries(
    counts: impl Strategy<Value = u32> + 'static,
    most: usize,
) -> impl Strategy<Value = Vec<Vec<Op>>> {
    prop::collection::vec(prop::collection::vec(op(counts), 1..5), 1..most)
}
