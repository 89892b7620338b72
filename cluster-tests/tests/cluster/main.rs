//! Tests against real clusters, one file a subject: one program, so that it is linked once and tests of
//! different subjects share the machine.

mod access;
mod across_nodes;
mod alarms;
mod audit;
mod backlog;
mod bad_input;
mod catch_up;
mod channels;
mod consumers;
mod ctl;
mod dead_letters;
mod definitions;
mod delivery_limit;
mod exchanges;
mod exclusive;
mod failover;
mod http;
mod large_bodies;
mod limits;
mod many_queues;
mod minority;
mod policies;
mod prefetch;
mod reconnect;
mod refusals;
mod reply_to;
mod requeue;
mod silence;
mod slow_clients;
mod start;
mod stop;
mod topologies;
mod transactions;
mod ttl;
mod vhosts;
