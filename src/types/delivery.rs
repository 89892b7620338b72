//! Types about deliveries: their numbers, their counts, and why a message is requeued.

use crate::DeliveryNumber;

/// A set of delivery numbers, as inclusive ranges in ascending order.
pub type Numbers = Vec<(DeliveryNumber, DeliveryNumber)>;

/// Which method requeued a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequeueCause {
    /// The client sent `basic.reject`.
    Reject,
    /// The client sent `basic.nack`.
    Nack,
    /// The client sent `basic.recover`.
    Recover,
    /// The channel or connection that held a get has ended.
    ChannelEnd,
}

/// How often a message was held before (CON-20, Q-31, Q-32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counts {
    /// Times it was assigned, shown, and came back: above 0 it is `redelivered`.
    pub acquired: u32,
    /// Those of them that count towards the delivery limit.
    pub returned: u32,
}
