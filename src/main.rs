//! `quorate`: a clustered AMQP 0-9-1 message broker.

mod cli;

fn main() {}
