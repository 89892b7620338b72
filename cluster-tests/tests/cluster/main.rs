//! Tests against real clusters, one file a subject: one program, so that it is linked once and tests of
//! different subjects share the machine.

mod across_nodes;
mod alarms;
mod audit;
mod backlog;
mod bad_input;
mod catch_up;
mod ctl;
mod dead_letters;
mod exchanges;
mod exclusive;
mod failover;
mod http;
mod large_bodies;
mod many_queues;
mod minority;
mod prefetch;
mod reconnect;
mod refusals;
mod requeue;
mod silence;
mod slow_clients;
mod start;
mod stop;
