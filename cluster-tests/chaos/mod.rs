//! Chaos: a cluster under a mixed load, faults from a schedule that a seed makes, and a verdict about
//! everything that clients saw.
//!
//! A run is made of these parts, in this order:
//! - [`schedule`]: what is done to the cluster and when. Made from a seed, saved before the start.
//! - [`injector`]: does it, and reads back from the process, the proxy or the disk that it took effect.
//! - [`foreign`]: the same for processes that somebody else runs, by a command of theirs.
//! - [`workload`]: what clients do meanwhile, and [`administrator`] what is changed.
//! - [`run`]: starts the cluster and the clients, walks through the schedule, heals, drains and judges.
//! - [`gaps`]: the times without confirms, by the kind of fault, and what was stuck; [`stalls`]: the times
//!   in which the machine itself stood still.
//! - [`rest`]: what nodes still hold when clients have left.
//! - [`report`]: one HTML page, and the history as lines of JSON.

pub mod administrator;
pub mod fault;
pub mod foreign;
pub mod gaps;
pub mod injector;
mod life;
pub mod report;
pub mod rest;
pub mod run;
pub mod schedule;
pub mod stalls;
mod timeline;
pub mod workload;
